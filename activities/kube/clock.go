package kube

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"millwright/decide/phrase"
)

// Time returns the time for which a decision about deadlines is made: the workflow's time, because the clock of a
// worker may be minutes ahead or behind. It is the worker's own time if the workflow does not say its time.
func (r Read) Time() time.Time {
	if r.At.IsZero() {
		return time.Now()
	}
	return r.At
}

// Stamp returns the time that a write records: the workflow's time too, because decisions of other workers read it. A
// regular activity may be retried for hours, after which the write would be older than what it records. So the start of
// the attempt counts if it is later. The server says that start for regular activities only.
func (r Read) Stamp(ctx context.Context) time.Time {
	if info := activity.GetInfo(ctx); !info.IsLocalActivity {
		return phrase.Later(r.At, info.StartedTime)
	}
	return r.Time()
}

// Clock tells the time of the server of Temporal during one attempt of a regular activity.
type Clock struct {
	started time.Time // by the server
	begun   time.Time // the same moment by this worker; only what has passed since then is used
}

// ServerClock returns the clock of an attempt. Call it when the attempt begins. A local activity gets the clock of its
// worker.
func ServerClock(ctx context.Context) Clock {
	return Clock{activity.GetInfo(ctx).StartedTime, time.Now()}
}

// Now returns the time. It is late by what the attempt took from the server to the worker, and never early.
func (c Clock) Now() time.Time { return c.started.Add(time.Since(c.begun)) }
