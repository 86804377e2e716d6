package workflows_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/workflows"
)

// deploymentWorld plays the decisions of one deployment: each once, and the last one again and again. It notes what was asked of
// it, in order.
type deploymentWorld struct {
	mu      sync.Mutex
	env     *testsuite.TestWorkflowEnvironment
	begun   time.Time
	script  []activities.DeploymentDecision
	beside  []activities.DeploymentDecision // the same for a rollout that is open beside the deployment's workflow; nil: there is one script
	reads   []activities.DeploymentRead
	besides []activities.DeploymentRead // those of that rollout
	looks   []time.Duration             // when each decision was made
	log     []string                    // the activities that ran besides
	orders  []any                       // what each of them was given
	fails   map[string]error            // how the next call of an activity ends
	both    bool                        // so ends the one after it, too: what was tried as a local activity is tried as a regular one
	shown   map[string]any              // the last value of each search attribute, after show
}

func newDeploymentWorld(t *testing.T, script ...activities.DeploymentDecision) *deploymentWorld {
	w := &deploymentWorld{env: newEnvironment(t), script: script, fails: map[string]error{}}
	w.begun = w.env.Now()
	w.env.OnActivity("DecideDeployment", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.DeploymentRead) (activities.DeploymentDecision, error) {
		defer w.lock()()
		if w.beside != nil && in.WorkflowID != "" {
			w.besides = append(w.besides, in)
			return w.beside[0], nil
		}
		w.reads, w.looks = append(w.reads, in), append(w.looks, w.env.Now().Sub(w.begun).Round(time.Second))
		d := w.script[0]
		w.script = w.script[min(1, len(w.script)-1):]
		return d, w.failure("DecideDeployment")
	})
	for name, answer := range map[string]any{
		"FinalizeDeployment": writes[activities.Read](w, "FinalizeDeployment", "20"),
		"ReportDeployment":   writes[activities.DeploymentReport](w, "ReportDeployment", "21"),
		"GrantReplacements":  writes[activities.Read](w, "GrantReplacements", activities.Granted{Wrote: true}),
	} {
		w.env.OnActivity(name, mock.Anything, mock.Anything).Return(answer).Maybe()
	}
	return w
}

// show keeps the search attributes that a workflow shows. No child can be given after it.
func (w *deploymentWorld) show() {
	w.shown = map[string]any{}
	w.env.OnUpsertTypedSearchAttributes(mock.MatchedBy(func(attributes temporal.SearchAttributes) bool {
		for key, value := range attributes.GetUntypedValues() {
			w.shown[key.GetName()] = value
		}
		return true
	})).Return(nil).Maybe()
}

// answer makes the world answer the activities that change what is below a deployment. Each takes so long.
func (w *deploymentWorld) answer(takes time.Duration) {
	sets, machines := activities.Gate{activities.SetsResource: "31"}, activities.Gate{activities.MachinesResource: "32"}
	for name, answer := range map[string]any{
		"CreateSet":          writes[activities.SetCreation](w, "CreateSet", sets),
		"ChangeSets":         writes[activities.SetChanges](w, "ChangeSets", sets),
		"MarkMachines":       writes[activities.Marks](w, "MarkMachines", machines),
		"ChangeMachines":     writes[activities.MachineChanges](w, "ChangeMachines", machines),
		"ChangeNodes":        writes[activities.NodeChanges](w, "ChangeNodes", activities.Gate{activities.NodesResource: "33"}),
		"RollBackDeployment": writes[activities.RollBack](w, "RollBackDeployment", activities.Gate{activities.DeploymentsResource: "34"}),
	} {
		w.env.OnActivity(name, mock.Anything, mock.Anything).After(takes).Return(answer).Maybe()
	}
}

// writes is an activity that changes something, and is noted.
func writes[In, Out any](w *deploymentWorld, name string, out Out) func(context.Context, In) (Out, error) {
	return func(_ context.Context, in In) (Out, error) {
		defer w.lock()()
		w.log, w.orders = append(w.log, name), append(w.orders, in)
		return out, w.failure(name)
	}
}

// failure is how the next call of an activity ends.
func (w *deploymentWorld) failure(name string) error {
	err := w.fails[name]
	if !w.both || err == nil {
		delete(w.fails, name)
	}
	w.both = w.both && err == nil
	return err
}

// lock guards the world, as that of a machine.
func (w *deploymentWorld) lock() (unlock func()) {
	w.mu.Lock()
	return w.mu.Unlock
}

func (w *deploymentWorld) note(what string) {
	defer w.lock()()
	w.log = append(w.log, what)
}

// after changes what is decided once time has passed, and signals that something changed.
func (w *deploymentWorld) after(d time.Duration, script ...activities.DeploymentDecision) {
	w.env.RegisterDelayedCallback(func() {
		unlock := w.lock()
		w.script = script
		unlock()
		changed(w.env)
	}, d)
}

// rollOut runs a rollout to revision 7.
func (w *deploymentWorld) rollOut(t *testing.T) workflows.RolloutResult {
	w.env.ExecuteWorkflow(workflows.Rollout, workflows.RolloutInput{Input: workflows.Input{Ref: ref}, Revision: 7})
	var result workflows.RolloutResult
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result
}

// conflicting is how a write ends when another writer was faster.
func conflicting() error {
	return temporal.NewNonRetryableApplicationError("changed", activities.TypeConflict, nil)
}

// moving is a step that changes the size of a set on the way to revision 7.
func moving(why string) activities.DeploymentDecision {
	return activities.DeploymentDecision{Need: attention.Scale, Version: "4", Why: why, Decision: rollout.Decision{
		Rolling: true, Revision: 7, Why: why, Resize: []rollout.Resize{{Name: "s-7", UID: "uid-7", Version: "3", From: 1, To: 2}},
	}}
}

// awaiting is a rollout to revision 7 that has nothing to do.
func awaiting(holdBy string) activities.DeploymentDecision {
	return activities.DeploymentDecision{Need: attention.Rollout, Version: "4", Why: "it waits", Decision: rollout.Decision{
		Rolling: true, Revision: 7, HoldBy: holdBy, Why: "it waits",
	}}
}

// complete is a deployment whose machines are all of revision 7.
func complete() activities.DeploymentDecision {
	return activities.DeploymentDecision{Version: "4", Why: "all is there", Decision: rollout.Decision{Revision: 7, Complete: true, Why: "all is there"}}
}

// gone is a deployment that does not exist any more.
func gone() activities.DeploymentDecision {
	return activities.DeploymentDecision{Gone: true, Why: "the object is gone"}
}

// with returns a decision with something changed.
func with(d activities.DeploymentDecision, change func(*activities.DeploymentDecision)) activities.DeploymentDecision {
	change(&d)
	return d
}
