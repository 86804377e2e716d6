package drain

import (
	"cmp"
	"slices"
	"time"
)

// view is what a decision makes of one pod that has to go.
type view struct {
	pod   Pod
	treat Treatment
	state string // as a row says it
	cause cause  // what keeps it; zero when nothing does
	since time.Time
	next  time.Time
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
	p := newPlan(o)
	switch o.Means {
	case Delete, Kill:
		p.force()
	default:
		p.evict()
	}
	return p.decision()
}

func newPlan(o Observed) *plan {
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
	return p
}

func (p *plan) evict() {
	p.awaited = settle(p.Observed)
	for _, a := range p.awaited {
		p.lookAt(a.until)
	}
	p.ledger = newLedger(p.Observed)
	p.lanes = newLanes(p.views, p.awaited, p.Settings.Parallel)
	wave := lowestOrder(p.views)
	for _, v := range p.views {
		switch {
		case v.pod.leaving():
			p.waitFor(v)
		case v.treat.Order > wave:
			v.state = Waiting
		case v.treat.Do == WaitCompleted:
			v.state, v.cause = Blocked, cause{kind: BlockedByWork}
		default:
			p.try(v)
		}
	}
}

// lowestOrder is the lowest order that is present, without finished pods: those hold nobody back, and have the lowest of all.
func lowestOrder(views []*view) (lowest int32) {
	i := slices.IndexFunc(views, func(v *view) bool { return !v.pod.Finished })
	if i >= 0 {
		lowest = views[i].treat.Order
	}
	return lowest
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
	case lane.isBusy() && (v.cause == (cause{}) || permit.brief):
		v.state, v.cause = Waiting, lane.cause
	case lane.isBusy(), permit.never():
		v.state = Blocked
	case p.due(v, later(permit.next, v.pod.Tries.Next)):
		p.send(v, permit.probe)
		p.ledger.take(v.pod, permit)
		lane.enter()
	case permit.given && v.pod.Tries.Result == Throttled:
		lane.enter() // the API server is as busy for the others
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

func (p *plan) decision() Decision {
	d := Decision{
		Act:  p.act,
		Done: len(p.views) == 0 && len(p.awaited) == 0,
		Look: p.earliest,
	}
	for _, a := range p.awaited {
		d.Departed = append(d.Departed, a.Departed)
	}
	all := p.blockers()
	d.Blockers = mostImportant(all)
	d.Picture = p.picture(all)
	return d
}
