package scale

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Messages about marked machines. Source: Cluster API.
const (
	saysDeleting = "Machine is deleting"
	saysOutdated = "Machine won't be remediated because it is pending removal due to rollout"
	saysTooMany  = "Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is %d)"
)

// said is a message about one machine.
type said struct{ name, message string }

// remediate deletes unhealthy members that the health check asks the set to replace.
func remediate(o *planner, active []Member) Decision {
	now := o.remediable
	d := remove(o, active, now, " marked unhealthy")
	d.Delete, d.Remediate = nil, targets(now, "unhealthy, and marked to be replaced by its owner")
	d.Generations = record(o, now)
	return d
}

// removeSurplus deletes the members beyond the wanted number, the least valuable first. Members handed over by an
// in-place update do not count as surplus, because the set's size follows.
func removeSurplus(o *planner, active []Member) Decision {
	surplus := list.Count(active, func(m Member) bool { return !m.Updated }) - o.Replicas
	switch {
	case surplus <= 0:
		return Decision{}
	case o.movesSurplus():
		return move(o, active, surplus)
	}
	all := ranked(o, active, func(m Member) bool { return !m.Updated })
	return remove(o, active, all[:min(len(all), surplus)], "")
}

// ranked returns the members for which holds is true, the first to be deleted first, at most MaxBatch.
func ranked(o *planner, active []Member, holds func(Member) bool) []Member {
	all := pointers(active, holds)
	slices.SortFunc(all, ranking(o.Order))
	return list.Map(first(all), func(m *Member) Member { return *m })
}

// pointers returns pointers to the members for which holds is true: thousands of copies would take longer than the
// decision.
func pointers(members []Member, holds func(Member) bool) (all []*Member) {
	for i := range members {
		if holds(members[i]) {
			all = append(all, &members[i])
		}
	}
	return all
}

// remove deletes these members, at most MaxBatch; which describes them in Why.
func remove(o *planner, active, from []Member, which string) Decision {
	if len(from) == 0 {
		return Decision{}
	}
	d := Decision{Delete: list.Map(from, func(m Member) Target { return m.target(m.surplus()) }), Hold: waits(o)}
	d.Why = fmt.Sprintf("delete %s%s: %d wanted, %d there", machines(len(d.Delete)), which, o.Replicas, len(active))
	return d
}

// remediation returns the marked members that are deleted now, at most MaxBatch, and why the others wait. The members
// that an operator marked go first, then the newest, so that proven machines stay longest. A member that is being
// deleted counts as in flight until it is gone.
func remediation(o *planner) ([]Member, []said) {
	var now []*Member
	var later []said
	marked := pointers(o.live, func(m Member) bool { return m.marked() && !m.protected() })
	slices.SortFunc(marked, func(a, b *Member) int {
		return cmp.Or(list.FalseFirst(b.Urgent, a.Urgent), list.KnownFirst(b.Created, a.Created), cmp.Compare(a.Name, b.Name))
	})
	left := len(marked)
	if o.Remediation.Limited {
		left = o.Remediation.MaxInFlight - list.Count(o.Members, func(m Member) bool { return m.Deleting && m.marked() })
	}
	blocked, next, many := strings.Join(blockers(o), "; "), notYet(o), fmt.Sprintf(saysTooMany, o.Remediation.MaxInFlight)
	for _, m := range marked {
		switch {
		case o.Remediation.Outdated:
			later = append(later, said{m.Name, saysOutdated})
		case !ripe(o, *m):
			later = append(later, said{m.Name, next})
		case left <= 0:
			later = append(later, said{m.Name, many})
		case blocked != "":
			later = append(later, said{m.Name, blocked})
			left--
		default:
			now = append(now, m)
			left--
		}
	}
	return list.Map(first(now), func(m *Member) Member { return *m }), later
}

// marked reports whether the health check asks for the replacement of a member, and still finds it unhealthy.
func (m Member) marked() bool { return m.Marked && m.Healthy == False }

// ranking orders members by the loss that their deletion means, the first to be deleted first:
//  1. members that are not preserved, then those that the set preserved, then by the end of the preservation
//  2. members with the annotation cluster.x-k8s.io/delete-machine
//  3. lower priority
//  4. members that the autoscaler chose, the earliest choice first
//  5. failed; creation keeps failing; being updated in place; without a node; with an unhealthy node; the others
//  6. age, by the set's Order
//  7. name
//
// Sources: 1 and 3 to 5 from MCM; 2, 5 and 6 from Cluster API. So a failed machine goes before a new one and before one
// that is being updated. Random orders healthy members by a hash, and all others by name.
func ranking(order Order) func(a, b *Member) int {
	return func(a, b *Member) int {
		return cmp.Or(
			byPreservation(a, b),
			list.FalseFirst(b.DeleteFirst, a.DeleteFirst),
			cmp.Compare(a.Priority, b.Priority),
			byChoice(a, b),
			cmp.Compare(worth(a), worth(b)),
			byOrder(order, a, b),
			cmp.Compare(a.Name, b.Name),
		)
	}
}

// byOrder compares ages. A member without a creation time counts as the youngest.
func byOrder(order Order, a, b *Member) int {
	switch order {
	case Oldest:
		return list.KnownFirst(a.Created, b.Created)
	case Random:
		if worth(a) == worthHealthy && !a.DeleteFirst {
			return cmp.Compare(hash(a.Name), hash(b.Name))
		}
		return 0
	default:
		return list.KnownFirst(b.Created, a.Created)
	}
}

func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	_, mixed := splitMix(h.Sum64())
	return mixed
}

// worth returns the rank of a member's worst defect. Members with the lowest rank are deleted first.
func worth(m *Member) int {
	return slices.Index([]bool{
		m.failed(),
		m.crashing(),
		m.Updating,
		m.Node == NoNode && !m.serves(),
		m.Node == NodeUnhealthy || m.Healthy == False,
		true,
	}, true)
}

const worthHealthy = 5 // no defect

// Unhealthy reports whether a member goes before every healthy member of the same priority.
func (m Member) Unhealthy() bool { return worth(&m) < worthHealthy }

// surplus says why this member is deleted rather than another.
func (m Member) surplus() string {
	return cmp.Or(
		phrase.If(m.DeleteFirst, "surplus: marked to be deleted first"),
		phrase.If(m.chosen(), "surplus: the autoscaler chose it"),
		phrase.If(m.failed(), "surplus: failed"),
		fmt.Sprintf("surplus (priority %d, phase %s)", m.Priority, cmp.Or(m.Phase, "new")),
	)
}
