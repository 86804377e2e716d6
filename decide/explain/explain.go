// Package explain says what an object waits for: why, since when, what happens by itself and when, and which command
// changes it. The status of the object, its printer columns, the page of its workflow and the command millwright
// explain show the same sentence.
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

// Words are the forms of a phrase for one object and for several.
type Words struct{ One, Many string }

func (w Words) of(n int) string { return phrase.OneOf(n, w.One, w.Many) }

// Wait is one thing that an object waits for. The zero Wait: it waits for nothing.
type Wait struct {
	Goal Words // what the object cannot do yet, as a verb: "waits to leave"

	// Blockers name what blocks it, for status.currentOperation.blockedBy and the search attribute BlockedBy: a reason, or
	// the kind of an object and its name. Empty: nothing blocks it, it only takes time.
	Blockers []string
	Cause    string // why, as a clause that does not name the object
	Since    time.Time

	Next    Words     // what happens without a person; empty: nothing
	At      time.Time // when; zero: the time is not known
	Again   bool      // at At only the same attempt is repeated: without a person nothing changes
	Command string    // a command that changes what blocks the object, or shows it; empty: none is known
}

// ends returns when the wait ends without a person; zero: never, or that is not known.
func (w Wait) ends() time.Time {
	if w.Again {
		return time.Time{}
	}
	return w.At
}

// Blocked reports whether the object stands still.
func (w Wait) Blocked() bool { return len(w.Blockers) > 0 }

// Reason returns what blocks the object as one word; empty if nothing does.
func (w Wait) Reason() string {
	if !w.Blocked() {
		return ""
	}
	return Reason(w.Blockers[0])
}

// Sentence says everything about the wait of one object; empty for the zero Wait.
func (w Wait) Sentence(now time.Time) string {
	if w.Cause == "" {
		return ""
	}
	return w.Cause + w.since(now) + w.rest(1, "at %s", now)
}

func (w Wait) since(now time.Time) string {
	return phrase.If(!w.Since.IsZero(), " (since %s)", phrase.Clock(w.Since, now))
}

// rest says what happens next, and which command changes it. It gives the time itself and not the distance from now, so
// that a status that repeats the sentence does not change at each evaluation.
func (w Wait) rest(n int, when string, now time.Time) string {
	at := phrase.If(!w.At.IsZero(), " "+when, phrase.Clock(w.At, now))
	return phrase.If(w.Next.One != "", "; %s%s", w.Next.of(n), at) + phrase.If(w.Command != "", "; `%s`", w.Command)
}

// Summary is what a set or a deployment says about itself and its machines. The zero Summary: nothing blocks them.
type Summary struct {
	Blockers []string // of the groups, in their order, each once, at most MaxBlockers
	Reason   string   // the first blocker as one word, for a condition
	Message  string
	Since    time.Time // of the oldest wait
	At       time.Time // when the first thing happens without a person; zero: never
}

// Blocked reports whether anything stands still.
func (s Summary) Blocked() bool { return s.Reason != "" }

// MaxBlockers is how many blockers a status and a search attribute name. Source: BlockedBy of Temporal holds 2 KiB, and
// the name of a budget with its namespace, or the key of a hook, has up to 317 bytes.
const MaxBlockers = 5

// maxGroups is how many causes a summary names. Source: what fits on a screen of 80 columns and in a condition.
const maxGroups = 3

// summarize sums up what blocks an object: its own waits first, in their order, then those of its machines. Machines
// that wait for the same goal with the same cause are one group. Groups for which nothing happens without a person come
// first, then those of the most machines, then the oldest. Waits without a blocker are left out. of is the number of
// machines that the sentences name as all.
func summarize(own, machines []Wait, of int, now time.Time) Summary {
	groups := list.Map(list.Where(own, Wait.Blocked), func(w Wait) group { return group{Wait: w} })
	groups = append(groups, grouped(list.Where(machines, Wait.Blocked))...)
	var s Summary
	var texts []string
	for i, g := range groups {
		s.Since, s.At = earlier(s.Since, g.Since), earlier(s.At, g.ends())
		for _, name := range g.Blockers {
			if !slices.Contains(s.Blockers, name) && len(s.Blockers) < MaxBlockers {
				s.Blockers = append(s.Blockers, name)
			}
		}
		if i < maxGroups {
			texts = append(texts, g.text(of, now))
		}
	}
	if len(groups) == 0 {
		return s
	}
	s.Reason = Reason(s.Blockers[0])
	s.Message = phrase.Message(
		strings.Join(
			texts,
			". ",
		) + phrase.If(
			len(groups) > maxGroups,
			". And %s",
			phrase.Count(len(groups)-maxGroups, "other cause"),
		),
	)
	return s
}

// ofMachines returns what machines wait for, in the order of their names. Own are the waits of the object above them.
// If it says that replacements are held, machines that await their replacement are left out.
func ofMachines(own []Wait, machines []Machine) []Wait {
	if slices.ContainsFunc(
		own,
		func(w Wait) bool { return slices.Contains(w.Blockers, vocabulary.ConditionReplacementHeld) },
	) {
		// the object says why
		machines = list.Where(machines, func(m Machine) bool { return m.Step != vocabulary.StepAwaitReplacement })
	}
	// they come in any order
	machines = list.SortedLarge(machines, func(a, b *Machine) int { return cmp.Compare(a.Name, b.Name) })
	return list.Map(machines, Machine.WaitsFor)
}

// NeedsPerson reports whether nothing happens until a person changes something: each of the blockers is one that never
// ends by itself, and because of which nothing is tried again.
func NeedsPerson(blockers []string) bool {
	return len(blockers) > 0 && !slices.ContainsFunc(blockers, func(name string) bool {
		switch name {
		case vocabulary.BlockedPaused,
			vocabulary.BlockedHold,
			vocabulary.BlockedApproval,
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

// Reason returns a blocker as one word that is valid as the reason of a condition.
func Reason(blocker string) string {
	word, _, _ := strings.Cut(blocker, " ")
	valid := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, word)
	if valid == "" || strings.ContainsAny(word, "./") { // an annotation, such as a hook
		return "Waiting"
	}
	return valid
}

// group is a set of machines with the same wait. Since is the earliest of their times, At the earliest end, and Command
// the one of the first machine by name.
type group struct {
	Wait

	n      int  // zero: it is the object's own wait
	spread bool // their times differ
}

func (g group) text(of int, now time.Time) string {
	if g.n == 0 {
		return g.Sentence(now)
	}
	when := "at %s"
	if g.spread {
		when = "from %s on"
	}
	return fmt.Sprintf(
		"%d of %s %s%s: %s%s",
		g.n,
		phrase.Count(of, "machine"),
		g.Goal.of(g.n),
		g.since(now),
		g.Cause,
		g.rest(g.n, when, now),
	)
}

// grouped returns the groups of machines, the most important first.
func grouped(machines []Wait) []group {
	type key struct {
		goal, next      Words
		cause, blockers string
	}
	var groups []group
	at := map[key]int{}
	for _, w := range machines {
		k := key{w.Goal, w.Next, w.Cause, strings.Join(w.Blockers, "\x00")}
		i, known := at[k]
		if !known {
			at[k] = len(groups)
			groups = append(groups, group{Wait: w, n: 1})
			continue
		}
		g := &groups[i]
		g.n++
		g.spread = g.spread || !g.At.Equal(w.At)
		g.Since, g.At = earlier(g.Since, w.Since), earlier(g.At, w.At)
	}
	return list.SortedLarge(groups, func(a, b *group) int {
		if c := cmp.Or(
			list.FalseFirst(!a.ends().IsZero(), !b.ends().IsZero()),
			cmp.Compare(b.n, a.n),
			a.Since.Compare(b.Since),
		); c != 0 {
			return c
		}
		return cmp.Or(
			cmp.Compare(
				a.Cause,
				b.Cause,
			),
			cmp.Compare(a.Goal.One, b.Goal.One),
			cmp.Compare(a.Next.One, b.Next.One),
			slices.Compare(a.Blockers, b.Blockers),
		)
	})
}

// earlier returns the earlier of two times; a zero time is not known, and the other one counts.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
