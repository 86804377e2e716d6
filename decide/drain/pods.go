package drain

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"millwright/decide/phrase"
)

// NextProbeTime returns the time of a budget's next probe (DisruptionBudget.Next), after an eviction of one of its pods
// was sent. bad means that the budget is misconfigured, or that several budgets select the pod. Call NextProbeTime also
// after an eviction that the status allowed, because the API server refuses each probe until the status is updated.
func NextProbeTime(now time.Time, bad bool) time.Time {
	if bad {
		return now.Add(MisconfiguredProbePause)
	}
	return now.Add(ProbePause)
}

// IsMisconfigured reports whether a budget can never allow an eviction. Either the budget requires as many healthy pods
// as there are pods (maxUnavailable 0, or minAvailable of all), or selectsUnmanagedPods is true. A budget is not
// misconfigured if it only allows no eviction now, if its status is out of date, or if it counts evictions in progress.
func (b DisruptionBudget) IsMisconfigured() bool {
	return b.IsUpToDate && b.DisruptionsAllowed == 0 && b.DisruptedCount == 0 &&
		(b.selectsUnmanagedPods() || b.ExpectedPods > 0 && b.DesiredHealthy >= b.ExpectedPods)
}

// selectsUnmanagedPods reports whether a budget in percent, or with maxUnavailable, selects pods without a controller
// that defines the expected number of pods. Source: Kubernetes' disruption controller, which reports such pods with the
// event UnmanagedPods.
func (b DisruptionBudget) selectsUnmanagedPods() bool {
	return b.ExpectedPods == 0 && b.CurrentHealthy > 0
}

// exemptsPod reports whether the API server evicts a pod without counting the eviction in this budget. Source: the
// eviction handler of the API server, for both values of unhealthyPodEvictionPolicy.
func (b DisruptionBudget) exemptsPod(p Pod) bool {
	return !p.Ready && (b.AlwaysAllowsUnhealthy || b.CurrentHealthy >= b.DesiredHealthy && b.DesiredHealthy > 0)
}

// CountsPod reports whether the eviction of a pod uses up one of this budget's allowed disruptions.
func (b DisruptionBudget) CountsPod(p Pod) bool { return !p.Pending && !p.Finished && !b.exemptsPod(p) }

// remainingEvictions returns how many more evictions the budget's status allows.
func (b DisruptionBudget) remainingEvictions() int {
	if !b.IsUpToDate {
		return 0
	}
	return max(b.DisruptionsAllowed-b.SentEvictions, 0)
}

// denialReason returns why a budget does not allow an eviction.
func (b DisruptionBudget) denialReason() string {
	name, healthy := "PodDisruptionBudget "+b.Key, phrase.CountText(b.CurrentHealthy, "healthy pod")
	needs := fmt.Sprintf(
		"%s needs %s and has %d",
		name,
		phrase.CountText(b.DesiredHealthy, "healthy pod"),
		b.CurrentHealthy,
	)
	never := b.IsMisconfigured()
	return cmp.Or(
		phrase.TextIf(!b.IsUpToDate, "%s was changed, and its pods are not counted again yet", name),
		phrase.TextIf(
			b.selectsUnmanagedPods(),
			"%s allows none of its %s to go: it is in percent or a maximum, and no controller says how many pods there "+
				"should be; an integer minAvailable helps",
			name,
			healthy,
		),
		phrase.TextIf(
			never && b.CurrentHealthy == 0,
			"%s allows none of its pods to go: it needs %d of %d, and none is healthy",
			name,
			b.DesiredHealthy,
			b.ExpectedPods,
		),
		phrase.TextIf(
			never,
			"%s allows none of its %s to go: it needs %d of %d",
			name,
			healthy,
			b.DesiredHealthy,
			b.ExpectedPods,
		),
		phrase.TextIf(b.DisruptionsAllowed == 1, "%s; the one allowed eviction is in progress", needs),
		phrase.TextIf(b.DisruptionsAllowed > 1, "%s; the %d allowed evictions are in progress", needs, b.DisruptionsAllowed),
		phrase.TextIf(
			b.DisruptedCount > 0 && b.CurrentHealthy > b.DesiredHealthy,
			"%s, of which %d %s being evicted",
			needs,
			b.DisruptedCount,
			phrase.SingularOrPlural(b.DisruptedCount, "is", "are"),
		),
		needs,
	)
}

// budgetLedger counts the evictions of one decision against the budgets.
type budgetLedger struct {
	now            time.Time
	budgets        map[string]DisruptionBudget
	evictionCounts map[string]int  // number of evictions in this decision, by key of the budget
	probedBudgets  map[string]bool // budgets with a probe in this decision, by key
}

// evictionPermit contains whether the budgets allow the eviction of one pod.
type evictionPermit struct {
	isGranted bool
	cause     blockCause // why the eviction is not allowed
	// the budget is used up only by evictions that were just sent, and the budget's next status may allow more
	isTemporary    bool
	budgetsToProbe []string  // keys of the pod's budgets if a probe may be sent for the pod
	nextProbe      time.Time // earliest time of a probe; zero: not determined by time
}

// permitForPod returns whether budgets allow the eviction of a pod. An eviction is allowed if the cache does not
// contain the pod's budget, because the API server decides in any case.
func (l *budgetLedger) permitForPod(p Pod) evictionPermit {
	if p.Pending || p.Finished || len(p.Budgets) == 0 {
		return evictionPermit{isGranted: true}
	}
	if len(p.Budgets) > 1 {
		names := strings.Join(p.Budgets, " and ")
		why := fmt.Sprintf("PodDisruptionBudgets %s select the same pods: the API server evicts none of those", names)
		return l.permitProbe(
			p,
			evictionPermit{cause: blockCause{kind: BlockedByBudget, name: names, why: why, needsPerson: true}},
		)
	}
	b, known := l.budgets[p.Budgets[0]]
	if !known || b.exemptsPod(p) || b.remainingEvictions() > l.evictionCounts[b.Key] {
		return evictionPermit{isGranted: true}
	}
	answer := evictionPermit{
		cause:       blockCause{kind: BlockedByBudget, name: b.Key, why: b.denialReason(), needsPerson: b.IsMisconfigured()},
		isTemporary: b.IsUpToDate && b.DisruptionsAllowed > 0,
	}
	if b.remainingEvictions() > 0 {
		return answer // the evictions of this decision use up the budget
	}
	return l.permitProbe(p, answer)
}

func (l *budgetLedger) permitProbe(p Pod, answer evictionPermit) evictionPermit {
	for _, key := range p.Budgets {
		if l.probedBudgets[key] {
			answer.nextProbe = time.Time{}
			return answer
		}
		answer.nextProbe = phrase.LaterTime(answer.nextProbe, l.budgets[key].NextProbe)
	}
	if !answer.nextProbe.After(l.now) {
		answer.budgetsToProbe, answer.nextProbe = p.Budgets, time.Time{}
	}
	return answer
}

// countEviction counts the eviction of a pod that is sent now.
func (l *budgetLedger) countEviction(p Pod, with evictionPermit) {
	for _, key := range with.budgetsToProbe {
		l.probedBudgets[key] = true
	}
	if p.Pending || p.Finished || len(p.Budgets) != 1 {
		return
	}
	if b := l.budgets[p.Budgets[0]]; !b.exemptsPod(p) {
		l.evictionCounts[b.Key]++
	}
}

// The values of PodTreatment.Do, which equal the behaviors of a drain rule.
const (
	BehaviorDrain         = "Drain"
	BehaviorSkip          = "Skip"          // no means removes the pod
	BehaviorWaitCompleted = "WaitCompleted" // the drain waits until the pod completes
)

// PodTreatment is how a drain treats a pod.
type PodTreatment struct {
	Behavior string // Drain, Skip or WaitCompleted
	Order    int32  // pods of a lower order are removed first
}

// TreatmentOfPod returns the treatment of a pod. The pod's label takes precedence over drain rules. A finished pod is
// evicted before the other pods, and does not delay them. A finished pod with WaitCompleted stays, because the pod has
// completed.
func TreatmentOfPod(p Pod) PodTreatment {
	t := requestedTreatment(p)
	switch {
	case p.Mirror, p.DaemonSet, p.Returned: // its controller, or the kubelet, would create the pod again on this node
		return PodTreatment{Behavior: BehaviorSkip}
	case !p.Finished || t.Behavior == BehaviorSkip:
		return t
	case t.Behavior == BehaviorWaitCompleted:
		return PodTreatment{Behavior: BehaviorSkip}
	default:
		return PodTreatment{Behavior: BehaviorDrain, Order: math.MinInt32}
	}
}

// requestedTreatment returns the treatment that the pod's label or drain rule sets.
func requestedTreatment(p Pod) PodTreatment {
	switch label := strings.ToLower(p.Label); {
	case label == "skip":
		return PodTreatment{Behavior: BehaviorSkip}
	case label == "wait-completed":
		return PodTreatment{Behavior: BehaviorWaitCompleted}
	case p.Rule == nil:
		return PodTreatment{Behavior: BehaviorDrain}
	case p.Rule.Behavior == BehaviorDrain:
		return PodTreatment{Behavior: BehaviorDrain, Order: p.Rule.Order}
	case p.Rule.Behavior == BehaviorSkip, p.Rule.Behavior == BehaviorWaitCompleted:
		return PodTreatment{Behavior: p.Rule.Behavior}
	default: // admission rejects such a rule; the pod is drained, because the node must become empty
		return PodTreatment{Behavior: BehaviorDrain}
	}
}

// isLeaving reports whether a pod is being removed, or is gone but still in the cache. The drain waits for a leaving
// pod.
func (p Pod) isLeaving() bool {
	return !p.DeletedAt.IsZero() || p.Tries.Accepted || p.Tries.Result == ResultPodGone
}

func (p Pod) key() string { return p.Namespace + "/" + p.Name }

func comparePodsByName(a, b Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// IsProtected reports whether the annotation do-not-disrupt protects a pod from eviction now, and until when. A zero
// time means that the end is not known: the value is "true", or the pod has not started. Values other than "true"
// and a positive duration have no effect. A finished pod is not protected.
//
// The protection ends at the drain's deadline: Delete and Kill ignore the annotation.
func IsProtected(p Pod, now time.Time) (protected bool, until time.Time) {
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
