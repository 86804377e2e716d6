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

// machineTestEnv mocks the activities of one machine, and records the activity calls in order.
type machineTestEnv struct {
	mu                sync.Mutex
	env               *testsuite.TestWorkflowEnvironment
	decision          machine.Decision // the decision that DecideMachine returns
	nodeVerdict       *health.Verdict  // health verdict in the result of DecideAfterCreate; nil if no node exists
	activityLog       []string
	reports           []machine.Report
	providerCalls     []cloud.InstanceCall
	createInstance    func(ctx context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error)
	onReport          func(machine.Report) // called with each report; may be nil
	tokenAttempts     []string
	hasRemainingPods  bool  // if true, pods stay on the node
	tokenError        error // error of IssueToken
	nodeSyncVersions  kube.MinVersions
	staleRecordReason string
	isInstanceGone    bool // if true, the provider has no instance
	failureTime       time.Time
	deletionAnswer    cloud.InstanceAnswer
	decisionTime      time.Time // workflow time of the last decision
	decisionInputs    []kube.ReadInput
	preservationEnd   time.Time // end of the preservation

	deletionFacts deletion.Facts // state of the machine's deletion
	nodeLoad      drain.NodeLoad
	drainResult   workflowsdrain.Result

	finalizerRefusalCount int    // number of times that the API server refuses the finalizer
	nodeWriteError        error  // the API server's error for writes of the node; nil if it accepts them
	onDrainEnd            func() // called when a drain has ended; may be nil

	createIntents   []machine.Report         // the inputs of RecordCreateIntent
	instanceRecords []machine.InstanceRecord // the inputs of RecordInstance

	isDrainCancelled    bool  // if true, a person cancels the drain
	isTargetUnreachable bool  // if true, the target cluster does not answer
	targetError         error // error of the target cluster; nil if it does not answer
	// results of the calls of AwaitDetach until the volumes are detached
	detachResults    []drain.DetachResult
	detachInputs     []drain.DetachWait // the inputs of AwaitDetach
	isVolumeAttached bool               // if true, a volume stays attached to the node
	// instance that the provider knows but the object does not contain
	unrecordedInstance     string
	instanceStatus         func(in cloud.InstanceCall) (cloud.InstanceAnswer, error) // InstanceStatus; nil: unrecordedInstance
	instanceStatusDuration time.Duration                                             // duration of InstanceStatus
}

// decideMachine returns the decision of DecideMachine. If the creation timeout has ended, the machine is Failed.
func (w *machineTestEnv) decideMachine(at time.Time, done deletion.Stage) machine.Decision {
	w.decisionTime = at
	d := w.decision
	if d.Need == attention.NeedDeletion {
		facts := w.deletionFacts
		facts.CompletedStage, facts.NodeName = done, d.NodeName
		step := deletion.Decide(facts)
		d.Deletion = &step
	}
	if (d.Need == attention.NeedPreservationEnd || d.Need == attention.NeedDrain) && !w.preservationEnd.IsZero() &&
		!at.Before(w.preservationEnd) {
		d.Need = attention.NeedPreservation
	}
	creating := d.Need == attention.NeedInstance || d.Need == attention.NeedNodeJoin ||
		(d.Need == attention.NeedNodeSync && d.Otherwise == attention.NeedNodeJoin)
	if creating && d.Problem == nil && !at.Before(d.CreateBy) {
		w.failureTime = at
		d.Health = &health.Verdict{
			Change: &health.PhaseChange{Phase: "Failed", Operation: "Create", State: "Failed", Message: "too late"},
		}
	}
	return d
}

func newMachineTestEnv(t *testing.T) *machineTestEnv {
	env := activitiestest.NewWorkflowEnvironment()
	for _, a := range activities.ClusterActivities(nil) {
		env.RegisterActivity(a)
	}
	env.RegisterActivity(&cloud.Activities{})
	w := &machineTestEnv{env: env, decision: machine.Decision{
		MachinePlan: attention.MachinePlan{
			Decision: attention.Decision{Need: attention.NeedInstance, Why: "new"},
		},
		CallInputs: machine.CallInputs{
			Class:    "small",
			Provider: "virtual",
			Token:    true,
		},
		NeverTried: true,
		Target:     true,
		CreateBy:   env.Now().Add(20 * time.Minute),
	}}
	any1 := []any{mock.Anything, mock.Anything}
	env.OnActivity("DecideMachine", any1...).Return(func(_ context.Context, in kube.ReadInput) (machine.Decision, error) {
		defer w.lock()()
		w.logActivity("decide")
		w.decisionInputs = append(w.decisionInputs, in)
		return w.decideMachine(in.At, in.Done), nil
	})
	env.OnActivity("DecideAfterCreate", any1...).Return(func(context.Context, machine.Report) (machine.Decision, error) {
		defer w.lock()()
		d := w.decision
		d.Health = w.nodeVerdict
		return d, nil
	})
	env.OnActivity("IssueToken", any1...).Return(func(_ context.Context, in machine.TokenRequest) (kube.TokenRef, error) {
		defer w.lock()()
		w.logActivity("token")
		w.tokenAttempts = append(w.tokenAttempts, in.Attempt)
		return kube.TokenRef{Namespace: "kube-system", Name: "bootstrap-token-1"}, w.tokenError
	})
	env.OnActivity("FinishJoin", any1...).Return(w.mockWrite("finish"))
	env.OnActivity("SyncNode", any1...).Return(func(context.Context, kube.ReadInput) (kube.MinVersions, error) {
		defer w.lock()()
		w.logActivity("sync")
		return w.nodeSyncVersions, w.nodeWriteError
	})
	env.OnActivity("InstanceStatus", any1...).
		AfterFn(func() time.Duration { return w.instanceStatusDuration }).
		Return(func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			defer w.lock()()
			w.logActivity("look")
			require.False(t, in.FailsWithProblem, "a missing instance is an answer, and no failure in the timeline")
			if w.instanceStatus != nil {
				return w.instanceStatus(in)
			}
			return cloud.InstanceAnswer{
				Gone:       w.isInstanceGone,
				ProviderID: w.unrecordedInstance,
				NodeName:   strings.TrimPrefix(w.unrecordedInstance, "virtual:///"),
			}, nil
		})
	env.OnActivity("AddFinalizer", any1...).Return(func(context.Context, kube.ReadInput) (string, error) {
		defer w.lock()()
		w.logActivity("prepare")
		if w.finalizerRefusalCount--; w.finalizerRefusalCount >= 0 {
			return "", kube.RefusedError("machines is forbidden")
		}
		w.decision.Prepare = false
		return "2", nil
	})
	env.OnActivity("RecordCreateIntent", any1...).
		Return(func(_ context.Context, in machine.Report) (machine.CreateIntentResult, error) {
			defer w.lock()()
			workflowstest.AssertWorkflowTime(t, env, in.Read)
			w.logActivity("begin")
			w.createIntents = append(w.createIntents, in)
			never := w.decision.NeverTried
			w.decision.NeverTried = false
			return machine.CreateIntentResult{Version: "2", NeverTried: never, RunID: "run-of-the-record"}, nil
		})
	env.OnActivity("CreateInstance", any1...).
		Return(func(ctx context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			defer w.lock()()
			w.logActivity("create")
			w.providerCalls = append(w.providerCalls, in)
			return w.createInstance(ctx, in)
		})
	env.OnActivity("RecordInstance", any1...).
		Return(func(_ context.Context, in machine.InstanceRecord) (machine.RecordResult, error) {
			defer w.lock()()
			w.logActivity("record " + in.ProviderID)
			w.instanceRecords = append(w.instanceRecords, in)
			if w.staleRecordReason == "" {
				w.decision.ProviderID, w.decision.NodeName = in.ProviderID, in.NodeName
				if w.decision.Need == attention.NeedNodeName {
					w.decision.Need = attention.NeedNodeJoin
				}
			}
			return machine.RecordResult{Version: "3", Stale: w.staleRecordReason}, nil
		})
	env.OnActivity("InitializeInstance", any1...).
		Return(func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			defer w.lock()()
			w.logActivity("initialise " + in.ProviderID)
			return cloud.InstanceAnswer{ProviderID: in.ProviderID, NodeName: in.NodeName}, nil
		})
	env.OnActivity("ReportMachine", any1...).Return(func(_ context.Context, in machine.Report) (kube.ReportResult, error) {
		defer w.lock()()
		workflowstest.AssertWorkflowTime(t, env, in.Read)
		w.reports = append(w.reports, in)
		w.logActivity("report " + in.Phase)
		switch in.Phase {
		case "Pending":
			w.decision.Need, w.decision.Phase = attention.NeedNodeJoin, in.Phase
		case "Running", "Failed", "Available":
			w.decision.Need, w.decision.Phase, w.decision.Health = attention.NeedNothing, in.Phase, nil
		}
		if in.Phase == "Failed" && w.failureTime.IsZero() {
			w.failureTime = w.decisionTime
		}
		if in.Deletion != nil {
			w.deletionFacts.RecordedStage = deletion.LaterStage(w.deletionFacts.RecordedStage, in.Deletion.Stage)
			if in.Deletion.Result != "" {
				w.deletionFacts.DrainResult = in.Deletion.Result
			}
		}
		if w.onReport != nil {
			w.onReport(in)
		}
		reported := kube.ReportResult{Version: "4"}
		if in.Step != nil {
			reported.WaitsFor, reported.BlockedBy = in.Step.Cause, in.Step.BlockedBy
		}
		return reported, nil
	})
	env.OnActivity("DeleteInstance", any1...).
		Return(func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			defer w.lock()()
			w.logActivity("delete " + in.ProviderID)
			w.providerCalls = append(w.providerCalls, in)
			return w.deletionAnswer, nil
		})
	env.OnActivity("AnnounceTermination", any1...).Return(func(context.Context, kube.ReadInput) (kube.MinVersions, error) {
		defer w.lock()()
		w.logActivity("announce")
		if w.isTargetUnreachable {
			return nil, cmp.Or[error](w.targetError, errors.New("dial tcp: connection refused"))
		}
		return kube.MinVersions{kube.NodesResource: "7"}, nil
	})
	env.OnActivity("CordonAndCountPods", any1...).Return(func(context.Context, kube.ReadInput) (drain.NodeLoad, error) {
		defer w.lock()()
		w.logActivity("weigh")
		if w.isTargetUnreachable {
			return drain.NodeLoad{}, cmp.Or[error](w.targetError, errors.New("dial tcp: connection refused"))
		}
		return w.nodeLoad, nil
	})
	env.OnActivity("HoldDrain", any1...).Return(func(_ context.Context, in drain.HoldInput) (string, error) {
		defer w.lock()()
		w.logActivity("hold: " + in.Why)
		w.deletionFacts.HoldReason = in.Why
		return "8", nil
	})
	env.OnActivity("AwaitDetach", any1...).
		Return(func(_ context.Context, in drain.DetachWait) (drain.DetachResult, error) {
			defer w.lock()()
			w.logActivity("detach " + in.NodeName)
			if len(w.detachResults) > 0 {
				seen := w.detachResults[0]
				w.detachResults = w.detachResults[1:]
				w.detachInputs = append(w.detachInputs, in)
				return seen, nil
			}
			if w.isVolumeAttached { // for the workflow, this call of AwaitDetach does not end
				return drain.DetachResult{}, temporal.NewApplicationErrorWithOptions(
					"goes on",
					"GoesOn",
					temporal.ApplicationErrorOptions{NextRetryDelay: 24 * time.Hour},
				)
			}
			return drain.DetachResult{}, nil
		})
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, in workflowsdrain.Input) (workflowsdrain.Result, error) {
		defer w.lock()()
		w.logActivity("drain " + in.NodeName + in.Purpose)
		if w.isDrainCancelled {
			w.isDrainCancelled = false
			return workflowsdrain.Result{}, temporal.NewCanceledError()
		}
		if w.hasRemainingPods {
			w.mu.Unlock()
			err := workflow.Sleep(ctx, 10*time.Hour)
			w.mu.Lock()
			return workflowsdrain.Result{}, err
		}
		w.deletionFacts.DrainResult = w.drainResult.Outcome
		if w.onDrainEnd != nil {
			w.onDrainEnd()
		}
		return w.drainResult, nil
	}, workflow.RegisterOptions{Name: "Drain"})
	env.OnActivity("DeleteNode", any1...).Return(func(_ context.Context, in machine.NodeRemoval) error {
		defer w.lock()()
		w.logActivity("delete node " + in.NodeName)
		if w.isTargetUnreachable {
			return cmp.Or[error](w.targetError, errors.New("dial tcp: connection refused"))
		}
		return nil
	})
	env.OnActivity("ReleaseMachine", any1...).Return(func(context.Context, machine.ReleaseInput) (string, error) {
		defer w.lock()()
		w.logActivity("release")
		return "2", nil
	})
	w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Uninitialized: true}, nil
	}
	t.Cleanup(func() { require.True(t, env.IsWorkflowCompleted()) })
	return w
}

// lock locks the world, because under load a local activity may still run after the workflow has cancelled it.
func (w *machineTestEnv) lock() (unlock func()) {
	w.mu.Lock()
	return w.mu.Unlock
}

func (w *machineTestEnv) logActivity(what string) { w.activityLog = append(w.activityLog, what) }

func (w *machineTestEnv) mockWrite(what string) func(context.Context, kube.ReadInput) (string, error) {
	return func(context.Context, kube.ReadInput) (string, error) {
		defer w.lock()()
		w.logActivity(what)
		return "2", nil
	}
}

// changeAfterDelay calls change after the duration d, and sends the signal of a change.
func (w *machineTestEnv) changeAfterDelay(d time.Duration, change func()) {
	w.env.RegisterDelayedCallback(func() {
		unlock := w.lock()
		change()
		unlock()
		w.env.SignalWorkflow(run.SignalChanged, run.ChangeSignal{UID: workflowstest.ObjectRef.UID})
	}, d)
}

func (w *machineTestEnv) setNodeJoined() {
	w.decision.Need = attention.NeedStatusUpdate
	w.decision.Health = &health.Verdict{
		Change: &health.PhaseChange{
			Phase:     "Running",
			Operation: "Create",
			State:     "Successful",
			Message:   "joined",
			Reason:    "Joined",
			Joined:    true,
		},
	}
}

// eventReasons returns the reasons of the reported events.
func (w *machineTestEnv) eventReasons() (reasons []string) {
	for _, r := range w.reports {
		if r.Event != nil {
			reasons = append(reasons, r.Event.Reason)
		}
	}
	return reasons
}

func (w *machineTestEnv) runMachine(t *testing.T) run.Result {
	w.env.ExecuteWorkflow(workflows.Machine, run.Input{Ref: workflowstest.ObjectRef})
	var result run.Result
	require.NoError(t, w.env.GetWorkflowError())
	require.NoError(t, w.env.GetWorkflowResult(&result))
	return result
}

func TestMachineIsCreatedInitialisedAndJoins(t *testing.T) {
	w := newMachineTestEnv(t)
	w.changeAfterDelay(time.Minute, w.setNodeJoined)
	require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
	require.Equal(t, []string{
		"decide", "token", "begin", "create", "record virtual:///i-1", "initialise virtual:///i-1", "report Pending",
		"decide", "decide", "report Running", "finish", "decide",
	}, w.activityLog)
	require.True(t, w.providerCalls[0].NeverTried, "the first call knows that there was none before")
	require.Equal(t, "run-of-the-record", w.providerCalls[0].IntentRun, "in this run")
	require.Equal(t, []string{"Joined"}, w.eventReasons(), "one event tells of a normal creation")
	require.Nil(t, w.reports[len(w.reports)-1].Step, "a calm machine has no operation")
}

// The cloud assigns the node name only after it has created the instance. Millwright finds the node by its provider ID,
// and records the node name.
func TestNodeNameIsRecordedWhenItsNodeIsFoundByProviderID(t *testing.T) {
	w := newMachineTestEnv(t)
	w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1"}, nil
	}
	w.changeAfterDelay(
		time.Minute,
		func() { w.decision.Need, w.decision.NodeFound = attention.NeedNodeName, "ip-10-0-0-1" },
	)
	named := ""
	w.changeAfterDelay(2*time.Minute, func() {
		named = w.decision.NodeName
		w.setNodeJoined()
	})
	require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
	require.Equal(t, "ip-10-0-0-1", named)
	require.Equal(
		t,
		"instance virtual:///i-1 exists; no node has its provider ID yet",
		w.reports[0].Conditions[1].Message,
	)
}

// If the node has already joined when the cloud answers, one report contains the instance and the node.
func TestCreationAndJoinAreReportedTogether(t *testing.T) {
	w := newMachineTestEnv(t)
	w.nodeVerdict = &health.Verdict{
		Change: &health.PhaseChange{
			Phase:     "Running",
			Operation: "Create",
			State:     "Successful",
			Joined:    true,
			Reason:    "Joined",
		},
	}
	w.onReport = func(r machine.Report) {
		if r.Phase == "Running" {
			w.decision.Need, w.decision.Phase = attention.NeedNothing, "Running"
		}
	}
	require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
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
		w.activityLog,
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
			Message: "instance virtual:///i-1 exists; node m-1 has not joined yet",
		},
		r.Conditions[1],
	)
	require.Nil(t, r.Step, "a calm machine has no operation")
}

func TestFinalizerIsAddedBeforeTheInstanceIsCreated(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Prepare = true
	w.changeAfterDelay(time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Equal(t, []string{"decide", "prepare", "decide", "token", "begin", "create"}, w.activityLog[:6])
}

func TestMachineCreationIsInterruptedByADeletion(t *testing.T) {
	w := newMachineTestEnv(t)
	w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{}, temporal.NewApplicationErrorWithOptions(
			"busy",
			"Unavailable",
			temporal.ApplicationErrorOptions{NextRetryDelay: time.Minute},
		)
	}
	w.changeAfterDelay(90*time.Second, func() { w.decision.Need = attention.NeedDeletion })
	result := w.runMachine(t)
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
		w.activityLog,
	)
	require.False(
		t,
		w.providerCalls[len(w.providerCalls)-1].NeverTried,
		"the deletion must look for what the creation may have made",
	)
}

func TestMachineShowsAProblemOnceAndBacksOff(t *testing.T) {
	w := newMachineTestEnv(t)
	busy := &kube.Problem{Reason: "Unavailable", Message: "the cloud is busy", React: kube.ReactionRetry}
	w.createInstance = func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if in.Known == nil {
			return cloud.InstanceAnswer{Problem: busy}, nil
		}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	w.changeAfterDelay(time.Minute, w.setNodeJoined)
	w.runMachine(t)
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
		w.activityLog[:8],
	)
	require.Equal(t, busy, w.providerCalls[1].Known)
	shown := w.reports[0]
	require.Equal(t, "Unavailable", shown.Operation.ErrorCode)
	require.Equal(t, "the cloud is busy", shown.Event.Message)
	require.Equal(t, []machine.Condition{
		{Type: "InstanceReady", Reason: "Unavailable", Message: "the cloud is busy"},
		{Type: "ClassReady", True: true, Reason: "ClassFound", Message: "MachineClass small and its Secrets were read"},
	}, shown.Conditions)
}

// A Secret that the class may not use is a problem of the class, like a Secret that does not exist.
func TestClassConditionReportsAForbiddenSecret(t *testing.T) {
	w := newMachineTestEnv(t)
	problem := &kube.Problem{
		Reason:  "SecretNotAllowed",
		Message: "Secret lent/creds does not allow it",
		React:   kube.ReactionUntilCredentialChange,
	}
	w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Problem: problem}, nil
	}
	w.changeAfterDelay(10*time.Minute, func() { problem = nil })
	w.changeAfterDelay(11*time.Minute, w.setNodeJoined)
	w.runMachine(t)
	shown := w.reports[0]
	require.Equal(
		t,
		[]machine.Condition{{Type: "ClassReady", Reason: "SecretNotAllowed", Message: "Secret lent/creds does not allow it"}},
		shown.Conditions,
	)
	require.Equal(t, []string{"SecretNotAllowed"}, shown.Step.BlockedBy)
	require.Equal(t, 2, w.countActivities("create"), "it is called again when somebody says that something has changed")
}

// If only a person can solve a problem, the machine shows the problem and waits for a change instead of retrying.
func TestMachineWaitsForTheSecretThatIsMissing(t *testing.T) {
	w := newMachineTestEnv(t)
	missing := &kube.Problem{
		Reason:  "SecretNotFound",
		Message: "Secret default/cloud of MachineClass small does not exist",
		React:   kube.ReactionUntilCredentialChange,
	}
	problem := missing
	w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Problem: problem}, nil
	}
	w.changeAfterDelay(10*time.Minute, func() { problem = nil })
	w.changeAfterDelay(11*time.Minute, w.setNodeJoined)
	w.runMachine(t)
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
		w.activityLog[:11],
	)
	require.Equal(t, "ClassReady", w.reports[0].Conditions[0].Type)
}

func TestMachineWithoutAClassWaitsForIt(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Problem = &kube.Problem{
		Reason:  "ClassNotFound",
		Message: "MachineClass small does not exist in namespace default",
		React:   kube.ReactionUntilCredentialChange,
	}
	w.changeAfterDelay(time.Minute, func() { w.decision.Problem = nil })
	w.changeAfterDelay(2*time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Equal(
		t,
		[]string{"decide", "report CrashLoopBackOff", "decide", "token", "begin", "create"},
		w.activityLog[:6],
	)
	require.True(t, w.reports[0].Stopped, "the clock stands still")
}

func TestMachineThatIsGoneEndsAtOnce(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision = machine.Decision{Gone: true}
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Equal(t, []string{"decide"}, w.activityLog)
}

func TestMachineHandlesABurstOfSignalsOnce(t *testing.T) {
	w := newMachineTestEnv(t)
	w.env.RegisterDelayedCallback(func() {
		for range 50 {
			w.env.SignalWorkflowSkippingWorkflowTask(run.SignalChanged, run.ChangeSignal{UID: workflowstest.ObjectRef.UID})
		}
		w.setNodeJoined()
		w.env.SignalWorkflow(run.SignalChanged, run.ChangeSignal{UID: workflowstest.ObjectRef.UID})
	}, time.Minute)
	w.runMachine(t)
	require.LessOrEqual(t, len(w.activityLog), 13, "50 signals woke it more than once: %v", w.activityLog)
}

// A person repairs a Secret while a provider call is in progress. The machine must not wait for a signal that has
// already arrived.
func TestMachineRetriesAfterARepairDuringTheCall(t *testing.T) {
	w := newMachineTestEnv(t)
	start := w.env.Now()
	calls := 0
	w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if calls++; calls == 1 {
			w.env.SignalWorkflow(run.SignalChanged, run.ChangeSignal{UID: workflowstest.ObjectRef.UID})
			return cloud.InstanceAnswer{}, temporal.NewApplicationErrorWithOptions(
				"slow",
				"Unavailable",
				temporal.ApplicationErrorOptions{NextRetryDelay: time.Second},
			)
		}
		if calls == 2 {
			return cloud.InstanceAnswer{
				Problem: &kube.Problem{
					Reason:  "Unauthenticated",
					Message: "the token is wrong",
					React:   kube.ReactionUntilCredentialChange,
				},
			}, nil
		}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	w.changeAfterDelay(time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Equal(t, 3, calls)
	require.Less(t, w.env.Now().Sub(start), 5*time.Minute, "waited although the signal had come")
	require.Equal(t, "Running", w.reports[len(w.reports)-1].Phase)
}

// No worker polls the provider's task queue, so a call waits there. When the class names another provider, the workflow
// cancels the call.
func TestWaitingCallIsCancelledWhenTheClassNamesAnotherProvider(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Provider = "nobody"
	over := make(chan struct{})
	var queues []string
	w.createInstance = func(ctx context.Context, _ cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if queues = append(queues, activity.GetInfo(ctx).TaskQueue); len(queues) == 1 {
			w.decision.Provider = "virtual"
			w.env.SignalWorkflow(run.SignalChanged, run.ChangeSignal{UID: workflowstest.ObjectRef.UID})
			w.mu.Unlock() // decisions must be possible while the call continues
			<-over
			w.mu.Lock()
			return cloud.InstanceAnswer{}, ctx.Err()
		}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	// Both calls have the same activity ID. If the first call ended too early, the test environment would use its
	// answer for the second call.
	w.env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == "CreateInstance" { // the listener is not called for a cancelled call
			close(over)
		}
	})
	w.changeAfterDelay(2*time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Equal(t, []string{"provider-nobody", "provider-virtual"}, queues)
}

// At the deadline, the workflow reads from the API server. If a node has joined without a signal, the workflow sees it.
func TestMachineReadsLiveAtItsDeadline(t *testing.T) {
	w := newMachineTestEnv(t)
	w.env.RegisterDelayedCallback(w.setNodeJoined, time.Minute) // the node joins without a signal
	w.runMachine(t)
	require.Equal(t, "Running", w.reports[len(w.reports)-1].Phase)
}

// A refused write does not fail the run: the status shows the refusal, and the workflow retries the write.
func TestRefusedWriteIsShownAndRetried(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Prepare, w.finalizerRefusalCount = true, 1
	w.changeAfterDelay(time.Minute, w.setNodeJoined)
	require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
	require.Equal(t, []string{"decide", "prepare", "report ", "decide", "prepare", "decide", "token"}, w.activityLog[:7])
	require.Equal(t, "refused", w.reports[0].Step.Name)
	require.Equal(t, []string{"Refused"}, w.reports[0].Step.BlockedBy)
}
