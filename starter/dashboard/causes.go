package dashboard

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	explained "millwright/decide/explain"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/observe/cache"
	"millwright/starter/explain"
)

// wait is one wait of a pool or of a machine, in the parts of the sentence in its status.
type wait struct {
	cause    string // why, without a time and a command
	next     string // what happens without a person; empty: nothing, or not known
	command  string // command that ends or shows the wait; empty: none is known
	blockers []string
	since    time.Time
	deadline time.Time // zero: none
}

// newWait returns the wait of an operation; nil if the status has no sentence.
func newWait(o *v1alpha1.Operation) *wait {
	if o == nil || cmp.Or(o.WaitsFor, o.Cause) == "" {
		return nil
	}
	w := parseSentence(cmp.Or(o.WaitsFor, o.Cause), o.Cause).withTimes(o)
	return &w
}

// sincePattern matches the clause about the beginning of a wait in a sentence of decide/explain.
var sincePattern = regexp.MustCompile(` \(since ([^()]*)\)`)

// parseSentence divides a sentence of decide/explain into its parts: cause (since …); what happens; `command`.
func parseSentence(sentence, cause string) (w wait) {
	if commands := explain.CommandsInSentence(sentence); len(commands) > 0 {
		w.command = commands[0]
		sentence, _, _ = strings.Cut(sentence, "; `"+w.command+"`")
	}
	rest := ""
	switch at := sincePattern.FindStringIndex(sentence); {
	case cause != "" && strings.HasPrefix(sentence, cause):
		w.cause, rest = cause, sentence[len(cause):]
	case at != nil:
		w.cause, rest = sentence[:at[0]], sentence[at[0]:]
	default:
		w.cause = sentence
	}
	rest = sincePattern.ReplaceAllString(rest, "")
	w.next = strings.TrimSpace(strings.TrimPrefix(rest, ";"))
	return w
}

// timePattern matches the time at the end of what happens next.
var timePattern = regexp.MustCompile(` (at|from) [-0-9T: ]+ UTC( on)?$`)

// withTimes adds the times of an operation. What happens next then needs no time.
func (w wait) withTimes(o *v1alpha1.Operation) wait {
	w.blockers, w.since, w.deadline = o.BlockedBy, o.Since.Time, cache.TimeOrZero(o.Deadline)
	if !w.deadline.IsZero() {
		w.next = timePattern.ReplaceAllString(w.next, "")
	}
	return w
}

// machineClausePattern matches the start of a sentence about machines in the sentence of a set or a deployment. The
// sentences about the object itself come first.
var machineClausePattern = regexp.MustCompile(`(^|\. )\d+ of \d+ machines? `)

// ownWaits returns what the pool itself waits for. Its machines have waits of their own; if they have none, because
// their status is not read or is older, the whole sentence counts as the pool's.
func (p *pool) ownWaits(now time.Time) (waits []wait) {
	o := p.operation
	if !p.isBlockedItself() {
		return nil
	}
	sentence := cmp.Or(o.WaitsFor, o.Cause, strings.Join(o.BlockedBy, ", "))
	own := *o
	if at := machineClausePattern.FindStringIndex(sentence); at != nil && p.counts.blocked > 0 {
		sentence, own.BlockedBy, own.Deadline = sentence[:at[0]], p.ownBlockers(), nil // the deadline is a machine's
	}
	// A command ends the sentence of one wait.
	for text := range strings.SplitAfterSeq(sentence, "`. ") {
		if text = strings.TrimSuffix(strings.TrimSpace(text), "`."); text == "" {
			continue
		} else if strings.Count(text, "`")%2 == 1 {
			text += "`"
		}
		w := parseSentence(text, o.Cause).withTimes(&own)
		if found := sincePattern.FindStringSubmatch(text); found != nil {
			w.since = cmp.Or(parseClock(found[1], now), w.since)
		}
		waits = append(waits, w)
	}
	return waits
}

// isBlockedItself reports whether the status of the pool names a blocker. A sentence that is only the cause of the
// present step means that nothing blocks the pool any more, although the step still names its blockers.
func (p *pool) isBlockedItself() bool {
	return isBlocked(p.operation) && (p.operation.WaitsFor == "" || p.operation.WaitsFor != p.operation.Cause)
}

// isPlanned reports whether a wait is one that the policy of a rollout demands, and whose time is not over.
func (w wait) isPlanned(now time.Time) bool {
	return isPlannedBlocker(w.blockers) && (w.deadline.IsZero() || w.deadline.After(now))
}

// isPlannedBlocker reports whether only the time of a step or the turn of a deployment is waited for.
func isPlannedBlocker(blockers []string) bool {
	return len(blockers) > 0 && !slices.ContainsFunc(blockers, func(name string) bool {
		return name != vocabulary.BlockedByRolloutStep && name != vocabulary.BlockedByTurn
	})
}

// ownBlockers returns the blockers in the pool's status that block none of its machines.
func (p *pool) ownBlockers() []string {
	return slices.DeleteFunc(slices.Clone(p.operation.BlockedBy), func(name string) bool {
		return slices.ContainsFunc(p.machines, func(m *machineRow) bool {
			return m.isBlocked() && slices.Contains(m.currentOperation.BlockedBy, name)
		})
	})
}

// parseClock returns the time that phrase.ClockText wrote; zero if the text is no time.
func parseClock(text string, now time.Time) time.Time {
	if at, err := time.Parse("2006-01-02 15:04:05 MST", text); err == nil {
		return at
	}
	at, err := time.Parse("2006-01-02 15:04:05 MST", now.UTC().Format("2006-01-02 ")+text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// cause is one reason for which pools or machines stand still.
type cause struct {
	wait

	pools        []*pool // the pools concerned, in the order of their names
	machineCount int     // number of machines that wait for it; 0: the pools themselves wait
	commands     []string
	example      *machineRow // one machine that waits for it; nil: the pools themselves wait
	needsPerson  bool        // it does not end without a person
	timesDiffer  bool        // the deadlines differ, and deadline is the first
}

// groupCauses returns the causes for which pools stand still: those that need a person first, then those of the most
// pools, then the oldest. Waits that a policy demands are left out.
func groupCauses(pools []*pool, now time.Time) (causes []*cause) {
	byText := map[string]*cause{}
	add := func(w wait, p *pool, m *machineRow) {
		key := w.cause + "\x00" + strings.Join(w.blockers, "\x00")
		c := byText[key]
		if c == nil {
			c = &cause{wait: w, example: m, needsPerson: needsPerson(w.blockers)}
			byText[key], causes = c, append(causes, c)
		}
		c.include(w, p)
		if m != nil {
			c.machineCount++
		}
	}
	for _, p := range pools {
		for _, w := range p.waits {
			if !w.isPlanned(now) {
				add(w, p, nil)
			}
		}
		for _, m := range p.machines {
			if w := newWait(m.currentOperation); w != nil && m.isBlocked() {
				add(*w, p, m)
			}
		}
	}
	slices.SortStableFunc(causes, func(a, b *cause) int {
		return cmp.Or(
			-list.CompareFalseFirst(a.needsPerson, b.needsPerson),
			cmp.Compare(len(b.pools), len(a.pools)),
			a.since.Compare(b.since),
			cmp.Compare(a.cause, b.cause),
		)
	})
	return causes
}

// needsPerson reports whether a wait does not end without a person. A pool that was rolled back does not roll its
// template out again by itself.
func needsPerson(blockers []string) bool {
	isRollback := func(name string) bool { return name == vocabulary.ReasonRolledBack || name == vocabulary.ReasonPinned }
	return explained.NeedsPerson(blockers) || slices.ContainsFunc(blockers, isRollback)
}

// include adds a wait with the same cause.
func (c *cause) include(w wait, p *pool) {
	c.since = phrase.EarlierTime(c.since, w.since)
	c.timesDiffer = c.timesDiffer || !c.deadline.Equal(w.deadline)
	c.deadline = phrase.EarlierTime(c.deadline, w.deadline)
	if !slices.Contains(c.pools, p) {
		c.pools = append(c.pools, p)
	}
	if w.command != "" && !slices.Contains(c.commands, w.command) {
		c.commands = append(c.commands, w.command)
	}
}
