package scale

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// MachineCounts are the numbers of machines in a set's status.
type MachineCounts struct {
	Replicas        int // all members, including members that are being deleted
	Labelled        int // members with all labels of the template
	Ready           int // members with a ready node
	Available       int // members that were ready for minReadySeconds, or have no target cluster
	UpToDate        int // members that match the current template
	PreservedFailed int // failed members that are preserved
	AutoPreserved   int // members that the set preserves because they failed
}

// Condition is one condition of the set. The writer adds lastTransitionTime, which changes only with Status.
type Condition struct {
	Type            string
	Status          ConditionStatus
	Reason, Message string
}

// Status is the desired status of the set.
type Status struct {
	Counts *MachineCounts // nil: no status was written yet
	// Conditions have a fixed order. ReplicaFailure, ReplacementHeld, Frozen, Overshoot, Reconciling and Stalled are
	// present only while they are True.
	Conditions []Condition
	// PeakReplicas is the largest wanted number of machines since the set last had no surplus. Members in excess of
	// PeakReplicas were created by mistake, because the wanted number was never that large.
	PeakReplicas int
	// Overshoot is the number of members in excess of PeakReplicas. Overshoot is only reported. Overshoot does not stop
	// any change, and surplus members are deleted anyway.
	Overshoot int
	// FailedNames has the names of members whose last operation failed, as FirstFailedNames returns them. FailedNames does
	// not include preserved members.
	FailedNames []string
	// ObservedReplicas is the last wanted number for which every creation and deletion has been started. A blocked
	// creation or deletion counts as started, and so does a failed creation or deletion that will be retried.
	ObservedReplicas int
}

// buildStatus returns the Status after decision d. o must be sorted.
func buildStatus(o *planner, d Decision) Status {
	s := Status{Counts: new(countMembers(o)), ObservedReplicas: o.ReportedStatus.ObservedReplicas}
	failed := memberPointers(o.Members, Member.lastOperationFailed)
	s.FailedNames = FirstFailedNames(list.Map(failed, (*Member).name))
	s.PeakReplicas, s.Overshoot = measureOvershoot(o)
	// Changes of ownership, marks and preservation are made before creations and deletions. While a change of
	// ownership, marks or preservation is pending, creations or deletions may still follow. The template is copied to
	// the machines after all creations and deletions.
	pending := d.HasListEntries() && len(d.Sync) == 0 && o.LastWriteFailure.Message == ""
	if !pending {
		s.ObservedReplicas = o.sizeWithoutSubstitutes()
	}
	s.Conditions = []Condition{
		machinesCreatedCondition(o),
		machinesReadyCondition(o),
		machinesUpToDateCondition(o),
		scalingUpCondition(o),
		scalingDownCondition(o),
		remediatingCondition(o),
		deletingCondition(o),
	}
	s.Conditions = append(append(s.Conditions, pausedCondition(o)), optionalConditions(o, s)...)
	for i := range s.Conditions {
		s.Conditions[i].Message = phrase.TruncateMessage(s.Conditions[i].Message)
		if beyond := UnnamedFailuresText(
			len(failed),
		); beyond != "" &&
			s.Conditions[i].Type == vocabulary.ConditionMachinesReady {
			s.Conditions[i].Message = phrase.TruncateMessage(beyond + "\n" + s.Conditions[i].Message)
		}
	}
	return s
}

// maxFailedNames is how many failed machines a status names. Source: 50 names with messages of 200 bytes take 20 KiB of
// a status. An object may have 1.5 MiB in etcd, and the deployment's status repeats the names of the failed machines.
const maxFailedNames = 50

// FirstFailedNames returns the first maxFailedNames names in alphabetical order.
func FirstFailedNames(all []string) []string {
	all = slices.Sorted(slices.Values(all))
	return all[:min(len(all), maxFailedNames)]
}

// UnnamedFailuresText returns a clause with the number of failed machines if the status names only some of them, and an
// empty string otherwise.
func UnnamedFailuresText(n int) string {
	return phrase.TextIf(
		n > maxFailedNames,
		"%s whose last operation failed; failedMachines names %d",
		machineCountText(n),
		maxFailedNames,
	)
}

// equals reports whether a status equals the wanted status.
func (s Status) equals(want Status) bool {
	return s.Counts != nil && *s.Counts == *want.Counts && s.PeakReplicas == want.PeakReplicas &&
		s.Overshoot == want.Overshoot &&
		s.ObservedReplicas == want.ObservedReplicas &&
		slices.Equal(s.FailedNames, want.FailedNames) &&
		slices.Equal(s.Conditions, want.Conditions)
}

// countMembers counts the members. A member that is being updated in place or deleted is neither ready nor available
// nor up to date. In Cluster API, however, a member that is being deleted is up to date if it matches the template.
func countMembers(o *planner) MachineCounts {
	serving := func(holds func(Member) bool) int {
		return list.CountWhere(o.Members, func(m Member) bool { return !m.Deleting && !m.Updating && holds(m) })
	}
	c := MachineCounts{
		Replicas:  len(o.Members),
		Ready:     serving(func(m Member) bool { return m.Ready == ConditionTrue }),
		Available: serving(func(m Member) bool { return m.IsAvailable(o.Now, o.MinReadyDuration) }),
		UpToDate:  serving(func(m Member) bool { return m.UpToDate == ConditionTrue }) + o.deletingUpToDateCount(),
	}
	c.addMCMCounts(o.Members)
	return c
}

// IsAvailable reports whether a member has been ready for at least the duration after.
func (m Member) IsAvailable(now time.Time, after time.Duration) bool {
	return m.servesWithoutNode() || m.Ready == ConditionTrue && !now.Before(m.ReadySince.Add(after))
}

// measureOvershoot returns the new PeakReplicas, and the number of members in excess of it. A smaller size reduces
// PeakReplicas only when the surplus is gone, so that an ordinary scale-down is not an overshoot.
func measureOvershoot(o *planner) (peak, beyond int) {
	if o.Deleting {
		return o.ReportedStatus.PeakReplicas, 0
	}
	active := list.CountWhere(o.Members, func(m Member) bool { return !m.Deleting && !m.MovedForUpdate })
	if active <= o.Replicas {
		return o.Replicas, 0
	}
	peak = max(o.ReportedStatus.PeakReplicas, o.Replicas)
	return peak, max(active-peak, 0)
}

// optionalConditions returns the conditions that are present only while they are True.
func optionalConditions(o *planner, s Status) []Condition {
	failure := replicaFailureCondition(o)
	same := func(was Condition) bool { return was.Type == failure.Type && was.Reason == failure.Reason }
	failure.Message = cmp.Or(list.FindFirst(o.ReportedStatus.Conditions, same), failure).Message
	const frozen = "No machine is created while the label freeze is True"
	beyond := fmt.Sprintf(
		"%s more than the %d wanted at most; the surplus is deleted",
		machineCountText(s.Overshoot),
		s.PeakReplicas,
	)
	return list.Filter([]Condition{
		failure,
		replacementHeldCondition(o),
		list.ValueIf(
			o.isFrozen(),
			Condition{vocabulary.ConditionFrozen, ConditionTrue, vocabulary.ReasonFreezeLabel, frozen},
		),
		list.ValueIf(
			s.Overshoot > 0,
			Condition{vocabulary.ConditionOvershoot, ConditionTrue, vocabulary.ReasonOverShootingReplicaCount, beyond},
		),
		o.reconcileCondition(*s.Counts),
	}, func(c Condition) bool { return c.Reason != "" })
}

// replicaFailureCondition reports that machines could not be created or deleted, or that the provider creates no
// instance. An empty Reason means that there is no failure. While the reason is the same, the message does not change,
// because a failure of another machine is not a new failure.
func replicaFailureCondition(o *planner) Condition {
	c := Condition{Type: vocabulary.ConditionReplicaFailure, Status: ConditionTrue}
	if f := o.LastWriteFailure; f.Message != "" {
		c.Reason, c.Message = vocabulary.ReasonFailedCreate, f.Message
		if f.Deleting {
			c.Reason = vocabulary.ReasonFailedDelete
		}
		return c
	}
	why := creationProblemCondition(o)
	c.Reason, c.Message = why.Reason, why.Message
	return c
}
