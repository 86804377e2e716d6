package drain

import (
	"cmp"
	"fmt"
	"time"

	"millwright/decide/phrase"
)

// EscalationFacts holds the facts that determine the means of a drain at one moment.
type EscalationFacts struct {
	Now time.Time
	// time of the first full pass of evictions, from which the drain's timeouts count; zero: no pass yet
	Started time.Time
	Timeout time.Duration // drainTimeout; if zero or less, pods are evicted in one pass and then deleted
	// Setting is the name of the field that holds the timeout; empty: drainTimeout. Endless means that the field is not
	// set, so that evictions have no deadline.
	Setting string
	Endless bool
	// maxEvictRetries: evictions end after 20 s per retry, or after Timeout if that is earlier; nil: not set
	Retries *int32
	// Extended is the later deadline of evictions that an operator has requested; zero: none. Extended never shortens
	// the drain.
	Extended time.Time

	// Unanswered is why the cluster of the node does not answer; empty: it answers. A cluster that does not answer removes
	// no pod, so no timeout of the drain ends.
	Unanswered string
	// Absent is the time since Started in which the cluster was not connected, and AbsentInMeans the time since ReachedAt.
	// These times extend the timeouts of the drain.
	Absent, AbsentInMeans time.Duration

	Force         string    // why all pods are killed at once; empty: no force
	Unusable      string    // why the node cannot confirm that a pod ended; empty: the node can
	UnusableSince time.Time // since when the node is unusable; zero: the node does not count as unusable
	// Lost means that the provider has no instance for the unusable node. The pods of a lost node are killed without
	// waiting for unusableNodeTimeout.
	Lost bool
	// NoEviction is why the node's cluster cannot evict pods; empty: the cluster can, or this is not known.
	NoEviction string
	// Breaker is why pods are not killed although the node is Unusable. Either most nodes look dead at once, or the
	// provider's answer that the node is Lost is not trusted. If empty, the node's state and the provider's answer are
	// trusted.
	Breaker string

	Grace time.Duration // longest grace period of the remaining pods
	// NoPassYet means that this run of the drain has not tried to remove any pod yet. The run tries each pod once with
	// the recorded means before the drain changes to the next means.
	NoPassYet bool
	Reached   RemovalMeans // recorded means; empty: none is recorded
	ReachedAt time.Time    // when the means Reached began; zero: Now
}

// Step is the present means of a drain.
type Step struct {
	Means RemovalMeans
	Until time.Time // when to call DecideStep again; zero: not determined by time
	Over  bool      // the time of the last means has ended, so the remaining pods stay, and the drain reports them
	Why   string    // since when and until when the means is used, and the next means
}

// DecideStep returns the present means. Pods are evicted until the drain's deadline, then deleted with their own grace
// period, then killed, then left on the node. If the cluster cannot evict, pods are deleted in order until the
// deadline. Only an operator can extend the deadline. A drain never returns from a recorded means to an earlier means.
// If a means began late because no run was active, it still gets its full time. While the node's cluster does not
// answer, the drain waits, until an operator forces it.
func DecideStep(l EscalationFacts) Step {
	if l.Unanswered != "" {
		return l.awaitClusterStep()
	}
	if why := l.ForceReason(); why != "" {
		return l.killStep(why)
	}
	if l.NoPassYet && (l.Reached == MeansDelete || l.Reached == MeansKill) {
		return Step{
			Means: l.Reached,
			Until: l.Now,
			Why:   "asks the remaining pods once more first: no run was active since " + phrase.ClockText(l.ReachedAt, l.Now),
		}
	}
	deadline, _ := l.evictionDeadline()
	switch passed := !deadline.IsZero() && !l.Now.Before(deadline); {
	case l.Reached == MeansKill:
		return l.killStep("")
	case l.Reached == MeansDelete, passed && !l.NoPassYet:
		return l.deleteStep()
	case passed:
		o := l.meansUntilDeadline()
		return Step{
			Means: o.means,
			Until: l.Now,
			Why:   o.verb + " once more, then " + o.nextVerb + ": no run was active when the deadline passed" + o.reason,
		}
	default:
		return l.evictStep()
	}
}

// awaitClusterStep waits for a cluster that does not answer. If an operator forces the drain, the drain ends, because
// the cluster cannot even kill the pods.
func (l EscalationFacts) awaitClusterStep() Step {
	if l.Force != "" {
		return Step{Means: MeansKill, Over: true, Why: "the remaining pods stay: " + l.Force + "; " + l.Unanswered}
	}
	return Step{Means: cmp.Or(l.Reached, MeansEvict), Why: "waits for the cluster of the node: " + l.Unanswered}
}

// Deadlines holds the deadlines of the current step of a machine's deletion or drain.
type Deadlines struct {
	Escalation       *EscalationFacts // the ladder of the current evictions; nil: no pods are being evicted
	RecordedDeadline time.Time        // deadline of the recorded step; zero: none
}

// NextDeadline returns the time at which the next step begins; zero: no deadline starts the next step. NextDeadline
// calculates the end of evictions again, because an operator may have extended the drain after the deadline was
// recorded. When that end has passed, a later recorded deadline counts: an outage of the node's cluster extended it.
func (d Deadlines) NextDeadline() time.Time {
	until, _ := d.EvictionDeadline()
	if !until.IsZero() && (until.After(d.Escalation.Now) || !d.RecordedDeadline.After(until)) {
		return until
	}
	return d.RecordedDeadline
}

// EvictionDeadline returns the deadline of Evict or DeleteInOrder, and the means that follows. EvictionDeadline returns
// zero values if another means removes the pods, if evictions have no deadline, or if an operator forces the drain.
// EvictionDeadline calls DecideStep with a time before the drain began, so that EvictionDeadline returns the deadline
// even after the deadline has passed. EvictionDeadline ignores Unusable if the resulting step is overdue, because
// Unusable may be out of date.
func (d Deadlines) EvictionDeadline() (until time.Time, then RemovalMeans) {
	if d.Escalation == nil {
		return until, then
	}
	l := *d.Escalation
	now := l.Now
	l.Now = l.Started.Add(-1)
	step := DecideStep(l)
	if l.Force == "" && (!step.Means.KeepsPodOrder() || now.After(step.Until.Add(StepOverdueAfter))) {
		l.Unusable = ""
		step = DecideStep(l)
	}
	if !step.Means.KeepsPodOrder() || step.Until.IsZero() {
		return until, then
	}
	l.Now = step.Until
	return step.Until, DecideStep(l).Means
}

// ForceReason returns why all pods are killed at once; empty: no force.
func (l EscalationFacts) ForceReason() string {
	if at := l.unusableNodeDeadline(); l.Force == "" && !at.IsZero() && !l.Now.Before(at) {
		return fmt.Sprintf("%s since %s", l.Unusable, phrase.ClockText(l.UnusableSince, l.Now))
	}
	return l.Force
}

// unusableNodeDeadline returns when the pods of an unusable node are killed; zero: the node is usable. The time is
// unusableNodeTimeout after UnusableSince, or UnusableSince if the node is Lost. While Breaker is set,
// unusableNodeDeadline returns the time of the next check. The breaker protects containers that still run on the node:
// the node may only have lost its connection, or the provider may have searched in the wrong account.
func (l EscalationFacts) unusableNodeDeadline() time.Time {
	if l.Unusable == "" || l.UnusableSince.IsZero() {
		return time.Time{}
	}
	at := l.UnusableSince
	if !l.Lost {
		at = at.Add(unusableNodeTimeout)
	}
	if l.Breaker != "" && !l.Now.Before(at) {
		at = at.Add(l.Now.Sub(at).Truncate(unusableNodeTimeout) + unusableNodeTimeout)
	}
	return at
}

// evictionDeadline returns the deadline of evictions, and the setting that determines the deadline. The deadline is
// zero before the first pass, and if evictions have no deadline.
func (l EscalationFacts) evictionDeadline() (at time.Time, source string) {
	if l.Started.IsZero() || l.Endless {
		return at, ""
	}
	allowed := max(l.Timeout, 0)
	source = cmp.Or(l.Setting, "drainTimeout") + " " + phrase.DurationText(allowed)
	if l.Retries != nil {
		// The code divides first, because the largest number of retries times timePerEvictRetry overflows a Duration.
		if retries := time.Duration(
			max(*l.Retries, 0),
		); retries <= allowed/timePerEvictRetry &&
			retries*timePerEvictRetry < allowed {
			allowed, source = retries*timePerEvictRetry, fmt.Sprintf("maxEvictRetries %d", retries)
		}
	}
	at = l.Started.Add(allowed + l.Absent)
	if l.Extended.After(at) {
		return l.Extended, "extended"
	}
	return at, source
}

// meansWithPhrases is the means that a drain uses until the deadline (Evict or DeleteInOrder), with the phrases for
// Step.Why.
type meansWithPhrases struct {
	means          RemovalMeans
	verb, nextVerb string
	reason         string // why the means is not Evict; empty: the means is Evict
}

// meansUntilDeadline returns the means that the drain uses until the deadline. A drain that has used DeleteInOrder
// never returns to Evict, even if the present worker does not know whether the API server supports evictions.
func (l EscalationFacts) meansUntilDeadline() meansWithPhrases {
	if l.NoEviction == "" && l.Reached != MeansDeleteInOrder {
		return meansWithPhrases{means: MeansEvict, verb: "evicts", nextVerb: "deletes"}
	}
	why := cmp.Or(l.NoEviction, "its cluster could not when the drain began")
	return meansWithPhrases{
		means:    MeansDeleteInOrder,
		verb:     "deletes in order",
		nextVerb: "deletes all at once",
		reason:   "; it cannot evict: " + why,
	}
}

func (l EscalationFacts) evictStep() Step {
	until, source := l.evictionDeadline()
	o := l.meansUntilDeadline()
	step := Step{Means: o.means, Until: until}
	if at := l.unusableNodeDeadline(); !at.IsZero() && (until.IsZero() || at.Before(until)) {
		step.Until = at
		step.Why = fmt.Sprintf(
			"%s until %s, then kills: %s since %s%s",
			o.verb,
			l.formatClock(at),
			l.Unusable,
			l.formatClock(l.UnusableSince),
			o.reason,
		)
		if l.Breaker != "" {
			step.Why = fmt.Sprintf(
				"%s%s, and kills no pod although %s since %s, which is looked at again at %s: %s%s",
				o.verb,
				phrase.TextIf(
					!until.IsZero(),
					" until %s (%s)",
					l.formatClock(until),
					source,
				),
				l.Unusable,
				l.formatClock(l.UnusableSince),
				l.formatClock(at),
				l.Breaker,
				o.reason,
			)
		}
		return step
	}
	end := "until " + l.formatClock(until)
	if until.IsZero() && l.Endless {
		step.Why = fmt.Sprintf(
			"%s for as long as it takes (%s is not set)%s",
			o.verb,
			cmp.Or(l.Setting, "drainTimeout"),
			o.reason,
		)
		return step
	}
	if until.IsZero() { // Started is set when the first report is written
		l.Started = l.Now
		until, source = l.evictionDeadline()
		end = "for " + phrase.DurationText(until.Sub(l.Now))
	}
	step.Why = fmt.Sprintf("%s %s (%s), then %s%s", o.verb, end, source, o.nextVerb, o.reason)
	return step
}

// deleteStep deletes pods for min(longest grace period, drain timeout) plus extraWaitAfterGrace.
func (l EscalationFacts) deleteStep() Step {
	since := l.startOfMeans(MeansDelete)
	deadline, _ := l.evictionDeadline()
	grace := min(l.Grace, l.Timeout)
	if l.Endless {
		grace = l.Grace
	}
	until := phrase.LaterTime(deadline, since.Add(l.AbsentInMeans)).Add(max(grace, 0) + extraWaitAfterGrace)
	if !l.Now.Before(until) {
		return l.killStep("")
	}
	step := Step{Means: MeansDelete, Until: until}
	step.Why = fmt.Sprintf("deletes since %s, until %s, then kills", l.formatClock(since), l.formatClock(until))
	if at := l.unusableNodeDeadline(); l.Breaker == "" && !at.IsZero() && at.Before(until) {
		step.Until = at
		step.Why = fmt.Sprintf(
			"deletes since %s, until %s, then kills: %s since %s",
			l.formatClock(since),
			l.formatClock(at),
			l.Unusable,
			l.formatClock(l.UnusableSince),
		)
	}
	if l.Extended.After(l.Now) {
		step.Why += fmt.Sprintf(
			"; the extension until %s came after the deadline, and nothing is evicted again",
			l.formatClock(l.Extended),
		)
	}
	return step
}

func (l EscalationFacts) killStep(why string) Step {
	since := l.startOfMeans(MeansKill)
	until := since.Add(extraWaitAfterGrace + l.AbsentInMeans)
	why = phrase.TextIf(why != "", ": %s", why)
	if !l.Now.Before(until) {
		return Step{
			Means: MeansKill,
			Over:  true,
			Why:   fmt.Sprintf("over since %s: the remaining pods stay%s", l.formatClock(until), why),
		}
	}
	why = fmt.Sprintf(
		"kills since %s, until %s, then leaves the remaining pods%s",
		l.formatClock(since),
		l.formatClock(until),
		why,
	)
	return Step{Means: MeansKill, Until: until, Why: why}
}

// startOfMeans returns when a means was reached, or Now if the means is not recorded.
func (l EscalationFacts) startOfMeans(means RemovalMeans) time.Time {
	if l.Reached == means && !l.ReachedAt.IsZero() {
		return l.ReachedAt
	}
	return l.Now
}

func (l EscalationFacts) formatClock(t time.Time) string { return phrase.ClockText(t, l.Now) }
