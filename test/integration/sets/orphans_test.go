//go:build integration

package sets

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
	workflowsorphan "millwright/workflows/orphan"
	"millwright/workflows/run"
)

// sweepSchedule is a schedule of sweeps for the class of a namespace. A sweep runs only when a test triggers it.
type sweepSchedule struct {
	handle     sdk.ScheduleHandle
	sweepCount int // number of ended sweeps
}

// confirmationTime is the time for which an orphan must be without its machine before a sweep deletes the orphan. The
// schedules of this package use this time.
const confirmationTime = 3 * time.Second

func newSweepSchedule(t *testing.T, namespace string) *sweepSchedule {
	t.Helper()
	return &sweepSchedule{handle: testRig.CreateSweepSchedule(t, namespace, confirmationTime)}
}

// startSweep triggers a sweep and returns the workflow ID of the sweep.
func (s *sweepSchedule) startSweep(t *testing.T) string {
	t.Helper()
	require.NoError(t, s.handle.Trigger(t.Context(), sdk.ScheduleTriggerOptions{}))
	s.sweepCount++
	var id string
	rig.Eventually(t, "a sweep begins", func() (bool, any) {
		there, err := s.handle.Describe(t.Context())
		if err != nil || there.Info.NumActions < s.sweepCount {
			return false, err
		}
		last := there.Info.RecentActions[len(there.Info.RecentActions)-1]
		id = last.StartWorkflowResult.WorkflowID
		return true, nil
	})
	return id
}

// runSweep runs a sweep and waits for its result.
func (s *sweepSchedule) runSweep(t *testing.T) workflowsorphan.Result {
	t.Helper()
	var result workflowsorphan.Result
	require.NoError(t, testRig.Temporal.GetWorkflow(t.Context(), s.startSweep(t), "").Get(t.Context(), &result))
	// The next sweep needs the result of this sweep, so the schedule must have recorded that this sweep has ended.
	rig.Eventually(t, "the schedule knows that the sweep has ended", func() (bool, any) {
		there, err := s.handle.Describe(t.Context())
		return err == nil && len(there.Info.RunningWorkflows) == 0, err
	})
	return result
}

// awaitConfirmationTime waits until the next sweep may delete the orphans that this sweep has seen.
func awaitConfirmationTime(seen workflowsorphan.Result) {
	for _, s := range seen.Sightings {
		time.Sleep(time.Until(s.Since.Add(confirmationTime)))
	}
}

// providerIDs returns the provider IDs of all instances of a namespace's class, sorted.
func providerIDs(t *testing.T, namespace string) []string {
	t.Helper()
	all, err := testRig.Cloud.Instances(t.Context())
	require.NoError(t, err)
	var ids []string
	for _, i := range all {
		if strings.HasPrefix(i.Tags.Class, namespace+"/") {
			ids = append(ids, i.ProviderID)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestSweepDeletesOnlyTheInstanceWithoutAMachine(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "swept", "")
	set := createSet(t, "swept", "swept", 3)
	set.awaitRunningMachines(t, 3)
	healthy := providerIDs(t, "swept")
	require.Len(t, healthy, 3)
	lost := testRig.CreateInstanceByHand(t, "swept", "swept-lost")
	s := newSweepSchedule(t, "swept")

	first := s.runSweep(t)
	require.Equal(
		t,
		[]any{workflowsorphan.OutcomeSwept, 4, 3, 1},
		[]any{first.Outcome, first.Instances, first.Machines, first.Orphans},
		"%+v",
		first,
	)
	require.Empty(t, first.Collected, "it was seen once")
	require.Len(t, first.Sightings, 1)
	require.Len(t, providerIDs(t, "swept"), 4)

	awaitConfirmationTime(first)
	second := s.runSweep(t)
	require.Equal(t, []string{lost.ProviderID}, second.Collected, "%+v", second)
	require.Empty(t, second.Sightings)
	require.Equal(t, healthy, providerIDs(t, "swept"))
	set.awaitRunningMachines(t, 3)
	rig.Eventually(t, "people are told", func() (bool, any) {
		events, err := testRig.Kube.CoreV1().Events("swept").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, e := range events.Items {
			if e.Reason == v1alpha1.ReasonOrphansCollected && strings.Contains(e.Message, lost.ProviderID) {
				return true, nil
			}
		}
		return false, len(events.Items)
	})

	third := s.runSweep(t)
	require.Zero(t, third.Orphans, "%+v", third)
	set.deleteSet(t)
}

// A machine was restored into another namespace. The class and the instance of the machine are still in the old
// namespace.
func TestAnInstanceWhoseMachineIsInAnotherNamespaceStays(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "left", "")
	testRig.CreateNamespace(t, "moved-to", "")
	set := createSet(t, "left", "left", 2)
	set.awaitRunningMachines(t, 2)
	moved := testRig.CreateInstanceByHand(t, "left", "left-moved")
	machines := testRig.MachineClient.MachineV1alpha1().Machines("moved-to")
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "left-moved"}, Spec: rig.NewMachineSpec()}
	m.Spec.ProviderID = moved.ProviderID
	_, err := machines.Create(t.Context(), m, metav1.CreateOptions{})
	require.NoError(t, err)
	s := newSweepSchedule(t, "left")
	lost := testRig.CreateInstanceByHand(t, "left", "left-lost") // the instance lost is younger than the instance moved
	for range 2 {
		result := s.runSweep(t)
		require.Equal(
			t,
			[]any{workflowsorphan.OutcomeSwept, 4, 2, 1},
			[]any{result.Outcome, result.Instances, result.Machines, result.Orphans},
			"%+v",
			result,
		)
		awaitConfirmationTime(result)
	}
	require.NotContains(t, providerIDs(t, "left"), lost.ProviderID)
	require.Contains(t, providerIDs(t, "left"), moved.ProviderID)

	require.NoError(t, machines.Delete(t.Context(), m.Name, metav1.DeleteOptions{}))
	rig.Eventually(t, "the machine's own deletion takes the instance", func() (bool, any) {
		left := providerIDs(t, "left")
		return !slices.Contains(left, moved.ProviderID), left
	})
	set.deleteSet(t)
}

// Another controller has created the instance, and was stopped before it wrote the provider ID to the machine.
func TestAnInstanceOfAnotherControllerIsAdopted(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "taken-over", "")
	// CreateTaggedInstanceByHand copies the cluster's name from the instance of this set
	set := createSet(t, "taken-over", "taken-over", 1)
	set.awaitRunningMachines(t, 1)
	machines := testRig.MachineClient.MachineV1alpha1().Machines("taken-over")
	adopted := testRig.CreateTaggedInstanceByHand(t, "taken-over", "adopted", "")
	before := providerIDs(t, "taken-over")
	_, err := machines.Create(
		t.Context(),
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "adopted"}, Spec: rig.NewMachineSpec()},
		metav1.CreateOptions{},
	)
	require.NoError(t, err)
	rig.Eventually(t, "the machine runs", func() (bool, any) {
		m, err := machines.Get(t.Context(), "adopted", metav1.GetOptions{})
		require.NoError(t, err)
		return m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && m.Spec.ProviderID == adopted.ProviderID, m.Status
	})
	require.Equal(t, before, providerIDs(t, "taken-over"), "no second one")

	left := testRig.CreateTaggedInstanceByHand(t, "taken-over", "left", "")
	result := newSweepSchedule(t, "taken-over").runSweep(t)
	require.Equal(
		t,
		[]string{
			"instance " + left.ProviderID + " has no UID, and the name of Machine left, which does not exist: it is not deleted",
		},
		result.Unclear,
	)
	require.NoError(t, machines.Delete(t.Context(), "adopted", metav1.DeleteOptions{}))
	rig.Eventually(t, "it takes its instance along", func() (bool, any) {
		now := providerIDs(t, "taken-over")
		return !slices.Contains(now, adopted.ProviderID), now
	})
	set.deleteSet(t)
}

// The bridge maintains a schedule for each class.
func TestBridgeMaintainsASweepSchedule(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "scheduled", "")
	class, err := testRig.MachineClient.MachineV1alpha1().
		MachineClasses("scheduled").
		Get(t.Context(), "small", metav1.GetOptions{})
	require.NoError(t, err)
	id := rig.Installation.ID(
		run.KindOrphanCollection,
		kube.Ref{Namespace: "scheduled", Name: "small", UID: string(class.UID)},
	)
	handle := testRig.Temporal.ScheduleClient().GetHandle(t.Context(), id)
	rig.Eventually(t, "there is a schedule", func() (bool, any) {
		there, err := handle.Describe(t.Context())
		if err != nil {
			return false, err
		}
		return there.Schedule.Spec.Intervals[0].Every == 15*time.Minute, there.Schedule.Spec
	})
	testRig.DeleteClassAndSecret(t, "scheduled")
	rig.Eventually(t, "the schedule goes with its class", func() (bool, any) {
		_, err := handle.Describe(t.Context())
		return err != nil, "it is there"
	})
}

func TestSweepWithoutMachinesDeletesNothing(t *testing.T) {
	t.Parallel()
	testRig.CreateNamespace(t, "moved", "")
	// CreateInstanceByHand copies the cluster's name from the instance of this namespace's set
	testRig.CreateNamespace(t, "moved-from", "")
	set := createSet(t, "moved-from", "moved-from", 1)
	set.awaitRunningMachines(t, 1)
	lost := []string{
		testRig.CreateInstanceByHand(t, "moved", "moved-a").ProviderID,
		testRig.CreateInstanceByHand(t, "moved", "moved-b").ProviderID,
	}
	s := newSweepSchedule(t, "moved")
	for range 2 {
		result := s.runSweep(t)
		require.Equal(t, workflowsorphan.OutcomeHeld, result.Outcome, "%+v", result)
		require.Contains(t, result.Why, "no machine at all")
		require.Empty(t, result.Sightings)
	}
	require.ElementsMatch(t, lost, providerIDs(t, "moved"))

	_, err := testRig.Stack.RunKubectl(
		t.Context(),
		"annotate",
		"-n",
		"moved",
		"machineclasses.machine.sapcloud.io",
		"small",
		v1alpha1.AnnotationCollectOrphans+"=2 until "+time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	)
	require.NoError(t, err)
	// wait until the sweep would delete the instances if the earlier sweeps had recorded them
	time.Sleep(confirmationTime)
	sighted := s.runSweep(t)
	require.Empty(t, sighted.Collected, "what was seen while it was held is no sighting")
	awaitConfirmationTime(sighted)
	require.ElementsMatch(t, lost, s.runSweep(t).Collected, "a person said so")
	require.Empty(t, providerIDs(t, "moved"))
	set.deleteSet(t)
}

// The API server dies during a sweep. The sweep has listed the instances in the cloud, but cannot list the machines.
// The sweep must not delete any instance.
func TestSweepWithoutAPIServerDeletesNothing(t *testing.T) {
	testRig.CreateNamespace(t, "dying", "")
	set := createSet(t, "dying", "dying", 3)
	set.awaitRunningMachines(t, 3)
	testRig.CreateInstanceByHand(t, "dying", "dying-lost")
	s := newSweepSchedule(t, "dying")
	sighted := s.runSweep(t)
	require.Len(t, sighted.Sightings, 1)
	awaitConfirmationTime(sighted)
	before := providerIDs(t, "dying")

	hang := func(point admin.HangPoint) {
		require.NoError(t, testRig.Cloud.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) {
			b.HangPoints = map[admin.Operation]admin.HangPoint{}
			if point != "" {
				b.HangPoints[admin.OperationList] = point
			}
		}))
	}
	hang(admin.HangAfterEffect)
	asked := readCloudStats(t).Calls[admin.OperationList]
	id := s.startSweep(t)
	rig.Eventually(t, "the cloud is asked", func() (bool, any) {
		calls := readCloudStats(t).Calls[admin.OperationList]
		return calls > asked, calls
	})
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.APIServer))
	hang("")
	rig.Eventually(t, "the sweep has asked the API server in vain", func() (bool, any) {
		shown, err := testRig.Temporal.DescribeWorkflowExecution(t.Context(), id, "")
		require.NoError(t, err)
		pending := shown.PendingActivities
		return len(pending) == 1 && pending[0].Attempt > 1, pending
	})
	assert.Equal(t, before, providerIDs(t, "dying"), "nobody said that there is no machine")
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.APIServer))

	var result workflowsorphan.Result
	require.NoError(t, testRig.Temporal.GetWorkflow(t.Context(), id, "").Get(t.Context(), &result), "it has five minutes")
	require.Len(t, result.Collected, 1, "%+v", result)
	require.Len(t, providerIDs(t, "dying"), 3)
	set.awaitRunningMachines(t, 3)
	set.deleteSet(t)
}
