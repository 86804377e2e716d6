package drain

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	activities "millwright/activities/drain"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/starter/clitest"
)

// newBlockedOverview returns the pods of a drain that one budget blocks.
func newBlockedOverview() drain.Overview {
	return drain.Overview{
		Counts: drain.PodCounts{Gone: 3, Terminating: 1, Blocked: 1, Skipped: 2},
		Rows: []drain.PodRow{
			{
				Pod:       "shop/web-1",
				State:     drain.StateBlocked,
				Attempts:  14,
				BlockedBy: "shop/web",
				Budgets:   []string{"shop/web"},
				Bad:       true,
				Next:      now.Add(time.Minute),
			},
			{Pod: "shop/db-0", State: drain.StateTerminating, Since: now.Add(-20 * time.Second), Attempts: 1},
		},
		Why: "2 pods left: PodDisruptionBudget shop/web allows none of its 3 healthy pods to go: it needs 3 of 3; 1 is terminating",
	}
}

// newPendingActivity returns the pending activity of a drain, with a heartbeat two seconds ago.
func newPendingActivity(progress any) *workflowpb.PendingActivityInfo {
	return &workflowpb.PendingActivityInfo{
		ActivityId: "evict-pods", State: enumspb.PENDING_ACTIVITY_STATE_STARTED, Attempt: 1,
		HeartbeatDetails: clitest.EncodePayloads(progress), LastHeartbeatTime: timestamppb.New(now.Add(-2 * time.Second)),
	}
}

func newTemporalWithOpenDrain(pending ...*workflowpb.PendingActivityInfo) *clitest.FakeTemporal {
	return &clitest.FakeTemporal{
		WorkflowID:        "drain/shop/m-1/u-1",
		Status:            enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
		PendingActivities: pending,
	}
}

func TestExplainShowsTheLastHeartbeat(t *testing.T) {
	w := newFakeBackend(
		newDeletedMachine(withRemovalMeans("Evict"), withStep(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web")),
	)
	w.Temporal = newTemporalWithOpenDrain(
		&workflowpb.PendingActivityInfo{ActivityId: "other"},
		newPendingActivity(activities.Progress{Gone: 3, Picture: newBlockedOverview()}),
	)
	out, err := w.run(t.Context(), "explain", "shop/m-1")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
shop/m-1   node n-1   stage Drain since 13:51:07 UTC (15m)   means Evict

POD          STATE         SINCE   ATTEMPTS   BLOCKED BY   NEXT TRY
shop/web-1   Blocked       -       14         shop/web     14:07:07 UTC
shop/db-0    Terminating   20s     1          -            -
3 gone, 1 terminating, 1 blocked, 0 waiting for their turn, 2 stay; seen 2s ago

shop/m-1: 2 pods left: PodDisruptionBudget shop/web allows none of its 3 healthy pods to go: it needs 3 of 3; 1 is terminating; since 13:51:07 UTC (15m) pods are evicted, and at 15:51:07 UTC (in 1h45m) the remaining pods are deleted with their own grace periods, whatever blocks them;
to change that: `+"`kubectl edit pdb -n shop web`, `millwright drain extend shop/m-1 --for 1h --reason …` or `millwright drain force shop/m-1 --reason …`"+`.
`, "\n"), out)
	assert.True(t, w.Temporal.IsClosed)

	w = newFakeBackend(newDeletedMachine(withStep(vocabulary.StepEvictPods), func(m *v1alpha1.Machine) {
		m.Status.CurrentOperation.WorkflowID = "garden/drain/shop/m-1/u"
	}))
	out, err = w.run(t.Context(), "explain", "shop/m-1", "--ui-address", "https://ui", "--temporal-namespace", "prod")
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(
		out, "\n\npage: https://ui/namespaces/prod/workflows/garden%2Fdrain%2Fshop%2Fm-1%2Fu\n",
	), out)
}

func TestExplainDescribesADrainWithoutDeletion(t *testing.T) {
	w := newFakeBackend(
		newDeletedMachine(
			withDrainWithoutDeletion(v1alpha1.DrainForUpdate),
			withStep(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web"),
		),
	)
	w.Temporal = newTemporalWithOpenDrain(newPendingActivity(activities.Progress{Gone: 3, Picture: newBlockedOverview()}))
	out, err := w.run(t.Context(), "explain", "shop/m-1")
	require.NoError(t, err)
	assert.Contains(t, out, "shop/m-1   node n-1   stage Drain (in-place update) since 13:51:07 UTC (15m)   means Evict\n")
	assert.Contains(t, out, "shop/web-1   Blocked")
	assert.Contains(t, out, "`kubectl edit pdb -n shop web`")
}

// The first line of drain explain is the sentence of `millwright explain`.
func TestExplainBeginsWithTheSentenceOfTheStatus(t *testing.T) {
	w := newFakeBackend(
		newDeletedMachine(
			withRemovalMeans("Evict"),
			withStep(vocabulary.StepEvictPods),
			func(m *v1alpha1.Machine) { m.Status.CurrentOperation.WaitsFor = "a budget (since 13:51:07 UTC)" },
		),
	)
	out, err := w.run(t.Context(), "explain", "shop/m-1")
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, "machine shop/m-1: a budget (since 13:51:07 UTC)\nshop/m-1   node n-1"), out)
}

// If the sentence in the status and the pods have the same cause, the cause and each command are printed only once.
func TestExplainPrintsACauseOnce(t *testing.T) {
	const cause = "PodDisruptionBudget shop/web allows none of its 3 healthy pods to go: it needs 3 of 3"
	w := newFakeBackend(
		newDeletedMachine(
			withRemovalMeans("Evict"),
			withStep(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web"),
			func(m *v1alpha1.Machine) {
				m.Status.CurrentOperation.WaitsFor = cause + " (since 13:51:07 UTC); `kubectl edit pdb -n shop web`"
			},
		),
	)
	w.Temporal = newTemporalWithOpenDrain(newPendingActivity(activities.Progress{Picture: newBlockedOverview()}))
	out, err := w.run(t.Context(), "explain", "shop/m-1")
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(out, cause), out)
	assert.Equal(t, 1, strings.Count(out, "kubectl edit pdb"), out)
	const other = "\n\nother commands: `millwright drain extend shop/m-1 --for 1h --reason …` or `millwright drain force shop/m-1 --reason …`.\n"
	assert.True(t, strings.HasSuffix(out, other), out)
}

func TestExplainReadsALaterActivityOfTheDrain(t *testing.T) {
	later := newPendingActivity(activities.Progress{Gone: 3, Picture: newBlockedOverview()})
	later.ActivityId = "evict-pods-2"
	w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
	w.Temporal = newTemporalWithOpenDrain(later)
	out, err := w.run(t.Context(), "explain", "shop/m-1")
	require.NoError(t, err)
	assert.Contains(t, out, "shop/web-1   Blocked")
}

func TestExplainLimitsThePodRows(t *testing.T) {
	full := newBlockedOverview()
	for range 2 * drain.MaxOverviewRows {
		full.Rows = append(full.Rows, full.Rows[0])
	}
	w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
	w.Temporal = newTemporalWithOpenDrain(newPendingActivity(activities.Progress{Picture: full}))
	out, err := w.run(t.Context(), "explain", "shop/m-1")
	require.NoError(t, err)
	assert.Equal(t, drain.MaxOverviewRows-1, strings.Count(out, "shop/web-1 "))
}

func TestExplainQueriesTheWorkflowWithoutAHeartbeat(t *testing.T) {
	silent := newPendingActivity(activities.Progress{})
	silent.HeartbeatDetails = nil
	garbled := newPendingActivity("not what it should be")
	for name, temporal := range map[string]*clitest.FakeTemporal{"no activity": newTemporalWithOpenDrain(), "no heartbeat yet": newTemporalWithOpenDrain(silent), "a heartbeat that cannot be read": newTemporalWithOpenDrain(garbled)} {
		temporal.QueryAnswer = newBlockedOverview()
		w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
		w.Temporal = temporal
		out, err := w.run(t.Context(), "explain", "shop/m-1")
		require.NoError(t, err)
		assert.Contains(t, out, "shop/web-1   Blocked", name)
		assert.NotContains(t, out, "from the Machine alone", name)
	}
}

func TestExplainWorksWithoutTemporal(t *testing.T) {
	ended := newTemporalWithOpenDrain()
	ended.Status = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	mute := newTemporalWithOpenDrain()
	mute.QueryErr = errors.New("no worker\nanswers")
	for name, c := range map[string]struct {
		temporal *clitest.FakeTemporal
		note     string
	}{
		"away":        {&clitest.FakeTemporal{Err: errors.New("connection refused")}, "The step cannot be read from Temporal at temporal:1 (describe drain/shop/m-1/u-1: connection refused): what follows is from the Machine alone.\n"},
		"no workers":  {mute, "The step cannot be read from Temporal at temporal:1 (query pods: no worker answers): what follows is from the Machine alone.\n"},
		"no drain":    {&clitest.FakeTemporal{WorkflowID: "drain/shop/m-1/another"}, "Temporal has no open workflow for this step: what follows is from the Machine alone.\n"},
		"drain ended": {ended, "Temporal has no open workflow for this step: what follows is from the Machine alone.\n"},
	} {
		w := newFakeBackend(newDeletedMachine(
			withRemovalMeans("Evict"),
			withStep(vocabulary.StepEvictPods, "PodDisruptionBudget shop/web"),
			withCondition(
				v1alpha1.MachineDrained,
				v1alpha1.ReasonBlocked,
				"1 pod left: PodDisruptionBudget shop/web allows none of its 3 healthy pods to go: it needs 3 of 3",
			),
		))
		w.Temporal = c.temporal
		out, err := w.run(t.Context(), "explain", "shop/m-1", "--temporal-address=temporal:1")
		require.NoError(t, err, name)
		assert.Contains(t, out, "\n"+c.note, name)
		assert.NotContains(t, out, "ATTEMPTS", name)
		assert.Contains(t, out, "shop/m-1: 1 pod left: PodDisruptionBudget shop/web allows none", name)
		assert.Contains(t, out, "kubectl describe pdb -n shop web", name)
	}
}

func TestExplainReportsAMissingHeartbeat(t *testing.T) {
	lost := newPendingActivity(activities.Progress{Picture: newBlockedOverview()})
	lost.LastHeartbeatTime = timestamppb.New(now.Add(-2 * time.Minute))
	failing := newPendingActivity(activities.Progress{Picture: newBlockedOverview()})
	failing.State, failing.Attempt = enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, 7
	failing.LastFailure = &failurepb.Failure{Message: "watch pods of node n-1:\nforbidden"}
	untaken := &workflowpb.PendingActivityInfo{
		ActivityId:    "evict-pods",
		ScheduledTime: timestamppb.New(now.Add(-time.Minute)),
	}
	for want, pending := range map[string]*workflowpb.PendingActivityInfo{
		"No worker has reported since 14:04:07 UTC (2m): check that a worker polls the queue drains.":             lost,
		"Attempt 7 of evict-pods has not begun yet; the attempt before failed: watch pods of node n-1: forbidden": failing,
		"No worker has taken evict-pods since 14:05:07 UTC (60s): check that a worker polls the queue drains.":    untaken,
	} {
		w := newFakeBackend(newDeletedMachine(withRemovalMeans("Evict")))
		w.Temporal = newTemporalWithOpenDrain(pending)
		w.Temporal.QueryAnswer = newBlockedOverview()
		out, err := w.run(t.Context(), "explain", "shop/m-1")
		require.NoError(t, err)
		assert.Contains(t, out, want+"\n")
		assert.Contains(t, out, "shop/web-1   Blocked")
	}
}

func TestExplainNamesTheVolumesThatAreAwaited(t *testing.T) {
	w := newFakeBackend(newDeletedMachine(withDrainResult(v1alpha1.MachineDeletionDetach, "Drained")))
	w.Temporal = newTemporalWithOpenDrain(
		&workflowpb.PendingActivityInfo{
			ActivityId:       "await-detach",
			HeartbeatDetails: clitest.EncodePayloads([]string{"pv-1", "pv-2"}),
		},
	)
	w.Temporal.WorkflowID = "machine/shop/m-1/u-1"
	out, err := w.run(t.Context(), "explain", "shop/m-1")
	require.NoError(t, err)
	assert.Contains(t, out, "until pv-1, pv-2 are detached from node n-1")
	assert.Contains(t, out, "drain: Drained\n")
}

func TestExplainAsksTemporalOnlyForPodsAndVolumes(t *testing.T) {
	for _, m := range []*v1alpha1.Machine{
		newDeletedMachine(), newDeletedMachine(withStage(v1alpha1.MachineDeletionInstance)), newDeletedMachine(withDrainResult(v1alpha1.MachineDeletionDrain, "Drained")),
		newDeletedMachine(withStage(v1alpha1.MachineDeletionDrain), withStep("queued")),
	} {
		w := newFakeBackend(m)
		w.Temporal.Err = errors.New("it was asked in vain")
		out, err := w.run(t.Context(), "explain", "shop/m-1")
		require.NoError(t, err)
		assert.NotContains(t, out, "in vain")
	}
}

func TestExplainShowsRequestsAndLeftBehindPods(t *testing.T) {
	forced := newDeletedMachine(
		withDrainResult(v1alpha1.MachineDeletionInstance, "Forced"),
		withAnnotation(v1alpha1.AnnotationForce, "ann: it burns"),
		withAnnotation(v1alpha1.AnnotationHold, "bob: wait"),
	)
	forced.Status.Deletion.Drain.LeftBehind = []string{"shop/a", "shop/b"}
	out, err := newFakeBackend(forced).run(t.Context(), "explain", "shop/m-1")
	require.NoError(t, err)
	assert.Contains(t, out, "\nforce: ann: it burns\n")
	assert.Equal(t, 1, strings.Count(out, "\nhold: bob: wait\n"))
	assert.NotContains(t, out, "resume:")
	assert.Contains(t, out, "\ndrain: Forced; left behind: shop/a, shop/b\n")
}

func TestExplainRefusesAMachineThatIsNotDeleted(t *testing.T) {
	_, err := newFakeBackend(
		newDeletedMachine(withoutDeletion(v1alpha1.MachineRunning)),
	).run(t.Context(), "explain", "shop/m-1")
	require.EqualError(t, err, "machine shop/m-1 is not being deleted: its phase is Running")
	_, err = newFakeBackend(newDeletedMachine(withoutDeletion(""))).run(t.Context(), "explain", "shop/m-1")
	require.EqualError(t, err, "machine shop/m-1 is not being deleted: its phase is new")
}
