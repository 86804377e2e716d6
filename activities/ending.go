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
	terminatingRetry = 230 * time.Millisecond // before the second look, and a quarter more each time, while nobody knows how long it takes;
	terminatingShare = 0.5                    // up to so much more for one of several: looked at all at once they would teach the same
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
	mu      sync.Mutex
	usual   map[string]ending  // by class
	asked   map[string]*asking // by call
	guesses int                // calls of which nobody knew how long they take
}

// ending is when to look first. What is known of it is a bracket, which one look at a time tries to narrow: who tries and comes too
// early looks a second time when all others look. Its times are those for which looks were asked, not at which they came: so it learns
// by how much they come late, too.
type ending struct {
	by   time.Duration // so long after, instances are gone
	not  time.Duration // so long after, one was still there
	try  time.Time     // until then, one that tries a shorter time is under way
	hits int           // looks in a row that saw what they expected
	bare bool          // it is known from looks by guess alone, and each further one may narrow it
}

// gone notes that a look of a call, at this attempt, saw that its instance is gone.
func (e *endings) gone(class string, a *asking, attempt int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, known := e.usual[class]
	switch {
	case attempt == 1 || !a.mine: // gone before, or never there; asked by another worker
	case known && a.first == 0:
		e.usual[class] = last.guessed(a.there, a.due)
	case known:
		e.usual[class] = last.taught(a)
	default:
		if e.usual == nil || len(e.usual) >= endingClasses {
			e.usual = map[string]ending{}
		}
		e.usual[class] = ending{by: a.due, not: a.there, bare: true}
	}
}

// guessed is what is known when one of those of which nobody knew anything was seen to be still there, or to be gone.
func (e ending) guessed(there, gone time.Duration) ending {
	if !e.bare {
		return e
	}
	e.by = min(e.by, gone)
	if there < e.by {
		e.not = max(e.not, there)
	}
	e.not = min(e.not, e.by)
	return e
}

// taught is what is known when one more instance was seen to be gone. Whoever tries a shorter time goes on trying, whatever others teach.
func (e ending) taught(a *asking) ending {
	hits := e.hits + 1
	e.hits, e.bare = 0, false
	switch {
	case a.due < e.by && a.due < a.first: // where looks come more often than that
		e.by, e.not = a.due, min(e.not, a.there)
	case a.late && a.due > 2*e.by: // one that was slow once makes nobody wait that long
		e.by, e.not = 2*e.by, e.by
	case a.late:
		e.by, e.not = max(e.by, min(a.due, e.by+e.by/endingRaise)), e.by
	case a.tries && a.first < e.by && !a.early:
		e.by, e.not = a.first, min(e.not, a.first)
	case hits >= endingSure:
		e.not = max(2*e.not-e.by-e.by/endingNear, 0)
	default:
		e.hits = hits
	}
	return e
}

// first says when to look first, so long after the cloud is asked, and whether that is to try a shorter time than the usual; zero when nobody
// knows. Its caller holds the lock.
func (e *endings) first(class string, now time.Time) (after time.Duration, tries bool) {
	last := e.usual[class]
	gap := last.by - last.not
	if gap <= last.by/endingNear || last.by <= endingLeast || !now.After(last.try) {
		return last.by, false
	}
	last.try = now.Add(last.by)
	e.usual[class] = last
	return last.by - gap/2, true
}

// next says after how long to look again at an instance that is still there so long after the cloud was asked.
func (e *endings) next(class string, since time.Duration, a *asking, attempt int32) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, known := e.usual[class]
	a.there = a.due
	if a.first > 0 && a.there >= a.first && !a.early {
		a.early = true
		if a.mine && a.first < last.by {
			last.not = max(last.not, a.first)
			e.usual[class] = last
		}
	}
	if known && a.mine && a.first == 0 {
		last = last.guessed(a.there, last.by)
		e.usual[class] = last
	}
	a.late = a.late || known && a.there >= last.by
	after := guess(attempt, a.share)
	if known {
		after = last.after(since, a)
	}
	after = min(after, terminatingMost)
	a.due = since + after
	return after
}

// guess is after how long to look again while nobody knows how long it takes.
func guess(attempt int32, share float64) time.Duration {
	after := terminatingRetry + time.Duration(share*terminatingShare*float64(terminatingRetry))
	for range min(attempt-1, 20) {
		after += after / 4
	}
	return after
}

// after is after how long to look again, so long after the cloud was asked.
func (e ending) after(since time.Duration, a *asking) time.Duration {
	until := e.by
	if a.there < a.first && a.first < e.by {
		until = a.first
	}
	if a.there < until {
		return max(until-since, endingLeast)
	}
	return max(endingLeast, e.by/endingShare, (since-e.by)/2)
}

// over notes that the instance of the running activity is gone.
func (e *endings) over(ctx context.Context, class provider.Class) {
	info := activity.GetInfo(ctx)
	if info.Attempt == 1 {
		return
	}
	name := class.Namespace + "/" + class.Name
	asked := e.ask(name, info)
	e.gone(name, asked, info.Attempt)
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
