package drain

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"millwright/decide/phrase"
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
	name, healthy := "PodDisruptionBudget "+b.Key, phrase.Count(b.Healthy, "healthy pod")
	needs := fmt.Sprintf("%s needs %s and has %d", name, phrase.Count(b.Desired, "healthy pod"), b.Healthy)
	never := b.Misconfigured()
	return cmp.Or(
		phrase.If(!b.Current, "%s was changed, and its pods are not counted again yet", name),
		phrase.If(never && b.Healthy == 0, "%s allows none of its pods to go: it needs %d of %d, and none is healthy", name, b.Desired, b.Expected),
		phrase.If(never, "%s allows none of its %s to go: it needs %d of %d", name, healthy, b.Desired, b.Expected),
		phrase.If(b.Allowed == 1, "%s; the one that may go is going", needs),
		phrase.If(b.Allowed > 1, "%s; the %d that may go are going", needs, b.Allowed),
		phrase.If(b.Disrupted > 0 && b.Healthy > b.Desired, "%s, of which %d %s going", needs, b.Disrupted, phrase.OneOf(b.Disrupted, "is", "are")),
		needs,
	)
}

// ledger is what the budgets allow within one decision.
type ledger struct {
	now     time.Time
	budgets map[string]Budget
	taken   map[string]int  // by budget, the evictions of this decision
	probed  map[string]bool // budgets that a pod is tried for
}

// permit is what the budgets say of one pod.
type permit struct {
	given bool
	cause cause     // why it is not given
	brief bool      // it is not given only because others were just sent: the status will tell more
	probe []string  // the pod may be tried all the same; the keys of its budgets
	next  time.Time // when it may be tried; zero: not by time
}

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
		answer.next = phrase.Later(answer.next, l.budgets[key].Next)
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

// What is done with a pod. A drain rule uses the same words.
const (
	Drain         = "Drain"
	Skip          = "Skip"          // it stays, whatever the means
	WaitCompleted = "WaitCompleted" // it is not evicted, but waited for
)

// Treatment is what becomes of a pod.
type Treatment struct {
	Do    string // Drain, Skip or WaitCompleted
	Order int32  // pods of a lower order go first
	Why   string // empty for a pod that is drained like most
}

// Treat says what becomes of a pod, by what it is and by what its owner wants. The label beats rules. A finished pod is
// evicted before the others and holds none of them back; one that was to complete is done, and goes with the node.
func Treat(p Pod) Treatment {
	stays := cmp.Or(
		phrase.If(p.Mirror, "static pod"),
		phrase.If(p.DaemonSet, "pod of a DaemonSet"),
		phrase.If(p.Returned, "came after the drain began: it tolerates the cordon"),
	)
	t := wanted(p)
	switch {
	case stays != "":
		return Treatment{Do: Skip, Why: stays}
	case !p.Finished || t.Do == Skip:
		return t
	case t.Do == WaitCompleted:
		return Treatment{Do: Skip, Why: "completed"}
	default:
		return Treatment{Do: Drain, Order: math.MinInt32, Why: "finished"}
	}
}

// wanted is what the owner of a pod and the drain rules want.
func wanted(p Pod) Treatment {
	switch strings.ToLower(p.Label) {
	case "skip":
		return Treatment{Do: Skip, Why: "its label opts out"}
	case "wait-completed":
		return Treatment{Do: WaitCompleted, Why: "its label asks to let it complete"}
	}
	if p.Rule == nil {
		return Treatment{Do: Drain}
	}
	why := "drain rule " + p.Rule.Name
	switch p.Rule.Behavior {
	case Drain:
		return Treatment{Do: Drain, Order: p.Rule.Order, Why: why}
	case Skip, WaitCompleted:
		return Treatment{Do: p.Rule.Behavior, Why: why}
	default: // admission refuses such a rule; here the pod is drained like most, so that the node gets empty
		return Treatment{Do: Drain, Why: fmt.Sprintf("%s has the unknown behavior %q", why, p.Rule.Behavior)}
	}
}

// leaving reports whether a pod goes already, or is gone and still seen. Such a pod is waited for.
func (p Pod) leaving() bool {
	return !p.DeletedAt.IsZero() || p.Tries.Accepted || p.Tries.Result == Gone
}

func (p Pod) key() string { return p.Namespace + "/" + p.Name }

func byName(a, b Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// Protected reports whether the annotation do-not-disrupt protects a pod from eviction now, and until when. A zero end
// means that no end is known: the value is "true", or the pod has not started yet. Any other value than "true" and a
// positive duration protects nothing. A finished pod has nothing to protect.
//
// It holds for evictions only. Deletion comes when the drain's own deadline has passed, and ends all protection.
func Protected(p Pod, now time.Time) (protected bool, until time.Time) {
	length, err := time.ParseDuration(p.Protected)
	always, valid := p.Protected == "true", err == nil && length > 0
	if p.Finished || !always && !valid {
		return false, until
	}
	if always || p.Started.IsZero() {
		return true, until
	}
	until = p.Started.Add(length)
	return now.Before(until), until
}
