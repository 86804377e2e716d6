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

// newUnrecordedInstanceTestEnv returns a world with a machine that is being deleted. The machine's creation was
// interrupted before the names of its instance were recorded.
func newUnrecordedInstanceTestEnv(t *testing.T) *machineTestEnv {
	w := newDeletionTestEnv(t)
	w.decision.ProviderID, w.decision.NodeName, w.decision.Target = "", "", true
	return w
}

func problemAnswer(reason string, react kube.Reaction) cloud.InstanceAnswer {
	return cloud.InstanceAnswer{
		Problem: &kube.Problem{Reason: reason, Message: "the cloud says " + reason, React: react, Failures: 1},
	}
}

// unansweredError returns the error of a provider that does not answer. The test environment stops after a few
// attempts; a real server retries without limit.
func unansweredError(in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
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

func foundInstanceAnswer() cloud.InstanceAnswer {
	return cloud.InstanceAnswer{ProviderID: "virtual:///m-1", NodeName: "m-1"}
}

func TestUnrecordedInstanceIsDrained(t *testing.T) {
	w := newUnrecordedInstanceTestEnv(t)
	w.unrecordedInstance = "virtual:///m-1"
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
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
		w.activityLog[:10],
	)
}

// Some answers of the provider prove that there is no instance name to record.
func TestProviderIsAskedOnceForAnInstanceThatDoesNotExist(t *testing.T) {
	for name, answer := range map[string]cloud.InstanceAnswer{
		"NotFound":      {Gone: true, Problem: problemAnswer("NotFound", kube.ReactionRetry).Problem},
		"Unimplemented": problemAnswer("Unimplemented", kube.ReactionUntilSpecChange),
		"AlreadyExists": problemAnswer("AlreadyExists", kube.ReactionUntilSpecChange), // the instance belongs to another Machine
		"no name":       {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newUnrecordedInstanceTestEnv(t)
			w.deletionFacts.HasNode = false
			w.instanceStatus = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) { return answer, nil }
			require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
			require.Equal(t, []string{"decide", "look", "report Terminating", "delete ", "decide", "release"}, w.activityLog)
		})
	}
}

// If the provider refuses the call, the status shows the provider's message, and the workflow calls the provider again.
// If the node joins later, the node is drained.
func TestProviderIsAskedForTheInstanceUntilItAnswers(t *testing.T) {
	w := newUnrecordedInstanceTestEnv(t)
	looks := 0
	w.instanceStatus = func(in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		switch looks++; looks {
		case 1:
			require.Nil(t, in.Known)
			return problemAnswer("Unavailable", kube.ReactionRetry), nil
		case 2:
			require.Equal(t, "Unavailable", in.Known.Reason)
			return problemAnswer("Internal", kube.ReactionRetry), nil
		default:
			return foundInstanceAnswer(), nil
		}
	}
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
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
	}, w.activityLog[:10])
	require.Contains(t, w.activityLog, "drain m-1")
	first := w.reports[0]
	require.Equal(t, "instance-status", first.Step.Name)
	require.Equal(t, []string{"Unavailable"}, first.Step.BlockedBy)
	require.Equal(t, "Cloud provider message - the cloud says Unavailable", first.Operation.Description)
	require.Equal(t, "Failed", first.Operation.State)
	require.Nil(t, first.Deletion, "no stage is recorded: a later one would skip the drain for good")
}

// A provider that does not answer is shown after 30 seconds, and the deletion waits for the provider.
func TestDeletionWaitsForAProviderThatDoesNotAnswer(t *testing.T) {
	w := newUnrecordedInstanceTestEnv(t)
	silent := true
	w.instanceStatus = func(in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		if silent {
			return unansweredError(in)
		}
		return foundInstanceAnswer(), nil
	}
	w.changeAfterDelay(time.Hour, func() {
		require.NotContains(t, w.activityLog, "delete ")
		require.Equal(t, []string{"DeadlineExceeded"}, w.reports[0].Step.BlockedBy)
		require.Equal(
			t,
			"Cloud provider message - provider virtual has not said whether there is an instance",
			w.reports[0].Operation.Description,
		)
		silent = false
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Contains(t, w.activityLog, "drain m-1")
}

// If only a person can solve the problem, the workflow calls the provider again after a change.
func TestProviderIsAskedAgainWhenTheCauseIsRemoved(t *testing.T) {
	for name, fail := range map[string]func(w *machineTestEnv){
		"the cloud refuses": func(w *machineTestEnv) {
			w.instanceStatus = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) {
				return problemAnswer("Unauthenticated", kube.ReactionUntilCredentialChange), nil
			}
		},
		"the class is missing": func(w *machineTestEnv) {
			w.decision.Problem = &kube.Problem{Reason: "ClassNotFound", Message: "MachineClass small does not exist", React: kube.ReactionUntilCredentialChange}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newUnrecordedInstanceTestEnv(t)
			fail(w)
			w.changeAfterDelay(time.Minute, func() {
				require.Len(t, w.reports[0].Step.BlockedBy, 1)
				require.Equal(t, "instance-status", w.reports[0].Step.Name)
				require.NotContains(t, w.activityLog, "delete ")
				w.decision.Problem, w.instanceStatus, w.unrecordedInstance = nil, nil, "virtual:///m-1"
			})
			require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
			require.Contains(t, w.activityLog, "drain m-1")
		})
	}
}

// A person can at any time stop the calls that search for an instance.
func TestOperatorRequestEndsTheSearchForAnInstance(t *testing.T) {
	stuck := func(cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		return problemAnswer("PermissionDenied", kube.ReactionUntilCredentialChange), nil
	}
	for name, request := range map[string]func(f *deletion.Facts){
		"skip": func(f *deletion.Facts) { f.SkipDrainReason = "annotation skip asks for it: alice: cluster is gone" },
		"abandon": func(f *deletion.Facts) {
			f.AbandonReason = "annotation abandon-instance asks for it: alice: deleted by hand"
		},
	} {
		for how, look := range map[string]func(cloud.InstanceCall) (cloud.InstanceAnswer, error){"silent": unansweredError, "stuck": stuck} {
			t.Run(name+", "+how, func(t *testing.T) {
				w := newUnrecordedInstanceTestEnv(t)
				w.deletionFacts.HasNode, w.instanceStatus = false, look
				start := w.env.Now()
				w.changeAfterDelay(10*time.Minute, func() {
					require.NotContains(t, w.activityLog, "release")
					request(&w.deletionFacts)
				})
				require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
				require.Less(t, w.env.Now().Sub(start), 11*time.Minute)
				require.Equal(t, name == "skip", slices.Contains(w.activityLog, "delete "))
			})
		}
	}
}

// If the annotation exclude was set before, the provider is asked once, because the Node must be removed in any case.
func TestAMachineThatIsNotDrainedAsksForItsInstanceOnce(t *testing.T) {
	for name, answers := range map[string]bool{"it answers": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			w := newUnrecordedInstanceTestEnv(t)
			w.deletionFacts.SkipDrainReason = "annotation exclude asks for it"
			w.instanceStatus = func(in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
				if answers {
					return foundInstanceAnswer(), nil
				}
				return unansweredError(in)
			}
			w.changeAfterDelay(5*time.Second, func() {}) // a signal does not cancel the call
			start := w.env.Now()
			require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
			require.LessOrEqual(t, w.env.Now().Sub(start), time.Minute)
			require.Equal(t, answers, slices.Contains(w.activityLog, "delete node m-1"))
			require.NotContains(t, w.activityLog, "drain m-1")
		})
	}
}

// While the deletion is held, the provider is not called and no stage is recorded.
func TestAHeldDeletionAsksForItsInstanceAfterTheHold(t *testing.T) {
	w := newUnrecordedInstanceTestEnv(t)
	w.deletionFacts.HoldReason, w.unrecordedInstance = "alice: look at it first", "virtual:///m-1"
	w.changeAfterDelay(time.Hour, func() {
		require.NotContains(t, w.activityLog, "look")
		require.Equal(t, []string{"Hold"}, w.reports[0].Step.BlockedBy)
		require.Equal(t, "held by alice (look at it first)", w.reports[0].Event.Message)
		require.Nil(t, w.reports[0].Deletion)
		w.deletionFacts.HoldReason = ""
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Contains(t, w.activityLog, "drain m-1")
}

// Only a label assigns the node to the machine, as after a takeover from a driver whose nodes have no provider ID. The
// provider returns the name of the instance's node.
func TestProviderIsAskedForTheOwnerOfADoubtfulNode(t *testing.T) {
	doubtful := func(t *testing.T) *machineTestEnv {
		w := newMachineTestEnv(t)
		w.decision.Need, w.decision.Phase, w.decision.NodeName = attention.NeedNodeSync, "Running", "m-1"
		w.decision.NeverTried, w.decision.InDoubt, w.decision.Ask = false, true, true
		return w
	}
	t.Run("the provider knows", func(t *testing.T) {
		w := doubtful(t)
		w.instanceStatus = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) {
			w.decision.Need, w.decision.InDoubt, w.decision.Ask = attention.NeedNothing, false, false
			return foundInstanceAnswer(), nil
		}
		require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
		require.Equal(t, 1, w.countActivities("look"))
		require.True(t, w.instanceRecords[0].Told)
		require.Equal(t, "m-1", w.instanceRecords[0].NodeName)
		require.Empty(t, w.reports, "nothing to say")
	})
	t.Run("the provider does not know", func(t *testing.T) {
		w := doubtful(t)
		w.instanceStatus = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) { return cloud.InstanceAnswer{}, nil }
		w.changeAfterDelay(3*time.Hour, func() { w.decision.Need, w.decision.InDoubt = attention.NeedNothing, false })
		w.runMachine(t)
		require.Equal(t, 1, w.countActivities("look"), "once")
		require.Empty(t, w.instanceRecords)
		require.Equal(t, []string{"OwnershipInDoubt"}, w.reports[0].Step.BlockedBy)
		require.Equal(t, "OwnershipInDoubt", w.reports[0].Event.Reason)
	})
}
