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

// setWriter is what the workflows of a deployment and of its rollout share. While a rollout is open, only the rollout
// writes the deployment's sets and status; at all other times only the deployment's workflow does.
type setWriter struct {
	*run.Object
	adapter
	names string // workflow ID that the status must name; empty: any
	over  string // ID of a rollout that has ended though the status may still name it; empty: none
	// least time between two reports of counts and conditions; zero: each change is reported at once
	each       time.Duration
	reported   time.Time       // when the status was written last
	step       string          // the step that this run wrote last into the status; empty: none
	marking    workflow.Future // marks that are being written on nodes; nil: none
	marksAgain time.Time       // when marks that could not be written are tried again
	// why the API server refused the set of the current template; empty: not refused, or no set is needed
	noSet string
}

// Decide asks an activity what is next for the sets.
func (w *setWriter) Decide(ctx workflow.Context) (d deployment.Decision, err error) {
	if w.marking != nil && w.marking.IsReady() {
		w.awaitMarks(ctx)
	}
	d, err = w.decide.RunLocalFirst(ctx, w.Object, "what is next for the sets?", w.deploymentRead(ctx))
	w.Live = false
	w.RaiseMinVersions(d.Seen)
	if err == nil && d.Rollout.Create == nil {
		w.noSet = ""
	}
	return d, err
}

func (w *setWriter) deploymentRead(ctx workflow.Context) deployment.Input {
	return deployment.Input{Read: w.Read(ctx), WorkflowID: w.names, Over: w.over}
}

// act carries out a decision, and reports whether there was anything to do. The rollout's record is written before its
// consequences.
func (w *setWriter) act(ctx workflow.Context, d deployment.Decision) (acted bool, err error) {
	if d.Prepare || d.Release {
		return true, run.Write(ctx, w.Object, "finalizer: "+d.Pending.Why, w.finalize, w.Read(ctx))
	}
	if d.Rollout.Record != nil {
		if err := w.report(ctx, d, d.Rollout.Record); err != nil {
			return true, err
		}
	}
	if d.Rollout.Rollback != nil {
		return true, w.rollBack(ctx, d)
	}
	if w.takesLong(d.Rollout) {
		if err := w.SetSearchAttributes(ctx); err != nil {
			return true, err
		}
	}
	acted, err = w.carryOut(ctx, d)
	if err != nil {
		return acted, err
	}
	if d.Replace {
		granted, err := w.grant.RunLocalFirst(ctx, w.Object, d.Pending.Why, w.Read(ctx))
		if err != nil {
			return true, err
		}
		w.RaiseMinVersions(granted.Versions)
		if granted.Wrote {
			return true, nil
		}
	}
	if w.mustReport(d, workflow.Now(ctx)) {
		return true, w.report(ctx, d, nil)
	}
	return acted || d.Rollout.Record != nil, nil
}

// mustReport reports whether the status must be written now although the decision has no record of the rollout.
func (w *setWriter) mustReport(d deployment.Decision, now time.Time) bool {
	return w.unreported(d) && d.Rollout.Record == nil && !w.reportAt(d).After(now)
}

// unreported reports whether the status differs from what was read or, for a waiting rollout, shows another step.
func (w *setWriter) unreported(d deployment.Decision) bool {
	waits := w.names != "" && d.Pending.Need != attention.Nothing && !d.Rollout.Acts()
	return d.Report || waits && w.step != "" && w.step != w.Shown.Name
}

// reportAt is the earliest time for a status write in which only counts and conditions change. A complete rollout is
// reported at once.
func (w *setWriter) reportAt(d deployment.Decision) time.Time {
	if d.Rollout.Complete || w.reported.IsZero() {
		return time.Time{}
	}
	return w.reported.Add(w.each)
}

// report writes the status, with the record of the rollout if there is one.
func (w *setWriter) report(ctx workflow.Context, d deployment.Decision, record *rollout.Progress) error {
	report := deployment.Report{Input: w.deploymentRead(ctx), Record: record, NoSet: w.noSet}
	w.step = ""
	if d.Pending.Need != attention.Nothing {
		report.Step, w.step = w.Operation(), w.Shown.Name
		if w.names != "" {
			report.Step.RolloutOf = w.Ref.UID
		}
	}
	if err := run.Write(ctx, w.Object, "status: "+d.Pending.Why, w.adapter.report, report); err != nil {
		return err
	}
	w.reported = workflow.Now(ctx)
	return nil
}

// rollBack writes a former template into the deployment.
func (w *setWriter) rollBack(ctx workflow.Context, d deployment.Decision) error {
	if err := w.SetSearchAttributes(ctx); err != nil {
		return err
	}
	order := deployment.RollBack{Deployment: w.Ref, Version: d.Version, Rollback: *d.Rollout.Rollback}
	var done kube.MinVersions
	err := workflow.ExecuteActivity(run.Batch(ctx, d.Rollout.Rollback.Why, 1), w.adapter.rollBack, order).Get(ctx, &done)
	w.RaiseMinVersions(done)
	return err
}

// carryOut does what a decision lists: marks of machines alone, a new set alone, or else all other writes concurrently.
// Writes at nodes delay the others by at most seven seconds: a local attempt and the time of run.Soon.
func (w *setWriter) carryOut(ctx workflow.Context, d deployment.Decision) (acted bool, err error) {
	why := d.Rollout.Why
	ofSets := d.Rollout.SetChanges.Len()
	switch {
	case d.Rollout.Trigger != nil || len(d.Rollout.Mark)+len(d.Rollout.Unmark) > 0:
		marks := deployment.Marks{
			Deployment: w.Ref,
			Version:    d.Version,
			Trigger:    d.Rollout.Trigger,
			Mark:       d.Rollout.Mark,
			Unmark:     d.Rollout.Unmark,
		}
		return true, w.await(
			ctx,
			workflow.ExecuteActivity(run.Batch(ctx, why, len(d.Rollout.Mark)+len(d.Rollout.Unmark)), w.mark, marks).Get,
		)
	case d.Rollout.Create != nil:
		creation := deployment.SetCreation{Deployment: w.Ref, Version: d.Version, Creation: *d.Rollout.Create}
		err := w.await(ctx, workflow.ExecuteActivity(run.Batch(ctx, why, 1), w.create, creation).Get)
		w.noSet = run.Refused(err)
		return true, err
	}
	started, atNodes := []run.Writing{}, w.atNodes(ctx, d.Rollout)
	if len(d.Rollout.Ask) > 0 {
		questions := capi.Questions{Deployment: w.Ref, Sets: d.Rollout.Ask}
		started = append(started, workflow.ExecuteActivity(run.Question(ctx, why), w.ask, questions).Get)
	}
	if ofSets > 0 || d.Rollout.Revise != nil {
		sets := deployment.SetChanges{Deployment: w.Ref, Generation: d.Generation, SetChanges: d.Rollout.SetChanges}
		sets.Ask = nil
		started = append(started, w.changeSets.Start(ctx, run.Batch(ctx, why, ofSets), w.Object, why, ofSets, sets))
	}
	if n := d.Rollout.MachineChanges.Len(); n > 0 {
		machines := deployment.MachineChanges{Deployment: w.Ref, MachineChanges: d.Rollout.MachineChanges}
		started = append(started, workflow.ExecuteActivity(run.Batch(ctx, why, n), w.changeMachines, machines).Get)
	}
	err = w.await(ctx, started...)
	if failed := timeoutAsRefused(w.await(ctx, atNodes...)); err == nil {
		err = failed
	}
	return len(started)+len(atNodes) > 0, err
}

// Settle waits for marks that are being written: the next writer writes the same nodes.
func (w *setWriter) Settle(ctx workflow.Context, _ bool) { w.awaitMarks(ctx) }

// reportRefusal shows and reports a write that the API server refused. It returns err: the run loop waits.
func (w *setWriter) reportRefusal(ctx workflow.Context, d deployment.Decision, err error) error {
	if run.FailedWith(err, kube.TypeRefused) {
		w.ShowRefusal(ctx, err)
		_ = w.report(ctx, d, nil) // an error is ignored: the status itself may be what is refused
	}
	return err
}

// takesLong reports whether the writes of a decision may take longer than a local attempt.
func (w *setWriter) takesLong(d rollout.Decision) bool {
	return d.Create != nil || max(d.NodeChanges.Len(), d.SetChanges.Len()) > run.FewWrites ||
		len(d.Mark)+len(d.Unmark)+len(d.Move)+len(d.ClearUpdateResult)+len(d.Ask) > 0
}

// await waits for all writes, raises the versions that they returned, and returns the first error.
func (w *setWriter) await(ctx workflow.Context, writes ...run.Writing) (first error) {
	for _, get := range writes {
		var versions kube.MinVersions
		if err := get(ctx, &versions); err != nil && first == nil {
			first = err
		}
		w.RaiseMinVersions(versions)
	}
	return first
}

func setTable(p deployment.Picture) string {
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
			phrase.If(s.Current, "yes"),
		})
	}
	return fmt.Sprintf(
		"%d of %d up to date, %d available; %d of former templates left\n\n",
		p.Counts.Updated,
		p.Wanted,
		p.Counts.Available,
		p.Old,
	) +
		run.Table(rows)
}

// rolling returns the step of a rollout, open or not yet started.
func rolling(d deployment.Decision) run.Step {
	s := run.Step{
		Name:      vocabulary.StepRoll,
		Why:       d.Rollout.Why,
		Table:     setTable(d.Picture),
		BlockedBy: run.Reasons(d.Picture.Blocked),
	}
	switch {
	case d.Rollout.Acts():
	case d.Rollout.HoldBy == rollout.HeldByFault:
		s.Name, s.BlockedBy, s.Stuck = vocabulary.StepInvalid, []string{vocabulary.ReasonInvalid}, true
	case d.Rollout.HoldBy == rollout.HeldByPause:
		s.Name, s.BlockedBy, s.Stuck = vocabulary.StepPaused, []string{vocabulary.BlockedPaused}, true
	case d.Rollout.Pause != nil && d.Rollout.Pause.Approve:
		s.Name, s.BlockedBy, s.Stuck = vocabulary.StepAwaitApproval, []string{vocabulary.BlockedApproval}, true
	case d.Rollout.Pause != nil:
		s.Name = vocabulary.StepAwaitStep
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

// resting returns what a deployment or rollout waits for besides signals: the end of writes at nodes, and the times at
// which something is due although nothing changes.
func (w *setWriter) resting(ctx workflow.Context, d deployment.Decision) (futures []workflow.Future) {
	switch {
	case w.marking != nil:
		futures = append(futures, w.marking)
	case w.marksAgain.After(workflow.Now(ctx)):
		futures = append(futures, w.Timer(ctx, "marks", "then nodes are marked that could not be", w.marksAgain))
	}
	if w.unreported(d) {
		futures = append(futures, w.Timer(ctx, "report", "then the status is written", w.reportAt(d)))
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
		soon := workflow.Now(ctx).Add(time.Second) // no busy loop if that time has come
		futures = append(futures, w.Timer(ctx, at.name, "then it looks again: "+d.Pending.Why, phrase.Later(at.time, soon)))
	}
	return futures
}
