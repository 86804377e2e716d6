// Package replace decides which due machines of a deployment may be replaced now, and which earlier replacements are
// complete. The package does no I/O and imports no API type. The workflow of a machine with the annotation
// replacement-granted makes the machine Failed; then the machine's set replaces the machine.
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
)

// MaxBatch is the largest number of machines that one decision grants and annotates. Source of MaxBatch: 50 new
// grants with long names and all sentences stay below 16 KiB, the limit of a decision in a history.
const MaxBatch = 50

// Machine is one machine of any set of the deployment.
type Machine struct {
	Name, UID string
	Domain    string    // failure domain; the empty name is a domain, too
	Due       bool      // the condition ReplacementDue is True
	DueSince  time.Time // since when the machine is due; zero: before all other machines
	Reason    string    // why the machine is due
	Granted   bool      // the machine has the annotation replacement-granted
	Preserved bool      // the machine is not replaced, and uses no budget
	Deleting  bool
	Joined    bool // the node has joined, or the machine is Available without a target cluster; false during creation
	Failed    bool // the machine is in phase Failed
	Free      bool // a person deletes the machine's Node: the machine is replaced without budget and breaker
	Created   time.Time
}

// Grant is one use of the replacement budget, as recorded in the deployment's status.
type Grant struct {
	UID    string // UID of the machine to replace
	Name   string
	Domain string // domain of the machine at the time of the grant
	Reason string
	At     time.Time // time of the grant in whole seconds, like all times of a status
}

// Nodes holds the numbers of nodes in the whole target cluster, not of one deployment.
type Nodes struct {
	Joined int // number of machines that have joined
	Dead   int // number of joined machines whose node is missing, unhealthy or being deleted
	Lost   int // number of machines in Dead whose instance is gone, as the provider reported
	// Recovered has the time of the last recovery of each node that is not dead, in any order. A node that was never
	// unhealthy has no entry.
	Recovered []time.Time
	Unjudged  []Node // nodes of Joined that are not yet in Dead or Recovered
}

// Node is the node of one machine.
type Node struct {
	Conditions []health.Condition
	Bad        []string  // condition types that make the node unhealthy
	Deleting   bool      // the Node is being deleted
	Recovered  time.Time // time of the last recovery if the node is healthy; zero: the node was never unhealthy
}

// Judged adds the unjudged nodes to Dead and Recovered.
func (n Nodes) Judged() Nodes {
	n.Recovered = slices.Clone(n.Recovered)
	for _, node := range n.Unjudged {
		if healthy, _ := health.DecideNode(node.Conditions, node.Bad); !healthy || node.Deleting {
			n.Dead++
		} else if !node.Recovered.IsZero() {
			n.Recovered = append(n.Recovered, node.Recovered)
		}
	}
	n.Unjudged = nil
	return n
}

// Observed holds the facts that the deployment's activity read at one moment.
type Observed struct {
	Machines []Machine // machines of the deployment, in any order
	Grants   []Grant   // recorded grants of the deployment, in any order
	// number of wanted machines that do not exist yet; a grant whose machine is gone waits for one of the missing
	// machines
	Missing int
	// largest number of replacements in progress in one failure domain; a percentage counts from the machines of the
	// domain that are not being deleted, and is rounded up
	Budget rollout.Bound
	Nodes  Nodes
	Now    time.Time // present time, which is the time of new grants
}

// Decision says which grants to record, and then which machines to annotate. A grant is recorded before its
// annotation is written: no annotation exists without a record.
type Decision struct {
	Grants []Grant // all grants to record, oldest first: replacements in progress and new grants
	// UIDs from Grants of the machines to annotate now; a UID is repeated in the next decision if the annotation was
	// not written
	Mark    []string
	Changed bool   // Grants differs from the recorded grants
	Hold    string // why due machines wait; empty: no due machine waits
	// HoldUntil is when to call Decide again because the hold ends by time; zero: no end by time. HoldUntil is only
	// set with Hold.
	HoldUntil time.Time
	Why       string // one sentence about the granted, ended and held replacements
}

// Decide ends complete grants, and grants the rest of each domain's budget to the machines that have been due the
// longest. A grant never ends by time. While the breaker is open, Decide grants and annotates no machine. Free
// machines are always granted. The order of the facts does not matter.
func Decide(o Observed) Decision {
	o.Machines, o.Grants = list.SortedLarge(o.Machines, byDue), list.Sorted(o.Grants, byAge)
	r := reviewGrants(o)
	granted := machineUIDs(r.grants)
	waiting := list.Where(
		o.Machines,
		func(m Machine) bool { return m.Due && !m.Preserved && !m.Deleting && !granted[m.UID] },
	)
	d := Decision{Grants: r.grants}
	steps := append(d.grantFreeMachines(o, &r, waiting), r.steps...)
	granted = machineUIDs(d.Grants)
	waiting = list.Where(waiting, func(m Machine) bool { return !granted[m.UID] })
	if open, why, until := Breaker(o.Nodes, o.Now); open {
		if held := len(waiting) + len(r.unmarkedUIDs); held > 0 {
			d.Hold, d.HoldUntil = dueSentence(held)+"; "+why, until
		}
	} else {
		d.Mark = append(d.Mark, r.unmarkedUIDs[:min(len(r.unmarkedUIDs), MaxBatch-len(d.Mark))]...)
		steps = append(d.grantWaiting(o, r, waiting), steps...)
	}
	slices.SortFunc(d.Grants, byAge)
	d.Changed = !slices.Equal(d.Grants, o.Grants) // grants that stay are unchanged copies
	sentences := phrase.Parts(phrase.List(steps, maxSteps, "; "), phrase.If(d.Hold != "", "hold: %s", d.Hold))
	d.Why = cmp.Or(strings.Join(sentences, "; "), replacementsSentence(d.Grants))
	return d
}

// replacementsSentence returns a sentence about the machines that are being replaced.
func replacementsSentence(grants []Grant) string {
	names := list.Map(grants, func(g Grant) string { return g.Name })
	return cmp.Or(
		phrase.If(
			len(names) > 0,
			"%s %s being replaced: %s",
			phrase.Count(len(names), "machine"),
			phrase.OneOf(len(names), "is", "are"),
			phrase.List(names, maxSteps, ", "),
		),
		"no machine is due, and none is being replaced",
	)
}

func byDue(a, b *Machine) int {
	return cmp.Or(a.DueSince.Compare(b.DueSince), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

func byAge(a, b Grant) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// machineUIDs returns the UIDs of the machines of grants.
func machineUIDs(grants []Grant) map[string]bool {
	return list.Set(grants, func(g Grant) string { return g.UID })
}

func newGrant(m Machine, now time.Time) Grant {
	return Grant{UID: m.UID, Name: m.Name, Domain: m.Domain, Reason: m.Reason, At: now.Truncate(time.Second)}
}
