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

// Sentences about machines that are marked, as Cluster API words them.
const (
	saysDeleting = "Machine is deleting"
	saysOutdated = "Machine won't be remediated because it is pending removal due to rollout"
	saysTooMany  = "Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is %d)"
)

// said is what is to be said of one machine.
type said struct{ name, message string }

// priorityChosen is the priority by which the autoscaler marks the machines that it takes away. Source: MCM.
const priorityChosen = 1

// keep has failed members preserved instead of replaced: the oldest first, as many as may be kept.
func keep(o Observed, live []Member) Decision {
	left := o.Keep - list.Count(live, func(m Member) bool { return m.Kept })
	failed := list.Where(live, func(m Member) bool { return m.Failed && !m.Kept && !m.Preserved && !m.Dismissed })
	slices.SortFunc(failed, func(a, b Member) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) })
	d := Decision{Keep: targets(failed[:max(min(left, len(failed)), 0)], "failed")}
	d.Why = fmt.Sprintf("keep %s that failed, of at most %d", machines(len(d.Keep)), o.Keep)
	return d
}

// removeFailed deletes failed members, so that others take their place.
func removeFailed(o Observed, live []Member) Decision {
	failed := first(ranked(o, live, func(m Member) bool { return m.toReplace() && ripe(o, m) }))
	d := remove(o, live, failed, " that failed")
	d.Delete, d.Generations = targets(failed, "failed"), record(o, failed)
	return d
}

// remediate deletes members that are unhealthy and that the health check asks the set to replace.
func remediate(o Observed, live []Member) Decision {
	now, _ := remediation(o, live)
	now = first(now)
	d := remove(o, live, now, " marked unhealthy")
	d.Delete, d.Remediate = nil, targets(now, "unhealthy, and marked to be replaced by its owner")
	d.Generations = record(o, now)
	return d
}

// removeChosen deletes what the autoscaler chose, also when the size says otherwise: it counts on these machines going,
// and on no others. A mark that is younger than the last change of the size is not yet meant.
func removeChosen(o Observed, live []Member) Decision {
	return remove(o, live, ranked(o, live, func(m Member) bool {
		return m.Priority == priorityChosen && !m.Chosen.IsZero() && !m.Chosen.After(o.Scaled) && !m.protected()
	}), " that the autoscaler chose")
}

// removeSurplus deletes what is too much, the least valuable first. Members that an update in place handed over are not
// too much: the set's size follows.
func removeSurplus(o Observed, live []Member) Decision {
	surplus := list.Count(live, func(m Member) bool { return !m.Updated }) - o.Replicas
	if surplus <= 0 {
		return Decision{}
	}
	return remove(o, live, ranked(o, live, func(m Member) bool { return !m.Updated })[:surplus], "")
}

// ranked returns the members that a condition holds for, the first to be deleted first.
func ranked(o Observed, live []Member, holds func(Member) bool) []Member {
	return list.Sorted(list.Where(live, holds), ranking(o.Order))
}

// remove deletes the first of some members; which tells them from the others.
func remove(o Observed, live, from []Member, which string) Decision {
	if len(from) == 0 {
		return Decision{}
	}
	var d Decision
	for _, m := range first(from) {
		d.Delete = append(d.Delete, m.target(m.surplus()))
	}
	d.Hold = waits(o, live)
	d.Why = fmt.Sprintf("delete %s%s: %d wanted, %d there", machines(len(d.Delete)), which, o.Replicas, len(live))
	return d
}

// remediation says which marked members go now, the ones that a person asked for first and then the newest, so that the
// proven ones stay longest; and why the others wait. A member that is being deleted holds its place until it is gone.
func remediation(o Observed, live []Member) (now []Member, later []said) {
	marked := list.Where(live, func(m Member) bool { return m.marked() && !m.protected() })
	slices.SortFunc(marked, func(a, b Member) int {
		return cmp.Or(list.FalseFirst(b.Urgent, a.Urgent), list.KnownFirst(b.Created, a.Created), cmp.Compare(a.Name, b.Name))
	})
	left := len(marked)
	if o.Remediation.Limited {
		left = o.Remediation.MaxInFlight - list.Count(o.Members, func(m Member) bool { return m.Deleting && m.marked() })
	}
	blocked := strings.Join(blockers(o), "; ")
	for _, m := range marked {
		switch {
		case o.Remediation.Outdated:
			later = append(later, said{m.Name, saysOutdated})
		case !ripe(o, m):
			later = append(later, said{m.Name, notYet(o)})
		case left <= 0:
			later = append(later, said{m.Name, fmt.Sprintf(saysTooMany, o.Remediation.MaxInFlight)})
		case blocked != "":
			later = append(later, said{m.Name, blocked})
			left--
		default:
			now = append(now, m)
			left--
		}
	}
	return now, later
}

// postponed says of the members that are to be replaced and stay for now why they do.
func postponed(o Observed, live []Member) []said {
	_, later := remediation(o, live)
	for _, m := range live {
		if m.toReplace() && !ripe(o, m) {
			later = append(later, said{m.Name, notYet(o)})
		}
	}
	return later
}

// toReplace reports whether a member failed and goes as soon as its time has come.
func (m Member) toReplace() bool { return m.Replace && !m.protected() }

// protected reports whether a member is deleted only when there is no other, or not at all.
func (m Member) protected() bool { return m.Preserved || m.Updated }

// marked reports whether the health check asks for another member in this one's place, and still finds it unhealthy.
func (m Member) marked() bool { return m.Marked && m.HealthCheck == False }

// ranking orders members by what is lost with them, the first to be deleted first:
//  1. those that are preserved on purpose come last of all; of these, those that the set itself kept, then those whose
//     time is over first
//  2. those with the annotation cluster.x-k8s.io/delete-machine
//  3. lower priority
//  4. those that the autoscaler chose, the longer ago the sooner
//  5. failed; then those whose creation keeps failing; under update; without a node; with an unhealthy one; the others
//  6. age, by the order that the set wants
//  7. name
//
// Ranks 1 and 3 to 5 are MCM's, 2, 5 and 6 Cluster API's. Neither a fresh machine nor one under update goes before one
// that failed. Under Random only healthy members are mixed; of the others the name decides, as it does of equals.
func ranking(order Order) func(a, b Member) int {
	return func(a, b Member) int {
		return cmp.Or(
			byPreservation(a, b),
			list.FalseFirst(b.DeleteFirst, a.DeleteFirst),
			cmp.Compare(a.Priority, b.Priority),
			list.KnownFirst(a.Chosen, b.Chosen),
			cmp.Compare(a.worth(), b.worth()),
			byOrder(order, a, b),
			cmp.Compare(a.Name, b.Name),
		)
	}
}

func byPreservation(a, b Member) int {
	if !a.Preserved || !b.Preserved {
		return list.FalseFirst(a.Preserved, b.Preserved)
	}
	return cmp.Or(list.FalseFirst(b.Kept, a.Kept), a.PreservedUntil.Compare(b.PreservedUntil))
}

// byOrder compares ages. One without a time of creation counts as the youngest.
func byOrder(order Order, a, b Member) int {
	switch order {
	case Oldest:
		return list.KnownFirst(a.Created, b.Created)
	case Random:
		if a.worth() == worthHealthy && !a.DeleteFirst {
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

// worth is what is lost with a machine of like priority: the place of its worst flaw. Less goes first.
func (m Member) worth() int {
	return slices.Index([]bool{
		m.Failed,
		m.Crashing,
		m.Updating,
		m.Node == NoNode && !m.Serves,
		m.Node == NodeUnhealthy || m.HealthCheck == False,
		true,
	}, true)
}

const worthHealthy = 5 // without a flaw

// Sick reports whether a member goes before any healthy one that is worth the same to people.
func (m Member) Sick() bool { return m.worth() < worthHealthy }

// surplus says why just this member goes.
func (m Member) surplus() string {
	return cmp.Or(
		phrase.If(m.DeleteFirst, "surplus: marked to be deleted first"),
		phrase.If(!m.Chosen.IsZero(), "surplus: the autoscaler chose it"),
		phrase.If(m.Failed, "surplus: failed"),
		fmt.Sprintf("surplus (priority %d, phase %s)", m.Priority, cmp.Or(m.Phase, "new")),
	)
}
