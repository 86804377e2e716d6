package main

import (
	"cmp"
	"fmt"
	"time"

	"millwright/decide/rollout"
)

// sentence tells in one line how a rollout stands.
func (s stand) sentence() string { return s.key() + ": " + s.says(s.when) + "." }

func (s stand) when(t time.Time) string { return when(t, s.now) }

func (s stand) clock(t time.Time) string { return clock(t, s.now) }

// says is the sentence without the deployment's name; at writes a time.
func (s stand) says(at func(time.Time) string) string {
	text := s.told(at)
	if !s.idle.IsZero() {
		text += "; that has been due since " + at(s.idle) + ": nobody seems to work, so see whether bridge and workers run"
	}
	return text
}

func (s stand) told(at func(time.Time) string) string {
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
		return "it is paused: " + s.reached()
	case o.Held != "":
		return fmt.Sprintf("%s is held (%s): %s", s.revision(), o.Held, s.reached())
	case d.Late:
		return fmt.Sprintf("%s made no progress for %s, and its progress deadline has passed: %s", s.revision(), *o.Deadline, cmp.Or(d.Hold, d.Why))
	default:
		return s.moving(at)
	}
}

// moving tells of a rollout that goes on, or will by itself.
func (s stand) moving(at func(time.Time) string) string {
	switch d := s.next; {
	case d.Gate != nil:
		return s.revision() + " waits: stage " + gateSays(d.Gate, at)
	case d.HoldBy != "":
		return s.revision() + " waits: " + d.Hold
	case d.Rolling && moves(d):
		return s.revision() + " is being rolled out; next: " + d.Why
	case d.Rolling:
		return s.revision() + " is being rolled out: " + d.Why + s.going()
	case moves(d):
		return "next: " + d.Why
	default:
		return d.Why
	}
}

// going counts the machines that are on their way out; empty when none is.
func (s stand) going() string {
	n := 0
	for _, set := range s.facts.Sets {
		n += countIf(set.Machines, func(m rollout.Member) bool { return m.Deleting })
	}
	if n == 0 {
		return ""
	}
	return "; " + machineCount(n) + " to go yet"
}

// gateSays tells what a stage waits for.
func gateSays(g *rollout.Gate, at func(time.Time) string) string {
	until := "until a person passes it"
	if !g.Approve {
		until = "until " + at(g.Until)
	}
	return fmt.Sprintf("%d of %d has its %s, and lasts %s", g.Step+1, g.Of, machineCount(g.Size), until)
}

// moves reports whether a decision does what takes a rollout further. Records and what is done to nodes are left out: without a
// look at the nodes, there is no saying whether that is due.
func moves(d rollout.Decision) bool {
	for _, r := range d.Resize {
		if r.From != r.To {
			return true
		}
	}
	lists := len(d.Mark) + len(d.Unmark) + len(d.Open) + len(d.Close) + len(d.Sync) + len(d.Move) + len(d.Select) + len(d.Delete)
	return lists > 0 || d.Create != nil || d.Revise != nil || d.Rollback != nil
}

// revision names what is being rolled out.
func (s stand) revision() string {
	if s.next.Revision == 0 {
		return "the new template"
	}
	return fmt.Sprintf("revision %d", s.next.Revision)
}

// reached is how far a rollout came that stands still.
func (s stand) reached() string {
	if s.next.Pending {
		return "its template is not rolled out"
	}
	return fmt.Sprintf("%d of %s up to date", s.status.Counts.Updated, machineCount(s.facts.Replicas))
}

// numbers is what is wanted, and what is there.
func (s stand) numbers() string {
	c := s.status.Counts
	text := fmt.Sprintf("%d wanted, %d up to date, %d ready, %d available", s.facts.Replicas, c.Updated, c.Ready, c.Available)
	if c.PreservedFailed > 0 {
		text += fmt.Sprintf(", %d failed and preserved", c.PreservedFailed)
	}
	return text
}

// machineCount counts machines in words.
func machineCount(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}
