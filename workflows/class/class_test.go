package class_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"millwright/activities/class"
	"millwright/activities/kube"
	"millwright/decide/attention"
	workflows "millwright/workflows/class"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

// classTestEnv has a class, its Secret, and the activities that write the finalizers of both. classTestEnv records the
// activity calls.
type classTestEnv struct {
	env                 *testsuite.TestWorkflowEnvironment
	facts               attention.ClassFacts
	isMachineCacheEmpty bool // if true, a cached read returns no machine
	isClassGone         bool
	decisionInputs      []kube.ReadInput
	activityLog         []string

	finalizeClass   func() (string, error)
	finalizeSecrets func(class.SecretChanges) (kube.MinVersions, error)
}

func newClassTestEnv(t *testing.T) *classTestEnv {
	w := &classTestEnv{env: workflowstest.NewEnvironment(t)}
	w.env.OnActivity("DecideClass", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in kube.ReadInput) (class.Decision, error) {
			w.decisionInputs = append(w.decisionInputs, in)
			w.logActivity(map[bool]string{true: "decide live", false: "decide"}[in.Live])
			return w.decideClass(in.Live), nil
		})
	w.env.OnActivity("FinalizeClass", mock.Anything, mock.Anything).
		Return(func(context.Context, kube.ReadInput) (string, error) {
			return w.finalizeClass()
		})
	w.env.OnActivity("FinalizeSecrets", mock.Anything, mock.Anything).
		Return(func(_ context.Context, in class.SecretChanges) (kube.MinVersions, error) {
			return w.finalizeSecrets(in)
		})
	w.finalizeClass = func() (string, error) {
		if w.facts.Deleting {
			w.logActivity("release class")
			w.isClassGone = true
		} else {
			w.logActivity("guard class")
			w.facts.HasFinalizer = true
		}
		return "50", nil
	}
	w.finalizeSecrets = func(in class.SecretChanges) (kube.MinVersions, error) {
		for _, s := range in.Secrets {
			w.logActivity(s.Name)
		}
		w.facts.UnguardedSecretCount, w.facts.UnusedSecretCount = 0, 0
		return kube.MinVersions{class.SecretsResource: "60"}, nil
	}
	return w
}

func (w *classTestEnv) logActivity(what string) { w.activityLog = append(w.activityLog, what) }

func (w *classTestEnv) decideClass(live bool) class.Decision {
	if w.isClassGone {
		return class.Decision{Gone: true, Why: "the object is gone"}
	}
	f := w.facts
	if w.isMachineCacheEmpty && !live {
		f.MachineCount = 0
	}
	need := attention.DecideClass(f)
	d := class.Decision{
		Need: need.Need, Why: need.Why,
		Prepare: !f.HasFinalizer && !f.Deleting,
		Release: f.Deleting && f.HasFinalizer && f.MachineCount == 0 && f.UnusedSecretCount == 0,
		Seen:    kube.MinVersions{class.ClassesResource: "40"},
	}
	if f.UnguardedSecretCount > 0 {
		d.Guard = []class.SecretTarget{{Name: "guard secret"}}
	}
	if f.UnusedSecretCount > 0 {
		d.Unguard = []class.SecretTarget{{Name: "release secret"}}
	}
	return d
}

// changeAfterDelay calls change after the duration d, and sends the signal of a change.
func (w *classTestEnv) changeAfterDelay(d time.Duration, change func()) {
	w.env.RegisterDelayedCallback(func() {
		w.logActivity("signal")
		change()
		workflowstest.SignalChange(w.env)
	}, d)
}

func (w *classTestEnv) runClass(t *testing.T, in run.Input) run.Result {
	w.env.ExecuteWorkflow(workflows.MachineClass, in)
	var result run.Result
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result
}

func TestMachineClassGetsItsFinalizerBeforeItsSecretDoes(t *testing.T) {
	w := newClassTestEnv(t)
	w.facts = attention.ClassFacts{UnguardedSecretCount: 1}
	start := w.env.Now()
	result := w.runClass(
		t,
		run.Input{Ref: workflowstest.ObjectRef, Versions: kube.MinVersions{class.ClassesResource: "7"}},
	)
	require.Equal(t, run.Result{Outcome: run.OutcomeCalm, Why: "its finalizers are in place"}, result)
	require.Equal(t, []string{"decide live", "guard class", "decide", "guard secret", "decide"}, w.activityLog)
	require.Equal(t, kube.MinVersions{class.ClassesResource: "7"}, w.decisionInputs[0].Versions, "what woke it")
	require.Equal(
		t,
		kube.MinVersions{class.ClassesResource: "50", class.SecretsResource: "60"},
		w.decisionInputs[2].Versions,
		"what it wrote",
	)
	require.Equal(t, time.Second, w.env.Now().Sub(start), "a calm run that has done something waits before it ends")
}

func TestMachineClassWaitsForItsMachines(t *testing.T) {
	w := newClassTestEnv(t)
	w.facts = attention.ClassFacts{Deleting: true, HasFinalizer: true, MachineCount: 2}
	var shown []string
	w.changeAfterDelay(
		time.Minute,
		func() { shown = append(shown, workflowstest.CurrentDetails(t, w.env)); w.facts.MachineCount = 1 },
	)
	w.changeAfterDelay(time.Hour, func() { w.facts.MachineCount, w.facts.UnusedSecretCount = 0, 1 })
	require.Equal(t, run.OutcomeGone, w.runClass(t, run.Input{Ref: workflowstest.ObjectRef}).Outcome)
	require.Equal(t, []string{
		"decide live", "signal", "decide", "signal",
		"decide", "decide live", "release secret",
		"decide", "decide live", "release class", "decide",
	}, w.activityLog, "its Secret goes before it does, and each is let go after a look at the API server")
	require.Equal(t, []string{"**await-machines**: deletion was asked for; 2 machines refer to it"}, shown)
}

// A class must not lose its finalizer only because a machine is missing in the cache.
func TestMachineClassRemovesFinalizersOnlyAfterALiveRead(t *testing.T) {
	w := newClassTestEnv(t)
	w.facts, w.isMachineCacheEmpty = attention.ClassFacts{Deleting: true, HasFinalizer: true, MachineCount: 1}, true
	w.changeAfterDelay(time.Minute, func() {})
	w.changeAfterDelay(time.Hour, func() { w.facts.MachineCount = 0 })
	w.runClass(t, run.Input{Ref: workflowstest.ObjectRef})
	require.Equal(
		t,
		[]string{
			"decide live",
			"signal",
			"decide",
			"decide live",
			"signal",
			"decide",
			"decide live",
			"release class",
			"decide",
		},
		w.activityLog,
	)
}

func TestEditedMachineClassReleasesItsFormerSecret(t *testing.T) {
	w := newClassTestEnv(t)
	w.facts = attention.ClassFacts{HasFinalizer: true, UnguardedSecretCount: 1, UnusedSecretCount: 1}
	require.Equal(t, run.OutcomeCalm, w.runClass(t, run.Input{Ref: workflowstest.ObjectRef, Continued: true}).Outcome)
	require.Equal(t, []string{"decide", "decide live", "guard secret", "release secret", "decide"}, w.activityLog)
}

func TestMachineClassReadsLiveAfterAConflict(t *testing.T) {
	w := newClassTestEnv(t)
	w.facts = attention.ClassFacts{HasFinalizer: true, UnguardedSecretCount: 1}
	write := w.finalizeSecrets
	w.finalizeSecrets = func(class.SecretChanges) (kube.MinVersions, error) {
		w.finalizeSecrets = write
		return nil, temporal.NewNonRetryableApplicationError("changed", kube.FailureTypeConflict, nil)
	}
	w.runClass(t, run.Input{Ref: workflowstest.ObjectRef, Continued: true})
	require.Equal(t, []string{"decide", "decide live", "guard secret", "decide"}, w.activityLog)
}

// A deleted Secret has no version to wait for, and the cache may still contain the Secret.
func TestMachineClassReadsLiveWhenItsSecretIsGone(t *testing.T) {
	w := newClassTestEnv(t)
	w.facts = attention.ClassFacts{HasFinalizer: true, UnguardedSecretCount: 1}
	w.finalizeSecrets = func(class.SecretChanges) (kube.MinVersions, error) {
		w.facts.UnguardedSecretCount = 0
		return kube.MinVersions{}, nil
	}
	w.runClass(t, run.Input{Ref: workflowstest.ObjectRef, Continued: true})
	require.Equal(t, []string{"decide", "decide live"}, w.activityLog)
}

func TestMachineClassThatIsGoneEndsAtOnce(t *testing.T) {
	w := newClassTestEnv(t)
	w.isClassGone = true
	require.Equal(t, run.OutcomeGone, w.runClass(t, run.Input{Ref: workflowstest.ObjectRef}).Outcome)
	require.Equal(t, []string{"decide live"}, w.activityLog)
}

func TestMachineClassThatIsDeletedDuringAWriteEndsAsGone(t *testing.T) {
	w := newClassTestEnv(t)
	w.finalizeClass = func() (string, error) {
		w.isClassGone = true
		return "", temporal.NewNonRetryableApplicationError("gone", kube.FailureTypeObjectGone, nil)
	}
	require.Equal(
		t,
		run.Result{Outcome: run.OutcomeGone, Why: "the object is gone"},
		w.runClass(t, run.Input{Ref: workflowstest.ObjectRef}),
	)
}

func TestMachineClassRetriesARefusedSecretWrite(t *testing.T) {
	w := newClassTestEnv(t)
	w.facts = attention.ClassFacts{HasFinalizer: true, UnguardedSecretCount: 1}
	attempts := 0
	w.finalizeSecrets = func(class.SecretChanges) (kube.MinVersions, error) {
		if attempts++; attempts > 1 {
			w.isClassGone = true
		}
		return nil, temporal.NewNonRetryableApplicationError("refused", kube.FailureTypeRefused, nil)
	}
	w.runClass(t, run.Input{Ref: workflowstest.ObjectRef})
	require.Equal(t, 2, attempts)
}
