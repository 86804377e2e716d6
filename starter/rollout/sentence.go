package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
	"millwright/starter/kubecli"
)

// statusSentence returns one line about the state of the rollout.
func (s snapshot) statusSentence() string {
	return s.key() + ": " + s.sentenceWithoutName(s.formatTimeWithDate) + "."
}

func (s snapshot) formatTimeWithDate(t time.Time) string { return phrase.TimeText(t, s.now) }

func (s snapshot) formatClockTime(t time.Time) string { return phrase.ClockText(t, s.now) }

// sentenceWithoutName returns the sentence without the deployment's name. The function at formats a time.
func (s snapshot) sentenceWithoutName(at func(time.Time) string) string {
	text := s.stateText(at)
	if !s.overdueSince.IsZero() {
		text += "; that has been due since " + at(s.overdueSince) + ": check that bridge and workers run"
	}
	return text
}

func (s snapshot) stateText(at func(time.Time) string) string {
	o, d := s.facts, s.decision
	switch {
	case o.Deleting:
		return fmt.Sprintf("it is being deleted; sets left: %d", len(o.Sets))
	case o.InvalidReason != "":
		return "nothing can be done with it: " + o.InvalidReason
	case d.BeginsPin():
		return d.Why
	case d.Pin != nil:
		return s.pinText(at)
	case d.Rollback != nil:
		return "an undo is asked for; next: " + d.Why
	case d.Complete:
		return s.revisionText() + " is complete"
	case o.Paused:
		return "it is paused" + phrase.ActorText(o.PausedBy) + ": " + s.updatedMachinesText()
	case o.HoldReason != "":
		return fmt.Sprintf("%s is held%s: %s", s.revisionText(), phrase.ActorText(o.HoldReason), s.updatedMachinesText())
	case d.Late:
		return fmt.Sprintf(
			"%s made no progress for %s, and its progress deadline has passed: %s",
			s.revisionText(),
			phrase.DurationText(*o.ProgressDeadline),
			cmp.Or(d.Hold, d.Why),
		)
	default:
		return s.progressText(at)
	}
}

// pinText names the revision that the pin replaces with an earlier revision, and the number of machines that already
// have the earlier revision.
func (s snapshot) pinText(at func(time.Time) string) string {
	d := s.decision
	here := s.countPinnedMachines()
	text := d.Pin.SentenceWithoutTime(d.Revision) + " since " + at(d.Pin.Since)
	if !d.Complete {
		text += fmt.Sprintf(
			"; %d of %s there, next: %s", here, phrase.CountText(s.facts.Replicas, "machine"), cmp.Or(d.Hold, d.Why),
		)
	}
	return text + "; change the template or `millwright rollout retry " + s.key() + "`"
}

// progressText describes a rollout that continues, or waits at a step or for machines.
func (s snapshot) progressText(at func(time.Time) string) string {
	switch d := s.decision; {
	case d.Pause != nil:
		return s.revisionText() + ": step " + pauseText(d.Pause, at)
	case d.HoldBy != "":
		return s.revisionText() + " waits: " + d.Hold
	case d.Rolling && advancesRollout(d):
		return s.revisionText() + " is being rolled out; next: " + d.Why
	case d.Rolling:
		return s.revisionText() + " is being rolled out: " + d.Why + s.deletionsText()
	case advancesRollout(d):
		return "next: " + d.Why
	default:
		return d.Why
	}
}

// deletionsText reports how many machines are being deleted; empty if no machine is being deleted.
func (s snapshot) deletionsText() string {
	n := 0
	for _, set := range s.facts.Sets {
		n += list.CountWhere(set.Machines, func(m rollout.Member) bool { return m.Deleting })
	}
	return phrase.TextIf(n > 0, "; %s still being deleted", phrase.CountText(n, "machine"))
}

// pauseText describes until when a rollout waits at a pause point.
func pauseText(p *rollout.PausePoint, at func(time.Time) string) string {
	until := "for approval"
	if !p.Approve {
		until = "until " + at(p.Until)
	}
	return fmt.Sprintf(
		"%d of %d done (%d of %s), waits %s",
		p.Step+1,
		p.Of,
		p.Size,
		phrase.CountText(p.All, "machine"),
		until,
	)
}

// advancesRollout reports whether a decision advances the rollout. Writes of records and annotations alone do not
// advance a rollout. Of the changes to nodes, only Select advances a rollout, because Select starts in-place updates.
// If the nodes are not read, the command cannot find out whether the other changes to nodes are necessary.
func advancesRollout(d rollout.Decision) bool {
	lists := len(d.Mark) + len(d.Unmark) + len(d.AllowScaleUp) + len(d.ForbidScaleUp) + len(d.Sync) + len(d.Move) +
		len(d.Select) + len(d.Delete)
	return lists > 0 || d.Create != nil || d.Revise != nil || d.Rollback != nil ||
		slices.ContainsFunc(d.Resize, func(r rollout.SetResize) bool { return r.From != r.To })
}

// revisionText names the revision that is being rolled out, or the new template if there is no revision yet.
func (s snapshot) revisionText() string {
	if s.decision.Revision == 0 {
		return "the new template"
	}
	return fmt.Sprintf("revision %d", s.decision.Revision)
}

// updatedMachinesText reports how many machines of a stopped rollout are up to date.
func (s snapshot) updatedMachinesText() string {
	if s.decision.NoSet {
		return "its template is not rolled out"
	}
	return fmt.Sprintf("%d of %s up to date", s.countUpdatedMachines(), phrase.CountText(s.facts.Replicas, "machine"))
}

// countUpdatedMachines returns the number of machines with the current template that are not being deleted. The status
// also counts machines that are being deleted, as in MCM.
func (s snapshot) countUpdatedMachines() int {
	n := s.status.Counts.Updated
	for _, set := range s.facts.Sets {
		if set.Current && !set.Deleting {
			n -= list.CountWhere(set.Machines, func(m rollout.Member) bool { return m.Deleting })
		}
	}
	return n
}

// machineCountsText reports how many machines are desired, up to date, ready and available.
func (s snapshot) machineCountsText() string {
	c := s.status.Counts
	text := fmt.Sprintf(
		"%d wanted, %d up to date, %d ready, %d available",
		s.facts.Replicas,
		s.countUpdatedMachines(),
		c.Ready,
		c.Available,
	)
	if c.PreservedFailed > 0 {
		text += fmt.Sprintf(", %d failed and preserved", c.PreservedFailed)
	}
	return text
}

// advice returns the commands that a person can use for a rollout now, one line each, the most likely first; nil if the
// rollout is complete.
func (s snapshot) advice() []string {
	o, d := s.facts, s.decision
	switch {
	case o.Deleting:
		return []string{"To see why its machines are still there: " + s.tree.listDeletionsCommand}
	case o.InvalidReason != "":
		return []string{
			fmt.Sprintf(
				"To put it right: kubectl edit %s -n %s %s",
				s.tree.resource,
				s.tree.object.GetNamespace(),
				s.tree.object.GetName(),
			),
		}
	case d.Complete && d.Pin == nil:
		return nil
	case o.Paused:
		return []string{"To go on: millwright rollout resume " + s.tree.argument}
	}
	var list []string
	switch {
	case o.HoldReason != "":
		list = append(list, "To go on: millwright rollout resume "+s.tree.argument)
	case d.Pause != nil:
		list = append(list, "To pass the step: millwright rollout approve "+s.tree.argument+" "+kubecli.ExampleReasonFlag)
	default:
		list = append(list, s.unblockCommands()...)
		if d.Rolling {
			list = append(list, "To stop it where it is: millwright rollout pause "+s.tree.argument)
		}
	}
	switch {
	case d.Pin != nil:
		list = append(
			list,
			"To roll the template out again: millwright rollout retry "+s.tree.argument+" "+kubecli.ExampleReasonFlag,
		)
	case len(o.Sets) > 1 && d.Rollback == nil && !d.BeginsPin():
		list = append(list, "To go back: millwright rollout undo "+s.tree.argument+" "+kubecli.ExampleReasonFlag)
	}
	return list
}

// followCommands returns the command that watches a rollout; nil if the rollout is complete or cannot continue.
func (s snapshot) followCommands() []string {
	o := s.facts
	if o.Deleting || o.InvalidReason != "" || o.Paused || o.HoldReason != "" || s.decision.Complete {
		return nil
	}
	return []string{"To follow it: millwright rollout watch " + s.tree.argument}
}

// unblockCommands returns commands for a rollout that waits for machines or for people.
func (s snapshot) unblockCommands() []string {
	var list []string
	for _, m := range s.awaitedMachines() {
		if m.isBeingDeleted {
			list = append(list, fmt.Sprintf("To see why machine %s is still there: %s", m.name, m.explainCommand))
			break
		}
	}
	m := s.nextOldMachine()
	switch {
	case m == nil:
	case s.facts.Strategy == rollout.OnDelete:
		list = append(
			list,
			fmt.Sprintf(
				"To let an old machine go: kubectl delete %s -n %s %s",
				s.tree.machineResource,
				s.tree.object.GetNamespace(),
				m.name,
			),
		)
	case s.facts.Strategy == rollout.InPlaceManual && m.node != "":
		list = append(list, fmt.Sprintf("To select a node, in its own cluster: kubectl label node %s %s=%s",
			m.node, v1alpha1.LabelSelectedForUpdate, v1alpha1.ValueLowerTrue))
	}
	return list
}

// nextOldMachine returns a machine of an old set that an operator may delete or select next; nil if there is none. The
// machine is not being deleted or updated yet.
func (s snapshot) nextOldMachine() *treeMachine {
	for i, set := range s.facts.Sets {
		if i == s.currentSetIndex() {
			continue
		}
		for _, m := range s.tree.Machines {
			if slices.ContainsFunc(
				set.Machines,
				func(f rollout.Member) bool { return f.UID == m.uid && !f.Deleting && !f.Updating },
			) {
				return &m
			}
		}
	}
	return nil
}
