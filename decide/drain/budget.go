package drain

import (
	"fmt"
	"strings"
	"time"
)

// How often one pod is tried although its budget's status allows none: the status that we see could be an old one. A
// request costs the API server little once a minute, even when many nodes are drained at once (P5).
const (
	ProbePause    = time.Minute
	BadProbePause = 5 * time.Minute // of a budget that cannot allow any: somebody has to change it, and that is seen
)

// AfterProbe is the Next of a budget of which a pod was tried now. It is bad when it is misconfigured, and so are all
// those of a pod that several select. It is the Next, too, of a budget that an eviction was sent for as it allowed: its status
// follows in a moment, and a probe before that is refused for certain.
func AfterProbe(now time.Time, bad bool) time.Time {
	if bad {
		return now.Add(BadProbePause)
	}
	return now.Add(ProbePause)
}

// Misconfigured reports whether a budget can never allow an eviction as it is: it needs as many healthy pods as there are
// pods at all (maxUnavailable 0, or minAvailable of all). That all its pods are healthy and none may go is no sign of it,
// nor is a status that is old, or that evictions are on their way.
func (b Budget) Misconfigured() bool {
	return b.Current && b.Expected > 0 && b.Allowed == 0 && b.Disrupted == 0 && b.Desired >= b.Expected
}

// spares reports whether the API server evicts a pod without asking this budget. Source: pods/eviction of the API server,
// with each of the two values of unhealthyPodEvictionPolicy.
func (b Budget) spares(p Pod) bool {
	return !p.Ready && (b.Unhealthy || b.Healthy >= b.Desired && b.Desired > 0)
}

// Counts reports whether the eviction of a pod uses something of this budget.
func (b Budget) Counts(p Pod) bool { return !p.Pending && !p.Finished && !b.spares(p) }

// allows is how many evictions the status still allows.
func (b Budget) allows() int {
	if !b.Current {
		return 0
	}
	return max(b.Allowed-b.Used, 0)
}

// why says why a budget does not let a pod go.
func (b Budget) why() string {
	name := "PodDisruptionBudget " + b.Key
	needs := fmt.Sprintf("%s needs %s and has %d", name, count(b.Desired, "healthy pod"), b.Healthy)
	switch {
	case !b.Current:
		return name + " was changed, and its pods are not counted again yet"
	case b.Misconfigured() && b.Healthy == 0:
		return fmt.Sprintf("%s allows none of its pods to go: it needs %d of %d, and none is healthy", name, b.Desired, b.Expected)
	case b.Misconfigured():
		return fmt.Sprintf("%s allows none of its %s to go: it needs %d of %d", name, count(b.Healthy, "healthy pod"), b.Desired, b.Expected)
	case b.Allowed > 0:
		return fmt.Sprintf("%s; the %s that may go %s going", needs, oneOf(b.Allowed, "one", fmt.Sprint(b.Allowed)), oneOf(b.Allowed, "is", "are"))
	case b.Disrupted > 0 && b.Healthy > b.Desired:
		return fmt.Sprintf("%s, of which %s going", needs, are(b.Disrupted))
	default:
		return needs
	}
}

// ledger is what the budgets allow within one decision.
type ledger struct {
	now     time.Time
	budgets map[string]Budget
	taken   map[string]int  // by budget, the evictions of this decision
	probed  map[string]bool // budgets that a pod is tried for
}

func newLedger(o Observed) *ledger {
	l := &ledger{now: o.Now, budgets: map[string]Budget{}, taken: map[string]int{}, probed: map[string]bool{}}
	for _, b := range o.Budgets {
		l.budgets[b.Key] = b
	}
	return l
}

// permit is what the budgets say of one pod.
type permit struct {
	given bool
	cause cause     // why it is not given
	brief bool      // it is not given only because others were just sent: the status will tell more
	probe []string  // the pod may be tried all the same; the keys of its budgets
	next  time.Time // when it may be tried; zero: not by time
}

// never reports whether nothing but another status lets the pod go.
func (p permit) never() bool { return !p.given && len(p.probe) == 0 && p.next.IsZero() }

// ask says whether a pod may be evicted as far as budgets go. A budget that is not known is left to the API server.
func (l *ledger) ask(p Pod) permit {
	if p.Pending || p.Finished || len(p.Budgets) == 0 {
		return permit{given: true}
	}
	if len(p.Budgets) > 1 {
		names := strings.Join(p.Budgets, " and ")
		why := fmt.Sprintf("PodDisruptionBudgets %s select the same pods: the API server evicts none of those", names)
		return l.probe(p, permit{cause: cause{kind: BlockedByBudget, name: names, why: why, bad: true}})
	}
	b, known := l.budgets[p.Budgets[0]]
	if !known || b.spares(p) || b.allows() > l.taken[b.Key] {
		return permit{given: true}
	}
	answer := permit{
		cause: cause{kind: BlockedByBudget, name: b.Key, why: b.why(), bad: b.Misconfigured()},
		brief: b.Current && b.Allowed > 0,
	}
	if b.allows() > 0 {
		return answer // the evictions of this very decision use it up
	}
	return l.probe(p, answer)
}

func (l *ledger) probe(p Pod, answer permit) permit {
	for _, key := range p.Budgets {
		if l.probed[key] {
			answer.next = time.Time{}
			return answer
		}
		answer.next = later(answer.next, l.budgets[key].Next)
	}
	if !answer.next.After(l.now) {
		answer.probe, answer.next = p.Budgets, time.Time{}
	}
	return answer
}

// take notes that a pod is sent.
func (l *ledger) take(p Pod, with permit) {
	for _, key := range with.probe {
		l.probed[key] = true
	}
	if p.Pending || p.Finished || len(p.Budgets) != 1 {
		return
	}
	if b := l.budgets[p.Budgets[0]]; !b.spares(p) {
		l.taken[b.Key]++
	}
}
