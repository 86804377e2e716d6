package observe

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/verb"
)

// VerbAnnotation returns the key of the annotation that a verb writes on a Machine; empty for what is no verb.
func VerbAnnotation(v verb.Verb) string {
	switch v {
	case verb.Extend:
		return v1alpha1.AnnotationExtend
	case verb.Retry:
		return v1alpha1.AnnotationRetry
	case verb.Hold, verb.Resume:
		return v1alpha1.AnnotationHold
	case verb.Force:
		return v1alpha1.AnnotationForce
	case verb.Skip:
		return v1alpha1.AnnotationSkipDrain
	case verb.Release:
		return v1alpha1.AnnotationRelease
	case verb.Preserve, verb.Unpreserve:
		return v1alpha1.AnnotationPreserve
	default:
		return ""
	}
}

// VerbFacts turns a machine into what decide/verb asks for, at that time. Of the node it knows what the machine says of it.
func VerbFacts(m *v1alpha1.Machine, now time.Time) verb.Facts {
	f := verb.Facts{
		Machine:   m.Namespace + "/" + m.Name,
		UID:       string(m.UID),
		Phase:     cmp.Or(string(m.Status.CurrentStatus.Phase), "new"),
		Said:      map[verb.Verb]string{},
		Now:       now,
		Deleting:  m.DeletionTimestamp != nil,
		Emptying:  Staying(m) != nil,
		DrainOver: DrainOver(m),
		Means:     DrainMeans(m),
		Deadline:  StepDeadline(m, now),
		Extended:  LadderFacts(m, &corev1.Node{}, 0, now).Extended,
		Node:      m.Labels[v1alpha1.LabelNode],
		NodeSays:  m.Annotations[v1alpha1.AnnotationLastAppliedPreserve],
		Keeps:     m.Spec.EffectivePreserveTimeout(),
		KeptTill:  timeOf(m.Status.CurrentStatus.PreserveExpiryTime),
	}
	if d := m.Status.Deletion; d != nil {
		f.Stage = deletion.Stage(d.Stage)
	}
	for _, v := range verb.Names() {
		if value, said := m.Annotations[VerbAnnotation(v)]; said {
			f.Said[v] = value
		}
	}
	return f
}
