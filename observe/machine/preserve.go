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

// PreserveFacts turns a machine and its node, nil where it has none, into the facts that say whether it is
// preserved. Now zero judges no end.
func PreserveFacts(m *v1alpha1.Machine, node *corev1.Node, now time.Time) preserve.Facts {
	f := preserve.Facts{
		OnMachine:   annotation(m.Annotations, v1alpha1.AnnotationPreserve),
		LastApplied: annotation(m.Annotations, v1alpha1.AnnotationLastAppliedPreserve),
		Deleting:    m.DeletionTimestamp != nil,
		Failed:      m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed,
		Expiry:      cache.TimeOf(m.Status.CurrentStatus.PreserveExpiryTime),
		Timeout:     m.Spec.EffectivePreserveTimeout(),
		Now:         now,
	}
	if node == nil {
		return f
	}
	f.NodeExists = true
	f.OnNode = annotation(node.Annotations, v1alpha1.AnnotationPreserve)
	f.ScaleDownDisabled = annotation(node.Annotations, v1alpha1.AnnotationScaleDownDisabled)
	f.DisabledByUs = annotation(node.Annotations, v1alpha1.AnnotationScaleDownDisabledByMCM)
	f.Tainted = slices.ContainsFunc(node.Spec.Taints, IsPreservedTaint)
	f.Condition = preserved(node)
	if d := drain.StayingDrain(m, v1alpha1.DrainForPreservation, f.Expiry); d != nil {
		f.Drained = d.Result
	}
	return f
}

// IsPreservedTaint reports whether a taint is that of failed nodes that are preserved. The same key with another effect is
// somebody else's.
func IsPreservedTaint(t corev1.Taint) bool {
	return t.Key == v1alpha1.TaintPreserved && t.Effect == v1alpha1.TaintPreservedEffect
}

func preserved(node *corev1.Node) *preserve.Condition {
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.NodePreserved {
			return &preserve.Condition{True: c.Status == corev1.ConditionTrue, Reason: c.Reason, Message: c.Message}
		}
	}
	return nil
}

func annotation(of map[string]string, key string) preserve.Annotation {
	text, present := of[key]
	return preserve.Annotation{Present: present, Text: text}
}

// IsDismissed reports whether a failed machine is not to be kept: somebody does not want it, or its set has asked once.
func IsDismissed(m *v1alpha1.Machine) bool {
	_, asked := m.Annotations[v1alpha1.AnnotationAutoPreserved]
	return asked || m.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.ValuePreserveFalse
}

// IsKept reports whether its set asked for a machine's preservation.
func IsKept(m *v1alpha1.Machine) bool {
	return m.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.ValuePreserveAuto
}

// Replaceable reports whether a machine failed and its set is to replace it now, or is doing so. Where a deployment stands
// above, that is for its replacement budget to say.
func Replaceable(m *v1alpha1.Machine, set *v1alpha1.MachineSet) bool {
	failed := m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed || (m.DeletionTimestamp != nil && IsDue(m)) // where the phase does not say so any more
	return failed && !IsProtected(m, nil) && (IsGranted(m) || !HasDeployment(set))
}

// IsPreserved reports whether a machine is kept on purpose, as its status says.
func IsPreserved(m *v1alpha1.Machine) bool { return m.Status.CurrentStatus.PreserveExpiryTime != nil }

// IsKeptNow reports whether a machine is preserved, or has failed and is about to be.
func IsKeptNow(m *v1alpha1.Machine) bool {
	return IsPreserved(m) || (m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && IsProtected(m, nil))
}

// IsProtected reports whether a machine that has failed or fails now must not be replaced: its preservation is on record, or
// an annotation asks for it and the machine's own workflow has not recorded it yet. The annotation of the node, nil where it is
// not known, counts before that of the machine. A node that had one and lost it does not ask.
func IsProtected(m *v1alpha1.Machine, node *corev1.Node) bool {
	value := m.Annotations[v1alpha1.AnnotationPreserve]
	if node != nil && (node.Annotations[v1alpha1.AnnotationPreserve] != "" || m.Annotations[v1alpha1.AnnotationLastAppliedPreserve] != "") {
		value = node.Annotations[v1alpha1.AnnotationPreserve]
	}
	switch value {
	case v1alpha1.ValuePreserveNow, v1alpha1.ValuePreserveWhenFailed, v1alpha1.ValuePreserveAuto:
		return IsPreserved(m) || m.Spec.EffectivePreserveTimeout() > 0
	default:
		return IsPreserved(m)
	}
}

// IsWaiting reports whether a machine is to be replaced and nobody has granted that yet.
func IsWaiting(m *v1alpha1.Machine) bool {
	over := IsDue(m) || m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed
	return over && m.DeletionTimestamp == nil && !IsGranted(m) && !IsProtected(m, nil)
}

// Blocked returns what keeps the provider from making a machine's instance, as a reason and in a sentence; empty when
// nothing does.
func Blocked(m *v1alpha1.Machine) (reason, message string) {
	if m.DeletionTimestamp != nil || m.Status.CurrentStatus.Phase != v1alpha1.MachineCrashLoopBackOff {
		return "", ""
	}
	for _, c := range m.Status.Conditions {
		if (c.Type == v1alpha1.MachineClassReady || c.Type == v1alpha1.MachineInstanceReady) && c.Status == corev1.ConditionFalse {
			return c.Reason, c.Message
		}
	}
	return "", ""
}
