package workflows_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/decide/steer"
	"millwright/workflows"
)

var deploymentID = workflows.ID(workflows.KindMachineDeployment, ref)

// named makes a decision see a status that names the rollout to revision 7.
func named(d activities.DeploymentDecision) activities.DeploymentDecision {
	d.Operation = rolloutID
	return d
}

// orphanWorld has a rollout that a former run of the deployment's workflow started, and a new run. The rollout waits for machines.
func orphanWorld(t *testing.T, script ...activities.DeploymentDecision) *deploymentWorld {
	w := newDeploymentWorld(t, script...)
	w.answer(0)
	w.beside = []activities.DeploymentDecision{awaiting(rollout.HeldByMachines)}
	w.env.RegisterWorkflow(workflows.Rollout)
	w.env.RegisterWorkflow(workflows.MachineDeployment)
	return w
}

// outcomes are how the two of an orphanWorld ended.
type outcomes struct {
	rollout    workflows.RolloutResult
	deployment error
}

// runBoth runs the rollout, and the deployment's workflow until that ends.
func (w *deploymentWorld) runBoth(t *testing.T) (o outcomes) {
	w.env.ExecuteWorkflow(func(ctx workflow.Context) error {
		start := func(id string, run, in any) workflow.ChildWorkflowFuture {
			child := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: id, WaitForCancellation: true}), run, in)
			_ = child.GetChildWorkflowExecution().Get(ctx, nil)
			return child
		}
		open := start(rolloutID, workflows.Rollout, workflows.RolloutInput{Input: workflows.Input{Ref: ref}, Revision: 7})
		o.deployment = start(deploymentID, workflows.MachineDeployment, workflows.Input{Ref: ref}).Get(ctx, nil)
		if ended, err := workflow.AwaitWithTimeout(ctx, time.Second, open.IsReady); !ended {
			return err
		}
		return open.Get(ctx, &o.rollout)
	})
	require.NoError(t, w.env.GetWorkflowError())
	return o
}

// tellDeployment signals the deployment's workflow, though its status names a rollout.
func (w *deploymentWorld) tellDeployment(t *testing.T, after time.Duration, machines string, then ...func()) {
	w.env.RegisterDelayedCallback(func() {
		for _, do := range then {
			do()
		}
		c := workflows.Changed{UID: ref.UID, Versions: activities.Gate{activities.MachinesResource: machines}}
		require.NoError(t, w.env.SignalWorkflowByID(deploymentID, workflows.SignalChanged, c))
	}, after)
}

// goesOn changes what the rollout decides, and what the deployment's workflow does.
func (w *deploymentWorld) goesOn(beside activities.DeploymentDecision, script ...activities.DeploymentDecision) func() {
	return func() {
		defer w.lock()()
		w.beside, w.script = []activities.DeploymentDecision{beside}, script
	}
}

// A run that finds the rollout open already which a former run started passes on what comes, and is told when it ends.
func TestMachineDeploymentFollowsARolloutThatIsOpenAlready(t *testing.T) {
	for name, found := range map[string]activities.DeploymentDecision{
		"as it would start it":       moving("grow"),
		"as the status names it":     named(moving("grow")),
		"while only the size counts": named(with(moving("grow"), func(d *activities.DeploymentDecision) { d.Rolling = false })),
		"where marks come first":     named(activities.DeploymentDecision{Need: attention.Scale, Decision: rollout.Decision{Unmark: aTarget}}),
		"where the set is to be made": named(activities.DeploymentDecision{Need: attention.Scale, Decision: rollout.Decision{
			Create: &rollout.Creation{Revision: 8},
		}}),
		"where a finalizer is missing":   named(activities.DeploymentDecision{Need: attention.Scale, Prepare: true}),
		"where only a report is to come": named(activities.DeploymentDecision{Need: attention.Scale, Report: true}),
		"where machines are replaced":    named(activities.DeploymentDecision{Need: attention.Replace, Replace: true}),
		"where it is to go":              named(activities.DeploymentDecision{Need: attention.Deletion, Decision: rollout.Decision{Delete: aTarget}}),
	} {
		t.Run(name, func(t *testing.T) {
			w := orphanWorld(t, found)
			w.tellDeployment(t, time.Minute, "9")
			w.tellDeployment(t, 5*time.Minute, "10", w.goesOn(complete(), gone()))
			o := w.runBoth(t)
			require.NoError(t, o.deployment)
			require.Equal(t, workflows.OutcomeCompleted, o.rollout.Outcome)
			require.Empty(t, w.log, "nothing is done beside the rollout")
			require.Equal(t, []time.Duration{0, 5 * time.Minute}, w.looks, "nor is anything decided, until it says that it has ended")
			require.Equal(t, "10", w.reads[1].Gate[activities.MachinesResource])
			require.True(t, w.reads[1].Live, "the rollout wrote")
			require.Equal(t, rolloutID, w.reads[1].Over, "the status may still name it")
			seen := []string{}
			for _, read := range w.besides {
				seen = append(seen, read.Gate[activities.MachinesResource])
			}
			require.Equal(t, []string{"", "", "9", "10"}, seen, "it hears that somebody follows, and what that one is told")
		})
	}
}

func TestMachineDeploymentActsWhenARolloutThatItFollowedHasEnded(t *testing.T) {
	w := orphanWorld(t, named(moving("grow")))
	then := named(with(moving("grow"), func(d *activities.DeploymentDecision) { d.Rolling, d.Report = false, true }))
	w.tellDeployment(t, time.Minute, "9", w.goesOn(with(complete(), func(d *activities.DeploymentDecision) { d.Revision = 8 }), then, gone()))
	o := w.runBoth(t)
	require.Equal(t, workflows.OutcomeSuperseded, o.rollout.Outcome)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.log)
	require.Equal(t, rolloutID, w.orders[1].(activities.DeploymentReport).Over)
	require.Equal(t, []time.Duration{0, time.Minute, time.Minute}, w.looks)
}

// Verbs are written on the deployment, whoever hears them: the rollout is told of that as of any change.
func TestMachineDeploymentThatFollowsARolloutTakesVerbs(t *testing.T) {
	w := orphanWorld(t, named(moving("grow")))
	s := newWheel(w)
	w.env.RegisterDelayedCallback(func() {
		require.NoError(t, w.env.SignalWorkflowByID(deploymentID, workflows.MessageVerb, pause))
	}, time.Minute)
	w.tellDeployment(t, 2*time.Minute, "9", w.goesOn(complete(), gone()))
	require.NoError(t, w.runBoth(t).deployment)
	require.Len(t, s.orders, 1)
	require.Equal(t, paused, s.orders[0].Order)
	require.Equal(t, "12", w.besides[len(w.besides)-1].Gate[activities.DeploymentsResource], "the rollout sees what was written")
}

// To cancel the deployment's workflow is to cancel its rollout, whichever run started that.
func TestCancellingAMachineDeploymentCancelsTheRolloutThatItFollows(t *testing.T) {
	w := orphanWorld(t, named(moving("grow")))
	s := newWheel(w)
	w.env.RegisterDelayedCallback(func() { w.env.CancelWorkflowByID(deploymentID, "") }, time.Minute)
	o := w.runBoth(t)
	require.True(t, temporal.IsCanceledError(o.deployment))
	require.Equal(t, workflows.OutcomeCancelled, o.rollout.Outcome)
	require.Len(t, s.orders, 1)
	require.Equal(t, steer.Cancel, s.orders[0].Order.Verb)
	require.Equal(t, time.Minute, w.env.Now().Sub(w.begun).Round(time.Second))
	require.Empty(t, w.log)
}

// outside answers signals and cancellations of workflows that are not in the test: each signal once, and the last answer again and again.
func (w *deploymentWorld) outside(answers ...error) *[]workflows.Changed {
	var told []workflows.Changed
	w.env.OnSignalExternalWorkflow(mock.Anything, rolloutID, "", workflows.SignalChanged, mock.Anything).Return(
		func(_, _, _, _ string, arg any) error {
			defer w.lock()()
			c := arg.(workflows.Changed)
			c.Versions = maps.Clone(c.Versions)
			told = append(told, c)
			answer := answers[0]
			answers = answers[min(1, len(answers)-1):]
			return answer
		})
	return &told
}

func notOpen() error { return new(temporal.UnknownExternalWorkflowExecutionError) }

// A status may name a rollout that somebody terminated.
func TestMachineDeploymentActsWhenTheRolloutOfItsStatusIsNotOpen(t *testing.T) {
	scales := named(with(moving("grow"), func(d *activities.DeploymentDecision) { d.Rolling, d.Report = false, true }))
	w := newDeploymentWorld(t, scales, scales, gone())
	w.answer(0)
	told := w.outside(notOpen())
	w.runDeployment(t)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.log)
	require.Equal(t, []workflows.Changed{{UID: ref.UID, Versions: activities.Gate{}, Tell: deploymentID}}, *told, "it is asked once")
	require.Equal(t, []time.Duration{0, 0, 0}, w.looks)
	require.True(t, w.reads[1].Live)
	require.Equal(t, rolloutID, w.reads[1].Over)
}

// Its own rollout has ended when its future says so, whatever the status names.
func TestMachineDeploymentAsksNobodyAboutARolloutOfItsOwn(t *testing.T) {
	w := newDeploymentWorld(t, moving("grow"), named(with(moving("grow"), func(d *activities.DeploymentDecision) { d.Rolling = false })), gone())
	w.answer(0)
	w.child(func(workflow.Context, workflows.RolloutInput, int) (workflows.RolloutResult, error) {
		return workflows.RolloutResult{Outcome: workflows.OutcomeStopped}, nil
	})
	w.runDeployment(t)
	require.Equal(t, []string{"start " + rolloutID, "ChangeSets"}, w.log)
}

// Nobody tells that a rollout was terminated. What the clock alone brings about must not wait for it for ever; all else comes with a
// signal, which then cannot be passed on.
func TestMachineDeploymentNoticesThatTheRolloutItFollowsWasTerminated(t *testing.T) {
	t.Run("by the clock", func(t *testing.T) {
		w := newDeploymentWorld(t)
		due := func(d *activities.DeploymentDecision) {
			d.Recheck, d.HeldUntil = w.begun.Add(2*time.Hour), w.begun.Add(time.Hour)
		}
		w.script = []activities.DeploymentDecision{named(with(awaiting(rollout.HeldByStage), due)), named(awaiting(rollout.HeldByStage)), gone()}
		told := w.outside(nil, notOpen())
		w.runDeployment(t)
		require.Equal(t, []time.Duration{0, 61 * time.Minute, 61 * time.Minute}, w.looks)
		require.Len(t, *told, 2)
	})
	t.Run("by a signal", func(t *testing.T) {
		w := newDeploymentWorld(t, named(awaiting(rollout.HeldByMachines)))
		told := w.outside(nil, nil, notOpen())
		w.env.RegisterDelayedCallback(func() { changed(w.env) }, time.Minute)
		w.after(time.Hour, gone())
		w.runDeployment(t)
		require.Equal(t, []time.Duration{0, time.Hour}, w.looks)
		require.Len(t, *told, 3)
	})
	t.Run("a signal that cannot be sent for another reason says nothing", func(t *testing.T) {
		w := newDeploymentWorld(t, named(awaiting(rollout.HeldByMachines)))
		w.outside(errors.New("too many signals"), notOpen())
		w.after(time.Hour, gone())
		w.runDeployment(t)
		require.Equal(t, []time.Duration{0, time.Hour}, w.looks)
	})
	t.Run("after a cancellation", func(t *testing.T) {
		w := newDeploymentWorld(t, named(awaiting(rollout.HeldByMachines)))
		w.outside(nil)
		w.env.OnRequestCancelExternalWorkflow(mock.Anything, rolloutID, "").Return(nil)
		w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
		w.env.ExecuteWorkflow(workflows.MachineDeployment, workflows.Input{Ref: ref})
		require.True(t, temporal.IsCanceledError(w.env.GetWorkflowError()))
		require.Equal(t, 2*time.Minute, w.env.Now().Sub(w.begun).Round(time.Second))
	})
	t.Run("before a cancellation", func(t *testing.T) {
		w := newDeploymentWorld(t, named(awaiting(rollout.HeldByMachines)))
		w.outside(nil)
		w.env.OnRequestCancelExternalWorkflow(mock.Anything, rolloutID, "").Return(notOpen())
		w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
		w.env.ExecuteWorkflow(workflows.MachineDeployment, workflows.Input{Ref: ref})
		require.True(t, temporal.IsCanceledError(w.env.GetWorkflowError()))
		require.Equal(t, time.Minute, w.env.Now().Sub(w.begun).Round(time.Second))
	})
}

func TestMachineDeploymentShowsThatARolloutIsOpen(t *testing.T) {
	w := newDeploymentWorld(t, named(with(moving("grow"), func(d *activities.DeploymentDecision) { d.Rolling = false })))
	w.outside(nil, notOpen())
	w.show()
	w.after(time.Minute, gone())
	w.runDeployment(t)
	require.Equal(t, "rollout", w.shown["Stage"])
}
