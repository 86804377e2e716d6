package machine

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/explain"
	"millwright/decide/phrase"
	"millwright/observe/cache"
	"millwright/observe/class"
	"millwright/observe/drain"
)

// ExplanationFacts returns the facts that explain why a machine waits. The parameter of is the machine's class; nil if
// the class does not exist.
func ExplanationFacts(m *v1alpha1.Machine, of *v1alpha1.MachineClass, now time.Time) explain.Machine {
	o := m.Status.CurrentOperation
	if o == nil {
		return explain.Machine{}
	}
	f := explain.Machine{
		Namespace: m.Namespace, Name: m.Name, NodeName: cache.NodeNameOfMachine(m), ClassName: m.Spec.Class.Name,
		ReplacedBySet: len(m.OwnerReferences) > 0, Deleting: m.DeletionTimestamp != nil,
		Step: o.Step, Cause: o.Cause, BlockedBy: o.BlockedBy, Since: o.Since.Time, Now: now,
	}
	if stopped := m.Status.CreationStopped; stopped != nil {
		f.CreationStoppedAt = cache.TimeOrZero(stopped.Since)
	}
	if of != nil {
		f.UnservedReason = class.NoWorkerMessage(of)
		if ref := cmp.Or(of.CredentialsSecretRef, of.SecretRef); ref != nil {
			f.CredentialsSecret = ref.Namespace + "/" + ref.Name
		}
		for _, key := range class.SecretKeysOfOtherNamespaces(of) {
			f.OtherNamespaceSecrets = append(f.OtherNamespaceSecrets, key.String())
		}
	}
	deadlines := drain.DeadlineFacts(m, now)
	if f.Deadline = deadlines.NextDeadline(); f.Deadline.IsZero() ||
		drain.IsBlockedOnlyByVolumes(o.BlockedBy) && o.Deadline != nil {
		f.Deadline = cache.TimeOrZero(o.Deadline)
	}
	if f.Step != vocabulary.StepHeldByOperator && f.Step != vocabulary.StepQueuedForDrain {
		f.Means, f.NextMeans = drain.CurrentRemovalMeans(m), drain.NextRemovalMeans(m, deadlines)
	}
	for _, keys := range [][]string{hookKeys(m, v1alpha1.AnnotationPreDrainHook), hookKeys(m, v1alpha1.AnnotationPreTerminateHook)} {
		for _, key := range slices.Sorted(slices.Values(keys)) {
			if f.HookKey == "" && slices.Contains(o.BlockedBy, key) {
				f.HookKey = key
			}
		}
	}
	return f
}

// StatusShowsBlockers reports whether a machine's status names the machine's present blockers. The blockers can change
// without an event of the machine: time passes, or the machine's class changes.
func StatusShowsBlockers(m *v1alpha1.Machine, w explain.WaitState) bool {
	o := m.Status.CurrentOperation
	return o == nil || len(o.BlockedBy)+len(w.Blockers) == 0 || slices.Equal(o.BlockedBy, w.Blockers)
}

// maxWaitBytes is the maximum length of the cause of one wait in a status, in bytes. Source: the length of three
// sentences about blockers of a drain.
const maxWaitBytes = 600

// StatusWaits converts waits to their form in a status. A wait without a cause is left out.
func StatusWaits(waits []explain.GroupedWait) (converted []v1alpha1.Wait) {
	for _, w := range waits {
		if w.Cause == "" {
			continue
		}
		c := v1alpha1.Wait{
			BlockedBy: w.Blockers, Cause: phrase.TruncateText(w.Cause, maxWaitBytes), Machines: int32(w.MachineCount),
			Next: w.NextEventText(), Command: w.Command,
		}
		if !w.Since.IsZero() {
			c.Since = metav1.NewTime(w.Since).Rfc3339Copy()
		}
		if !w.NextEventTime.IsZero() {
			c.NextAt = new(metav1.NewTime(w.NextEventTime).Rfc3339Copy())
		}
		converted = append(converted, c)
	}
	return converted
}
