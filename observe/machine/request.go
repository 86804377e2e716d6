package machine

import (
	"cmp"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/request"
	"millwright/observe/cache"
	"millwright/observe/drain"
)

// requestAnnotationKeys maps the kind and the command to the key of the annotation that the command writes. A command
// that is not in the map writes no annotation.
var requestAnnotationKeys = map[request.Kind]map[request.Command]string{
	request.KindMachine: {
		request.Extend:          v1alpha1.AnnotationExtend,
		request.Retry:           v1alpha1.AnnotationRetry,
		request.Hold:            v1alpha1.AnnotationHold,
		request.Resume:          v1alpha1.AnnotationHold,
		request.Force:           v1alpha1.AnnotationForce,
		request.Skip:            v1alpha1.AnnotationSkipDrain,
		request.AbandonInstance: v1alpha1.AnnotationAbandonInstance,
		request.Preserve:        v1alpha1.AnnotationPreserve,
		request.Unpreserve:      v1alpha1.AnnotationPreserve,
	},
	request.KindMachineDeployment: {
		request.Start:   v1alpha1.AnnotationChangeCause,
		request.Pause:   v1alpha1.AnnotationRolloutPausedBy,
		request.Resume:  v1alpha1.AnnotationRolloutHold,
		request.Cancel:  v1alpha1.AnnotationRolloutHold,
		request.Approve: v1alpha1.AnnotationRolloutApprove,
		request.Retry:   v1alpha1.AnnotationRolloutRetry,
		request.Undo:    v1alpha1.AnnotationRolloutUndoBy,
	},
}

// RequestAnnotationKey returns the key of the annotation that a command writes on an object of this kind; empty if the
// command writes no annotation.
func RequestAnnotationKey(kind request.Kind, command request.Command) string {
	return requestAnnotationKeys[kind][command]
}

// RequestFacts returns the facts for the decision on an operator's command for a machine at the time now. The facts
// about the node come from the copy in the machine's status.
func RequestFacts(m *v1alpha1.Machine, command request.Command, now time.Time) request.MachineFacts {
	f := request.MachineFacts{
		Name:                 m.Namespace + "/" + m.Name,
		UID:                  string(m.UID),
		Phase:                cmp.Or(string(m.Status.CurrentStatus.Phase), "new"),
		AnnotationKey:        RequestAnnotationKey(request.KindMachine, command),
		Now:                  now,
		Deleting:             m.DeletionTimestamp != nil,
		NodeDraining:         drain.ActiveStayingDrain(m) != nil,
		DrainEnded:           drain.IsDrainOver(m),
		RemovalMeans:         drain.CurrentRemovalMeans(m),
		Deadlines:            drain.DeadlineFacts(m, now),
		ExtendedUntil:        drain.EvictionExtensionEnd(m),
		NodeName:             cache.NodeNameOfMachine(m),
		NodePreserveValue:    m.Annotations[v1alpha1.AnnotationLastAppliedPreserve],
		PreservationDuration: m.Spec.EffectivePreserveTimeout(),
		PreservedUntil:       cache.TimeOrZero(m.Status.CurrentStatus.PreserveExpiryTime),
	}
	if d := m.Status.Deletion; d != nil {
		f.Stage = deletion.Stage(d.Stage)
	}
	if value, there := m.Annotations[f.AnnotationKey]; there {
		f.AnnotationValue = &value
	}
	return f
}

// RequestPatch returns the merge patch for the decision about a command on an object of this kind; nil if the decision
// writes nothing.
func RequestPatch(kind request.Kind, command request.Command, d request.Decision) map[string]any {
	if d.RefusalReason != "" || d.Repeated {
		return nil
	}
	annotations, spec := map[string]any{}, map[string]any{}
	if d.AnnotationValue != nil {
		key := RequestAnnotationKey(kind, command)
		switch {
		case d.PinRevision != nil:
			key = v1alpha1.AnnotationRolloutPin
		case d.RollbackTo != nil:
			key = v1alpha1.AnnotationRolloutUndoBy // also if the command cancel returns to an earlier revision
		}
		annotations[key] = *d.AnnotationValue
		if *d.AnnotationValue == "" {
			annotations[key] = nil
		}
	}
	if d.RemovesPin {
		annotations[v1alpha1.AnnotationRolloutPin] = nil
	}
	if d.RemovesHold {
		annotations[v1alpha1.AnnotationRolloutHold] = nil
	}
	if d.Record != "" {
		annotations[v1alpha1.AnnotationLastRequest] = d.Record
	}
	if d.Paused != nil {
		if spec["paused"] = *d.Paused; !*d.Paused {
			annotations[v1alpha1.AnnotationRolloutPausedBy] = nil
		}
	}
	if d.RollbackTo != nil {
		spec["rollbackTo"] = map[string]any{"revision": *d.RollbackTo}
	}
	if d.RestartedAt != nil {
		restarted := map[string]any{v1alpha1.AnnotationRestartedAt: *d.RestartedAt}
		spec["template"] = map[string]any{"metadata": map[string]any{"annotations": restarted}}
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch
}
