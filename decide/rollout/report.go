package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/scale"
)

// count adds up the machines of all sets.
func (p *planner) count() Counts {
	var c Counts
	wanted := 0
	for _, s := range p.o.Sets {
		of := func(holds func(Member) bool) int { return list.Count(s.Machines, holds) }
		c.Replicas += len(s.Machines)
		c.PreservedFailed += of(func(m Member) bool { return m.Failed && m.Preserved })
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

// complete reports whether all that is wanted is there, of the current template, and nothing else. A failed machine that is
// preserved takes a place on purpose.
func (p *planner) complete() bool {
	c := p.count()
	return p.current != nil && p.current.size == p.o.Replicas && p.current.Replicas == p.o.Replicas && p.current.Seen == p.o.Replicas &&
		c.Updated == p.o.Replicas && c.Replicas == p.o.Replicas && c.Available+c.PreservedFailed >= p.o.Replicas
}

// moved reports whether there was progress since the status was written: more new machines, fewer old ones, more ready or
// more available. Source: MCM. A rollout that was stopped and goes on has its time from the start, and so has a revision of which
// nothing is on record yet: the former one's lateness is not its own.
func (p *planner) moved() bool {
	if p.fresh() {
		return true
	}
	c, r := p.count(), p.o.Reported.Counts
	if c.Updated > r.Updated || c.Replicas-c.Updated < r.Replicas-r.Updated || c.Ready > r.Ready || c.Available > r.Available {
		return true
	}
	rests := []string{
		vocabulary.ReasonDeploymentPaused, vocabulary.ReasonDeploymentResumed, vocabulary.ReasonRolloutHeld,
		vocabulary.ReasonRolloutWaiting, vocabulary.ReasonNewMachineSetAvailable, "",
	}
	return slices.Contains(rests, p.o.reported(vocabulary.ConditionProgressing).Reason)
}

// fresh reports whether nothing is on record yet of the revision that is rolled out.
func (p *planner) fresh() bool {
	return p.current != nil && p.o.Progress.Revision < p.revision()
}

// due returns when the progress deadline passes; zero when it never does, or has.
func (p *planner) due() time.Time {
	last := p.o.reported(vocabulary.ConditionProgressing)
	late := last.Reason == vocabulary.ReasonProgressDeadlineExceeded
	if p.o.Deadline == nil || late || p.plain() || p.o.Stopped() != "" || last.Updated.IsZero() || p.complete() || p.moved() {
		return time.Time{}
	}
	return last.Updated.Add(*p.o.Deadline)
}

// late reports whether the progress deadline has passed. Once it has, only progress ends that.
func (p *planner) late() bool {
	told := p.o.reported(vocabulary.ConditionProgressing).Reason == vocabulary.ReasonProgressDeadlineExceeded
	if told && p.o.Deadline != nil && !p.moved() && !p.complete() {
		return true
	}
	due := p.due()
	return !due.IsZero() && !p.o.Now.Before(due)
}

// Stopped says why the template is not rolled out; empty when it is.
func (o Observed) Stopped() string {
	return cmp.Or(phrase.If(o.Paused, "paused"), phrase.If(o.Held != "", "held: %s", o.Held))
}

// Status is what the deployment's status shall say.
type Status struct {
	Counts     Counts
	Conditions []Condition // Available and Progressing; then ReplicaFailure and Frozen, only while they are True
	Failed     []string    // names of machines whose last operation failed, preserved ones left out
}

// Report is the Status of Look. It says what the deployment's status shall say; a status that says the same already is left alone, and one
// number that differs is reason enough to write it.
func Report(o Observed) Status { return open(o.Sorted()).report() }

func (p *planner) report() Status {
	s := Status{Counts: p.count(), Conditions: []Condition{p.isAvailable(), p.isProgressing()}}
	for _, set := range p.o.Sets {
		for _, m := range set.Machines {
			if m.Troubled && (!m.Failed || !m.Preserved) {
				s.Failed = append(s.Failed, m.Name)
			}
		}
	}
	slices.Sort(s.Failed)
	for _, c := range []Condition{p.failure(), p.isFrozen()} {
		if c.Reason != "" {
			s.Conditions = append(s.Conditions, c)
		}
	}
	for i := range s.Conditions {
		s.Conditions[i].Message = phrase.Message(s.Conditions[i].Message)
	}
	return s
}

// isAvailable tells whether enough machines are. Failed ones that are preserved are not counted as missing. Source: MCM.
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

// isProgressing tells how the rollout is. Updated is when it last got on; the progress deadline counts from there.
func (p *planner) isProgressing() Condition {
	was := p.o.reported(vocabulary.ConditionProgressing)
	if was.Reason == vocabulary.ReasonProgressDeadlineExceeded && p.o.Stopped() != "" && !p.complete() {
		return was
	}
	c := p.says(was.Reason)
	c.Type, c.Updated = vocabulary.ConditionProgressing, was.Updated
	goes := []string{vocabulary.ReasonNewMachineSetCreated, vocabulary.ReasonFoundNewMachineSet, vocabulary.ReasonMachineSetUpdated}
	if was.Reason != c.Reason || c.Updated.IsZero() || p.moved() && slices.Contains(goes, c.Reason) {
		c.Updated = p.o.Now
	}
	return c
}

// says tells how the rollout is, without times. was is the reason that stands.
func (p *planner) says(was string) Condition {
	counts := p.count()
	done := fmt.Sprintf("%d of %s up to date, %d available", counts.Updated, machines(p.o.Replicas), counts.Available)
	scaled := p.plain() && counts.Replicas == counts.Updated && p.o.Stopped() == "" // only the number changed: that is no rollout
	return cmp.Or(
		tell(p.o.Invalid != "", "False", vocabulary.ReasonInvalid, p.o.Invalid),
		tell(p.complete() || scaled, "True", vocabulary.ReasonNewMachineSetAvailable, done),
		tell(p.o.Paused, "Unknown", vocabulary.ReasonDeploymentPaused, p.pausedMessage("paused")),
		tell(p.o.Held != "", "Unknown", vocabulary.ReasonRolloutHeld, p.pausedMessage(p.o.Stopped())),
		tell(p.o.NoSet != "" && p.current == nil && !p.o.Deleting, "False", vocabulary.ReasonMachineSetCreateError, p.o.NoSet),
		p.goesOn(was, done),
	)
}

// tell is a condition that is told only sometimes; the zero Condition at other times.
func tell(holds bool, status, reason, message string) Condition {
	if !holds {
		return Condition{}
	}
	return Condition{Status: status, Reason: reason, Message: message}
}

// goesOn tells of a rollout that nobody stopped.
func (p *planner) goesOn(was, done string) Condition {
	_, pause := p.progress()
	begun := p.begun(was)
	switch {
	case begun != "" && pause == nil && !p.late(): // also when what came before it was paused, held or late
		return Condition{Status: "True", Reason: begun, Message: fmt.Sprintf("set %s comes; %s", p.current.Name, done)}
	case was == vocabulary.ReasonDeploymentPaused || was == vocabulary.ReasonRolloutHeld:
		return Condition{Status: "Unknown", Reason: vocabulary.ReasonDeploymentResumed, Message: "the rollout goes on; " + done}
	case pause != nil:
		return Condition{Status: "Unknown", Reason: vocabulary.ReasonRolloutWaiting, Message: pause.says()}
	case p.late():
		message := fmt.Sprintf("no progress for %s; %s", p.o.Deadline.Round(time.Second), done)
		return Condition{Status: "False", Reason: vocabulary.ReasonProgressDeadlineExceeded, Message: message}
	default:
		return Condition{Status: "True", Reason: vocabulary.ReasonMachineSetUpdated, Message: done}
	}
}

// begun says how the current set came to be that, until the first progress: it was made, or had been it before. Empty from then on.
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

// failure repeats why machines get no instance: what the current set says, else any. The message stays while the reason does: another
// machine's is no news. Without a reason there is nothing to tell.
func (p *planner) failure() Condition {
	var c Condition
	for _, set := range append([]*setPlan{p.current}, p.sets...) {
		if set != nil && c.Reason == "" {
			c = Condition{Type: vocabulary.ConditionReplicaFailure, Status: "True", Reason: set.Failure.Reason, Message: set.Failure.Message}
		}
	}
	if was := p.o.reported(vocabulary.ConditionReplicaFailure); was.Reason == c.Reason {
		c.Message = was.Message
	}
	return c
}

// isFrozen tells that no machines are made: by a label on the deployment, or on one of its sets.
func (p *planner) isFrozen() Condition {
	c := Condition{Type: vocabulary.ConditionFrozen, Status: "True", Reason: vocabulary.ReasonMachineDeploymentStateSync}
	i := slices.IndexFunc(p.sets, func(set *setPlan) bool { return set.Frozen })
	switch {
	case p.o.Frozen:
		c.Message = "No machine is created while the label freeze is True"
	case i >= 0:
		c.Message = fmt.Sprintf("No machine is created while the label freeze of set %s is True", p.sets[i].Name)
	default:
		return Condition{}
	}
	return c
}
