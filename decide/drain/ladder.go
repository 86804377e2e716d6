package drain

import (
	"fmt"
	"time"

	"millwright/decide/phrase"
)

// The times of the ladder.
const (
	// unusableFor is for how long a node has to be unusable until its pods are killed: their containers may be gone already,
	// and nobody confirms it. Source: MCM, 5 min for a node that is not Ready or has a read-only file system.
	unusableFor = 5 * time.Minute
	// perRetry is what one of maxEvictRetries is worth. Source: MCM's pause between two evictions of a pod.
	perRetry = 20 * time.Second
	// settling is what a deletion gets beyond the grace period. Source: what MCM adds to it when it waits for a pod to end.
	settling = 30 * time.Second
)

// Ladder is what decides which means a drain may use, at one moment.
type Ladder struct {
	Now     time.Time
	Started time.Time     // the first full pass of evictions; zero before it. All of a drain's time counts from here
	Timeout time.Duration // drainTimeout; zero and below means that one pass is enough
	Retries *int32        // maxEvictRetries where it is set: a second deadline of 20 s for each; nil sets none
	// Extended is until when an operator wants evictions to go on; zero: none does. It never shortens.
	Extended time.Time

	Force         string    // why everything is killed at once, in words; empty: nobody wants it
	Unusable      string    // why the node cannot confirm that a pod ended, in words; empty: it can
	UnusableSince time.Time // since when; zero counts as not unusable

	Grace time.Duration // the longest grace period of the pods that are left
	// Unasked: since this drain was taken up, nobody has looked at the pods. Whatever is next by time waits for one look, which
	// asks each of them by the means reached so far.
	Unasked   bool
	Reached   Means     // the means as it was recorded; empty before the first time
	ReachedAt time.Time // since when; zero counts as Now
}

// Step is the means of the moment.
type Step struct {
	Means Means
	Until time.Time // when to climb again; zero: no time ends it
	Over  bool      // no means is left. What is still there stays behind, and is reported as that
	Why   string    // since when, until when, and what comes then
}

// Climb says by which means pods go now: they are evicted until the drain's deadline, then deleted with their own grace,
// then killed, then left behind (D3). The deadline is reached whatever blocks, with no retries and a short timeout too
// (D1), and never before the timeout that was asked for (D39). A means that was reached is never given up, and one that was reached late,
// because nobody looked, has its full time.
func Climb(l Ladder) Step {
	if why := l.forced(); why != "" {
		return l.kill(why)
	}
	if l.Unasked && (l.Reached == Delete || l.Reached == Kill) {
		return Step{Means: l.Reached, Until: l.Now, Why: "looks at what is left first: nobody did since " + phrase.Clock(l.ReachedAt, l.Now)}
	}
	deadline, _ := l.deadline()
	switch passed := !deadline.IsZero() && !l.Now.Before(deadline); {
	case l.Reached == Kill:
		return l.kill("")
	case l.Reached == Delete, passed && !l.Unasked:
		return l.remove()
	case passed:
		return Step{Means: Evict, Until: l.Now, Why: "evicts once more, then deletes: nobody looked when the deadline passed"}
	default:
		return l.evict()
	}
}

// Overdue is how long after a deadline nothing may happen before that is reported. Source: a worker restarts in less.
const Overdue = time.Minute

// Deadlines is what the status of a machine says about the end of the present step of its deletion or drain.
type Deadlines struct {
	Ladder   *Ladder   // of the evictions that are under way; nil: no pods are being evicted
	Recorded time.Time // deadline of the step that the status shows; zero: it has none
}

// Next returns when the next, harder step comes; zero when none does. The end of evictions is calculated: the recorded deadline
// is that of the last write, and an operator may have extended the drain since.
func (d Deadlines) Next() time.Time {
	if until, _ := d.Evictions(); !until.IsZero() {
		return until
	}
	return d.Recorded
}

// Evictions returns until when pods are evicted, and the means that follows; both are zero when pods are not evicted, or are
// about to be killed because an operator asked for force. It climbs from the moment before the drain began, and so names the
// deadline also after it has passed. The condition of the node may be out of date: it does not count when the step that it
// leads to is overdue.
func (d Deadlines) Evictions() (until time.Time, then Means) {
	if d.Ladder == nil {
		return until, then
	}
	l := *d.Ladder
	now := l.Now
	l.Now = l.Started.Add(-1)
	step := Climb(l)
	if l.Force == "" && (step.Means != Evict || now.After(step.Until.Add(Overdue))) {
		l.Unusable = ""
		step = Climb(l)
	}
	if step.Means != Evict {
		return until, then
	}
	l.Now = step.Until
	return step.Until, Climb(l).Means
}

// forced says why everything is killed at once; empty when it is not.
func (l Ladder) forced() string {
	if at := l.unusableAt(); l.Force == "" && !at.IsZero() && !l.Now.Before(at) {
		return fmt.Sprintf("%s since %s", l.Unusable, phrase.Clock(l.UnusableSince, l.Now))
	}
	return l.Force
}

// unusableAt is when a node that is unusable has been so for long enough; zero when it is not.
func (l Ladder) unusableAt() time.Time {
	if l.Unusable == "" || l.UnusableSince.IsZero() {
		return time.Time{}
	}
	return l.UnusableSince.Add(unusableFor)
}

// deadline is when evictions end, and what says so. It is zero before the first pass.
func (l Ladder) deadline() (at time.Time, source string) {
	if l.Started.IsZero() {
		return at, ""
	}
	allowed, source := max(l.Timeout, 0), fmt.Sprintf("drainTimeout %s", max(l.Timeout, 0))
	if l.Retries != nil {
		// Compared before it is multiplied: the largest number of retries is more time than a Duration can hold.
		if retries := time.Duration(max(*l.Retries, 0)); retries <= allowed/perRetry && retries*perRetry < allowed {
			allowed, source = retries*perRetry, fmt.Sprintf("maxEvictRetries %d", retries)
		}
	}
	at = l.Started.Add(allowed)
	if l.Extended.After(at) {
		return l.Extended, "extended"
	}
	return at, source
}

func (l Ladder) evict() Step {
	until, source := l.deadline()
	step := Step{Means: Evict, Until: until}
	if at := l.unusableAt(); !at.IsZero() && (until.IsZero() || at.Before(until)) {
		step.Until = at
		step.Why = fmt.Sprintf("evicts until %s, then kills: %s since %s", l.clock(at), l.Unusable, l.clock(l.UnusableSince))
		return step
	}
	if step.Why = fmt.Sprintf("evicts until %s (%s), then deletes", l.clock(until), source); until.IsZero() {
		step.Why = fmt.Sprintf("evicts; drainTimeout %s begins with the first full pass", max(l.Timeout, 0))
	}
	return step
}

// remove deletes, as long as the pods that are left need to end by themselves, but no longer than the drain might take.
func (l Ladder) remove() Step {
	since := l.since(Delete)
	deadline, _ := l.deadline()
	until := phrase.Later(deadline, since).Add(max(min(l.Grace, l.Timeout), 0) + settling)
	if !l.Now.Before(until) {
		return l.kill("")
	}
	step := Step{Means: Delete, Until: until}
	step.Why = fmt.Sprintf("deletes since %s, until %s, then kills", l.clock(since), l.clock(until))
	if at := l.unusableAt(); !at.IsZero() && at.Before(until) {
		step.Until = at
		step.Why = fmt.Sprintf("deletes since %s, until %s, then kills: %s since %s", l.clock(since), l.clock(at), l.Unusable, l.clock(l.UnusableSince))
	}
	if l.Extended.After(l.Now) {
		step.Why += fmt.Sprintf("; the extension until %s came after the deadline, and nothing is evicted again", l.clock(l.Extended))
	}
	return step
}

func (l Ladder) kill(why string) Step {
	since := l.since(Kill)
	until := since.Add(settling)
	why = phrase.If(why != "", ": %s", why)
	if !l.Now.Before(until) {
		return Step{Means: Kill, Over: true, Why: fmt.Sprintf("over since %s: what is left stays behind%s", l.clock(until), why)}
	}
	why = fmt.Sprintf("kills since %s, until %s, then leaves behind what is left%s", l.clock(since), l.clock(until), why)
	return Step{Means: Kill, Until: until, Why: why}
}

// since is when a means was reached: now, unless it is recorded.
func (l Ladder) since(means Means) time.Time {
	if l.Reached == means && !l.ReachedAt.IsZero() {
		return l.ReachedAt
	}
	return l.Now
}

func (l Ladder) clock(t time.Time) string { return phrase.Clock(t, l.Now) }
