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

func (w *world) last() machine.Report { return w.reports[len(w.reports)-1] }

func (w *world) count(what string) (n int) {
	for _, entry := range w.log {
		if entry == what {
			n++
		}
	}
	return n
}

// failing makes every creation fail with a temporary problem and a back-off of a quarter of an hour.
func (w *world) failing() {
	problem := kube.Problem{Reason: "ResourceExhausted", Message: "no room", React: kube.RetryLong}
	w.create = func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
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

// Somebody rewrites an annotation of the machine each second. The provider is called again only when its class changes.
func TestASignalThatChangesNothingForTheCallEndsNoBackOff(t *testing.T) {
	w := newWorld(t)
	w.failing()
	w.decision.Call = "as before"
	rewritten := func(from time.Duration) {
		for n := range 60 {
			w.after(from+time.Duration(n)*time.Second, func() {})
		}
	}
	rewritten(time.Minute)
	w.after(3*time.Minute, func() {
		require.Len(t, w.calls, 2, "one that met the problem, and one that backs off")
		w.decision.Call = "otherwise"
	})
	rewritten(4 * time.Minute)
	w.after(6*time.Minute, func() { require.Len(t, w.calls, 4, "the same two again") })
	w.run(t)
	require.Equal(t, "Failed", w.last().Phase)
}

// A run whose history grows while a call backs off ends, and the next one begins when the call has ended.
func TestABackOffDoesNotKeepALongRunOpen(t *testing.T) {
	w := newWorld(t)
	w.failing()
	w.decision.Call = "as before"
	w.after(3*time.Minute, func() { w.env.SetContinueAsNewSuggested(true) })
	begun := w.env.Now()
	w.env.ExecuteWorkflow(workflows.Machine, run.Input{Ref: workflowstest.Ref})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, w.env.GetWorkflowError(), &next)
	require.Less(t, w.env.Now().Sub(begun), 4*time.Minute)
	require.Len(t, w.calls, 2)
}

func TestMachineThatNeverJoinsFailsAtItsDeadline(t *testing.T) {
	w := newWorld(t)
	deadline := w.decision.CreateBy
	for at := time.Minute; at < 20*time.Minute; at += 3 * time.Minute {
		w.after(at, func() {}) // no signal restarts the clock
	}
	require.Equal(t, run.OutcomeCalm, w.run(t).Outcome)
	require.Equal(t, "Failed", w.last().Phase)
	require.Equal(t, deadline.Unix(), w.failedAt.Unix())
}

// The deadline fires on time although the next attempt would come much later.
func TestMachineThatBacksOffFailsAtItsDeadline(t *testing.T) {
	w := newWorld(t)
	deadline := w.decision.CreateBy
	w.failing()
	w.run(t)
	require.Equal(t, "Failed", w.last().Phase)
	require.Equal(t, deadline.Unix(), w.failedAt.Unix())
}

func TestMachineTriesAtOnceWhenSomethingChangedDuringItsBackOff(t *testing.T) {
	w := newWorld(t)
	start := w.env.Now()
	w.failing()
	w.after(3*time.Minute, func() {
		w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
		}
	})
	w.after(4*time.Minute, w.joined)
	w.run(t)
	require.Equal(t, "Running", w.last().Phase)
	require.Less(t, w.env.Now().Sub(start), 6*time.Minute)
}

func TestMachineThatWaitsForAPersonDoesNotFail(t *testing.T) {
	w := newWorld(t)
	problem := &kube.Problem{Reason: "Unauthenticated", Message: "the token is wrong", React: kube.UntilCredential}
	w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Problem: problem}, nil
	}
	w.reported = func(in machine.Report) {
		if in.Stopped {
			w.decision.CreateBy = w.decidedAt.Add(100 * time.Hour) // as DecideMachine computes it while the clock stands still
		}
	}
	w.after(50*time.Hour, func() { problem = nil })
	w.after(51*time.Hour, w.joined)
	w.run(t)
	require.Equal(t, "Running", w.last().Phase)
	require.Zero(t, w.count("report Failed"))
}

// A deletion does not wait behind the back-off of a creation.
func TestMachineThatBacksOffIsDeletedAtOnce(t *testing.T) {
	w := newWorld(t)
	start := w.env.Now()
	w.failing()
	w.after(time.Minute, func() { w.decision.Need = attention.Deletion })
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Less(t, w.env.Now().Sub(start), 2*time.Minute)
}

func TestMachineWhoseNodeNameIsTakenFailsAndItsInstanceGoes(t *testing.T) {
	w := newWorld(t)
	w.stale = "VM using old node obj: node m-1 belongs to instance i-0"
	w.run(t)
	require.Equal(t, []string{"record virtual:///i-1", "delete virtual:///i-1", "report Failed"}, w.log[4:7])
	require.False(t, w.calls[len(w.calls)-1].NeverTried, "the provider is told that there may be an instance")
	require.Equal(
		t,
		machine.Condition{Type: "ReplacementDue", True: true, Reason: "StaleNode", Message: w.stale},
		w.last().Conditions[0],
	)
}

func TestEachAttemptHasATokenOfItsOwn(t *testing.T) {
	w := newWorld(t)
	problem := &kube.Problem{Reason: "InvalidArgument", Message: "no such image", React: kube.UntilSpec}
	w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Problem: problem}, nil
	}
	w.after(time.Minute, func() { problem = nil })
	w.after(2*time.Minute, w.joined)
	w.run(t)
	require.Len(t, w.attempts, 2)
	require.NotEqual(t, w.attempts[0], w.attempts[1])
	require.Equal(t, "bootstrap-token-1", w.calls[0].Token.Name)
	require.Equal(t, 1, w.count("finish"), "the tokens go when the node has joined")
}

func TestMachineWhoseUserDataHasNoPlaceForAToken(t *testing.T) {
	w := newWorld(t)
	w.decision.Token = false
	w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1", Tokenless: "class/1 secret/2 "}, nil
	}
	w.after(time.Minute, w.joined)
	w.run(t)
	require.Zero(t, w.count("token"))
	require.True(t, w.calls[0].Tokenless, "the call fails if the user data has a place by now")
	require.True(t, w.begins[0].WithoutToken)
	require.Equal(t, "class/1 secret/2 ", w.records[0].Tokenless)
}

// A call that needed a token after all leads to a live decision, and to another attempt.
func TestMachineWhoseUserDataHasAPlaceForATokenByNow(t *testing.T) {
	w := newWorld(t)
	w.decision.Token = false
	w.create = func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if in.Tokenless {
			w.decision.Token = true
			return cloud.InstanceAnswer{}, kube.TokenNeeded("small")
		}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	w.after(time.Minute, w.joined)
	w.run(t)
	require.Equal(t, []string{"decide", "begin", "create", "decide", "token", "begin", "create"}, w.log[:7])
	require.False(t, w.begins[1].WithoutToken)
	require.Equal(t, "bootstrap-token-1", w.calls[1].Token.Name)
}

func TestMachineWithoutATargetIsAvailableWhenItsInstanceIsThere(t *testing.T) {
	w := newWorld(t)
	w.decision.Target, w.decision.Token = false, false
	w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return cloud.InstanceAnswer{
			ProviderID:    "virtual:///i-1",
			NodeName:      "m-1",
			Addresses:     []kube.Address{{Type: "InternalIP", Address: "10.0.0.1"}},
			Uninitialized: true,
		}, nil
	}
	w.run(t)
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
		w.log,
	)
	require.Equal(
		t,
		[]kube.Address{{Type: "Hostname", Address: "m-1"}, {Type: "InternalIP", Address: "10.0.0.1"}},
		w.last().Addresses,
	)
	require.Equal(t, "Successful", w.last().Operation.State)
	require.Equal(t, []string{"InstanceCreated"}, w.events(), "no event Joined follows")
}

// unhealthy is a machine that was Running until now and whose health timeout ends at that time.
func (w *world) unhealthy(until time.Time) {
	w.decision.Need = attention.Recovery
	w.decision.Phase = "Unknown"
	w.decision.NodeName = "m-1"
	w.decision.ProviderID = "virtual:///i-1"
	w.decision.Health = &health.Verdict{Why: "node m-1: Ready is Unknown", Deadline: until, Look: true}
}

func (w *world) healthFailed() {
	w.decision.Health = &health.Verdict{
		Change: &health.Change{Phase: "Failed", Operation: "HealthCheck", State: "Failed", Message: "not healthy"},
	}
}

func TestUnhealthyMachineIsLookedAtOnTime(t *testing.T) {
	w := newWorld(t)
	until := w.env.Now().Add(10 * time.Minute)
	w.unhealthy(until)
	for at := time.Minute; at < 10*time.Minute; at += time.Minute {
		w.after(at, func() {}) // flapping conditions do not postpone it
	}
	w.env.RegisterDelayedCallback(w.healthFailed, 10*time.Minute-time.Second)
	var failed time.Time
	w.reported = func(in machine.Report) {
		if in.Phase == "Failed" {
			failed = w.decidedAt
		}
	}
	w.run(t)
	require.Equal(t, until.Unix(), failed.Unix())
	require.Equal(t, 1, w.count("look"), "the provider is asked once")
}

func TestWithoutAHealthTimeoutItWaitsForTheNode(t *testing.T) {
	w := newWorld(t)
	w.unhealthy(time.Time{})
	w.after(100*time.Hour, w.joined)
	w.run(t)
	require.Equal(t, "Running", w.last().Phase)
}

func TestVanishedInstanceIsNoticedEarly(t *testing.T) {
	w := newWorld(t)
	start := w.env.Now()
	w.unhealthy(start.Add(10 * time.Minute))
	w.gone = true
	w.reported = func(in machine.Report) {
		if in.InstanceGone {
			w.healthFailed()
		}
	}
	w.run(t)
	require.Equal(t, "Failed", w.last().Phase)
	require.Less(t, w.env.Now().Sub(start), time.Minute)
}

// vanished is a world whose node is unhealthy and whose instance is gone; it fails when that is on record.
func vanished(t *testing.T) *world {
	w := newWorld(t)
	w.unhealthy(w.env.Now().Add(10 * time.Minute))
	w.gone = true
	w.reported = func(in machine.Report) {
		if in.InstanceGone {
			w.healthFailed()
		}
	}
	return w
}

// The events of a node that dies arrive while the provider is asked.
func TestSignalsDoNotEndTheQuestionWhetherTheInstanceIsGone(t *testing.T) {
	w := vanished(t)
	start := w.env.Now()
	w.looks = 10 * time.Second
	for at := range 9 {
		w.after(time.Duration(at+1)*time.Second, func() {})
	}
	w.run(t)
	require.Equal(t, "Failed", w.last().Phase)
	require.Equal(t, 1, w.count("look"))
	require.Less(t, w.env.Now().Sub(start), time.Minute)
}

func TestTheProviderIsAskedUntilItAnswers(t *testing.T) {
	for name, fails := range map[string]func() (cloud.InstanceAnswer, error){
		"a problem": func() (cloud.InstanceAnswer, error) {
			return cloud.InstanceAnswer{Problem: &kube.Problem{Reason: "Unavailable", Message: "away", React: kube.Retry}}, nil
		},
		"no answer": func() (cloud.InstanceAnswer, error) {
			return cloud.InstanceAnswer{}, temporal.NewNonRetryableApplicationError("no", "any", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := vanished(t)
			var known []*kube.Problem
			w.look = func(in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
				if known = append(known, in.Known); len(known) == 1 {
					return fails()
				}
				return cloud.InstanceAnswer{Gone: true}, nil
			}
			w.run(t)
			require.Equal(t, "Failed", w.last().Phase)
			require.Len(t, known, 2)
			require.Nil(t, known[0])
			require.NotNil(t, known[1], "from the second call on, the retry policy waits between two attempts")
		})
	}
}

func TestAQuestionThatWaitsForAPersonIsAskedAgainAtTheNextSignal(t *testing.T) {
	w := vanished(t)
	asked := 0
	w.look = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if asked++; asked < 3 {
			return cloud.InstanceAnswer{
				Problem: &kube.Problem{Reason: "Unauthenticated", Message: "wrong token", React: kube.UntilCredential},
			}, nil
		}
		return cloud.InstanceAnswer{Gone: true}, nil
	}
	w.after(time.Minute, func() {})
	w.after(2*time.Minute, func() { require.Equal(t, 2, asked, "once for each signal") })
	w.run(t)
	require.Equal(t, "Failed", w.last().Phase)
	require.Equal(t, 3, asked)
}

// A machine that is deleted meanwhile waits neither for the answer nor makes a second call beside it.
func TestTheNextCallEndsTheQuestion(t *testing.T) {
	w := vanished(t)
	w.looks = time.Hour
	w.after(time.Second, func() { w.decision.Need = attention.Deletion })
	start := w.env.Now()
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Less(t, w.env.Now().Sub(start), time.Minute)
}

func TestMachineWaitsForItsReplacementToBeGranted(t *testing.T) {
	w := newWorld(t)
	w.unhealthy(time.Time{})
	due := &health.Due{True: true, Reason: "HealthTimeout", Message: "not healthy"}
	w.decision.Health.Due, w.decision.Health.Look = due, false
	w.after(time.Hour, w.healthFailed)
	w.run(t)
	require.Equal(
		t,
		[]machine.Condition{{Type: "ReplacementDue", True: true, Reason: "HealthTimeout", Message: "not healthy"}},
		w.reports[0].Conditions,
	)
	require.Equal(t, 1, w.count("report "), "said once")
	require.Equal(t, "Failed", w.last().Phase)
}

// Most nodes look dead: it is not the machine that has to be repaired.
func TestAMachineThatTheBreakerHoldsSaysSo(t *testing.T) {
	for held, by := range map[bool]string{false: "HealthTimeout", true: "ReplacementHeld"} {
		w := newWorld(t)
		w.unhealthy(time.Time{})
		w.decision.Health.Due = &health.Due{True: true, Reason: "HealthTimeout", Message: "not healthy"}
		w.decision.Health.Look = false
		w.decision.Health.Held = held
		w.after(time.Hour, w.healthFailed)
		w.run(t)
		require.Equal(t, []string{by}, w.reports[0].Step.BlockedBy)
		require.Equal(t, "HealthTimeout", w.reports[0].Conditions[0].Reason, "why it is due")
	}
}

func TestMachineSyncsItsNodeAndDoesNotInsist(t *testing.T) {
	w := newWorld(t)
	w.decision.Need, w.decision.Phase = attention.Sync, "Running"
	w.after(time.Minute, func() { w.decision.Need = attention.Nothing })
	w.run(t)
	require.Equal(
		t,
		[]string{"decide", "sync", "decide", "sync", "decide", "decide"},
		w.log,
		"what cannot be written is tried again when something changed",
	)
}

func TestMachineThatWasNeverTriedNeedsNoClassToGo(t *testing.T) {
	w := newWorld(t)
	w.decision.Need = attention.Deletion
	w.decision.Problem = &kube.Problem{
		Reason:  "ClassNotFound",
		Message: "MachineClass small does not exist",
		React:   kube.UntilCredential,
	}
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Equal(t, []string{"decide", "release"}, w.log)
}

func TestMachineThatWasNeverTriedNeedsNoSecretToGo(t *testing.T) {
	w := newWorld(t)
	w.decision.Need = attention.Deletion
	w.deletion = cloud.InstanceAnswer{
		Problem: &kube.Problem{Reason: "SecretNotFound", Message: "Secret cloud does not exist", React: kube.UntilCredential},
	}
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Equal(t, "release", w.log[len(w.log)-1])
}

// A call that failed may have created an instance: only the first activity may assume that nothing was tried.
func TestOnlyTheFirstCallBelievesThatNothingWasTried(t *testing.T) {
	w := newWorld(t)
	w.failing()
	w.after(time.Second, func() {
		w.create = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
		}
	})
	w.after(time.Minute, w.joined)
	w.run(t)
	require.Greater(t, len(w.calls), 1)
	require.True(t, w.calls[0].NeverTried)
	for _, call := range w.calls[1:] {
		require.False(t, call.NeverTried)
	}
}

// A token that was deleted is issued again for the same attempt, and the call backs off.
func TestTokenThatIsGoneIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.create = func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if in.Known == nil {
			return cloud.InstanceAnswer{
				Problem: &kube.Problem{
					Reason:  kube.ReasonTokenGone,
					Message: "bootstrap token does not exist any more",
					React:   kube.Retry,
				},
			}, nil
		}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	w.after(time.Minute, w.joined)
	w.run(t)
	require.Len(t, w.attempts, 2)
	require.Equal(t, w.attempts[0], w.attempts[1])
	require.Equal(t, kube.ReasonTokenGone, w.reports[0].Operation.ErrorCode)
}

// A target cluster that does not answer delays neither the creation timeout nor a deletion.
func TestMachineWhoseTokenCannotBeMade(t *testing.T) {
	away := func(w *world) { w.noToken = temporal.NewApplicationError("the API server is away", "Away") }
	t.Run("fails on time", func(t *testing.T) {
		w := newWorld(t)
		deadline := w.env.Now().Add(40 * time.Second)
		w.decision.CreateBy = deadline
		away(w)
		w.run(t)
		require.Equal(t, "Failed", w.last().Phase)
		require.Equal(t, deadline.Unix(), w.failedAt.Unix())
	})
	t.Run("is deleted at once", func(t *testing.T) {
		w := newWorld(t)
		start := w.env.Now()
		away(w)
		w.after(time.Minute, func() { w.decision.Need = attention.Deletion })
		require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
		require.Less(t, w.env.Now().Sub(start), 2*time.Minute)
	})
}
