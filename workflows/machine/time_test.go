package machine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/decide/attention"
	"millwright/decide/health"
	workflows "millwright/workflows/machine"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

func (w *machineTestEnv) lastReport() machine.Report { return w.reports[len(w.reports)-1] }

func (w *machineTestEnv) countActivities(what string) (n int) {
	for _, entry := range w.activityLog {
		if entry == what {
			n++
		}
	}
	return n
}

// failCreations makes every creation fail with a temporary problem and a back-off of 15 minutes.
func (w *machineTestEnv) failCreations() {
	problem := kube.Problem{Reason: "ResourceExhausted", Message: "no room", React: kube.ReactionRetryLong}
	w.createInstance = func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if in.Known == nil {
			return cloud.InstanceAnswer{Problem: &problem}, nil
		}
		return cloud.InstanceAnswer{}, temporal.NewApplicationErrorWithOptions(
			"no room",
			"ResourceExhausted",
			temporal.ApplicationErrorOptions{NextRetryDelay: 15 * time.Minute},
		)
	}
}

// A client rewrites an annotation of the machine every second. Only a change of the class makes the workflow call the
// provider again.
func TestIrrelevantSignalDoesNotEndTheBackOff(t *testing.T) {
	w := newMachineTestEnv(t)
	w.failCreations()
	w.decision.Call = "as before"
	rewritten := func(from time.Duration) {
		for n := range 60 {
			w.changeAfterDelay(from+time.Duration(n)*time.Second, func() {})
		}
	}
	rewritten(time.Minute)
	w.changeAfterDelay(3*time.Minute, func() {
		require.Len(t, w.providerCalls, 2, "one that met the problem, and one that backs off")
		w.decision.Call = "otherwise"
	})
	rewritten(4 * time.Minute)
	w.changeAfterDelay(6*time.Minute, func() { require.Len(t, w.providerCalls, 4, "the same two again") })
	w.runMachine(t)
	require.Equal(t, "Failed", w.lastReport().Phase)
}

// The class changes while a call is in back-off. The next call may be open for minutes, so the status no longer
// contains the cause of the previous call. The step starts again, so that the duration of the next call counts from its
// own start.
func TestNextCallClearsTheCauseOfTheFormerCall(t *testing.T) {
	w := newMachineTestEnv(t)
	w.failCreations()
	w.decision.Call = "as before"
	begun := w.env.Now()
	w.changeAfterDelay(3*time.Minute, func() {
		w.decision.Call = "otherwise"
		w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			shown := w.lastReport()
			require.Empty(t, shown.Step.BlockedBy)
			require.Equal(t, "ResourceExhausted", w.reports[0].Operation.ErrorCode)
			require.NotContains(t, shown.Step.Cause, "no room")
			require.GreaterOrEqual(t, shown.Step.Since.Sub(begun), 3*time.Minute)
			require.Equal(t, "Creating", shown.Conditions[0].Reason)
			return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
		}
	})
	w.changeAfterDelay(5*time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Equal(t, "Running", w.lastReport().Phase)
}

// If the history grows long while a call is in back-off, the run continues as new. The next run begins after the call
// has ended.
func TestABackOffDoesNotKeepALongRunOpen(t *testing.T) {
	w := newMachineTestEnv(t)
	w.failCreations()
	w.decision.Call = "as before"
	w.changeAfterDelay(3*time.Minute, func() { w.env.SetContinueAsNewSuggested(true) })
	begun := w.env.Now()
	w.env.ExecuteWorkflow(workflows.Machine, run.Input{Ref: workflowstest.ObjectRef})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, w.env.GetWorkflowError(), &next)
	require.Less(t, w.env.Now().Sub(begun), 4*time.Minute)
	require.Len(t, w.providerCalls, 2)
}

func TestMachineThatNeverJoinsFailsAtItsDeadline(t *testing.T) {
	w := newMachineTestEnv(t)
	deadline := w.decision.CreateBy
	for at := time.Minute; at < 20*time.Minute; at += 3 * time.Minute {
		w.changeAfterDelay(at, func() {}) // no signal restarts the creation timeout
	}
	require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
	require.Equal(t, "Failed", w.lastReport().Phase)
	require.Equal(t, deadline.Unix(), w.failureTime.Unix())
}

// The creation timeout fires on time even if the next attempt is due much later.
func TestMachineThatBacksOffFailsAtItsDeadline(t *testing.T) {
	w := newMachineTestEnv(t)
	deadline := w.decision.CreateBy
	w.failCreations()
	w.runMachine(t)
	require.Equal(t, "Failed", w.lastReport().Phase)
	require.Equal(t, deadline.Unix(), w.failureTime.Unix())
}

func TestMachineRetriesAtOnceAfterAChangeDuringItsBackOff(t *testing.T) {
	w := newMachineTestEnv(t)
	start := w.env.Now()
	w.failCreations()
	w.changeAfterDelay(3*time.Minute, func() {
		w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
		}
	})
	w.changeAfterDelay(4*time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Equal(t, "Running", w.lastReport().Phase)
	require.Less(t, w.env.Now().Sub(start), 6*time.Minute)
}

func TestMachineThatWaitsForAPersonDoesNotFail(t *testing.T) {
	w := newMachineTestEnv(t)
	problem := &kube.Problem{
		Reason:  "Unauthenticated",
		Message: "the token is wrong",
		React:   kube.ReactionUntilCredentialChange,
	}
	w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Problem: problem}, nil
	}
	w.onReport = func(in machine.Report) {
		if in.Stopped {
			// as DecideMachine does while the creation timeout is paused
			w.decision.CreateBy = w.decisionTime.Add(100 * time.Hour)
		}
	}
	w.changeAfterDelay(50*time.Hour, func() { problem = nil })
	w.changeAfterDelay(51*time.Hour, w.setNodeJoined)
	w.runMachine(t)
	require.Equal(t, "Running", w.lastReport().Phase)
	require.Zero(t, w.countActivities("report Failed"))
}

// A deletion does not wait for the back-off of a creation.
func TestMachineThatBacksOffIsDeletedAtOnce(t *testing.T) {
	w := newMachineTestEnv(t)
	start := w.env.Now()
	w.failCreations()
	w.changeAfterDelay(time.Minute, func() { w.decision.Need = attention.NeedDeletion })
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Less(t, w.env.Now().Sub(start), 2*time.Minute)
}

func TestMachineWithADuplicateNodeNameFailsAndItsInstanceIsDeleted(t *testing.T) {
	w := newMachineTestEnv(t)
	w.staleRecordReason = "VM using old node obj: node m-1 belongs to instance i-0"
	w.runMachine(t)
	require.Equal(t, []string{"record virtual:///i-1", "delete virtual:///i-1", "report Failed"}, w.activityLog[4:7])
	require.False(
		t,
		w.providerCalls[len(w.providerCalls)-1].NeverTried,
		"the provider is told that there may be an instance",
	)
	require.Equal(
		t,
		machine.Condition{Type: "ReplacementDue", True: true, Reason: "StaleNode", Message: w.staleRecordReason},
		w.lastReport().Conditions[0],
	)
}

func TestEachAttemptHasATokenOfItsOwn(t *testing.T) {
	w := newMachineTestEnv(t)
	problem := &kube.Problem{Reason: "InvalidArgument", Message: "no such image", React: kube.ReactionUntilSpecChange}
	w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Problem: problem}, nil
	}
	w.changeAfterDelay(time.Minute, func() { problem = nil })
	w.changeAfterDelay(2*time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Len(t, w.tokenAttempts, 2)
	require.NotEqual(t, w.tokenAttempts[0], w.tokenAttempts[1])
	require.Equal(t, "bootstrap-token-1", w.providerCalls[0].Token.Name)
	require.Equal(t, 1, w.countActivities("finish"), "the tokens go when the node has joined")
}

func TestNoTokenIsIssuedIfUserDataNeedsNone(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Token = false
	w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Tokenless: "class/1 secret/2 "}, nil
	}
	w.changeAfterDelay(time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Zero(t, w.countActivities("token"))
	require.True(t, w.providerCalls[0].Tokenless, "the call fails if the user data has a place by now")
	require.True(t, w.createIntents[0].WithoutToken)
	require.Equal(t, "class/1 secret/2 ", w.instanceRecords[0].Tokenless)
}

// If a call fails because it needs a bootstrap token, the next decision reads from the API server, and the workflow
// calls again.
func TestTokenIsIssuedWhenACallFailsWithoutIt(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Token = false
	w.createInstance = func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if in.Tokenless {
			w.decision.Token = true
			return cloud.InstanceAnswer{}, kube.TokenNeededError("small")
		}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	w.changeAfterDelay(time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Equal(t, []string{"decide", "begin", "create", "decide", "token", "begin", "create"}, w.activityLog[:7])
	require.False(t, w.createIntents[1].WithoutToken)
	require.Equal(t, "bootstrap-token-1", w.providerCalls[1].Token.Name)
}

func TestMachineWithoutATargetIsAvailableWhenItsInstanceExists(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Target, w.decision.Token = false, false
	w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{
			ProviderID:    "virtual:///i-1",
			NodeName:      "m-1",
			Addresses:     []kube.Address{{Type: "InternalIP", Address: "10.0.0.1"}},
			Uninitialized: true,
		}, nil
	}
	w.runMachine(t)
	require.Equal(
		t,
		[]string{
			"decide",
			"begin",
			"create",
			"record virtual:///i-1",
			"initialise virtual:///i-1",
			"report Available",
			"decide",
		},
		w.activityLog,
	)
	require.Equal(
		t,
		[]kube.Address{{Type: "Hostname", Address: "m-1"}, {Type: "InternalIP", Address: "10.0.0.1"}},
		w.lastReport().Addresses,
	)
	require.Equal(t, "Successful", w.lastReport().Operation.State)
	require.Equal(t, []string{"InstanceCreated"}, w.eventReasons(), "no event Joined follows")
}

// setUnhealthy makes a Running machine unhealthy until the given end of its health timeout.
func (w *machineTestEnv) setUnhealthy(until time.Time) {
	w.decision.Need = attention.NeedRecovery
	w.decision.Phase = "Unknown"
	w.decision.NodeName = "m-1"
	w.decision.ProviderID = "virtual:///i-1"
	w.decision.Health = &health.Verdict{Why: "node m-1: Ready is Unknown", Deadline: until, Look: true}
}

func (w *machineTestEnv) setHealthFailed() {
	w.decision.Health = &health.Verdict{
		Change: &health.PhaseChange{Phase: "Failed", Operation: "HealthCheck", State: "Failed", Message: "not healthy"},
	}
}

func TestHealthTimeoutFiresOnTime(t *testing.T) {
	w := newMachineTestEnv(t)
	until := w.env.Now().Add(10 * time.Minute)
	w.setUnhealthy(until)
	for at := time.Minute; at < 10*time.Minute; at += time.Minute {
		w.changeAfterDelay(at, func() {}) // signals about changing conditions do not delay the check
	}
	w.env.RegisterDelayedCallback(w.setHealthFailed, 10*time.Minute-time.Second)
	var failed time.Time
	w.onReport = func(in machine.Report) {
		if in.Phase == "Failed" {
			failed = w.decisionTime
		}
	}
	w.runMachine(t)
	require.Equal(t, until.Unix(), failed.Unix())
	require.Equal(t, 1, w.countActivities("look"), "the provider is asked once")
}

func TestMachineWithoutAHealthTimeoutWaitsForItsNode(t *testing.T) {
	w := newMachineTestEnv(t)
	w.setUnhealthy(time.Time{})
	w.changeAfterDelay(100*time.Hour, w.setNodeJoined)
	w.runMachine(t)
	require.Equal(t, "Running", w.lastReport().Phase)
}

func TestVanishedInstanceIsNoticedEarly(t *testing.T) {
	w := newMachineTestEnv(t)
	start := w.env.Now()
	w.setUnhealthy(start.Add(10 * time.Minute))
	w.isInstanceGone = true
	w.onReport = func(in machine.Report) {
		if in.InstanceGone {
			w.setHealthFailed()
		}
	}
	w.runMachine(t)
	require.Equal(t, "Failed", w.lastReport().Phase)
	require.Less(t, w.env.Now().Sub(start), time.Minute)
}

// newVanishedInstanceTestEnv returns a world with an unhealthy node and without its instance. The machine becomes
// Failed when the missing instance is recorded.
func newVanishedInstanceTestEnv(t *testing.T) *machineTestEnv {
	w := newMachineTestEnv(t)
	w.setUnhealthy(w.env.Now().Add(10 * time.Minute))
	w.isInstanceGone = true
	w.onReport = func(in machine.Report) {
		if in.InstanceGone {
			w.setHealthFailed()
		}
	}
	return w
}

// While the provider call is open, the conditions of the unhealthy node cause signals.
func TestSignalsDoNotEndTheInstanceGoneCheck(t *testing.T) {
	w := newVanishedInstanceTestEnv(t)
	start := w.env.Now()
	w.instanceStatusDuration = 10 * time.Second
	for at := range 9 {
		w.changeAfterDelay(time.Duration(at+1)*time.Second, func() {})
	}
	w.runMachine(t)
	require.Equal(t, "Failed", w.lastReport().Phase)
	require.Equal(t, 1, w.countActivities("look"))
	require.Less(t, w.env.Now().Sub(start), time.Minute)
}

func TestInstanceGoneCheckIsRepeatedUntilTheProviderAnswers(t *testing.T) {
	for name, fails := range map[string]func() (cloud.InstanceAnswer, error){
		"a problem": func() (cloud.InstanceAnswer, error) {
			return cloud.InstanceAnswer{Problem: &kube.Problem{Reason: "Unavailable", Message: "away", React: kube.ReactionRetry}}, nil
		},
		"no answer": func() (cloud.InstanceAnswer, error) {
			return cloud.InstanceAnswer{}, temporal.NewNonRetryableApplicationError("no", "any", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newVanishedInstanceTestEnv(t)
			var known []*kube.Problem
			w.instanceStatus = func(in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
				if known = append(known, in.Known); len(known) == 1 {
					return fails()
				}
				return cloud.InstanceAnswer{Gone: true}, nil
			}
			w.runMachine(t)
			require.Equal(t, "Failed", w.lastReport().Phase)
			require.Len(t, known, 2)
			require.Nil(t, known[0])
			require.NotNil(t, known[1], "from the second call on, the retry policy waits between two attempts")
		})
	}
}

func TestInstanceGoneCheckIsRepeatedAtTheNextSignal(t *testing.T) {
	w := newVanishedInstanceTestEnv(t)
	asked := 0
	w.instanceStatus = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if asked++; asked < 3 {
			return cloud.InstanceAnswer{
				Problem: &kube.Problem{
					Reason:  "Unauthenticated",
					Message: "wrong token",
					React:   kube.ReactionUntilCredentialChange,
				},
			}, nil
		}
		return cloud.InstanceAnswer{Gone: true}, nil
	}
	w.changeAfterDelay(time.Minute, func() {})
	w.changeAfterDelay(2*time.Minute, func() { require.Equal(t, 2, asked, "once for each signal") })
	w.runMachine(t)
	require.Equal(t, "Failed", w.lastReport().Phase)
	require.Equal(t, 3, asked)
}

// If the machine is deleted while the call is open, the deletion cancels the call. The machine never has two calls open
// at the same time.
func TestDeletionEndsTheInstanceGoneCheck(t *testing.T) {
	w := newVanishedInstanceTestEnv(t)
	w.instanceStatusDuration = time.Hour
	w.changeAfterDelay(time.Second, func() { w.decision.Need = attention.NeedDeletion })
	start := w.env.Now()
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Less(t, w.env.Now().Sub(start), time.Minute)
}

func TestMachineWaitsForItsReplacementToBeGranted(t *testing.T) {
	w := newMachineTestEnv(t)
	w.setUnhealthy(time.Time{})
	due := &health.ReplacementDue{True: true, Reason: "HealthTimeout", Message: "not healthy"}
	w.decision.Health.Due, w.decision.Health.Look = due, false
	w.changeAfterDelay(time.Hour, w.setHealthFailed)
	w.runMachine(t)
	require.Equal(
		t,
		[]machine.Condition{{Type: "ReplacementDue", True: true, Reason: "HealthTimeout", Message: "not healthy"}},
		w.reports[0].Conditions,
	)
	require.Equal(t, 1, w.countActivities("report "), "said once")
	require.Equal(t, "Failed", w.lastReport().Phase)
}

// If most nodes look unhealthy, the circuit breaker stops the replacement, and the status does not ask for a repair of
// this machine.
func TestReplacementHeldByTheCircuitBreakerIsShown(t *testing.T) {
	for held, by := range map[bool]string{false: "HealthTimeout", true: "ReplacementHeld"} {
		w := newMachineTestEnv(t)
		w.setUnhealthy(time.Time{})
		w.decision.Health.Due = &health.ReplacementDue{True: true, Reason: "HealthTimeout", Message: "not healthy"}
		w.decision.Health.Look = false
		w.decision.Health.Held = held
		w.changeAfterDelay(time.Hour, w.setHealthFailed)
		w.runMachine(t)
		require.Equal(t, []string{by}, w.reports[0].Step.BlockedBy)
		require.Equal(t, "HealthTimeout", w.reports[0].Conditions[0].Reason, "why it is due")
	}
}

func TestFailedNodeSyncIsRetriedOnlyAfterAChange(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Need, w.decision.Phase = attention.NeedNodeSync, "Running"
	w.changeAfterDelay(time.Minute, func() { w.decision.Need = attention.NeedNothing })
	w.runMachine(t)
	require.Equal(
		t,
		[]string{"decide", "sync", "decide", "sync", "decide", "decide"},
		w.activityLog,
		"what cannot be written is tried again when something changed",
	)
}

func TestDeletionOfANeverCreatedMachineNeedsNoClass(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Need = attention.NeedDeletion
	w.decision.Problem = &kube.Problem{
		Reason:  "ClassNotFound",
		Message: "MachineClass small does not exist",
		React:   kube.ReactionUntilCredentialChange,
	}
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Equal(t, []string{"decide", "release"}, w.activityLog)
}

func TestDeletionOfANeverCreatedMachineNeedsNoSecret(t *testing.T) {
	w := newMachineTestEnv(t)
	w.decision.Need = attention.NeedDeletion
	w.deletionAnswer = cloud.InstanceAnswer{
		Problem: &kube.Problem{
			Reason:  "SecretNotFound",
			Message: "Secret cloud does not exist",
			React:   kube.ReactionUntilCredentialChange,
		},
	}
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Equal(t, "release", w.activityLog[len(w.activityLog)-1])
}

// A failed call may have created an instance, so only the first call may assume that no instance exists.
func TestOnlyTheFirstCallAssumesNoEarlierCreate(t *testing.T) {
	w := newMachineTestEnv(t)
	w.failCreations()
	w.changeAfterDelay(time.Second, func() {
		w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
		}
	})
	w.changeAfterDelay(time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Greater(t, len(w.providerCalls), 1)
	require.True(t, w.providerCalls[0].NeverTried)
	for _, call := range w.providerCalls[1:] {
		require.False(t, call.NeverTried)
	}
}

// A deleted token is issued again for the same attempt, and the call backs off.
func TestDeletedTokenIsIssuedAgain(t *testing.T) {
	w := newMachineTestEnv(t)
	w.createInstance = func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if in.Known == nil {
			return cloud.InstanceAnswer{
				Problem: &kube.Problem{
					Reason:  kube.ReasonTokenGone,
					Message: "bootstrap token does not exist any more",
					React:   kube.ReactionRetry,
				},
			}, nil
		}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	w.changeAfterDelay(time.Minute, w.setNodeJoined)
	w.runMachine(t)
	require.Len(t, w.tokenAttempts, 2)
	require.Equal(t, w.tokenAttempts[0], w.tokenAttempts[1])
	require.Equal(t, kube.ReasonTokenGone, w.reports[0].Operation.ErrorCode)
}

// A target cluster that does not answer delays neither the creation timeout nor a deletion.
func TestMissingTokenDelaysNeitherTimeoutNorDeletion(t *testing.T) {
	away := func(w *machineTestEnv) { w.tokenError = temporal.NewApplicationError("the API server is away", "Away") }
	t.Run("fails on time", func(t *testing.T) {
		w := newMachineTestEnv(t)
		deadline := w.env.Now().Add(40 * time.Second)
		w.decision.CreateBy = deadline
		away(w)
		w.runMachine(t)
		require.Equal(t, "Failed", w.lastReport().Phase)
		require.Equal(t, deadline.Unix(), w.failureTime.Unix())
	})
	t.Run("is deleted at once", func(t *testing.T) {
		w := newMachineTestEnv(t)
		start := w.env.Now()
		away(w)
		w.changeAfterDelay(time.Minute, func() { w.decision.Need = attention.NeedDeletion })
		require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
		require.Less(t, w.env.Now().Sub(start), 2*time.Minute)
	})
}
