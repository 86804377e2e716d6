package workflows_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/workflows"
)

// classWorld is a class with one Secret, and the activities that keep their finalizers. It notes what is asked of it.
type classWorld struct {
	env    *testsuite.TestWorkflowEnvironment
	facts  attention.ClassFacts
	behind bool // what is not read live shows no machine
	gone   bool
	reads  []activities.Read
	log    []string

	finalizeClass   func() (string, error)
	finalizeSecrets func(activities.SecretChanges) (activities.Gate, error)
}

func newClassWorld(t *testing.T) *classWorld {
	w := &classWorld{env: newEnvironment(t)}
	w.env.OnActivity("DecideClass", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.Read) (activities.ClassDecision, error) {
		w.reads = append(w.reads, in)
		w.note(map[bool]string{true: "decide live", false: "decide"}[in.Live])
		return w.decide(in.Live), nil
	})
	w.env.OnActivity("FinalizeClass", mock.Anything, mock.Anything).Return(func(context.Context, activities.Read) (string, error) {
		return w.finalizeClass()
	})
	w.env.OnActivity("FinalizeSecrets", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.SecretChanges) (activities.Gate, error) {
		return w.finalizeSecrets(in)
	})
	w.finalizeClass = func() (string, error) {
		if w.facts.Deleting {
			w.note("release class")
			w.gone = true
		} else {
			w.note("guard class")
			w.facts.Finalizer = true
		}
		return "50", nil
	}
	w.finalizeSecrets = func(in activities.SecretChanges) (activities.Gate, error) {
		for _, s := range in.Secrets {
			w.note(s.Name)
		}
		w.facts.Unguarded, w.facts.Unused = 0, 0
		return activities.Gate{activities.SecretsResource: "60"}, nil
	}
	return w
}

func (w *classWorld) note(what string) { w.log = append(w.log, what) }

func (w *classWorld) decide(live bool) activities.ClassDecision {
	if w.gone {
		return activities.ClassDecision{Gone: true, Why: "the object is gone"}
	}
	f := w.facts
	if w.behind && !live {
		f.Machines = 0
	}
	need := attention.Class(f)
	d := activities.ClassDecision{
		Need: need.Need, Why: need.Why,
		Prepare: !f.Finalizer && !f.Deleting,
		Release: f.Deleting && f.Finalizer && f.Machines == 0 && f.Unused == 0,
		Seen:    activities.Gate{activities.ClassesResource: "40"},
	}
	if f.Unguarded > 0 {
		d.Guard = []activities.SecretTarget{{Name: "guard secret"}}
	}
	if f.Unused > 0 {
		d.Unguard = []activities.SecretTarget{{Name: "release secret"}}
	}
	return d
}

// after changes the world once time has passed, and signals that it did.
func (w *classWorld) after(d time.Duration, change func()) {
	w.env.RegisterDelayedCallback(func() {
		w.note("signal")
		change()
		changed(w.env)
	}, d)
}

func (w *classWorld) run(t *testing.T, in workflows.Input) workflows.Result {
	w.env.ExecuteWorkflow(workflows.MachineClass, in)
	var result workflows.Result
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result
}

func TestU170_MachineClassGetsItsFinalizerBeforeItsSecretDoes(t *testing.T) {
	w := newClassWorld(t)
	w.facts = attention.ClassFacts{Unguarded: 1}
	start := w.env.Now()
	result := w.run(t, workflows.Input{Ref: ref, Gate: activities.Gate{activities.ClassesResource: "7"}})
	require.Equal(t, workflows.Result{Outcome: workflows.OutcomeCalm, Why: "its finalizers are in place"}, result)
	require.Equal(t, []string{"decide live", "guard class", "decide", "guard secret", "decide"}, w.log)
	require.Equal(t, activities.Gate{activities.ClassesResource: "7"}, w.reads[0].Gate, "what woke it")
	require.Equal(t, activities.Gate{activities.ClassesResource: "50", activities.SecretsResource: "60"}, w.reads[2].Gate, "what it wrote")
	require.Equal(t, 20*time.Second, w.env.Now().Sub(start), "the linger")
}

func TestN11_MachineClassWaitsForItsMachines(t *testing.T) {
	w := newClassWorld(t)
	w.facts = attention.ClassFacts{Deleting: true, Finalizer: true, Machines: 2}
	var shown []string
	w.after(time.Minute, func() { shown = append(shown, shows(t, w.env)); w.facts.Machines = 1 })
	w.after(time.Hour, func() { w.facts.Machines, w.facts.Unused = 0, 1 })
	require.Equal(t, workflows.OutcomeGone, w.run(t, workflows.Input{Ref: ref}).Outcome)
	require.Equal(t, []string{
		"decide live", "signal", "decide", "signal",
		"decide", "decide live", "release secret",
		"decide", "decide live", "release class", "decide",
	}, w.log, "its Secret goes before it does, and each is let go after a look at the API server")
	require.Equal(t, []string{"**await-machines**: deletion was asked for; 2 machines refer to it"}, shown)
}

// shows returns what people read of the workflow, without since when.
func shows(t *testing.T, env *testsuite.TestWorkflowEnvironment) string {
	t.Helper()
	value, err := env.QueryWorkflow("__temporal_workflow_metadata")
	require.NoError(t, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(t, value.Get(&metadata))
	step, _, _ := strings.Cut(metadata.CurrentDetails, " since")
	_, why, _ := strings.Cut(metadata.CurrentDetails, "\n\n")
	return step + ": " + why
}

// A cache that does not show a machine yet must not cost it its class.
func TestMachineClassLetsNothingGoForWhatACacheSays(t *testing.T) {
	w := newClassWorld(t)
	w.facts, w.behind = attention.ClassFacts{Deleting: true, Finalizer: true, Machines: 1}, true
	w.after(time.Minute, func() {})
	w.after(time.Hour, func() { w.facts.Machines = 0 })
	w.run(t, workflows.Input{Ref: ref})
	require.Equal(t, []string{"decide live", "signal", "decide", "decide live", "signal", "decide", "decide live", "release class", "decide"}, w.log)
}

func TestU170_MachineClassThatIsEditedLetsItsFormerSecretGo(t *testing.T) {
	w := newClassWorld(t)
	w.facts = attention.ClassFacts{Finalizer: true}
	w.after(5*time.Second, func() { w.facts.Unguarded, w.facts.Unused = 1, 1 })
	require.Equal(t, workflows.OutcomeCalm, w.run(t, workflows.Input{Ref: ref}).Outcome)
	require.Equal(t, []string{"decide live", "signal", "decide", "decide live", "guard secret", "release secret", "decide"}, w.log)
}

func TestMachineClassLooksAgainAfterAConflict(t *testing.T) {
	w := newClassWorld(t)
	w.facts = attention.ClassFacts{Finalizer: true, Unguarded: 1}
	write := w.finalizeSecrets
	w.finalizeSecrets = func(activities.SecretChanges) (activities.Gate, error) {
		w.finalizeSecrets = write
		return nil, temporal.NewNonRetryableApplicationError("changed", activities.TypeConflict, nil)
	}
	w.run(t, workflows.Input{Ref: ref, Continued: true})
	require.Equal(t, []string{"decide", "decide live", "guard secret", "decide"}, w.log)
}

// A Secret that is gone tells no version to wait for: the cache may still show it.
func TestMachineClassReadsLiveWhenItsSecretIsGone(t *testing.T) {
	w := newClassWorld(t)
	w.facts = attention.ClassFacts{Finalizer: true, Unguarded: 1}
	w.finalizeSecrets = func(activities.SecretChanges) (activities.Gate, error) {
		w.facts.Unguarded = 0
		return activities.Gate{}, nil
	}
	w.run(t, workflows.Input{Ref: ref, Continued: true})
	require.Equal(t, []string{"decide", "decide live"}, w.log)
}

func TestMachineClassThatIsGoneEndsAtOnce(t *testing.T) {
	w := newClassWorld(t)
	w.gone = true
	require.Equal(t, workflows.OutcomeGone, w.run(t, workflows.Input{Ref: ref}).Outcome)
	require.Equal(t, []string{"decide live"}, w.log)
}

func TestMachineClassThatVanishesWhileItIsWritten(t *testing.T) {
	w := newClassWorld(t)
	w.finalizeClass = func() (string, error) {
		return "", temporal.NewNonRetryableApplicationError("gone", activities.TypeObjectGone, nil)
	}
	require.Equal(t, workflows.Result{Outcome: workflows.OutcomeGone, Why: "the object is gone"}, w.run(t, workflows.Input{Ref: ref}))
}

func TestMachineClassFailsWhenItsSecretIsRefused(t *testing.T) {
	w := newClassWorld(t)
	w.facts = attention.ClassFacts{Finalizer: true, Unguarded: 1}
	w.finalizeSecrets = func(activities.SecretChanges) (activities.Gate, error) {
		return nil, temporal.NewNonRetryableApplicationError("refused", activities.TypeRefused, nil)
	}
	w.env.ExecuteWorkflow(workflows.MachineClass, workflows.Input{Ref: ref})
	require.ErrorContains(t, w.env.GetWorkflowError(), "refused", "the resync tries again each minute")
}

func TestMachineClassContinuesAsNew(t *testing.T) {
	w := newClassWorld(t)
	w.facts = attention.ClassFacts{Deleting: true, Finalizer: true, Machines: 1}
	w.after(time.Minute, func() { w.env.SetContinueAsNewSuggested(true) })
	w.env.ExecuteWorkflow(workflows.MachineClass, workflows.Input{Ref: ref})
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, w.env.GetWorkflowError(), &again)
	require.Equal(t, "MachineClass", again.WorkflowType.Name)
	var in workflows.Input
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &in))
	require.Equal(t, workflows.Input{Ref: ref, Gate: activities.Gate{activities.ClassesResource: "40"}, Continued: true}, in)
}
