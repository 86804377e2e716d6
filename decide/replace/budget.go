package replace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
)

// domain is the state of one failure domain.
type domain struct {
	active  int      // number of machines that are not being deleted
	users   []string // the replacements in progress, each named by its machine
	waiting int      // number of due machines without a grant
	limit   int      // its replacement budget
}

// grant grants replacements to the waiting machines, in their order, as far as each domain's budget allows, and returns
// the sentences about them.
func (d *Decision) grant(o Observed, r records, waiting []Machine) (steps []string) {
	domains := inDomains(o, r, waiting)
	for _, m := range waiting {
		in := domains[m.Domain]
		if len(in.users) >= in.limit || len(d.Mark) >= MaxBatch || len(d.Grants) >= MaxGrants {
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
		switch in := domains[name]; {
		case in.waiting == 0:
		case len(d.Grants) >= MaxGrants && len(in.users) < in.limit:
			holds = append(
				holds,
				fmt.Sprintf(
					"%s%s; %d replacements are in progress, and a deployment may have no more",
					due(in.waiting),
					zone(" in", name),
					len(d.Grants),
				),
			)
		default:
			holds = append(holds, holdReason(name, *in, o.Budget))
		}
	}
	d.Hold = phrase.List(holds, maxHolds, "; ")
	return steps
}

// grantFree grants the replacement of each waiting machine that needs neither budget nor breaker, and annotates those
// that were granted before.
func (d *Decision) grantFree(o Observed, r *records, waiting []Machine) (steps []string) {
	free := map[string]bool{} // by UID
	for _, m := range o.Machines {
		free[m.UID] = m.Free
	}
	again := list.Where(r.unmarked, func(uid string) bool { return free[uid] })
	d.Mark = append(d.Mark, again[:min(len(again), MaxBatch)]...)
	r.unmarked = slices.DeleteFunc(r.unmarked, func(uid string) bool { return free[uid] })
	waiting = list.Where(waiting, func(m Machine) bool { return m.Free })
	for _, m := range waiting[:max(0, min(len(waiting), MaxBatch-len(d.Mark), MaxGrants-len(d.Grants)))] {
		d.Grants, d.Mark = append(d.Grants, newGrant(m, o.Now)), append(d.Mark, m.UID)
		steps = append(
			steps,
			fmt.Sprintf("grant replacement of machine %s: %s, beside the budget", m.Name, cmp.Or(m.Reason, "due")),
		)
	}
	return steps
}

// inDomains returns the failure domains by name. Only those with waiting machines have a limit.
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
			of(m.Domain).active++
		}
	}
	for _, g := range r.grants {
		d := of(g.Domain)
		d.users = append(d.users, phrase.If(r.gone[g.UID], "the substitute of ")+"machine "+g.Name)
	}
	for _, m := range waiting {
		of(m.Domain).limit = o.Budget.Of(of(m.Domain).active, true)
	}
	return domains
}

// fewestDead is the smallest number of dead nodes that can open the breaker. Fewer are replaced like any others, as far
// as the budget allows. Source: kube-controller-manager, in which a zone counts as unhealthy only with at least 3 nodes
// that are not Ready (--unhealthy-zone-threshold).
const fewestDead = 3

// Breaker reports whether so many nodes look dead at once, or did within the last recoveryWindow, that the machines are
// hardly the cause: at least fewestDead, and at least half of all. While it is open nothing is replaced; why says so in
// one sentence. Until is when it closes if nothing else changes; zero: nodes must recover first. It keeps no state, so
// that an unstable API server has no effect later.
//
// Source of one half: kube-controller-manager stops evicting from a small zone at 0.55 (--unhealthy-zone-threshold). A
// replacement destroys more than an eviction, so the breaker opens a little earlier.
func Breaker(n Nodes, now time.Time) (open bool, why string, until time.Time) {
	n = n.Judged()
	if most(n.Dead, n.Joined) {
		return true, fmt.Sprintf(
			"%d of %d nodes look dead at once: that is more likely the API server or the network than the machines; nothing is replaced until most of them report again",
			n.Dead,
			n.Joined,
		) + phrase.If(n.Lost > 0, "; %s", lost(n)), until
	}
	recent := slices.DeleteFunc(
		slices.Clone(n.Recovered),
		func(at time.Time) bool { return now.Sub(at) >= recoveryWindow },
	)
	if len(recent) == 0 || !most(n.Dead+len(recent), n.Joined) {
		return false, "", until
	}
	until = slices.MaxFunc(recent, time.Time.Compare).Add(recoveryWindow)
	return true, fmt.Sprintf(
		"most of the %d nodes looked dead at once, and began to report again only recently; nothing is replaced before %s, so that the others can recover",
		n.Joined,
		phrase.Clock(until, now),
	), until
}

// Disbelief returns why the provider is not believed when it says that instances are gone: it says so of at least
// fewestDead machines, and of at least half of all. Empty: it is believed, even while nodes of other machines look
// dead.
func Disbelief(n Nodes) string {
	return phrase.If(most(n.Lost, n.Joined), "%s", lost(n))
}

func lost(n Nodes) string {
	return fmt.Sprintf(
		"the provider says of %d of %d machines that it has no instance: if that is true, and neither its account nor the cluster name is wrong, delete these Machines with the label %s",
		n.Lost,
		n.Joined,
		vocabulary.LabelForceDeletion,
	)
}

func most(dead, joined int) bool { return dead >= fewestDead && 2*dead >= joined }

// Bounds of a decision's texts. Source: a decision has room for 20 sentences, few deployments have more than five
// zones, and nobody reads more than five names in a sentence.
const (
	maxSteps = 15
	maxHolds = 5
	maxNames = 5
)

// holdReason says why the due machines of a domain have no grant.
func holdReason(name string, d domain, b rollout.Bound) string {
	budget := due(d.waiting) + "; the replacement budget" + zone(" of", name)
	switch amount := phrase.If(b.Percent, "%d%%: ", b.Value) + strconv.Itoa(d.limit); {
	case d.limit == 0:
		return budget + " is 0: none is replaced"
	case len(d.users) >= d.limit:
		return fmt.Sprintf("%s (%s) is used by %s", budget, amount, phrase.List(d.users, maxNames, ", "))
	default:
		return fmt.Sprintf(
			"%s%s; at most %d are granted at once, the others follow",
			due(d.waiting),
			zone(" in", name),
			MaxBatch,
		)
	}
}

func due(machines int) string {
	return phrase.Count(machines, "machine") + phrase.OneOf(machines, " is due", " are due")
}

func zone(preposition, name string) string {
	return phrase.If(name != "", "%s zone %s", preposition, name)
}

// records is the result of the review of the recorded grants.
type records struct {
	grants   []Grant         // grants that stay
	unmarked []string        // UIDs of machines without the annotation: its write was interrupted
	gone     map[string]bool // UIDs of machines that are gone and whose substitute has not joined
	steps    []string
}

func (r *records) say(format string, args ...any) {
	r.steps = append(r.steps, fmt.Sprintf(format, args...))
}

// review ends grants that are complete, withdraws those that are no longer needed, and adds grants for machines that a
// person annotated.
func review(o Observed) records {
	r := records{gone: map[string]bool{}}
	var gone []Grant
	at := make(map[string]int, len(o.Machines)) // by UID
	for i, m := range o.Machines {
		at[m.UID] = i
	}
	for _, g := range o.Grants {
		if i, exists := at[g.UID]; exists {
			r.keep(g, o.Machines[i])
		} else {
			gone = append(gone, g)
		}
	}
	r.follow(gone, o)
	known := uids(o.Grants)
	for _, m := range o.Machines {
		if m.Granted && !m.Preserved && !known[m.UID] {
			r.grants = append(r.grants, newGrant(m, o.Now))
			r.say("record machine %s: it was granted by a person", m.Name)
		}
	}
	return r
}

// keep decides about a grant whose machine still exists. An annotation is never removed, because the machine may have
// acted on it.
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

// follow decides about the grants whose machine is gone, oldest first. Each waits for one machine of its domain that
// was created after the grant and is still being created, or for a missing machine. The newest grant chooses first: it
// has the smallest choice, so no grant takes the machine that another needs, and a repeated review keeps the same
// grants. The zone of a missing machine is not known yet, so grants of every domain may wait for it.
func (r *records) follow(gone []Grant, o Observed) {
	// Machines that may still join. A due machine needs a grant of its own: if the grant whose substitute it is waited for
	// it, a budget of one would stay used for ever.
	making := map[string][]time.Time{} // when they were created, by domain
	for _, m := range o.Machines {
		if !m.Joined && !m.Failed && !m.Deleting && !m.Due && !m.Granted && !m.Preserved {
			making[m.Domain] = append(making[m.Domain], m.Created)
		}
	}
	for _, created := range making {
		slices.SortFunc(created, time.Time.Compare)
	}
	await := map[string]int{} // by domain, the number of grants that wait for a missing machine
	for _, g := range slices.Backward(gone) {
		last := len(making[g.Domain]) - 1
		switch {
		case last >= 0 && !making[g.Domain][last].Before(g.At.Add(-clockSlack)):
			making[g.Domain] = making[g.Domain][:last]
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
