// Package scale decides the next changes of a set towards the wanted number of machines, and the set's status. The
// changes release, adopt, preserve, replace, update, move, delete and create machines. The package does no I/O and
// imports no API types.
package scale

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"millwright/decide/attention"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// MaxBatchSize is the largest number of machines in one decision. MaxBatchSize bounds the size of a decision in
// histories. Source: 50 targets of about 180 bytes stay below 16 KiB.
const MaxBatchSize = 50

// MaxCreations is the largest number of machines that one decision creates. Source: 1000 names of 63 characters are 64
// KiB, a quarter of Temporal's warning limit, and a set reaches this size in one decision (ADR 0089).
const MaxCreations = 1000

// MachineTarget identifies a machine by the version that was read.
type MachineTarget struct {
	Name, UID string
	Version   string // resourceVersion as read, as the precondition of the write
	Why       string // reason as one sentence, for events and the history
}

// Decision contains the next changes of a set. At most one list has entries. Create has at most MaxCreations entries,
// and any other list at most MaxBatchSize. All lists are empty if there is no change to execute now.
type Decision struct {
	Release   []MachineTarget // remove Millwright's controller reference
	Adopt     []MachineTarget // set Millwright's controller reference, after a live read of the set
	Keep      []MachineTarget // request the preservation of failed machines
	Unmark    []MachineTarget // remove the health check's mark, because the machines are healthy again
	Remediate []MachineTarget // delete machines that are marked unhealthy
	Delete    []MachineTarget
	Update    []MachineTarget // begin the machines' in-place updates
	Move      []MachineTarget // move machines to the set MoveTo, which updates them in place
	Create    []string        // names of machines to create
	Sync      []MachineTarget // copy the parts of the template that can change in place

	// Generations is the record to write into the status before the lists are executed; nil: the record does not
	// change.
	Generations *GenerationRecord
	Hold        string    // which change waits, and why; empty: no change waits
	Done        bool      // the set is being deleted and owns no machine
	Recheck     time.Time // time of the next decision if no object changes; zero: never
	Why         string    // one sentence with the next action, or with the reason for the wait
}

// HasActions reports whether the decision contains a change to execute now.
func (d Decision) HasActions() bool { return d.HasListEntries() || d.Generations != nil }

// RecordOnly returns the decision without its lists: only the record of failed generations is written.
func (d Decision) RecordOnly() Decision {
	return Decision{
		Generations: d.Generations,
		Hold:        d.Hold,
		Recheck:     d.Recheck,
		Why:         "record that new machines failed; then " + d.Why,
	}
}

// HasListEntries reports whether one of the lists has entries.
func (d Decision) HasListEntries() bool {
	lists := len(d.Release) + len(d.Adopt) + len(d.Keep) + len(d.Unmark) + len(d.Remediate) + len(d.Delete) +
		len(d.Update) + len(d.Move) + len(d.Create) + len(d.Sync)
	return lists > 0
}

// PlanResult is the result of one evaluation of a set.
type PlanResult struct {
	Decision                Decision
	Status                  Status
	NeedsStatusWrite        bool               // the status differs from Status, or observedGeneration is old, or Thaw is true
	FreezeEnded             bool               // the freeze has ended: the label freeze and the annotation unfreeze must be removed
	PendingWork             attention.Decision // the most urgent pending work
	SettledAfterStatusWrite bool               // when Status is written, no other work is pending
	PostponedMembers        []MachineTarget    // marked members that are not deleted yet, each with the reason
	SetIsOutdated           bool               // the set is an old set, so Postponed members remain until the rollout removes them
}

// PlanSet plans one step towards the wanted number of machines. The order is: release members that do not match, adopt
// machines that match, preserve failed machines, unmark healthy machines, delete failed and unhealthy machines, begin
// in-place updates, delete machines that the autoscaler chose, delete or move surplus machines, create machines, copy
// the template to the machines. After a refused creation or deletion, the template is copied before machines are
// created. Machines that are being deleted do not count as existing. A set that is being deleted deletes all its
// machines, or none with --cascade=orphan. A paused set does nothing. The order of the facts does not change the plan.
func PlanSet(o Facts) PlanResult {
	return newPlanner(o).makePlan()
}

func (o *planner) makePlan() PlanResult {
	plan := PlanResult{Decision: decide(o)}
	plan.Status = buildStatus(o, plan.Decision)
	plan.FreezeEnded = o.hasFreezeEnded()
	plan.NeedsStatusWrite = plan.FreezeEnded || o.Generation != o.ObservedGeneration ||
		!o.ReportedStatus.equals(plan.Status)
	plan.PendingWork = o.pendingWork(plan.Decision, plan.NeedsStatusWrite)
	o.ObservedGeneration = o.Generation
	plan.SettledAfterStatusWrite = o.pendingWork(plan.Decision, false).NeedsNothing()
	plan.PostponedMembers, plan.SetIsOutdated = postponedTargets(o), o.Remediation.SetIsOutdated
	return plan
}

// postponedTargets returns the marked members that are not deleted yet, each with the reason.
func postponedTargets(o *planner) (members []MachineTarget) {
	at := make(map[string]int, len(o.liveMembers))
	for i, m := range o.liveMembers {
		at[m.Name] = i
	}
	for _, s := range o.waitingMarkedMembers {
		members = append(members, o.liveMembers[at[s.name]].asTarget(s.message))
	}
	return members
}

// Decide returns the Decision of PlanSet.
func Decide(o Facts) Decision { return decide(newPlanner(o)) }

// pendingWork returns the set's pending work.
func (o *planner) pendingWork(d Decision, unreported bool) attention.Decision {
	there := fmt.Sprintf("%s wanted, %d there", machineCountText(o.Replicas), len(o.Members))
	left := cmp.Or(
		attention.DecisionIf(d.HasActions(), attention.NeedScaling, "%s", d.Why),
		attention.Decision{
			Why: cmp.Or(o.ongoingChangesText(), there),
		}.PrecedingDecisionIf(
			!d.Recheck.IsZero(),
			attention.NeedScaling,
			"%s; it waits for the time to pass",
			there,
		),
		attention.DecisionIf(stoppedCreationText(o) != "", attention.NeedScaling, "%s", d.Hold),
		attention.Decision{Why: there},
	)
	return cmp.Or(
		attention.DecisionIf(o.Deleting && !o.HasFinalizer, attention.NeedNothing, "released: the API server removes it"),
		attention.DecisionIf(o.Orphaning, attention.NeedDeletion, "%s", d.Why),
		attention.DecisionIf(
			o.Deleting,
			attention.NeedDeletion,
			"deletion was asked for; %s left",
			machineCountText(len(o.Members)),
		),
		attention.DecisionIf(!o.HasFinalizer, attention.NeedScaling, "new: our finalizer is missing"),
		left.PrecedingDecisionIf(o.Generation != o.ObservedGeneration, attention.NeedScaling,
			"generation %d was not seen yet (last seen: %d)", o.Generation, o.ObservedGeneration),
		left.PrecedingDecisionIf(unreported && !d.HasActions(), attention.NeedScaling, "status is out of date"),
		left,
	)
}

// maxNamesPerSentence is how many machines a sentence names. Source: the length of a terminal line.
const maxNamesPerSentence = 3

// ongoingChangesText names the members that are being deleted and the members that are not available yet, or returns an
// empty string.
func (o *planner) ongoingChangesText() string {
	names := func(holds func(Member) bool) []string {
		return list.Map(memberPointers(o.Members, holds), (*Member).name)
	}
	says := func(names []string, one, several string) string {
		return phrase.TextIf(
			len(names) > 0,
			"%s %s: %s",
			machineCountText(len(names)),
			phrase.SingularOrPlural(len(names), one, several),
			phrase.JoinNames(names, maxNamesPerSentence, ", "),
		)
	}
	return strings.Join(phrase.NonEmptyTexts(
		says(names(func(m Member) bool { return m.Deleting }), "is being deleted", "are being deleted"),
		says(
			names(func(m Member) bool { return !m.Deleting && !m.IsAvailable(o.Now, o.MinReadyDuration) }),
			"is not available yet",
			"are not available yet",
		),
	), "; ")
}

func decide(o *planner) Decision {
	d := nextDecision(o)
	d.Recheck = nextRecheckTime(o)
	if d.Generations == nil && mustClearGenerationRecord(o) {
		// the record is cleared now, because the machine that joined may be deleted before the next decision
		d.Generations = &GenerationRecord{}
	}
	return d
}

func nextDecision(o *planner) Decision {
	active := o.liveMembers
	switch {
	case len(o.PauseSentences) > 0:
		return holdDecision(o.PauseSentences[0])
	case o.Orphaning:
		return Decision{Why: o.orphaningSentence()}
	case o.InvalidReason != "" && !o.Deleting:
		return holdDecision(o.InvalidReason)
	}
	if o.Deleting {
		return tearDownSet(o, active)
	}
	for _, next := range []func(*planner, []Member) Decision{
		releaseMembers, adoptOrphans, preserveFailedMembers, unmarkHealthyMembers, removeFailedMembers, remediateMarkedMembers, beginUpdates, removeChosenMembers, removeSurplus, syncAfterRefusedWrite, createMachines,
	} {
		if d := next(o, active); d.HasListEntries() {
			return d
		}
	}
	d := syncTemplate(o)
	d.Hold = waitReasonsText(o)
	d.Why = cmp.Or(d.Why, d.Hold, machineCountText(o.Replicas)+" wanted and there")
	return d
}

func holdDecision(why string) Decision { return Decision{Hold: why, Why: why} }

// orphaningSentence returns the reason for the wait of a set that is being deleted with --cascade=orphan.
func (o *planner) orphaningSentence() string {
	return "deleted with --cascade=orphan: waits until the garbage collector has removed the owner reference of " +
		machineCountText(len(o.Members)) + " and the finalizer orphan"
}

// releaseMembers removes the controller reference from members whose labels do not match. A member belongs to the set
// until its reference is removed, so that the set does not create a replacement while it owns the member. Members that
// are being deleted are not released. If the selector is invalid or empty, no member is released.
func releaseMembers(o *planner, active []Member) Decision {
	if o.SelectsAll {
		return Decision{}
	}
	const why = "the labels do not match the selector"
	d := Decision{Release: firstTargets(list.Filter(active, func(m Member) bool { return !m.MatchesSelector }), why)}
	d.Why = fmt.Sprintf("release %s: %s", machineCountText(len(d.Release)), why)
	return d
}

// adoptOrphans sets the controller reference of matching machines without a controller, so that the set does not create
// more machines than needed.
func adoptOrphans(o *planner, _ []Member) Decision {
	const why = "the labels match the selector, and there is no owner"
	orphans := firstBatch(
		list.Filter(o.Orphans, func(m Orphan) bool { return m.MatchesSelector && !m.MayNotBeAdopted && !o.SelectsAll }),
	)
	return Decision{
		Adopt: list.Map(orphans, func(m Orphan) MachineTarget { return MachineTarget{m.Name, m.UID, m.Version, why} }),
		Why:   fmt.Sprintf("adopt %s: %s", machineCountText(len(orphans)), why),
	}
}

// unmarkHealthyMembers removes the mark from members that are healthy again.
func unmarkHealthyMembers(_ *planner, active []Member) Decision {
	healthy := list.Filter(active, func(m Member) bool { return m.Marked && m.Healthy == ConditionTrue })
	d := Decision{Unmark: firstTargets(healthy, "healthy again")}
	d.Why = fmt.Sprintf("unmark %s: healthy again", machineCountText(len(d.Unmark)))
	return d
}

// tearDownSet deletes all machines of a set that is being deleted.
func tearDownSet(o *planner, active []Member) Decision {
	if len(active) > 0 {
		return Decision{
			Delete: firstTargets(
				list.SortedCopyOfLargeItems(active, deletionComparator(o.DeletionOrder)),
				"the set is being deleted",
			),
			Why: fmt.Sprintf("delete all %s: the set is being deleted", machineCountText(len(active))),
		}
	}
	d := syncTemplate(o) // an operator may have shortened a timeout to speed up the deletion
	d.Done = len(o.Members) == 0
	d.Why = cmp.Or(d.Why, fmt.Sprintf("the set is being deleted, %s left", machineCountText(len(o.Members))))
	return d
}

// syncAfterRefusedWrite is syncTemplate, if the API server refused the last creation or deletion. Otherwise a creation
// that is refused again and again would keep a shorter drainTimeout from the machines. If a change of machines was
// refused, the creation comes first, so that neither waits for the other.
func syncAfterRefusedWrite(o *planner, _ []Member) Decision {
	if o.LastWriteFailure.Message == "" || o.LastWriteFailure.Changing {
		return Decision{}
	}
	return syncTemplate(o)
}

// syncTemplate copies the parts of the template that can be changed in place to the machines. Without a refused
// creation or deletion, syncTemplate runs last, so that a failed write of a machine does not delay other changes.
func syncTemplate(o *planner) Decision {
	stale := firstBatch(memberPointers(o.Members, func(m Member) bool { return m.Drift != "" }))
	return Decision{
		Sync: list.Map(stale, func(m *Member) MachineTarget { return m.asTarget(m.Drift) }),
		Why:  phrase.TextIf(len(stale) > 0, "copy the template to %s in place", machineCountText(len(stale))),
	}
}

func firstBatch[T any](all []T) []T { return all[:min(len(all), MaxBatchSize)] }

// firstTargets returns the first MaxBatchSize members as MachineTargets.
func firstTargets(members []Member, why string) []MachineTarget {
	return list.Map(firstBatch(members), func(m Member) MachineTarget { return m.asTarget(why) })
}

func machineCountText(n int) string { return phrase.CountText(n, "machine") }
