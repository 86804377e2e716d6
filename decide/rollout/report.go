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

// countMachines counts the machines of all sets.
func (p *planner) countMachines() MachineCounts {
	var c MachineCounts
	wanted := 0
	for _, s := range p.facts.Sets {
		of := func(holds func(Member) bool) int { return list.CountWhere(s.Machines, holds) }
		c.Replicas += len(s.Machines)
		c.PreservedFailed += of(func(m Member) bool { return m.isPreservedFailed() })
		c.Ready += of(func(m Member) bool { return m.Ready && !m.Deleting })
		c.Available += of(func(m Member) bool { return m.Available })
		if p.templateSet != nil && s.UID == p.templateSet.UID {
			c.Updated += len(s.Machines)
		}
		if !s.Deleting {
			wanted += max(s.Replicas, 0)
		}
	}
	c.Unavailable = max(wanted-c.Available, 0)
	return c
}

// isComplete reports whether exactly the wanted machines exist, are available and belong to the current set. A
// preserved Failed machine counts as available.
func (p *planner) isComplete() bool {
	c := p.countMachines()
	return p.currentSet != nil && p.currentSet.size == p.facts.Replicas && p.currentSet.Replicas == p.facts.Replicas &&
		p.currentSet.ObservedReplicas == p.facts.Replicas &&
		len(p.currentSet.Machines) == p.facts.Replicas &&
		c.Replicas == p.facts.Replicas &&
		c.Available+c.PreservedFailed >= p.facts.Replicas
}

// hasProgressed reports whether there was progress since the status was written: more new machines, fewer old machines,
// more ready or more available machines. Source: MCM. A rollout that continues after a stop gets the full deadline
// again. A new revision also gets the full deadline, even if the previous revision was late.
func (p *planner) hasProgressed() bool {
	if p.isNewAttempt() {
		return true
	}
	c, r := p.countMachines(), p.facts.ReportedStatus.Counts
	more, fewer := c.Updated-r.Updated, (r.Replicas-r.Updated)-(c.Replicas-c.Updated)
	if p.pin != nil { // machines of the template are replaced by machines of an old set
		more, fewer = -fewer, -more
	}
	if more > 0 || fewer > 0 || c.Ready > r.Ready || c.Available > r.Available {
		return true
	}
	rests := []string{
		vocabulary.ReasonDeploymentPaused, vocabulary.ReasonDeploymentResumed, vocabulary.ReasonRolloutHeld,
		vocabulary.ReasonRolloutWaiting, vocabulary.ReasonWaitingForTurn, vocabulary.ReasonNewMachineSetAvailable, "",
	}
	return slices.Contains(rests, p.facts.reportedCondition(vocabulary.ConditionProgressing).Reason)
}

// isNewAttempt reports whether this attempt at the template's revision has no recorded progress yet. After the deletion
// of a set, another set may get its revision.
func (p *planner) isNewAttempt() bool {
	r := p.facts.Progress
	return p.templateSet != nil && p.pin == nil &&
		(r.Revision != p.highestRevision() || r.Set != p.templateSet.Name || r.Attempt != p.retryCount())
}

// progressDeadline returns the time at which the progress deadline passes; zero: it never passes, or has already
// passed.
func (p *planner) progressDeadline() time.Time {
	last := p.facts.reportedCondition(vocabulary.ConditionProgressing)
	late := last.Reason == vocabulary.ReasonProgressDeadlineExceeded
	if p.facts.ProgressDeadline == nil || late || p.isOnlyScaling() || p.stopReason() != "" ||
		last.LastUpdateTime.IsZero() ||
		p.isComplete() ||
		p.hasProgressed() {
		return time.Time{}
	}
	return last.LastUpdateTime.Add(*p.facts.ProgressDeadline + p.facts.WorkerDowntime)
}

// isLate reports whether the progress deadline has passed. isLate stays true until there is progress.
func (p *planner) isLate() bool {
	reported := p.facts.reportedCondition(
		vocabulary.ConditionProgressing,
	).Reason == vocabulary.ReasonProgressDeadlineExceeded
	if reported && p.facts.ProgressDeadline != nil && !p.hasProgressed() && !p.isComplete() {
		return true
	}
	due := p.progressDeadline()
	return !due.IsZero() && !p.facts.Now.Before(due)
}

// StopReason returns the reason why the template is not rolled out; empty: the template is rolled out.
func (o Facts) StopReason() string {
	return cmp.Or(
		phrase.TextIf(o.Paused, "paused%s", phrase.ActorText(o.PausedBy)),
		phrase.TextIf(o.HoldReason != "", "held%s", phrase.ActorText(o.HoldReason)),
	)
}

// OptionalConditionTypes returns the types of conditions that a status has only while they are True.
func OptionalConditionTypes() []string {
	return []string{
		vocabulary.ConditionReplicaFailure, vocabulary.ConditionFrozen, vocabulary.ConditionDegraded,
		vocabulary.ConditionReconciling, vocabulary.ConditionStalled,
	}
}

// Status is the desired status of the deployment.
type Status struct {
	Counts MachineCounts
	// Available and Progressing are always present; the types of OptionalConditionTypes only while they are
	// True
	Conditions []Condition
	// FailedNames has the names of machines whose last operation failed, as scale.FirstFailedNames returns them.
	// FailedNames does not include preserved machines.
	FailedNames []string
}

// PlannedStatus returns the Status of PlanDeployment.
func PlannedStatus(o Facts) Status { return newPlanner(o.SortedCopy()).buildStatus() }

func (p *planner) buildStatus() Status {
	progressing := p.progressingCondition()
	optional := list.Filter(
		[]Condition{
			p.replicaFailureCondition(), p.frozenCondition(), p.degradedCondition(), p.reconcileCondition(progressing),
		},
		func(c Condition) bool { return c.Reason != "" },
	)
	s := Status{
		Counts:     p.countMachines(),
		Conditions: slices.Concat(p.machineConditions(), []Condition{progressing}, optional),
	}
	for _, set := range p.facts.Sets {
		for _, m := range set.Machines {
			if m.lastOperationFailed() {
				s.FailedNames = append(s.FailedNames, m.Name)
			}
		}
	}
	s.Conditions[0].Message = strings.Join(
		phrase.NonEmptyTexts(s.Conditions[0].Message, scale.UnnamedFailuresText(len(s.FailedNames))),
		"; ",
	)
	s.FailedNames = scale.FirstFailedNames(s.FailedNames)
	for i := range s.Conditions {
		s.Conditions[i].Message = phrase.TruncateMessage(s.Conditions[i].Message)
	}
	return s
}

// availableCondition reports whether enough machines are available. Preserved Failed machines do not count as missing.
// Source: MCM.
func (p *planner) availableCondition() Condition {
	c := Condition{
		Type:   vocabulary.ConditionAvailable,
		Status: "True",
		Reason: vocabulary.ReasonMinimumReplicasAvailable,
		Message: fmt.Sprintf(
			"%d of %s available, %d needed",
			p.availableMachineCount(),
			machineCountText(p.facts.Replicas),
			p.minAvailable,
		),
	}
	if p.countMachines().Available < p.minAvailable {
		c.Status, c.Reason = "False", vocabulary.ReasonMinimumReplicasUnavailable
	}
	return c
}

// progressingCondition returns the condition Progressing. Updated is the time of the last progress. The progress
// deadline starts at Updated.
func (p *planner) progressingCondition() Condition {
	was := p.facts.reportedCondition(vocabulary.ConditionProgressing)
	if was.Reason == vocabulary.ReasonProgressDeadlineExceeded && p.facts.StopReason() != "" && !p.isComplete() {
		return was
	}
	c := p.progressingConditionWithoutTimes(was.Reason)
	c.Type, c.LastUpdateTime = vocabulary.ConditionProgressing, was.LastUpdateTime
	progressing := []string{
		vocabulary.ReasonNewMachineSetCreated,
		vocabulary.ReasonFoundNewMachineSet,
		vocabulary.ReasonMachineSetUpdated,
	}
	if was.Reason != c.Reason || c.LastUpdateTime.IsZero() || p.hasProgressed() && slices.Contains(progressing, c.Reason) {
		c.LastUpdateTime = p.facts.Now
	}
	return c
}

// progressingConditionWithoutTimes returns the condition Progressing without times. was is the condition's current
// reason.
func (p *planner) progressingConditionWithoutTimes(was string) Condition {
	counts := p.countMachines()
	done := fmt.Sprintf(
		"%d of %s up to date, %d available",
		counts.Updated,
		machineCountText(p.facts.Replicas),
		counts.Available,
	)
	here := 0
	if p.currentSet != nil {
		here = len(p.currentSet.Machines)
	}
	if p.pin != nil {
		done = fmt.Sprintf(
			"%d of %s back on revision %d, %d available",
			here,
			machineCountText(p.facts.Replicas),
			p.pin.Revision,
			counts.Available,
		)
	}
	// If only the number of machines changed, there is no rollout.
	scaled := p.isOnlyScaling() && counts.Replicas == here && p.stopReason() == ""
	return cmp.Or(
		list.ValueIf(
			p.facts.InvalidReason != "",
			Condition{Status: "False", Reason: vocabulary.ReasonInvalid, Message: p.facts.InvalidReason},
		),
		list.ValueIf(
			p.facts.suspensionReason() != "",
			Condition{Status: "Unknown", Reason: vocabulary.ReasonDeploymentPaused, Message: p.facts.suspensionReason()},
		),
		list.ValueIf(
			p.isComplete() || scaled,
			Condition{Status: "True", Reason: vocabulary.ReasonNewMachineSetAvailable, Message: done},
		),
		list.ValueIf(
			p.facts.Paused,
			Condition{
				Status:  "Unknown",
				Reason:  vocabulary.ReasonDeploymentPaused,
				Message: p.pausedMessage(p.facts.StopReason()),
			},
		),
		list.ValueIf(
			p.facts.HoldReason != "",
			Condition{Status: "Unknown", Reason: vocabulary.ReasonRolloutHeld, Message: p.pausedMessage(p.facts.StopReason())},
		),
		list.ValueIf(p.facts.CreationError != "" && p.currentSet == nil && !p.facts.Deleting,
			Condition{Status: "False", Reason: vocabulary.ReasonMachineSetCreateError, Message: p.facts.CreationError}),
		list.ValueIf(p.facts.CreationProblem.Reason != "" && p.currentSet == nil && !p.facts.Deleting,
			Condition{Status: "False", Reason: p.facts.CreationProblem.Reason, Message: p.facts.CreationProblem.Message}),
		list.ValueIf(p.stopReason() != "" && !p.facts.Deleting,
			Condition{Status: "Unknown", Reason: vocabulary.ReasonWaitingForTurn, Message: p.stopReason()}),
		p.runningProgressingCondition(was, done),
	)
}

// runningProgressingCondition returns the condition Progressing of a rollout that is not stopped.
func (p *planner) runningProgressingCondition(was, done string) Condition {
	_, pause := p.currentProgress()
	begun := p.newCurrentSetReason(was)
	switch {
	case p.extensionFailure() != "":
		return Condition{Status: "False", Reason: vocabulary.ReasonExtensionFailed, Message: p.extensionFailure()}
	case p.inPlaceRefusal() != "":
		return Condition{Status: "False", Reason: vocabulary.ReasonNotUpdatedInPlace, Message: p.inPlaceRefusal()}
	// the condition is True even if the previous revision was paused, held or late
	case begun != "" && pause == nil && !p.isLate():
		return Condition{
			Status:  "True",
			Reason:  begun,
			Message: fmt.Sprintf("set %s is now the current one; %s", p.currentSet.Name, done),
		}
	case was == vocabulary.ReasonDeploymentPaused || was == vocabulary.ReasonRolloutHeld:
		return Condition{
			Status:  "Unknown",
			Reason:  vocabulary.ReasonDeploymentResumed,
			Message: "the rollout resumed; " + done,
		}
	case pause != nil:
		return Condition{Status: "Unknown", Reason: vocabulary.ReasonRolloutWaiting, Message: pause.waitSentence(p.facts.Now)}
	case p.isLate():
		message := fmt.Sprintf(
			"no progress for %s; %s",
			phrase.DurationText(p.facts.ProgressDeadline.Round(time.Second)),
			done,
		)
		return Condition{Status: "False", Reason: vocabulary.ReasonProgressDeadlineExceeded, Message: message}
	default:
		return Condition{Status: "True", Reason: vocabulary.ReasonMachineSetUpdated, Message: done}
	}
}

// newCurrentSetReason returns the reason for a current set that was just found or created. After the first progress,
// newCurrentSetReason returns "".
func (p *planner) newCurrentSetReason(was string) string {
	switch {
	case p.isNewAttempt() && (p.currentSet.History != "" || p.currentSet.Revision != p.highestRevision()):
		return vocabulary.ReasonFoundNewMachineSet
	case p.isNewAttempt():
		return vocabulary.ReasonNewMachineSetCreated
	case p.currentSet != nil && !p.hasProgressed() && (was == vocabulary.ReasonNewMachineSetCreated || was == vocabulary.ReasonFoundNewMachineSet):
		return was
	default:
		return ""
	}
}

func (p *planner) pausedMessage(why string) string {
	if p.currentSet == nil {
		return why + ": the template is not rolled out"
	}
	return fmt.Sprintf("%s: %d of %s up to date", why, p.countMachines().Updated, machineCountText(p.facts.Replicas))
}

// replicaFailureCondition returns the condition ReplicaFailure of the current set. If the current set has none, it
// returns the condition of another set. An empty Reason means that no set has a ReplicaFailure. While the reason is the
// same, the message does not change, because a failure of another machine is not a new failure.
func (p *planner) replicaFailureCondition() Condition {
	failing := func(set *setPlan) bool { return set != nil && set.Failure.Reason != "" }
	set := cmp.Or(list.FindFirst(append([]*setPlan{p.currentSet}, p.sets...), failing), &setPlan{})
	c := Condition{
		Type:    vocabulary.ConditionReplicaFailure,
		Status:  "True",
		Reason:  set.Failure.Reason,
		Message: set.Failure.Message,
	}
	if was := p.facts.reportedCondition(vocabulary.ConditionReplicaFailure); was.Reason == c.Reason {
		c.Message = was.Message
	}
	return c
}
