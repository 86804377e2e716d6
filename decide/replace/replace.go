// Package replace decides which due machines of a deployment may be replaced now, and which earlier replacements are
// complete. The package does no I/O and imports no API type. The annotation replacement-granted makes the machine's
// workflow set the phase Failed, and then the machine's set replaces the machine.
package replace

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"millwright/decide/health"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
	"millwright/decide/scale"
)

// MaxBatchSize is the largest number of machines that one decision grants and annotates. Source of MaxBatchSize: 50 new
// grants with long names and all sentences stay below 16 KiB, the limit of a decision in a history.
const MaxBatchSize = 50

// Machine is one machine of any set of the deployment.
type Machine struct {
	Name, UID string
	Domain    string    // failure domain; the empty name is also a domain
	Due       bool      // the condition ReplacementDue is True
	DueSince  time.Time // time since which the machine is due; zero: longer than all other machines
	Reason    string    // why the machine is due
	Granted   bool      // the machine has the annotation replacement-granted
	Preserved bool      // the machine is preserved: it is not replaced, and uses no budget
	Deleting  bool
	Joined    bool // the node has joined; without a target cluster: the machine is Available; false during creation
	Failed    bool // the machine is in phase Failed
	// a person deletes the machine's Node, so the machine is replaced regardless of the budget and the breaker
	BypassesBudget bool
	CreatedAt      time.Time
	Generations    scale.GenerationRecord // recorded generations of failed machines of the machine's set
}

// ReplacementGrant is one use of the replacement budget, as recorded in the deployment's status.
type ReplacementGrant struct {
	MachineUID  string // UID of the machine to replace
	MachineName string
	Domain      string // domain of the machine at the time of the grant
	Reason      string
	GrantedAt   time.Time // time of the grant in whole seconds, like all times of a status
}

// NodeCounts holds the numbers of nodes in the whole target cluster, not of one deployment.
type NodeCounts struct {
	// UnknownStatesReason is why the states of the nodes are not known, as a sentence without a period; empty: the states
	// are known.
	UnknownStatesReason string

	Joined int // number of machines that have joined
	Dead   int // number of joined machines whose node is missing, unhealthy or being deleted
	Lost   int // number of dead machines whose instance is gone, as the provider reported
	// RecoveryTimes has the time of the last recovery of each node that is not dead, in any order. A node that was never
	// unhealthy has no entry.
	RecoveryTimes  []time.Time
	UncheckedNodes []Node // nodes that count in Joined, and are not yet in Dead or RecoveryTimes
}

// Node is the node of one machine.
type Node struct {
	Conditions              []health.Condition
	UnhealthyConditionTypes []string  // condition types that make the node unhealthy
	Deleting                bool      // the Node is being deleted
	RecoveredAt             time.Time // time of the last recovery if the node is healthy; zero: the node was never unhealthy
}

// WithUncheckedNodesCounted adds the nodes of UncheckedNodes to Dead and RecoveryTimes.
func (n NodeCounts) WithUncheckedNodesCounted() NodeCounts {
	n.RecoveryTimes = slices.Clone(n.RecoveryTimes)
	for _, node := range n.UncheckedNodes {
		if healthy, _ := health.DecideNodeHealth(node.Conditions, node.UnhealthyConditionTypes); !healthy || node.Deleting {
			n.Dead++
		} else if !node.RecoveredAt.IsZero() {
			n.RecoveryTimes = append(n.RecoveryTimes, node.RecoveredAt)
		}
	}
	n.UncheckedNodes = nil
	return n
}

// Facts holds the facts that the deployment's activity read at one moment.
type Facts struct {
	Machines []Machine          // machines of the deployment, in any order
	Grants   []ReplacementGrant // recorded grants of the deployment, in any order
	// number of wanted machines that do not exist yet; a grant whose machine is gone waits for one of the missing
	// machines
	MissingMachineCount int
	// largest number of replacements in progress in one failure domain; a percentage is of the domain's machines that
	// are not being deleted, rounded up
	Budget     rollout.IntOrPercent
	Retries    scale.RetryPolicy // when the sets stop replacing machines
	NodeCounts NodeCounts
	Now        time.Time // present time, which is the time of new grants
}

// Decision says which grants to record, and then which machines to annotate. A grant is recorded before its annotation
// is written, so that each annotation has a record.
type Decision struct {
	Grants []ReplacementGrant // all grants to record, oldest first: replacements in progress and new grants
	// UIDs from Grants of the machines to annotate now; the next decision repeats a UID whose annotation was not
	// written
	UIDsToAnnotate []string
	GrantsChanged  bool   // Grants differs from the recorded grants
	HoldReason     string // why due machines wait; empty: no due machine waits
	// RecheckTime is when to call Decide again, because due machines may stop waiting then; zero if this time is unknown.
	// RecheckTime is only set with HoldReason.
	RecheckTime time.Time
	Why         string // one sentence about the granted, ended and held replacements
}

// Decide ends complete grants, and grants the rest of each domain's budget to the machines that have been due the
// longest. A grant has no timeout. A machine whose set has made its last retry gets no grant. While the breaker is open,
// Decide grants and annotates no machine. Machines with BypassesBudget always get a grant. The order of the facts does
// not matter.
func Decide(o Facts) Decision {
	o.Machines, o.Grants = list.SortedCopyOfLargeItems(
		o.Machines,
		compareByDueTime,
	), list.SortedCopy(
		o.Grants,
		compareGrantsByAge,
	)
	r := reviewGrants(o)
	granted := machineUIDs(r.remainingGrants)
	waiting := list.Filter(
		o.Machines,
		func(m Machine) bool { return m.Due && !m.Preserved && !m.Deleting && !granted[m.UID] },
	)
	stopped := list.Filter(waiting, o.isHeldByRetries)
	waiting = list.Filter(waiting, func(m Machine) bool { return !o.isHeldByRetries(m) })
	d := Decision{Grants: r.remainingGrants}
	steps := append(d.grantReplacementsRegardlessOfBudget(o, &r, waiting), r.stepSentences...)
	granted = machineUIDs(d.Grants)
	waiting = list.Filter(waiting, func(m Machine) bool { return !granted[m.UID] })
	if open, why, until := BreakerState(o.NodeCounts, o.Now); open {
		if held := len(waiting) + len(r.unannotatedUIDs); held > 0 {
			d.HoldReason, d.RecheckTime = dueMachinesSentence(held)+"; "+why, until
		}
	} else {
		d.UIDsToAnnotate = append(
			d.UIDsToAnnotate,
			r.unannotatedUIDs[:min(len(r.unannotatedUIDs), MaxBatchSize-len(d.UIDsToAnnotate))]...)
		steps = append(d.grantReplacementsWithinBudget(o, r, waiting), steps...)
	}
	if len(stopped) > 0 {
		held := dueMachinesSentence(len(stopped)) + "; " + o.Retries.HoldText(stopped[0].Generations)
		d.HoldReason = strings.Join(phrase.NonEmptyTexts(d.HoldReason, held), "; ")
	}
	slices.SortFunc(d.Grants, compareGrantsByAge)
	d.GrantsChanged = !slices.Equal(d.Grants, o.Grants) // all remaining grants are unchanged copies of the recorded grants
	sentences := phrase.NonEmptyTexts(
		phrase.JoinNames(steps, maxStepSentences, "; "),
		phrase.TextIf(d.HoldReason != "", "hold: %s", d.HoldReason),
	)
	d.Why = cmp.Or(strings.Join(sentences, "; "), replacementsSentence(d.Grants))
	return d
}

// isHeldByRetries reports whether a machine gets no grant, because its set replaces no machine after the last retry.
func (o Facts) isHeldByRetries(m Machine) bool {
	return !m.BypassesBudget && o.Retries.HoldsMachine(m.Generations, m.Joined, m.CreatedAt)
}

// replacementsSentence returns a sentence about the machines that are being replaced.
func replacementsSentence(grants []ReplacementGrant) string {
	names := list.Map(grants, func(g ReplacementGrant) string { return g.MachineName })
	return cmp.Or(
		phrase.TextIf(
			len(names) > 0,
			"%s %s being replaced: %s",
			phrase.CountText(len(names), "machine"),
			phrase.SingularOrPlural(len(names), "is", "are"),
			phrase.JoinNames(names, maxStepSentences, ", "),
		),
		"no machine is due, and none is being replaced",
	)
}

func compareByDueTime(a, b *Machine) int {
	return cmp.Or(a.DueSince.Compare(b.DueSince), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

func compareGrantsByAge(a, b ReplacementGrant) int {
	return cmp.Or(
		a.GrantedAt.Compare(b.GrantedAt),
		cmp.Compare(a.MachineName, b.MachineName),
		cmp.Compare(a.MachineUID, b.MachineUID),
	)
}

// machineUIDs returns the UIDs of the machines of grants.
func machineUIDs(grants []ReplacementGrant) map[string]bool {
	return list.KeySet(grants, func(g ReplacementGrant) string { return g.MachineUID })
}

func newGrant(m Machine, now time.Time) ReplacementGrant {
	return ReplacementGrant{
		MachineUID:  m.UID,
		MachineName: m.Name,
		Domain:      m.Domain,
		Reason:      m.Reason,
		GrantedAt:   now.Truncate(time.Second),
	}
}
