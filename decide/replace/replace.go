// Package replace decides which due machines of a deployment may be replaced now, and which earlier replacements are
// complete. It does no I/O and knows no API type. A machine with the annotation replacement-granted becomes Failed by
// its own workflow, and its set replaces it.
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

// MaxBatch is the largest number of machines that one decision grants and annotates. Source: 50 new grants with long
// names and all sentences stay below the 16 KiB that a decision may take in a history.
const MaxBatch = 50

// Machine is one machine of the deployment, in any of its sets.
type Machine struct {
	Name, UID string
	Domain    string    // failure domain; the empty name is a domain like the others
	Due       bool      // condition ReplacementDue is True
	DueSince  time.Time // zero: before all others
	Reason    string    // why it is due
	Granted   bool      // has the annotation replacement-granted
	Preserved bool      // it is not replaced, and uses no budget
	Deleting  bool
	Joined    bool // its node has joined, or it is Available without a target cluster; false while it is being created
	Failed    bool // phase Failed
	Free      bool // a person deletes its Node: it is replaced at once, without budget and even while the breaker is open
	Created   time.Time
}

// Grant is one use of the replacement budget, as recorded in the deployment's status.
type Grant struct {
	UID    string // of the machine to replace
	Name   string
	Domain string // of the machine at the time of the grant
	Reason string
	At     time.Time // in whole seconds, like all times of a status
}

// Nodes are the nodes of the whole target cluster, not of one deployment.
type Nodes struct {
	Joined int // number of machines that have joined
	Dead   int // number of these whose node is missing, unhealthy or being deleted
	Lost   int // number of Dead whose instance the provider says it no longer has
	// When each of the other nodes last recovered, in any order; a node that never was unhealthy has no entry.
	Recovered []time.Time
	Unjudged  []Node // nodes of Joined that Dead and Recovered do not include yet
}

// Node is the node of one machine.
type Node struct {
	Conditions []health.Condition
	Bad        []string  // condition types that make the node unhealthy
	Deleting   bool      // the Node is being deleted
	Recovered  time.Time // when its machine recovered, if the node is healthy; zero: it never was unhealthy
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

// Observed is what the deployment's activity read at one moment.
type Observed struct {
	Machines []Machine // in any order
	Grants   []Grant   // as recorded, in any order
	// number of wanted machines that do not exist yet; a grant whose machine is gone waits for one of them
	Missing int
	// replacements at a time in one failure domain; a percentage counts from its machines that are not being deleted, and
	// is rounded up
	Budget rollout.Bound
	Nodes  Nodes
	Now    time.Time // time of new grants
}

// Decision says what to record, then what to annotate. A grant is recorded first, so that no annotation is without a
// record.
type Decision struct {
	Grants []Grant // the complete record, oldest first: replacements in progress and new ones
	// UIDs from Grants of the machines to annotate now; a UID is repeated if the annotation was not written
	Mark    []string
	Changed bool   // Grants differs from Observed.Grants
	Hold    string // why due machines wait; empty: none waits
	// When to decide again because the hold ends by time; zero: something else must change. Only with Hold.
	HoldUntil time.Time
	Why       string // what is granted, ended and held, in one sentence
}

// Decide grants the rest of each domain's budget to the machines that are due for the longest time, and ends grants
// that are complete. A grant never ends by time. While the breaker is open, it grants and annotates nothing. Free
// machines are granted in any case. The same facts in any order give the same decision.
func Decide(o Observed) Decision {
	o.Machines, o.Grants = list.SortedLarge(o.Machines, byDue), list.Sorted(o.Grants, byAge)
	r := review(o)
	granted := uids(r.grants)
	waiting := list.Where(
		o.Machines,
		func(m Machine) bool { return m.Due && !m.Preserved && !m.Deleting && !granted[m.UID] },
	)
	d := Decision{Grants: r.grants}
	steps := append(d.grantFree(o, &r, waiting), r.steps...)
	granted = uids(d.Grants)
	waiting = list.Where(waiting, func(m Machine) bool { return !granted[m.UID] })
	if open, why, until := Breaker(o.Nodes, o.Now); open {
		if held := len(waiting) + len(r.unmarked); held > 0 {
			d.Hold, d.HoldUntil = due(held)+"; "+why, until
		}
	} else {
		d.Mark = append(d.Mark, r.unmarked[:min(len(r.unmarked), MaxBatch-len(d.Mark))]...)
		steps = append(d.grant(o, r, waiting), steps...)
	}
	slices.SortFunc(d.Grants, byAge)
	d.Changed = !slices.Equal(d.Grants, o.Grants) // grants that stay are copies
	sentences := phrase.Parts(phrase.List(steps, maxSteps, "; "), phrase.If(d.Hold != "", "hold: %s", d.Hold))
	d.Why = cmp.Or(strings.Join(sentences, "; "), underWay(d.Grants))
	return d
}

// underWay says which machines are being replaced.
func underWay(grants []Grant) string {
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

// uids returns the UIDs of the machines of grants.
func uids(grants []Grant) map[string]bool {
	return list.Set(grants, func(g Grant) string { return g.UID })
}

func newGrant(m Machine, now time.Time) Grant {
	return Grant{UID: m.UID, Name: m.Name, Domain: m.Domain, Reason: m.Reason, At: now.Truncate(time.Second)}
}
