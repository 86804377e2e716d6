package set_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	workflowsdeployment "millwright/workflows/deployment"
	"millwright/workflows/run"
	workflows "millwright/workflows/set"
	"millwright/workflows/workflowstest"
)

// setWorld is a set of machines whose objects are created and deleted as the workflow asks.
type setWorld struct {
	env      *testsuite.TestWorkflowEnvironment
	wanted   int
	machines int
	reported int
	deleting bool
	reads    []kube.Read
	log      []string
	conflict int      // number of creations that meet a conflict
	refuses  string   // why the API server refuses machines; empty: it does not
	failures []string // the failures that were reported
	noReport int      // number of reports that the API server refuses
	onReport func()   // called with each report; may be nil
}

func newSetWorld(t *testing.T) *setWorld {
	w := &setWorld{env: workflowstest.NewEnvironment(t)}
	w.env.OnActivity("DecideSet", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in set.Input) (set.Decision, error) {
			w.reads = append(w.reads, in.Read)
			return w.decide(), nil
		})
	w.env.OnActivity("CreateMachines", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in set.Creation) (set.Written, error) {
			if w.conflict > 0 {
				w.conflict--
				return set.Written{}, temporal.NewNonRetryableApplicationError("changed", kube.TypeConflict, nil)
			}
			if w.refuses != "" {
				w.log = append(w.log, fmt.Sprintf("create %d: %s", len(in.Names), w.refuses))
				return set.Written{Failure: scale.Failure{Message: w.refuses}}, nil
			}
			w.log = append(w.log, fmt.Sprintf("create %d", len(in.Names)))
			w.machines += len(in.Names)
			return set.Written{Versions: kube.MinVersions{kube.MachinesResource: fmt.Sprint(100 + w.machines)}}, nil
		})
	w.env.OnActivity("DeleteMachines", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in set.Batch) (set.Written, error) {
			w.log = append(w.log, fmt.Sprintf("delete %d", len(in.Machines)))
			w.machines -= len(in.Machines)
			return set.Written{}, nil
		})
	w.env.OnActivity("ReportSet", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in set.Report) (string, error) {
			workflowstest.Timed(t, w.env, in.Read)
			if w.noReport > 0 {
				w.noReport--
				return "", temporal.NewNonRetryableApplicationError("request is too large", kube.TypeRefused, nil)
			}
			w.reported = w.machines
			w.failures = append(w.failures, in.Failure.Message)
			if w.onReport != nil {
				w.onReport()
			}
			return "50", nil
		})
	w.env.OnActivity("FinalizeSet", mock.Anything, mock.Anything).Return(func(context.Context, kube.Read) (string, error) {
		w.log = append(w.log, "release")
		w.machines = -1 // the object is gone now
		return "51", nil
	})
	return w
}

func (w *setWorld) decide() set.Decision {
	d := set.Decision{Pending: attention.Decision{Why: "because"}, Version: "1"}
	switch {
	case w.machines < 0:
		return set.Decision{Gone: true}
	case w.deleting && w.machines == 0:
		d.Pending.Need, d.Free = attention.Deletion, true
	case w.deleting:
		d.Pending.Need = attention.Deletion
		d.Scale = scale.Decision{Delete: make([]scale.Target, min(w.machines, scale.MaxBatch))}
	case w.machines < w.wanted:
		d.Pending.Need = attention.Scale
		d.Scale = scale.Decision{Create: make([]string, min(w.wanted-w.machines, scale.MaxBatch))}
	case w.machines > w.wanted:
		d.Pending.Need = attention.Scale
		d.Scale = scale.Decision{Delete: make([]scale.Target, min(w.machines-w.wanted, scale.MaxBatch))}
	case w.reported != w.machines:
		d.Pending.Need, d.Report = attention.Scale, true
	}
	return d
}

func (w *setWorld) run(t *testing.T, in run.Input) run.Result {
	w.env.ExecuteWorkflow(workflows.MachineSet, in)
	var result run.Result
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result
}

func TestMachineSetWorksInBatchesAndEndsCalm(t *testing.T) {
	w := newSetWorld(t)
	w.wanted = 120
	w.onReport = func() { w.wanted = 60 } // before the run has ended
	require.Equal(t, run.OutcomeCalm, w.run(t, run.Input{Ref: workflowstest.Ref}).Outcome)
	require.Equal(t, []string{"create 50", "create 50", "create 20", "delete 50", "delete 10"}, w.log)
}

func TestMachineSetReadsLiveAtFirstAndWaitsForItsOwnWritesThen(t *testing.T) {
	w := newSetWorld(t)
	w.wanted = 60
	w.run(t, run.Input{Ref: workflowstest.Ref, Versions: kube.MinVersions{kube.MachinesResource: "7"}})
	require.True(t, w.reads[0].Live)
	require.Equal(t, "7", w.reads[0].Versions[kube.MachinesResource])
	require.False(t, w.reads[1].Live)
	require.Equal(t, "150", w.reads[1].Versions[kube.MachinesResource])
	require.Equal(t, "160", w.reads[2].Versions[kube.MachinesResource])
}

func TestMachineSetLooksAgainAfterAConflict(t *testing.T) {
	w := newSetWorld(t)
	w.wanted, w.conflict = 1, 2
	w.run(t, run.Input{Ref: workflowstest.Ref})
	require.Equal(t, []string{"create 1"}, w.log)
	require.True(t, w.reads[1].Live)
	require.True(t, w.reads[2].Live)
}

func TestMachineSetDeletesItsMachinesBeforeItGoes(t *testing.T) {
	w := newSetWorld(t)
	w.machines, w.deleting = 70, true
	result := w.run(t, run.Input{Ref: workflowstest.Ref})
	require.Equal(t, run.OutcomeGone, result.Outcome)
	require.Equal(t, []string{"delete 50", "delete 20", "release"}, w.log)
}

// A status that the API server refuses stops no creation and no deletion.
func TestMachineSetWorksOnWhenItsStatusIsRefused(t *testing.T) {
	w := newSetWorld(t)
	w.wanted, w.noReport = 60, 3
	w.env.RegisterDelayedCallback(func() { w.deleting = true; workflowstest.Changed(w.env) }, 15*time.Second)
	require.Equal(t, run.OutcomeGone, w.run(t, run.Input{Ref: workflowstest.Ref}).Outcome)
	require.Equal(t, []string{"create 50", "create 10", "delete 50", "delete 10", "release"}, w.log)
}

// A refusal is removed from the status when the size has changed so that nothing must be written.
func TestMachineSetForgetsAFailureWhenNothingIsToBeDone(t *testing.T) {
	w := newSetWorld(t)
	w.wanted, w.refuses = 1, "quota"
	w.env.RegisterDelayedCallback(func() { w.wanted = 0; workflowstest.Changed(w.env) }, 15*time.Second)
	require.Equal(t, run.OutcomeCalm, w.run(t, run.Input{Ref: workflowstest.Ref}).Outcome)
	require.Equal(t, []string{"create 1: quota", "create 1: quota"}, w.log, "tried again after ten seconds")
	require.Equal(t, []string{"quota", ""}, w.failures)
}

func TestMachineDeploymentContinuesAsNewWhenSettled(t *testing.T) {
	env := workflowstest.NewEnvironment(t)
	created, wanted := false, rollout.Creation{Replicas: 3, Revision: 1, Desired: 3, Max: 4}
	env.OnActivity("DecideDeployment", mock.Anything, mock.Anything).
		Return(func(context.Context, deployment.Input) (deployment.Decision, error) {
			if created {
				return deployment.Decision{Pending: attention.Decision{Why: "3 of 3 machines ready"}}, nil
			}
			return deployment.Decision{
				Pending: attention.Decision{Need: attention.Scale},
				Version: "4",
				Rollout: rollout.Decision{SetChanges: rollout.SetChanges{Create: &wanted}, Why: "create a set"},
			}, nil
		})
	env.OnActivity("CreateSet", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in deployment.SetCreation) (kube.MinVersions, error) {
			require.Equal(t, deployment.SetCreation{Deployment: workflowstest.Ref, Version: "4", Creation: wanted}, in)
			created = true
			return kube.MinVersions{kube.SetsResource: "9"}, nil
		})
	env.ExecuteWorkflow(workflowsdeployment.MachineDeployment, run.Input{Ref: workflowstest.Ref})

	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, env.GetWorkflowError(), &again)
	require.Equal(t, "MachineDeployment", again.WorkflowType.Name)
}

// No signal reports that an outage has settled: a timer wakes the deployment, also if the worker's clock is late.
func TestHeldReplacementsAreLookedAtAgainWhenTheHoldEnds(t *testing.T) {
	env := workflowstest.NewEnvironment(t)
	begun := env.Now()
	var looks []time.Duration
	env.OnActivity("DecideDeployment", mock.Anything, mock.Anything).
		Return(func(context.Context, deployment.Input) (deployment.Decision, error) {
			looks = append(looks, env.Now().Sub(begun).Round(time.Second))
			held := deployment.Decision{
				Pending:          attention.Decision{Need: attention.Replace, Why: "wait"},
				ReplaceHeld:      true,
				ReplaceHeldUntil: begun.Add(time.Minute),
			}
			return held, map[bool]error{true: temporal.NewNonRetryableApplicationError("enough", "Enough", nil)}[len(looks) == 3]
		})
	env.ExecuteWorkflow(workflowsdeployment.MachineDeployment, run.Input{Ref: workflowstest.Ref})
	require.Equal(t, []time.Duration{0, time.Minute, 61 * time.Second}, looks)
}

func TestMachineDeploymentEndsWithItsObject(t *testing.T) {
	env := workflowstest.NewEnvironment(t)
	gone := false
	env.OnActivity("DecideDeployment", mock.Anything, mock.Anything).
		Return(func(context.Context, deployment.Input) (deployment.Decision, error) {
			return deployment.Decision{Gone: gone}, nil
		})
	env.RegisterDelayedCallback(func() { gone = true; workflowstest.Changed(env) }, 24*time.Hour) // until then it waits
	env.ExecuteWorkflow(workflowsdeployment.MachineDeployment, run.Input{Ref: workflowstest.Ref})
	var result run.Result
	require.NoError(t, env.GetWorkflowResult(&result))
	require.Equal(t, run.OutcomeGone, result.Outcome)
}

func TestDecisionThatFailsLocallyIsMadeAgainWithRetries(t *testing.T) {
	env := workflowstest.NewEnvironment(t)
	attempts := 0
	env.OnActivity("DecideSet", mock.Anything, mock.Anything).
		Return(func(context.Context, set.Input) (set.Decision, error) {
			if attempts++; attempts < 4 {
				return set.Decision{}, errors.New("the API server is away")
			}
			return set.Decision{Gone: true}, nil
		})
	env.ExecuteWorkflow(workflows.MachineSet, run.Input{Ref: workflowstest.Ref})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, 4, attempts)
}
