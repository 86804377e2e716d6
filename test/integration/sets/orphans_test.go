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

// sweeper is a schedule of sweeps over the class of a namespace, which runs when a test says so.
type sweeper struct {
	handle sdk.ScheduleHandle
	ended  int // sweeps so far
}

// confirm is how long an orphan has to be without its machine here.
const confirm = 3 * time.Second

func newSweeper(t *testing.T, namespace string) *sweeper {
	t.Helper()
	return &sweeper{handle: r.Sweeps(t, namespace, confirm)}
}

// start starts a sweep and returns its ID.
func (s *sweeper) start(t *testing.T) string {
	t.Helper()
	require.NoError(t, s.handle.Trigger(t.Context(), sdk.ScheduleTriggerOptions{}))
	s.ended++
	var id string
	rig.Eventually(t, "a sweep begins", func() (bool, any) {
		there, err := s.handle.Describe(t.Context())
		if err != nil || there.Info.NumActions < s.ended {
			return false, err
		}
		last := there.Info.RecentActions[len(there.Info.RecentActions)-1]
		id = last.StartWorkflowResult.WorkflowID
		return true, nil
	})
	return id
}

// sweep runs a sweep to its end.
func (s *sweeper) sweep(t *testing.T) workflowsorphan.Result {
	t.Helper()
	var result workflowsorphan.Result
	require.NoError(t, r.Temporal.GetWorkflow(t.Context(), s.start(t), "").Get(t.Context(), &result))
	// The schedule has to have taken in how the sweep ended before the next one begins.
	rig.Eventually(t, "the schedule knows that the sweep has ended", func() (bool, any) {
		there, err := s.handle.Describe(t.Context())
		return err == nil && len(there.Info.RunningWorkflows) == 0, err
	})
	return result
}

// confirmed waits until what a sweep has seen for the first time may be deleted by the next one.
func confirmed(seen workflowsorphan.Result) {
	for _, s := range seen.Sightings {
		time.Sleep(time.Until(s.Since.Add(confirm)))
	}
}

// instances returns the provider IDs of all instances of a namespace's class, sorted.
func instances(t *testing.T, namespace string) []string {
	t.Helper()
	all, err := r.Cloud.Instances(t.Context())
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

func TestAnInstanceWithoutAMachineGoesAndNoOther(t *testing.T) {
	t.Parallel()
	r.Namespace(t, "swept", "")
	set := newSet(t, "swept", "swept", 3)
	set.awaitRunning(t, 3)
	healthy := instances(t, "swept")
	require.Len(t, healthy, 3)
	lost := r.CreateByHand(t, "swept", "swept-lost")
	s := newSweeper(t, "swept")

	first := s.sweep(t)
	require.Equal(
		t,
		[]any{workflowsorphan.OutcomeSwept, 4, 3, 1},
		[]any{first.Outcome, first.Instances, first.Machines, first.Orphans},
		"%+v",
		first,
	)
	require.Empty(t, first.Collected, "it was seen once")
	require.Len(t, first.Sightings, 1)
	require.Len(t, instances(t, "swept"), 4)

	confirmed(first)
	second := s.sweep(t)
	require.Equal(t, []string{lost.ProviderID}, second.Collected, "%+v", second)
	require.Empty(t, second.Sightings)
	require.Equal(t, healthy, instances(t, "swept"))
	set.awaitRunning(t, 3)
	rig.Eventually(t, "people are told", func() (bool, any) {
		events, err := r.Kube.CoreV1().Events("swept").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, e := range events.Items {
			if e.Reason == v1alpha1.ReasonOrphansCollected && strings.Contains(e.Message, lost.ProviderID) {
				return true, nil
			}
		}
		return false, len(events.Items)
	})

	third := s.sweep(t)
	require.Zero(t, third.Orphans, "%+v", third)
	set.remove(t)
}

// Machines were restored into another namespace, and the class with its instances stayed.
func TestAnInstanceWhoseMachineIsInAnotherNamespaceStays(t *testing.T) {
	t.Parallel()
	r.Namespace(t, "left", "")
	r.Namespace(t, "moved-to", "")
	set := newSet(t, "left", "left", 2)
	set.awaitRunning(t, 2)
	moved := r.CreateByHand(t, "left", "left-moved")
	machines := r.Machines.MachineV1alpha1().Machines("moved-to")
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "left-moved"}, Spec: rig.Spec()}
	m.Spec.ProviderID = moved.ProviderID
	_, err := machines.Create(t.Context(), m, metav1.CreateOptions{})
	require.NoError(t, err)
	s := newSweeper(t, "left")
	lost := r.CreateByHand(t, "left", "left-lost") // younger than the other one
	for range 2 {
		result := s.sweep(t)
		require.Equal(
			t,
			[]any{workflowsorphan.OutcomeSwept, 4, 2, 1},
			[]any{result.Outcome, result.Instances, result.Machines, result.Orphans},
			"%+v",
			result,
		)
		confirmed(result)
	}
	require.NotContains(t, instances(t, "left"), lost.ProviderID)
	require.Contains(t, instances(t, "left"), moved.ProviderID)

	require.NoError(t, machines.Delete(t.Context(), m.Name, metav1.DeleteOptions{}))
	rig.Eventually(t, "the machine's own deletion takes the instance", func() (bool, any) {
		left := instances(t, "left")
		return !slices.Contains(left, moved.ProviderID), left
	})
	set.remove(t)
}

// Another controller made the instance and was stopped before it recorded the instance.
func TestAnInstanceOfAnotherControllerIsAdopted(t *testing.T) {
	t.Parallel()
	r.Namespace(t, "taken-over", "")
	set := newSet(t, "taken-over", "taken-over", 1) // whose instance tells the cluster's name
	set.awaitRunning(t, 1)
	machines := r.Machines.MachineV1alpha1().Machines("taken-over")
	adopted := r.CreateByHandTagged(t, "taken-over", "adopted", "")
	before := instances(t, "taken-over")
	_, err := machines.Create(
		t.Context(),
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "adopted"}, Spec: rig.Spec()},
		metav1.CreateOptions{},
	)
	require.NoError(t, err)
	rig.Eventually(t, "the machine runs", func() (bool, any) {
		m, err := machines.Get(t.Context(), "adopted", metav1.GetOptions{})
		require.NoError(t, err)
		return m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && m.Spec.ProviderID == adopted.ProviderID, m.Status
	})
	require.Equal(t, before, instances(t, "taken-over"), "no second one")

	left := r.CreateByHandTagged(t, "taken-over", "left", "")
	result := newSweeper(t, "taken-over").sweep(t)
	require.Equal(
		t,
		[]string{
			"instance " + left.ProviderID + " has no UID, and the name of Machine left, which does not exist: it is not deleted",
		},
		result.Unclear,
	)
	require.NoError(t, machines.Delete(t.Context(), "adopted", metav1.DeleteOptions{}))
	rig.Eventually(t, "it takes its instance along", func() (bool, any) {
		now := instances(t, "taken-over")
		return !slices.Contains(now, adopted.ProviderID), now
	})
	set.remove(t)
}

// The bridge keeps a schedule for each class.
func TestTheBridgeKeepsASchedule(t *testing.T) {
	t.Parallel()
	r.Namespace(t, "scheduled", "")
	class, err := r.Machines.MachineV1alpha1().MachineClasses("scheduled").Get(t.Context(), "small", metav1.GetOptions{})
	require.NoError(t, err)
	id := rig.Installation.ID(
		run.KindOrphanCollection,
		kube.Ref{Namespace: "scheduled", Name: "small", UID: string(class.UID)},
	)
	handle := r.Temporal.ScheduleClient().GetHandle(t.Context(), id)
	rig.Eventually(t, "there is a schedule", func() (bool, any) {
		there, err := handle.Describe(t.Context())
		if err != nil {
			return false, err
		}
		return there.Schedule.Spec.Intervals[0].Every == 15*time.Minute, there.Schedule.Spec
	})
	r.DeleteClassAndSecret(t, "scheduled")
	rig.Eventually(t, "the schedule goes with its class", func() (bool, any) {
		_, err := handle.Describe(t.Context())
		return err != nil, "it is there"
	})
}

func TestANamespaceWithoutMachinesLosesNothing(t *testing.T) {
	t.Parallel()
	r.Namespace(t, "moved", "")
	r.Namespace(t, "moved-from", "") // whose set tells the cluster's name
	set := newSet(t, "moved-from", "moved-from", 1)
	set.awaitRunning(t, 1)
	lost := []string{r.CreateByHand(t, "moved", "moved-a").ProviderID, r.CreateByHand(t, "moved", "moved-b").ProviderID}
	s := newSweeper(t, "moved")
	for range 2 {
		result := s.sweep(t)
		require.Equal(t, workflowsorphan.OutcomeHeld, result.Outcome, "%+v", result)
		require.Contains(t, result.Why, "no machine at all")
		require.Empty(t, result.Sightings)
	}
	require.ElementsMatch(t, lost, instances(t, "moved"))

	_, err := r.Stack.Kubectl(
		t.Context(),
		"annotate",
		"-n",
		"moved",
		"machineclasses.machine.sapcloud.io",
		"small",
		v1alpha1.AnnotationCollectOrphans+"=2 until "+time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	)
	require.NoError(t, err)
	time.Sleep(confirm) // a sighting of the sweeps that were held would be old enough by now
	sighted := s.sweep(t)
	require.Empty(t, sighted.Collected, "what was seen while it was held is no sighting")
	confirmed(sighted)
	require.ElementsMatch(t, lost, s.sweep(t).Collected, "a person said so")
	require.Empty(t, instances(t, "moved"))
	set.remove(t)
}

// The API server dies while the sweep waits for the cloud, which is asked first: what the cloud said then is compared
// with nothing.
func TestASweepWhoseAPIServerDiesDeletesNothing(t *testing.T) {
	r.Namespace(t, "dying", "")
	set := newSet(t, "dying", "dying", 3)
	set.awaitRunning(t, 3)
	r.CreateByHand(t, "dying", "dying-lost")
	s := newSweeper(t, "dying")
	sighted := s.sweep(t)
	require.Len(t, sighted.Sightings, 1)
	confirmed(sighted)
	before := instances(t, "dying")

	hang := func(point admin.HangPoint) {
		require.NoError(t, r.Cloud.Change(t.Context(), func(b *admin.Behaviour) {
			b.Hangs = map[admin.Operation]admin.HangPoint{}
			if point != "" {
				b.Hangs[admin.List] = point
			}
		}))
	}
	hang(admin.AfterEffect)
	asked := stats(t).Calls[admin.List]
	id := s.start(t)
	rig.Eventually(t, "the cloud is asked", func() (bool, any) {
		calls := stats(t).Calls[admin.List]
		return calls > asked, calls
	})
	require.NoError(t, r.Stack.Kill(t.Context(), component.APIServer))
	hang("")
	rig.Eventually(t, "the sweep has asked the API server in vain", func() (bool, any) {
		shown, err := r.Temporal.DescribeWorkflowExecution(t.Context(), id, "")
		require.NoError(t, err)
		pending := shown.PendingActivities
		return len(pending) == 1 && pending[0].Attempt > 1, pending
	})
	assert.Equal(t, before, instances(t, "dying"), "nobody said that there is no machine")
	require.NoError(t, r.Stack.Start(t.Context(), component.APIServer))

	var result workflowsorphan.Result
	require.NoError(t, r.Temporal.GetWorkflow(t.Context(), id, "").Get(t.Context(), &result), "it has five minutes")
	require.Len(t, result.Collected, 1, "%+v", result)
	require.Len(t, instances(t, "dying"), 3)
	set.awaitRunning(t, 3)
	set.remove(t)
}
