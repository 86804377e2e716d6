package activities

import (
	"math"
	"time"

	"go.temporal.io/sdk/activity"

	"millwright/provider"
)

// recentFor is how long further looks at an instance that ends use the class and Secrets that their call has read, instead of two
// reads for each of them. Source: the longest time between two looks.
const recentFor = terminatingMost

// asking is a call that makes the cloud delete an instance, as this worker remembers it from one attempt to the next.
type asking struct {
	at    time.Time     // when the cloud was first asked, or this worker first heard of the call
	mine  bool          // this worker made the first attempt: it can be learnt from
	first time.Duration // so long after, to look first; zero when nobody knew
	share float64       // where nobody knew: how far between the earliest and the latest look by guess it looks, from 0 to 1
	tries bool          // that is less than the usual time, to learn whether it does
	due   time.Duration // so long after, the next look was asked for
	there time.Duration // the same of the last look that saw it
	early bool          // the first look saw it
	late  bool          // it was still there when all are gone

	class *provider.Class // with which the cloud obeyed; nil when that is too long ago. It never leaves the process
	read  time.Time       // when the class was read
}

// callOf names the running activity, whichever attempt it is.
func callOf(info activity.Info) string { return info.WorkflowExecution.RunID + "/" + info.ActivityID }

// ask returns what is remembered of the running call; from the first attempt on, that it began now. Where another worker made that,
// the time has to do at which this one first heard of it.
func (e *endings) ask(class string, info activity.Info) *asking {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a, known := e.asked[callOf(info)]; known && info.Attempt > 1 {
		return a
	}
	a := e.begin(class, time.Now(), info.Attempt == 1)
	if e.asked == nil || len(e.asked) >= endingCalls {
		e.asked = map[string]*asking{}
	}
	e.asked[callOf(info)] = a
	return a
}

// begin returns what is remembered of a call from its beginning on. Its caller holds the lock.
func (e *endings) begin(class string, now time.Time, mine bool) *asking {
	a := &asking{at: now, mine: mine}
	if mine {
		a.first, a.tries = e.first(class, now)
	}
	if a.first == 0 {
		_, a.share = math.Modf(float64(e.guesses) / math.Phi) // so any number of them are spread evenly
		e.guesses++
	}
	return a
}

// recent returns the class with which the cloud obeyed an earlier attempt of the running call a moment ago.
func (e *endings) recent(info activity.Info) (provider.Class, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, known := e.asked[callOf(info)]
	if !known || info.Attempt == 1 || a.class == nil || time.Since(a.read) > recentFor {
		return provider.Class{}, false
	}
	return *a.class, true
}

// keep remembers a class that was read for the running call, and with which the cloud did what it was asked. Credentials stay no longer
// than they are of use.
func (e *endings) keep(info activity.Info, class provider.Class, read time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, known := e.asked[callOf(info)]
	if !known {
		return
	}
	a.class, a.read = &class, read
	time.AfterFunc(recentFor, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if a.read.Equal(read) {
			a.class = nil
		}
	})
}

// forget drops the class of the running call: the cloud did not do what it was asked.
func (e *endings) forget(info activity.Info) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a, known := e.asked[callOf(info)]; known {
		a.class = nil
	}
}
