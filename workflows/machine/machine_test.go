package machine_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/health"
	workflowsdrain "millwright/workflows/drain"
	workflows "millwright/workflows/machine"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

// world answers the activities of one machine and records their calls in order.
type world struct {
	mu        sync.Mutex
	env       *testsuite.TestWorkflowEnvironment
	decision  machine.Decision // returned by DecideMachine
	there     *health.Verdict  // the node's verdict in DecideAfterCreate: nil while there is no node
	log       []string
	reports   []machine.Report
	calls     []cloud.InstanceCall
	create    func(ctx context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error)
	reported  func(machine.Report) // called with each report; may be nil
	attempts  []string
	occupied  bool  // pods are left on the node
	noToken   error // error of IssueToken
	synced    kube.MinVersions
	stale     string
	gone      bool // the instance
	failedAt  time.Time
	deletion  cloud.InstanceAnswer
	decidedAt time.Time // workflow time of the last decision
	decided   []kube.Read
	overAt    time.Time // end of the preservation

	going deletion.Facts // facts of its deletion
	load  drain.NodeLoad
	drain workflowsdrain.Result

	refuse  int    // number of times that the API server refuses the finalizer
	bad     error  // what the API server answers to a write of the node; nil: it accepts it
	drained func() // called when a drain has ended; may be nil

	begins  []machine.Report   // what RecordCreateIntent was told
	records []machine.Recorded // and RecordInstance

	cancelled bool  // a person cancels the drain
	away      bool  // the target cluster does not answer
	denied    error // what that cluster answers; nil: nothing
	// what AwaitDetach tells one after the other, before the volumes are detached
	slow      []drain.Detached
	detaching []drain.Detaching // what it was asked then
	attached  bool              // a volume stays attached to the node
	// instance that the provider knows and the object does not have
	unrecorded string
	look       func(in cloud.InstanceCall) (cloud.InstanceAnswer, error) // answers InstanceStatus; nil: unrecorded does
	looks      time.Duration                                             // how long InstanceStatus takes
}

// decide returns what DecideMachine would: a creation whose timeout has ended is Failed.
func (w *world) decide(at time.Time, done deletion.Stage) machine.Decision {
	w.decidedAt = at
	d := w.decision
	if d.Need == attention.Deletion {
		facts := w.going
		facts.Done, facts.NodeName = done, d.NodeName
		step := deletion.Decide(facts)
		d.Deletion = &step
	}
	if (d.Need == attention.Kept || d.Need == attention.Drain) && !w.overAt.IsZero() && !at.Before(w.overAt) {
		d.Need = attention.Preserve
	}
	creating := d.Need == attention.Instance || d.Need == attention.Node ||
		(d.Need == attention.Sync && d.Otherwise == attention.Node)
	if creating && d.Problem == nil && !at.Before(d.CreateBy) {
		w.failedAt = at
		d.Health = &health.Verdict{
			Change: &health.Change{Phase: "Failed", Operation: "Create", State: "Failed", Message: "too late"},
		}
	}
	return d
}

func newWorld(t *testing.T) *world {
	env := activitiestest.WorkflowEnvironment()
	for _, a := range activities.OnClusters(nil) {
		env.RegisterActivity(a)
	}
	env.RegisterActivity(&cloud.Provider{})
	w := &world{env: env, decision: machine.Decision{
		MachinePlan: attention.MachinePlan{
			Decision: attention.Decision{Need: attention.Instance, Why: "new"},
		},
		Calling: machine.Calling{
			Class:    "small",
			Provider: "virtual",
			Token:    true,
		},
		NeverTried: true,
		Target:     true,
		CreateBy:   env.Now().Add(20 * time.Minute),
	}}
	any1 := []any{mock.Anything, mock.Anything}
	env.OnActivity("DecideMachine", any1...).Return(func(_ context.Context, in kube.Read) (machine.Decision, error) {
		defer w.lock()()
		w.note("decide")
		w.decided = append(w.decided, in)
		return w.decide(in.At, in.Done), nil
	})
	env.OnActivity("DecideAfterCreate", any1...).Return(func(context.Context, machine.Report) (machine.Decision, error) {
		defer w.lock()()
		d := w.decision
		d.Health = w.there
		return d, nil
	})
	env.OnActivity("IssueToken", any1...).Return(func(_ context.Context, in machine.TokenRequest) (kube.TokenRef, error) {
		defer w.lock()()
		w.note("token")
		w.attempts = append(w.attempts, in.Attempt)
		return kube.TokenRef{Namespace: "kube-system", Name: "bootstrap-token-1"}, w.noToken
	})
	env.OnActivity("FinishJoin", any1...).Return(w.written("finish"))
	env.OnActivity("SyncNode", any1...).Return(func(context.Context, kube.Read) (kube.MinVersions, error) {
		defer w.lock()()
		w.note("sync")
		return w.synced, w.bad
	})
	env.OnActivity("InstanceStatus", any1...).
		AfterFn(func() time.Duration { return w.looks }).
		Return(func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			defer w.lock()()
			w.note("look")
			if w.look != nil {
				return w.look(in)
			}
			return cloud.InstanceAnswer{
				Gone:       w.gone,
				ProviderID: w.unrecorded,
				NodeName:   strings.TrimPrefix(w.unrecorded, "virtual:///"),
			}, nil
		})
	env.OnActivity("AddFinalizer", any1...).Return(func(context.Context, kube.Read) (string, error) {
		defer w.lock()()
		w.note("prepare")
		if w.refuse--; w.refuse >= 0 {
			return "", kube.Refused("machines is forbidden")
		}
		w.decision.Prepare = false
		return "2", nil
	})
	env.OnActivity("RecordCreateIntent", any1...).
		Return(func(_ context.Context, in machine.Report) (machine.Begun, error) {
			defer w.lock()()
			workflowstest.Timed(t, env, in.Read)
			w.note("begin")
			w.begins = append(w.begins, in)
			never := w.decision.NeverTried
			w.decision.NeverTried = false
			return machine.Begun{Version: "2", NeverTried: never, RunID: "run-of-the-record"}, nil
		})
	env.OnActivity("CreateInstance", any1...).
		Return(func(ctx context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			defer w.lock()()
			w.note("create")
			w.calls = append(w.calls, in)
			return w.create(ctx, in)
		})
	env.OnActivity("RecordInstance", any1...).Return(func(_ context.Context, in machine.Recorded) (machine.Record, error) {
		defer w.lock()()
		w.note("record " + in.ProviderID)
		w.records = append(w.records, in)
		if w.stale == "" {
			w.decision.ProviderID, w.decision.NodeName = in.ProviderID, in.NodeName
			if w.decision.Need == attention.Name {
				w.decision.Need = attention.Node
			}
		}
		return machine.Record{Version: "3", Stale: w.stale}, nil
	})
	env.OnActivity("InitializeInstance", any1...).
		Return(func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			defer w.lock()()
			w.note("initialise " + in.ProviderID)
			return cloud.InstanceAnswer{ProviderID: in.ProviderID, NodeName: in.NodeName}, nil
		})
	env.OnActivity("ReportMachine", any1...).Return(func(_ context.Context, in machine.Report) (kube.Reported, error) {
		defer w.lock()()
		workflowstest.Timed(t, env, in.Read)
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
		reported := kube.Reported{Version: "4"}
		if in.Step != nil {
			reported.WaitsFor, reported.BlockedBy = in.Step.Cause, in.Step.BlockedBy
		}
		return reported, nil
	})
	env.OnActivity("DeleteInstance", any1...).
		Return(func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			defer w.lock()()
			w.note("delete " + in.ProviderID)
			w.calls = append(w.calls, in)
			return w.deletion, nil
		})
	env.OnActivity("AnnounceTermination", any1...).Return(func(context.Context, kube.Read) (kube.MinVersions, error) {
		defer w.lock()()
		w.note("announce")
		if w.away {
			return nil, cmp.Or[error](w.denied, errors.New("dial tcp: connection refused"))
		}
		return kube.MinVersions{kube.NodesResource: "7"}, nil
	})
	env.OnActivity("CordonAndCountPods", any1...).Return(func(context.Context, kube.Read) (drain.NodeLoad, error) {
		defer w.lock()()
		w.note("weigh")
		if w.away {
			return drain.NodeLoad{}, cmp.Or[error](w.denied, errors.New("dial tcp: connection refused"))
		}
		return w.load, nil
	})
	env.OnActivity("HoldDrain", any1...).Return(func(_ context.Context, in drain.Holding) (string, error) {
		defer w.lock()()
		w.note("hold: " + in.Why)
		w.going.Hold = in.Why
		return "8", nil
	})
	env.OnActivity("AwaitDetach", any1...).Return(func(_ context.Context, in drain.Detaching) (drain.Detached, error) {
		defer w.lock()()
		w.note("detach " + in.NodeName)
		if len(w.slow) > 0 {
			seen := w.slow[0]
			w.slow = w.slow[1:]
			w.detaching = append(w.detaching, in)
			return seen, nil
		}
		if w.attached { // as far as the workflow can see
			return drain.Detached{}, temporal.NewApplicationErrorWithOptions(
				"goes on",
				"GoesOn",
				temporal.ApplicationErrorOptions{NextRetryDelay: 24 * time.Hour},
			)
		}
		return drain.Detached{}, nil
	})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, in workflowsdrain.Input) (workflowsdrain.Result, error) {
		defer w.lock()()
		w.note("drain " + in.NodeName + in.Purpose)
		if w.cancelled {
			w.cancelled = false
			return workflowsdrain.Result{}, temporal.NewCanceledError()
		}
		if w.occupied {
			w.mu.Unlock()
			err := workflow.Sleep(ctx, 10*time.Hour)
			w.mu.Lock()
			return workflowsdrain.Result{}, err
		}
		w.going.Result = w.drain.Outcome
		if w.drained != nil {
			w.drained()
		}
		return w.drain, nil
	}, workflow.RegisterOptions{Name: "Drain"})
	env.OnActivity("DeleteNode", any1...).Return(func(_ context.Context, in machine.NodeRemoval) error {
		defer w.lock()()
		w.note("delete node " + in.NodeName)
		if w.away {
			return cmp.Or[error](w.denied, errors.New("dial tcp: connection refused"))
		}
		return nil
	})
	env.OnActivity("ReleaseMachine", any1...).Return(func(context.Context, machine.Releasing) (string, error) {
		defer w.lock()()
		w.note("release")
		return "2", nil
	})
	w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Uninitialized: true}, nil
	}
	t.Cleanup(func() { require.True(t, env.IsWorkflowCompleted()) })
	return w
}

// lock guards the world: under load, a local activity may still run after it was given up.
func (w *world) lock() (unlock func()) {
	w.mu.Lock()
	return w.mu.Unlock
}

func (w *world) note(what string) { w.log = append(w.log, what) }

func (w *world) written(what string) func(context.Context, kube.Read) (string, error) {
	return func(context.Context, kube.Read) (string, error) {
		defer w.lock()()
		w.note(what)
		return "2", nil
	}
}

// after changes the world after a time, and signals the change.
func (w *world) after(d time.Duration, change func()) {
	w.env.RegisterDelayedCallback(func() {
		unlock := w.lock()
		change()
		unlock()
		w.env.SignalWorkflow(run.SignalChanged, run.Changed{UID: workflowstest.Ref.UID})
	}, d)
}

func (w *world) joined() {
	w.decision.Need = attention.Health
	w.decision.Health = &health.Verdict{
		Change: &health.Change{
			Phase:     "Running",
			Operation: "Create",
			State:     "Successful",
			Message:   "joined",
			Reason:    "Joined",
			Joined:    true,
		},
	}
}

// events returns the reasons of the events that were reported.
func (w *world) events() (reasons []string) {
	for _, r := range w.reports {
		if r.Event != nil {
			reasons = append(reasons, r.Event.Reason)
		}
	}
	return reasons
}

func (w *world) run(t *testing.T) run.Result {
	w.env.ExecuteWorkflow(workflows.Machine, run.Input{Ref: workflowstest.Ref})
	var result run.Result
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result
}

func TestMachineIsCreatedInitialisedAndJoins(t *testing.T) {
	w := newWorld(t)
	w.after(time.Minute, w.joined)
	require.Equal(t, run.OutcomeCalm, w.run(t).Outcome)
	require.Equal(t, []string{
		"decide", "token", "begin", "create", "record virtual:///i-1", "initialise virtual:///i-1", "report Pending",
		"decide", "decide", "report Running", "finish", "decide",
	}, w.log)
	require.True(t, w.calls[0].NeverTried, "the first call knows that there was none before")
	require.Equal(t, "run-of-the-record", w.calls[0].IntentRun, "in this run")
	require.Equal(t, []string{"Joined"}, w.events(), "one event tells of a normal creation")
	require.Nil(t, w.reports[len(w.reports)-1].Step, "a calm machine has no operation")
}

// The cloud names the node later than the instance: the node is found by its provider ID, and its name is recorded.
func TestMachineWhoseNodeIsFoundByItsProviderID(t *testing.T) {
	w := newWorld(t)
	w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1"}, nil
	}
	w.after(time.Minute, func() { w.decision.Need, w.decision.NodeFound = attention.Name, "ip-10-0-0-1" })
	named := ""
	w.after(2*time.Minute, func() {
		named = w.decision.NodeName
		w.joined()
	})
	require.Equal(t, run.OutcomeCalm, w.run(t).Outcome)
	require.Equal(t, "ip-10-0-0-1", named)
	require.Equal(
		t,
		"instance virtual:///i-1 exists; waits for a node with its provider ID",
		w.reports[0].Conditions[1].Message,
	)
}

// If the node has joined when the cloud answers, one report has both.
func TestMachineWhoseNodeIsThereAlready(t *testing.T) {
	w := newWorld(t)
	w.there = &health.Verdict{
		Change: &health.Change{Phase: "Running", Operation: "Create", State: "Successful", Joined: true, Reason: "Joined"},
	}
	w.reported = func(r machine.Report) {
		if r.Phase == "Running" {
			w.decision.Need, w.decision.Phase = attention.Nothing, "Running"
		}
	}
	require.Equal(t, run.OutcomeCalm, w.run(t).Outcome)
	require.Equal(
		t,
		[]string{
			"decide",
			"token",
			"begin",
			"create",
			"record virtual:///i-1",
			"initialise virtual:///i-1",
			"report Running",
			"finish",
			"decide",
		},
		w.log,
	)
	require.Len(t, w.reports, 1)
	r := w.reports[0]
	require.Equal(t, "Joined", r.Event.Reason)
	require.Equal(
		t,
		machine.Condition{
			Type:    "InstanceReady",
			True:    true,
			Reason:  "InstanceCreated",
			Message: "instance virtual:///i-1 exists; waits for node m-1",
		},
		r.Conditions[1],
	)
	require.Nil(t, r.Step, "a calm machine has no operation")
}

func TestMachineIsPreparedBeforeAnythingIsCreated(t *testing.T) {
	w := newWorld(t)
	w.decision.Prepare = true
	w.after(time.Minute, w.joined)
	w.run(t)
	require.Equal(t, []string{"decide", "prepare", "decide", "token", "begin", "create"}, w.log[:6])
}

func TestMachineCreationIsInterruptedByADeletion(t *testing.T) {
	w := newWorld(t)
	w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{}, temporal.NewApplicationErrorWithOptions(
			"busy",
			"Unavailable",
			temporal.ApplicationErrorOptions{NextRetryDelay: time.Minute},
		)
	}
	w.after(90*time.Second, func() { w.decision.Need = attention.Deletion })
	result := w.run(t)
	require.Equal(t, run.OutcomeGone, result.Outcome)
	require.Equal(
		t,
		[]string{
			"decide",
			"token",
			"begin",
			"create",
			"create",
			"decide",
			"decide",
			"look",
			"report Terminating",
			"delete ",
			"decide",
			"release",
		},
		w.log,
	)
	require.False(t, w.calls[len(w.calls)-1].NeverTried, "the deletion must look for what the creation may have made")
}

func TestMachineShowsAProblemOnceAndBacksOff(t *testing.T) {
	w := newWorld(t)
	busy := &kube.Problem{Reason: "Unavailable", Message: "the cloud is busy", React: kube.Retry}
	w.create = func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if in.Known == nil {
			return cloud.InstanceAnswer{Problem: busy}, nil
		}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	w.after(time.Minute, w.joined)
	w.run(t)
	require.Equal(
		t,
		[]string{
			"decide",
			"token",
			"begin",
			"create",
			"report CrashLoopBackOff",
			"create",
			"record virtual:///i-1",
			"report Pending",
		},
		w.log[:8],
	)
	require.Equal(t, busy, w.calls[1].Known)
	shown := w.reports[0]
	require.Equal(t, "Unavailable", shown.Operation.ErrorCode)
	require.Equal(t, "the cloud is busy", shown.Event.Message)
	require.Equal(t, []machine.Condition{
		{Type: "InstanceReady", Reason: "Unavailable", Message: "the cloud is busy"},
		{Type: "ClassReady", True: true, Reason: "ClassFound", Message: "MachineClass small and its Secrets were read"},
	}, shown.Conditions)
}

// A Secret that the class may not use is a problem of the class, as one that does not exist.
func TestTheConditionOfTheClassSaysThatASecretIsNotAllowed(t *testing.T) {
	w := newWorld(t)
	problem := &kube.Problem{
		Reason:  "SecretNotAllowed",
		Message: "Secret lent/creds does not allow it",
		React:   kube.UntilCredential,
	}
	w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Problem: problem}, nil
	}
	w.after(10*time.Minute, func() { problem = nil })
	w.after(11*time.Minute, w.joined)
	w.run(t)
	shown := w.reports[0]
	require.Equal(
		t,
		[]machine.Condition{{Type: "ClassReady", Reason: "SecretNotAllowed", Message: "Secret lent/creds does not allow it"}},
		shown.Conditions,
	)
	require.Equal(t, []string{"SecretNotAllowed"}, shown.Step.BlockedBy)
	require.Equal(t, 2, w.count("create"), "it is called again when somebody says that something has changed")
}

// A problem that only a person can solve is shown and waited for, not retried.
func TestMachineWaitsForTheSecretThatIsMissing(t *testing.T) {
	w := newWorld(t)
	missing := &kube.Problem{
		Reason:  "SecretNotFound",
		Message: "Secret default/cloud of MachineClass small does not exist",
		React:   kube.UntilCredential,
	}
	problem := missing
	w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Problem: problem}, nil
	}
	w.after(10*time.Minute, func() { problem = nil })
	w.after(11*time.Minute, w.joined)
	w.run(t)
	require.Equal(
		t,
		[]string{
			"decide",
			"token",
			"begin",
			"create",
			"report CrashLoopBackOff",
			"decide",
			"token",
			"begin",
			"create",
			"record virtual:///i-1",
			"report Pending",
		},
		w.log[:11],
	)
	require.Equal(t, "ClassReady", w.reports[0].Conditions[0].Type)
}

func TestMachineWithoutAClassWaitsForIt(t *testing.T) {
	w := newWorld(t)
	w.decision.Problem = &kube.Problem{
		Reason:  "ClassNotFound",
		Message: "MachineClass small does not exist in namespace default",
		React:   kube.UntilCredential,
	}
	w.after(time.Minute, func() { w.decision.Problem = nil })
	w.after(2*time.Minute, w.joined)
	w.run(t)
	require.Equal(t, []string{"decide", "report CrashLoopBackOff", "decide", "token", "begin", "create"}, w.log[:6])
	require.True(t, w.reports[0].Stopped, "the clock stands still")
}

func TestMachineThatIsGoneEndsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.decision = machine.Decision{Gone: true}
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Equal(t, []string{"decide"}, w.log)
}

func TestMachineTakesABurstOfSignalsAsOne(t *testing.T) {
	w := newWorld(t)
	w.env.RegisterDelayedCallback(func() {
		for range 50 {
			w.env.SignalWorkflowSkippingWorkflowTask(run.SignalChanged, run.Changed{UID: workflowstest.Ref.UID})
		}
		w.joined()
		w.env.SignalWorkflow(run.SignalChanged, run.Changed{UID: workflowstest.Ref.UID})
	}, time.Minute)
	w.run(t)
	require.LessOrEqual(t, len(w.log), 13, "50 signals woke it more than once: %v", w.log)
}

// A Secret that is repaired while the provider is being called must not leave the machine waiting for a signal that has
// come already.
func TestMachineTriesAgainWhenItWasMendedDuringTheCall(t *testing.T) {
	w := newWorld(t)
	start := w.env.Now()
	calls := 0
	w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if calls++; calls == 1 {
			w.env.SignalWorkflow(run.SignalChanged, run.Changed{UID: workflowstest.Ref.UID})
			return cloud.InstanceAnswer{}, temporal.NewApplicationErrorWithOptions(
				"slow",
				"Unavailable",
				temporal.ApplicationErrorOptions{NextRetryDelay: time.Second},
			)
		}
		if calls == 2 {
			return cloud.InstanceAnswer{
				Problem: &kube.Problem{Reason: "Unauthenticated", Message: "the token is wrong", React: kube.UntilCredential},
			}, nil
		}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	w.after(time.Minute, w.joined)
	w.run(t)
	require.Equal(t, 3, calls)
	require.Less(t, w.env.Now().Sub(start), 5*time.Minute, "waited although the signal had come")
	require.Equal(t, "Running", w.reports[len(w.reports)-1].Phase)
}

// A call that waits in the queue of a provider which nobody serves is given up when the class names another provider.
func TestACallFollowsTheProviderOfItsClass(t *testing.T) {
	w := newWorld(t)
	w.decision.Provider = "nobody"
	over := make(chan struct{})
	var queues []string
	w.create = func(ctx context.Context, _ cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if queues = append(queues, activity.GetInfo(ctx).TaskQueue); len(queues) == 1 {
			w.decision.Provider = "virtual"
			w.env.SignalWorkflow(run.SignalChanged, run.Changed{UID: workflowstest.Ref.UID})
			w.mu.Unlock() // the call lasts, and decisions go on
			<-over
			w.mu.Lock()
			return cloud.InstanceAnswer{}, ctx.Err()
		}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	// Both calls have one ID. If the first one ended before, the test environment would take its answer for the second
	// one's.
	w.env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == "CreateInstance" { // the second one: of a call that was given up it hears nothing
			close(over)
		}
	})
	w.after(2*time.Minute, w.joined)
	w.run(t)
	require.Equal(t, []string{"provider-nobody", "provider-virtual"}, queues)
}

// A node that joined without a signal is seen at the deadline, and not treated as missing.
func TestMachineLooksOnceMoreAtItsDeadline(t *testing.T) {
	w := newWorld(t)
	w.env.RegisterDelayedCallback(w.joined, time.Minute) // and no signal
	w.run(t)
	require.Equal(t, "Running", w.reports[len(w.reports)-1].Phase)
}

// A refused write fails no run: the status shows it, and the write is tried again.
func TestAMachineWhoseWriteIsRefused(t *testing.T) {
	w := newWorld(t)
	w.decision.Prepare, w.refuse = true, 1
	w.after(time.Minute, w.joined)
	require.Equal(t, run.OutcomeCalm, w.run(t).Outcome)
	require.Equal(t, []string{"decide", "prepare", "report ", "decide", "prepare", "decide", "token"}, w.log[:7])
	require.Equal(t, "refused", w.reports[0].Step.Name)
	require.Equal(t, []string{"Refused"}, w.reports[0].Step.BlockedBy)
}
