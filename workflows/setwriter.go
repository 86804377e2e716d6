package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/rollout"
)

// setWriter is what the workflow of a deployment and that of its rollout share. While a rollout is open it is the only one that
// writes the deployment's sets and status; at all other times the deployment's own workflow is.
type setWriter struct {
	*object
	names      string          // workflow ID that the status has to name; empty: whichever it names
	over       string          // the rollout that has ended for sure, though the status may still name it; empty: none
	each       time.Duration   // between two reports of counts and conditions; zero: each change is reported at once
	reported   time.Time       // when the status was written last
	marking    workflow.Future // marks that are being set at nodes beside everything else; nil: none are
	marksAgain time.Time       // when marks may be set again that could not be set
	noSet      string          // why the API server took no set of the current template; empty: it did, or is not to make one
	refusedAt  time.Time       // since when it refuses what is written; zero: it does not
}

// decide asks what is to be done next with the sets.
func (w *setWriter) decide(ctx workflow.Context) (d activities.DeploymentDecision, err error) {
	if w.marking != nil && w.marking.IsReady() {
		w.awaitMarks(ctx)
	}
	err = w.quick(ctx, "what is to be done next with the sets?", core().DecideDeployment, w.deploymentRead(ctx), &d)
	w.live = false
	w.raise(d.Seen)
	if err == nil && d.Create == nil {
		w.noSet = ""
	}
	return d, err
}

func (w *setWriter) deploymentRead(ctx workflow.Context) activities.DeploymentRead {
	read := w.read()
	read.At = workflow.Now(ctx)
	return activities.DeploymentRead{Read: read, WorkflowID: w.names, Over: w.over}
}

// act does what was decided, and reports whether there was anything to do. What is recorded of a rollout is on record before
// anything follows from it.
func (w *setWriter) act(ctx workflow.Context, d activities.DeploymentDecision) (acted bool, err error) {
	if d.Prepare || d.Release {
		return true, w.write(ctx, "finalizer: "+d.Why, core().FinalizeDeployment, w.read())
	}
	if d.Record != nil {
		if err := w.report(ctx, d, d.Record); err != nil || d.Rollback != nil {
			return true, err // what came meanwhile is weighed before a template returns
		}
	}
	if d.Rollback != nil {
		return true, w.rollBack(ctx, d)
	}
	if takesLong(w.ref, d.Decision) {
		if err := w.publish(ctx); err != nil {
			return true, err
		}
	}
	acted, err = w.carryOut(ctx, d)
	if err != nil {
		return acted, err
	}
	w.refusedAt = time.Time{}
	if d.Replace {
		var granted activities.Granted
		if err := w.quick(ctx, d.Why, core().GrantReplacements, w.read(), &granted); err != nil {
			return true, err
		}
		w.raise(granted.Versions)
		if granted.Wrote {
			return true, nil
		}
	}
	if w.reports(d, workflow.Now(ctx)) {
		return true, w.report(ctx, d, nil)
	}
	return acted || d.Record != nil, nil
}

// reports reports whether the status is to be written now, though nothing of the rollout is to be recorded.
func (w *setWriter) reports(d activities.DeploymentDecision, now time.Time) bool {
	return d.Report && d.Record == nil && !w.reportAt(d).After(now)
}

// reportAt is when the status may be written that says nothing new but counts and conditions. What is complete is told at once.
func (w *setWriter) reportAt(d activities.DeploymentDecision) time.Time {
	if d.Complete || w.reported.IsZero() {
		return time.Time{}
	}
	return w.reported.Add(w.each)
}

// report writes the status, with a record where there is one.
func (w *setWriter) report(ctx workflow.Context, d activities.DeploymentDecision, record *rollout.Progress) error {
	report := activities.DeploymentReport{DeploymentRead: w.deploymentRead(ctx), Record: record, NoSet: w.noSet}
	if d.Need != attention.Nothing {
		report.Step = w.object.report()
	}
	var version string
	if err := w.quick(ctx, "status: "+d.Why, core().ReportDeployment, report, &version); err != nil {
		return err
	}
	w.wrote(version)
	w.reported = workflow.Now(ctx)
	return nil
}

// rollBack puts a former template into the deployment.
func (w *setWriter) rollBack(ctx workflow.Context, d activities.DeploymentDecision) error {
	if err := w.publish(ctx); err != nil {
		return err
	}
	order := activities.RollBack{Deployment: w.ref, Version: d.Version, Rollback: *d.Rollback}
	var done activities.Gate
	err := workflow.ExecuteActivity(batch(ctx, d.Rollback.Why, 1), core().RollBackDeployment, order).Get(ctx, &done)
	w.raise(done)
	return err
}

// carryOut does what a decision lists, side by side. What is done at nodes holds up the rest for a moment at the most.
func (w *setWriter) carryOut(ctx workflow.Context, d activities.DeploymentDecision) (acted bool, err error) {
	why := d.Decision.Why
	ofSets := setChanges(d.Decision)
	switch {
	case d.Trigger != nil || len(d.Mark)+len(d.Unmark) > 0:
		marks := activities.Marks{Deployment: w.ref, Version: d.Version, Trigger: d.Trigger, Mark: d.Mark, Unmark: d.Unmark}
		return true, w.await(ctx, workflow.ExecuteActivity(batch(ctx, why, len(d.Mark)+len(d.Unmark)), core().MarkMachines, marks).Get)
	case d.Create != nil:
		creation := activities.SetCreation{Deployment: w.ref, Version: d.Version, Creation: *d.Create}
		err := w.await(ctx, workflow.ExecuteActivity(batch(ctx, why, 1), core().CreateSet, creation).Get)
		w.noSet = refused(err).Message
		return true, err
	}
	started, atNodes := []writing{}, w.atNodes(ctx, d.Decision)
	if ofSets > 0 || d.Revise != nil {
		sets := activities.SetChanges{
			Deployment: w.ref, Open: d.Open, Close: d.Close, Revise: d.Revise, Sync: d.Sync, Resize: d.Resize, Delete: d.Delete,
		}
		started = append(started, w.startQuick(ctx, batch(ctx, why, ofSets), why, ofSets <= fewWrites, core().ChangeSets, sets))
	}
	if len(d.Move)+len(d.Accept) > 0 {
		machines := activities.MachineChanges{Deployment: w.ref, Move: d.Move, Accept: d.Accept}
		started = append(started, workflow.ExecuteActivity(batch(ctx, why, len(d.Move)+len(d.Accept)), core().ChangeMachines, machines).Get)
	}
	err = w.await(ctx, started...)
	if failed := tooLate(w.await(ctx, atNodes...)); err == nil {
		err = failed
	}
	return len(started)+len(atNodes) > 0, err
}

// refused tells of a write that was refused, and waits a while, or until something changes: doing it again at once would come to the same.
func (w *setWriter) refused(ctx workflow.Context, d activities.DeploymentDecision, err error) error {
	why := refused(err).Message
	w.show(ctx, step{name: "refused", why: why, blockedBy: "Refused", stuck: true})
	if w.refusedAt.IsZero() {
		w.refusedAt = workflow.Now(ctx)
	}
	w.shown.since = w.refusedAt // it was tried again in between
	_ = w.report(ctx, d, nil)   // it may be the status that is refused
	w.live = true
	return w.awaken(ctx, w.timer(ctx, "again", "tries again then: "+why, workflow.Now(ctx).Add(refusedAgain)))
}

// takesLong reports whether what a decision lists takes longer than a moment.
func takesLong(deployment activities.Ref, d rollout.Decision) bool {
	_, atNode := nodeChanges(deployment, d)
	return d.Create != nil || max(atNode, setChanges(d)) > fewWrites || len(d.Mark)+len(d.Unmark)+len(d.Move)+len(d.Accept) > 0
}

// setChanges is how many sets a decision changes; the revision of one, which goes with them, not counted.
func setChanges(d rollout.Decision) int {
	return len(d.Open) + len(d.Close) + len(d.Sync) + len(d.Resize) + len(d.Delete)
}

// await waits for writes that tell which versions to wait for. All are awaited, whatever becomes of one.
func (w *setWriter) await(ctx workflow.Context, writes ...writing) (first error) {
	for _, get := range writes {
		var versions activities.Gate
		if err := get(ctx, &versions); err != nil && first == nil {
			first = err
		}
		w.raise(versions)
	}
	return first
}

// setTable shows the sets, and how far they are.
func setTable(p activities.Picture) string {
	if len(p.Sets) == 0 {
		return ""
	}
	lines := []string{
		fmt.Sprintf("%d of %d up to date, %d available; %d of former templates left\n", p.Counts.Updated, p.Wanted, p.Counts.Available, p.Old),
		"| revision | set | wanted | machines | available | going |\n|---|---|---|---|---|---|",
	}
	for _, s := range p.Sets {
		name := s.Name
		if s.Current {
			name = "**" + name + "**"
		}
		lines = append(lines, fmt.Sprintf("| %d | %s | %d | %d | %d | %d |", s.Revision, name, s.Replicas, s.Machines, s.Available, s.Deleting))
	}
	return strings.Join(lines, "\n")
}

// rolling is what a rollout is doing, for people; also that of a deployment whose rollout has yet to start.
func rolling(d activities.DeploymentDecision) step {
	s := step{name: "roll", why: d.Decision.Why, table: setTable(d.Picture), blockedBy: d.Picture.Blocked}
	switch {
	case d.Acts():
	case d.HoldBy == rollout.HeldByFault:
		s.name, s.blockedBy, s.stuck = "invalid", "Invalid", true
	case d.HoldBy == rollout.HeldByPause:
		s.name, s.blockedBy, s.stuck = "paused", "Paused", true
	case d.Gate != nil && d.Gate.Approve:
		s.name, s.blockedBy, s.stuck = "await-approval", "Approval", true
	case d.Gate != nil:
		s.name = "await-stage"
	default:
		s.name = "await-machines"
	}
	if d.Late {
		s.stuck = true
		s.why += "; the progress deadline has passed"
	} else if d.Gate == nil {
		s.deadline = d.Recheck
	}
	return s
}

// resting is what a deployment or rollout waits for besides what the bridge tells: the end of what it does at nodes, and the moment from
// which on something else is to be said or done.
func (w *setWriter) resting(ctx workflow.Context, d activities.DeploymentDecision) (futures []workflow.Future) {
	switch {
	case w.marking != nil:
		futures = append(futures, w.marking)
	case w.marksAgain.After(workflow.Now(ctx)):
		futures = append(futures, w.timer(ctx, "marks", "then nodes are marked that could not be", w.marksAgain))
	}
	if d.Report {
		futures = append(futures, w.timer(ctx, "report", "then the status is written", w.reportAt(d)))
	} else {
		w.disarm("report")
	}
	for _, at := range []struct {
		name string
		time time.Time
	}{{"hold", d.HeldUntil}, {"recheck", d.Recheck}} {
		if at.time.IsZero() {
			w.disarm(at.name)
			continue
		}
		soon := workflow.Now(ctx).Add(time.Second) // should the worker's clock be behind this one: no decision is made in a hurry
		if at.time.Before(soon) {
			at.time = soon
		}
		futures = append(futures, w.timer(ctx, at.name, "then it looks again: "+d.Why, at.time))
	}
	return futures
}
