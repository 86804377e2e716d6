// Package explain describes what an object waits for: the cause, the beginning, the next event with its time, and a
// command that changes the wait. The object's status, its printer columns, the page of its workflow and the command
// millwright explain show the same sentence.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// PhraseForms are the forms of a phrase for one object and for several objects.
type PhraseForms struct{ Singular, Plural string }

func (w PhraseForms) textForCount(n int) string {
	return phrase.SingularOrPlural(n, w.Singular, w.Plural)
}

// WaitState is one wait of an object. The zero WaitState means that the object waits for nothing.
type WaitState struct {
	Goal PhraseForms // what the object cannot do yet, as a verb: "waits to leave"
	Step string      // name of the step, from package vocabulary; empty for the waits of sets and deployments

	// Blockers name what blocks the object, for status.currentOperation.blockedBy and the search attribute BlockedBy. A
	// blocker is a reason, or the kind and name of an object; empty: nothing blocks the object, and the wait only takes
	// time.
	Blockers []string
	Cause    string // the reason, as a clause that does not name the object
	Since    time.Time

	NextEvent     Event     // what happens if no person acts; zero: nothing
	NextEventTime time.Time // time of Next; zero: unknown
	IsRepeated    bool      // the attempt is repeated at the time At, but the wait ends only if a person acts
	Command       string    // command that removes the blocker or shows it; empty: no such command is known
}

// endTime returns the time at which the wait ends without a person; zero: never, or unknown.
func (w WaitState) endTime() time.Time {
	if w.IsRepeated {
		return time.Time{}
	}
	return w.NextEventTime
}

// IsBlocked reports whether something blocks the object.
func (w WaitState) IsBlocked() bool { return len(w.Blockers) > 0 }

// Reason returns the first blocker as one word; empty: the object is not blocked.
func (w WaitState) Reason() string {
	if !w.IsBlocked() {
		return ""
	}
	return ReasonOfBlocker(w.Blockers[0])
}

// Sentence describes the wait of one object; empty for the zero WaitState.
func (w WaitState) Sentence(now time.Time) string {
	if w.Cause == "" {
		return ""
	}
	return w.Cause + w.sinceText(now) + w.nextEventText(1, "at %s", now)
}

func (w WaitState) sinceText(now time.Time) string {
	return phrase.TextIf(!w.Since.IsZero(), " (since %s)", phrase.ClockText(w.Since, now))
}

// nextEventText describes the next event and the command. nextEventText contains a time instead of the remaining
// duration, so that the status text stays the same at each evaluation.
func (w WaitState) nextEventText(n int, when string, now time.Time) string {
	at := phrase.TextIf(!w.NextEventTime.IsZero(), " "+when, phrase.ClockText(w.NextEventTime, now))
	return phrase.TextIf(
		w.NextEvent.Singular != "",
		"; %s%s",
		w.NextEvent.textForCount(n),
		at,
	) + phrase.TextIf(
		w.Command != "",
		"; `%s`",
		w.Command,
	)
}

// Summary describes the waits of a set or a deployment and its machines. The zero Summary means that nothing blocks the
// object or its machines.
type Summary struct {
	Blockers []string // distinct blockers of the groups, in the order of the groups, at most MaxBlockers
	Reason   string   // the first blocker as one word, for a condition
	Message  string
	Short    string        // the most important wait in at most MaxShortLength characters, with the number of other causes
	Since    time.Time     // beginning of the oldest wait
	At       time.Time     // time of the next event that happens without a person; zero: none
	Waits    []GroupedWait `json:"-"` // the waits that Message describes; not part of a payload
}

// IsBlocked reports whether the object or one of its machines is blocked.
func (s Summary) IsBlocked() bool { return s.Reason != "" }

// MaxBlockers is how many blockers a status and a search attribute name. Source: Temporal's search attribute BlockedBy
// holds 2 KiB, and a blocker has up to 317 bytes.
const MaxBlockers = 5

// maxSummaryCauses is how many causes a summary names. Source: three causes fit on a screen with 80 columns, and into a
// condition.
const maxSummaryCauses = 3

// summarizeWaits returns the Summary of an object: its own Waits first, in their order, then the Waits of its machines.
// Machines with the same goal and the same cause are one group. Groups that need a person come first, then the groups
// with the most machines, then the oldest groups. Waits without a blocker are left out. The parameter `of` is the total
// number of machines that the sentences name.
func summarizeWaits(own, machines []WaitState, of int, now time.Time) Summary {
	groups := list.Map(
		list.Filter(own, WaitState.IsBlocked),
		func(w WaitState) GroupedWait { return GroupedWait{WaitState: w} },
	)
	groups = append(groups, groupWaits(list.Filter(machines, WaitState.IsBlocked))...)
	var s Summary
	var texts []string
	for i, g := range groups {
		s.Since, s.At = phrase.EarlierTime(s.Since, g.Since), phrase.EarlierTime(s.At, g.endTime())
		for _, name := range g.Blockers {
			if !slices.Contains(s.Blockers, name) && len(s.Blockers) < MaxBlockers {
				s.Blockers = append(s.Blockers, name)
			}
		}
		if i < maxSummaryCauses {
			texts, s.Waits = append(texts, g.sentence(of, now)), append(s.Waits, g)
		}
	}
	if len(groups) == 0 {
		return s
	}
	s.Reason = ReasonOfBlocker(s.Blockers[0])
	s.Short = groups[0].shortText(of, len(groups)-1, now)
	s.Message = phrase.TruncateMessage(
		strings.Join(
			texts,
			". ",
		) + phrase.TextIf(
			len(groups) > maxSummaryCauses,
			". And %s",
			phrase.CountText(len(groups)-maxSummaryCauses, "other cause"),
		),
	)
	return s
}

// waitsOfMachines returns the Waits of machines, sorted by machine name. The parameter own has the Waits of the
// machines' set or deployment. If own contains the wait for held replacements, machines that await their replacement
// are left out.
func waitsOfMachines(own []WaitState, machines []Machine) []WaitState {
	if slices.ContainsFunc(
		own,
		func(w WaitState) bool { return slices.Contains(w.Blockers, vocabulary.ConditionReplacementHeld) },
	) {
		// The wait of the set or deployment already contains the reason.
		machines = list.Filter(machines, func(m Machine) bool { return m.Step != vocabulary.StepAwaitReplacement })
	}
	// The machines come in any order.
	machines = list.SortedCopyOfLargeItems(machines, func(a, b *Machine) int { return cmp.Compare(a.Name, b.Name) })
	return list.Map(machines, Machine.CurrentWait)
}

// NeedsPerson reports whether a person must act, because no blocker ends by itself or is retried.
func NeedsPerson(blockers []string) bool {
	return len(blockers) > 0 && !slices.ContainsFunc(blockers, func(name string) bool {
		switch name {
		case vocabulary.BlockedByPause,
			vocabulary.BlockedByHold,
			vocabulary.BlockedByMissingApproval,
			vocabulary.ReasonMaxRetryReached,
			vocabulary.ReasonInvalid,
			vocabulary.ReasonMachineSetInvalid,
			vocabulary.ReasonTemplateNotFound,
			vocabulary.ReasonClassNotFound,
			vocabulary.ReasonClassInvalid,
			vocabulary.ReasonSecretNotFound,
			vocabulary.ReasonSecretInvalid,
			vocabulary.ReasonSecretNotAllowed:
			return false
		default:
			return true
		}
	})
}

// ReasonOfBlocker returns a blocker as one word that is valid as the reason of a condition.
func ReasonOfBlocker(blocker string) string {
	word, _, _ := strings.Cut(blocker, " ")
	valid := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, word)
	if valid == "" || strings.ContainsAny(word, "./") { // the blocker is the key of an annotation, such as a hook
		return "Waiting"
	}
	return valid
}

// GroupedWait is the wait of an object itself, or a group of machines with the same wait: Since is then the earliest
// beginning, NextEventTime the earliest time, and Command the command of the first machine by name.
type GroupedWait struct {
	WaitState

	MachineCount int  // number of machines; zero: the object's own wait
	timesDiffer  bool // the machines' values of NextEventTime differ
}

// NextEventText describes the next event for the number of machines, without its time; empty if nothing happens.
func (g GroupedWait) NextEventText() string {
	return g.NextEvent.textForCount(max(g.MachineCount, 1))
}

func (g GroupedWait) sentence(of int, now time.Time) string {
	if g.MachineCount == 0 {
		return g.Sentence(now)
	}
	when := "at %s"
	if g.timesDiffer {
		when = "from %s on"
	}
	return fmt.Sprintf(
		"%d of %s %s%s: %s%s",
		g.MachineCount,
		phrase.CountText(of, "machine"),
		g.Goal.textForCount(g.MachineCount),
		g.sinceText(now),
		g.Cause,
		g.nextEventText(g.MachineCount, when, now),
	)
}

// groupWaits returns the groups of machines, the most important group first.
func groupWaits(machines []WaitState) []GroupedWait {
	type key struct {
		goal            PhraseForms
		next            Event
		cause, blockers string
	}
	var groups []GroupedWait
	at := map[key]int{}
	for _, w := range machines {
		k := key{w.Goal, w.NextEvent, w.Cause, strings.Join(w.Blockers, "\x00")}
		i, known := at[k]
		if !known {
			at[k] = len(groups)
			groups = append(groups, GroupedWait{WaitState: w, MachineCount: 1})
			continue
		}
		g := &groups[i]
		g.MachineCount++
		g.timesDiffer = g.timesDiffer || !g.NextEventTime.Equal(w.NextEventTime)
		g.Since, g.NextEventTime = phrase.EarlierTime(g.Since, w.Since), phrase.EarlierTime(g.NextEventTime, w.NextEventTime)
	}
	return list.SortedCopyOfLargeItems(groups, func(a, b *GroupedWait) int {
		if c := cmp.Or(
			list.CompareFalseFirst(!a.endTime().IsZero(), !b.endTime().IsZero()),
			cmp.Compare(b.MachineCount, a.MachineCount),
			a.Since.Compare(b.Since),
		); c != 0 {
			return c
		}
		return cmp.Or(
			cmp.Compare(
				a.Cause,
				b.Cause,
			),
			cmp.Compare(a.Goal.Singular, b.Goal.Singular),
			cmp.Compare(a.NextEvent.Singular, b.NextEvent.Singular),
			slices.Compare(a.Blockers, b.Blockers),
		)
	})
}
