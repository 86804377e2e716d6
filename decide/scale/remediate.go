package scale

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Sentences about machines that are marked, as Cluster API words them.
const (
	saysDeleting = "Machine is deleting"
	saysOutdated = "Machine won't be remediated because it is pending removal due to rollout"
	saysTooMany  = "Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is %d)"
)

// said is what is to be said of one machine.
type said struct{ name, message string }

// remediate deletes members that are unhealthy and that the health check asks the set to replace.
func remediate(o Observed, live []Member) (Decision, bool) {
	now, _ := remediation(o, live)
	if len(now) == 0 {
		return Decision{}, false
	}
	now = first(now)
	d := Decision{
		Generations: record(o, now),
		Hold:        waits(o, live),
		Why:         fmt.Sprintf("delete %s marked unhealthy: %d wanted, %d there", machines(len(now)), o.Replicas, len(live)),
	}
	for _, m := range now {
		d.Remediate = append(d.Remediate, m.target("unhealthy, and marked to be replaced by its owner"))
	}
	return d, true
}

// remediation says which marked members go now, the ones that a person asked for first and then the newest, so that the
// proven ones stay longest; and why the others wait. A member that is being deleted holds its place until it is gone.
func remediation(o Observed, live []Member) (now []Member, later []said) {
	marked := slices.DeleteFunc(slices.Clone(live), func(m Member) bool { return !m.Marked || m.HealthCheck != False || m.protected() })
	slices.SortFunc(marked, func(a, b Member) int {
		return cmp.Or(boolean(b.Urgent, a.Urgent), byAge(b, a), cmp.Compare(a.Name, b.Name))
	})
	left := len(marked)
	if o.Remediation.Limited {
		left = o.Remediation.MaxInFlight - inFlight(o)
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

func inFlight(o Observed) int {
	n := 0
	for _, m := range o.Members {
		if m.Deleting && m.Marked && m.HealthCheck == False {
			n++
		}
	}
	return n
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

// unmark takes the wish off members that are healthy again.
func unmark(_ Observed, live []Member) (Decision, bool) {
	var d Decision
	for _, m := range live {
		if m.Marked && m.HealthCheck == True && len(d.Unmark) < MaxBatch {
			d.Unmark = append(d.Unmark, m.target("healthy again"))
		}
	}
	d.Why = fmt.Sprintf("take the mark off %s: healthy again", machines(len(d.Unmark)))
	return d, len(d.Unmark) > 0
}
