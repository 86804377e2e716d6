package drain

import (
	"cmp"
	"fmt"
	"time"

	"millwright/decide/phrase"
)

// Ladder is what determines the means of a drain at one moment.
type Ladder struct {
	Now     time.Time
	Started time.Time     // the first full pass of evictions, from which all times of the drain count; zero: not yet
	Timeout time.Duration // drainTimeout; zero or less: one pass of evictions
	// Setting is the field that Timeout comes from; empty: drainTimeout. Endless: that field is not set, and evictions
	// have no end.
	Setting string
	Endless bool
	Retries *int32 // maxEvictRetries: evictions end after 20 s for each retry if that is before Timeout; nil: not set
	// Extended is until when an operator wants evictions; zero: no extension. It never shortens the drain.
	Extended time.Time

	Force         string    // why all pods are killed at once; empty: they are not
	Unusable      string    // why the node cannot confirm that a pod ended; empty: it can
	UnusableSince time.Time // zero: the node does not count as unusable
	// Lost: the provider no longer has the instance of a node that is Unusable. The pods are killed without the wait of
	// unusableFor.
	Lost bool
	// NoEviction is why the cluster of the node cannot evict pods; empty: it can, or that is not known.
	NoEviction string
	// Breaker is why pods are not killed although the node is Unusable: most nodes look dead at once, or, if the node is
	// Lost, the provider's answer is not believed. Empty: the node's state and the provider's answer are believed.
	Breaker string

	Grace time.Duration // longest grace period of the pods left
	// NoPassYet: this run of the drain has not made a pass over the pods yet. It makes one with the recorded means before it
	// climbs to the next means.
	NoPassYet bool
	Reached   Means     // recorded means; empty: none
	ReachedAt time.Time // when it was reached; zero counts as Now
}

// Step is the present means.
type Step struct {
	Means Means
	Until time.Time // when to decide again; zero: not by time
	Over  bool      // the last means has ended: remaining pods stay and are reported
	Why   string    // since when, until when, and the next means
}

// DecideStep returns the means for now: pods are evicted until the drain's deadline, then deleted with their own grace
// period, then killed, then left behind. If the cluster cannot evict, pods are deleted in order until the deadline.
// Nothing that blocks pods moves the deadline; only an operator can extend it. A means that was reached is kept. If it
// was reached late, because no run was active, it has its full time.
func DecideStep(l Ladder) Step {
	if why := l.Forced(); why != "" {
		return l.kill(why)
	}
	if l.NoPassYet && (l.Reached == Delete || l.Reached == Kill) {
		return Step{
			Means: l.Reached,
			Until: l.Now,
			Why:   "asks the remaining pods once more first: no run was active since " + phrase.Clock(l.ReachedAt, l.Now),
		}
	}
	deadline, _ := l.deadline()
	switch passed := !deadline.IsZero() && !l.Now.Before(deadline); {
	case l.Reached == Kill:
		return l.kill("")
	case l.Reached == Delete, passed && !l.NoPassYet:
		return l.remove()
	case passed:
		o := l.ordered()
		return Step{
			Means: o.means,
			Until: l.Now,
			Why:   o.does + " once more, then " + o.then + ": no run was active when the deadline passed" + o.because,
		}
	default:
		return l.evict()
	}
}

// Deadlines are the deadlines of the present step of a machine's deletion or drain.
type Deadlines struct {
	Ladder   *Ladder   // the ladder of the evictions in progress; nil: no pods are being evicted
	Recorded time.Time // deadline of the recorded step; zero: none
}

// Next returns when the next step begins by time; zero: never. The end of evictions is calculated, because an operator
// may have extended the drain since the deadline was recorded.
func (d Deadlines) Next() time.Time {
	if until, _ := d.EvictUntil(); !until.IsZero() {
		return until
	}
	return d.Recorded
}

// EvictUntil returns until when pods are evicted, or deleted in order, and the means that follows. Both are zero if pods
// are removed by another means, if evictions have no end, or if an operator asked for force. EvictUntil evaluates the
// ladder as of the moment before the drain began, so it returns the deadline even after the deadline has passed.
// Unusable may be out of date: it is ignored if the step that it causes is overdue.
func (d Deadlines) EvictUntil() (until time.Time, then Means) {
	if d.Ladder == nil {
		return until, then
	}
	l := *d.Ladder
	now := l.Now
	l.Now = l.Started.Add(-1)
	step := DecideStep(l)
	if l.Force == "" && (!step.Means.Ordered() || now.After(step.Until.Add(Overdue))) {
		l.Unusable = ""
		step = DecideStep(l)
	}
	if !step.Means.Ordered() || step.Until.IsZero() {
		return until, then
	}
	l.Now = step.Until
	return step.Until, DecideStep(l).Means
}

// Forced says why all pods are killed at once; empty: they are not.
func (l Ladder) Forced() string {
	if at := l.unusableAt(); l.Force == "" && !at.IsZero() && !l.Now.Before(at) {
		return fmt.Sprintf("%s since %s", l.Unusable, phrase.Clock(l.UnusableSince, l.Now))
	}
	return l.Force
}

// unusableAt returns from when the pods of an unusable node are killed: unusableFor after UnusableSince, or at
// UnusableSince if the node is Lost; zero: the node is usable. While the breaker is open, it returns when to ask the
// breaker again. The containers of a node that is only cut off, or about which the provider was asked with the wrong
// account, go on running.
func (l Ladder) unusableAt() time.Time {
	if l.Unusable == "" || l.UnusableSince.IsZero() {
		return time.Time{}
	}
	at := l.UnusableSince
	if !l.Lost {
		at = at.Add(unusableFor)
	}
	if l.Breaker != "" && !l.Now.Before(at) {
		at = at.Add(l.Now.Sub(at).Truncate(unusableFor) + unusableFor)
	}
	return at
}

// deadline returns when evictions end, and which setting says so. It is zero before the first pass, and if evictions
// have no end.
func (l Ladder) deadline() (at time.Time, source string) {
	if l.Started.IsZero() || l.Endless {
		return at, ""
	}
	allowed := max(l.Timeout, 0)
	source = cmp.Or(l.Setting, "drainTimeout") + " " + phrase.Length(allowed)
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

// ordered is the means until the deadline, with the words that describe it.
type ordered struct {
	means      Means
	does, then string
	because    string // why the means is not Evict; empty: it is Evict
}

// ordered returns the means until the deadline. A drain that has deleted in order does not evict later, even if the
// present worker does not know whether the API server can evict.
func (l Ladder) ordered() ordered {
	if l.NoEviction == "" && l.Reached != DeleteInOrder {
		return ordered{means: Evict, does: "evicts", then: "deletes"}
	}
	why := cmp.Or(l.NoEviction, "its cluster could not when the drain began")
	return ordered{
		means:   DeleteInOrder,
		does:    "deletes in order",
		then:    "deletes all at once",
		because: "; it cannot evict: " + why,
	}
}

func (l Ladder) evict() Step {
	until, source := l.deadline()
	o := l.ordered()
	step := Step{Means: o.means, Until: until}
	if at := l.unusableAt(); !at.IsZero() && (until.IsZero() || at.Before(until)) {
		step.Until = at
		step.Why = fmt.Sprintf(
			"%s until %s, then kills: %s since %s%s",
			o.does,
			l.clock(at),
			l.Unusable,
			l.clock(l.UnusableSince),
			o.because,
		)
		if l.Breaker != "" {
			step.Why = fmt.Sprintf(
				"%s%s, and kills no pod although %s since %s, which is looked at again at %s: %s%s",
				o.does,
				phrase.If(
					!until.IsZero(),
					" until %s (%s)",
					l.clock(until),
					source,
				),
				l.Unusable,
				l.clock(l.UnusableSince),
				l.clock(at),
				l.Breaker,
				o.because,
			)
		}
		return step
	}
	end := "until " + l.clock(until)
	if until.IsZero() && l.Endless {
		step.Why = fmt.Sprintf(
			"%s for as long as it takes (%s is not set)%s",
			o.does,
			cmp.Or(l.Setting, "drainTimeout"),
			o.because,
		)
		return step
	}
	if until.IsZero() { // its time begins when the first report is written
		l.Started = l.Now
		until, source = l.deadline()
		end = "for " + phrase.Length(until.Sub(l.Now))
	}
	step.Why = fmt.Sprintf("%s %s (%s), then %s%s", o.does, end, source, o.then, o.because)
	return step
}

// remove deletes pods until their longest grace period has passed, or the drain's timeout if that is shorter, and then
// afterGrace.
func (l Ladder) remove() Step {
	since := l.since(Delete)
	deadline, _ := l.deadline()
	grace := min(l.Grace, l.Timeout)
	if l.Endless {
		grace = l.Grace
	}
	until := phrase.Later(deadline, since).Add(max(grace, 0) + afterGrace)
	if !l.Now.Before(until) {
		return l.kill("")
	}
	step := Step{Means: Delete, Until: until}
	step.Why = fmt.Sprintf("deletes since %s, until %s, then kills", l.clock(since), l.clock(until))
	if at := l.unusableAt(); l.Breaker == "" && !at.IsZero() && at.Before(until) {
		step.Until = at
		step.Why = fmt.Sprintf(
			"deletes since %s, until %s, then kills: %s since %s",
			l.clock(since),
			l.clock(at),
			l.Unusable,
			l.clock(l.UnusableSince),
		)
	}
	if l.Extended.After(l.Now) {
		step.Why += fmt.Sprintf(
			"; the extension until %s came after the deadline, and nothing is evicted again",
			l.clock(l.Extended),
		)
	}
	return step
}

func (l Ladder) kill(why string) Step {
	since := l.since(Kill)
	until := since.Add(afterGrace)
	why = phrase.If(why != "", ": %s", why)
	if !l.Now.Before(until) {
		return Step{
			Means: Kill,
			Over:  true,
			Why:   fmt.Sprintf("over since %s: the remaining pods stay%s", l.clock(until), why),
		}
	}
	why = fmt.Sprintf("kills since %s, until %s, then leaves the remaining pods%s", l.clock(since), l.clock(until), why)
	return Step{Means: Kill, Until: until, Why: why}
}

// since returns when a means was reached; now, if it is not recorded.
func (l Ladder) since(means Means) time.Time {
	if l.Reached == means && !l.ReachedAt.IsZero() {
		return l.ReachedAt
	}
	return l.Now
}

func (l Ladder) clock(t time.Time) string { return phrase.Clock(t, l.Now) }
