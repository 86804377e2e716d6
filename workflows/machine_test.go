package workflows_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
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
	"millwright/decide/deletion"
	"millwright/decide/health"
	"millwright/workflows"
)

var ref = activities.Ref{Namespace: "default", Name: "m-1", UID: "uid-1"}

// world answers the activities of one machine and notes what was asked of it, in order.
type world struct {
	mu        sync.Mutex
	env       *testsuite.TestWorkflowEnvironment
	decision  activities.MachineDecision // what DecideMachine says
	there     *health.Verdict            // what DecideMade says of the node: nil while there is none
	log       []string
	reports   []activities.MachineReport
	calls     []activities.InstanceCall
	create    func(ctx context.Context, in activities.InstanceCall) (activities.InstanceAnswer, error)
	reported  func(activities.MachineReport) // called with each report, when it is not nil
	attempts  []string
	occupied  bool  // pods are left on the node
	noToken   error // of IssueToken
	synced    activities.Gate
	stale     string
	gone      bool // the instance
	failedAt  time.Time
	deletion  activities.InstanceAnswer
	decidedAt time.Time // of the workflow, at the last decision
	overAt    time.Time // when a preservation is over

	going deletion.Facts // of its deletion
	load  activities.NodeLoad
	drain workflows.DrainResult

	drained func() // called when a drain has ended, when it is not nil

	cancelled  bool   // somebody cancels the drain
	away       bool   // the target cluster does not answer
	attached   bool   // a volume does not leave the node
	unrecorded string // instance that the provider knows, and the object does not
}

// decide says what DecideMachine would: a creation whose time is over has failed.
func (w *world) decide(at time.Time, done deletion.Stage) activities.MachineDecision {
	w.decidedAt = at
	d := w.decision
	if d.Need == attention.Deletion {
		facts := w.going
		facts.Done, facts.NodeName = done, d.NodeName
		step := deletion.Next(facts)
		d.Deletion = &step
	}
	if (d.Need == attention.Kept || d.Need == attention.Emptying) && !w.overAt.IsZero() && !at.Before(w.overAt) {
		d.Need = attention.Preserve
	}
	creating := d.Need == attention.Instance || d.Need == attention.Node || (d.Need == attention.Sync && d.Otherwise == attention.Node)
	if creating && d.Problem == nil && !at.Before(d.CreateBy) {
		w.failedAt = at
		d.Health = &health.Verdict{Change: &health.Change{Phase: "Failed", Operation: "Create", State: "Failed", Message: "too late"}}
	}
	return d
}

func newWorld(t *testing.T) *world {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(10 * time.Second)
	env.RegisterActivity(&activities.Activities{})
	env.RegisterActivity(&activities.Provider{})
	w := &world{env: env, decision: activities.MachineDecision{
		Need: attention.Instance, Why: "new", Class: "small", Provider: "virtual", NeverTried: true, Target: true, Token: true, CreateBy: env.Now().Add(20 * time.Minute),
	}}
	any1 := []any{mock.Anything, mock.Anything}
	env.OnActivity("DecideMachine", any1...).Return(func(_ context.Context, in activities.Read) (activities.MachineDecision, error) {
		defer w.lock()()
		w.note("decide")
		return w.decide(in.At, in.Done), nil
	})
	env.OnActivity("DecideMade", any1...).Return(func(context.Context, activities.MachineReport) (activities.MachineDecision, error) {
		defer w.lock()()
		d := w.decision
		d.Health = w.there
		return d, nil
	})
	env.OnActivity("IssueToken", any1...).Return(func(_ context.Context, in activities.TokenRequest) (activities.TokenRef, error) {
		defer w.lock()()
		w.note("token")
		w.attempts = append(w.attempts, in.Attempt)
		return activities.TokenRef{Namespace: "kube-system", Name: "bootstrap-token-1"}, w.noToken
	})
	env.OnActivity("FinishJoin", any1...).Return(w.written("finish"))
	env.OnActivity("SyncNode", any1...).Return(func(context.Context, activities.Read) (activities.Gate, error) {
		defer w.lock()()
		w.note("sync")
		return w.synced, nil
	})
	env.OnActivity("InstanceStatus", any1...).Return(func(context.Context, activities.InstanceCall) (activities.InstanceAnswer, error) {
		defer w.lock()()
		w.note("look")
		return activities.InstanceAnswer{Gone: w.gone, ProviderID: w.unrecorded, NodeName: strings.TrimPrefix(w.unrecorded, "virtual:///")}, nil
	})
	env.OnActivity("PrepareMachine", any1...).Return(func(context.Context, activities.Read) (string, error) {
		defer w.lock()()
		w.note("prepare")
		w.decision.Prepare = false
		return "2", nil
	})
	env.OnActivity("BeginCreation", any1...).Return(func(context.Context, activities.MachineReport) (activities.Begun, error) {
		defer w.lock()()
		w.note("begin")
		never := w.decision.NeverTried
		w.decision.NeverTried = false
		return activities.Begun{Version: "2", NeverTried: never}, nil
	})
	env.OnActivity("CreateInstance", any1...).Return(func(ctx context.Context, in activities.InstanceCall) (activities.InstanceAnswer, error) {
		defer w.lock()()
		w.note("create")
		w.calls = append(w.calls, in)
		return w.create(ctx, in)
	})
	env.OnActivity("RecordInstance", any1...).Return(func(_ context.Context, in activities.Recorded) (activities.Record, error) {
		defer w.lock()()
		w.note("record " + in.ProviderID)
		if w.stale == "" {
			w.decision.ProviderID, w.decision.NodeName = in.ProviderID, in.NodeName
		}
		return activities.Record{Version: "3", Stale: w.stale}, nil
	})
	env.OnActivity("InitializeInstance", any1...).Return(func(_ context.Context, in activities.InstanceCall) (activities.InstanceAnswer, error) {
		defer w.lock()()
		w.note("initialise " + in.ProviderID)
		return activities.InstanceAnswer{ProviderID: in.ProviderID, NodeName: in.NodeName}, nil
	})
	env.OnActivity("ReportMachine", any1...).Return(func(_ context.Context, in activities.MachineReport) (string, error) {
		defer w.lock()()
		w.reports = append(w.reports, in)
		w.note("report " + in.Phase)
		switch in.Phase {
		case "Pending":
			w.decision.Need, w.decision.Phase = attention.Node, in.Phase
		case "Running", "Failed", "Available":
			w.decision.Need, w.decision.Phase, w.decision.Health = attention.Nothing, in.Phase, nil
		}
		if in.Phase == "Failed" && w.failedAt.IsZero() {
			w.failedAt = w.decidedAt
		}
		if in.Deletion != nil {
			w.going.Recorded = deletion.Later(w.going.Recorded, in.Deletion.Stage)
			if in.Deletion.Result != "" {
				w.going.Result = in.Deletion.Result
			}
		}
		if w.reported != nil {
			w.reported(in)
		}
		return "4", nil
	})
	env.OnActivity("DeleteInstance", any1...).Return(func(_ context.Context, in activities.InstanceCall) (activities.InstanceAnswer, error) {
		defer w.lock()()
		w.note("delete " + in.ProviderID)
		w.calls = append(w.calls, in)
		return w.deletion, nil
	})
	env.OnActivity("AnnounceTermination", any1...).Return(func(context.Context, activities.Read) (activities.Gate, error) {
		defer w.lock()()
		w.note("announce")
		if w.away {
			return nil, errors.New("dial tcp: connection refused")
		}
		return activities.Gate{activities.NodesResource: "7"}, nil
	})
	env.OnActivity("WeighNode", any1...).Return(func(context.Context, activities.Read) (activities.NodeLoad, error) {
		defer w.lock()()
		w.note("weigh")
		if w.away {
			return activities.NodeLoad{}, errors.New("dial tcp: connection refused")
		}
		return w.load, nil
	})
	env.OnActivity("HoldDrain", any1...).Return(func(_ context.Context, in activities.Holding) (string, error) {
		defer w.lock()()
		w.note("hold: " + in.Why)
		w.going.Hold = in.Why
		return "8", nil
	})
	env.OnActivity("AwaitDetach", any1...).Return(func(_ context.Context, in activities.Detaching) (activities.Detached, error) {
		defer w.lock()()
		w.note("detach " + in.NodeName)
		if w.attached { // as far as the workflow can see
			return activities.Detached{}, temporal.NewApplicationErrorWithOptions("goes on", "GoesOn", temporal.ApplicationErrorOptions{NextRetryDelay: 24 * time.Hour})
		}
		return activities.Detached{}, nil
	})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, in workflows.DrainInput) (workflows.DrainResult, error) {
		defer w.lock()()
		w.note("drain " + in.NodeName + string(in.Purpose))
		if w.cancelled {
			w.cancelled = false
			return workflows.DrainResult{}, temporal.NewCanceledError()
		}
		if w.occupied {
			w.mu.Unlock()
			err := workflow.Sleep(ctx, 10*time.Hour)
			w.mu.Lock()
			return workflows.DrainResult{}, err
		}
		w.going.Result = w.drain.Outcome
		if w.drained != nil {
			w.drained()
		}
		return w.drain, nil
	}, workflow.RegisterOptions{Name: "Drain"})
	env.OnActivity("DeleteNode", any1...).Return(func(_ context.Context, in activities.NodeRemoval) error {
		defer w.lock()()
		w.note("delete node " + in.NodeName)
		if w.away {
			return errors.New("dial tcp: connection refused")
		}
		return nil
	})
	env.OnActivity("ReleaseMachine", any1...).Return(func(context.Context, activities.Releasing) (string, error) {
		defer w.lock()()
		w.note("release")
		return "2", nil
	})
	w.create = func(context.Context, activities.InstanceCall) (activities.InstanceAnswer, error) {
		return activities.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Uninitialized: true}, nil
	}
	t.Cleanup(func() { require.True(t, env.IsWorkflowCompleted()) })
	return w
}

// lock guards the world: under load a local activity may have been given up and still be at work.
func (w *world) lock() (unlock func()) {
	w.mu.Lock()
	return w.mu.Unlock
}

func (w *world) note(what string) { w.log = append(w.log, what) }

func (w *world) written(what string) func(context.Context, activities.Read) (string, error) {
	return func(context.Context, activities.Read) (string, error) {
		defer w.lock()()
		w.note(what)
		return "2", nil
	}
}

// after changes the world once time has passed, and signals that it did.
func (w *world) after(d time.Duration, change func()) {
	w.env.RegisterDelayedCallback(func() {
		unlock := w.lock()
		change()
		unlock()
		w.env.SignalWorkflow(workflows.SignalChanged, workflows.Changed{UID: ref.UID})
	}, d)
}

func (w *world) joined() {
	w.decision.Need = attention.Health
	w.decision.Health = &health.Verdict{Change: &health.Change{Phase: "Running", Operation: "Create", State: "Successful", Message: "joined", Reason: "Joined", Joined: true}}
}

func (w *world) run(t *testing.T) workflows.Result {
	w.env.ExecuteWorkflow(workflows.Machine, workflows.Input{Ref: ref})
	var result workflows.Result
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result
}

func TestMachineIsCreatedInitialisedAndJoins(t *testing.T) {
	w := newWorld(t)
	w.after(time.Minute, w.joined)
	require.Equal(t, workflows.OutcomeCalm, w.run(t).Outcome)
	require.Equal(t, []string{
		"decide", "token", "begin", "create", "record virtual:///i-1", "initialise virtual:///i-1", "report Pending",
		"decide", "decide", "report Running", "finish", "decide",
	}, w.log)
	require.True(t, w.calls[0].NeverTried, "the first call knows that there was none before")
	require.Nil(t, w.reports[len(w.reports)-1].Step, "a calm machine has no operation")
}

// Where the node has joined when the cloud answers, one report says both.
func TestMachineWhoseNodeIsThereAlready(t *testing.T) {
	w := newWorld(t)
	w.there = &health.Verdict{Change: &health.Change{Phase: "Running", Operation: "Create", State: "Successful", Joined: true, Reason: "Joined"}}
	w.reported = func(r activities.MachineReport) {
		if r.Phase == "Running" {
			w.decision.Need, w.decision.Phase = attention.Nothing, "Running"
		}
	}
	require.Equal(t, workflows.OutcomeCalm, w.run(t).Outcome)
	require.Equal(t, []string{"decide", "token", "begin", "create", "record virtual:///i-1", "initialise virtual:///i-1", "report Running", "finish", "decide"}, w.log)
	require.Len(t, w.reports, 1)
	r := w.reports[0]
	require.Equal(t, []string{"InstanceCreated", "Joined"}, []string{r.Before.Reason, r.Event.Reason})
	require.Equal(t, activities.Condition{Type: "InstanceReady", True: true, Reason: "InstanceCreated", Message: r.Before.Message}, r.Conditions[1])
	require.Nil(t, r.Step, "a calm machine has no operation")
}

func TestMachineIsPreparedBeforeAnythingIsCreated(t *testing.T) {
	w := newWorld(t)
	w.decision.Prepare = true
	w.after(time.Minute, w.joined)
	w.run(t)
	require.Equal(t, []string{"decide", "prepare", "decide", "token", "begin", "create"}, w.log[:6])
}

func TestU100_MachineCreationIsInterruptedByADeletion(t *testing.T) {
	w := newWorld(t)
	w.create = func(context.Context, activities.InstanceCall) (activities.InstanceAnswer, error) {
		return activities.InstanceAnswer{}, temporal.NewApplicationErrorWithOptions("busy", "Unavailable", temporal.ApplicationErrorOptions{NextRetryDelay: time.Minute})
	}
	w.after(90*time.Second, func() { w.decision.Need = attention.Deletion })
	result := w.run(t)
	require.Equal(t, workflows.OutcomeGone, result.Outcome)
	require.Equal(t, []string{"decide", "token", "begin", "create", "create", "decide", "decide", "look", "report Terminating", "delete ", "decide", "release"}, w.log)
	require.False(t, w.calls[len(w.calls)-1].NeverTried, "the deletion must look for what the creation may have made")
}

func TestU67_MachineShowsAProblemOnceAndBacksOff(t *testing.T) {
	w := newWorld(t)
	busy := &activities.Problem{Reason: "Unavailable", Message: "the cloud is busy", React: activities.Retry}
	w.create = func(_ context.Context, in activities.InstanceCall) (activities.InstanceAnswer, error) {
		if in.Known == nil {
			return activities.InstanceAnswer{Problem: busy}, nil
		}
		return activities.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	w.after(time.Minute, w.joined)
	w.run(t)
	require.Equal(t, []string{"decide", "token", "begin", "create", "report CrashLoopBackOff", "create", "record virtual:///i-1", "report Pending"}, w.log[:8])
	require.Equal(t, busy, w.calls[1].Known)
	shown := w.reports[0]
	require.Equal(t, "Unavailable", shown.Operation.ErrorCode)
	require.Equal(t, "the cloud is busy", shown.Event.Message)
	require.Equal(t, []activities.Condition{
		{Type: "InstanceReady", Reason: "Unavailable", Message: "the cloud is busy"},
		{Type: "ClassReady", True: true, Reason: "ClassFound", Message: "MachineClass small and its Secrets were read"},
	}, shown.Conditions)
}

// D18, P24: what only a person can mend is shown and waited for, not retried.
func TestD18_MachineWaitsForTheSecretThatIsMissing(t *testing.T) {
	w := newWorld(t)
	missing := &activities.Problem{Reason: "SecretNotFound", Message: "Secret default/cloud of MachineClass small does not exist", React: activities.UntilCredential}
	problem := missing
	w.create = func(context.Context, activities.InstanceCall) (activities.InstanceAnswer, error) {
		return activities.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Problem: problem}, nil
	}
	w.after(10*time.Minute, func() { problem = nil })
	w.after(11*time.Minute, w.joined)
	w.run(t)
	require.Equal(t, []string{"decide", "token", "begin", "create", "report CrashLoopBackOff", "decide", "token", "begin", "create", "record virtual:///i-1", "report Pending"}, w.log[:11])
	require.Equal(t, "ClassReady", w.reports[0].Conditions[0].Type)
}

func TestMachineWithoutAClassWaitsForIt(t *testing.T) {
	w := newWorld(t)
	w.decision.Problem = &activities.Problem{Reason: "ClassNotFound", Message: "MachineClass small does not exist in namespace default", React: activities.UntilCredential}
	w.after(time.Minute, func() { w.decision.Problem = nil })
	w.after(2*time.Minute, w.joined)
	w.run(t)
	require.Equal(t, []string{"decide", "report CrashLoopBackOff", "decide", "token", "begin", "create"}, w.log[:6])
	require.True(t, w.reports[0].Stopped, "the clock stands still")
}

func TestMachineThatIsGoneEndsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.decision = activities.MachineDecision{Gone: true}
	require.Equal(t, workflows.OutcomeGone, w.run(t).Outcome)
	require.Equal(t, []string{"decide"}, w.log)
}

func TestMachineTakesABurstOfSignalsAsOne(t *testing.T) {
	w := newWorld(t)
	w.env.RegisterDelayedCallback(func() {
		for range 50 {
			w.env.SignalWorkflowSkippingWorkflowTask(workflows.SignalChanged, workflows.Changed{UID: ref.UID})
		}
		w.joined()
		w.env.SignalWorkflow(workflows.SignalChanged, workflows.Changed{UID: ref.UID})
	}, time.Minute)
	w.run(t)
	require.LessOrEqual(t, len(w.log), 13, "50 signals woke it more than once: %v", w.log)
}

// A Secret that is mended while the provider is being asked must not leave the machine waiting for news that came already.
func TestMachineTriesAgainWhenItWasMendedDuringTheCall(t *testing.T) {
	w := newWorld(t)
	start := w.env.Now()
	calls := 0
	w.create = func(context.Context, activities.InstanceCall) (activities.InstanceAnswer, error) {
		if calls++; calls == 1 {
			w.env.SignalWorkflow(workflows.SignalChanged, workflows.Changed{UID: ref.UID})
			return activities.InstanceAnswer{}, temporal.NewApplicationErrorWithOptions("slow", "Unavailable", temporal.ApplicationErrorOptions{NextRetryDelay: time.Second})
		}
		if calls == 2 {
			return activities.InstanceAnswer{Problem: &activities.Problem{Reason: "Unauthenticated", Message: "the token is wrong", React: activities.UntilCredential}}, nil
		}
		return activities.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	w.after(time.Minute, w.joined)
	w.run(t)
	require.Equal(t, 3, calls)
	require.Less(t, w.env.Now().Sub(start), 5*time.Minute, "waited although the news had come")
	require.Equal(t, "Running", w.reports[len(w.reports)-1].Phase)
}

// A node that joined while nobody told the workflow is seen at the deadline, not taken for missing.
func TestMachineLooksOnceMoreAtItsDeadline(t *testing.T) {
	w := newWorld(t)
	w.env.RegisterDelayedCallback(w.joined, time.Minute) // and no signal
	w.run(t)
	require.Equal(t, "Running", w.reports[len(w.reports)-1].Phase)
}
