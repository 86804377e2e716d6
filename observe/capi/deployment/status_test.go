package deployment_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/explain"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	"millwright/observe/capi/deployment"
)

// plannedStatusAndBlockers returns the status that is written for a tree, and the blockers.
func plannedStatusAndBlockers(
	f deployment.ObjectTree,
	now time.Time,
) (clusterv1.MachineDeploymentStatus, explain.Summary) {
	plan := rollout.PlanDeployment(deployment.RolloutFacts(f, now))
	blocked := deployment.ExplanationFacts(f, plan, now).BlockedSummary(now)
	s := *f.Deployment.Status.DeepCopy()
	deployment.ApplyStatus(f, &s, plan.Status, blocked, metav1.NewTime(now))
	return s, blocked
}

// conditionText returns status, reason and message of a condition.
func conditionText(s clusterv1.MachineDeploymentStatus, kind string) string {
	c := capi.ConditionOfType(s.Conditions, kind)
	return strings.Join([]string{string(c.Status), c.Reason, c.Message}, "|")
}

func readyMachines(s *clusterv1.MachineSet, names ...string) (all []*clusterv1.Machine) {
	for _, name := range names {
		all = append(all, capitest.NewMachine(name, s))
	}
	return all
}

func withOutdatedReason(why string) capitest.MachineChange {
	return capitest.WithConditionReason(clusterv1.MachineUpToDateCondition, metav1.ConditionFalse, "NotUpToDate", why)
}

// The rows come from the status tests of Cluster API: the conditions of a MachineDeployment, with Cluster API's reasons
// and messages.
func TestStatusConditionsMatchClusterAPI(t *testing.T) {
	const (
		available, rollingOut, up, down = "Available", "RollingOut", "ScalingUp", "ScalingDown"
		deleting, remediating, isPaused = "Deleting", "Remediating", "Paused"
	)
	unready := capitest.WithCondition(clusterv1.MachineReadyCondition, metav1.ConditionFalse)
	for _, row := range []struct {
		name   string
		change capitest.DeploymentChange
		tree   func(*deployment.ObjectTree)
		kind   string
		want   string
	}{
		{"all are available", nil, nil, available, "True|Available|"},
		{"within maxUnavailable", withRollingUpdate(new(intstr.FromInt32(0)), new(intstr.FromInt32(1))), func(f *deployment.ObjectTree) { unready(f.Members[0]) }, available, "True|Available|"},
		{"beyond maxUnavailable", withRollingUpdate(nil, new(intstr.FromString("34%"))), func(f *deployment.ObjectTree) {
			unready(f.Members[0])
			unready(f.Members[1])
		}, available, "False|NotAvailable|1 available replicas, at least 2 required (spec.strategy.rollout.maxUnavailable is 34%, spec.replicas is 3)"},
		{"OnDelete promises all", withOnDeleteStrategy, func(f *deployment.ObjectTree) { unready(f.Members[0]) }, available, "False|NotAvailable|2 available replicas, at least 3 required"},
		{"a deletion says no number", capitest.AsDeletingObject[*clusterv1.MachineDeployment], func(f *deployment.ObjectTree) { unready(f.Members[0]) }, available, "False|NotAvailable|Deletion in progress"},
		{"spec.replicas is not set", func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = nil }, nil, available, "Unknown|WaitingForReplicasSet|Waiting for spec.replicas set"},
		{"not rolling out", nil, nil, rollingOut, "False|NotRollingOut|"},
		{"rolling out: the version is first, and no reason is repeated", nil, func(f *deployment.ObjectTree) {
			withOutdatedReason("* Failure domain a, b required\n* Version v1.30.0, v1.31.2 required")(f.Members[0])
			withOutdatedReason("* Failure domain a, b required")(f.Members[1])
		}, rollingOut, "True|RollingOut|Rolling out 2 not up-to-date replicas\n* Version v1.30.0, v1.31.2 required\n* Failure domain a, b required"},
		{"not scaling", nil, nil, up, "False|NotScalingUp|"},
		{"scaling up", nil, func(f *deployment.ObjectTree) { f.Members = f.Members[:1] }, up, "True|ScalingUp|Scaling up from 1 to 3 replicas"},
		{"scaling up, and a template is missing", nil, func(f *deployment.ObjectTree) {
			f.Members, f.Templates[1] = nil, capitest.MissingObject(capitest.NewInfrastructureTemplate())
		}, up, "True|ScalingUp|Scaling up from 0 to 3 replicas is blocked because ExampleMachineTemplate does not exist"},
		{"it would be blocked", nil, func(f *deployment.ObjectTree) {
			f.Templates = []capi.ProviderObject{capitest.MissingObject(capitest.NewBootstrapTemplate()), capitest.MissingObject(capitest.NewInfrastructureTemplate())}
		}, up, "False|NotScalingUp|Scaling up would be blocked because KubeadmConfigTemplate and ExampleMachineTemplate do not exist"},
		{"while it is being deleted nothing would be", capitest.AsDeletingObject[*clusterv1.MachineDeployment], func(f *deployment.ObjectTree) {
			f.Templates[1] = capitest.MissingObject(capitest.NewInfrastructureTemplate())
		}, up, "False|NotScalingUp|"},
		{"spec.replicas is not set", func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = nil }, nil, up, "Unknown|WaitingForReplicasSet|Waiting for spec.replicas set"},
		{"not scaling", nil, nil, down, "False|NotScalingDown|"},
		{"scaling down", func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = new(int32(1)) }, func(f *deployment.ObjectTree) {
			f.Members[0].DeletionTimestamp = new(capitest.MinutesBeforeNoon(16))
		}, down, "True|ScalingDown|Scaling down from 3 to 1 replicas\n* Machine a is in deletion since more than 15m"},
		{"spec.replicas is not set", func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = nil }, nil, down, "Unknown|WaitingForReplicasSet|Waiting for spec.replicas set"},
		{"no deletion", nil, nil, deleting, "False|NotDeleting|"},
		{"deleting machines", capitest.AsDeletingObject[*clusterv1.MachineDeployment], nil, deleting, "True|Deleting|Deleting 3 Machines"},
		{"no machine is left", capitest.AsDeletingObject[*clusterv1.MachineDeployment], func(f *deployment.ObjectTree) { f.Members, f.Sets = nil, nil }, deleting, "True|Deleting|Deletion completed"},
		{"no remediation", nil, nil, remediating, "False|NotRemediating|"},
		{"remediation", nil, func(f *deployment.ObjectTree) {
			capitest.AsUnhealthyMachine(f.Members[0])
			capitest.WithConditionReason(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "RemediationDeferred", "one after the other")(f.Members[0])
		}, remediating, "True|Remediating|* Machine a: one after the other"},
		{"unhealthy, and not to be remediated", nil, func(f *deployment.ObjectTree) {
			capitest.WithCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse)(f.Members[0])
		}, remediating, "False|NotRemediating|Machine a is not healthy (not to be remediated by MachineDeployment/MachineSet)"},
		{"not paused", nil, nil, isPaused, "False|NotPaused|"},
		{"paused", withAnnotation(clusterv1.PausedAnnotation, ""), nil, isPaused, "True|Paused|MachineDeployment has the cluster.x-k8s.io/paused annotation"},
		{"its Cluster is paused", nil, func(f *deployment.ObjectTree) { f.Cluster.Spec.Paused = new(true) }, isPaused, "True|Paused|Cluster spec.paused is set to true"},
		{"spec.paused stops rollouts only", func(d *clusterv1.MachineDeployment) { d.Spec.Paused = new(true) }, nil, isPaused, "False|NotPaused|"},
		{"all machines are ready", nil, nil, "MachinesReady", "True|Ready|"},
		{"one is not", nil, func(f *deployment.ObjectTree) {
			capitest.WithConditionReason(clusterv1.MachineReadyCondition, metav1.ConditionFalse, "NotReady", "no node")(f.Members[0])
		}, "MachinesReady", "False|NotReady|* Machine a: no node"},
		{"all are up to date", nil, nil, "MachinesUpToDate", "True|UpToDate|"},
		{"there is none", nil, func(f *deployment.ObjectTree) { f.Members = nil }, "MachinesUpToDate", "True|NoReplicas|"},
		{"the rollout is complete", nil, nil, "Progressing", "True|NewMachineSetAvailable|3 of 3 machines up to date, 3 available"},
		{"paused: nothing progresses", withAnnotation(clusterv1.PausedAnnotation, ""), nil, "Progressing", "Unknown|DeploymentPaused|MachineDeployment has the cluster.x-k8s.io/paused annotation"},
		{"a set whose machines are refused", nil, func(f *deployment.ObjectTree) { withReplicaFailure(f.Sets[0]) }, "ReplicaFailure", "True|FailedCreate|no room"},
	} {
		t.Run(row.kind+": "+row.name, func(t *testing.T) {
			d := capitest.NewPreparedDeployment(3)
			set := capitest.NewSetOfDeployment(d, "s", 3, 1)
			if row.change != nil {
				row.change(d)
			}
			f := newObjectTree(d, set)
			f.Members = readyMachines(set, "a", "b", "c")
			if row.tree != nil {
				row.tree(&f)
			}
			s, _ := plannedStatusAndBlockers(f, capitest.Noon)
			assert.Equal(t, row.want, conditionText(s, row.kind))
		})
	}
}

// TestStatusFieldsOtherThanConditions covers the fields of the status other than the conditions.
func TestStatusFieldsOtherThanConditions(t *testing.T) {
	d := capitest.NewPreparedDeployment(3, func(d *clusterv1.MachineDeployment) { d.Generation = 4 })
	set, former := capitest.NewSetOfDeployment(
		d,
		"s",
		2,
		2,
	), capitest.NewSetOfDeployment(
		d,
		"r",
		1,
		1,
		capitest.WithFormerTemplate,
	)
	f := newObjectTree(d, set, former)
	f.Members = append(readyMachines(set, "a", "b"), readyMachines(former, "c")...)
	capitest.WithCondition(clusterv1.MachineReadyCondition, metav1.ConditionFalse)(f.Members[0])
	s, _ := plannedStatusAndBlockers(f, capitest.Noon)
	assert.Equal(t, []int32{3, 2, 2, 2}, []int32{*s.Replicas, *s.ReadyReplicas, *s.AvailableReplicas, *s.UpToDateReplicas})
	assert.EqualValues(t, 4, s.ObservedGeneration)
	assert.Equal(t, "cluster.x-k8s.io/cluster-name=c,pool=pool", s.Selector)
	assert.Equal(
		t,
		[]clusterv1.StatusVersion{{Version: "v1.30.0", Replicas: 1}, {Version: "v1.31.2", Replicas: 2}},
		s.Versions,
	)
	for _, row := range []struct {
		want   string
		change capitest.DeploymentChange
	}{
		{"Running", func(*clusterv1.MachineDeployment) {}},
		{"ScalingUp", func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = new(int32(4)) }},
		{"ScalingDown", func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = new(int32(2)) }},
		{"ScalingDown", capitest.AsDeletingObject[*clusterv1.MachineDeployment]},
		{"Unknown", func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = nil }},
	} {
		f.Deployment = d.DeepCopy()
		row.change(f.Deployment)
		s, _ := plannedStatusAndBlockers(f, capitest.Noon)
		assert.Equal(t, row.want, s.Phase)
	}
}

// While only the clock changes, a status is written only once, whatever it contains.
func TestUnchangedStatusIsNotWrittenAgain(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		some := func() bool { return r.IntN(3) == 0 }
		d := capitest.NewPreparedDeployment(int32(r.IntN(4)))
		set := capitest.NewSetOfDeployment(d, "s", int32(r.IntN(4)), 2)
		former := capitest.NewSetOfDeployment(d, "r", int32(r.IntN(3)), 1, capitest.WithFormerTemplate)
		f := newObjectTree(d, set, former)
		f.Members = slices.Concat(readyMachines(set, "a", "b", "c")[:r.IntN(4)], readyMachines(former, "d", "e")[:r.IntN(3)])
		for _, change := range []func(){
			func() { capitest.AsDeletingObject(d) }, func() { d.Spec.Paused = new(true) }, func() { withAnnotation(clusterv1.PausedAnnotation, "")(d) }, func() { withOnDeleteStrategy(d) },
			func() { f.Templates[0] = capitest.MissingObject(capitest.NewBootstrapTemplate()) }, func() { f.Cluster = nil }, func() { withReplicaFailure(set) }, func() { d.Spec.Replicas = nil },
			func() { capitest.WithFormerTemplate(set) }, func() { withAnnotation(v1alpha1.AnnotationRolloutHold, "2 ann: bad")(d) },
			func() {
				for _, m := range f.Members {
					capitest.WithConditionReason(clusterv1.MachineReadyCondition, metav1.ConditionFalse, "NotReady", "no node")(m)
				}
			},
		} {
			if some() {
				change()
			}
		}
		s, blocked := plannedStatusAndBlockers(f, capitest.Noon)
		f.Deployment = d.DeepCopy()
		f.Deployment.Status = s
		for _, later := range []time.Duration{0, time.Second} {
			now := capitest.Noon.Add(later)
			plan := rollout.PlanDeployment(deployment.RolloutFacts(f, now))
			again, blockedAgain := plannedStatusAndBlockers(f, now)
			// One more report may follow: Progressing first reports how the set became the current set.
			f.Deployment.Status = again
			require.False(
				t,
				rollout.PlanDeployment(deployment.RolloutFacts(f, now)).NeedsStatusWrite && !plan.NeedsStatusWrite,
				"seed %d",
				seed,
			)
			third, _ := plannedStatusAndBlockers(f, now)
			require.Equal(
				t,
				deployment.StatusWithoutProgressTime(again),
				deployment.StatusWithoutProgressTime(third),
				"seed %d",
				seed,
			)
			require.True(t, deployment.StatusShowsBlockers(f, blockedAgain), "seed %d", seed)
			require.Equal(t, blocked.IsBlocked(), blockedAgain.IsBlocked(), "seed %d", seed)
		}
	}
}

// The transition time of Progressing is the time of the last progress. The transition time of any other condition is
// the time of its last change of status.
func TestTransitionTimesOfConditions(t *testing.T) {
	d := capitest.NewPreparedDeployment(3)
	set := capitest.NewSetOfDeployment(d, "s", 3, 1)
	f := newObjectTree(d, set)
	f.Members = readyMachines(set, "a")
	first, _ := plannedStatusAndBlockers(f, capitest.Noon)
	f.Deployment = d.DeepCopy()
	f.Deployment.Status = first
	f.Members = readyMachines(set, "a", "b")
	later := capitest.Noon.Add(time.Minute)
	second, _ := plannedStatusAndBlockers(f, later)
	at := func(s clusterv1.MachineDeploymentStatus, kind string) time.Time {
		return capi.ConditionOfType(s.Conditions, kind).LastTransitionTime.UTC()
	}
	assert.Equal(t, capitest.Noon, at(first, "Progressing"))
	assert.Equal(t, later, at(second, "Progressing"), "another machine is available")
	assert.Equal(t, capitest.Noon, at(second, "ScalingUp"))
	assert.Empty(
		t,
		capi.ConditionOfType(deployment.StatusWithoutProgressTime(second).Conditions, "Progressing").LastTransitionTime,
	)
}

// The annotations from RolloutAnnotations contain values for which the status has no fields.
func TestRolloutAnnotations(t *testing.T) {
	record := &v1alpha1.RolloutStatus{
		Revision:       2,
		Step:           1,
		Steps:          []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}},
		FailedMachines: []string{"a"},
	}
	operation := &v1alpha1.Operation{
		WorkflowID: "rollout-1",
		RolloutOf:  "uid-d",
		Step:       "roll",
		Since:      capitest.MinutesBeforeNoon(1),
		WaitsFor:   strings.Repeat("x", 5000),
	}
	notes := deployment.RolloutAnnotations(record, operation)
	d := capitest.NewPreparedDeployment(3)
	for key, value := range notes {
		d.Annotations[key] = value.(string)
		assert.True(t, v1alpha1.IsOwnMetadataKey(key), "a change of %s signals no workflow", key)
		assert.Less(t, len(value.(string)), 1000)
	}
	assert.Equal(t, record, deployment.RecordedRollout(d))
	assert.Equal(t, "rollout-1", deployment.CurrentRolloutID(d))
	assert.Equal(t, "roll", deployment.CurrentOperation(d).Step)
	assert.Empty(t, deployment.ChangedAnnotations(d, notes), "they are there")
	assert.Equal(
		t,
		map[string]any{v1alpha1.AnnotationOperation: nil},
		deployment.ChangedAnnotations(d, deployment.RolloutAnnotations(nil, nil)),
	)
	d.UID = "uid-other"
	assert.Empty(t, deployment.CurrentRolloutID(d), "it was moved")
	deployment.RemoveMillwrightAnnotations(d)
	assert.Empty(t, deployment.ChangedAnnotations(d, deployment.RolloutAnnotations(nil, nil)))
	assert.Nil(t, deployment.RecordedRollout(d))
	assert.Nil(t, deployment.CurrentOperation(d))
}
