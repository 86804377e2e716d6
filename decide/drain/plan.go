package drain

import (
	"cmp"
	"slices"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
)

// view is what a decision makes of one pod that has to go.
type view struct {
	pod         Pod
	treat       Treatment
	state       string // as a row says it
	cause       cause  // what keeps it; zero when nothing does
	since, next time.Time
}

// cause is what keeps a pod from going.
type cause struct {
	kind, name, why string
	bad             bool
}

// plan is a decision while it is being made.
type plan struct {
	Observed
	views    []*view // of the pods that have to go, in the order in which they do
	skipped  int
	awaited  []awaited
	ledger   *ledger
	lanes    *lanes
	act      []Action
	earliest time.Time
}

// Decide says which pods go now, what keeps the others, and whether the node is empty. The same input gives the same
// output, in whatever order pods, budgets and departed pods stand. It may be called at any time and any number of times:
// a pod that was accepted or terminates is not sent again, except that Kill sends each pod once.
//
// With Evict, pods of the lowest order that is still present go, those with volumes one after the other in their lane, as
// budgets and protection allow. With Delete and Kill everything goes at once that does not stay for good.
func Decide(o Observed) Decision {
	p := &plan{Observed: o}
	for _, pod := range o.Pods {
		if t := Treat(pod); t.Do == Skip {
			p.skipped++
		} else {
			p.views = append(p.views, &view{pod: pod, treat: t})
		}
	}
	slices.SortFunc(p.views, func(a, b *view) int {
		return cmp.Or(cmp.Compare(a.treat.Order, b.treat.Order), cmp.Compare(b.pod.Priority, a.pod.Priority), byName(a.pod, b.pod))
	})
	if o.Means == Delete || o.Means == Kill {
		p.force()
	} else {
		p.evict()
	}
	all := p.blockers()
	d := Decision{
		Act: p.act, Done: len(p.views) == 0 && len(p.awaited) == 0, Look: p.earliest, Picture: p.picture(all),
	}
	d.Blockers = list.Sorted(list.Sorted(all, byImportance)[:min(len(all), MaxBlockers)], byKind)
	for _, a := range p.awaited {
		d.Departed = append(d.Departed, a.Departed)
	}
	return d
}

func (p *plan) evict() {
	p.awaited = settle(p.Observed)
	for _, a := range p.awaited {
		p.lookAt(a.until)
	}
	p.ledger = &ledger{now: p.Now, budgets: map[string]Budget{}, taken: map[string]int{}, probed: map[string]bool{}}
	for _, b := range p.Budgets {
		p.ledger.budgets[b.Key] = b
	}
	p.lanes = newLanes(p.views, p.awaited, p.Settings.Parallel)
	// The lowest order that is present, without finished pods: those hold nobody back, and have the lowest of all.
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

// try sends a pod whose turn it is, or says what keeps it. A pod that is blocked stays so while it is tried again: only
// an answer changes that. It does not hold its lane.
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
	case lane.busy, !permit.given && len(permit.probe) == 0 && permit.next.IsZero(): // then nothing but another status lets it go
		v.state = Blocked
	case p.due(v, phrase.Later(permit.next, v.pod.Tries.Next)):
		p.send(v, permit.probe)
		p.ledger.take(v.pod, permit)
		lane.busy = true
	case permit.given && v.pod.Tries.Result == Throttled:
		lane.busy = true // the API server is as busy for the others
	}
}

// force sends every pod that was not sent with this means yet.
func (p *plan) force() {
	for _, v := range p.views {
		tries, next := v.pod.Tries, time.Time{}
		again := tries.Means == p.Means
		if again {
			v.cause, next = answered(v.pod), tries.Next
		}
		switch {
		case p.Means == Kill && again && (tries.Result == Accepted || tries.Result == Gone), p.Means == Delete && v.pod.leaving():
			p.waitFor(v)
		case p.due(v, next):
			p.send(v, nil)
		}
	}
}

// due reports whether a pod is sent now. Else it waits until next.
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

// late is how long after the end of its grace period a terminating pod is one that something holds. Source: Karpenter
// takes a pod for stuck then.
const late = time.Minute

// waitFor waits for a pod that goes already.
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

// How long a pod is left alone after an answer. Whoever sends requests adds jitter.
const (
	// A budget refused it. The budget's own status decides when it is tried again; this only bounds what happens when status
	// and answer differ. Source: the API server's Retry-After for a budget that it is still counting, 10 s.
	refusedPause = 10 * time.Second
	// Several budgets select it. Somebody has to change one of them, and that is seen.
	severalPause = time.Minute
	// The API server was busy and did not say for how long, or for less. Source: kubectl drain's pause after a 429.
	throttledPause = 5 * time.Second
	// Its namespace is being deleted. That takes the pod along; trying again only notices when it does not.
	goingPause = 30 * time.Second
	// Failures in a row, doubled from the first to the last. Source: MCM looks again after 5 s; one minute is short compared
	// with any drain timeout.
	firstFailedPause   = 5 * time.Second
	longestFailedPause = time.Minute
)

// Answer is how a request for a pod ended.
type Answer struct {
	Means      Means // with which it was sent
	Result     Result
	Message    string        // for people
	RetryAfter time.Duration // what the API server asked for; zero when it asked for nothing
}

// After returns the tries with one more, which was answered now.
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

// pause is for how long a pod is left alone; zero where somebody else acts next.
func (a Answer) pause(failures int) time.Duration {
	return map[Result]time.Duration{
		Refused:   refusedPause,
		Several:   severalPause,
		Throttled: max(a.RetryAfter, throttledPause),
		Going:     goingPause,
		Failed:    min(firstFailedPause<<min(max(failures-1, 0), 10), longestFailedPause),
	}[a.Result]
}

// Woken returns the tries of a pod of which a budget has changed, in its status or because it came or went: what the
// budgets decided before does not hold any more.
func Woken(t Tries) Tries {
	if t.Result == Refused || t.Result == Several {
		t.Next = time.Time{}
	}
	return t
}
