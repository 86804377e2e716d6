package drain

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/decide/phrase"
	"millwright/observe/cache"
)

// maxReason bounds how much of the value of an annotation is repeated in messages, in bytes. Source: a sentence of two
// lines.
const maxReason = 200

// AnnotationReason names the first of these annotations that a machine has, and its value; empty when it has none.
func AnnotationReason(m *v1alpha1.Machine, keys ...string) string {
	for _, key := range keys {
		if value, set := m.Annotations[key]; set {
			return "annotation " + key + cmp.Or(phrase.If(value != "", ": %s", phrase.Cut(value, maxReason)), " is set")
		}
	}
	return ""
}

// Held returns who holds the deletion or the drain of a machine, and why, such as "ann: lunch"; empty: nobody does.
func Held(m *v1alpha1.Machine) string {
	words, held := m.Annotations[v1alpha1.AnnotationHold]
	if !held {
		return ""
	}
	return cmp.Or(phrase.Cut(strings.TrimSpace(words), maxReason), "no reason given")
}

// Forced returns why the pods of a machine's node are killed at once: a label or an annotation asks for it. It is empty
// when there is no such reason.
func Forced(m *v1alpha1.Machine) string {
	label := v1alpha1.LabelForceDrain
	wanted := m.Labels[label] == v1alpha1.ValueTrue
	if m.DeletionTimestamp != nil {
		label = v1alpha1.LabelForceDeletion
		wanted, _ = strconv.ParseBool(m.Labels[label])
	}
	if wanted {
		return "label " + label + " is set"
	}
	return AnnotationReason(m, v1alpha1.AnnotationForce)
}

// Ladder returns the facts from which the means of a drain is decided. Record is nil before the drain began. Grace is
// the longest grace period of the remaining pods at the last look.
func Ladder(
	m *v1alpha1.Machine,
	record *v1alpha1.MachineDrain,
	node *corev1.Node,
	grace time.Duration,
	now time.Time,
) drain.Ladder {
	l := drain.Ladder{
		Now:     now,
		Timeout: m.Spec.EffectiveDrainTimeout(),
		Retries: m.Spec.EvictRetries(),
		Grace:   grace,
	}
	if OfClusterAPI(m) {
		l.Setting, l.Endless = "nodeDrainTimeoutSeconds", l.Timeout == Forever
	}
	if record != nil {
		l.Started, l.Reached, l.ReachedAt = record.StartedAt.Time, drain.Means(record.Means), cache.TimeOf(record.MeansSince)
	}
	l.Force, l.Extended = Forced(m), Extended(m)
	l.Unusable, l.UnusableSince = unusable(node)
	if h := m.Status.Health; l.Unusable != "" && h != nil && h.InstanceGoneAt != nil {
		l.Lost, l.UnusableSince = true, cmp.Or(l.UnusableSince, h.InstanceGoneAt.Time)
		l.Unusable = "the provider no longer has instance " + m.Spec.ProviderID + ", and " + l.Unusable
	}
	return l
}

// Forever is the drainTimeout of a machine whose drain has no end. Only the facts about machines of Cluster API have
// it.
const Forever = time.Duration(math.MaxInt64)

// OfClusterAPI reports whether facts are about a Machine of Cluster API, in the form of a Machine of Millwright.
func OfClusterAPI(m *v1alpha1.Machine) bool {
	return strings.HasPrefix(m.APIVersion, "cluster.x-k8s.io/")
}

// Extended returns until when an operator wants evictions to continue; zero when no annotation asks for it or its time
// cannot be read.
func Extended(m *v1alpha1.Machine) time.Time {
	until, _, _ := strings.Cut(m.Annotations[v1alpha1.AnnotationExtend], " ")
	return cache.TimeIn(until)
}

// Requests returns all labels and annotations of a machine that change its drain, as one text to compare with an
// earlier one.
func Requests(m *v1alpha1.Machine) string {
	text := m.Labels[v1alpha1.LabelForceDeletion] + " " + m.Labels[v1alpha1.LabelForceDrain]
	for _, key := range []string{
		v1alpha1.AnnotationForce, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationExcludeDraining, v1alpha1.AnnotationHold,
		v1alpha1.AnnotationExtend, v1alpha1.AnnotationRetry,
	} {
		text += "\n" + AnnotationReason(m, key)
	}
	return text
}

// readonlyFilesystem is a condition type of node-problem-detector.
const readonlyFilesystem corev1.NodeConditionType = "ReadonlyFilesystem"

// unusable returns why the pods of a node cannot be expected to end by themselves, and since when; both are zero when
// they can.
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

// Turns returns the facts about the order in which nodes are drained: one entry for each machine of the cluster that is
// being deleted and whose drain has not ended.
func Turns(c *cache.Cluster) []drain.Turn {
	var turns []drain.Turn
	for _, m := range cache.All[*v1alpha1.Machine](c.Informer(cache.Machines)) {
		if !InDrain(m) {
			continue
		}
		t := drain.Turn{
			UID: string(m.UID), Namespace: m.Namespace, Name: m.Name, Group: groupOf(c, m),
			DeletedAt: m.DeletionTimestamp.Time, Priority: Priority(m), Queued: m.Status.Deletion.Queued,
		}
		if d := m.Status.Deletion.Drain; d != nil {
			t.Started = d.StartedAt.Time
		}
		turns = append(turns, t)
	}
	return turns
}

// groupOf returns the UID of the object whose machines share the turns of a group: the deployment of a machine, else
// its set; empty if it has no set.
func groupOf(c *cache.Cluster, m *v1alpha1.Machine) string {
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

// InDrain reports whether a machine takes part in the order in which nodes are drained: its deletion is in the stage
// Drain, the drain has not ended, and no hold keeps it from beginning.
func InDrain(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	if m.DeletionTimestamp == nil || d == nil || d.Stage != v1alpha1.MachineDeletionDrain {
		return false
	}
	if d.Drain == nil {
		return Held(m) == ""
	}
	return d.Drain.Result == ""
}

// Priority returns the deletion priority of a machine: lower goes first. As in MCM, it is 3 without the annotation, or
// when its value is not a number.
func Priority(m *v1alpha1.Machine) int {
	if p, err := strconv.Atoi(m.Annotations[v1alpha1.AnnotationMachinePriority]); err == nil {
		return p
	}
	return v1alpha1.PriorityDefault
}
