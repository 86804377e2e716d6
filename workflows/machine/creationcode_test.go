package machine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/provider"
	"millwright/workflows/run"
)

// A creation fails with the provider's code Internal. The machine is in CrashLoopBackOff with this code, and the call
// is retried until the creation succeeds. A worker returns the problem as a result or as a failure.
func TestCreationIsRetriedAfterAnInternalError(t *testing.T) {
	for name, answer := range map[string]func(cloud.InstanceAnswer) (cloud.InstanceAnswer, error){
		"result": func(a cloud.InstanceAnswer) (cloud.InstanceAnswer, error) { return a, nil },
		"failure": func(a cloud.InstanceAnswer) (cloud.InstanceAnswer, error) {
			return cloud.InstanceAnswer{}, kube.ProblemError(*a.Problem, a)
		},
	} {
		t.Run(name, func(t *testing.T) { testCreationAfterAnInternalError(t, answer) })
	}
}

func testCreationAfterAnInternalError(
	t *testing.T,
	answerWithProblem func(cloud.InstanceAnswer) (cloud.InstanceAnswer, error),
) {
	w := newMachineTestEnv(t)
	broken := &kube.Problem{
		Reason:  provider.Internal.String(),
		Message: "the cloud is broken",
		React:   kube.ReactionToCode(provider.Internal),
	}
	w.createInstance = func(_ context.Context, in cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		require.True(t, in.FailsWithProblem)
		if in.Known == nil {
			return answerWithProblem(cloud.InstanceAnswer{Problem: broken, LastKnownState: "half made"})
		}
		require.Equal(t, broken, in.Known)
		require.Equal(t, "half made", in.LastKnownState)
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	w.changeAfterDelay(time.Minute, w.setNodeJoined)
	require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
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
	require.Equal(
		t,
		[]string{"CrashLoopBackOff", "Create", "Failed", "Internal"},
		[]string{
			w.reports[0].Phase,
			w.reports[0].Operation.Type,
			w.reports[0].Operation.State,
			w.reports[0].Operation.ErrorCode,
		},
	)
	require.False(t, w.reports[0].Stopped, "the creation timeout goes on: this may pass")
	require.Equal(t, "Pending", w.reports[1].Phase)
}

// If the creation of a machine has already ended, the workflow issues no token and makes no create call.
func TestCreatedMachineIsNotCreatedAgain(t *testing.T) {
	w := newMachineTestEnv(t)
	w.setNodeJoined()
	require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
	require.Equal(t, []string{"decide", "report Running", "finish", "decide"}, w.activityLog)
	require.Empty(t, w.providerCalls)
}

// The status may already contain the blocker, for example after a crash of the previous run. The workflow then shows
// the blocker once in Temporal as well.
func TestBlockerInTheStatusIsShownOnceInTemporal(t *testing.T) {
	for name, row := range map[string]struct {
		blocked, unsaid bool
		reports         int // number of reports before the instance exists
	}{
		"nothing blocks it":               {false, false, 0},
		"the status says it":              {true, false, 1},
		"the status does not say it":      {true, true, 1},
		"the status says what is no more": {false, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMachineTestEnv(t)
			w.decision.Blocked, w.decision.Unsaid = row.blocked, row.unsaid
			w.createInstance = func(context.Context, cloud.InstanceCall) (cloud.InstanceAnswer, error) {
				w.decision.Blocked, w.decision.Unsaid = false, false
				return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
			}
			w.changeAfterDelay(time.Minute, w.setNodeJoined)
			require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
			said := slices.DeleteFunc(slices.Clone(w.reports), func(r machine.Report) bool { return r.Phase != "" })
			require.Len(t, said, row.reports)
		})
	}
}
