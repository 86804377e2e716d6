// Package replace answers which machines of one deployment may be replaced now, of those that are due,
// and which earlier replacements have come to their end. The deployment's decision calls it with what it read. It knows no
// API kind, marks nothing and deletes nothing: a machine with the mark turns Failed by itself, and its set replaces it.
package replace

import (
	"cmp"
	"slices"
	"time"

	"millwright/decide/health"
	"millwright/decide/list"
)

// MaxBatch is how many machines one decision marks, and therefore grants, at the most. It bounds what a decision adds to
// history. Source: 50 new grants with long names and all sentences stay below the 16 KiB that a decision may take there.
const MaxBatch = 50

// Machine is one machine of the deployment, of whichever set.
type Machine struct {
	Name, UID string
	Domain    string    // failure domain; the empty one is a domain like the others
	Due       bool      // condition ReplacementDue is True
	DueSince  time.Time // zero comes first
	Reason    string    // why it is due
	Granted   bool      // carries the mark
	Preserved bool      // kept on purpose: it is not replaced, and holds no budget meanwhile
	Deleting  bool
	Joined    bool // it is or was a node, or all that it will ever be without a target cluster; false while it is being made
	Failed    bool // phase Failed
	Created   time.Time
}

// Grant is one use of the budget, as the deployment's status records it.
type Grant struct {
	UID    string // of the machine that is replaced
	Name   string
	Domain string // of the machine, when it was granted
	Reason string
	At     time.Time // whole seconds: a status keeps no more
}

// Budget is how many machines of one failure domain may be replaced at a time. Zero, also 0 %, means none.
type Budget struct {
	Value   int
	Percent bool // of the domain's machines that are not being deleted, rounded up
}

// Nodes is the whole target cluster, not one deployment.
type Nodes struct {
	Joined int // machines that are or were nodes
	Dead   int // of those, the ones whose node is missing now, or is unhealthy as Judged says
	// When each of the others recovered that ever was unhealthy, in any order.
	Recovered []time.Time
	Unjudged  []Node // of Joined, those of which Dead and Recovered say nothing yet
}

// Node is the node of one machine.
type Node struct {
	Conditions []health.Condition
	Bad        []string  // condition types that make the node unhealthy
	Recovered  time.Time // when its machine recovered, if the node is healthy; zero when it never was unhealthy
}

// Judged counts the nodes that were not judged yet.
func (n Nodes) Judged() Nodes {
	n.Recovered = slices.Clone(n.Recovered)
	for _, node := range n.Unjudged {
		if healthy, _ := health.Decide(node.Conditions, node.Bad); !healthy {
			n.Dead++
		} else if !node.Recovered.IsZero() {
			n.Recovered = append(n.Recovered, node.Recovered)
		}
	}
	n.Unjudged = nil
	return n
}

// Observed is what the deployment's decision read, at one moment.
type Observed struct {
	Machines []Machine // in any order
	Grants   []Grant   // as recorded, in any order
	Missing  int       // machines that are wanted and do not exist yet; at zero, a grant whose machine is gone waits for none
	Budget   Budget
	Nodes    Nodes
	Now      time.Time // becomes the time of new grants
}

// Decision says what to record, then what to mark. A grant is recorded first, so that none is lost between the two.
type Decision struct {
	Grants  []Grant  // the whole record, oldest first: the replacements in progress and the new ones
	Mark    []string // UIDs, all of them in Grants, of the machines to mark now; one whose mark was not written is here again
	Changed bool     // Grants says other things than Observed.Grants
	Hold    string   // why due machines have to wait; empty when none has to
	// When to look again, because the hold ends by itself; zero means that something else changes first. Part of Hold.
	HoldUntil time.Time
	Why       string // what is granted, ended and held, in a sentence
}

// Decide grants what is left of each domain's budget to the machines that are due for the longest time, and ends the
// grants that are complete. A grant never ends by time. While the breaker is open it grants and marks nothing. The same
// input gives the same output, in whatever order machines and grants stand.
func Decide(o Observed) Decision {
	o.Machines, o.Grants = list.Sorted(o.Machines, byDue), list.Sorted(o.Grants, byAge)
	r := review(o)
	recorded := uids(r.grants) // also those of machines that a person marked
	waiting := list.Where(o.Machines, func(m Machine) bool { return m.Due && !m.Preserved && !m.Deleting && !recorded[m.UID] })
	d := Decision{Grants: r.grants}
	steps := r.steps
	if open, why, until := Breaker(o.Nodes, o.Now); open {
		if held := len(waiting) + len(r.unmarked); held > 0 {
			d.Hold, d.HoldUntil = due(held)+"; "+why, until
		}
	} else {
		d.Mark = r.unmarked[:min(len(r.unmarked), MaxBatch)]
		steps = append(d.grant(o, r, waiting), steps...)
	}
	slices.SortFunc(d.Grants, byAge)
	d.Changed = !slices.Equal(d.Grants, o.Grants) // those that stay are copies
	d.Why = plan(steps, d.Hold, len(d.Grants))
	return d
}

func byDue(a, b Machine) int {
	return cmp.Or(a.DueSince.Compare(b.DueSince), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

func byAge(a, b Grant) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

func uids(grants []Grant) map[string]bool {
	result := make(map[string]bool, len(grants))
	for _, g := range grants {
		result[g.UID] = true
	}
	return result
}

func newGrant(m Machine, now time.Time) Grant {
	return Grant{UID: m.UID, Name: m.Name, Domain: m.Domain, Reason: m.Reason, At: now.Truncate(time.Second)}
}
