package drain

import (
	"cmp"
	"math"
	"slices"
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

// maxAnnotationValueBytes is the maximum number of bytes of an annotation's value in a message. A message then has
// about two lines of text.
const maxAnnotationValueBytes = 200

// FirstAnnotationText returns the name and value of the first of these annotations that a machine has; empty if it has
// none.
func FirstAnnotationText(m *v1alpha1.Machine, keys ...string) string {
	for _, key := range keys {
		if value, set := m.Annotations[key]; set {
			return "annotation " + key + cmp.Or(
				phrase.TextIf(value != "", ": %s", phrase.TruncateText(value, maxAnnotationValueBytes)),
				" is set",
			)
		}
	}
	return ""
}

// HoldReason returns who holds the deletion or the drain of a machine, and why, for example "ann: lunch"; empty if
// there is no hold.
func HoldReason(m *v1alpha1.Machine) string {
	words, held := m.Annotations[v1alpha1.AnnotationHold]
	if !held {
		return ""
	}
	return cmp.Or(phrase.TruncateText(strings.TrimSpace(words), maxAnnotationValueBytes), "no reason given")
}

// ForceReason names the label or annotation of a machine that forces its drain, so that the pods on its node are killed
// at once. ForceReason is empty if the machine has no label or annotation that forces its drain.
func ForceReason(m *v1alpha1.Machine) string {
	label := v1alpha1.LabelForceDrain
	wanted := m.Labels[label] == v1alpha1.ValueTrue
	if m.DeletionTimestamp != nil {
		label = v1alpha1.LabelForceDeletion
		wanted, _ = strconv.ParseBool(m.Labels[label])
	}
	if wanted {
		return "label " + label + " is set"
	}
	return FirstAnnotationText(m, v1alpha1.AnnotationForce)
}

// EscalationFacts returns the facts from which decide chooses the means of a drain. A nil record means that the drain
// has not begun. The parameter grace is the longest grace period of the pods that remained at the last check.
func EscalationFacts(
	m *v1alpha1.Machine,
	record *v1alpha1.MachineDrain,
	node *corev1.Node,
	grace time.Duration,
	now time.Time,
) drain.EscalationFacts {
	l := drain.EscalationFacts{
		Now:     now,
		Timeout: m.Spec.EffectiveDrainTimeout(),
		Retries: m.Spec.EvictRetries(),
		Grace:   grace,
	}
	if IsClusterAPIMachine(m) {
		l.Setting, l.Endless = "nodeDrainTimeoutSeconds", l.Timeout == NoDrainTimeout
	}
	if record != nil {
		l.Started, l.Reached, l.ReachedAt = record.StartedAt.Time, drain.RemovalMeans(
			record.Means,
		), cache.TimeOrZero(
			record.MeansSince,
		)
	}
	l.Force, l.Extended = ForceReason(m), EvictionExtensionEnd(m)
	if node != nil {
		l.Unusable, l.UnusableSince = unusableNodeReason(node)
	}
	if h := m.Status.Health; l.Unusable != "" && h != nil && h.InstanceGoneAt != nil {
		l.Lost, l.UnusableSince = true, cmp.Or(l.UnusableSince, h.InstanceGoneAt.Time)
		l.Unusable = "the provider no longer has instance " + m.Spec.ProviderID + ", and " + l.Unusable
	}
	return l
}

// NoDrainTimeout is the drainTimeout of a machine whose drain has no timeout. Only a Machine of Cluster API can have
// this value.
const NoDrainTimeout = time.Duration(math.MaxInt64)

// IsClusterAPIMachine reports whether m contains the facts about a Machine of Cluster API, in the form of a Machine of
// Millwright.
func IsClusterAPIMachine(m *v1alpha1.Machine) bool {
	return strings.HasPrefix(m.APIVersion, "cluster.x-k8s.io/")
}

// EvictionExtensionEnd returns the time until which an operator extends evictions; zero if the annotation is missing or
// its time does not parse.
func EvictionExtensionEnd(m *v1alpha1.Machine) time.Time {
	until, _, _ := strings.Cut(m.Annotations[v1alpha1.AnnotationExtend], " ")
	return cache.ParseTimeOrZero(until)
}

// OperatorRequestsText returns all labels and annotations of a machine that change its drain, as one text. The text
// changes when one of the labels or annotations changes.
func OperatorRequestsText(m *v1alpha1.Machine) string {
	text := m.Labels[v1alpha1.LabelForceDeletion] + " " + m.Labels[v1alpha1.LabelForceDrain]
	for _, key := range []string{
		v1alpha1.AnnotationForce, v1alpha1.AnnotationSkipDrain, v1alpha1.AnnotationExcludeDraining, v1alpha1.AnnotationHold,
		v1alpha1.AnnotationExtend, v1alpha1.AnnotationRetry,
	} {
		text += "\n" + FirstAnnotationText(m, key)
	}
	return text
}

// readonlyFilesystemCondition is a condition type of node-problem-detector.
const readonlyFilesystemCondition corev1.NodeConditionType = "ReadonlyFilesystem"

// unusableNodeReason returns why the pods of a node may never terminate by themselves, and since when; both results are
// zero for a usable node.
func unusableNodeReason(node *corev1.Node) (why string, since time.Time) {
	for _, c := range node.Status.Conditions {
		bad := ""
		switch {
		case c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue:
			bad = "node " + node.Name + " is not ready"
		case c.Type == readonlyFilesystemCondition && c.Status != corev1.ConditionFalse:
			bad = "the file system of node " + node.Name + " is read-only"
		}
		if at := c.LastTransitionTime.Time; bad != "" && (why == "" || at.Before(since)) {
			why, since = bad, at
		}
	}
	return why, since
}

// QueueEntries returns the drain queue of the target cluster of a namespace: one entry for each machine that is being
// deleted and whose drain has not ended. Namespaces with the same target cluster have one queue.
func QueueEntries(c *cache.Cluster, namespace string) []drain.QueueEntry {
	target := c.Target(namespace)
	var turns []drain.QueueEntry
	for _, m := range cache.AllObjects[*v1alpha1.Machine](c.Informer(cache.MachinesResource)) {
		// the namespace's own machines always count, because the target may be replaced during this loop
		if IsInDrainQueue(m) && (m.Namespace == namespace || c.Target(m.Namespace).HasSameCluster(target)) {
			turns = append(turns, newQueueEntry(c, m))
		}
	}
	return turns
}

// AllQueues returns the drain queues of all target clusters, in any order. A queue has at least one entry.
func AllQueues(c *cache.Cluster) [][]drain.QueueEntry {
	var targets []*cache.Target
	var queues [][]drain.QueueEntry
	for _, m := range cache.AllObjects[*v1alpha1.Machine](c.Informer(cache.MachinesResource)) {
		if !IsInDrainQueue(m) {
			continue
		}
		target := c.Target(m.Namespace)
		i := slices.IndexFunc(targets, target.HasSameCluster)
		if i < 0 {
			i, targets, queues = len(targets), append(targets, target), append(queues, nil)
		}
		queues[i] = append(queues[i], newQueueEntry(c, m))
	}
	return queues
}

// newQueueEntry returns the entry of a machine in the drain queue.
func newQueueEntry(c *cache.Cluster, m *v1alpha1.Machine) drain.QueueEntry {
	t := drain.QueueEntry{
		UID: string(m.UID), Namespace: m.Namespace, Name: m.Name, Group: queueGroupOfMachine(c, m),
		DeletedAt: m.DeletionTimestamp.Time, Priority: DeletionPriority(m), Queued: m.Status.Deletion.Queued,
	}
	if d := m.Status.Deletion.Drain; d != nil {
		t.Started = d.StartedAt.Time
	}
	return t
}

// queueGroupOfMachine returns the UID of the machine's deployment, or of its set if there is no deployment; empty
// without a set. Machines with the same UID share the drain slots of a group.
func queueGroupOfMachine(c *cache.Cluster, m *v1alpha1.Machine) string {
	owner := metav1.GetControllerOf(m)
	if owner == nil {
		return ""
	}
	if set, found := c.MachineSet(m.Namespace + "/" + owner.Name); found {
		if above := metav1.GetControllerOf(set); above != nil {
			return string(above.UID)
		}
	}
	return string(owner.UID)
}

// IsInDrainQueue reports whether a machine is in the drain queue: its deletion is in the stage Drain, its drain has not
// ended, and no hold stops the start of the drain.
func IsInDrainQueue(m *v1alpha1.Machine) bool {
	d := m.Status.Deletion
	if m.DeletionTimestamp == nil || d == nil || d.Stage != v1alpha1.MachineDeletionDrain {
		return false
	}
	if d.Drain == nil {
		return HoldReason(m) == ""
	}
	return d.Drain.Result == ""
}

// DeletionPriority returns the deletion priority of a machine: machines with a lower priority are deleted first. As in
// MCM, the priority is 3 without the annotation, or if the annotation's value is not a number.
func DeletionPriority(m *v1alpha1.Machine) int {
	if p, err := strconv.Atoi(m.Annotations[v1alpha1.AnnotationMachinePriority]); err == nil {
		return p
	}
	return v1alpha1.PriorityDefault
}
