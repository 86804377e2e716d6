package request

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"millwright/decide/phrase"
)

// DeploymentFacts holds the facts about the deployment of a request.
type DeploymentFacts struct {
	Name       string // namespace/name of the deployment
	UID        string
	Now        time.Time
	LastRecord string // record of the last request; empty: no record

	Deleting         bool
	InvalidReason    string // why the spec is invalid, in one sentence; empty: the spec is valid
	Paused           bool
	HoldReason       string  // actor and reason of the hold of the current revision; empty: no hold
	Rolling          bool    // the deployment has machines of other templates
	IsOnDelete       bool    // the deployment's strategy is IsOnDelete
	Revision         int64   // revision of the current set, or of the set to create; 0: no set exists yet
	EarlierRevisions []int64 // revisions of earlier templates to which the deployment can return
	// the missing object that prevents a rollback to a revision, by revision
	MissingObjectByRevision map[int64]string
	RollbackTo              *int64 // requested rollback that is not complete yet; 0: to the previous revision; nil: no request

	RolloutStepFacts
	PinFacts
	RestartedAt string // time of the last start command; empty: none
	// TemplateOwner is the object that writes the deployment's template, such as "the topology of Cluster shop/web"; empty:
	// none. Such a deployment can go back only by a pin.
	TemplateOwner string
	// IsClusterAPI means that the object is a MachineDeployment of Cluster API, which does not keep its restart time in
	// the template.
	IsClusterAPI bool
}

// RolloutStepFacts are the facts about the steps of a rollout.
type RolloutStepFacts struct {
	StepCount            int // number of steps of the current rollout; 0: none
	NextRolloutStepCount int // number of steps of a rollout that begins now; 0: none
	WaitingStep          int // step at which the current rollout waits, counted from 1; 0: none
	ApprovedStepCount    int // number of approved steps of this revision, counted from the first step
}

// PinFacts are the facts about the pin of a revision.
type PinFacts struct {
	// revisions of other sets with the present template, such as the set before a restart; only a pin can roll back to
	// them
	DuplicateRevisions []int64
	PinnedRevision     int64 // earlier revision to which the machines are pinned; 0: no pin
	RetryCount         int   // number of retries of this revision that were requested or are recorded
	LastGoodRevision   int64 // earlier revision whose rollout was the last complete rollout; 0: none, or unknown
}

func (f DeploymentFacts) kindAndUID() (Kind, string) { return KindMachineDeployment, f.UID }

func (f DeploymentFacts) decideOrder(o CommandOrder) Decision {
	record := cmp.Or(o.RequestedAt, f.Now).UTC().Format(time.RFC3339Nano) + " " + o.Summary()
	if !o.RequestedAt.IsZero() && f.LastRecord == record {
		return repeatedDecision("deployment %s got this request before: nothing was written", f.Name)
	}
	d := decisionUnlessRefused(
		phrase.TextIf(f.Deleting, "deployment %s is being deleted: %s would change nothing", f.Name, o.Command),
		f.decideCommand(o),
	)
	if d.RefusalReason == "" && !d.Repeated {
		d.Record = record
	}
	return d
}

func (f DeploymentFacts) decideCommand(o CommandOrder) Decision {
	switch {
	case o.Command == Pause && f.Paused:
		return repeatedDecision("deployment %s is paused already", f.Name)
	case o.Command == Pause:
		return Decision{
			Paused:          new(true),
			AnnotationValue: new(o.actorAndReason()),
			Message:         fmt.Sprintf("deployment %s is paused", f.Name),
		}
	case o.Command == Resume:
		return f.decideResume()
	case f.InvalidReason != "":
		return refusedDecision("deployment %s cannot be rolled out: %s; correct that first", f.Name, f.InvalidReason)
	case o.Command == Start:
		return f.decideStart(o)
	case o.Command == Undo:
		return f.decideUndo(o)
	case o.Command == Retry:
		return f.decideRetry(o)
	case o.Command == Approve:
		return f.decideApproval(o)
	case !f.Rolling:
		return refusedDecision("no rollout of deployment %s is under way: there is nothing to cancel; "+
			"to go back to a former revision, undo", f.Name)
	case o.RollsBack:
		return f.decideUndo(o)
	default:
		return f.decideHold(o)
	}
}

// decideResume ends a pause and a hold. decideResume does not approve a step at which the rollout waits.
func (f DeploymentFacts) decideResume() (d Decision) {
	if f.Paused {
		d.Paused, d.Message = new(false), fmt.Sprintf("deployment %s is no longer paused", f.Name)
	}
	if f.HoldReason != "" {
		d.AnnotationValue = new("")
		d.Message += phrase.TextIf(
			f.Paused,
			", and ",
		) + fmt.Sprintf(
			"%s is no longer held (former hold: %s)",
			f.rolloutName(),
			f.HoldReason,
		)
	}
	return decisionUnlessRefused(
		phrase.TextIf(d.Message == "", "deployment %s is neither paused nor held: there is nothing to resume", f.Name),
		d,
	)
}

// decideStart replaces all machines: it changes only the restart time, in the template or in spec.rollout.after.
func (f DeploymentFacts) decideStart(o CommandOrder) Decision {
	at := cmp.Or(o.RequestedAt, f.Now).UTC().Format(time.RFC3339)
	if f.HoldReason == "" && f.rolloutBlocker() == "" && f.RestartedAt == at {
		return repeatedDecision("%s of deployment %s says %s already", f.startFieldName(), f.Name, at)
	}
	return decisionUnlessRefused(cmp.Or(
		f.rolloutBlocker(),
		phrase.TextIf(
			f.HoldReason != "",
			"%s is held (%s), and nothing is rolled out: resume or undo it first",
			f.rolloutName(),
			f.HoldReason,
		),
	), Decision{
		RestartedAt:     &at,
		AnnotationValue: new("started by " + o.actorAndReason()),
		Message: fmt.Sprintf(
			"wrote %s into %s of deployment %s: all its machines are replaced%s",
			at,
			f.startFieldName(),
			f.Name,
			phrase.TextIf(f.IsOnDelete, ", each when somebody deletes the old one"),
		) +
			phrase.TextIf(
				f.IsClusterAPI && f.RestartedAt > at,
				"; it overwrites the later time %s",
				f.RestartedAt,
			),
	})
}

// startFieldName returns the name of the field that a start changes.
func (f DeploymentFacts) startFieldName() string {
	return cmp.Or(phrase.TextIf(f.IsClusterAPI, "spec.rollout.after"), "the template")
}

// rolloutBlocker returns why a change of the template would not be rolled out now. If rolloutBlocker is empty, the
// change would be rolled out.
func (f DeploymentFacts) rolloutBlocker() string {
	return cmp.Or(
		phrase.TextIf(
			f.Paused,
			"deployment %s is paused, and neither a new template nor a former one is rolled out: resume it first",
			f.Name,
		),
		phrase.TextIf(
			f.RollbackTo != nil,
			"deployment %s was asked to return to %s, and does so first: try again afterwards",
			f.Name,
			cmp.Or(
				phrase.TextIf(revisionOrZero(f.RollbackTo) > 0, "revision %d", revisionOrZero(f.RollbackTo)),
				"the revision before",
			),
		),
	)
}

// decideUndo requests the template of an earlier revision. Without a revision in the order, decideUndo returns to the
// last revision whose rollout was complete, or to the previous revision if no such revision is recorded. decideUndo
// always writes the number of the revision, because the previous revision changes when a set is created or deleted.
func (f DeploymentFacts) decideUndo(o CommandOrder) Decision {
	to := revisionOrZero(o.Revision)
	if o.PinsMachines {
		f.EarlierRevisions = slices.Concat(f.EarlierRevisions, f.DuplicateRevisions)
	}
	if to == 0 && slices.Contains(f.EarlierRevisions, f.LastGoodRevision) {
		to = f.LastGoodRevision
	}
	if all := slices.AppendSeq(
		slices.Clone(f.EarlierRevisions),
		maps.Keys(f.MissingObjectByRevision),
	); to == 0 &&
		len(all) > 0 {
		to = slices.Max(all)
	}
	if !f.Paused && f.RollbackTo != nil && *f.RollbackTo == to && slices.Contains(f.EarlierRevisions, to) {
		return repeatedDecision("deployment %s was asked to return to revision %d already", f.Name, to)
	}
	if o.PinsMachines && f.PinnedRevision == to && to != 0 {
		return repeatedDecision("deployment %s is pinned to revision %d already", f.Name, to)
	}
	return decisionUnlessRefused(cmp.Or(
		f.rolloutBlocker(),
		phrase.TextIf(
			!o.PinsMachines && f.TemplateOwner != "",
			"%s writes the template of deployment %s, and would write it again: undo with --pin, or change the owner of the template",
			f.TemplateOwner,
			f.Name,
		),
		phrase.TextIf(
			f.MissingObjectByRevision[to] != "",
			"revision %d of deployment %s cannot return: %s does not exist any more%s",
			to,
			f.Name,
			f.MissingObjectByRevision[to],
			phrase.TextIf(len(f.EarlierRevisions) > 0, "; it can go back to %s", f.earlierRevisionsText()),
		),
		phrase.TextIf(
			len(f.EarlierRevisions) == 0,
			"deployment %s has no set of a former template: there is nothing to go back to",
			f.Name,
		),
		phrase.TextIf(
			to == f.Revision,
			"revision %d is the one that deployment %s has: it can go back to %s",
			to,
			f.Name,
			f.earlierRevisionsText(),
		),
		phrase.TextIf(
			!slices.Contains(f.EarlierRevisions, to),
			"deployment %s has no set of revision %d: it can go back to %s",
			f.Name,
			to,
			f.earlierRevisionsText(),
		),
		phrase.TextIf(o.PinsMachines, "%s", f.staleOrderReason(CommandOrder{Command: o.Command})),
	), f.undoDecision(o, to))
}

// undoDecision returns the Decision that rolls the deployment back to a revision, by a pin or by an edit of the
// template.
func (f DeploymentFacts) undoDecision(o CommandOrder, to int64) Decision {
	if o.PinsMachines {
		return Decision{
			PinRevision:     &to,
			RemovesHold:     f.HoldReason != "",
			AnnotationValue: new(fmt.Sprintf("%d/%d %s", f.Revision, to, o.actorAndReason())),
			Message: fmt.Sprintf(
				"deployment %s is pinned to revision %d as long as its template is that of revision %d",
				f.Name,
				to,
				f.Revision,
			) + f.endedHoldClause(),
		}
	}
	return Decision{
		RollbackTo: &to, AnnotationValue: new(fmt.Sprintf("%d %s", to, o.actorAndReason())),
		Message: fmt.Sprintf("deployment %s returns%s to revision %d", f.Name,
			phrase.TextIf(f.Revision != 0, " from revision %d", f.Revision), to),
	}
}

// decideRetry ends the pin of this revision, so that its template is rolled out again.
func (f DeploymentFacts) decideRetry(o CommandOrder) Decision {
	return decisionUnlessRefused(cmp.Or(
		f.rolloutBlocker(),
		f.staleOrderReason(o),
		phrase.TextIf(
			f.PinnedRevision == 0,
			"revision %d of deployment %s is not pinned: there is nothing to retry",
			f.Revision,
			f.Name,
		),
	), Decision{
		AnnotationValue: new(fmt.Sprintf("%d/%d %s", f.Revision, f.RetryCount+1, o.actorAndReason())),
		RemovesPin:      true,
		RemovesHold:     f.HoldReason != "",
		Message: fmt.Sprintf(
			"revision %d of deployment %s is rolled out again",
			f.Revision,
			f.Name,
		) + f.endedHoldClause(),
	})
}

// endedHoldClause returns the part of a message that mentions that the request also ends the hold. The part is empty
// without a hold.
func (f DeploymentFacts) endedHoldClause() string {
	return phrase.TextIf(f.HoldReason != "", ", and is no longer held (former hold: %s)", f.HoldReason)
}

// decideHold stops the rollout of this revision at its present state.
func (f DeploymentFacts) decideHold(o CommandOrder) Decision {
	why := cmp.Or(phrase.TextIf(!f.Paused, "%s", f.rolloutBlocker()), f.staleOrderReason(o))
	if why == "" && f.HoldReason == o.actorAndReason() {
		return repeatedDecision("%s is held already: %s", f.rolloutName(), f.HoldReason)
	}
	return decisionUnlessRefused(
		cmp.Or(
			why,
			phrase.TextIf(f.HoldReason != "", "%s is held already: %s; resume it, or undo it", f.rolloutName(), f.HoldReason),
		),
		Decision{
			AnnotationValue: new(fmt.Sprintf("%d %s", f.Revision, o.actorAndReason())),
			Message:         f.rolloutName() + " is held where it is",
		},
	)
}

// staleOrderReason returns why an order is not for the current revision, or an empty string if it is.
func (f DeploymentFacts) staleOrderReason(o CommandOrder) string {
	return cmp.Or(
		phrase.TextIf(
			f.Revision == 0,
			"the template of deployment %s has no set yet, and so no revision to %s: try again when it has",
			f.Name,
			o.Command,
		),
		phrase.TextIf(
			o.Revision != nil && revisionOrZero(o.Revision) != f.Revision,
			"the request is for revision %d, and deployment %s has "+
				"revision %d: look at the rollout, then try again",
			revisionOrZero(o.Revision),
			f.Name,
			f.Revision,
		),
	)
}

// decideApproval approves the steps up to o.Steps, or up to the step at which the rollout waits if o.Steps is 0.
func (f DeploymentFacts) decideApproval(o CommandOrder) Decision {
	passed, to := max(f.ApprovedStepCount, f.WaitingStep-1), cmp.Or(o.ApprovedStepCount, f.WaitingStep)
	return decisionUnlessRefused(cmp.Or(
		phrase.TextIf(f.StepCount == 0, "a rollout of deployment %s has no steps: there is nothing to approve", f.Name),
		phrase.TextIf(!f.Rolling, "no rollout of deployment %s is under way: there is no step to approve", f.Name),
		f.staleOrderReason(o),
		phrase.TextIf(to == 0, "%s waits at no step now: wait until it does, or pass steps in advance with %s",
			f.rolloutName(), o.argumentName("steps")),
		phrase.TextIf(to > f.StepCount, "there is no step %d: %s has %d in all", to, f.rolloutName(), f.StepCount),
		phrase.TextIf(to <= passed, "%s has passed step %d of %d already", f.rolloutName(), passed, f.StepCount),
	), Decision{
		AnnotationValue: new(fmt.Sprintf("%d/%d %s", f.Revision, to, o.actorAndReason())),
		Message: fmt.Sprintf("%s passes step %d of %d%s", f.rolloutName(), to, f.StepCount,
			phrase.TextIf(f.Paused || f.HoldReason != "", ", once it is resumed")),
	})
}
