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
	pod                 Pod
	treatment           Treatment
	state               string // state of the pod's row in the picture
	cause               cause  // why the pod stays; zero: no cause
	stateSince, nextTry time.Time
}

// cause is the reason why a pod stays.
type cause struct {
	kind, name, why string
	needsPerson     bool
	blockerFrom     time.Time // when the cause begins to count as a blocker; zero: at once
	causeEnd        time.Time // when the cause ends without an event; zero: not by time
}

// plan is the working state of Decide.
type plan struct {
	Observed
	podStates      []*podState // pods to remove, in the order of removal
	skippedCount   int
	awaitedVolumes []awaitedVolume
	ledger         *budgetLedger
	lanes          *lanes
	actions        []Action
	nextLook       time.Time
}

// Decide returns which pods to remove now, what blocks the other pods, and whether the node is empty. The order of
// the observed facts does not matter. Callers may call Decide at any time and any number of times: a pod whose
// removal was accepted, or that terminates, gets no second request, except that Kill sends each pod one request.
//
// With Evict, pods of the lowest present order are removed, as budgets and do-not-disrupt allow; pods with volumes
// are removed one after the other in each lane. With DeleteInOrder the same rules apply without budgets. With Delete
// and Kill all pods are removed at once, except skipped pods.
func Decide(o Observed) Decision {
	p := &plan{Observed: o}
	for _, pod := range o.Pods {
		if o.Means == DeleteInOrder {
			pod.Budgets = nil // the API server checks no budget for a deletion
		}
		if t := Treat(pod); t.Do == Skip {
			p.skippedCount++
		} else {
			p.podStates = append(p.podStates, &podState{pod: pod, treatment: t})
		}
	}
	slices.SortFunc(p.podStates, func(a, b *podState) int {
		return cmp.Or(
			cmp.Compare(a.treatment.Order, b.treatment.Order),
			cmp.Compare(b.pod.Priority, a.pod.Priority),
			byName(a.pod, b.pod),
		)
	})
	if o.Means == Delete || o.Means == Kill {
		p.requestDeletions()
	} else {
		p.requestEvictions()
	}
	all := p.listBlockers(false)
	d := Decision{
		Act:     p.actions,
		Done:    len(p.podStates) == 0 && len(p.awaitedVolumes) == 0,
		Look:    p.nextLook,
		Picture: p.buildPicture(p.listBlockers(true)),
	}
	d.Blockers = list.Sorted(list.Sorted(all, byImportance)[:min(len(all), MaxBlockers)], byKind)
	d.Departed = limitDeparted(list.Map(p.awaitedVolumes, func(a awaitedVolume) Departed { return a.Departed }))
	return d
}

func (p *plan) requestEvictions() {
	p.awaitedVolumes = awaitedVolumes(p.Observed)
	for _, a := range p.awaitedVolumes {
		p.setNextLook(a.waitEnd)
		p.setNextLook(a.waitStart().Add(slowVolumeAfter))
	}
	p.ledger = &budgetLedger{
		now:            p.Now,
		budgets:        map[string]Budget{},
		evictionCounts: map[string]int{},
		probedBudgets:  map[string]bool{},
	}
	for _, b := range p.Budgets {
		p.ledger.budgets[b.Key] = b
	}
	p.lanes = newLanes(p.podStates, p.awaitedVolumes, p.Settings.Parallel)
	// The first pod of the lowest present order. Finished pods, which have order MinInt32, are left out: they do not
	// delay other pods.
	first := cmp.Or(list.Find(p.podStates, func(v *podState) bool { return !v.pod.Finished }), &podState{})
	for _, v := range p.podStates {
		switch {
		case v.pod.isLeaving():
			p.awaitRemoval(v)
		case v.treatment.Order > first.treatment.Order:
			v.state = Waiting
		case v.treatment.Do == WaitCompleted:
			v.state, v.cause = Blocked, cause{kind: BlockedByWork}
		default:
			p.tryPod(v)
		}
	}
}

// tryPod sends a request for a pod whose turn has come, or sets what blocks the pod. A blocked pod stays Blocked during
// its retries until the API server's answer changes. Between retries the pod does not keep its lane busy.
func (p *plan) tryPod(v *podState) {
	if protected, until := Protected(v.pod, p.Now); protected {
		v.state, v.cause, v.nextTry = Blocked, cause{kind: BlockedByProtection}, until
		p.setNextLook(until)
		return
	}
	permit, lane := p.ledger.permitFor(v.pod), p.lanes.laneOf(v.pod)
	if v.cause = permit.cause; permit.isGiven {
		v.cause = causeOfAnswer(v.pod)
	}
	switch {
	case lane.isBusy && (v.cause == (cause{}) || permit.isTemporary):
		v.state, v.cause = Waiting, lane.cause
	case lane.isBusy, !permit.isGiven && len(permit.probeBudgets) == 0 && permit.nextProbe.IsZero():
		// only a new status of the budget can allow the eviction
		v.state = Blocked
	case p.scheduleRequest(v, phrase.Later(permit.nextProbe, v.pod.Tries.Next)):
		p.addAction(v, permit.probeBudgets)
		p.ledger.countEviction(v.pod, permit)
		lane.isBusy = true
	case permit.isGiven && v.pod.Tries.Result == Throttled:
		lane.isBusy = true // the API server is busy for the other pods of the lane, too
	}
}

// requestDeletions sends a request for every pod for which no request with the present means was sent.
func (p *plan) requestDeletions() {
	for _, v := range p.podStates {
		tries, next := v.pod.Tries, time.Time{}
		again := tries.Means == p.Means
		if again {
			v.cause, next = causeOfAnswer(v.pod), tries.Next
		}
		switch {
		case p.Means == Kill && again && (tries.Result == Accepted || tries.Result == Gone),
			p.Means == Delete && v.pod.isLeaving():
			p.awaitRemoval(v)
		case p.scheduleRequest(v, next):
			p.addAction(v, nil)
		}
	}
}

// scheduleRequest reports whether the request for a pod is sent now. A pod whose request is not sent now waits until
// next.
func (p *plan) scheduleRequest(v *podState, next time.Time) bool {
	now := !next.After(p.Now)
	switch {
	case v.cause != (cause{}):
		v.state = Blocked
	case now:
		v.state, v.stateSince = Evicting, p.Now
	default:
		v.state = Waiting
	}
	if !now {
		v.nextTry = next
		p.setNextLook(next)
	}
	return now
}

func (p *plan) addAction(v *podState, probe []string) {
	p.actions = append(p.actions, Action{UID: v.pod.UID, Means: cmp.Or(p.Means, Evict), Probe: probe})
}

// awaitRemoval sets the state of a pod whose removal was accepted or has begun.
func (p *plan) awaitRemoval(v *podState) {
	v.state, v.stateSince, v.cause = Evicting, v.pod.Tries.Last, cause{}
	if v.pod.DeletedAt.IsZero() {
		return
	}
	v.state = Terminating
	if !v.pod.Tries.Accepted {
		v.stateSince = v.pod.DeletedAt.Add(-v.pod.Grace)
	}
	overdue := v.pod.DeletedAt.Add(stuckAfter)
	if p.setNextLook(overdue); !overdue.After(p.Now) {
		v.cause = cause{kind: BlockedByEnding}
	}
}

func (p *plan) setNextLook(t time.Time) {
	if t.After(p.Now) && (p.nextLook.IsZero() || t.Before(p.nextLook)) {
		p.nextLook = t
	}
}

// Answer is the API server's answer to a request for a pod.
type Answer struct {
	Means      Means // means of the request
	Result     Result
	Message    string        // message of the API server in the answer
	RetryAfter time.Duration // pause that the API server requested; zero: none
}

// AfterAttempt returns the tries after one more attempt that was answered at time now.
func AfterAttempt(t Tries, a Answer, now time.Time) Tries {
	if t.Means != a.Means || a.Result != Failed {
		t.Failures = 0
	}
	t.Attempts++
	t.Last, t.Means, t.Result, t.Message, t.Next = now, a.Means, a.Result, a.Message, time.Time{}
	t.Accepted = t.Accepted || a.Result == Accepted
	if a.Result == Failed {
		t.Failures++
	}
	if pause := a.retryPause(t.Failures); pause > 0 {
		t.Next = now.Add(pause)
	}
	return t
}

// retryPause returns the pause before the next request; zero: no pause, because no retry is needed.
func (a Answer) retryPause(failures int) time.Duration {
	return map[Result]time.Duration{
		Refused:   refusedPause,
		Several:   severalBudgetsPause,
		Throttled: max(a.RetryAfter, throttledPause),
		Going:     namespacePause,
		Failed:    min(firstFailedPause<<min(max(failures-1, 0), 10), longestFailedPause),
	}[a.Result]
}

// EndPause returns the tries of a pod after one of its budgets was changed, created or deleted: a pause after a refusal
// ends.
func EndPause(t Tries) Tries {
	if t.Result == Refused || t.Result == Several {
		t.Next = time.Time{}
	}
	return t
}
