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

// Times between two looks at an instance that is being deleted. Each look is two calls of the cloud and two reads of the API
// server, and a thousand machines may look at once.
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

// gone notes that an instance was seen to be gone, so long after the cloud was asked and at which attempt. Times are learnt as they
// were asked for, so that looks which come late teach no longer ones.
func (e *endings) gone(class string, took time.Duration, a asking, attempt int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, known := e.usual[class]
	if attempt == 1 { // it was gone before, or has never been: that says nothing of the next
		return
	}
	if !known && len(e.usual) >= endingClasses {
		clear(e.usual)
	}
	switch {
	case attempt == 2 && !known: // at the very first look
		last = ending{by: took}
	case !known, last.not >= last.by && took > 2*last.by:
		last = ending{by: took, not: took / 2} // about when it was looked at before
	case a.first < last.by && !a.early:
		last = ending{by: a.first, not: min(last.not, a.first)}
	case last.not >= last.by: // it took longer than usual
		last = ending{by: min(took, last.by+last.by/endingRaise), not: last.by}
	default:
		if last.hits++; last.hits >= endingSure {
			last.hits, last.not = 0, max(2*last.not-last.by-last.by/endingNear, 0)
		}
	}
	if e.usual == nil {
		e.usual = map[string]ending{}
	}
	e.usual[class] = last
}

// first says when to look first, so long after the cloud is asked; zero when nobody knows.
func (e *endings) first(class string, now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
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
	switch {
	case since < a.first && a.first < last.by:
		until = a.first
	case since < last.by:
		if !a.early && a.first < last.by && attempt > 1 {
			last.not, a.early = max(last.not, a.first), true
		}
	default:
		last.not = last.by
	}
	e.usual[class] = last
	if since < until {
		return min(max(until-since, endingLeast), terminatingMost)
	}
	return min(max(endingLeast, last.by/endingShare, (since-last.by)/2), terminatingMost)
}

// over notes that the instance of the running activity is gone.
func (e *endings) over(ctx context.Context, class provider.Class) {
	info := activity.GetInfo(ctx)
	name := class.Namespace + "/" + class.Name
	asked := e.ask(name, info)
	e.gone(name, time.Since(asked.at), *asked, info.Attempt)
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

// asking is a call that made the cloud delete an instance. Its attempts come one after the other.
type asking struct {
	at    time.Time     // when the cloud was first asked
	first time.Duration // so long after, to look first; zero when nobody knows
	early bool          // that look came too early
}

// callOf names the running activity, whichever attempt it is.
func callOf(info activity.Info) string { return info.WorkflowExecution.RunID + "/" + info.ActivityID }

// ask says when the cloud was first asked: now, at the first attempt. Where another worker asked it, the time at which the call
// was scheduled has to do.
func (e *endings) ask(class string, info activity.Info) *asking {
	e.mu.Lock()
	asked, known := e.asked[callOf(info)]
	e.mu.Unlock()
	switch {
	case known:
		return asked
	case info.Attempt > 1:
		return &asking{at: info.ScheduledTime}
	}
	now := time.Now()
	asked = &asking{at: now, first: e.first(class, now)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil || len(e.asked) >= endingCalls {
		e.asked = map[string]*asking{}
	}
	e.asked[callOf(info)] = asked
	return asked
}
