package kube

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"millwright/decide/phrase"
)

// DecisionTime returns the time for decisions about deadlines. DecisionTime is the workflow's time, because the clock
// of a worker may be minutes ahead or behind. If the workflow passes no time, DecisionTime returns the worker's own
// time.
func (r ReadInput) DecisionTime() time.Time {
	if r.At.IsZero() {
		return time.Now()
	}
	return r.At
}

// TimeToRecord returns the time that a write records. TimeToRecord returns the later of the workflow's time and the
// start of the attempt, because decisions of other workers read the record. A regular activity may be retried for
// hours, so the workflow's time may be hours old when an attempt writes. In a local activity, TimeToRecord returns
// Time, because the server reports no start time for a local activity.
func (r ReadInput) TimeToRecord(ctx context.Context) time.Time {
	if info := activity.GetInfo(ctx); !info.IsLocalActivity {
		return phrase.LaterTime(r.At, info.StartedTime)
	}
	return r.DecisionTime()
}

// Clock is the clock of the Temporal server during one attempt of a regular activity.
type Clock struct {
	serverStart time.Time // start of the attempt, by the server's clock
	localStart  time.Time // start of the attempt, by this worker's clock; used only to measure elapsed time
}

// NewServerClock returns the clock of an attempt. Call NewServerClock when the attempt begins. In a local activity, the
// clock is the clock of the worker.
func NewServerClock(ctx context.Context) Clock {
	return Clock{activity.GetInfo(ctx).StartedTime, time.Now()}
}

// Now returns the server's time. Now is never ahead of the server's time. Now is behind the server's time by the delay
// between the start on the server and the start on the worker.
func (c Clock) Now() time.Time { return c.serverStart.Add(time.Since(c.localStart)) }
