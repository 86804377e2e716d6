// Package replace answers which machines of one deployment may be replaced now, of those with which patience has ended,
// and which earlier replacements have come to their end. The deployment's decision calls it with what it read. It knows no
// API kind, marks nothing and deletes nothing: a machine with the mark turns Failed by itself, and its set replaces it.
package replace

import (
	"cmp"
	"slices"
	"time"
)

// MaxBatch is how many machines one decision marks, and therefore grants, at the most. It bounds what a decision adds to
// history. Source: 50 new grants with long names and all sentences stay below the 16 KiB that a decision may take there.
const MaxBatch = 50

// Machine is one machine of the deployment, of whichever set.
type Machine struct {
	Name      string
	UID       string
	Domain    string    // failure domain; the empty one is a domain like the others
	Due       bool      // patience has ended
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

// Nodes counts the whole target cluster, not one deployment.
type Nodes struct {
	Joined int // machines that are or were nodes
	Dead   int // of those, the ones whose node is unhealthy or missing now
	// When each of the others recovered that ever was unhealthy, in any order.
	Recovered []time.Time
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
	Why       string `json:"Plan"` // not Why: whoever embeds a Decision has a Why too, and JSON would drop this one
}

// Decide grants what is left of each domain's budget to the machines that are due for the longest time, and ends the
// grants that are complete. A grant never ends by time. While the breaker is open it grants and marks nothing. The same
// input gives the same output, in whatever order machines and grants stand.
func Decide(o Observed) Decision {
	o.Machines, o.Grants = slices.Clone(o.Machines), slices.Clone(o.Grants)
	slices.SortFunc(o.Machines, byPatience)
	slices.SortFunc(o.Grants, byAge)

	r := review(o)
	waiting := candidates(o.Machines, r.grants)
	d := Decision{Grants: r.grants}
	steps := r.steps
	if open, why, until := Breaker(o.Nodes, o.Now); open {
		if held := len(waiting) + len(r.unmarked); held > 0 {
			d.Hold, d.HoldUntil = due(held)+"; "+why, until
		}
	} else {
		d.Mark = r.unmarked[:min(len(r.unmarked), MaxBatch)]
		g := grant(o, r, waiting, MaxBatch-len(d.Mark))
		for _, granted := range g.grants {
			d.Grants = append(d.Grants, granted)
			d.Mark = append(d.Mark, granted.UID)
		}
		d.Hold = g.hold
		steps = append(g.steps, steps...)
	}
	slices.SortFunc(d.Grants, byAge)
	d.Changed = !slices.Equal(d.Grants, o.Grants) // those that stay are copies
	d.Why = plan(steps, d.Hold, len(d.Grants))
	return d
}

// candidates returns the machines that are due and have neither grant nor mark (which is recorded as one), the first of them to be granted first.
func candidates(machines []Machine, grants []Grant) []Machine {
	recorded := uids(grants)
	var result []Machine
	for _, m := range machines {
		if m.Due && !m.Preserved && !m.Deleting && !recorded[m.UID] {
			result = append(result, m)
		}
	}
	return result
}

func byPatience(a, b Machine) int {
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
