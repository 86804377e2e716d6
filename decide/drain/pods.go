package drain

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"millwright/decide/phrase"
)

// AfterProbe returns the Next of a budget after an eviction of one of its pods was sent. bad: the budget is
// misconfigured, or several budgets select the pod. Call it also after an eviction that the status allowed: until the
// status is updated, a probe would certainly be refused.
func AfterProbe(now time.Time, bad bool) time.Time {
	if bad {
		return now.Add(BadProbePause)
	}
	return now.Add(ProbePause)
}

// Misconfigured reports whether a budget can never allow an eviction: it needs as many healthy pods as there are pods
// (maxUnavailable 0, or minAvailable of all), or it is uncounted. A budget is not misconfigured if its status merely
// allows none now, is out of date, or counts evictions in progress.
func (b Budget) Misconfigured() bool {
	return b.Current && b.Allowed == 0 && b.Disrupted == 0 && (b.uncounted() || b.Expected > 0 && b.Desired >= b.Expected)
}

// uncounted reports whether a budget in percent, or with maxUnavailable, selects pods for which no controller says how
// many there should be. Source: the disruption controller of Kubernetes, and its event UnmanagedPods.
func (b Budget) uncounted() bool { return b.Expected == 0 && b.Healthy > 0 }

// spares reports whether the API server evicts a pod without counting it in this budget. Source: the eviction handler
// of the API server, for both values of unhealthyPodEvictionPolicy.
func (b Budget) spares(p Pod) bool {
	return !p.Ready && (b.Unhealthy || b.Healthy >= b.Desired && b.Desired > 0)
}

// Counts reports whether the eviction of a pod uses up one of this budget's allowed disruptions.
func (b Budget) Counts(p Pod) bool { return !p.Pending && !p.Finished && !b.spares(p) }

// allows returns how many evictions the status still allows.
func (b Budget) allows() int {
	if !b.Current {
		return 0
	}
	return max(b.Allowed-b.Used, 0)
}

// why says why a budget does not allow an eviction.
func (b Budget) why() string {
	name, healthy := "PodDisruptionBudget "+b.Key, phrase.Count(b.Healthy, "healthy pod")
	needs := fmt.Sprintf("%s needs %s and has %d", name, phrase.Count(b.Desired, "healthy pod"), b.Healthy)
	never := b.Misconfigured()
	return cmp.Or(
		phrase.If(!b.Current, "%s was changed, and its pods are not counted again yet", name),
		phrase.If(
			b.uncounted(),
			"%s allows none of its %s to go: it is in percent or a maximum, and no controller says how many pods there "+
				"should be; an integer minAvailable helps",
			name,
			healthy,
		),
		phrase.If(
			never && b.Healthy == 0,
			"%s allows none of its pods to go: it needs %d of %d, and none is healthy",
			name,
			b.Desired,
			b.Expected,
		),
		phrase.If(never, "%s allows none of its %s to go: it needs %d of %d", name, healthy, b.Desired, b.Expected),
		phrase.If(b.Allowed == 1, "%s; the one allowed eviction is in progress", needs),
		phrase.If(b.Allowed > 1, "%s; the %d allowed evictions are in progress", needs, b.Allowed),
		phrase.If(
			b.Disrupted > 0 && b.Healthy > b.Desired,
			"%s, of which %d %s being evicted",
			needs,
			b.Disrupted,
			phrase.OneOf(b.Disrupted, "is", "are"),
		),
		needs,
	)
}

// ledger counts what the budgets allow within one decision.
type ledger struct {
	now     time.Time
	budgets map[string]Budget
	taken   map[string]int  // by budget, number of evictions in this decision
	probed  map[string]bool // budgets with a probe in this decision
}

// permit is the answer of the budgets about one pod.
type permit struct {
	given bool
	cause cause     // why it is not given
	brief bool      // not given only because other evictions were just sent; the next status decides
	probe []string  // keys of its budgets, if the pod may be sent as a probe
	next  time.Time // earliest time of a probe; zero: not by time
}

// ask reports whether budgets allow the eviction of a pod. It allows an eviction whose budget is not known here: the
// API server decides.
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

// take counts the eviction of a pod that is sent now.
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

// The values of Treatment.Do, which are those of a drain rule.
const (
	Drain         = "Drain"
	Skip          = "Skip"          // the pod stays, whatever the means
	WaitCompleted = "WaitCompleted" // the drain waits until the pod completes
)

// Treatment is how a drain treats a pod.
type Treatment struct {
	Do    string // Drain, Skip or WaitCompleted
	Order int32  // pods of a lower order go first
}

// Treat returns the treatment of a pod. Its label takes precedence over drain rules. A finished pod is evicted before
// the others, without delaying them. A finished pod with WaitCompleted stays, because it has completed.
func Treat(p Pod) Treatment {
	t := wanted(p)
	switch {
	case p.Mirror, p.DaemonSet, p.Returned: // such a pod would come back
		return Treatment{Do: Skip}
	case !p.Finished || t.Do == Skip:
		return t
	case t.Do == WaitCompleted:
		return Treatment{Do: Skip}
	default:
		return Treatment{Do: Drain, Order: math.MinInt32}
	}
}

// wanted returns the treatment that the pod's label or its drain rule asks for.
func wanted(p Pod) Treatment {
	switch label := strings.ToLower(p.Label); {
	case label == "skip":
		return Treatment{Do: Skip}
	case label == "wait-completed":
		return Treatment{Do: WaitCompleted}
	case p.Rule == nil:
		return Treatment{Do: Drain}
	case p.Rule.Behavior == Drain:
		return Treatment{Do: Drain, Order: p.Rule.Order}
	case p.Rule.Behavior == Skip, p.Rule.Behavior == WaitCompleted:
		return Treatment{Do: p.Rule.Behavior}
	default: // admission rejects such a rule; the pod is drained, so that the node becomes empty
		return Treatment{Do: Drain}
	}
}

// leaving reports whether a pod is being removed, or is gone and still in the cache. The drain waits for such a pod.
func (p Pod) leaving() bool {
	return !p.DeletedAt.IsZero() || p.Tries.Accepted || p.Tries.Result == Gone
}

func (p Pod) key() string { return p.Namespace + "/" + p.Name }

func byName(a, b Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// Protected reports whether the annotation do-not-disrupt protects a pod from eviction now, and until when. A zero time
// means that the end is not known: the value is "true", or the pod has not started. Other values than "true" and a
// positive duration have no effect. A finished pod is not protected.
//
// The protection ends with the drain's deadline. After it pods are deleted all the same.
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
