package machine

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/preserve"
	"millwright/observe/cache"
	"millwright/observe/drain"
)

// PreservationFacts returns the facts for the decision whether to preserve a machine. A nil node means that the machine
// has no node. If now is zero, no preservation has expired.
func PreservationFacts(m *v1alpha1.Machine, node *corev1.Node, now time.Time) preserve.Facts {
	f := preserve.Facts{
		OnMachine:   parsePreserveAnnotation(m.Annotations, v1alpha1.AnnotationPreserve),
		LastApplied: parsePreserveAnnotation(m.Annotations, v1alpha1.AnnotationLastAppliedPreserve),
		Deleting:    m.DeletionTimestamp != nil,
		Failed:      m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed,
		Expiry:      cache.TimeOrZero(m.Status.CurrentStatus.PreserveExpiryTime),
		Timeout:     m.Spec.EffectivePreserveTimeout(),
		Now:         now,
	}
	if node == nil {
		return f
	}
	f.NodeExists = true
	f.OnNode = parsePreserveAnnotation(node.Annotations, v1alpha1.AnnotationPreserve)
	f.ScaleDownDisabled = parsePreserveAnnotation(node.Annotations, v1alpha1.AnnotationScaleDownDisabled)
	f.DisabledByUs = parsePreserveAnnotation(node.Annotations, v1alpha1.AnnotationScaleDownDisabledByMCM)
	f.Tainted = slices.ContainsFunc(node.Spec.Taints, IsPreservationTaint)
	if c := cache.FindNodeCondition(node.Status.Conditions, v1alpha1.NodePreserved); c != nil {
		f.Condition = &preserve.Condition{True: c.Status == corev1.ConditionTrue, Reason: c.Reason, Message: c.Message}
	}
	if d := drain.FindStayingDrain(m, v1alpha1.DrainForPreservation, f.Expiry); d != nil {
		f.Drained = d.Result
	}
	return f
}

// IsPreservationTaint reports whether a taint is Millwright's taint for preserved failed nodes. A taint with the same
// key but another effect does not belong to Millwright.
func IsPreservationTaint(t corev1.Taint) bool {
	return t.Key == v1alpha1.TaintPreserved && t.Effect == v1alpha1.TaintPreservedEffect
}

func parsePreserveAnnotation(of map[string]string, key string) preserve.Annotation {
	text, present := of[key]
	return preserve.Annotation{Present: present, Text: text}
}

// IsPreservationForbidden reports whether a set must not preserve a failed machine: an annotation forbids the
// preservation, or the set has requested the preservation once before.
func IsPreservationForbidden(m *v1alpha1.Machine) bool {
	_, asked := m.Annotations[v1alpha1.AnnotationAutoPreserved]
	return asked || m.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.ValuePreserveFalse
}

// IsPreservedBySet reports whether the set of a machine requested the machine's preservation.
func IsPreservedBySet(m *v1alpha1.Machine) bool {
	return m.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.ValuePreserveAuto
}

// IsReplaceable reports whether a machine has failed and its set may replace it now, or is replacing it. If the set has
// a deployment, the machine needs a grant from the deployment's replacement budget.
func IsReplaceable(m *v1alpha1.Machine, set *v1alpha1.MachineSet) bool {
	// A machine that is being deleted has the phase Terminating: only its condition still shows that its replacement
	// was due.
	failed := m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed || (m.DeletionTimestamp != nil && IsReplacementDue(m))
	return failed && !IsProtectedFromReplacement(m, nil) && (IsReplacementGranted(m) || !HasDeployment(set))
}

// IsPreserved reports whether the machine's status records a preservation.
func IsPreserved(m *v1alpha1.Machine) bool { return m.Status.CurrentStatus.PreserveExpiryTime != nil }

// IsPreservedNowOrLater reports whether a machine is preserved, or has failed and will be preserved.
func IsPreservedNowOrLater(m *v1alpha1.Machine) bool {
	return IsPreserved(m) || (m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && IsProtectedFromReplacement(m, nil))
}

// IsProtectedFromReplacement reports whether a machine that has failed or fails now must not be replaced. The machine's
// status records a preservation, or an annotation requests a preservation that the machine's workflow has not recorded
// yet. The node's annotation has priority over the machine's annotation; a nil node is unknown. If the annotation was
// removed from the node, no preservation is requested.
func IsProtectedFromReplacement(m *v1alpha1.Machine, node *corev1.Node) bool {
	value := m.Annotations[v1alpha1.AnnotationPreserve]
	if node != nil &&
		(node.Annotations[v1alpha1.AnnotationPreserve] != "" || m.Annotations[v1alpha1.AnnotationLastAppliedPreserve] != "") {
		value = node.Annotations[v1alpha1.AnnotationPreserve]
	}
	switch value {
	case v1alpha1.ValuePreserveNow, v1alpha1.ValuePreserveWhenFailed, v1alpha1.ValuePreserveAuto:
		return IsPreserved(m) || m.Spec.EffectivePreserveTimeout() > 0
	default:
		return IsPreserved(m)
	}
}

// WaitsForReplacementGrant reports whether a machine is due for replacement and has no grant yet.
func WaitsForReplacementGrant(m *v1alpha1.Machine) bool {
	over := IsReplacementDue(m) || m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed
	return over && m.DeletionTimestamp == nil && !IsReplacementGranted(m) && !IsProtectedFromReplacement(m, nil)
}

// CreationBlocker returns the reason and the message why the provider creates no instance for a machine; both are empty
// if nothing blocks the creation.
func CreationBlocker(m *v1alpha1.Machine) (reason, message string) {
	if m.DeletionTimestamp != nil || m.Status.CurrentStatus.Phase != v1alpha1.MachineCrashLoopBackOff {
		return "", ""
	}
	for _, c := range m.Status.Conditions {
		if (c.Type == v1alpha1.MachineClassReady || c.Type == v1alpha1.MachineInstanceReady) &&
			c.Status == corev1.ConditionFalse {
			return c.Reason, c.Message
		}
	}
	return "", ""
}
