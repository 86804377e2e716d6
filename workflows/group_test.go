package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/workflows"
)

func newEnvironment(t *testing.T) *testsuite.TestWorkflowEnvironment {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(10 * time.Second)
	env.RegisterActivity(&activities.Activities{})
	t.Cleanup(func() { require.True(t, env.IsWorkflowCompleted()) })
	return env
}

func changed(env *testsuite.TestWorkflowEnvironment) {
	env.SignalWorkflow(workflows.SignalChanged, workflows.Changed{UID: ref.UID})
}

// setWorld is a set of machines whose objects are made and deleted as the workflow asks.
type setWorld struct {
	env      *testsuite.TestWorkflowEnvironment
	wanted   int
	machines int
	reported int
	deleting bool
	reads    []activities.Read
	log      []string
	conflict int      // so many creations meet a conflict
	refuses  string   // why the API server takes no machine; empty: it does
	told     []string // the failures that were reported
}

func newSetWorld(t *testing.T) *setWorld {
	w := &setWorld{env: newEnvironment(t)}
	w.env.OnActivity("DecideScale", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.SetRead) (activities.SetDecision, error) {
		w.reads = append(w.reads, in.Read)
		return w.decide(), nil
	})
	w.env.OnActivity("CreateMachines", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.Creation) (activities.Written, error) {
		if w.conflict > 0 {
			w.conflict--
			return activities.Written{}, temporal.NewNonRetryableApplicationError("changed", activities.TypeConflict, nil)
		}
		if w.refuses != "" {
			w.log = append(w.log, fmt.Sprintf("create %d: %s", len(in.Names), w.refuses))
			return activities.Written{Failure: scale.Failure{Message: w.refuses}}, nil
		}
		w.log = append(w.log, fmt.Sprintf("create %d", len(in.Names)))
		w.machines += len(in.Names)
		return activities.Written{Versions: activities.Gate{activities.MachinesResource: fmt.Sprint(100 + w.machines)}}, nil
	})
	w.env.OnActivity("DeleteMachines", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.Batch) (activities.Written, error) {
		w.log = append(w.log, fmt.Sprintf("delete %d", len(in.Machines)))
		w.machines -= len(in.Machines)
		return activities.Written{}, nil
	})
	w.env.OnActivity("ReportSet", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.SetReport) (string, error) {
		w.reported = w.machines
		w.told = append(w.told, in.Failure.Message)
		return "50", nil
	})
	w.env.OnActivity("FinalizeSet", mock.Anything, mock.Anything).Return(func(context.Context, activities.Read) (string, error) {
		w.log = append(w.log, "release")
		w.machines = -1 // the object is gone now
		return "51", nil
	})
	return w
}

func (w *setWorld) decide() activities.SetDecision {
	d := activities.SetDecision{Version: "1", Why: "because"}
	switch {
	case w.machines < 0:
		return activities.SetDecision{Gone: true}
	case w.deleting && w.machines == 0:
		d.Need, d.Free = attention.Deletion, true
	case w.deleting:
		d.Need, d.Decision = attention.Deletion, scale.Decision{Delete: make([]scale.Target, min(w.machines, scale.MaxBatch))}
	case w.machines < w.wanted:
		d.Need, d.Decision = attention.Scale, scale.Decision{Create: make([]string, min(w.wanted-w.machines, scale.MaxBatch))}
	case w.machines > w.wanted:
		d.Need, d.Decision = attention.Scale, scale.Decision{Delete: make([]scale.Target, min(w.machines-w.wanted, scale.MaxBatch))}
	case w.reported != w.machines:
		d.Need, d.Report = attention.Scale, true
	}
	return d
}

func (w *setWorld) run(t *testing.T, in workflows.Input) workflows.Result {
	w.env.ExecuteWorkflow(workflows.MachineSet, in)
	var result workflows.Result
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result
}

func TestMachineSetWorksInBatchesAndEndsCalm(t *testing.T) {
	w := newSetWorld(t)
	w.wanted = 120
	w.env.RegisterDelayedCallback(func() { w.wanted = 60; changed(w.env) }, 5*time.Second)
	require.Equal(t, workflows.OutcomeCalm, w.run(t, workflows.Input{Ref: ref}).Outcome)
	require.Equal(t, []string{"create 50", "create 50", "create 20", "delete 50", "delete 10"}, w.log)
}

func TestMachineSetReadsLiveAtFirstAndWaitsForItsOwnWritesThen(t *testing.T) {
	w := newSetWorld(t)
	w.wanted = 60
	w.run(t, workflows.Input{Ref: ref, Gate: activities.Gate{activities.MachinesResource: "7"}})
	require.True(t, w.reads[0].Live)
	require.Equal(t, "7", w.reads[0].Gate[activities.MachinesResource])
	require.False(t, w.reads[1].Live)
	require.Equal(t, "150", w.reads[1].Gate[activities.MachinesResource])
	require.Equal(t, "160", w.reads[2].Gate[activities.MachinesResource])
}

func TestMachineSetLooksAgainAfterAConflict(t *testing.T) {
	w := newSetWorld(t)
	w.wanted, w.conflict = 1, 2
	w.run(t, workflows.Input{Ref: ref})
	require.Equal(t, []string{"create 1"}, w.log)
	require.True(t, w.reads[1].Live)
	require.True(t, w.reads[2].Live)
}

func TestU50_MachineSetDeletesItsMachinesBeforeItGoes(t *testing.T) {
	w := newSetWorld(t)
	w.machines, w.deleting = 70, true
	result := w.run(t, workflows.Input{Ref: ref})
	require.Equal(t, workflows.OutcomeGone, result.Outcome)
	require.Equal(t, []string{"delete 50", "delete 20", "release"}, w.log)
}

// What was refused is forgotten, and told no more, when the size was changed so that nothing is to be done.
func TestMachineSetForgetsAFailureWhenNothingIsToBeDone(t *testing.T) {
	w := newSetWorld(t)
	w.wanted, w.refuses = 1, "quota"
	w.env.RegisterDelayedCallback(func() { w.wanted = 0; changed(w.env) }, 15*time.Second)
	require.Equal(t, workflows.OutcomeCalm, w.run(t, workflows.Input{Ref: ref}).Outcome)
	require.Equal(t, []string{"create 1: quota", "create 1: quota"}, w.log, "tried again after ten seconds")
	require.Equal(t, []string{"quota", ""}, w.told)
}

func TestMachineDeploymentContinuesAsNewWhenSettled(t *testing.T) {
	env := newEnvironment(t)
	created, wanted := false, rollout.Creation{Replicas: 3, Revision: 1, Desired: 3, Max: 4}
	env.OnActivity("DecideDeployment", mock.Anything, mock.Anything).Return(func(context.Context, activities.DeploymentRead) (activities.DeploymentDecision, error) {
		if created {
			return activities.DeploymentDecision{Why: "3 of 3 machines ready"}, nil
		}
		return activities.DeploymentDecision{Need: attention.Scale, Version: "4", Decision: rollout.Decision{Create: &wanted, Why: "create a set"}}, nil
	})
	env.OnActivity("CreateSet", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.SetCreation) (activities.Gate, error) {
		require.Equal(t, activities.SetCreation{Deployment: ref, Version: "4", Creation: wanted}, in)
		created = true
		return activities.Gate{activities.SetsResource: "9"}, nil
	})
	env.ExecuteWorkflow(workflows.MachineDeployment, workflows.Input{Ref: ref})

	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, env.GetWorkflowError(), &again)
	require.Equal(t, "MachineDeployment", again.WorkflowType.Name)
}

// Nobody tells the deployment that an outage has settled: a timer does. It does so too when the worker's clock is late.
func TestD24_HeldReplacementsAreLookedAtAgainWhenTheHoldEnds(t *testing.T) {
	env := newEnvironment(t)
	begun := env.Now()
	var looks []time.Duration
	env.OnActivity("DecideDeployment", mock.Anything, mock.Anything).Return(func(context.Context, activities.DeploymentRead) (activities.DeploymentDecision, error) {
		looks = append(looks, env.Now().Sub(begun).Round(time.Second))
		held := activities.DeploymentDecision{Need: attention.Replace, Held: true, HeldUntil: begun.Add(time.Minute), Why: "wait"}
		return held, map[bool]error{true: temporal.NewNonRetryableApplicationError("enough", "Enough", nil)}[len(looks) == 3]
	})
	env.ExecuteWorkflow(workflows.MachineDeployment, workflows.Input{Ref: ref})
	require.Equal(t, []time.Duration{0, time.Minute, 61 * time.Second}, looks)
}

func TestMachineDeploymentEndsWithItsObject(t *testing.T) {
	env := newEnvironment(t)
	gone := false
	env.OnActivity("DecideDeployment", mock.Anything, mock.Anything).Return(func(context.Context, activities.DeploymentRead) (activities.DeploymentDecision, error) {
		return activities.DeploymentDecision{Gone: gone}, nil
	})
	env.RegisterDelayedCallback(func() { gone = true; changed(env) }, 24*time.Hour) // calm deployments wait as long as it takes
	env.ExecuteWorkflow(workflows.MachineDeployment, workflows.Input{Ref: ref})
	var result workflows.Result
	require.NoError(t, env.GetWorkflowResult(&result))
	require.Equal(t, workflows.OutcomeGone, result.Outcome)
}

func TestDecisionThatFailsLocallyIsMadeAgainWithPatience(t *testing.T) {
	env := newEnvironment(t)
	attempts := 0
	env.OnActivity("DecideScale", mock.Anything, mock.Anything).Return(func(context.Context, activities.SetRead) (activities.SetDecision, error) {
		if attempts++; attempts < 4 {
			return activities.SetDecision{}, errors.New("the API server is away")
		}
		return activities.SetDecision{Gone: true}, nil
	})
	env.ExecuteWorkflow(workflows.MachineSet, workflows.Input{Ref: ref})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, 4, attempts)
}
