package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/scale"
)

// count counts the machines of all sets.
func (p *planner) count() Counts {
	var c Counts
	wanted := 0
	for _, s := range p.o.Sets {
		of := func(holds func(Member) bool) int { return list.Count(s.Machines, holds) }
		c.Replicas += len(s.Machines)
		c.PreservedFailed += of(func(m Member) bool { return m.keptFailed() })
		c.Ready += of(func(m Member) bool { return m.Ready && !m.Deleting })
		c.Available += of(func(m Member) bool { return m.Available })
		if p.current != nil && s.UID == p.current.UID {
			c.Updated += len(s.Machines)
		}
		if !s.Deleting {
			wanted += max(s.Replicas, 0)
		}
	}
	c.Unavailable = max(wanted-c.Available, 0)
	return c
}

// complete reports whether the wanted machines exist, available and of the current template, and no others. A failed
// machine that is preserved counts as one of them.
func (p *planner) complete() bool {
	c := p.count()
	return p.current != nil && p.current.size == p.o.Replicas && p.current.Replicas == p.o.Replicas &&
		p.current.ActedOn == p.o.Replicas &&
		c.Updated == p.o.Replicas &&
		c.Replicas == p.o.Replicas &&
		c.Available+c.PreservedFailed >= p.o.Replicas
}

// moved reports whether there was progress since the status was written: more new, fewer old, more ready or more
// available machines. Source: MCM. A rollout that was stopped gets its whole deadline again, and so does a new
// revision, which is not late because the former one was.
func (p *planner) moved() bool {
	if p.fresh() {
		return true
	}
	c, r := p.count(), p.o.Reported.Counts
	if c.Updated > r.Updated || c.Replicas-c.Updated < r.Replicas-r.Updated || c.Ready > r.Ready ||
		c.Available > r.Available {
		return true
	}
	rests := []string{
		vocabulary.ReasonDeploymentPaused, vocabulary.ReasonDeploymentResumed, vocabulary.ReasonRolloutHeld,
		vocabulary.ReasonRolloutWaiting, vocabulary.ReasonNewMachineSetAvailable, "",
	}
	return slices.Contains(rests, p.o.reported(vocabulary.ConditionProgressing).Reason)
}

// fresh reports whether no progress is recorded yet for the revision being rolled out.
func (p *planner) fresh() bool {
	return p.current != nil && p.o.Progress.Revision < p.revision()
}

// due returns when the progress deadline passes; zero: never, or it has passed.
func (p *planner) due() time.Time {
	last := p.o.reported(vocabulary.ConditionProgressing)
	late := last.Reason == vocabulary.ReasonProgressDeadlineExceeded
	if p.o.Deadline == nil || late || p.plain() || p.o.Stopped() != "" || last.Updated.IsZero() || p.complete() ||
		p.moved() {
		return time.Time{}
	}
	return last.Updated.Add(*p.o.Deadline + p.o.Absent)
}

// late reports whether the progress deadline has passed. It stays passed until there is progress.
func (p *planner) late() bool {
	reported := p.o.reported(vocabulary.ConditionProgressing).Reason == vocabulary.ReasonProgressDeadlineExceeded
	if reported && p.o.Deadline != nil && !p.moved() && !p.complete() {
		return true
	}
	due := p.due()
	return !due.IsZero() && !p.o.Now.Before(due)
}

// Stopped says why the template is not rolled out; empty: it is.
func (o Observed) Stopped() string {
	return cmp.Or(
		phrase.If(o.Paused, "paused%s", phrase.By(o.PausedBy)),
		phrase.If(o.Held != "", "held%s", phrase.By(o.Held)),
	)
}

// Status is what the deployment's status should be.
type Status struct {
	Counts     Counts
	Conditions []Condition // Available and Progressing, and ReplicaFailure and Frozen while they are True
	// names of machines whose last operation failed, as scale.Names returns them, without preserved Failed ones
	Failed []string
}

// Report returns the Status of Plan.
func Report(o Observed) Status { return open(o.Sorted()).report() }

func (p *planner) report() Status {
	optional := list.Where([]Condition{p.failure(), p.isFrozen()}, func(c Condition) bool { return c.Reason != "" })
	s := Status{Counts: p.count(), Conditions: slices.Concat(p.aboutMachines(), []Condition{p.isProgressing()}, optional)}
	for _, set := range p.o.Sets {
		for _, m := range set.Machines {
			if m.troubled() {
				s.Failed = append(s.Failed, m.Name)
			}
		}
	}
	s.Conditions[0].Message = strings.Join(
		phrase.Parts(s.Conditions[0].Message, scale.FailedBeyondNamed(len(s.Failed))),
		"; ",
	)
	s.Failed = scale.Names(s.Failed)
	for i := range s.Conditions {
		s.Conditions[i].Message = phrase.Message(s.Conditions[i].Message)
	}
	return s
}

// isAvailable reports whether enough machines are available. Preserved Failed machines do not count as missing. Source:
// MCM.
func (p *planner) isAvailable() Condition {
	c := Condition{
		Type: vocabulary.ConditionAvailable, Status: "True", Reason: vocabulary.ReasonMinimumReplicasAvailable,
		Message: fmt.Sprintf("%d of %s available, %d needed", p.available(), machines(p.o.Replicas), p.needed),
	}
	if p.count().Available < p.needed {
		c.Status, c.Reason = "False", vocabulary.ReasonMinimumReplicasUnavailable
	}
	return c
}

// isProgressing reports the state of the rollout. Updated is the time of the last progress, from which the progress
// deadline counts.
func (p *planner) isProgressing() Condition {
	was := p.o.reported(vocabulary.ConditionProgressing)
	if was.Reason == vocabulary.ReasonProgressDeadlineExceeded && p.o.Stopped() != "" && !p.complete() {
		return was
	}
	c := p.state(was.Reason)
	c.Type, c.Updated = vocabulary.ConditionProgressing, was.Updated
	progressing := []string{
		vocabulary.ReasonNewMachineSetCreated,
		vocabulary.ReasonFoundNewMachineSet,
		vocabulary.ReasonMachineSetUpdated,
	}
	if was.Reason != c.Reason || c.Updated.IsZero() || p.moved() && slices.Contains(progressing, c.Reason) {
		c.Updated = p.o.Now
	}
	return c
}

// state returns the condition Progressing without times. was is its present reason.
func (p *planner) state(was string) Condition {
	counts := p.count()
	done := fmt.Sprintf("%d of %s up to date, %d available", counts.Updated, machines(p.o.Replicas), counts.Available)
	// only the number of machines changed: that is no rollout
	scaled := p.plain() && counts.Replicas == counts.Updated && p.o.Stopped() == ""
	return cmp.Or(
		list.When(p.o.Invalid != "", Condition{Status: "False", Reason: vocabulary.ReasonInvalid, Message: p.o.Invalid}),
		list.When(
			p.o.suspended() != "",
			Condition{Status: "Unknown", Reason: vocabulary.ReasonDeploymentPaused, Message: p.o.suspended()},
		),
		list.When(
			p.complete() || scaled,
			Condition{Status: "True", Reason: vocabulary.ReasonNewMachineSetAvailable, Message: done},
		),
		list.When(
			p.o.Paused,
			Condition{Status: "Unknown", Reason: vocabulary.ReasonDeploymentPaused, Message: p.pausedMessage(p.o.Stopped())},
		),
		list.When(
			p.o.Held != "",
			Condition{Status: "Unknown", Reason: vocabulary.ReasonRolloutHeld, Message: p.pausedMessage(p.o.Stopped())},
		),
		list.When(p.o.NoSet != "" && p.current == nil && !p.o.Deleting,
			Condition{Status: "False", Reason: vocabulary.ReasonMachineSetCreateError, Message: p.o.NoSet}),
		list.When(p.o.refused().Reason != "" && p.current == nil && !p.o.Deleting,
			Condition{Status: "False", Reason: p.o.refused().Reason, Message: p.o.refused().Message}),
		p.running(was, done),
	)
}

// running returns the state of a rollout that is not stopped.
func (p *planner) running(was, done string) Condition {
	_, pause := p.progress()
	begun := p.begun(was)
	switch {
	case p.noAnswer() != "":
		return Condition{Status: "False", Reason: vocabulary.ReasonExtensionFailed, Message: p.noAnswer()}
	case begun != "" && pause == nil && !p.late(): // also if the former revision was paused, held or late
		return Condition{
			Status:  "True",
			Reason:  begun,
			Message: fmt.Sprintf("set %s is now the current one; %s", p.current.Name, done),
		}
	case was == vocabulary.ReasonDeploymentPaused || was == vocabulary.ReasonRolloutHeld:
		return Condition{
			Status:  "Unknown",
			Reason:  vocabulary.ReasonDeploymentResumed,
			Message: "the rollout resumed; " + done,
		}
	case pause != nil:
		return Condition{Status: "Unknown", Reason: vocabulary.ReasonRolloutWaiting, Message: pause.says(p.o.Now)}
	case p.late():
		message := fmt.Sprintf("no progress for %s; %s", phrase.Length(p.o.Deadline.Round(time.Second)), done)
		return Condition{Status: "False", Reason: vocabulary.ReasonProgressDeadlineExceeded, Message: message}
	default:
		return Condition{Status: "True", Reason: vocabulary.ReasonMachineSetUpdated, Message: done}
	}
}

// begun returns the reason that says how the set became the current one, until the first progress; empty afterwards.
func (p *planner) begun(was string) string {
	switch {
	case p.fresh() && (p.current.History != "" || p.current.Revision != p.revision()):
		return vocabulary.ReasonFoundNewMachineSet
	case p.fresh():
		return vocabulary.ReasonNewMachineSetCreated
	case p.current != nil && !p.moved() && (was == vocabulary.ReasonNewMachineSetCreated || was == vocabulary.ReasonFoundNewMachineSet):
		return was
	default:
		return ""
	}
}

func (p *planner) pausedMessage(why string) string {
	if p.current == nil {
		return why + ": the template is not rolled out"
	}
	return fmt.Sprintf("%s: %d of %s up to date", why, p.count().Updated, machines(p.o.Replicas))
}

// failure repeats the ReplicaFailure of the current set, or else of any set. An empty reason means none. The message
// does not change while the reason is the same: a failure of another machine is no news.
func (p *planner) failure() Condition {
	failing := func(set *setPlan) bool { return set != nil && set.Failure.Reason != "" }
	set := cmp.Or(list.Find(append([]*setPlan{p.current}, p.sets...), failing), &setPlan{})
	c := Condition{
		Type:    vocabulary.ConditionReplicaFailure,
		Status:  "True",
		Reason:  set.Failure.Reason,
		Message: set.Failure.Message,
	}
	if was := p.o.reported(vocabulary.ConditionReplicaFailure); was.Reason == c.Reason {
		c.Message = was.Message
	}
	return c
}
