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

// deploymentWorld returns the scripted decisions of one deployment: each once, the last one repeatedly. It records the
// calls of activities in order.
type deploymentWorld struct {
	mu     sync.Mutex
	env    *testsuite.TestWorkflowEnvironment
	named  map[string]string // names of the activities, if they are not those of Millwright's own kinds
	begun  time.Time
	script []deployment.Decision
	// script of a rollout that runs beside the deployment's workflow; nil: there is one script
	beside  []deployment.Decision
	reads   []deployment.Input
	besides []deployment.Input // inputs of the decisions of that rollout
	looks   []time.Duration    // time of each decision
	log     []string           // other activities that ran
	orders  []any              // their inputs
	fails   map[string]error   // by activity: error of its next call
	both    bool               // the call after that fails, too: the regular activity after the local one
	timed   func(kube.Read)    // checks the time of a write of the deployment
	shown   map[string]any     // the last value of each search attribute, after a call of show
}

func newDeploymentWorld(t *testing.T, script ...deployment.Decision) *deploymentWorld {
	return newWorldOf(t, nil, script...)
}

func newWorldOf(t *testing.T, named map[string]string, script ...deployment.Decision) *deploymentWorld {
	w := &deploymentWorld{env: workflowstest.NewEnvironment(t), named: named, script: script, fails: map[string]error{}}
	w.begun = w.env.Now()
	w.env.OnActivity(w.name("DecideDeployment"), mock.Anything, mock.Anything).
		Return(func(_ context.Context, in deployment.Input) (deployment.Decision, error) {
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
	w.timed = func(in kube.Read) { workflowstest.Timed(t, w.env, in) }
	for name, answer := range map[string]any{
		"FinalizeDeployment": writes[kube.Read](w, "FinalizeDeployment", "20"),
		"ReportDeployment":   writes[deployment.Report](w, "ReportDeployment", "21"),
		"GrantReplacements":  writes[kube.Read](w, "GrantReplacements", deployment.Granted{Wrote: true}),
	} {
		w.env.OnActivity(w.name(name), mock.Anything, mock.Anything).Return(answer).Maybe()
	}
	return w
}

// name returns the name of an activity in this world.
func (w *deploymentWorld) name(name string) string { return cmp.Or(w.named[name], name) }

// show records the search attributes that a workflow sets. Call it after child.
func (w *deploymentWorld) show() {
	w.shown = map[string]any{}
	w.env.OnUpsertTypedSearchAttributes(mock.MatchedBy(func(attributes temporal.SearchAttributes) bool {
		for key, value := range attributes.GetUntypedValues() {
			w.shown[key.GetName()] = value
		}
		return true
	})).Return(nil).Maybe()
}

// answer mocks the activities that change sets, machines and nodes. Each takes that long.
func (w *deploymentWorld) answer(takes time.Duration) {
	sets, machines := kube.MinVersions{kube.SetsResource: "31"}, kube.MinVersions{kube.MachinesResource: "32"}
	for name, answer := range map[string]any{
		"CreateSet":          writes[deployment.SetCreation](w, "CreateSet", sets),
		"ChangeSets":         writes[deployment.SetChanges](w, "ChangeSets", sets),
		"MarkMachines":       writes[deployment.Marks](w, "MarkMachines", machines),
		"ChangeMachines":     writes[deployment.MachineChanges](w, "ChangeMachines", machines),
		"ChangeNodes":        writes[deployment.NodeChanges](w, "ChangeNodes", kube.MinVersions{kube.NodesResource: "33"}),
		"RollBackDeployment": writes[deployment.RollBack](w, "RollBackDeployment", kube.MinVersions{kube.DeploymentsResource: "34"}),
	} {
		w.env.OnActivity(w.name(name), mock.Anything, mock.Anything).After(takes).Return(answer).Maybe()
	}
}

// writes mocks an activity that changes something, and records its call.
func writes[In, Out any](w *deploymentWorld, name string, out Out) func(context.Context, In) (Out, error) {
	return func(_ context.Context, in In) (Out, error) {
		defer w.lock()()
		w.log, w.orders = append(w.log, w.name(name)), append(w.orders, in)
		switch in := any(in).(type) {
		case kube.Read:
			w.timed(in)
		case deployment.Report:
			w.timed(in.Read)
		}
		return out, w.failure(name)
	}
}

// failure returns the error of the next call of an activity.
func (w *deploymentWorld) failure(name string) error {
	err := w.fails[name]
	if !w.both || err == nil {
		delete(w.fails, name)
	}
	w.both = w.both && err == nil
	return err
}

// lock guards the world, as the one of a machine.
func (w *deploymentWorld) lock() (unlock func()) {
	w.mu.Lock()
	return w.mu.Unlock
}

func (w *deploymentWorld) note(what string) {
	defer w.lock()()
	w.log = append(w.log, what)
}

// after changes the script after a time, and signals the change.
func (w *deploymentWorld) after(d time.Duration, script ...deployment.Decision) {
	w.env.RegisterDelayedCallback(func() {
		unlock := w.lock()
		w.script = script
		unlock()
		workflowstest.Changed(w.env)
	}, d)
}

// rollOut runs a rollout to revision 7.
func (w *deploymentWorld) rollOut(t *testing.T) workflows.RolloutResult {
	w.env.ExecuteWorkflow(workflows.Rollout, workflows.RolloutInput{Input: run.Input{Ref: workflowstest.Ref}, Revision: 7})
	var result workflows.RolloutResult
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result
}

// conflicting returns the error of a write when another writer was faster.
func conflicting() error {
	return temporal.NewNonRetryableApplicationError("changed", kube.TypeConflict, nil)
}

// moving is a step that changes the size of a set on the way to revision 7.
func moving(why string) deployment.Decision {
	return deployment.Decision{
		Pending: attention.Decision{Need: attention.Scale, Why: why},
		Version: "4",
		Rollout: rollout.Decision{
			Rolling:    true,
			Revision:   7,
			Why:        why,
			SetChanges: rollout.SetChanges{Resize: []rollout.Resize{{Name: "s-7", UID: "uid-7", Version: "3", From: 1, To: 2}}},
		},
	}
}

// awaiting is a rollout to revision 7 that has nothing to do.
func awaiting(holdBy string) deployment.Decision {
	return deployment.Decision{
		Pending: attention.Decision{Need: attention.Rollout, Why: "it waits"},
		Version: "4",
		Rollout: rollout.Decision{
			Rolling: true, Revision: 7, HoldBy: holdBy, Why: "it waits",
		},
	}
}

// complete is a deployment whose machines are all of revision 7.
func complete() deployment.Decision {
	return deployment.Decision{
		Pending: attention.Decision{Why: "all is there"},
		Version: "4",
		Rollout: rollout.Decision{Revision: 7, Complete: true, Why: "all is there"},
	}
}

// gone is a deployment that does not exist any more.
func gone() deployment.Decision {
	return deployment.Decision{Pending: attention.Decision{Why: "the object is gone"}, Gone: true}
}

// with returns a decision with something changed.
func with(d deployment.Decision, change func(*deployment.Decision)) deployment.Decision {
	change(&d)
	return d
}
