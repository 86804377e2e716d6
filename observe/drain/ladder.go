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

// maxReason limits how many bytes of an annotation's value a message repeats. Source: a sentence of two lines.
const maxReason = 200

// AnnotationReason returns the name and value of the first of these annotations that a machine has; empty if it has
// none.
func AnnotationReason(m *v1alpha1.Machine, keys ...string) string {
	for _, key := range keys {
		if value, set := m.Annotations[key]; set {
			return "annotation " + key + cmp.Or(phrase.If(value != "", ": %s", phrase.Cut(value, maxReason)), " is set")
		}
	}
	return ""
}

// Held returns who holds the deletion or the drain of a machine, and why, for example "ann: lunch"; empty if there is
// no hold.
func Held(m *v1alpha1.Machine) string {
	words, held := m.Annotations[v1alpha1.AnnotationHold]
	if !held {
		return ""
	}
	return cmp.Or(phrase.Cut(strings.TrimSpace(words), maxReason), "no reason given")
}

// Forced returns why the pods of a machine's node are killed at once: the machine has a label or an annotation that
// forces the drain. Forced is empty without such a label or annotation.
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

// Ladder returns the facts from which decide chooses the means of a drain. A nil record means that the drain has not
// begun. The parameter grace is the longest grace period of the pods that remained at the last check.
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
	l.Unusable, l.UnusableSince = unusableReason(node)
	if h := m.Status.Health; l.Unusable != "" && h != nil && h.InstanceGoneAt != nil {
		l.Lost, l.UnusableSince = true, cmp.Or(l.UnusableSince, h.InstanceGoneAt.Time)
		l.Unusable = "the provider no longer has instance " + m.Spec.ProviderID + ", and " + l.Unusable
	}
	return l
}

// Forever is the drainTimeout of a machine whose drain has no timeout. Only a Machine of Cluster API can have this
// value.
const Forever = time.Duration(math.MaxInt64)

// OfClusterAPI reports whether m holds the facts about a Machine of Cluster API, in the form of a Machine of
// Millwright.
func OfClusterAPI(m *v1alpha1.Machine) bool {
	return strings.HasPrefix(m.APIVersion, "cluster.x-k8s.io/")
}

// Extended returns the time until which an operator extends evictions; zero if the annotation is missing or its time
// does not parse.
func Extended(m *v1alpha1.Machine) time.Time {
	until, _, _ := strings.Cut(m.Annotations[v1alpha1.AnnotationExtend], " ")
	return cache.TimeIn(until)
}

// Requests returns all labels and annotations of a machine that change its drain, as one text. Two texts differ if the
// requests differ.
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

// unusableReason returns why the pods of a node may never terminate by themselves, and since when; both results are
// zero for a usable node.
func unusableReason(node *corev1.Node) (why string, since time.Time) {
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

// Turns returns the facts about the order of drains: one entry for each machine that is being deleted and whose drain
// has not ended.
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

// groupOf returns the UID of the object whose machines share a group's drain slots: the machine's deployment, or its
// set if the set has no deployment; empty for a machine without a set.
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

// InDrain reports whether a machine takes part in the order of drains: its deletion is in the stage Drain, the drain
// has not ended, and no hold stops the drain from beginning.
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

// Priority returns the deletion priority of a machine: machines with a lower priority go first. As in MCM, the priority
// is 3 without the annotation, or if the annotation's value is not a number.
func Priority(m *v1alpha1.Machine) int {
	if p, err := strconv.Atoi(m.Annotations[v1alpha1.AnnotationMachinePriority]); err == nil {
		return p
	}
	return v1alpha1.PriorityDefault
}
