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

// setTestEnv is a set of machines. The world creates and deletes the machines that the workflow requests.
type setTestEnv struct {
	env                      *testsuite.TestWorkflowEnvironment
	wantedMachineCount       int
	machineCount             int
	reportedMachineCount     int
	isDeleting               bool
	decisionInputs           []kube.ReadInput
	activityLog              []string
	conflictingCreationCount int      // number of create requests that fail with a conflict
	refusalReason            string   // reason why the API server refuses machines; empty if it accepts them
	reportedFailures         []string // the reported failures
	refusedReportCount       int      // number of reports that the API server refuses
	onReport                 func()   // called with each report; may be nil
}

func newSetTestEnv(t *testing.T) *setTestEnv {
	w := &setTestEnv{env: workflowstest.NewEnvironment(t)}
	w.env.OnActivity("DecideSet", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in set.Input) (set.Decision, error) {
			w.decisionInputs = append(w.decisionInputs, in.ReadInput)
			return w.decideSet(), nil
		})
	w.env.OnActivity("CreateMachines", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in set.MachineCreation) (set.WriteResult, error) {
			if w.conflictingCreationCount > 0 {
				w.conflictingCreationCount--
				return set.WriteResult{}, temporal.NewNonRetryableApplicationError("changed", kube.FailureTypeConflict, nil)
			}
			if w.refusalReason != "" {
				w.activityLog = append(w.activityLog, fmt.Sprintf("create %d: %s", len(in.Names), w.refusalReason))
				return set.WriteResult{Failure: scale.WriteFailure{Message: w.refusalReason}}, nil
			}
			w.activityLog = append(w.activityLog, fmt.Sprintf("create %d", len(in.Names)))
			w.machineCount += len(in.Names)
			return set.WriteResult{Versions: kube.MinVersions{kube.MachinesResource: fmt.Sprint(100 + w.machineCount)}}, nil
		})
	w.env.OnActivity("DeleteMachines", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in set.MachineBatch) (set.WriteResult, error) {
			w.activityLog = append(w.activityLog, fmt.Sprintf("delete %d", len(in.Machines)))
			w.machineCount -= len(in.Machines)
			return set.WriteResult{}, nil
		})
	w.env.OnActivity("ReportSet", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in set.Report) (string, error) {
			workflowstest.AssertWorkflowTime(t, w.env, in.ReadInput)
			if w.refusedReportCount > 0 {
				w.refusedReportCount--
				return "", temporal.NewNonRetryableApplicationError("request is too large", kube.FailureTypeRefused, nil)
			}
			w.reportedMachineCount = w.machineCount
			w.reportedFailures = append(w.reportedFailures, in.Failure.Message)
			if w.onReport != nil {
				w.onReport()
			}
			return "50", nil
		})
	w.env.OnActivity("FinalizeSet", mock.Anything, mock.Anything).
		Return(func(context.Context, kube.ReadInput) (string, error) {
			w.activityLog = append(w.activityLog, "release")
			w.machineCount = -1 // the object is gone now
			return "51", nil
		})
	return w
}

func (w *setTestEnv) decideSet() set.Decision {
	d := set.Decision{Pending: attention.Decision{Why: "because"}, Version: "1"}
	switch {
	case w.machineCount < 0:
		return set.Decision{Gone: true}
	case w.isDeleting && w.machineCount == 0:
		d.Pending.Need, d.Free = attention.NeedDeletion, true
	case w.isDeleting:
		d.Pending.Need = attention.NeedDeletion
		d.Scale = scale.Decision{Delete: make([]scale.MachineTarget, min(w.machineCount, scale.MaxBatchSize))}
	case w.machineCount < w.wantedMachineCount:
		d.Pending.Need = attention.NeedScaling
		d.Scale = scale.Decision{Create: make([]string, min(w.wantedMachineCount-w.machineCount, scale.MaxBatchSize))}
	case w.machineCount > w.wantedMachineCount:
		d.Pending.Need = attention.NeedScaling
		d.Scale = scale.Decision{
			Delete: make([]scale.MachineTarget, min(w.machineCount-w.wantedMachineCount, scale.MaxBatchSize)),
		}
	case w.reportedMachineCount != w.machineCount:
		d.Pending.Need, d.Report = attention.NeedScaling, true
	}
	return d
}

func (w *setTestEnv) runSet(t *testing.T, in run.Input) run.Result {
	w.env.ExecuteWorkflow(workflows.MachineSet, in)
	var result run.Result
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result
}

func TestMachineSetWorksInBatchesUntilNoWorkIsLeft(t *testing.T) {
	w := newSetTestEnv(t)
	w.wantedMachineCount = 120
	w.onReport = func() { w.wantedMachineCount = 60 } // the replicas change before the run has ended
	require.Equal(t, run.OutcomeCalm, w.runSet(t, run.Input{Ref: workflowstest.ObjectRef}).Outcome)
	require.Equal(t, []string{"create 50", "create 50", "create 20", "delete 50", "delete 10"}, w.activityLog)
}

func TestMachineSetReadsLiveFirstAndThenWaitsForItsOwnWrites(t *testing.T) {
	w := newSetTestEnv(t)
	w.wantedMachineCount = 60
	w.runSet(t, run.Input{Ref: workflowstest.ObjectRef, Versions: kube.MinVersions{kube.MachinesResource: "7"}})
	require.True(t, w.decisionInputs[0].Live)
	require.Equal(t, "7", w.decisionInputs[0].Versions[kube.MachinesResource])
	require.False(t, w.decisionInputs[1].Live)
	require.Equal(t, "150", w.decisionInputs[1].Versions[kube.MachinesResource])
	require.Equal(t, "160", w.decisionInputs[2].Versions[kube.MachinesResource])
}

func TestMachineSetReadsLiveAfterAConflict(t *testing.T) {
	w := newSetTestEnv(t)
	w.wantedMachineCount, w.conflictingCreationCount = 1, 2
	w.runSet(t, run.Input{Ref: workflowstest.ObjectRef})
	require.Equal(t, []string{"create 1"}, w.activityLog)
	require.True(t, w.decisionInputs[1].Live)
	require.True(t, w.decisionInputs[2].Live)
}

func TestDeletedMachineSetDeletesItsMachinesFirst(t *testing.T) {
	w := newSetTestEnv(t)
	w.machineCount, w.isDeleting = 70, true
	result := w.runSet(t, run.Input{Ref: workflowstest.ObjectRef})
	require.Equal(t, run.OutcomeGone, result.Outcome)
	require.Equal(t, []string{"delete 50", "delete 20", "release"}, w.activityLog)
}

// If the API server refuses the status, creations and deletions continue.
func TestMachineSetContinuesWhenItsStatusIsRefused(t *testing.T) {
	w := newSetTestEnv(t)
	w.wantedMachineCount, w.refusedReportCount = 60, 3
	w.env.RegisterDelayedCallback(func() { w.isDeleting = true; workflowstest.SignalChange(w.env) }, 15*time.Second)
	require.Equal(t, run.OutcomeGone, w.runSet(t, run.Input{Ref: workflowstest.ObjectRef}).Outcome)
	require.Equal(t, []string{"create 50", "create 10", "delete 50", "delete 10", "release"}, w.activityLog)
}

// If the new number of replicas needs no writes, the status no longer contains the refusal.
func TestMachineSetClearsAFailureWhenNoWorkIsLeft(t *testing.T) {
	w := newSetTestEnv(t)
	w.wantedMachineCount, w.refusalReason = 1, "quota"
	w.env.RegisterDelayedCallback(func() { w.wantedMachineCount = 0; workflowstest.SignalChange(w.env) }, 15*time.Second)
	require.Equal(t, run.OutcomeCalm, w.runSet(t, run.Input{Ref: workflowstest.ObjectRef}).Outcome)
	require.Equal(t, []string{"create 1: quota", "create 1: quota"}, w.activityLog, "tried again after ten seconds")
	require.Equal(t, []string{"quota", ""}, w.reportedFailures)
}

func TestSettledRunContinuesAsNew(t *testing.T) {
	env := workflowstest.NewEnvironment(t)
	created, wanted := false, rollout.SetCreation{Replicas: 3, Revision: 1, Desired: 3, Max: 4}
	env.OnActivity("DecideDeployment", mock.Anything, mock.Anything).
		Return(func(context.Context, deployment.Input) (deployment.Decision, error) {
			if created {
				return deployment.Decision{Pending: attention.Decision{Why: "3 of 3 machines ready"}}, nil
			}
			return deployment.Decision{
				Pending: attention.Decision{Need: attention.NeedScaling},
				Version: "4",
				Rollout: rollout.Decision{SetChanges: rollout.SetChanges{Create: &wanted}, Why: "create a set"},
			}, nil
		})
	env.OnActivity("CreateSet", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in deployment.SetCreation) (kube.MinVersions, error) {
			require.Equal(t, deployment.SetCreation{Deployment: workflowstest.ObjectRef, Version: "4", SetCreation: wanted}, in)
			created = true
			return kube.MinVersions{kube.SetsResource: "9"}, nil
		})
	env.ExecuteWorkflow(workflowsdeployment.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef})

	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, env.GetWorkflowError(), &again)
	require.Equal(t, "MachineDeployment", again.WorkflowType.Name)
}

// No signal reports the end of an outage. A timer makes the workflow decide again, even if the worker's clock is late.
func TestHeldReplacementsAreDecidedAgainWhenTheHoldEnds(t *testing.T) {
	env := workflowstest.NewEnvironment(t)
	begun := env.Now()
	var looks []time.Duration
	env.OnActivity("DecideDeployment", mock.Anything, mock.Anything).
		Return(func(context.Context, deployment.Input) (deployment.Decision, error) {
			looks = append(looks, env.Now().Sub(begun).Round(time.Second))
			held := deployment.Decision{
				Pending:          attention.Decision{Need: attention.NeedReplacement, Why: "wait"},
				ReplaceHeld:      true,
				ReplaceHeldUntil: begun.Add(time.Minute),
			}
			return held, map[bool]error{true: temporal.NewNonRetryableApplicationError("enough", "Enough", nil)}[len(looks) == 3]
		})
	env.ExecuteWorkflow(workflowsdeployment.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef})
	require.Equal(t, []time.Duration{0, time.Minute, 61 * time.Second}, looks)
}

func TestWaitingRunEndsWithItsObject(t *testing.T) {
	env := workflowstest.NewEnvironment(t)
	gone := false
	env.OnActivity("DecideDeployment", mock.Anything, mock.Anything).
		Return(func(context.Context, deployment.Input) (deployment.Decision, error) {
			return deployment.Decision{Gone: gone}, nil
		})
	env.RegisterDelayedCallback(
		func() { gone = true; workflowstest.SignalChange(env) },
		24*time.Hour,
	) // the deployment waits
	env.ExecuteWorkflow(workflowsdeployment.MachineDeployment, run.Input{Ref: workflowstest.ObjectRef})
	var result run.Result
	require.NoError(t, env.GetWorkflowResult(&result))
	require.Equal(t, run.OutcomeGone, result.Outcome)
}

func TestDecisionThatFailsLocallyIsRetriedAsARegularActivity(t *testing.T) {
	env := workflowstest.NewEnvironment(t)
	attempts := 0
	env.OnActivity("DecideSet", mock.Anything, mock.Anything).
		Return(func(context.Context, set.Input) (set.Decision, error) {
			if attempts++; attempts < 4 {
				return set.Decision{}, errors.New("the API server is away")
			}
			return set.Decision{Gone: true}, nil
		})
	env.ExecuteWorkflow(workflows.MachineSet, run.Input{Ref: workflowstest.ObjectRef})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, 4, attempts)
}
