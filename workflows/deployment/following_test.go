package deployment_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/attention"
	"millwright/decide/request"
	"millwright/decide/rollout"
	workflows "millwright/workflows/deployment"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

var deploymentID = run.Installation("").ID(run.KindMachineDeployment, workflowstest.Ref)

// named makes a decision from a status that names the rollout to revision 7.
func named(d deployment.Decision) deployment.Decision {
	d.Operation = rolloutID
	return d
}

// orphanWorld has a rollout that an earlier run of the deployment's workflow started, and a new run. The rollout waits
// for machines.
func orphanWorld(t *testing.T, script ...deployment.Decision) *deploymentWorld {
	w := newDeploymentWorld(t, script...)
	w.answer(0)
	w.beside = []deployment.Decision{awaiting(rollout.HeldByMachines)}
	w.env.RegisterWorkflow(workflows.Rollout)
	w.env.RegisterWorkflow(workflows.MachineDeployment)
	return w
}

// outcomes are the results of the two workflows of an orphanWorld.
type outcomes struct {
	rollout    workflows.RolloutResult
	deployment error
}

// runBoth runs the rollout, and the deployment's workflow until the rollout ends.
func (w *deploymentWorld) runBoth(t *testing.T) (o outcomes) {
	w.env.ExecuteWorkflow(func(ctx workflow.Context) error {
		start := func(id string, run, in any) workflow.ChildWorkflowFuture {
			child := workflow.ExecuteChildWorkflow(
				workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: id, WaitForCancellation: true}),
				run,
				in,
			)
			_ = child.GetChildWorkflowExecution().Get(ctx, nil)
			return child
		}
		open := start(
			rolloutID,
			workflows.Rollout,
			workflows.RolloutInput{Input: run.Input{Ref: workflowstest.Ref}, Revision: 7},
		)
		o.deployment = start(deploymentID, workflows.MachineDeployment, run.Input{Ref: workflowstest.Ref}).Get(ctx, nil)
		if ended, err := workflow.AwaitWithTimeout(ctx, time.Second, open.IsReady); !ended {
			return err
		}
		return open.Get(ctx, &o.rollout)
	})
	require.NoError(t, w.env.GetWorkflowError())
	return o
}

// signalDeployment signals the deployment's workflow although its status names a rollout.
func (w *deploymentWorld) signalDeployment(t *testing.T, after time.Duration, machines string, then ...func()) {
	w.env.RegisterDelayedCallback(func() {
		for _, do := range then {
			do()
		}
		c := run.Changed{UID: workflowstest.Ref.UID, Versions: kube.MinVersions{kube.MachinesResource: machines}}
		require.NoError(t, w.env.SignalWorkflowByID(deploymentID, run.SignalChanged, c))
	}, after)
}

// goesOn changes the decisions of the rollout and of the deployment's workflow.
func (w *deploymentWorld) goesOn(beside deployment.Decision, script ...deployment.Decision) func() {
	return func() {
		defer w.lock()()
		w.beside, w.script = []deployment.Decision{beside}, script
	}
}

// A run that finds the rollout of an earlier run open forwards signals to it, and is signaled when it ends.
func TestMachineDeploymentFollowsARolloutThatIsOpenAlready(t *testing.T) {
	for name, found := range map[string]deployment.Decision{
		"as it would start it":       moving("grow"),
		"as the status names it":     named(moving("grow")),
		"while only the size counts": named(with(moving("grow"), func(d *deployment.Decision) { d.Rollout.Rolling = false })),
		"where marks come first":     named(deployment.Decision{Pending: attention.Decision{Need: attention.Scale}, Rollout: rollout.Decision{MachineChanges: rollout.MachineChanges{Unmark: aTarget}}}),
		"where the set is to be made": named(deployment.Decision{Pending: attention.Decision{Need: attention.Scale}, Rollout: rollout.Decision{
			SetChanges: rollout.SetChanges{Create: &rollout.Creation{Revision: 8}},
		}}),
		"where a finalizer is missing":   named(deployment.Decision{Pending: attention.Decision{Need: attention.Scale}, Prepare: true}),
		"where only a report is to come": named(deployment.Decision{Pending: attention.Decision{Need: attention.Scale}, Report: true}),
		"where machines are replaced":    named(deployment.Decision{Pending: attention.Decision{Need: attention.Replace}, Replace: true}),
		"where it is being deleted":      named(deployment.Decision{Pending: attention.Decision{Need: attention.Deletion}, Rollout: rollout.Decision{SetChanges: rollout.SetChanges{Delete: aTarget}}}),
	} {
		t.Run(name, func(t *testing.T) {
			w := orphanWorld(t, found)
			w.signalDeployment(t, time.Minute, "9")
			w.signalDeployment(t, 5*time.Minute, "10", w.goesOn(complete(), gone()))
			o := w.runBoth(t)
			require.NoError(t, o.deployment)
			require.Equal(t, workflows.OutcomeCompleted, o.rollout.Outcome)
			require.Empty(t, w.log, "nothing is done beside the rollout")
			require.Equal(
				t,
				[]time.Duration{0, 5 * time.Minute},
				w.looks,
				"nor is anything decided, until it says that it has ended",
			)
			require.Equal(t, "10", w.reads[1].Versions[kube.MachinesResource])
			require.True(t, w.reads[1].Live, "the rollout wrote")
			require.Equal(t, rolloutID, w.reads[1].Over, "the status may still name it")
			seen := []string{}
			for _, read := range w.besides {
				seen = append(seen, read.Versions[kube.MachinesResource])
			}
			require.Equal(t, []string{"", "", "9", "10"}, seen, "it gets the follower's ID, and the follower's signals")
		})
	}
}

func TestMachineDeploymentActsWhenARolloutThatItFollowedHasEnded(t *testing.T) {
	w := orphanWorld(t, named(moving("grow")))
	then := named(with(moving("grow"), func(d *deployment.Decision) { d.Rollout.Rolling, d.Report = false, true }))
	w.signalDeployment(
		t,
		time.Minute,
		"9",
		w.goesOn(with(complete(), func(d *deployment.Decision) { d.Rollout.Revision = 8 }), then, gone()),
	)
	o := w.runBoth(t)
	require.Equal(t, workflows.OutcomeSuperseded, o.rollout.Outcome)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.log)
	require.Equal(t, rolloutID, w.orders[1].(deployment.Report).Over)
	require.Equal(t, []time.Duration{0, time.Minute, time.Minute}, w.looks)
}

// Requests are written on the deployment by either workflow; the rollout is signaled as for any change.
func TestMachineDeploymentThatFollowsARolloutTakesRequests(t *testing.T) {
	w := orphanWorld(t, named(moving("grow")))
	s := workflowstest.NewOperator(w.env, w.lock)
	w.env.RegisterDelayedCallback(func() {
		require.NoError(t, w.env.SignalWorkflowByID(deploymentID, run.MessageRequest, pause))
	}, time.Minute)
	w.signalDeployment(t, 2*time.Minute, "9", w.goesOn(complete(), gone()))
	require.NoError(t, w.runBoth(t).deployment)
	require.Len(t, s.Orders, 1)
	require.Equal(t, paused, s.Orders[0].Order)
	require.Equal(
		t,
		"12",
		w.besides[len(w.besides)-1].Versions[kube.DeploymentsResource],
		"the rollout sees what was written",
	)
}

// Cancelling the deployment's workflow cancels its rollout, whichever run started it.
func TestCancellingAMachineDeploymentCancelsTheRolloutThatItFollows(t *testing.T) {
	w := orphanWorld(t, named(moving("grow")))
	s := workflowstest.NewOperator(w.env, w.lock)
	w.env.RegisterDelayedCallback(func() { w.env.CancelWorkflowByID(deploymentID, "") }, time.Minute)
	o := w.runBoth(t)
	require.True(t, temporal.IsCanceledError(o.deployment))
	require.Equal(t, workflows.OutcomeCancelled, o.rollout.Outcome)
	require.Len(t, s.Orders, 1)
	require.Equal(t, request.Cancel, s.Orders[0].Order.Command)
	require.Equal(t, time.Minute, w.env.Now().Sub(w.begun).Round(time.Second))
	require.Empty(t, w.log)
}

// outside answers signals and cancellations of workflows that are not in the test: each answer once, the last one
// repeatedly.
func (w *deploymentWorld) outside(answers ...error) *[]run.Changed {
	var told []run.Changed
	w.env.OnSignalExternalWorkflow(mock.Anything, rolloutID, "", run.SignalChanged, mock.Anything).Return(
		func(_, _, _, _ string, arg any) error {
			defer w.lock()()
			c := arg.(run.Changed)
			c.Versions = maps.Clone(c.Versions)
			told = append(told, c)
			answer := answers[0]
			answers = answers[min(1, len(answers)-1):]
			return answer
		})
	return &told
}

func notOpen() error { return new(temporal.UnknownExternalWorkflowExecutionError) }

// A status may name a rollout that was terminated.
func TestMachineDeploymentActsWhenTheRolloutOfItsStatusIsNotOpen(t *testing.T) {
	scales := named(with(moving("grow"), func(d *deployment.Decision) { d.Rollout.Rolling, d.Report = false, true }))
	w := newDeploymentWorld(t, scales, scales, gone())
	w.answer(0)
	told := w.outside(notOpen())
	w.runDeployment(t)
	require.Equal(t, []string{"ChangeSets", "ReportDeployment"}, w.log)
	require.Equal(
		t,
		[]run.Changed{{UID: workflowstest.Ref.UID, Versions: kube.MinVersions{}, Tell: deploymentID}},
		*told,
		"it is asked once",
	)
	require.Equal(t, []time.Duration{0, 0, 0}, w.looks)
	require.True(t, w.reads[1].Live)
	require.Equal(t, rolloutID, w.reads[1].Over)
}

// The deployment's own rollout has ended when its future is ready, whatever the status names.
func TestMachineDeploymentAsksNobodyAboutARolloutOfItsOwn(t *testing.T) {
	w := newDeploymentWorld(
		t,
		moving("grow"),
		named(with(moving("grow"), func(d *deployment.Decision) { d.Rollout.Rolling = false })),
		gone(),
	)
	w.answer(0)
	w.child(func(workflow.Context, workflows.RolloutInput, int) (workflows.RolloutResult, error) {
		return workflows.RolloutResult{Outcome: workflows.OutcomeStopped}, nil
	})
	w.runDeployment(t)
	require.Equal(t, []string{"start " + rolloutID, "ChangeSets"}, w.log)
}

// No signal reports that a rollout was terminated. Work that is due without a change must not wait for the rollout for
// ever; every other change comes with a signal, which cannot be forwarded then.
func TestMachineDeploymentNoticesThatTheRolloutItFollowsWasTerminated(t *testing.T) {
	t.Run("by the clock", func(t *testing.T) {
		w := newDeploymentWorld(t)
		due := func(d *deployment.Decision) {
			d.Rollout.Recheck, d.ReplaceHeldUntil = w.begun.Add(2*time.Hour), w.begun.Add(time.Hour)
		}
		w.script = []deployment.Decision{
			named(with(awaiting(rollout.HeldByStep), due)),
			named(awaiting(rollout.HeldByStep)),
			gone(),
		}
		told := w.outside(nil, notOpen())
		w.runDeployment(t)
		require.Equal(t, []time.Duration{0, 61 * time.Minute, 61 * time.Minute}, w.looks)
		require.Len(t, *told, 2)
	})
	t.Run("by a signal", func(t *testing.T) {
		w := newDeploymentWorld(t, named(awaiting(rollout.HeldByMachines)))
		told := w.outside(nil, nil, notOpen())
		w.env.RegisterDelayedCallback(func() { workflowstest.Changed(w.env) }, time.Minute)
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
		w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.Ref})
		require.True(t, temporal.IsCanceledError(w.env.GetWorkflowError()))
		require.Equal(t, 2*time.Minute, w.env.Now().Sub(w.begun).Round(time.Second))
	})
	t.Run("before a cancellation", func(t *testing.T) {
		w := newDeploymentWorld(t, named(awaiting(rollout.HeldByMachines)))
		w.outside(nil)
		w.env.OnRequestCancelExternalWorkflow(mock.Anything, rolloutID, "").Return(notOpen())
		w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
		w.env.ExecuteWorkflow(workflows.MachineDeployment, run.Input{Ref: workflowstest.Ref})
		require.True(t, temporal.IsCanceledError(w.env.GetWorkflowError()))
		require.Equal(t, time.Minute, w.env.Now().Sub(w.begun).Round(time.Second))
	})
}

func TestMachineDeploymentShowsThatARolloutIsOpen(t *testing.T) {
	w := newDeploymentWorld(t, named(with(moving("grow"), func(d *deployment.Decision) { d.Rollout.Rolling = false })))
	w.outside(nil, notOpen())
	w.show()
	w.after(time.Minute, gone())
	w.runDeployment(t)
	require.Equal(t, "rollout", w.shown["Step"])
}
