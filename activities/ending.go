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
	endingStep       = 8                      // an eighth of the usual time is added when the first look came too early, and taken off when not,
	endingKnown      = 32                     // or a 32nd once it is known about: then one look in five comes too early, and the others soon;
	endingSure       = 10                     // it is known until ten in a row did not: after a slow time it may be far off
	endingShare      = 10                     // or a tenth of the usual time, whichever is longer
	endingClasses    = 1000                   // classes whose times are remembered: more than a namespace has, and a few kilobytes
)

// endings remembers how long the instances of a class take to be gone, from the moment that the call was scheduled, so that
// the first look comes when there is something to see. It is a hint for one worker: losing it costs looks. The zero value
// is ready, and safe for concurrent use.
type endings struct {
	mu    sync.Mutex
	usual map[string]ending // by class
}

// ending is when to look first.
type ending struct {
	after time.Duration
	since time.Time // when this was learnt: who was scheduled before looked by another time, and teaches nothing
	sure  int       // first looks in a row that may still come late enough before it counts as not known
}

// gone notes that an instance was seen to be gone, at which attempt.
func (e *endings) gone(class string, scheduled, now time.Time, attempt int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	usual, known := e.usual[class]
	if attempt == 1 || scheduled.Before(usual.since) { // at the first attempt it was gone before, or has never been: that says nothing of the next
		return
	}
	if !known && len(e.usual) >= endingClasses {
		clear(e.usual)
	}
	took, next := now.Sub(scheduled), ending{usual.after, now, max(usual.sure-1, 0)}
	switch {
	case !known, took > 2*usual.after:
		next.after, next.sure = took-took/4, 0
	case attempt > 2+int32(usual.after/terminatingMost): // not at the first look
		next.after, next.sure = min(took, usual.after+usual.after/endingStep), endingSure
	case usual.sure > 0: // it may have been gone for long
		next.after -= usual.after / endingKnown
	default:
		next.after -= usual.after / endingStep
	}
	if e.usual == nil {
		e.usual = map[string]ending{}
	}
	e.usual[class] = next
}

// next says after how long to look again, so long after the call was scheduled.
func (e *endings) next(class string, since time.Duration, attempt int32) time.Duration {
	e.mu.Lock()
	last, known := e.usual[class]
	e.mu.Unlock()
	usual := last.after
	if known && since < usual {
		return min(max(usual-since, endingLeast), terminatingMost)
	}
	if known {
		return min(max(endingLeast, usual/endingShare, (since-usual)/2), terminatingMost)
	}
	after := terminatingRetry
	for range min(attempt-1, 20) {
		after += after / 2
	}
	return min(after, terminatingMost)
}

// over notes that the instance of the running activity is gone.
func (e *endings) over(ctx context.Context, class provider.Class) {
	info := activity.GetInfo(ctx)
	e.gone(class.Namespace+"/"+class.Name, info.ScheduledTime, time.Now(), info.Attempt)
}

// still makes Temporal run the activity again when the instance may be gone; it is no failure.
func (e *endings) still(ctx context.Context, class provider.Class, machine string) error {
	info := activity.GetInfo(ctx)
	after := e.next(class.Namespace+"/"+class.Name, time.Since(info.ScheduledTime), info.Attempt)
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("instance of machine %s is still terminating", machine), TypeTerminating,
		temporal.ApplicationErrorOptions{NextRetryDelay: after, Category: temporal.ApplicationErrorCategoryBenign})
}
