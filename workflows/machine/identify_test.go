package machine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/workflows/run"
)

// newNameless is a world with a machine that is being deleted, and whose creation was interrupted before the names of
// its instance were recorded.
func newNameless(t *testing.T) *world {
	w := newGoing(t)
	w.decision.ProviderID, w.decision.NodeName, w.decision.Target = "", "", true
	return w
}

func refusal(reason string, react kube.Reaction) cloud.InstanceAnswer {
	return cloud.InstanceAnswer{
		Problem: &kube.Problem{Reason: reason, Message: "the cloud says " + reason, React: react, Failures: 1},
	}
}

// noAnswer fails like a provider that does not answer. The test environment gives up after a few attempts, a server
// does not.
func noAnswer(in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
	wait := 2 * time.Second
	if in.Known != nil {
		wait = 15 * time.Minute
	}
	return cloud.InstanceAnswer{}, temporal.NewApplicationErrorWithOptions(
		"connection refused",
		"",
		temporal.ApplicationErrorOptions{NextRetryDelay: wait},
	)
}

func found() cloud.InstanceAnswer {
	return cloud.InstanceAnswer{ProviderID: "virtual:///m-1", NodeName: "m-1"}
}

func TestInstanceThatNobodyRecordedIsDrainedToo(t *testing.T) {
	w := newNameless(t)
	w.unrecorded = "virtual:///m-1"
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Equal(
		t,
		[]string{
			"decide",
			"look",
			"record virtual:///m-1",
			"decide",
			"weigh",
			"report Terminating",
			"decide",
			"announce",
			"weigh",
			"drain m-1",
		},
		w.log[:10],
	)
}

// An answer that settles the question: there is no name to tell.
func TestInstanceThatWasNeverMadeIsAskedForOnce(t *testing.T) {
	for name, answer := range map[string]cloud.InstanceAnswer{
		"NotFound":      {Gone: true, Problem: refusal("NotFound", kube.Retry).Problem},
		"Unimplemented": refusal("Unimplemented", kube.UntilSpec),
		"AlreadyExists": refusal("AlreadyExists", kube.UntilSpec), // another Machine's
		"no name":       {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNameless(t)
			w.going.Node = false
			w.look = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) { return answer, nil }
			require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
			require.Equal(t, []string{"decide", "look", "report Terminating", "delete ", "decide", "release"}, w.log)
		})
	}
}

// A refusal is shown with the provider's words, and the question is repeated: a node that joins later is drained.
func TestAnInstanceIsAskedForUntilTheProviderAnswers(t *testing.T) {
	w := newNameless(t)
	looks := 0
	w.look = func(in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		switch looks++; looks {
		case 1:
			require.Nil(t, in.Known)
			return refusal("Unavailable", kube.Retry), nil
		case 2:
			require.Equal(t, "Unavailable", in.Known.Reason)
			return refusal("Internal", kube.Retry), nil
		default:
			return found(), nil
		}
	}
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Equal(t, []string{
		"decide",
		"look",
		"report Terminating",
		"look",
		"report Terminating",
		"look",
		"record virtual:///m-1",
		"decide",
		"weigh",
		"report Terminating",
	}, w.log[:10])
	require.Contains(t, w.log, "drain m-1")
	first := w.reports[0]
	require.Equal(t, "instance-status", first.Step.Name)
	require.Equal(t, []string{"Unavailable"}, first.Step.BlockedBy)
	require.Equal(t, "Cloud provider message - the cloud says Unavailable", first.Operation.Description)
	require.Equal(t, "Failed", first.Operation.State)
	require.Nil(t, first.Deletion, "no stage is recorded: a later one would skip the drain for good")
}

// A provider that does not answer at all is shown after half a minute, and waited for.
func TestAProviderThatIsSilentIsWaitedFor(t *testing.T) {
	w := newNameless(t)
	silent := true
	w.look = func(in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if silent {
			return noAnswer(in)
		}
		return found(), nil
	}
	w.after(time.Hour, func() {
		require.NotContains(t, w.log, "delete ")
		require.Equal(t, []string{"DeadlineExceeded"}, w.reports[0].Step.BlockedBy)
		require.Equal(
			t,
			"Cloud provider message - provider virtual has not said whether there is an instance",
			w.reports[0].Operation.Description,
		)
		silent = false
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Contains(t, w.log, "drain m-1")
}

// A problem that only a person can solve waits for a change.
func TestAnInstanceIsAskedForAgainWhenTheCauseIsMended(t *testing.T) {
	for name, fail := range map[string]func(w *world){
		"the cloud refuses": func(w *world) {
			w.look = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) {
				return refusal("Unauthenticated", kube.UntilCredential), nil
			}
		},
		"the class is missing": func(w *world) {
			w.decision.Problem = &kube.Problem{Reason: "ClassNotFound", Message: "MachineClass small does not exist", React: kube.UntilCredential}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNameless(t)
			fail(w)
			w.after(time.Minute, func() {
				require.Len(t, w.reports[0].Step.BlockedBy, 1)
				require.Equal(t, "instance-status", w.reports[0].Step.Name)
				require.NotContains(t, w.log, "delete ")
				w.decision.Problem, w.look, w.unrecorded = nil, nil, "virtual:///m-1"
			})
			require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
			require.Contains(t, w.log, "drain m-1")
		})
	}
}

// A person ends the question, at whatever point it is.
func TestAPersonEndsTheQuestionForAnInstance(t *testing.T) {
	stuck := func(cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return refusal("PermissionDenied", kube.UntilCredential), nil
	}
	for name, request := range map[string]func(f *deletion.Facts){
		"skip":    func(f *deletion.Facts) { f.Skip = "annotation skip asks for it: alice: cluster is gone" },
		"abandon": func(f *deletion.Facts) { f.Abandon = "annotation abandon-instance asks for it: alice: deleted by hand" },
	} {
		for how, look := range map[string]func(cloud.InstanceCall) (cloud.InstanceAnswer, error){"silent": noAnswer, "stuck": stuck} {
			t.Run(name+", "+how, func(t *testing.T) {
				w := newNameless(t)
				w.going.Node, w.look = false, look
				start := w.env.Now()
				w.after(10*time.Minute, func() {
					require.NotContains(t, w.log, "release")
					request(&w.going)
				})
				require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
				require.Less(t, w.env.Now().Sub(start), 11*time.Minute)
				require.Equal(t, name == "skip", slices.Contains(w.log, "delete "))
			})
		}
	}
}

// The annotation exclude was there before: the provider is asked once, because the Node has to be removed all the same.
func TestAMachineThatIsNotDrainedAsksForItsInstanceOnce(t *testing.T) {
	for name, answers := range map[string]bool{"it answers": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			w := newNameless(t)
			w.going.Skip = "annotation exclude asks for it"
			w.look = func(in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
				if answers {
					return found(), nil
				}
				return noAnswer(in)
			}
			w.after(5*time.Second, func() {}) // a signal does not end the question
			start := w.env.Now()
			require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
			require.LessOrEqual(t, w.env.Now().Sub(start), time.Minute)
			require.Equal(t, answers, slices.Contains(w.log, "delete node m-1"))
			require.NotContains(t, w.log, "drain m-1")
		})
	}
}

// A hold comes before the question, and no stage is recorded under it.
func TestAHeldDeletionAsksForItsInstanceAfterTheHold(t *testing.T) {
	w := newNameless(t)
	w.going.Hold, w.unrecorded = "alice: look at it first", "virtual:///m-1"
	w.after(time.Hour, func() {
		require.NotContains(t, w.log, "look")
		require.Equal(t, []string{"Hold"}, w.reports[0].Step.BlockedBy)
		require.Equal(t, "held by alice (look at it first)", w.reports[0].Event.Message)
		require.Nil(t, w.reports[0].Deletion)
		w.going.Hold = ""
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Contains(t, w.log, "drain m-1")
}

// A label alone says that a node is of the machine, as after a takeover from a driver whose nodes have no provider ID.
// The provider tells the name of the instance's node.
func TestWhoseTheNodeOfAMachineThatStaysIsAsked(t *testing.T) {
	doubtful := func(t *testing.T) *world {
		w := newWorld(t)
		w.decision.Need, w.decision.Phase, w.decision.NodeName = attention.Sync, "Running", "m-1"
		w.decision.NeverTried, w.decision.InDoubt, w.decision.Ask = false, true, true
		return w
	}
	t.Run("the provider knows", func(t *testing.T) {
		w := doubtful(t)
		w.look = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			w.decision.Need, w.decision.InDoubt, w.decision.Ask = attention.Nothing, false, false
			return found(), nil
		}
		require.Equal(t, run.OutcomeCalm, w.run(t).Outcome)
		require.Equal(t, 1, w.count("look"))
		require.True(t, w.records[0].Told)
		require.Equal(t, "m-1", w.records[0].NodeName)
		require.Empty(t, w.reports, "nothing to say")
	})
	t.Run("the provider does not know", func(t *testing.T) {
		w := doubtful(t)
		w.look = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) { return cloud.InstanceAnswer{}, nil }
		w.after(3*time.Hour, func() { w.decision.Need, w.decision.InDoubt = attention.Nothing, false })
		w.run(t)
		require.Equal(t, 1, w.count("look"), "once")
		require.Empty(t, w.records)
		require.Equal(t, []string{"OwnershipInDoubt"}, w.reports[0].Step.BlockedBy)
		require.Equal(t, "OwnershipInDoubt", w.reports[0].Event.Reason)
	})
}
