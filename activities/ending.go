package activities

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"millwright/provider"
)

// Times between two looks at an instance that is being deleted. Each look is two calls of the cloud and, where a call has not made two of
// the API server a moment ago, these besides; and a thousand machines may look at once.
const (
	terminatingRetry = 230 * time.Millisecond // before the second look, and half as much more each time, while nobody knows how long it takes
	terminatingMost  = 15 * time.Second       // never longer than this: one that was slow once makes nobody wait for the next
	endingLeast      = 100 * time.Millisecond // between two looks once the usual time is over: people do not notice less
	endingShare      = 10                     // or a tenth of the usual time, whichever is longer
	endingRaise      = 8                      // one that was slow adds an eighth to the usual time, and no more
	endingNear       = 16                     // the usual time is known to a sixteenth: that is for how long it is looked at too late
	endingSure       = 20                     // until so many more were gone by then: then one of them tries whether a shorter time does
	endingClasses    = 1000                   // classes whose times are remembered: more than a namespace has, and a few kilobytes
	endingCalls      = 10000                  // calls of which is remembered when the cloud was asked
)

// endings remembers how long the instances of a class take to be gone, from the moment that the cloud was first asked, so that the
// first look comes when there is something to see. It is a hint for one worker: losing it costs looks. The zero value
// is ready, and safe for concurrent use.
type endings struct {
	mu    sync.Mutex
	usual map[string]ending  // by class
	asked map[string]*asking // by call
}

// ending is when to look first. What is known of it is a bracket, which one look at a time tries to narrow: who tries and comes too
// early looks a second time when all others look.
type ending struct {
	by   time.Duration // so long after, instances are gone
	not  time.Duration // so long after, one was still there
	try  time.Time     // until then, one that tries a shorter time is under way
	hits int           // looks in a row that saw what they expected
}

// gone notes that the instance of a call was seen to be gone, so long after the cloud was asked and at which attempt. Times are learnt
// as they were asked for, so that looks which come late teach no longer ones.
func (e *endings) gone(class string, took time.Duration, a *asking, attempt int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, known := e.usual[class]
	if attempt == 1 || !a.mine || (known && a.first == 0) { // gone before, or never there; asked by another worker; looked at by guess
		return
	}
	if known {
		e.usual[class] = last.taught(took, a)
		return
	}
	last = ending{by: took}
	if attempt > 2 {
		last.not = took / 2 // about when it was looked at before
	}
	if e.usual == nil || len(e.usual) >= endingClasses {
		e.usual = map[string]ending{}
	}
	e.usual[class] = last
}

// taught is what is known when one more instance was seen to be gone.
func (e ending) taught(took time.Duration, a *asking) ending {
	switch {
	case took < e.by && took < a.first: // where looks come more often than that
		return ending{by: took, not: max(min(e.not, took-terminatingMost), 0)}
	case a.late && took > 2*e.by: // one that was slow once makes nobody wait that long
		return ending{by: 2 * e.by, not: e.by}
	case a.late:
		return ending{by: max(e.by, min(took, e.by+e.by/endingRaise)), not: e.by}
	case a.first < e.by && !a.early:
		return ending{by: a.first, not: min(e.not, a.first)}
	}
	if e.hits++; e.hits >= endingSure {
		e.hits, e.not = 0, max(2*e.not-e.by-e.by/endingNear, 0)
	}
	return e
}

// first says when to look first, so long after the cloud is asked; zero when nobody knows. Its caller holds the lock.
func (e *endings) first(class string, now time.Time) time.Duration {
	last := e.usual[class]
	gap := last.by - last.not
	if gap <= last.by/endingNear || last.by <= endingLeast || !now.After(last.try) {
		return last.by
	}
	last.try = now.Add(last.by)
	e.usual[class] = last
	return last.by - gap/2
}

// next says after how long to look again at an instance that is still there so long after the cloud was asked.
func (e *endings) next(class string, since time.Duration, a *asking, attempt int32) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, known := e.usual[class]
	if !known {
		after := terminatingRetry
		for range min(attempt-1, 20) {
			after += after / 2
		}
		return min(after, terminatingMost)
	}
	until := last.by
	if attempt > 1 && a.first > 0 && since >= a.first && !a.early {
		a.early = true
		if a.mine && a.first < last.by {
			last.not = max(last.not, a.first)
			e.usual[class] = last
		}
	}
	switch {
	case since < a.first && a.first < last.by:
		until = a.first
	case since >= last.by:
		a.late = true
	}
	if since < until {
		return min(max(until-since, endingLeast), terminatingMost)
	}
	return min(max(endingLeast, last.by/endingShare, (since-last.by)/2), terminatingMost)
}

// over notes that the instance of the running activity is gone.
func (e *endings) over(ctx context.Context, class provider.Class) {
	info := activity.GetInfo(ctx)
	if info.Attempt == 1 {
		return
	}
	name := class.Namespace + "/" + class.Name
	asked := e.ask(name, info)
	e.gone(name, time.Since(asked.at), asked, info.Attempt)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.asked, callOf(info))
}

// still makes Temporal run the activity again when the instance may be gone; it is no failure.
func (e *endings) still(ctx context.Context, class provider.Class, machine string) error {
	info := activity.GetInfo(ctx)
	name := class.Namespace + "/" + class.Name
	asked := e.ask(name, info)
	after := e.next(name, time.Since(asked.at), asked, info.Attempt)
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("instance of machine %s is still terminating", machine), TypeTerminating,
		temporal.ApplicationErrorOptions{NextRetryDelay: after, Category: temporal.ApplicationErrorCategoryBenign})
}
