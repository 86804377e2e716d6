package observe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/preserve"
)

// Preservation says whether a machine is preserved, and what does not say so yet. Without a node (nil) the machine decides
// alone. Now is the time to decide for; zero judges no end. Nothing that it is given is changed.
func Preservation(m *v1alpha1.Machine, node *corev1.Node, now time.Time) preserve.Decision {
	return preserve.Decide(PreserveFacts(m, node, now))
}

// PreserveFacts turns a machine and its node, nil where it has none, into the facts that say whether it is preserved.
func PreserveFacts(m *v1alpha1.Machine, node *corev1.Node, now time.Time) preserve.Facts {
	f := preserve.Facts{
		OnMachine:   annotation(m.Annotations, v1alpha1.AnnotationPreserve),
		LastApplied: annotation(m.Annotations, v1alpha1.AnnotationLastAppliedPreserve),
		Deleting:    m.DeletionTimestamp != nil,
		Failed:      m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed,
		Expiry:      timeOf(m.Status.CurrentStatus.PreserveExpiryTime),
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
	if d := stayingDrain(m, v1alpha1.DrainForPreservation, f.Expiry); d != nil {
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
