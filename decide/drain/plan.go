package drain

import (
	"cmp"
	"slices"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// view is the state of one pod to remove, during a decision.
type view struct {
	pod         Pod
	treat       Treatment
	state       string // state of its row
	cause       cause  // why it stays; zero: no cause
	since, next time.Time
}

// cause is why a pod stays.
type cause struct {
	kind, name, why string
	bad             bool
	from            time.Time // when the cause begins to count as a blocker; zero: at once
	until           time.Time // when the cause ends by itself, whatever else happens; zero: not by itself
}

// plan is a decision while it is being made.
type plan struct {
	Observed
	views    []*view // pods to remove, in the order in which they go
	skipped  int
	awaited  []awaited
	ledger   *ledger
	lanes    *lanes
	act      []Action
	earliest time.Time
}

// Decide says which pods to remove now, what blocks the others, and whether the node is empty. The same facts in any
// order give the same decision. It is safe to call at any time and any number of times: a pod whose removal was
// accepted, or that terminates, gets no other request, except that Kill sends each pod one request.
//
// With Evict, pods of the lowest order present go, pods with volumes one after the other in their lane, as budgets and
// protection allow. With DeleteInOrder the same holds without budgets. With Delete and Kill all pods go at once, except
// those that are skipped.
func Decide(o Observed) Decision {
	p := &plan{Observed: o}
	for _, pod := range o.Pods {
		if o.Means == DeleteInOrder {
			pod.Budgets = nil // the API server asks no budget about a deletion
		}
		if t := Treat(pod); t.Do == Skip {
			p.skipped++
		} else {
			p.views = append(p.views, &view{pod: pod, treat: t})
		}
	}
	slices.SortFunc(p.views, func(a, b *view) int {
		return cmp.Or(
			cmp.Compare(a.treat.Order, b.treat.Order),
			cmp.Compare(b.pod.Priority, a.pod.Priority),
			byName(a.pod, b.pod),
		)
	})
	if o.Means == Delete || o.Means == Kill {
		p.force()
	} else {
		p.evict()
	}
	all := p.blockers(false)
	d := Decision{
		Act: p.act, Done: len(p.views) == 0 && len(p.awaited) == 0, Look: p.earliest, Picture: p.picture(p.blockers(true)),
	}
	d.Blockers = list.Sorted(list.Sorted(all, byImportance)[:min(len(all), MaxBlockers)], byKind)
	d.Departed = fitting(list.Map(p.awaited, func(a awaited) Departed { return a.Departed }))
	return d
}

func (p *plan) evict() {
	p.awaited = awaitedVolumes(p.Observed)
	for _, a := range p.awaited {
		p.lookAt(a.until)
		p.lookAt(a.since().Add(slowVolume))
	}
	p.ledger = &ledger{now: p.Now, budgets: map[string]Budget{}, taken: map[string]int{}, probed: map[string]bool{}}
	for _, b := range p.Budgets {
		p.ledger.budgets[b.Key] = b
	}
	p.lanes = newLanes(p.views, p.awaited, p.Settings.Parallel)
	// The lowest order present. Finished pods, which have the lowest order of all, are left out: they delay no other pod.
	first := cmp.Or(list.Find(p.views, func(v *view) bool { return !v.pod.Finished }), &view{})
	for _, v := range p.views {
		switch {
		case v.pod.leaving():
			p.waitFor(v)
		case v.treat.Order > first.treat.Order:
			v.state = Waiting
		case v.treat.Do == WaitCompleted:
			v.state, v.cause = Blocked, cause{kind: BlockedByWork}
		default:
			p.try(v)
		}
	}
}

// try sends a request for a pod whose turn it is, or says what blocks the pod. A blocked pod stays Blocked while it is
// tried again, until an answer changes that. Between these tries the pod does not keep its lane busy.
func (p *plan) try(v *view) {
	if protected, until := Protected(v.pod, p.Now); protected {
		v.state, v.cause, v.next = Blocked, cause{kind: BlockedByProtection}, until
		p.lookAt(until)
		return
	}
	permit, lane := p.ledger.ask(v.pod), p.lanes.of(v.pod)
	if v.cause = permit.cause; permit.given {
		v.cause = answered(v.pod)
	}
	switch {
	case lane.busy && (v.cause == (cause{}) || permit.brief):
		v.state, v.cause = Waiting, lane.cause
	case lane.busy, !permit.given && len(permit.probe) == 0 && permit.next.IsZero():
		// only another status of its budget can allow it
		v.state = Blocked
	case p.due(v, phrase.Later(permit.next, v.pod.Tries.Next)):
		p.send(v, permit.probe)
		p.ledger.take(v.pod, permit)
		lane.busy = true
	case permit.given && v.pod.Tries.Result == Throttled:
		lane.busy = true // the API server is busy for the other pods, too
	}
}

// force sends a request for every pod that had none with these means yet.
func (p *plan) force() {
	for _, v := range p.views {
		tries, next := v.pod.Tries, time.Time{}
		again := tries.Means == p.Means
		if again {
			v.cause, next = answered(v.pod), tries.Next
		}
		switch {
		case p.Means == Kill && again && (tries.Result == Accepted || tries.Result == Gone),
			p.Means == Delete && v.pod.leaving():
			p.waitFor(v)
		case p.due(v, next):
			p.send(v, nil)
		}
	}
}

// due reports whether the request for a pod is sent now. Otherwise the pod waits until next.
func (p *plan) due(v *view, next time.Time) bool {
	now := !next.After(p.Now)
	switch {
	case v.cause != (cause{}):
		v.state = Blocked
	case now:
		v.state, v.since = Evicting, p.Now
	default:
		v.state = Waiting
	}
	if !now {
		v.next = next
		p.lookAt(next)
	}
	return now
}

func (p *plan) send(v *view, probe []string) {
	p.act = append(p.act, Action{UID: v.pod.UID, Means: cmp.Or(p.Means, Evict), Probe: probe})
}

// waitFor waits for a pod whose removal was accepted or has begun.
func (p *plan) waitFor(v *view) {
	v.state, v.since, v.cause = Evicting, v.pod.Tries.Last, cause{}
	if v.pod.DeletedAt.IsZero() {
		return
	}
	v.state = Terminating
	if !v.pod.Tries.Accepted {
		v.since = v.pod.DeletedAt.Add(-v.pod.Grace)
	}
	overdue := v.pod.DeletedAt.Add(late)
	if p.lookAt(overdue); !overdue.After(p.Now) {
		v.cause = cause{kind: BlockedByEnding}
	}
}

func (p *plan) lookAt(t time.Time) {
	if t.After(p.Now) && (p.earliest.IsZero() || t.Before(p.earliest)) {
		p.earliest = t
	}
}

// Answer is the answer to a request for a pod.
type Answer struct {
	Means      Means // means of the request
	Result     Result
	Message    string        // of the API server
	RetryAfter time.Duration // pause that the API server asked for; zero: none
}

// After returns the tries with one more attempt, which was answered now.
func After(t Tries, a Answer, now time.Time) Tries {
	if t.Means != a.Means || a.Result != Failed {
		t.Failures = 0
	}
	t.Attempts++
	t.Last, t.Means, t.Result, t.Message, t.Next = now, a.Means, a.Result, a.Message, time.Time{}
	t.Accepted = t.Accepted || a.Result == Accepted
	if a.Result == Failed {
		t.Failures++
	}
	if pause := a.pause(t.Failures); pause > 0 {
		t.Next = now.Add(pause)
	}
	return t
}

// pause returns the pause before the next request; zero: none, because somebody else acts next.
func (a Answer) pause(failures int) time.Duration {
	return map[Result]time.Duration{
		Refused:   refusedPause,
		Several:   severalPause,
		Throttled: max(a.RetryAfter, throttledPause),
		Going:     goingPause,
		Failed:    min(firstFailedPause<<min(max(failures-1, 0), 10), longestFailedPause),
	}[a.Result]
}

// Woken returns the tries of a pod after one of its budgets changed, was created or was deleted: earlier refusals no
// longer count.
func Woken(t Tries) Tries {
	if t.Result == Refused || t.Result == Several {
		t.Next = time.Time{}
	}
	return t
}
