package deployment

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	capi "millwright/activities/capi/deployment"
	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
	"millwright/workflows/run"
)

// setWriter is the common part of the workflows of a deployment and of its rollouts. While a rollout is open, only
// the rollout writes the deployment's sets and status. Without an open rollout, only the deployment's workflow writes
// the sets and the status.
type setWriter struct {
	*run.WorkflowState
	apiActivities
	statusRolloutID string // workflow ID that the status must name; if empty, the status may name any ID
	endedRolloutID  string // ID of a rollout that has ended but that the status may still name; may be empty
	// minimum time between two reports of counts and conditions; zero: each change is reported at once
	reportInterval     time.Duration
	lastReportTime     time.Time       // time of the last status write
	reportedStep       string          // step in the last status write of this run; may be empty
	pendingNodeMarks   workflow.Future // marks that are being written to nodes; may be nil
	nodeMarksRetryTime time.Time       // time at which the workflow tries again to write marks after a failure
	// reason why the API server has refused to create the current template's set; empty if there was no refusal, or if
	// no set is needed
	currentSetRefusalReason string
}

// Decide runs the activity that decides the next changes of the sets.
func (w *setWriter) Decide(ctx workflow.Context) (d deployment.Decision, err error) {
	if w.pendingNodeMarks != nil && w.pendingNodeMarks.IsReady() {
		w.awaitNodeMarks(ctx)
	}
	// the summary cannot contain the result of the decision, so it contains what the page has shown so far
	summary := phrase.TextIf(w.Shown.Why != "", "so far: %s; ", w.Shown.Why) + "what is next for the sets?"
	d, err = w.decideDeployment.RunLocalFirst(ctx, w.WorkflowState, summary, w.decisionInput(ctx))
	w.Live = false
	w.RaiseMinVersions(d.Seen)
	if err == nil && d.Rollout.Create == nil {
		w.currentSetRefusalReason = ""
	}
	return d, err
}

func (w *setWriter) decisionInput(ctx workflow.Context) deployment.Input {
	return deployment.Input{ReadInput: w.NewReadInput(ctx), WorkflowID: w.statusRolloutID, Over: w.endedRolloutID}
}

// applyDecision carries out a decision, and reports whether there was anything to do. applyDecision writes the
// rollout's record before the changes that follow from the record.
func (w *setWriter) applyDecision(ctx workflow.Context, d deployment.Decision) (acted bool, err error) {
	if d.Prepare || d.Release {
		return true, run.WriteObject(
			ctx,
			w.WorkflowState,
			"finalizer: "+d.Pending.Why,
			w.finalizeDeployment,
			w.NewReadInput(ctx),
		)
	}
	if d.Rollout.Record != nil {
		if err := w.writeStatus(ctx, d, d.Rollout.Record); err != nil {
			return true, err
		}
	}
	if d.Rollout.Rollback != nil {
		return true, w.restoreTemplate(ctx, d)
	}
	if w.mayTakeLong(d.Rollout) {
		if err := w.SetSearchAttributes(ctx); err != nil {
			return true, err
		}
	}
	acted, err = w.carryOutWrites(ctx, d)
	if err != nil {
		return acted, err
	}
	if d.Replace {
		granted, err := w.grantReplacements.RunLocalFirst(ctx, w.WorkflowState, d.Pending.Why, w.NewReadInput(ctx))
		if err != nil {
			return true, err
		}
		w.RaiseMinVersions(granted.Versions)
		if granted.Wrote {
			return true, nil
		}
	}
	if w.isStatusWriteDue(d, workflow.Now(ctx)) {
		return true, w.writeStatus(ctx, d, nil)
	}
	return acted || d.Rollout.Record != nil, nil
}

// isStatusWriteDue reports whether the status must be written now although the decision contains no record of the
// rollout.
func (w *setWriter) isStatusWriteDue(d deployment.Decision, now time.Time) bool {
	return w.isStatusStale(d) && d.Rollout.Record == nil && !w.earliestReportTime(d).After(now)
}

// isStatusStale reports whether the status is out of date. If the rollout waits, the status is also stale when it shows
// another step.
func (w *setWriter) isStatusStale(d deployment.Decision) bool {
	waits := w.statusRolloutID != "" && d.Pending.Need != attention.NeedNothing && !d.Rollout.HasActions()
	return d.Report || waits && w.reportedStep != "" && w.reportedStep != w.Shown.Name
}

// earliestReportTime returns the earliest time for a status write in which only counts and conditions change. If the
// rollout is complete, this write is due at once.
func (w *setWriter) earliestReportTime(d deployment.Decision) time.Time {
	if d.Rollout.Complete || w.lastReportTime.IsZero() {
		return time.Time{}
	}
	return w.lastReportTime.Add(w.reportInterval)
}

// writeStatus writes the status, and the record of the rollout if record is not nil.
func (w *setWriter) writeStatus(ctx workflow.Context, d deployment.Decision, record *rollout.Progress) error {
	report := deployment.Report{Input: w.decisionInput(ctx), Record: record, NoSet: w.currentSetRefusalReason}
	w.reportedStep = ""
	if d.Pending.Need != attention.NeedNothing {
		report.Step, w.reportedStep = w.StatusStep(), w.Shown.Name
		if w.statusRolloutID != "" {
			report.Step.RolloutOf = w.Ref.UID
		}
	}
	if err := run.WriteObject(ctx, w.WorkflowState, "status: "+d.Pending.Why, w.reportDeployment, report); err != nil {
		return err
	}
	w.lastReportTime = workflow.Now(ctx)
	return nil
}

// restoreTemplate writes the template of an earlier revision to the deployment.
func (w *setWriter) restoreTemplate(ctx workflow.Context, d deployment.Decision) error {
	if err := w.SetSearchAttributes(ctx); err != nil {
		return err
	}
	order := deployment.RollbackInput{Deployment: w.Ref, Version: d.Version, Rollback: *d.Rollout.Rollback}
	var done kube.MinVersions
	err := workflow.ExecuteActivity(run.BatchOptions(ctx, d.Rollout.Rollback.Why, 1), w.apiActivities.rollBackDeployment, order).
		Get(ctx, &done)
	w.RaiseMinVersions(done)
	return err
}

// carryOutWrites makes the writes of a decision. One call writes only the marks of machines, or only a new set, or all
// other changes concurrently. Node writes delay the other writes by at most seven seconds: a local attempt (2 s) and
// the time of run.QuickBatchOptions (5 s).
func (w *setWriter) carryOutWrites(ctx workflow.Context, d deployment.Decision) (acted bool, err error) {
	why := d.Rollout.Why
	ofSets := d.Rollout.SetChanges.Len()
	switch {
	case d.Rollout.Trigger != nil || len(d.Rollout.Mark)+len(d.Rollout.Unmark) > 0:
		marks := deployment.MachineMarks{
			Deployment: w.Ref,
			Version:    d.Version,
			Trigger:    d.Rollout.Trigger,
			Mark:       d.Rollout.Mark,
			Unmark:     d.Rollout.Unmark,
		}
		return true, w.awaitWrites(
			ctx,
			workflow.ExecuteActivity(
				run.BatchOptions(ctx, why, len(d.Rollout.Mark)+len(d.Rollout.Unmark)),
				w.markMachines,
				marks,
			).Get,
		)
	case d.Rollout.Create != nil:
		creation := deployment.SetCreation{Deployment: w.Ref, Version: d.Version, SetCreation: *d.Rollout.Create}
		err := w.awaitWrites(ctx, workflow.ExecuteActivity(run.BatchOptions(ctx, why, 1), w.createSet, creation).Get)
		w.currentSetRefusalReason = run.RefusalMessage(err)
		return true, err
	}
	started, atNodes := []run.PendingWrite{}, w.startNodeWrites(ctx, d.Rollout)
	if len(d.Rollout.Ask) > 0 {
		questions := capi.AskExtensionInput{Deployment: w.Ref, Sets: d.Rollout.Ask}
		started = append(
			started,
			workflow.ExecuteActivity(run.ExtensionCallOptions(ctx, why), w.askExtension, questions).Get,
		)
	}
	if ofSets > 0 || d.Rollout.Revise != nil {
		sets := deployment.SetChanges{Deployment: w.Ref, Generation: d.Generation, SetChanges: d.Rollout.SetChanges}
		sets.Ask = nil
		started = append(
			started,
			w.changeSets.Start(ctx, run.BatchOptions(ctx, why, ofSets), w.WorkflowState, why, ofSets, sets),
		)
	}
	if n := d.Rollout.MachineChanges.Len(); n > 0 {
		machines := deployment.MachineChanges{Deployment: w.Ref, MachineChanges: d.Rollout.MachineChanges}
		started = append(started, workflow.ExecuteActivity(run.BatchOptions(ctx, why, n), w.changeMachines, machines).Get)
	}
	err = w.awaitWrites(ctx, started...)
	if failed := convertTimeoutToRefusal(w.awaitWrites(ctx, atNodes...)); err == nil {
		err = failed
	}
	return len(started)+len(atNodes) > 0, err
}

// FinishOpenWork waits for open marks, because the next writer writes the same nodes.
func (w *setWriter) FinishOpenWork(ctx workflow.Context, _ bool) { w.awaitNodeMarks(ctx) }

// If the API server refused a write, reportRefusal shows the refusal and writes the status. reportRefusal returns err,
// and the run loop waits.
func (w *setWriter) reportRefusal(ctx workflow.Context, d deployment.Decision, err error) error {
	if run.IsFailureOfType(err, kube.FailureTypeRefused) {
		w.ShowRefusal(ctx, err)
		_ = w.writeStatus(ctx, d, nil) // ignore the error, because the API server may also refuse the status
	}
	return err
}

// mayTakeLong reports whether the writes of a decision may take longer than a local attempt.
func (w *setWriter) mayTakeLong(d rollout.Decision) bool {
	return d.Create != nil || max(d.NodeChanges.Len(), d.SetChanges.Len()) > run.MaxWritesOnOwnQueue ||
		len(d.Mark)+len(d.Unmark)+len(d.Move)+len(d.ClearUpdateResult)+len(d.Ask) > 0
}

// awaitWrites waits for all writes, raises the minimum versions to the written versions, and returns the first error.
func (w *setWriter) awaitWrites(ctx workflow.Context, writes ...run.PendingWrite) (first error) {
	for _, get := range writes {
		var versions kube.MinVersions
		if err := get(ctx, &versions); err != nil && first == nil {
			first = err
		}
		w.RaiseMinVersions(versions)
	}
	return first
}

func formatSetTable(p deployment.ProgressOverview) string {
	if len(p.Sets) == 0 {
		return ""
	}
	rows := [][]string{{"REVISION", "SET", "WANTED", "MACHINES", "AVAILABLE", "TERMINATING", "CURRENT"}}
	for _, s := range p.Sets {
		rows = append(rows, []string{
			fmt.Sprint(s.Revision),
			s.Name,
			fmt.Sprint(s.Replicas),
			fmt.Sprint(s.Machines),
			fmt.Sprint(s.Available),
			fmt.Sprint(s.Deleting),
			phrase.TextIf(s.Current, "yes"),
		})
	}
	return fmt.Sprintf(
		"%d of %d up to date, %d available; %d of former templates left\n\n",
		p.Counts.Updated,
		p.Wanted,
		p.Counts.Available,
		p.Old,
	) +
		run.FormatTable(rows)
}

// rolloutStep returns the step of a rollout that is open or has not started yet.
func rolloutStep(d deployment.Decision) run.Step {
	s := run.Step{
		Name:      vocabulary.StepReplaceMachines,
		Why:       d.Rollout.Why,
		Table:     formatSetTable(d.Picture),
		BlockedBy: run.ReasonList(d.Picture.Blocked),
	}
	switch {
	case d.Rollout.HasActions():
		s.Cause = fmt.Sprintf(
			"rolling out revision %d: %d of %d done",
			d.Rollout.TargetRevision(), d.Picture.Counts.Replicas-d.Picture.Old, d.Picture.Wanted,
		)
	case d.Rollout.HoldBy == rollout.HeldByInvalidSpec:
		s.Name, s.BlockedBy, s.Stuck = vocabulary.StepDeploymentInvalid, []string{vocabulary.ReasonInvalid}, true
	case d.Rollout.HoldBy == rollout.HeldByPause:
		s.Name, s.BlockedBy, s.Stuck = vocabulary.StepDeploymentPaused, []string{vocabulary.BlockedByPause}, true
	case d.Rollout.HoldBy == rollout.HeldByTurn:
		s.Name, s.BlockedBy = vocabulary.StepAwaitTurn, []string{vocabulary.BlockedByTurn}
	case d.Rollout.Pause != nil && d.Rollout.Pause.Approve:
		s.Name, s.BlockedBy, s.Stuck = vocabulary.StepAwaitApproval, []string{vocabulary.BlockedByMissingApproval}, true
	case d.Rollout.Pause != nil:
		s.Name = vocabulary.StepAwaitPausePoint
	default:
		s.Name = vocabulary.StepAwaitMachines
	}
	if d.Rollout.Late {
		s.Stuck = true
		s.Why += "; the progress deadline has passed"
	} else if d.Rollout.Pause == nil {
		s.Deadline = d.Rollout.Recheck
	}
	return s
}

// futuresToAwait returns the futures for which a deployment or rollout waits besides signals: the end of node writes,
// and timers for work that becomes due without a change.
func (w *setWriter) futuresToAwait(ctx workflow.Context, d deployment.Decision) (futures []workflow.Future) {
	switch {
	case w.pendingNodeMarks != nil:
		futures = append(futures, w.pendingNodeMarks)
	case w.nodeMarksRetryTime.After(workflow.Now(ctx)):
		futures = append(
			futures,
			w.EnsureTimer(ctx, "marks", run.NodeMarksLabel(), w.nodeMarksRetryTime),
		)
	}
	if w.isStatusStale(d) {
		futures = append(futures, w.EnsureTimer(ctx, "report", run.ReportLabel(), w.earliestReportTime(d)))
	} else {
		w.CancelTimer("report")
	}
	for _, at := range []struct {
		name string
		time time.Time
	}{{"hold", d.ReplaceHeldUntil}, {"recheck", d.Rollout.Recheck}} {
		if at.time.IsZero() {
			w.CancelTimer(at.name)
			continue
		}
		soon := workflow.Now(ctx).Add(time.Second) // add a second, so that a due time in the past causes no busy loop
		futures = append(
			futures,
			w.EnsureTimer(ctx, at.name, run.RecheckLabel(d.Pending.Why), phrase.LaterTime(at.time, soon)),
		)
	}
	return futures
}
