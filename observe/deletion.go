package observe

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/deletion"
	"millwright/decide/drain"
)

// DeletionFacts turns a machine that is to go and its node into what decide/deletion asks for. A node that other machines
// claim too must be given as nil. Done is what the run has done although the status does not say so yet.
func (c *Cluster) DeletionFacts(m *v1alpha1.Machine, node *corev1.Node, done deletion.Stage) deletion.Facts {
	f := deletion.Facts{
		Done:              done,
		NodeName:          m.Labels[v1alpha1.LabelNode],
		Node:              node != nil,
		Attached:          c.Attached(m.Labels[v1alpha1.LabelNode]),
		PreDrainHooks:     hooks(m, v1alpha1.AnnotationPreDrainHook),
		PreTerminateHooks: hooks(m, v1alpha1.AnnotationPreTerminateHook),
	}
	if d := m.Status.Deletion; d != nil {
		f.Recorded = deletion.Stage(d.Stage)
		if d.Drain != nil {
			f.Result = d.Drain.Result
		}
	}
	f.Hold, f.Release = wish(m, v1alpha1.AnnotationHold), wish(m, v1alpha1.AnnotationRelease)
	f.Skip, f.SkipDetach = wish(m, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationExcludeDraining), wish(m, v1alpha1.AnnotationExcludeDetach)
	return f
}

// longestWish bounds what is told again of the words of an annotation, in bytes. Source: a sentence of two lines.
const longestWish = 200

// wish says what a person wants by the first of these annotations that a machine carries, with the words that stand there;
// empty when it carries none.
func wish(m *v1alpha1.Machine, keys ...string) string {
	for _, key := range keys {
		if value, wanted := m.Annotations[key]; wanted {
			words := strings.ToValidUTF8(value[:min(len(value), longestWish)], "")
			return strings.TrimSuffix(fmt.Sprintf("annotation %s asks for it: %s", key, words), ": ")
		}
	}
	return ""
}

// hooks returns the keys of a machine's annotations that are hooks of a kind.
func hooks(m *v1alpha1.Machine, prefix string) []string {
	var keys []string
	for key := range m.Annotations {
		if key == prefix || strings.HasPrefix(key, prefix+"/") {
			keys = append(keys, key)
		}
	}
	return keys
}

// forced says why the pods of a machine's node are killed at once; empty when nobody wants it.
func forced(m *v1alpha1.Machine) string {
	label := v1alpha1.LabelForceDrain
	wanted := m.Labels[label] == v1alpha1.ValueTrue
	if m.DeletionTimestamp != nil {
		label = v1alpha1.LabelForceDeletion
		wanted, _ = strconv.ParseBool(m.Labels[label])
	}
	if wanted {
		return "label " + label + " asks for it"
	}
	return wish(m, v1alpha1.AnnotationForce)
}

// LadderFacts turns a machine whose node is to be empty and its node into what decide/drain asks for to climb. Grace is the longest own
// grace period of the pods that were left at the last look.
func LadderFacts(m *v1alpha1.Machine, node *corev1.Node, grace time.Duration, now time.Time) drain.Ladder {
	return ladder(m, DrainOf(m, EmptyingOf(m, node, now)), node, grace, now)
}

// ladder is LadderFacts with the record of the drain.
func ladder(m *v1alpha1.Machine, record *v1alpha1.MachineDrain, node *corev1.Node, grace time.Duration, now time.Time) drain.Ladder {
	l := drain.Ladder{
		Now:     now,
		Timeout: m.Spec.EffectiveDrainTimeout(),
		Retries: m.Spec.EvictRetries(),
		Grace:   grace,
	}
	if record != nil {
		l.Started, l.Reached, l.ReachedAt = record.StartedAt.Time, drain.Means(record.Means), timeOf(record.MeansSince)
	}
	l.Force = forced(m)
	if until, _, _ := strings.Cut(m.Annotations[v1alpha1.AnnotationExtend], " "); until != "" {
		if at, err := time.Parse(time.RFC3339, until); err == nil { // what cannot be read extends nothing
			l.Extended = at
		}
	}
	l.Unusable, l.UnusableSince = unusable(node)
	return l
}

// Wishes is all that people say of a machine's drain by its labels and annotations; another text is another wish.
func Wishes(m *v1alpha1.Machine) string {
	text := m.Labels[v1alpha1.LabelForceDeletion] + " " + m.Labels[v1alpha1.LabelForceDrain]
	for _, key := range []string{
		v1alpha1.AnnotationForce, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationExcludeDraining, v1alpha1.AnnotationHold,
		v1alpha1.AnnotationExtend, v1alpha1.AnnotationRetry,
	} {
		text += "\n" + wish(m, key)
	}
	return text
}

// readonlyFilesystem is the type of the condition, as node-problem-detector writes it.
const readonlyFilesystem corev1.NodeConditionType = "ReadonlyFilesystem"

// unusable says since when the pods of a node cannot be expected to end by themselves, and why; nothing when they can.
func unusable(node *corev1.Node) (why string, since time.Time) {
	for _, c := range node.Status.Conditions {
		bad := ""
		switch {
		case c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue:
			bad = "node " + node.Name + " is not ready"
		case c.Type == readonlyFilesystem && c.Status != corev1.ConditionFalse:
			bad = "the file system of node " + node.Name + " is read-only"
		}
		if at := c.LastTransitionTime.Time; bad != "" && (why == "" || at.Before(since)) {
			why, since = bad, at
		}
	}
	return why, since
}

// Turns returns what decides the order in which nodes are drained: one for each machine of the cluster that is to go and
// whose drain has not ended.
func (c *Cluster) Turns() []drain.Turn {
	var turns []drain.Turn
	for _, item := range c.informers[Machines].GetStore().List() {
		m := item.(*v1alpha1.Machine)
		if !InDrain(m) {
			continue
		}
		t := drain.Turn{UID: string(m.UID), Namespace: m.Namespace, Name: m.Name, Group: c.groupOf(m), DeletedAt: m.DeletionTimestamp.Time, Priority: Priority(m)}
		t.Queued = m.Status.CurrentOperation != nil && m.Status.CurrentOperation.Step == v1alpha1.StepQueued
		if d := m.Status.Deletion.Drain; d != nil {
			t.Started = d.StartedAt.Time
		}
		turns = append(turns, t)
	}
	return turns
}

// groupOf names what a machine shares its turns with: its deployment, or its set where there is none above.
func (c *Cluster) groupOf(m *v1alpha1.Machine) string {
	owner := metav1.GetControllerOf(m)
	if owner == nil {
		return ""
	}
	if set, found := c.Set(m.Namespace + "/" + owner.Name); found {
		if above := metav1.GetControllerOf(set); above != nil {
			return string(above.UID)
		}
	}
	return string(owner.UID)
}

// NextToDrain returns the first machines that wait for their turn, at most so many.
func (c *Cluster) NextToDrain(most int) []Ref {
	var next []Ref
	for _, t := range drain.NextTurns(c.Turns(), most) {
		next = append(next, Ref{Namespace: t.Namespace, Name: t.Name, UID: t.UID})
	}
	return next
}

// InDrain reports whether a machine takes a place in the order in which nodes are drained: it is in that stage of its
// deletion, and nobody holds it before its drain has begun.
func InDrain(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	if m.DeletionTimestamp == nil || d == nil || d.Stage != v1alpha1.MachineDeletionDrain {
		return false
	}
	if d.Drain == nil {
		return wish(m, v1alpha1.AnnotationHold) == ""
	}
	return d.Drain.Result == ""
}
