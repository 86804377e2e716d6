package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
)

// sentence says in one line what the rollout does.
func (s snapshot) sentence() string { return s.key() + ": " + s.says(s.when) + "." }

func (s snapshot) when(t time.Time) string { return phrase.When(t, s.now) }

func (s snapshot) clock(t time.Time) string { return phrase.Clock(t, s.now) }

// says is the sentence without the deployment's name; at formats a time.
func (s snapshot) says(at func(time.Time) string) string {
	text := s.state(at)
	if !s.idle.IsZero() {
		text += "; that has been due since " + at(s.idle) + ": check that bridge and workers run"
	}
	return text
}

func (s snapshot) state(at func(time.Time) string) string {
	o, d := s.facts, s.next
	switch {
	case o.Deleting:
		return fmt.Sprintf("it is being deleted; sets left: %d", len(o.Sets))
	case o.Invalid != "":
		return "nothing can be done with it: " + o.Invalid
	case d.Rollback != nil && d.Rollback.Automatic:
		return s.revision() + " is given up; next: " + d.Why
	case d.Rollback != nil:
		return "an undo is asked for; next: " + d.Why
	case d.Complete:
		return s.revision() + " is complete"
	case o.Paused:
		return "it is paused" + phrase.By(o.PausedBy) + ": " + s.reached()
	case o.Held != "":
		return fmt.Sprintf("%s is held%s: %s", s.revision(), phrase.By(o.Held), s.reached())
	case d.Late:
		return fmt.Sprintf(
			"%s made no progress for %s, and its progress deadline has passed: %s",
			s.revision(),
			phrase.Length(*o.Deadline),
			cmp.Or(d.Hold, d.Why),
		)
	default:
		return s.moving(at)
	}
}

// moving describes a rollout that continues, or waits at a step or for machines.
func (s snapshot) moving(at func(time.Time) string) string {
	switch d := s.next; {
	case d.Pause != nil:
		return s.revision() + " waits: step " + pauseSays(d.Pause, at)
	case d.HoldBy != "":
		return s.revision() + " waits: " + d.Hold
	case d.Rolling && moves(d):
		return s.revision() + " is being rolled out; next: " + d.Why
	case d.Rolling:
		return s.revision() + " is being rolled out: " + d.Why + s.deletions()
	case moves(d):
		return "next: " + d.Why
	default:
		return d.Why
	}
}

// deletions counts the machines that are being deleted; empty if there are none.
func (s snapshot) deletions() string {
	n := 0
	for _, set := range s.facts.Sets {
		n += list.Count(set.Machines, func(m rollout.Member) bool { return m.Deleting })
	}
	return phrase.If(n > 0, "; %s still being deleted", phrase.Count(n, "machine"))
}

// pauseSays says until when a rollout waits at a pause point.
func pauseSays(p *rollout.PausePoint, at func(time.Time) string) string {
	until := "until a person passes it"
	if !p.Approve {
		until = "until " + at(p.Until)
	}
	return fmt.Sprintf("%d of %d has its %s, and lasts %s", p.Step+1, p.Of, phrase.Count(p.Size, "machine"), until)
}

// moves reports whether a decision moves the rollout on. Writes of records and annotations alone do not. Of the changes
// to nodes, only Select does, which starts in-place updates: if the nodes were not read, it is not known whether the
// other changes are due.
func moves(d rollout.Decision) bool {
	lists := len(d.Mark) + len(d.Unmark) + len(d.AllowScaleUp) + len(d.ForbidScaleUp) + len(d.Sync) + len(d.Move) +
		len(d.Select) + len(d.Delete)
	return lists > 0 || d.Create != nil || d.Revise != nil || d.Rollback != nil ||
		slices.ContainsFunc(d.Resize, func(r rollout.Resize) bool { return r.From != r.To })
}

// revision names what is being rolled out.
func (s snapshot) revision() string {
	if s.next.Revision == 0 {
		return "the new template"
	}
	return fmt.Sprintf("revision %d", s.next.Revision)
}

// reached says how far a stopped rollout came.
func (s snapshot) reached() string {
	if s.next.NoSet {
		return "its template is not rolled out"
	}
	return fmt.Sprintf("%d of %s up to date", s.updated(), phrase.Count(s.facts.Replicas, "machine"))
}

// updated returns how many machines have the current template and are not being deleted. The status counts those that
// are being deleted, too, as in MCM.
func (s snapshot) updated() int {
	n := s.status.Counts.Updated
	for _, set := range s.facts.Sets {
		if set.Current && !set.Deleting {
			n -= list.Count(set.Machines, func(m rollout.Member) bool { return m.Deleting })
		}
	}
	return n
}

// numbers says how many machines are wanted and how many there are.
func (s snapshot) numbers() string {
	c := s.status.Counts
	text := fmt.Sprintf(
		"%d wanted, %d up to date, %d ready, %d available",
		s.facts.Replicas,
		s.updated(),
		c.Ready,
		c.Available,
	)
	if c.PreservedFailed > 0 {
		text += fmt.Sprintf(", %d failed and preserved", c.PreservedFailed)
	}
	return text
}
