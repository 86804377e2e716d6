package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/rollout"
)

// machineDeployment is one run of a MachineDeployment's workflow.
type machineDeployment struct {
	setWriter
	acted bool // something was done in this run: history has grown
}

// MachineDeployment makes the set of its object, gives it its size and writes the deployment's status. When machines of another
// template are there, it starts a rollout, and leaves the sets to that until it has ended. The workflow lives as long as its
// object; it continues as new after each settled change, so that its history stays short.
func MachineDeployment(ctx workflow.Context, in Input) (Result, error) {
	m := &machineDeployment{setWriter: setWriter{object: newObject(ctx, KindMachineDeployment, in)}}
	m.live = !in.Continued
	return answering(ctx, m.object, func() (Result, error) {
		result, err := m.run(ctx)
		m.awaitMarks(ctx) // who follows writes at the same nodes
		return result, err
	})
}

func (m *machineDeployment) run(ctx workflow.Context) (Result, error) {
	for {
		m.receive()
		acted := false
		d, err := m.decide(ctx)
		if err == nil {
			if d.Gone {
				return Result{OutcomeGone, d.Why}, nil
			}
			acted, err = m.step(ctx, d)
		}
		m.acted = m.acted || acted || m.marking != nil
		switch {
		case failedWith(err, activities.TypeObjectGone):
			m.live = true // the deployment, or one of its sets: the next decision tells
		case failedWith(err, activities.TypeConflict), timedOut(err):
			m.live = true // another writer was faster, or the decision grew too old: look at what is there now
		case failedWith(err, activities.TypeRefused):
			if err := m.refused(ctx, d, err); err != nil {
				return Result{}, err
			}
		case err != nil:
			return Result{}, err
		case acted:
		default:
			if err := m.rest(ctx, d); err != nil {
				return Result{}, err
			}
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			m.awaitMarks(ctx) // what is not done is listed again
			m.receive()
			return Result{}, m.again(ctx)
		}
	}
}

// step does what was decided, and reports whether there was anything to do.
func (m *machineDeployment) step(ctx workflow.Context, d activities.DeploymentDecision) (acted bool, err error) {
	if d.Rolling || d.Operation != "" {
		m.awaitMarks(ctx) // only one writes at a time
	}
	if d.Operation != "" && d.Operation != m.over { // a former run of this workflow started it
		m.show(ctx, step{name: "rollout", why: "a rollout is open: " + d.Why, table: setTable(d.Picture)})
		return true, m.follow(ctx, d.Operation, d)
	}
	m.show(ctx, m.doing(d))
	if d.Rolling && d.HoldBy != rollout.HeldBy && d.Create == nil && !d.Prepare {
		return true, m.roll(ctx, d)
	}
	return m.act(ctx, d)
}

// roll leaves the sets to a rollout, and waits until it has ended. One that is open already, because a former run of this
// workflow started it, is followed likewise.
func (m *machineDeployment) roll(ctx workflow.Context, d activities.DeploymentDecision) error {
	options := rolloutOptions(ctx, m.ref, d.Revision, fmt.Sprintf("former templates are to give way: %d of %d machines up to date", d.Picture.Counts.Updated, d.Picture.Wanted))
	child := workflow.ExecuteChildWorkflow(options, Rollout, RolloutInput{Input: Input{Ref: m.ref, Gate: m.gate}, Revision: d.Revision})
	m.live = true // whatever follows
	if err := child.GetChildWorkflowExecution().Get(ctx, nil); err != nil {
		if temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			return m.follow(ctx, ID(KindRollout, m.ref, d.Revision), d)
		}
		return err
	}
	for !child.IsReady() {
		if err := m.awaken(ctx, child); err != nil {
			disconnected, done := workflow.NewDisconnectedContext(ctx)
			defer done()
			_ = child.Get(disconnected, nil) // it writes the hold, and ends
			return err
		}
		if m.receive() && !child.IsReady() {
			_ = child.SignalChildWorkflow(ctx, SignalChanged, Changed{UID: m.ref.UID, Versions: m.gate}).Get(ctx, nil) // it may have ended: then there is nothing to tell
		}
	}
	m.over = ID(KindRollout, m.ref, d.Revision)
	var result RolloutResult
	if err := child.Get(ctx, &result); err != nil {
		return m.awaken(ctx, m.timer(ctx, "again", "the rollout came to no end: it is started again", workflow.Now(ctx).Add(rolloutAgain)))
	}
	m.raise(result.Versions)
	return nil
}

// rest waits for a change. A calm run that has done something continues as new after the linger.
func (m *machineDeployment) rest(ctx workflow.Context, d activities.DeploymentDecision) error {
	if waits := m.resting(ctx, d); len(waits) > 0 || d.Need != attention.Nothing || !m.acted {
		return m.awaken(ctx, waits...)
	}
	over, err := m.lingered(ctx)
	if err != nil {
		return err
	}
	if over && !m.receive() {
		return m.again(ctx)
	}
	return nil
}

// again hands the gate to a run with an empty history. Nothing may yield between the last receive and the return of it.
func (m *machineDeployment) again(ctx workflow.Context) error {
	return workflow.NewContinueAsNewError(ctx, MachineDeployment, Input{Ref: m.ref, Gate: m.gate, Continued: true})
}

// doing is what the deployment is doing, for people.
func (m *machineDeployment) doing(d activities.DeploymentDecision) step {
	switch {
	case d.Create != nil:
		return step{name: "create-set", why: d.Decision.Why}
	case d.Rolling && d.HoldBy != rollout.HeldBy:
		return step{name: "rollout", why: d.Why, table: setTable(d.Picture)}
	case len(d.Resize) > 0:
		return step{name: "resize-set", why: d.Decision.Why}
	case d.Need == attention.Deletion:
		return step{name: "await-sets", why: d.Why}
	case d.Need == attention.Replace && d.Held:
		return step{name: "await-replacements", why: d.Why, blockedBy: "ReplacementHeld"}
	case d.Need == attention.Replace:
		return step{name: "await-replacements", why: d.Why}
	case d.HoldBy == rollout.HeldByFault:
		return step{name: "invalid", why: d.Why, blockedBy: "Invalid", stuck: true}
	default: // calm, or nothing but a status to write
		return step{why: d.Why, table: setTable(d.Picture)}
	}
}
