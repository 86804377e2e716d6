package replace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// limit is the budget of a domain with so many machines.
func (b Budget) limit(machines int) int {
	if b.Percent {
		return (max(b.Value, 0)*machines + 99) / 100
	}
	return max(b.Value, 0)
}

// domain is what one failure domain has and wants.
type domain struct {
	live    int      // machines that are not being deleted
	users   []string // who uses its budget
	waiting int      // machines that are due and were not granted
	limit   int
}

// grant gives what is left of each budget to the machines that wait, in their order, and says what it did.
func (d *Decision) grant(o Observed, r records, waiting []Machine) (steps []string) {
	domains := inDomains(o, r, waiting)
	for _, m := range waiting {
		in := domains[m.Domain]
		if len(in.users) >= in.limit || len(d.Mark) >= MaxBatch {
			in.waiting++
			continue
		}
		in.users = append(in.users, "machine "+m.Name)
		d.Grants, d.Mark = append(d.Grants, newGrant(m, o.Now)), append(d.Mark, m.UID)
		steps = append(steps, fmt.Sprintf("grant replacement of machine %s: %s (%d of %d%s)",
			m.Name, cmp.Or(m.Reason, "due"), len(in.users), in.limit, zone(" in", m.Domain)))
	}
	var holds []string
	for _, name := range slices.Sorted(maps.Keys(domains)) {
		if in := domains[name]; in.waiting > 0 {
			holds = append(holds, held(name, *in, o.Budget))
		}
	}
	d.Hold = phrase.List(holds, maxHolds, "; ")
	return steps
}

func inDomains(o Observed, r records, waiting []Machine) map[string]*domain {
	domains := map[string]*domain{}
	of := func(name string) *domain {
		if domains[name] == nil {
			domains[name] = &domain{}
		}
		return domains[name]
	}
	for _, m := range o.Machines {
		if !m.Deleting {
			of(m.Domain).live++
		}
	}
	for _, g := range r.grants {
		d := of(g.Domain)
		d.users = append(d.users, phrase.If(r.gone[g.UID], "the substitute of ")+"machine "+g.Name)
	}
	for _, m := range waiting {
		of(m.Domain).limit = o.Budget.limit(of(m.Domain).live)
	}
	return domains
}

// fewestDead is how many nodes must be dead before the breaker looks at their share. One or two dead nodes of a small
// cluster are replaced like any other: the budget bounds them. Source: kube-controller-manager, which lets no zone with
// fewer than 3 nodes that are not Ready count as unhealthy (--unhealthy-zone-threshold).
const fewestDead = 3

// settle is for how long a node that recovered still counts as one of an outage that is ending: nodes come back one after
// the other, and those that come last must not be taken for broken when most of the others are back. Source: 50 s, the
// default of kube-controller-manager's --node-monitor-grace-period, after which a node that is still silent is so by
// itself, and a kubelet's lease interval of 10 s.
const settle = time.Minute

// Breaker says whether so many nodes of the cluster look dead at once, or looked so until a moment ago, that the machines
// are hardly to blame: at least fewestDead, and at least half. It is open then, and the sentence says why. Until is when it
// closes by itself should nothing change; zero means that nodes have to recover first. It remembers nothing, so that an API
// server which comes and goes leaves nothing behind that acts later (D5).
//
// Source of one half: kube-controller-manager stops evicting from a small zone at 0.55 (--unhealthy-zone-threshold); a
// replacement destroys more than an eviction, so it stops a little earlier.
func Breaker(n Nodes, now time.Time) (open bool, why string, until time.Time) {
	n = n.Judged()
	if most(n.Dead, n.Joined) {
		return true, fmt.Sprintf("%d of %d nodes look dead at once: that is more likely the API server or the network than the machines; nothing is replaced until most of them report again", n.Dead, n.Joined), until
	}
	recent := slices.DeleteFunc(slices.Clone(n.Recovered), func(at time.Time) bool { return now.Sub(at) >= settle })
	if len(recent) == 0 || !most(n.Dead+len(recent), n.Joined) {
		return false, "", until
	}
	until = slices.MaxFunc(recent, time.Time.Compare).Add(settle)
	return true, fmt.Sprintf("most of the %d nodes looked dead at once, and have just begun to report again; nothing is replaced before %s, so that the others can do so too", n.Joined, until.UTC().Format(time.TimeOnly+" MST")), until
}

func most(dead, joined int) bool { return dead >= fewestDead && 2*dead >= joined }

// Bounds of what one decision says. Source: a decision has room for 20 sentences; few deployments have more than five
// zones, and more than five names in a sentence are not read.
const (
	maxSteps = 15
	maxHolds = 5
	maxNames = 5
)

// held says why the machines of a domain that were not granted have to wait.
func held(name string, d domain, b Budget) string {
	budget := due(d.waiting) + "; the replacement budget" + zone(" of", name)
	switch amount := phrase.If(b.Percent, "%d%%: ", b.Value) + strconv.Itoa(d.limit); {
	case d.limit == 0:
		return budget + " is 0: none is replaced"
	case len(d.users) >= d.limit:
		return fmt.Sprintf("%s (%s) is used by %s", budget, amount, phrase.List(d.users, maxNames, ", "))
	default:
		return fmt.Sprintf("%s%s; at most %d are granted at once, the others follow", due(d.waiting), zone(" in", name), MaxBatch)
	}
}

func due(machines int) string {
	return phrase.Count(machines, "machine") + phrase.OneOf(machines, " is due", " are due")
}

func zone(preposition, name string) string {
	return phrase.If(name != "", "%s zone %s", preposition, name)
}

// plan says what a decision does, in one line.
func plan(steps []string, hold string, inProgress int) string {
	if len(steps) == 0 && hold == "" {
		return fmt.Sprintf("no machine is due; %d replacements in progress", inProgress)
	}
	done := phrase.List(steps, maxSteps, "; ")
	return strings.Join(phrase.Parts(done, phrase.If(hold != "", "hold: %s", hold)), "; ")
}

// records is what became of the grants that were recorded.
type records struct {
	grants   []Grant         // those that stay
	unmarked []string        // UIDs of those whose machine lacks the mark: the write of it was interrupted
	gone     map[string]bool // UIDs of those whose machine is gone and whose substitute has not joined
	steps    []string
}

func (r *records) say(format string, args ...any) {
	r.steps = append(r.steps, fmt.Sprintf(format, args...))
}

// review ends the grants that are complete, withdraws those that are not needed any more, and records the machines that a
// person marked.
func review(o Observed) records {
	r := records{gone: map[string]bool{}}
	recorded := uids(o.Grants)
	var gone []Grant
	for _, g := range o.Grants {
		if i := slices.IndexFunc(o.Machines, func(m Machine) bool { return m.UID == g.UID }); i >= 0 {
			r.keep(g, o.Machines[i])
		} else {
			gone = append(gone, g)
		}
	}
	r.follow(gone, o)
	for _, m := range o.Machines {
		if m.Granted && !m.Preserved && !recorded[m.UID] {
			r.grants = append(r.grants, newGrant(m, o.Now))
			r.say("record machine %s: it was marked by a person", m.Name)
		}
	}
	return r
}

// keep decides about a grant whose machine is still there. A mark is never taken back: the machine may have acted on it.
func (r *records) keep(g Grant, m Machine) {
	switch marked := m.Deleting || m.Granted; {
	case m.Preserved && !m.Deleting:
		r.say("release the grant of machine %s: it is preserved", m.Name)
		return
	case !marked && !m.Due && !m.Failed:
		r.say("withdraw the grant of machine %s: it recovered", m.Name)
		return
	case !marked:
		r.unmarked = append(r.unmarked, g.UID)
	}
	r.grants = append(r.grants, g)
}

// follow decides about the grants whose machine is gone, oldest first. Each waits for one machine of its domain that was
// created after it and is still being made, or for one that is missing. The newest grant chooses first: it has the least
// to choose from, so no grant takes what another needs, and the same ones are left when they are looked at again. Of a
// missing machine the zone is not known yet: a grant of each may wait for it.
func (r *records) follow(gone []Grant, o Observed) {
	// Those that may still join. One that is due needs a grant itself: if it held the one that it came from, a budget of one would never
	// get free again.
	making := list.Where(o.Machines, func(m Machine) bool {
		return !m.Joined && !m.Failed && !m.Deleting && !m.Due && !m.Granted && !m.Preserved
	})
	await := map[string]int{} // by domain, how many wait for a machine that is missing
	for _, g := range slices.Backward(gone) {
		i := slices.IndexFunc(making, func(m Machine) bool { return m.Domain == g.Domain && !m.Created.Before(g.At.Add(-clockSlack)) })
		switch {
		case i >= 0:
			making = slices.Delete(making, i, i+1)
		case await[g.Domain] < o.Missing:
			await[g.Domain]++
		default:
			r.say("replacement of machine %s is complete", g.Name)
			continue
		}
		r.grants = append(r.grants, g)
		r.gone[g.UID] = true
	}
}

// clockSlack is how much the worker's clock, which a grant is dated by, may be ahead of the API server's, which machines
// are. A machine that a scale-up made so shortly before a grant may be taken for its substitute; that only delays.
const clockSlack = 10 * time.Second
