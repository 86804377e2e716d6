package machine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities/cloud"
	"millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	"millwright/decide/ownership"
	workflowsdrain "millwright/workflows/drain"
	"millwright/workflows/run"
)

// newDeletionTestEnv returns a test environment with a machine that is being deleted and has a node.
func newDeletionTestEnv(t *testing.T) *machineTestEnv {
	w := newMachineTestEnv(t)
	w.decision = machine.Decision{
		MachinePlan: attention.MachinePlan{
			Decision: attention.Decision{Need: attention.NeedDeletion, Why: "deletion was asked for"},
		},
		CallInputs: machine.CallInputs{
			Class:    "small",
			Provider: "virtual",
		},
		ProviderID: "virtual:///i-1",
		NodeName:   "m-1",
		Phase:      "Running",
	}
	w.deletionFacts = deletion.Facts{HasNode: true}
	w.nodeLoad = drain.NodeLoad{Pods: 3}
	w.drainResult = workflowsdrain.Result{Outcome: vocabulary.DrainResultDrained}
	return w
}

// If a drain ends without a cancellation, it returns the versions that it has written. The next decision can then read
// from the caches.
func TestTheDecisionAfterADrainReadsFromCaches(t *testing.T) {
	for name, row := range map[string]struct {
		wrote kube.MinVersions
		live  bool
	}{
		"the drain says what it wrote":  {kube.MinVersions{"machines": "41"}, false},
		"a drain of an earlier version": {nil, true},
	} {
		w := newDeletionTestEnv(t)
		w.drainResult.Versions = row.wrote
		require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
		at := 0 // index of the decision after the drain
		for _, what := range w.activityLog[:slices.Index(w.activityLog, "drain m-1")] {
			if what == "decide" {
				at++
			}
		}
		require.Equal(t, row.live, w.decisionInputs[at].Live, name)
		for resource, version := range row.wrote {
			require.Equal(t, version, w.decisionInputs[at].Versions[resource], name)
		}
	}
}

func TestStageDetachShowsAttachedVolumes(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.deletionFacts.AttachedVolumeCount = 2
	until := w.env.Now().Add(2 * time.Minute)
	w.detachResults = []drain.DetachResult{
		{GoesOn: true, Until: until, Left: []string{"pv-a", "pv-b", "pv-c"}, More: 40},
		{GoesOn: true, Until: until, Left: []string{"pv-b"}},
		{Left: []string{"pv-b"}},
	}
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Len(t, w.detachInputs, 3)
	require.Empty(t, w.detachInputs[0].Shown)
	require.Equal(t, []string{"pv-b"}, w.detachInputs[2].Shown)
	var said []string
	for _, r := range w.reports {
		if r.Step.Name == vocabulary.StepAwaitDetach && r.Step.BlockedBy != nil {
			require.WithinDuration(t, until, r.Step.Deadline, 0)
			require.Equal(t, "Wait for volumes to be detached", r.Operation.Description)
			said = append(said, r.Step.Cause+" | "+strings.Join(r.Step.BlockedBy, ", "))
		}
	}
	require.Equal(t, []string{
		"volumes pv-a, pv-b and 41 more are still attached to the node | Volume pv-a, Volume pv-b, Volume pv-c",
		"volume pv-b is still attached to the node | Volume pv-b",
	}, said)
}

// recordedStages returns the deletion stages recorded in the status, in order, and their descriptions.
func (w *machineTestEnv) recordedStages() (stages []deletion.Stage, words []string) {
	for _, r := range w.reports {
		if r.Deletion != nil && r.Deletion.Stage != "" {
			stages = append(stages, r.Deletion.Stage)
			words = append(words, r.Operation.Description)
		}
	}
	return stages, words
}

func TestDeletionGoesThroughItsStages(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.deletionFacts.AttachedVolumeCount = 2
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Equal(t, []string{
		"decide", "weigh", "report Terminating", // from this line on, the machine is in the drain queue
		"decide", "announce", "weigh", "drain m-1",
		"decide", "report Terminating", "detach m-1",
		"decide", "report Terminating", "delete virtual:///i-1",
		"decide", "delete node m-1",
		"decide", "release",
	}, w.activityLog)
	stages, words := w.recordedStages()
	require.Equal(
		t,
		[]deletion.Stage{deletion.StageDrain, deletion.StageDetachVolumes, deletion.StageDeleteInstance},
		stages,
	)
	require.Equal(t, []string{"Initiate node drain", "Wait for volumes to be detached", "Initiate VM deletion"}, words)
}

func TestSlowNodeRemovalIsRecordedAsAStage(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.deletionFacts.RecordedStage, w.deletionFacts.DrainResult, w.isTargetUnreachable = deletion.StageDeleteInstance, vocabulary.DrainResultDrained, true
	w.changeAfterDelay(time.Minute, func() {
		stages, words := w.recordedStages()
		require.Equal(t, deletion.StageDeleteNode, stages[len(stages)-1])
		require.Contains(t, words, "Initiate node object deletion")
		w.isTargetUnreachable = false
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
}

func TestNodeWithoutPodsAndVolumesNeedsNoDrain(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.nodeLoad = drain.NodeLoad{}
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.NotContains(t, w.activityLog, "drain m-1")
	require.Contains(t, w.activityLog, "weigh", "it is cordoned all the same")
	require.NotContains(t, w.activityLog, "announce", "nobody is there to hear it")
}

// A run that finds a stage in the status repeats no earlier stage. The test covers each stage.
func TestRunContinuesInTheRecordedStage(t *testing.T) {
	marks := []string{"drain m-1", "detach m-1", "delete virtual:///i-1", "delete node m-1", "release"}
	for i, stage := range []deletion.Stage{deletion.StageDrain, deletion.StageDetachVolumes, deletion.StageDeleteInstance, deletion.StageDeleteNode, deletion.StageRemoveFinalizer} {
		t.Run("it begins again in stage "+string(stage), func(t *testing.T) {
			w := newDeletionTestEnv(t)
			w.deletionFacts.RecordedStage, w.deletionFacts.AttachedVolumeCount = stage, 1
			if i > 0 {
				w.deletionFacts.DrainResult = vocabulary.DrainResultDrained
			}
			require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
			for j, mark := range marks {
				require.Equal(t, j >= i, slices.Contains(w.activityLog, mark), mark)
			}
			require.Equal(
				t,
				stage == deletion.StageDrain,
				slices.Contains(w.activityLog, "announce"),
				"a run that continues a drain tells the node again",
			)
		})
	}
}

func TestDeletionWaitsUntilItsHooksAreRemoved(t *testing.T) {
	w := newDeletionTestEnv(t)
	pre := "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup"
	post := "pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd"
	w.deletionFacts.PreDrainHooks, w.deletionFacts.PreTerminateHooks = []string{pre}, []string{post}
	w.changeAfterDelay(time.Hour, func() {
		require.NotContains(t, w.activityLog, "weigh")
		w.deletionFacts.PreDrainHooks = nil
	})
	w.changeAfterDelay(2*time.Hour, func() {
		require.Contains(t, w.activityLog, "drain m-1")
		require.NotContains(t, w.activityLog, "delete virtual:///i-1")
		w.deletionFacts.PreTerminateHooks = nil
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	stages, _ := w.recordedStages()
	require.Equal(
		t,
		[]deletion.Stage{
			deletion.StagePreDrainHooks,
			deletion.StageDrain,
			deletion.StagePreTerminateHooks,
			deletion.StageDeleteInstance,
		},
		stages,
	)
	held := w.reports[0]
	require.Equal(t, []string{pre}, held.Step.BlockedBy)
	require.Equal(t, "waits until these pre-drain hooks are removed: "+pre, held.Event.Message)
}

func TestAtMostFiveHooksAreShown(t *testing.T) {
	w := newDeletionTestEnv(t)
	for i := range 40 {
		w.deletionFacts.PreDrainHooks = append(
			w.deletionFacts.PreDrainHooks,
			fmt.Sprintf("pre-drain.delete.hook.machine.cluster.x-k8s.io/%063d", i),
		)
	}
	first := w.deletionFacts.PreDrainHooks[:5]
	var shown [][]string
	w.env.OnUpsertTypedSearchAttributes(mock.MatchedBy(func(attributes temporal.SearchAttributes) bool {
		key := temporal.NewSearchAttributeKeyKeywordList("BlockedBy")
		if names, changed := attributes.GetKeywordList(key); changed {
			shown = append(shown, names)
		}
		return true
	})).Return(nil)
	w.changeAfterDelay(time.Hour, func() { w.deletionFacts.PreDrainHooks = nil })
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Equal(t, first, shown[0])
	require.Equal(t, first, w.reports[0].Step.BlockedBy)
}

func TestMissingClassBlocksOnlyTheStageInstance(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.decision.Problem = &kube.Problem{
		Reason:  "ClassNotFound",
		Message: "MachineClass small does not exist",
		React:   kube.ReactionUntilCredentialChange,
	}
	w.changeAfterDelay(time.Minute, func() {
		require.Contains(t, w.activityLog, "drain m-1", "the node is drained meanwhile")
		require.NotContains(t, w.activityLog, "delete virtual:///i-1")
		w.decision.Problem = nil
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
}

func TestQueuedMachineWaitsForItsTurn(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.nodeLoad.Queue = "queued: place 12 of 80; 100 nodes are drained at a time"
	w.changeAfterDelay(time.Hour, func() {
		require.NotContains(t, w.activityLog, "drain m-1")
		require.Equal(t, "queued", w.reports[1].Step.Name)
		require.Equal(t, w.nodeLoad.Queue, w.reports[1].Operation.Description)
		w.nodeLoad.Queue = ""
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Contains(t, w.activityLog, "drain m-1")
}

// While the machine was queued, its node's cluster answered slowly. When the cluster answers, the machine is shown as
// queued again.
func TestQueuedMachineIsNotShownAsWaitingForItsCluster(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.nodeLoad.Queue = "queued: place 12 of 80; 100 nodes are drained at a time"
	w.changeAfterDelay(time.Minute, func() { w.isTargetUnreachable = true })
	w.changeAfterDelay(2*time.Minute, func() {
		require.Equal(t, []string{"TargetUnavailable"}, w.reports[len(w.reports)-1].Step.BlockedBy)
		w.isTargetUnreachable = false
	})
	w.changeAfterDelay(time.Hour, func() {
		last := w.reports[len(w.reports)-1]
		require.Equal(t, w.nodeLoad.Queue, last.Operation.Description)
		require.Empty(t, last.Step.BlockedBy)
		w.nodeLoad.Queue = ""
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
}

func TestHeldDeletionStaysInItsStage(t *testing.T) {
	for _, stage := range []deletion.Stage{"", deletion.StageDrain, deletion.StageDeleteInstance, deletion.StageDeleteNode} {
		t.Run("before stage "+string(stage), func(t *testing.T) {
			w := newDeletionTestEnv(t)
			w.deletionFacts.RecordedStage, w.deletionFacts.HoldReason = stage, "alice: look at it first"
			if stage != "" && stage != deletion.StageDrain {
				w.deletionFacts.DrainResult = vocabulary.DrainResultDrained
			}
			w.changeAfterDelay(time.Hour, func() {
				for _, act := range []string{"weigh", "drain m-1", "delete virtual:///i-1", "delete node m-1"} {
					require.NotContains(t, w.activityLog, act)
				}
				require.Equal(t, "held by alice (look at it first)", w.reports[0].Event.Message)
				require.Equal(t, []string{"Hold"}, w.reports[0].Step.BlockedBy)
				w.deletionFacts.HoldReason = ""
			})
			require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
		})
	}
}

func TestDrainThatSomebodyCancelsInTemporalHoldsTheDeletion(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.isDrainCancelled = true
	w.changeAfterDelay(time.Hour, func() {
		require.Contains(t, w.activityLog, "hold: the drain was cancelled in Temporal")
		require.NotContains(t, w.activityLog, "delete virtual:///i-1")
		w.deletionFacts.HoldReason = ""
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
}

func TestAbandonedInstanceNeedsNoProviderCall(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.decision.Problem = &kube.Problem{
		Reason:  "ClassNotFound",
		Message: "MachineClass small does not exist",
		React:   kube.ReactionUntilCredentialChange,
	}
	w.changeAfterDelay(
		time.Hour,
		func() {
			w.deletionFacts.AbandonReason = "annotation abandon-instance asks for it: alice: deleted by hand"
		},
	)
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.NotContains(t, w.activityLog, "delete virtual:///i-1")
	require.Contains(t, w.activityLog, "delete node m-1")
	var told []string
	for _, r := range w.reports {
		if r.Event != nil && r.Event.Reason == "InstanceAbandoned" {
			told = append(told, r.Event.Message)
		}
	}
	require.Equal(
		t,
		[]string{
			"the provider was not asked to delete instance virtual:///i-1: annotation abandon-instance asks for it: alice: deleted by hand",
		},
		told,
	)
}

// If a Machine is a copy, its deletion makes no call for the instance, because the instance belongs to the original
// Machine.
func TestDeletionLeavesTheInstanceOfAnotherMachine(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.deletionFacts.Owner = ownership.OwnerAnswer{
		Whose: ownership.OwnerOther,
		Why:   "node m-1 has the mark of Machine prod/m",
	}
	w.deletionFacts.HasNode = false
	w.deletionAnswer = cloud.InstanceAnswer{Anothers: "instance virtual:///i-1 has the UID of Machine prod/m"}
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	var told []string
	for _, r := range w.reports {
		if r.Event != nil && r.Event.Reason == "InstanceAnothers" {
			told = append(told, r.Event.Message)
		}
	}
	require.Equal(t, []string{"the instance stays: instance virtual:///i-1 has the UID of Machine prod/m"}, told)
}

// If the owner of the node is uncertain, the deletion stops before the drain. The deletion continues when the owner is
// certain.
func TestDeletionWaitsWhileTheNodesOwnerIsInDoubt(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.deletionFacts.Owner = ownership.OwnerAnswer{Whose: ownership.OwnerInDoubt, Why: "two machines name node m-1"}
	w.changeAfterDelay(time.Hour, func() {
		last := w.reports[len(w.reports)-1]
		require.Equal(t, []string{"OwnershipInDoubt"}, last.Step.BlockedBy)
		require.Equal(t, "two machines name node m-1", last.Operation.Description)
		require.NotContains(t, w.activityLog, "delete virtual:///i-1")
		w.deletionFacts.Owner = ownership.OwnerAnswer{Whose: ownership.OwnerSelf}
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Contains(t, w.activityLog, "delete virtual:///i-1")
}

// If only a label assigns a node to a machine, Millwright requests the owner of the node from the provider.
func TestDeletionAsksTheProviderForTheNodesOwner(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.decision.Target = true
	w.deletionFacts.Owner = ownership.OwnerAnswer{Whose: ownership.OwnerInDoubt, Why: "only a label says it", Ask: true}
	w.instanceStatus = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		w.deletionFacts.Owner = ownership.OwnerAnswer{Whose: ownership.OwnerSelf}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.Len(t, w.instanceRecords, 1)
	require.Equal(t, "m-1", w.instanceRecords[0].NodeName)
	require.True(t, w.instanceRecords[0].Told, "the status has the name at once")
	for _, r := range w.reports {
		require.False(t, r.Step != nil && len(r.Step.BlockedBy) > 0, "nobody had to be asked: %+v", r.Step)
	}
}

func TestDeletionShowsAnUnreachableTargetCluster(t *testing.T) {
	for _, stage := range []deletion.Stage{"", deletion.StageDrain, deletion.StageDeleteNode} {
		t.Run("in stage "+string(stage), func(t *testing.T) {
			w := newDeletionTestEnv(t)
			w.isTargetUnreachable, w.deletionFacts.RecordedStage = true, stage
			if stage == deletion.StageDeleteNode {
				w.deletionFacts.DrainResult = vocabulary.DrainResultDrained
			}
			w.changeAfterDelay(time.Minute, func() {
				last := w.reports[len(w.reports)-1]
				require.Equal(t, []string{"TargetUnavailable"}, last.Step.BlockedBy)
				require.Contains(t, last.Operation.Description, "the target cluster does not answer: ")
				require.Equal(t, "Failed", last.Operation.State, "as in MCM")
				require.NotContains(t, w.activityLog, "release")
				w.isTargetUnreachable = false
			})
			require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
			require.Contains(t, w.activityLog, "delete node m-1")
		})
	}
}

func TestDeletionSaysWhyItsTargetClusterIsNotConnected(t *testing.T) {
	const why = "the target cluster of namespace shop is not connected: connection refused (since 12:00:00 UTC)"
	w := newDeletionTestEnv(t)
	w.isTargetUnreachable, w.decision.TargetDown = true, why
	w.changeAfterDelay(time.Minute, func() {
		last := w.reports[len(w.reports)-1]
		require.Equal(t, []string{"TargetUnavailable"}, last.Step.BlockedBy)
		require.Contains(t, last.Operation.Description, why+": ")
		require.NotContains(t, w.activityLog, "delete virtual:///i-1")
		w.isTargetUnreachable, w.decision.TargetDown = false, ""
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
}

func TestSkipAndAbandonDoNotWaitForAnUnreachableTargetCluster(t *testing.T) {
	for name, hurry := range map[string]func(f *deletion.Facts){
		"skip": func(f *deletion.Facts) { f.SkipDrainReason = "annotation skip asks for it: alice: cluster is gone" },
		"abandon": func(f *deletion.Facts) {
			f.AbandonReason = "annotation abandon-instance asks for it: alice: cluster is gone"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeletionTestEnv(t)
			w.isTargetUnreachable = true
			w.changeAfterDelay(time.Minute, func() {
				require.NotContains(t, w.activityLog, "release")
				hurry(&w.deletionFacts)
			})
			require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
			require.Equal(t, name == "skip", slices.Contains(w.activityLog, "delete virtual:///i-1"))
		})
	}
}

// If Millwright lacks a right in the target cluster, the status reports the missing right.
func TestForbiddenTargetWriteIsReportedAsForbidden(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.deletionFacts.RecordedStage, w.deletionFacts.DrainResult, w.isTargetUnreachable = deletion.StageDeleteInstance, vocabulary.DrainResultDrained, true
	w.targetError = kube.ClassifyTargetError(
		t.Context(),
		apierrors.NewForbidden(corev1.Resource("nodes"), "m-1", errors.New("no role allows it")),
	)
	w.changeAfterDelay(time.Minute, func() {
		said := w.reports[len(w.reports)-1].Operation.Description
		require.Contains(t, said, "the target cluster does not allow it: removes node m-1: ")
		require.Contains(t, said, "no role allows it")
		w.isTargetUnreachable = false
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
}

// A target cluster with a broken webhook does answer requests. The status must advise to repair the webhook, not to
// skip the drain.
func TestTargetClusterWithABrokenWebhookCountsAsRefusing(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.isTargetUnreachable = true
	down := apierrors.NewInternalError(errors.New("failed calling webhook"))
	w.targetError = kube.ClassifyTargetError(t.Context(), down)
	w.env.RegisterDelayedCallback(func() {
		defer w.lock()()
		require.Empty(t, w.reports, "it may pass")
		w.targetError = kube.RefusedError(down.Error())
	}, 2*time.Second)
	w.changeAfterDelay(time.Minute, func() {
		for _, r := range w.reports {
			require.Equal(t, []string{"Refused"}, r.Step.BlockedBy)
			require.Contains(t, r.Step.Cause, "failed calling webhook")
		}
		w.isTargetUnreachable = false
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	require.NotEmpty(t, w.reports)
}

// The label force-deletion ends the wait for an unreachable target cluster, so the instance is deleted. The removal
// of the Node still waits for the target cluster.
func TestForceDoesNotWaitForAnUnreachableTargetCluster(t *testing.T) {
	w := newDeletionTestEnv(t)
	w.isTargetUnreachable = true
	w.changeAfterDelay(time.Minute, func() { w.deletionFacts.ForceReason = "label force-deletion is set" })
	w.changeAfterDelay(2*time.Minute, func() {
		require.Contains(t, w.activityLog, "delete virtual:///i-1")
		require.NotContains(t, w.activityLog, "release")
		require.Equal(t, []string{"TargetUnavailable"}, w.reports[len(w.reports)-1].Step.BlockedBy)
		w.isTargetUnreachable = false
	})
	require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
	skipped := slices.IndexFunc(w.reports, func(r machine.Report) bool {
		return r.Deletion != nil && r.Deletion.Result == vocabulary.DrainResultSkipped
	})
	require.GreaterOrEqual(t, skipped, 0, "a node that was not asked is not called empty")
	require.Contains(t, w.reports[skipped].Conditions[0].Message, "the cluster of node m-1 does not answer")
}

func TestWaitForVolumesEndsAfterARequest(t *testing.T) {
	for name, wish := range map[string]func(f *deletion.Facts){
		"hold":    func(f *deletion.Facts) { f.HoldReason = "alice: look at it first" },
		"exclude": func(f *deletion.Facts) { f.SkipDetachReason = "annotation exclude asks for it" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeletionTestEnv(t)
			w.deletionFacts.RecordedStage, w.deletionFacts.AttachedVolumeCount, w.deletionFacts.DrainResult, w.isVolumeAttached = deletion.StageDetachVolumes, 1, vocabulary.DrainResultDrained, true
			w.changeAfterDelay(time.Minute, func() { wish(&w.deletionFacts) })
			w.changeAfterDelay(time.Hour, func() { w.deletionFacts.HoldReason, w.isVolumeAttached = "", false })
			require.Equal(t, run.OutcomeGone, w.runMachine(t).Outcome)
			if name == "hold" {
				require.Equal(t, "held by alice (look at it first)", w.reports[0].Event.Message)
			}
		})
	}
}
