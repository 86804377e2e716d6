package drain

import (
	"cmp"
	"slices"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// podState is the state of one pod to remove, during a decision.
type podState struct {
	pod                         Pod
	treatment                   PodTreatment
	state                       string     // state of the pod's row in the Overview
	cause                       blockCause // why the pod stays; zero: no cause
	stateSince, nextRequestTime time.Time
}

// blockCause is the reason why a pod stays.
type blockCause struct {
	kind, name, why string
	needsPerson     bool
	blockerStart    time.Time // when the cause begins to count as a blocker; zero: at once
	causeEnd        time.Time // when the cause ends by time alone; zero: it does not end by time
}

// drainPlan is the working state of Decide.
type drainPlan struct {
	Facts
	podStates        []*podState // pods to remove, in the order of removal
	skippedCount     int
	awaitedVolumes   []awaitedVolume
	ledger           *budgetLedger
	sequences        *removalSequences
	actions          []Action
	nextDecisionTime time.Time
}

// Decide returns which pods to remove now, what blocks the other pods, and whether the node is empty. The order of the
// observed facts does not matter. Callers may call Decide at any time, and repeatedly. A pod that terminates, or whose
// removal was accepted, gets no second request; only Kill sends one more request to each pod.
//
// With Evict, Decide removes the pods of the lowest order on the node, as far as budgets and do-not-disrupt allow. Pods
// with volumes are removed one after the other in each lane. With DeleteInOrder the same rules apply without budgets.
// With Delete and Kill all pods are removed at once, except skipped pods.
func Decide(o Facts) Decision {
	p := &drainPlan{Facts: o}
	for _, pod := range o.Pods {
		if o.Means == MeansDeleteInOrder {
			pod.Budgets = nil // the API server checks no budget for a deletion
		}
		if t := TreatmentOfPod(pod); t.Behavior == BehaviorSkip {
			p.skippedCount++
		} else {
			p.podStates = append(p.podStates, &podState{pod: pod, treatment: t})
		}
	}
	slices.SortFunc(p.podStates, func(a, b *podState) int {
		return cmp.Or(
			cmp.Compare(a.treatment.Order, b.treatment.Order),
			cmp.Compare(b.pod.Priority, a.pod.Priority),
			comparePodsByName(a.pod, b.pod),
		)
	})
	if o.Means == MeansDelete || o.Means == MeansKill {
		p.addDeletionRequests()
	} else {
		p.addEvictionRequests()
	}
	all := p.listBlockers(false)
	d := Decision{
		Act:     p.actions,
		Done:    len(p.podStates) == 0 && len(p.awaitedVolumes) == 0,
		Look:    p.nextDecisionTime,
		Picture: p.buildOverview(p.listBlockers(true)),
	}
	d.Blockers = list.SortedCopy(
		list.SortedCopy(all, compareBlockersByImportance)[:min(len(all), MaxBlockers)],
		compareBlockersByKind,
	)
	d.Departed = limitDepartedPods(list.Map(p.awaitedVolumes, func(a awaitedVolume) DepartedPod { return a.DepartedPod }))
	return d
}

func (p *drainPlan) addEvictionRequests() {
	p.awaitedVolumes = awaitedVolumes(p.Facts)
	for _, a := range p.awaitedVolumes {
		p.lowerNextDecisionTime(a.waitEnd)
		p.lowerNextDecisionTime(a.waitStart().Add(slowVolumeAfter))
	}
	p.ledger = &budgetLedger{
		now:            p.Now,
		budgets:        map[string]DisruptionBudget{},
		evictionCounts: map[string]int{},
		probedBudgets:  map[string]bool{},
	}
	for _, b := range p.Budgets {
		p.ledger.budgets[b.Key] = b
	}
	p.sequences = newRemovalSequences(p.podStates, p.awaitedVolumes, p.Settings.Parallel)
	// Find the first pod of the lowest order on the node. Finished pods, which have order MinInt32, are left out,
	// because they do not delay other pods.
	first := cmp.Or(list.FindFirst(p.podStates, func(v *podState) bool { return !v.pod.Finished }), &podState{})
	for _, v := range p.podStates {
		switch {
		case v.pod.isLeaving():
			p.markPodLeaving(v)
		case v.treatment.Order > first.treatment.Order:
			v.state = StateWaiting
		case v.treatment.Behavior == BehaviorWaitCompleted:
			v.state, v.cause = StateBlocked, blockCause{kind: BlockedByCompletion}
		default:
			p.tryEviction(v)
		}
	}
}

// tryEviction sends a request for a pod whose turn has come, or records what blocks the pod. A blocked pod stays
// Blocked during its retries until the API server's answer changes. Between retries the pod does not keep its lane
// busy.
func (p *drainPlan) tryEviction(v *podState) {
	if protected, until := IsProtected(v.pod, p.Now); protected {
		v.state, v.cause, v.nextRequestTime = StateBlocked, blockCause{kind: BlockedByProtection}, until
		p.lowerNextDecisionTime(until)
		return
	}
	permit, lane := p.ledger.permitForPod(v.pod), p.sequences.sequenceOfPod(v.pod)
	if v.cause = permit.cause; permit.isGranted {
		v.cause = causeFromLastAnswer(v.pod)
	}
	switch {
	case lane.isBusy && (v.cause == (blockCause{}) || permit.isTemporary):
		v.state, v.cause = StateWaiting, lane.cause
	case lane.isBusy, !permit.isGranted && len(permit.budgetsToProbe) == 0 && permit.nextProbe.IsZero():
		// only a new status of the budget can allow the eviction
		v.state = StateBlocked
	case p.sendsRequestNow(v, phrase.LaterTime(permit.nextProbe, v.pod.Tries.Next)):
		p.addAction(v, permit.budgetsToProbe)
		p.ledger.countEviction(v.pod, permit)
		lane.isBusy = true
	case permit.isGranted && v.pod.Tries.Result == ResultThrottled:
		lane.isBusy = true // the API server is also busy for the other pods of the lane
	}
}

// addDeletionRequests sends a request for every pod that got no request with the current means yet.
func (p *drainPlan) addDeletionRequests() {
	for _, v := range p.podStates {
		tries, next := v.pod.Tries, time.Time{}
		again := tries.Means == p.Means
		if again {
			v.cause, next = causeFromLastAnswer(v.pod), tries.Next
		}
		switch {
		case p.Means == MeansKill && again && (tries.Result == ResultAccepted || tries.Result == ResultPodGone),
			p.Means == MeansDelete && v.pod.isLeaving():
			p.markPodLeaving(v)
		case p.sendsRequestNow(v, next):
			p.addAction(v, nil)
		}
	}
}

// sendsRequestNow reports whether the request for a pod is sent now. A pod whose request is not sent now waits until
// the time `next`.
func (p *drainPlan) sendsRequestNow(v *podState, next time.Time) bool {
	now := !next.After(p.Now)
	switch {
	case v.cause != (blockCause{}):
		v.state = StateBlocked
	case now:
		v.state, v.stateSince = StateEvicting, p.Now
	default:
		v.state = StateWaiting
	}
	if !now {
		v.nextRequestTime = next
		p.lowerNextDecisionTime(next)
	}
	return now
}

func (p *drainPlan) addAction(v *podState, probe []string) {
	p.actions = append(p.actions, Action{UID: v.pod.UID, Means: cmp.Or(p.Means, MeansEvict), Probe: probe})
}

// markPodLeaving sets the state of a pod whose removal was accepted or has begun.
func (p *drainPlan) markPodLeaving(v *podState) {
	v.state, v.stateSince, v.cause = StateEvicting, v.pod.Tries.Last, blockCause{}
	if v.pod.DeletedAt.IsZero() {
		return
	}
	v.state = StateTerminating
	if !v.pod.Tries.Accepted {
		v.stateSince = v.pod.DeletedAt.Add(-v.pod.Grace)
	}
	overdue := v.pod.DeletedAt.Add(stuckPodAfter)
	if p.lowerNextDecisionTime(overdue); !overdue.After(p.Now) {
		v.cause = blockCause{kind: BlockedByTermination}
	}
}

func (p *drainPlan) lowerNextDecisionTime(t time.Time) {
	if t.After(p.Now) && (p.nextDecisionTime.IsZero() || t.Before(p.nextDecisionTime)) {
		p.nextDecisionTime = t
	}
}

// RequestAnswer is the API server's answer to a request for a pod.
type RequestAnswer struct {
	Means      RemovalMeans // means of the request
	Result     RequestResult
	Message    string        // message of the API server in the answer
	RetryAfter time.Duration // pause that the API server requested; zero: none
}

// RequestRecordAfterAnswer returns the tries after one more attempt, whose answer arrived at the time now.
func RequestRecordAfterAnswer(t RequestRecord, a RequestAnswer, now time.Time) RequestRecord {
	if t.Means != a.Means || a.Result != ResultFailed {
		t.Failures = 0
	}
	t.Attempts++
	t.Last, t.Means, t.Result, t.Message, t.Next = now, a.Means, a.Result, a.Message, time.Time{}
	t.Accepted = t.Accepted || a.Result == ResultAccepted
	if a.Result == ResultFailed {
		t.Failures++
	}
	if pause := a.retryPause(t.Failures); pause > 0 {
		t.Next = now.Add(pause)
	}
	return t
}

// retryPause returns the pause before the next request; zero: no pause, because no retry is needed.
func (a RequestAnswer) retryPause(failures int) time.Duration {
	return map[RequestResult]time.Duration{
		ResultRefused:           refusedPause,
		ResultSeveralBudgets:    severalBudgetsPause,
		ResultThrottled:         max(a.RetryAfter, throttledPause),
		ResultNamespaceDeleting: namespaceDeletingPause,
		ResultFailed:            min(firstFailurePause<<min(max(failures-1, 0), 10), longestFailurePause),
	}[a.Result]
}

// RequestRecordWithoutPause ends the pause after a refusal, because one of the pod's budgets was changed, created or
// deleted.
func RequestRecordWithoutPause(t RequestRecord) RequestRecord {
	if t.Result == ResultRefused || t.Result == ResultSeveralBudgets {
		t.Next = time.Time{}
	}
	return t
}
