package set_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/explain"
	"millwright/decide/scale"
	"millwright/observe/capi/capitest"
	capidrain "millwright/observe/capi/drain"
	capiset "millwright/observe/capi/set"
)

// changesForDeletedMachine makes a machine that was deleted ten minutes before noon and whose condition Deleting has
// this reason.
func changesForDeletedMachine(reason, message string, change ...capitest.MachineChange) []capitest.MachineChange {
	return append([]capitest.MachineChange{
		func(m *clusterv1.Machine) { m.DeletionTimestamp = new(capitest.MinutesBeforeNoon(10)) },
		capitest.WithConditionReason(clusterv1.MachineDeletingCondition, metav1.ConditionTrue, reason, message),
	}, change...)
}

// changesForNewMachine makes a machine without a node that was created this many minutes before noon.
func changesForNewMachine(minutes int, change ...capitest.MachineChange) []capitest.MachineChange {
	return append([]capitest.MachineChange{func(m *clusterv1.Machine) {
		m.CreationTimestamp = capitest.MinutesBeforeNoon(minutes)
		m.Status.NodeRef = clusterv1.MachineNodeReference{}
		m.Status.NodeInfo = nil
		m.Status.Conditions = nil
	}}, change...)
}

// withFalseCondition adds a condition that became False this many minutes before noon.
func withFalseCondition(kind, reason, message string, minutes int) capitest.MachineChange {
	return func(m *clusterv1.Machine) {
		capitest.WithConditionReason(kind, metav1.ConditionFalse, reason, message)(m)
		m.Status.Conditions[len(m.Status.Conditions)-1].LastTransitionTime = capitest.MinutesBeforeNoon(minutes)
	}
}

func withTrueCondition(kind string) capitest.MachineChange {
	return func(m *clusterv1.Machine) {
		capitest.WithCondition(kind, metav1.ConditionTrue)(m)
		m.Status.Conditions[len(m.Status.Conditions)-1].LastTransitionTime = m.CreationTimestamp
	}
}

// The conditions of a machine, with their reasons and times, explain why the machine waits.
func TestMachineWaitFacts(t *testing.T) {
	const bootstrap, infrastructure, node = clusterv1.MachineBootstrapConfigReadyCondition, clusterv1.MachineInfrastructureReadyCondition, clusterv1.MachineNodeHealthyCondition
	const preDrain, preTerminate = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup", "pre-terminate.delete.hook.machine.cluster.x-k8s.io/backup"
	const config, instance = "kubeadmconfig.bootstrap.cluster.x-k8s.io m", "examplemachine.infrastructure.cluster.x-k8s.io m"
	both := []capitest.MachineChange{withAnnotation(preDrain), withAnnotation(preTerminate)}
	ago := func(minutes int) time.Time { return capitest.MinutesBeforeNoon(minutes).Time }
	started := func(d clusterv1.MachineDeletionStatus, drain, detach *int32) capitest.MachineChange {
		return func(m *clusterv1.Machine) {
			m.Status.Deletion = &d
			m.Spec.Deletion.NodeDrainTimeoutSeconds = drain
			m.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = detach
		}
	}
	drained := clusterv1.MachineDeletionStatus{NodeDrainStartTime: capitest.MinutesBeforeNoon(4)}
	detached := clusterv1.MachineDeletionStatus{WaitForNodeVolumeDetachStartTime: capitest.MinutesBeforeNoon(3)}
	for name, row := range map[string]struct {
		machine []capitest.MachineChange
		want    explain.ClusterAPIMachine
	}{
		"it runs": {nil, explain.ClusterAPIMachine{}},
		"nobody has looked at a new one": {
			changesForNewMachine(3), explain.ClusterAPIMachine{Stage: explain.StageInfrastructure, Since: ago(3), Unhandled: true},
		},
		"core has seen only a pause that has ended": {
			changesForNewMachine(5, withFalseCondition(clusterv1.PausedCondition, "NotPaused", "", 3)),
			explain.ClusterAPIMachine{Stage: explain.StageInfrastructure, Since: ago(3), Unhandled: true},
		},
		"its bootstrap data": {
			changesForNewMachine(5, withFalseCondition(bootstrap, "NotReady", "no data", 4), withFalseCondition(infrastructure, "NotReady", "no data", 5)),
			explain.ClusterAPIMachine{Stage: explain.StageBootstrap, Message: "no data", Since: ago(4), DescribedObject: config},
		},
		"its bootstrap configuration was deleted": {
			changesForNewMachine(5, withFalseCondition(bootstrap, clusterv1.MachineBootstrapConfigDeletedReason, "deleted", 4)),
			explain.ClusterAPIMachine{Stage: explain.StageBootstrap, Message: "deleted", Since: ago(4), DescribedObject: config, HasFailed: true},
		},
		"its instance": {
			changesForNewMachine(5, withTrueCondition(bootstrap), withFalseCondition(infrastructure, "QuotaExceeded", "no room", 5)),
			explain.ClusterAPIMachine{Stage: explain.StageInfrastructure, Message: "no room", Since: ago(5), DescribedObject: instance},
		},
		"its instance was deleted while it ran": {
			[]capitest.MachineChange{withFalseCondition(infrastructure, clusterv1.MachineInfrastructureDeletedReason, "deleted", 2)},
			explain.ClusterAPIMachine{Stage: explain.StageInfrastructure, Message: "deleted", Since: ago(2), DescribedObject: instance, HasFailed: true},
		},
		"its node does not join; it could not before its instance was there": {
			changesForNewMachine(9, withTrueCondition(bootstrap), withTrueCondition(infrastructure), func(m *clusterv1.Machine) { m.Status.Conditions[1].LastTransitionTime = capitest.MinutesBeforeNoon(6) }, withFalseCondition(node, "NodeDoesNotExist", "no node", 9)),
			explain.ClusterAPIMachine{Stage: explain.StageJoin, Message: "no node", Since: ago(6)},
		},
		"its node is not healthy": {
			[]capitest.MachineChange{withFalseCondition(node, "NodeNotHealthy", "* Node.Ready: no", 7)},
			explain.ClusterAPIMachine{Stage: explain.StageRecover, Message: "* Node.Ready: no", Since: ago(7)},
		},
		"it is updated in place, and its node is not healthy": {
			[]capitest.MachineChange{withFalseCondition(node, "NodeNotHealthy", "no", 7), capitest.WithConditionReason(clusterv1.MachineUpdatingCondition, metav1.ConditionTrue, clusterv1.MachineInPlaceUpdatingReason, "half")},
			explain.ClusterAPIMachine{Stage: explain.StageUpdate, Message: "half", Since: ago(60)},
		},
		"its update in place has failed": {
			[]capitest.MachineChange{capitest.WithConditionReason(clusterv1.MachineUpdatingCondition, metav1.ConditionTrue, clusterv1.MachineInPlaceUpdateFailedReason, "no")},
			explain.ClusterAPIMachine{Stage: explain.StageUpdate, Message: "no", Since: ago(60), HasFailed: true},
		},
		"the health of its node is not known": {
			[]capitest.MachineChange{capitest.WithCondition(node, metav1.ConditionUnknown)}, explain.ClusterAPIMachine{},
		},
		"a new one is paused": {
			changesForNewMachine(3, withAnnotation(clusterv1.PausedAnnotation)), explain.ClusterAPIMachine{Stage: explain.StagePaused, Since: ago(3)},
		},
		"a running one is paused": {[]capitest.MachineChange{withAnnotation(clusterv1.PausedAnnotation)}, explain.ClusterAPIMachine{}},

		"nobody has looked at a deleted one": {
			[]capitest.MachineChange{func(m *clusterv1.Machine) { m.DeletionTimestamp = new(capitest.MinutesBeforeNoon(1)) }, capitest.WithCondition(clusterv1.MachineDeletingCondition, metav1.ConditionFalse)},
			explain.ClusterAPIMachine{Stage: explain.StageUnknownDeletion, Since: ago(1), Unhandled: true},
		},
		"Cluster API has done its part": {
			changesForDeletedMachine(clusterv1.MachineDeletingDeletionCompletedReason, "", func(m *clusterv1.Machine) { m.Finalizers = []string{"example.com/a", "example.com/b"} }),
			explain.ClusterAPIMachine{Stage: explain.StageUnknownDeletion, Message: "finalizers are left: example.com/a, example.com/b", Since: ago(10)},
		},
		"the deletion fails": {
			changesForDeletedMachine(clusterv1.MachineDeletingInternalErrorReason, "see the log"),
			explain.ClusterAPIMachine{Stage: explain.StageUnknownDeletion, Message: "see the log", Since: ago(10)},
		},
		"a hook before the drain": {
			changesForDeletedMachine(clusterv1.MachineDeletingWaitingForPreDrainHookReason, "hooks", both...),
			explain.ClusterAPIMachine{Stage: explain.StageAwaitHooks, Message: "hooks", Since: ago(10), Hooks: []string{preDrain}},
		},
		"a hook after the drain": {
			changesForDeletedMachine(clusterv1.MachineDeletingWaitingForPreTerminateHookReason, "hooks", both...),
			explain.ClusterAPIMachine{Stage: explain.StageAwaitHooks, Message: "hooks", Since: ago(10), Hooks: []string{preTerminate}},
		},
		"Millwright's own hook": {
			changesForDeletedMachine(clusterv1.MachineDeletingWaitingForPreDrainHookReason, "hooks", withAnnotation("pre-drain.delete.hook.machine.cluster.x-k8s.io/millwright")),
			explain.ClusterAPIMachine{Stage: explain.StageMillwrightDrain, Since: ago(10)},
		},
		"a hook of others beside Millwright's": {
			changesForDeletedMachine(clusterv1.MachineDeletingWaitingForPreDrainHookReason, "hooks", append(both, withAnnotation("pre-drain.delete.hook.machine.cluster.x-k8s.io/millwright"))...),
			explain.ClusterAPIMachine{Stage: explain.StageAwaitHooks, Message: "hooks", Since: ago(10), Hooks: []string{preDrain}},
		},
		"a hook that is gone": {
			changesForDeletedMachine(clusterv1.MachineDeletingWaitingForPreDrainHookReason, "hooks"),
			explain.ClusterAPIMachine{Stage: explain.StageUnknownDeletion, Message: "hooks", Since: ago(10)},
		},
		"a drain without end": {
			changesForDeletedMachine(clusterv1.MachineDeletingDrainingNodeReason, "pods", started(drained, new(int32(0)), nil)),
			explain.ClusterAPIMachine{Stage: explain.StageClusterAPIDrain, Message: "pods", Since: ago(4)},
		},
		"a drain with an end": {
			changesForDeletedMachine(clusterv1.MachineDeletingDrainingNodeReason, "pods", started(drained, new(int32(600)), new(int32(60)))),
			explain.ClusterAPIMachine{Stage: explain.StageClusterAPIDrain, Message: "pods", Since: ago(4), Deadline: ago(-6)},
		},
		"a drain whose begin is not known": {
			changesForDeletedMachine(clusterv1.MachineDeletingDrainingNodeReason, "pods", started(clusterv1.MachineDeletionStatus{}, new(int32(600)), nil)),
			explain.ClusterAPIMachine{Stage: explain.StageClusterAPIDrain, Message: "pods", Since: ago(10)},
		},
		"volumes": {
			changesForDeletedMachine(clusterv1.MachineDeletingWaitingForVolumeDetachReason, "volumes", started(detached, new(int32(600)), new(int32(60)))),
			explain.ClusterAPIMachine{Stage: explain.StageDetachVolumes, Message: "volumes", Since: ago(3), Deadline: ago(2)},
		},
		"its instance is not deleted": {
			changesForDeletedMachine(clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason, "waiting"),
			explain.ClusterAPIMachine{Stage: explain.StageDeleteInstance, Message: "waiting", Since: ago(10), DescribedObject: instance},
		},
		"its bootstrap configuration is not deleted": {
			changesForDeletedMachine(clusterv1.MachineDeletingWaitingForBootstrapDeletionReason, "waiting"),
			explain.ClusterAPIMachine{Stage: explain.StageDeleteBootstrap, Message: "waiting", Since: ago(10), DescribedObject: config},
		},
		"its node is not deleted": {
			changesForDeletedMachine(clusterv1.MachineDeletingDeletingNodeReason, "waiting"),
			explain.ClusterAPIMachine{Stage: explain.StageDeleteNode, Message: "waiting", Since: ago(10)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			row.want.Namespace, row.want.Name, row.want.Now = capitest.Namespace, "m", capitest.Noon
			assert.Equal(
				t,
				row.want,
				capiset.MachineWaitFacts(capitest.NewMachine("m", capitest.NewSet("s", 1), row.machine...), capitest.Noon),
			)
		})
	}
}

// A stalled machine blocks its set. The set has pending work until the machine is no longer stalled, and rechecks the
// machine at the time when the machine becomes stalled.
func TestAStalledMachineBlocksItsSet(t *testing.T) {
	s := capitest.NewSet("s", 2)
	infrastructure := withFalseCondition(clusterv1.MachineInfrastructureReadyCondition, "NotReady", "no room", 3)
	related := capitest.NewRelatedObjects(capitest.NewMachine("m", s, infrastructure), capitest.NewMachine("n", s))
	s = writeStatus(t, newCache(), s, related, capitest.Noon, scale.WriteFailure{})
	plan, blocked := planSet(newCache(), s, related, capitest.Noon, scale.WriteFailure{})
	require.True(t, plan.PendingWork.NeedsNothing(), "the plan has nothing to do: %s", plan.PendingWork.Why)
	assert.False(t, blocked.IsBlocked(), "an instance takes a while")
	pending := func(now time.Time) attention.Decision {
		o := capiset.ScaleFacts(newCache(), s, related, now, 0)
		return capiset.PendingWork(
			s,
			related,
			o,
			scale.PlanSet(o),
			capiset.ExplanationFacts(s, related, plan.Status.Conditions, now),
		)
	}
	assert.Equal(t, attention.NeedScaling, pending(capitest.Noon).Need)
	explained := capiset.ExplanationFacts(s, related, plan.Status.Conditions, capitest.Noon)
	due := capiset.RecheckTime(plan, explained)
	assert.Equal(t, capitest.MinutesBeforeNoon(-2).Time, due, "five minutes after it began")

	s = writeStatus(t, newCache(), s, related, due, scale.WriteFailure{})
	c := conditionOfSet(t, s, "Blocked")
	assert.Equal(t, "InfrastructureNotReady", c.Reason)
	assert.Equal(
		t,
		"1 of 2 machines waits for its instance (since 11:57:00 UTC): the infrastructure is not ready: no room; "+
			"`kubectl describe examplemachine.infrastructure.cluster.x-k8s.io -n shop m`",
		c.Message,
	)
	assert.True(t, c.LastTransitionTime.Equal(new(capitest.MinutesBeforeNoon(3))))
	assert.Equal(t, attention.NeedScaling, pending(due).Need, "its run is open as long as it is blocked")
	assert.Zero(
		t,
		capiset.RecheckTime(plan, capiset.ExplanationFacts(s, related, plan.Status.Conditions, due)),
		"time alone changes nothing any more",
	)

	related.Members[0] = capitest.NewMachine("m", s)
	assert.Equal(t, attention.Decision{Why: plan.PendingWork.Why}, pending(due))
}

// If the Cluster is paused, no machine is stalled, and the set reports the pause.
func TestMachinesOfAPausedClusterAreNotStalled(t *testing.T) {
	s := capitest.NewSet("s", 1)
	related := capitest.NewRelatedObjects(
		capitest.NewMachine("m", s, changesForDeletedMachine(clusterv1.MachineDeletingDrainingNodeReason, "pods")...),
	)
	_, blocked := planSet(newCache(), s, related, capitest.Noon, scale.WriteFailure{})
	assert.Equal(t, []string{"NodeDrain"}, blocked.Blockers)
	related.Cluster.Spec.Paused = new(true)
	_, blocked = planSet(newCache(), s, related, capitest.Noon, scale.WriteFailure{})
	assert.NotContains(t, blocked.Blockers, "NodeDrain")
}

// A machine that Millwright drains reports the blocker of its drain. An annotation of the machine contains the status
// of the drain.
func TestAMachineThatMillwrightDrainsWaitsForItsDrain(t *testing.T) {
	m := capitest.NewMachine(
		"m",
		capitest.NewSet("s", 1),
		changesForDeletedMachine(
			clusterv1.MachineDeletingWaitingForPreDrainHookReason,
			"hooks",
			withAnnotation(capidrain.AnnotationPreDrainHook),
		)...)
	m.Annotations[v1alpha1.AnnotationDrainStatus] = `{"currentOperation":{"step":"evict-pods","cause":"PodDisruptionBudget shop/web allows none",` +

		`"blockedBy":["PodDisruptionBudget shop/web"],"since":"2026-01-01T11:55:00Z"}}`
	o := capiset.MachineOperation(m, capitest.Noon)
	require.NotNil(t, o)
	assert.Equal(t, []string{"PodDisruptionBudget shop/web"}, o.BlockedBy)
	assert.Contains(t, o.WaitsFor, "PodDisruptionBudget shop/web allows none (since 11:55:00 UTC)")
	assert.Contains(t, o.WaitsFor, "`kubectl edit pdb -n shop web`")
}

// The status of a set of Cluster API has no current operation: the set's conditions describe its work.
func TestOperationOfASet(t *testing.T) {
	says := func(kind, status, reason, message string, minutes int) capitest.SetChange {
		return func(s *clusterv1.MachineSet) {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
				Type:               kind,
				Status:             metav1.ConditionStatus(status),
				Reason:             reason,
				Message:            message,
				LastTransitionTime: capitest.MinutesBeforeNoon(minutes),
			})
		}
	}
	up := says("ScalingUp", "True", "ScalingUp", "from 1\n* to 2", 4)
	down := says("ScalingDown", "True", "ScalingDown", "from 2 to 1", 3)
	for name, row := range map[string]struct {
		conditions []capitest.SetChange
		want       *v1alpha1.Operation
	}{
		"calm":         {[]capitest.SetChange{says("ScalingUp", "False", "NotScalingUp", "", 9), says("Blocked", "False", "X", "", 9)}, nil},
		"grows":        {[]capitest.SetChange{up}, &v1alpha1.Operation{Step: "create-machines", Since: capitest.MinutesBeforeNoon(4), WaitsFor: "from 1 * to 2", Summary: "from 1 * to 2"}},
		"shrinks":      {[]capitest.SetChange{up, down}, &v1alpha1.Operation{Step: "delete-machines", Since: capitest.MinutesBeforeNoon(3), WaitsFor: "from 2 to 1", Summary: "from 2 to 1"}},
		"goes":         {[]capitest.SetChange{down, says("Deleting", "True", "Deleting", "2 machines", 1)}, &v1alpha1.Operation{Step: "await-machines", Since: capitest.MinutesBeforeNoon(1), WaitsFor: "2 machines", Summary: "2 machines"}},
		"blocked":      {[]capitest.SetChange{up, says("Blocked", "True", "NodeDrain", "pods", 7)}, &v1alpha1.Operation{Step: "create-machines", Since: capitest.MinutesBeforeNoon(7), WaitsFor: "pods", Summary: "node is being drained", BlockedBy: []string{"NodeDrain"}}},
		"only blocked": {[]capitest.SetChange{says("Blocked", "True", "NodeDrain", "pods", 7)}, &v1alpha1.Operation{Since: capitest.MinutesBeforeNoon(7), WaitsFor: "pods", Summary: "node is being drained", BlockedBy: []string{"NodeDrain"}}},
	} {
		assert.Equal(t, row.want, capiset.OperationOfSet(capitest.NewSet("s", 2, row.conditions...)), name)
	}
	m := capitest.NewMachine(
		"m",
		capitest.NewSet("s", 1),
		changesForDeletedMachine(clusterv1.MachineDeletingDrainingNodeReason, "pods", func(m *clusterv1.Machine) {
			m.Status.Deletion = &clusterv1.MachineDeletionStatus{NodeDrainStartTime: capitest.MinutesBeforeNoon(4)}
			m.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(600))
		})...)
	assert.Equal(t, &v1alpha1.Operation{
		Step:      "drain",
		Since:     capitest.MinutesBeforeNoon(4),
		BlockedBy: []string{"NodeDrain"},
		Cause:     "Cluster API drains the node: pods",
		Summary:   "node is being drained; goes on 12:06 UTC",
		Deadline:  new(capitest.MinutesBeforeNoon(-6)),
		WaitsFor:  "Cluster API drains the node: pods (since 11:56:00 UTC); it goes on without the pods that are left at 12:06:00 UTC; `kubectl describe machines.cluster.x-k8s.io -n shop m`",
		Waits: []v1alpha1.Wait{{
			BlockedBy: []string{"NodeDrain"},
			Cause:     "Cluster API drains the node: pods",
			Since:     capitest.MinutesBeforeNoon(4),
			Next:      "it goes on without the pods that are left",
			NextAt:    new(capitest.MinutesBeforeNoon(-6)),
			Command:   "kubectl describe machines.cluster.x-k8s.io -n shop m",
		}},
	}, capiset.MachineOperation(m, capitest.Noon))
	assert.Nil(t, capiset.MachineOperation(capitest.NewMachine("m", capitest.NewSet("s", 1)), capitest.Noon))
}
