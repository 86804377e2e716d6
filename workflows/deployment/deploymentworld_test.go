package deployment_test

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	workflows "millwright/workflows/deployment"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

// deploymentTestEnv returns the decisions of a script for one deployment. deploymentTestEnv returns each decision once,
// and then repeats the last decision. deploymentTestEnv records the activity calls in order.
type deploymentTestEnv struct {
	mu                    sync.Mutex
	env                   *testsuite.TestWorkflowEnvironment
	activityNameOverrides map[string]string // names of activities that differ from the names for machine.sapcloud.io
	startTime             time.Time
	decisionScript        []deployment.Decision
	// decisions of a rollout that runs in parallel with the deployment's workflow; if nil, there is only one script
	rolloutScript       []deployment.Decision
	decisionInputs      []deployment.Input
	rolloutInputs       []deployment.Input   // inputs of the activity that decides for the rollout
	decisionTimes       []time.Duration      // time of each decision
	activityLog         []string             // names of all activities that ran, except decisions
	activityInputs      []any                // inputs of the activities in activityLog
	nextErrors          map[string]error     // by activity name: error of the activity's next call
	failsBothActivities bool                 // the local activity and the regular activity both fail
	checkWriteTime      func(kube.ReadInput) // checks the time at which an activity writes the deployment
	searchAttributes    map[string]any       // the last value of each search attribute, after recordSearchAttributes
}

func newDeploymentTestEnv(t *testing.T, script ...deployment.Decision) *deploymentTestEnv {
	return newTestEnvWithActivityNames(t, nil, script...)
}

func newTestEnvWithActivityNames(
	t *testing.T,
	named map[string]string,
	script ...deployment.Decision,
) *deploymentTestEnv {
	w := &deploymentTestEnv{
		env:                   workflowstest.NewEnvironment(t),
		activityNameOverrides: named,
		decisionScript:        script,
		nextErrors:            map[string]error{},
	}
	w.startTime = w.env.Now()
	w.env.OnActivity(w.activityName("DecideDeployment"), mock.Anything, mock.Anything).
		Return(func(_ context.Context, in deployment.Input) (deployment.Decision, error) {
			defer w.lock()()
			if w.rolloutScript != nil && in.WorkflowID != "" {
				w.rolloutInputs = append(w.rolloutInputs, in)
				return w.rolloutScript[0], nil
			}
			w.decisionInputs, w.decisionTimes = append(
				w.decisionInputs,
				in,
			), append(
				w.decisionTimes,
				w.env.Now().Sub(w.startTime).Round(time.Second),
			)
			d := w.decisionScript[0]
			w.decisionScript = w.decisionScript[min(1, len(w.decisionScript)-1):]
			return d, w.nextError("DecideDeployment")
		})
	w.checkWriteTime = func(in kube.ReadInput) { workflowstest.AssertWorkflowTime(t, w.env, in) }
	for name, answer := range map[string]any{
		"FinalizeDeployment": mockWrite[kube.ReadInput](w, "FinalizeDeployment", "20"),
		"ReportDeployment":   mockWrite[deployment.Report](w, "ReportDeployment", "21"),
		"GrantReplacements":  mockWrite[kube.ReadInput](w, "GrantReplacements", deployment.GrantResult{Wrote: true}),
	} {
		w.env.OnActivity(w.activityName(name), mock.Anything, mock.Anything).Return(answer).Maybe()
	}
	return w
}

// activityName returns the name of an activity in this test environment.
func (w *deploymentTestEnv) activityName(name string) string {
	return cmp.Or(w.activityNameOverrides[name], name)
}

// recordSearchAttributes records the search attributes that a workflow sets. Call recordSearchAttributes after
// mockRollout.
func (w *deploymentTestEnv) recordSearchAttributes() {
	w.searchAttributes = map[string]any{}
	w.env.OnUpsertTypedSearchAttributes(mock.MatchedBy(func(attributes temporal.SearchAttributes) bool {
		for key, value := range attributes.GetUntypedValues() {
			w.searchAttributes[key.GetName()] = value
		}
		return true
	})).Return(nil).Maybe()
}

// mockWrites mocks the activities that change sets, machines and nodes. Each call lasts for the duration takes.
func (w *deploymentTestEnv) mockWrites(takes time.Duration) {
	sets, machines := kube.MinVersions{kube.SetsResource: "31"}, kube.MinVersions{kube.MachinesResource: "32"}
	for name, answer := range map[string]any{
		"CreateSet":          mockWrite[deployment.SetCreation](w, "CreateSet", sets),
		"ChangeSets":         mockWrite[deployment.SetChanges](w, "ChangeSets", sets),
		"MarkMachines":       mockWrite[deployment.MachineMarks](w, "MarkMachines", machines),
		"ChangeMachines":     mockWrite[deployment.MachineChanges](w, "ChangeMachines", machines),
		"ChangeNodes":        mockWrite[deployment.NodeChanges](w, "ChangeNodes", kube.MinVersions{kube.NodesResource: "33"}),
		"RollBackDeployment": mockWrite[deployment.RollbackInput](w, "RollBackDeployment", kube.MinVersions{kube.DeploymentsResource: "34"}),
	} {
		w.env.OnActivity(w.activityName(name), mock.Anything, mock.Anything).After(takes).Return(answer).Maybe()
	}
}

// mockWrite mocks an activity that writes an object, and records its calls.
func mockWrite[In, Out any](w *deploymentTestEnv, name string, out Out) func(context.Context, In) (Out, error) {
	return func(_ context.Context, in In) (Out, error) {
		defer w.lock()()
		w.activityLog, w.activityInputs = append(w.activityLog, w.activityName(name)), append(w.activityInputs, in)
		switch in := any(in).(type) {
		case kube.ReadInput:
			w.checkWriteTime(in)
		case deployment.Report:
			w.checkWriteTime(in.ReadInput)
		}
		return out, w.nextError(name)
	}
}

// nextError returns the error of the next call of an activity.
func (w *deploymentTestEnv) nextError(name string) error {
	err := w.nextErrors[name]
	if !w.failsBothActivities || err == nil {
		delete(w.nextErrors, name)
	}
	w.failsBothActivities = w.failsBothActivities && err == nil
	return err
}

// lock locks the test environment, because under load a local activity may still run after the workflow has cancelled
// the activity.
func (w *deploymentTestEnv) lock() (unlock func()) {
	w.mu.Lock()
	return w.mu.Unlock
}

func (w *deploymentTestEnv) logActivity(what string) {
	defer w.lock()()
	w.activityLog = append(w.activityLog, what)
}

// changeAfterDelay replaces the script after the duration d, and sends the signal of a change.
func (w *deploymentTestEnv) changeAfterDelay(d time.Duration, script ...deployment.Decision) {
	w.env.RegisterDelayedCallback(func() {
		unlock := w.lock()
		w.decisionScript = script
		unlock()
		workflowstest.SignalChange(w.env)
	}, d)
}

// runRollout runs a rollout to revision 7.
func (w *deploymentTestEnv) runRollout(t *testing.T) workflows.RolloutResult {
	w.env.ExecuteWorkflow(
		workflows.Rollout,
		workflows.RolloutInput{Input: run.Input{Ref: workflowstest.ObjectRef}, Revision: 7},
	)
	var result workflows.RolloutResult
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result
}

// conflictError returns the error of a write that conflicts with a write of another client.
func conflictError() error {
	return temporal.NewNonRetryableApplicationError("changed", kube.FailureTypeConflict, nil)
}

// resizeDecision returns a decision that changes the size of a set during the rollout to revision 7.
func resizeDecision(why string) deployment.Decision {
	return deployment.Decision{
		Pending: attention.Decision{Need: attention.NeedScaling, Why: why},
		Version: "4",
		Rollout: rollout.Decision{
			Rolling:  true,
			Revision: 7,
			Why:      why,
			SetChanges: rollout.SetChanges{
				Resize: []rollout.SetResize{{Name: "s-7", UID: "uid-7", Version: "3", From: 1, To: 2}},
			},
		},
	}
}

// waitDecision returns a decision for a rollout to revision 7 in which the rollout has nothing to do.
func waitDecision(holdBy string) deployment.Decision {
	return deployment.Decision{
		Pending: attention.Decision{Need: attention.NeedRollout, Why: "it waits"},
		Version: "4",
		Rollout: rollout.Decision{
			Rolling: true, Revision: 7, HoldBy: holdBy, Why: "it waits",
		},
	}
}

// completedRolloutDecision returns the decision of a deployment in which all machines have revision 7.
func completedRolloutDecision() deployment.Decision {
	return deployment.Decision{
		Pending: attention.Decision{Why: "all is there"},
		Version: "4",
		Rollout: rollout.Decision{Revision: 7, Complete: true, Why: "all is there"},
	}
}

// goneDeploymentDecision returns the decision for a deployment that no longer exists.
func goneDeploymentDecision() deployment.Decision {
	return deployment.Decision{Pending: attention.Decision{Why: "the object is gone"}, Gone: true}
}

// withChange applies change to a copy of the decision and returns the copy.
func withChange(d deployment.Decision, change func(*deployment.Decision)) deployment.Decision {
	change(&d)
	return d
}
