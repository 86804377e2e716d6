package set

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/explain"
	"millwright/decide/phrase"
	"millwright/decide/scale"
	"millwright/observe/capi"
	capidrain "millwright/observe/capi/drain"
	"millwright/observe/machine"
)

// MachineWaitFacts returns the facts that explain why a machine waits. The machine's conditions determine the stage;
// the messages of the conditions are only shown.
func MachineWaitFacts(m *clusterv1.Machine, now time.Time) explain.ClusterAPIMachine {
	f := explain.ClusterAPIMachine{Namespace: m.Namespace, Name: m.Name, Now: now}
	_, paused := m.Annotations[clusterv1.PausedAnnotation]
	switch {
	case m.DeletionTimestamp != nil:
		addDeletionFacts(m, &f)
	default:
		addProvisioningFacts(m, &f)
	}
	if paused && f.Stage != "" {
		f.Stage, f.Unhandled, f.HasFailed = explain.StagePaused, false, false
	}
	return f
}

// deletionStagesByReason maps the reason of the condition Deleting to the stage of a deletion.
var deletionStagesByReason = map[string]explain.Stage{
	clusterv1.MachineDeletingWaitingForPreDrainHookReason:           explain.StageAwaitHooks,
	clusterv1.MachineDeletingWaitingForPreTerminateHookReason:       explain.StageAwaitHooks,
	clusterv1.MachineDeletingDrainingNodeReason:                     explain.StageClusterAPIDrain,
	clusterv1.MachineDeletingWaitingForVolumeDetachReason:           explain.StageDetachVolumes,
	clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason: explain.StageDeleteInstance,
	clusterv1.MachineDeletingWaitingForBootstrapDeletionReason:      explain.StageDeleteBootstrap,
	clusterv1.MachineDeletingDeletingNodeReason:                     explain.StageDeleteNode,
}

// addDeletionFacts sets the facts about a machine that is being deleted.
func addDeletionFacts(m *clusterv1.Machine, f *explain.ClusterAPIMachine) {
	c := capi.ConditionOfType(m.Status.Conditions, clusterv1.MachineDeletingCondition)
	f.Stage, f.Message, f.Since = explain.StageUnknownDeletion, c.Message, m.DeletionTimestamp.Time
	if !slices.Contains(m.Finalizers, clusterv1.MachineFinalizer) { // Cluster API has finished its part of the deletion
		f.Message = "finalizers are left: " + strings.Join(m.Finalizers, ", ")
		return
	}
	if c.Status != metav1.ConditionTrue {
		f.Unhandled = true
		return
	}
	if of, known := deletionStagesByReason[c.Reason]; known {
		f.Stage = of
	}
	started, deletion := m.Status.Deletion, m.Spec.Deletion
	if started == nil {
		started = &clusterv1.MachineDeletionStatus{}
	}
	switch c.Reason {
	case clusterv1.MachineDeletingWaitingForPreDrainHookReason:
		addHookFacts(m, f, clusterv1.PreDrainDeleteHookAnnotationPrefix)
	case clusterv1.MachineDeletingWaitingForPreTerminateHookReason:
		addHookFacts(m, f, clusterv1.PreTerminateDeleteHookAnnotationPrefix)
	case clusterv1.MachineDeletingDrainingNodeReason:
		f.Since, f.Deadline = stageStartAndDeadline(f.Since, started.NodeDrainStartTime, deletion.NodeDrainTimeoutSeconds)
	case clusterv1.MachineDeletingWaitingForVolumeDetachReason:
		f.Since, f.Deadline = stageStartAndDeadline(
			f.Since,
			started.WaitForNodeVolumeDetachStartTime,
			deletion.NodeVolumeDetachTimeoutSeconds,
		)
	case clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason:
		f.DescribedObject = kubectlObjectName(m.Spec.InfrastructureRef)
	case clusterv1.MachineDeletingWaitingForBootstrapDeletionReason:
		f.DescribedObject = kubectlObjectName(m.Spec.Bootstrap.ConfigRef)
	}
}

// longDrainAge is how long a drain by Cluster API lasts before the conditions of the set say why. Source: Cluster API.
const longDrainAge = 5 * time.Minute

// drainBlockers returns why Cluster API's drain of a machine's node lasts longer than longDrainAge. Source of the texts:
// the message of Cluster API's condition Deleting. The result is only shown.
func drainBlockers(m *clusterv1.Machine, now time.Time) (blockers []string) {
	c := capi.ConditionOfType(m.Status.Conditions, clusterv1.MachineDeletingCondition)
	if m.DeletionTimestamp == nil || c.Status != metav1.ConditionTrue ||
		c.Reason != clusterv1.MachineDeletingDrainingNodeReason || m.Status.Deletion == nil {
		return nil
	}
	began := m.Status.Deletion.NodeDrainStartTime
	if began.IsZero() || now.Sub(began.Time) <= longDrainAge {
		return nil
	}
	for _, row := range []struct{ text, blocker string }{
		{"cannot evict pod as it would violate the pod's disruption budget.", scale.DrainBudgets},
		{"deletionTimestamp set, but still not removed from the Node", scale.DrainNotTerminating},
		{"failed to evict Pod", scale.DrainEvictionErrors},
		{"waiting for completion", scale.DrainNotCompleted},
	} {
		if strings.Contains(c.Message, row.text) {
			blockers = append(blockers, row.blocker)
		}
	}
	return blockers
}

// addHookFacts sets the facts about a machine whose deletion waits for hook annotations with this prefix. If no
// annotation with this prefix is left, Cluster API has not processed the removal yet.
func addHookFacts(m *clusterv1.Machine, f *explain.ClusterAPIMachine, prefix string) {
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		if strings.HasPrefix(key, prefix) && key != capidrain.AnnotationPreDrainHook {
			f.Hooks = append(f.Hooks, key)
		}
	}
	switch {
	case len(f.Hooks) > 0:
	case capidrain.HasDrainHook(m) && prefix == clusterv1.PreDrainDeleteHookAnnotationPrefix:
		f.Stage, f.Message, f.DrainingMachine = explain.StageMillwrightDrain, "", machine.ExplanationFacts(
			capidrain.ToMillwrightMachine(m),
			nil,
			f.Now,
		)
	default:
		f.Stage = explain.StageUnknownDeletion
	}
}

// stageStartAndDeadline returns the start and the deadline of a stage. If the start of the stage is unknown,
// stageStartAndDeadline returns the start of the deletion. A zero deadline means no known deadline. As in Cluster API,
// the stage has no deadline if its timeout is absent or 0.
func stageStartAndDeadline(deletion time.Time, began metav1.Time, seconds *int32) (since, end time.Time) {
	if began.IsZero() {
		return deletion, end
	}
	if n := capi.ValueOrZero(seconds); n > 0 {
		end = began.Add(time.Duration(n) * time.Second)
	}
	return began.Time, end
}

// addProvisioningFacts sets the facts about a machine that is not being deleted: what it still needs before its node
// joins, or what it has lost since then. addProvisioningFacts ignores a missing condition.
func addProvisioningFacts(m *clusterv1.Machine, f *explain.ClusterAPIMachine) {
	created := m.CreationTimestamp.Time
	of := func(stage explain.Stage, c metav1.Condition, from time.Time, object string) {
		f.Stage, f.Message, f.Since, f.DescribedObject = stage, c.Message, phrase.LaterTime(
			c.LastTransitionTime.Time,
			from,
		), object
	}
	bootstrap := capi.ConditionOfType(m.Status.Conditions, clusterv1.MachineBootstrapConfigReadyCondition)
	infrastructure := capi.ConditionOfType(m.Status.Conditions, clusterv1.MachineInfrastructureReadyCondition)
	node := capi.ConditionOfType(m.Status.Conditions, clusterv1.MachineNodeHealthyCondition)
	updating := capi.ConditionOfType(m.Status.Conditions, clusterv1.MachineUpdatingCondition)
	lacks := func(c metav1.Condition) bool { return c.Type != "" && c.Status != metav1.ConditionTrue }
	joined := m.Status.NodeRef.IsDefined()
	switch {
	case !slices.ContainsFunc(m.Status.Conditions, isNotPauseCondition):
		// If a pause of the Cluster ended before core had looked at the machine, the condition Paused may be the only one.
		paused := capi.ConditionOfType(m.Status.Conditions, clusterv1.PausedCondition)
		of(explain.StageInfrastructure, paused, created, "")
		f.Unhandled = true
	case !joined && lacks(bootstrap):
		of(explain.StageBootstrap, bootstrap, created, kubectlObjectName(m.Spec.Bootstrap.ConfigRef))
		f.HasFailed = bootstrap.Reason == clusterv1.MachineBootstrapConfigDeletedReason
	case lacks(infrastructure):
		of(explain.StageInfrastructure, infrastructure, created, kubectlObjectName(m.Spec.InfrastructureRef))
		f.HasFailed = infrastructure.Reason == clusterv1.MachineInfrastructureDeletedReason
	case !joined && lacks(node): // the node cannot join before its instance exists
		of(explain.StageJoin, node, infrastructure.LastTransitionTime.Time, "")
	case updating.Status == metav1.ConditionTrue: // an update may make the node unhealthy
		of(explain.StageUpdate, updating, created, "")
		f.HasFailed = updating.Reason == clusterv1.MachineInPlaceUpdateFailedReason
	case node.Status == metav1.ConditionFalse:
		of(explain.StageRecover, node, infrastructure.LastTransitionTime.Time, "")
	}
}

func isNotPauseCondition(c metav1.Condition) bool { return c.Type != clusterv1.PausedCondition }

// kubectlObjectName returns the name of an object for kubectl, as KIND NAME.
func kubectlObjectName(ref clusterv1.ContractVersionedObjectReference) string {
	if !ref.IsDefined() {
		return ""
	}
	return strings.ToLower(ref.Kind) + "." + ref.APIGroup + " " + ref.Name
}

// PendingWork returns the pending work of a set. PendingWork returns the work of the plan first, then other writes,
// then the wait for a machine that is or will be stalled.
func PendingWork(
	set *clusterv1.MachineSet,
	related capi.RelatedObjects,
	observed scale.Facts,
	plan scale.PlanResult,
	explained explain.MachineSet,
) attention.Decision {
	if !plan.PendingWork.NeedsNothing() {
		return plan.PendingWork
	}
	if why := OutstandingWritesText(set, related, observed, plan); why != "" {
		return attention.Decision{Need: attention.NeedScaling, Why: why}
	}
	return cmp.Or(
		plan.PendingWork.PrecedingDecisionIf(
			explained.HasMachineInStage(),
			attention.NeedScaling,
			"a machine waits for Cluster API",
		),
		plan.PendingWork,
	)
}

// RecheckTime returns when a set must be reconciled again even without a change; zero means never.
func RecheckTime(plan scale.PlanResult, explained explain.MachineSet) time.Time {
	return explained.NextEvaluationTime(plan.Decision.Recheck)
}

// MachineOperation returns a current operation that shows why a machine waits; nil if the machine does not wait.
// Cluster API's status has no field for a current operation.
func MachineOperation(m *clusterv1.Machine, now time.Time) *v1alpha1.Operation {
	facts := MachineWaitFacts(m, now)
	w := facts.CurrentWait()
	if w.Cause == "" {
		return nil
	}
	o := &v1alpha1.Operation{
		Step:      facts.StepName(),
		Since:     metav1.NewTime(w.Since),
		BlockedBy: w.Blockers,
		Cause:     w.Cause,
		WaitsFor:  w.Sentence(now),
		Summary:   w.ShortText(now),
		Waits:     machine.StatusWaits([]explain.GroupedWait{{WaitState: w}}),
	}
	if !w.NextEventTime.IsZero() {
		o.Deadline = new(metav1.NewTime(w.NextEventTime))
	}
	return o
}

// machineSetSteps lists the steps of a set, the most important first. While a step runs, its condition is True.
var machineSetSteps = []struct{ condition, step string }{
	{vocabulary.ConditionDeleting, vocabulary.StepAwaitMachines},
	{vocabulary.ConditionRemediating, vocabulary.StepDeleteMachines},
	{vocabulary.ConditionScalingDown, vocabulary.StepDeleteMachines},
	{vocabulary.ConditionScalingUp, vocabulary.StepCreateMachines},
}

// OperationOfSet returns the work of a set as a current operation, from the set's conditions; nil if the set has no
// work. Cluster API's status has no field for a current operation.
func OperationOfSet(set *clusterv1.MachineSet) *v1alpha1.Operation {
	var o *v1alpha1.Operation
	for _, of := range machineSetSteps {
		if c := capi.ConditionOfType(set.Status.Conditions, of.condition); c.Status == metav1.ConditionTrue && o == nil {
			o = &v1alpha1.Operation{
				Step:     of.step,
				Since:    c.LastTransitionTime,
				WaitsFor: strings.Join(strings.Fields(c.Message), " "),
			}
			o.Summary = explain.WaitState{Step: of.step, Cause: o.WaitsFor}.ShortText(time.Time{})
		}
	}
	if c := capi.ConditionOfType(set.Status.Conditions, vocabulary.ConditionBlocked); c.Status == metav1.ConditionTrue {
		if o == nil {
			o = &v1alpha1.Operation{}
		}
		o.Since, o.WaitsFor, o.BlockedBy = c.LastTransitionTime, c.Message, []string{c.Reason}
		o.Summary = explain.WaitState{Blockers: o.BlockedBy}.ShortText(time.Time{})
	}
	return o
}

// BlockerReason returns the blocker of an operation as one word; empty if nothing blocks the operation.
func BlockerReason(o *v1alpha1.Operation) string {
	if o == nil {
		return ""
	}
	return explain.WaitState{Blockers: o.BlockedBy}.Reason()
}
