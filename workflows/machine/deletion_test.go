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

// newGoing is a world with a machine that is being deleted and has a node.
func newGoing(t *testing.T) *world {
	w := newWorld(t)
	w.decision = machine.Decision{
		MachinePlan: attention.MachinePlan{
			Decision: attention.Decision{Need: attention.Deletion, Why: "deletion was asked for"},
		},
		Calling: machine.Calling{
			Class:    "small",
			Provider: "virtual",
		},
		ProviderID: "virtual:///i-1",
		NodeName:   "m-1",
		Phase:      "Running",
	}
	w.going = deletion.Facts{Node: true}
	w.load = drain.NodeLoad{Pods: 3}
	w.drain = workflowsdrain.Result{Outcome: vocabulary.DrainDrained}
	return w
}

// A drain that ended by itself says which versions it wrote, so that the caches can answer what is next.
func TestTheDecisionAfterADrainReadsFromCaches(t *testing.T) {
	for name, row := range map[string]struct {
		wrote kube.MinVersions
		live  bool
	}{
		"the drain says what it wrote":  {kube.MinVersions{"machines": "41"}, false},
		"a drain of an earlier version": {nil, true},
	} {
		w := newGoing(t)
		w.drain.Versions = row.wrote
		require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
		at := 0 // of the decision after the drain
		for _, what := range w.log[:slices.Index(w.log, "drain m-1")] {
			if what == "decide" {
				at++
			}
		}
		require.Equal(t, row.live, w.decided[at].Live, name)
		for resource, version := range row.wrote {
			require.Equal(t, version, w.decided[at].Versions[resource], name)
		}
	}
}

func TestTheStageDetachNamesSlowVolumes(t *testing.T) {
	w := newGoing(t)
	w.going.Attached = 2
	until := w.env.Now().Add(2 * time.Minute)
	w.slow = []drain.Detached{
		{GoesOn: true, Until: until, Left: []string{"pv-a", "pv-b", "pv-c"}, More: 40},
		{GoesOn: true, Until: until, Left: []string{"pv-b"}},
		{Left: []string{"pv-b"}},
	}
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Len(t, w.detaching, 3)
	require.Empty(t, w.detaching[0].Shown)
	require.Equal(t, []string{"pv-b"}, w.detaching[2].Shown)
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

// stages returns the stages that were recorded in the status, in order, with their descriptions.
func (w *world) stages() (stages []deletion.Stage, words []string) {
	for _, r := range w.reports {
		if r.Deletion != nil && r.Deletion.Stage != "" {
			stages = append(stages, r.Deletion.Stage)
			words = append(words, r.Operation.Description)
		}
	}
	return stages, words
}

func TestDeletionGoesThroughItsStages(t *testing.T) {
	w := newGoing(t)
	w.going.Attached = 2
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Equal(t, []string{
		"decide", "weigh", "report Terminating", // then it is in the queue
		"decide", "announce", "weigh", "drain m-1",
		"decide", "report Terminating", "detach m-1",
		"decide", "report Terminating", "delete virtual:///i-1",
		"decide", "delete node m-1",
		"decide", "release",
	}, w.log)
	stages, words := w.stages()
	require.Equal(t, []deletion.Stage{deletion.Drain, deletion.Detach, deletion.Instance}, stages)
	require.Equal(t, []string{"Initiate node drain", "Wait for volumes to be detached", "Initiate VM deletion"}, words)
}

func TestTheRemovalOfANodeThatTakesLongIsAStage(t *testing.T) {
	w := newGoing(t)
	w.going.Recorded, w.going.Result, w.away = deletion.Instance, vocabulary.DrainDrained, true
	w.after(time.Minute, func() {
		stages, words := w.stages()
		require.Equal(t, deletion.Node, stages[len(stages)-1])
		require.Contains(t, words, "Initiate node object deletion")
		w.away = false
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
}

func TestNodeWithoutPodsAndVolumesNeedsNoDrain(t *testing.T) {
	w := newGoing(t)
	w.load = drain.NodeLoad{}
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.NotContains(t, w.log, "drain m-1")
	require.Contains(t, w.log, "weigh", "it is cordoned all the same")
	require.NotContains(t, w.log, "announce", "nobody is there to hear it")
}

// Each stage in turn is on record when a run begins: no earlier stage is repeated.
func TestRecordedStageIsNotLeftBackwards(t *testing.T) {
	marks := []string{"drain m-1", "detach m-1", "delete virtual:///i-1", "delete node m-1", "release"}
	for i, stage := range []deletion.Stage{deletion.Drain, deletion.Detach, deletion.Instance, deletion.Node, deletion.Release} {
		t.Run("it begins again in stage "+string(stage), func(t *testing.T) {
			w := newGoing(t)
			w.going.Recorded, w.going.Attached = stage, 1
			if i > 0 {
				w.going.Result = vocabulary.DrainDrained
			}
			require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
			for j, mark := range marks {
				require.Equal(t, j >= i, slices.Contains(w.log, mark), mark)
			}
			require.Equal(
				t,
				stage == deletion.Drain,
				slices.Contains(w.log, "announce"),
				"a run that continues a drain tells the node again",
			)
		})
	}
}

func TestHooksHoldADeletionUntilSomebodyTakesThemOff(t *testing.T) {
	w := newGoing(t)
	pre := "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup"
	post := "pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd"
	w.going.PreDrainHooks, w.going.PreTerminateHooks = []string{pre}, []string{post}
	w.after(time.Hour, func() {
		require.NotContains(t, w.log, "weigh")
		w.going.PreDrainHooks = nil
	})
	w.after(2*time.Hour, func() {
		require.Contains(t, w.log, "drain m-1")
		require.NotContains(t, w.log, "delete virtual:///i-1")
		w.going.PreTerminateHooks = nil
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	stages, _ := w.stages()
	require.Equal(
		t,
		[]deletion.Stage{deletion.PreDrainHooks, deletion.Drain, deletion.PreTerminateHooks, deletion.Instance},
		stages,
	)
	held := w.reports[0]
	require.Equal(t, []string{pre}, held.Step.BlockedBy)
	require.Equal(t, "waits until these pre-drain hooks are removed: "+pre, held.Event.Message)
}

func TestManyHooksAreShownInPart(t *testing.T) {
	w := newGoing(t)
	for i := range 40 {
		w.going.PreDrainHooks = append(
			w.going.PreDrainHooks,
			fmt.Sprintf("pre-drain.delete.hook.machine.cluster.x-k8s.io/%063d", i),
		)
	}
	first := w.going.PreDrainHooks[:5]
	var shown [][]string
	w.env.OnUpsertTypedSearchAttributes(mock.MatchedBy(func(attributes temporal.SearchAttributes) bool {
		key := temporal.NewSearchAttributeKeyKeywordList("BlockedBy")
		if names, changed := attributes.GetKeywordList(key); changed {
			shown = append(shown, names)
		}
		return true
	})).Return(nil)
	w.after(time.Hour, func() { w.going.PreDrainHooks = nil })
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Equal(t, first, shown[0])
	require.Equal(t, first, w.reports[0].Step.BlockedBy)
}

func TestMissingClassHoldsUpTheInstanceOnly(t *testing.T) {
	w := newGoing(t)
	w.decision.Problem = &kube.Problem{
		Reason:  "ClassNotFound",
		Message: "MachineClass small does not exist",
		React:   kube.UntilCredential,
	}
	w.after(time.Minute, func() {
		require.Contains(t, w.log, "drain m-1", "the node is drained meanwhile")
		require.NotContains(t, w.log, "delete virtual:///i-1")
		w.decision.Problem = nil
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
}

func TestQueuedMachineWaitsForItsTurn(t *testing.T) {
	w := newGoing(t)
	w.load.Queue = "queued: place 12 of 80; 100 nodes are drained at a time"
	w.after(time.Hour, func() {
		require.NotContains(t, w.log, "drain m-1")
		require.Equal(t, "queued", w.reports[1].Step.Name)
		require.Equal(t, w.load.Queue, w.reports[1].Operation.Description)
		w.load.Queue = ""
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Contains(t, w.log, "drain m-1")
}

// The cluster of the node was slow to answer while the machine was in the queue: the machine says that it is queued
// again.
func TestQueuedMachineIsNotShownAsWaitingForItsCluster(t *testing.T) {
	w := newGoing(t)
	w.load.Queue = "queued: place 12 of 80; 100 nodes are drained at a time"
	w.after(time.Minute, func() { w.away = true })
	w.after(2*time.Minute, func() {
		require.Equal(t, []string{"TargetUnavailable"}, w.reports[len(w.reports)-1].Step.BlockedBy)
		w.away = false
	})
	w.after(time.Hour, func() {
		last := w.reports[len(w.reports)-1]
		require.Equal(t, w.load.Queue, last.Operation.Description)
		require.Empty(t, last.Step.BlockedBy)
		w.load.Queue = ""
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
}

func TestHeldDeletionStaysWhereItIs(t *testing.T) {
	for _, stage := range []deletion.Stage{"", deletion.Drain, deletion.Instance, deletion.Node} {
		t.Run("before stage "+string(stage), func(t *testing.T) {
			w := newGoing(t)
			w.going.Recorded, w.going.Hold = stage, "alice: look at it first"
			if stage != "" && stage != deletion.Drain {
				w.going.Result = vocabulary.DrainDrained
			}
			w.after(time.Hour, func() {
				for _, act := range []string{"weigh", "drain m-1", "delete virtual:///i-1", "delete node m-1"} {
					require.NotContains(t, w.log, act)
				}
				require.Equal(t, "held by alice (look at it first)", w.reports[0].Event.Message)
				require.Equal(t, []string{"Hold"}, w.reports[0].Step.BlockedBy)
				w.going.Hold = ""
			})
			require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
		})
	}
}

func TestDrainThatSomebodyCancelsInTemporalHoldsTheDeletion(t *testing.T) {
	w := newGoing(t)
	w.cancelled = true
	w.after(time.Hour, func() {
		require.Contains(t, w.log, "hold: the drain was cancelled in Temporal")
		require.NotContains(t, w.log, "delete virtual:///i-1")
		w.going.Hold = ""
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
}

func TestReleasedMachineGoesWithoutItsProvider(t *testing.T) {
	w := newGoing(t)
	w.decision.Problem = &kube.Problem{
		Reason:  "ClassNotFound",
		Message: "MachineClass small does not exist",
		React:   kube.UntilCredential,
	}
	w.after(time.Hour, func() { w.going.Abandon = "annotation abandon-instance asks for it: alice: deleted by hand" })
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.NotContains(t, w.log, "delete virtual:///i-1")
	require.Contains(t, w.log, "delete node m-1")
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

// The deletion of a copy ends without the instance, which is that of the original.
func TestDeletionLeavesTheInstanceOfAnotherMachine(t *testing.T) {
	w := newGoing(t)
	w.going.Owner = ownership.Answer{Whose: ownership.Anothers, Why: "node m-1 has the mark of Machine prod/m"}
	w.going.Node = false
	w.deletion = cloud.InstanceAnswer{Anothers: "instance virtual:///i-1 has the UID of Machine prod/m"}
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	var told []string
	for _, r := range w.reports {
		if r.Event != nil && r.Event.Reason == "InstanceAnothers" {
			told = append(told, r.Event.Message)
		}
	}
	require.Equal(t, []string{"the instance stays: instance virtual:///i-1 has the UID of Machine prod/m"}, told)
}

// A doubt stops the deletion before the drain, and it goes on when the doubt has ended.
func TestDeletionWaitsWhileItIsInDoubtWhoseTheNodeIs(t *testing.T) {
	w := newGoing(t)
	w.going.Owner = ownership.Answer{Whose: ownership.InDoubt, Why: "two machines name node m-1"}
	w.after(time.Hour, func() {
		last := w.reports[len(w.reports)-1]
		require.Equal(t, []string{"OwnershipInDoubt"}, last.Step.BlockedBy)
		require.Equal(t, "two machines name node m-1", last.Operation.Description)
		require.NotContains(t, w.log, "delete virtual:///i-1")
		w.going.Owner = ownership.Answer{Whose: ownership.Ours}
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Contains(t, w.log, "delete virtual:///i-1")
}

// The provider can tell whose a node is that a label alone names.
func TestDeletionAsksTheProviderBeforeItIsInDoubt(t *testing.T) {
	w := newGoing(t)
	w.decision.Target = true
	w.going.Owner = ownership.Answer{Whose: ownership.InDoubt, Why: "only a label says it", Ask: true}
	w.look = func(cloud.InstanceCall) (cloud.InstanceAnswer, error) {
		w.going.Owner = ownership.Answer{Whose: ownership.Ours}
		return cloud.InstanceAnswer{ProviderID: "virtual:///i-1", NodeName: "m-1"}, nil
	}
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.Len(t, w.records, 1)
	require.Equal(t, "m-1", w.records[0].NodeName)
	require.True(t, w.records[0].Told, "the status has the name at once")
	for _, r := range w.reports {
		require.False(t, r.Step != nil && len(r.Step.BlockedBy) > 0, "nobody had to be asked: %+v", r.Step)
	}
}

func TestDeletionShowsThatTheTargetClusterIsAway(t *testing.T) {
	for _, stage := range []deletion.Stage{"", deletion.Drain, deletion.Node} {
		t.Run("in stage "+string(stage), func(t *testing.T) {
			w := newGoing(t)
			w.away, w.going.Recorded = true, stage
			if stage == deletion.Node {
				w.going.Result = vocabulary.DrainDrained
			}
			w.after(time.Minute, func() {
				last := w.reports[len(w.reports)-1]
				require.Equal(t, []string{"TargetUnavailable"}, last.Step.BlockedBy)
				require.Contains(t, last.Operation.Description, "the target cluster does not answer: ")
				require.Equal(t, "Failed", last.Operation.State, "as in MCM")
				require.NotContains(t, w.log, "release")
				w.away = false
			})
			require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
			require.Contains(t, w.log, "delete node m-1")
		})
	}
}

func TestSkipAndAbandonDoNotWaitForATargetClusterThatIsAway(t *testing.T) {
	for name, hurry := range map[string]func(f *deletion.Facts){
		"skip":    func(f *deletion.Facts) { f.Skip = "annotation skip asks for it: alice: cluster is gone" },
		"abandon": func(f *deletion.Facts) { f.Abandon = "annotation abandon-instance asks for it: alice: cluster is gone" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newGoing(t)
			w.away = true
			w.after(time.Minute, func() {
				require.NotContains(t, w.log, "release")
				hurry(&w.going)
			})
			require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
			require.Equal(t, name == "skip", slices.Contains(w.log, "delete virtual:///i-1"))
		})
	}
}

// A right that is missing in the target cluster is called so.
func TestATargetClusterThatDeniesIsNotCalledAway(t *testing.T) {
	w := newGoing(t)
	w.going.Recorded, w.going.Result, w.away = deletion.Instance, vocabulary.DrainDrained, true
	w.denied = kube.Answered(
		t.Context(),
		apierrors.NewForbidden(corev1.Resource("nodes"), "m-1", errors.New("no role allows it")),
	)
	w.after(time.Minute, func() {
		said := w.reports[len(w.reports)-1].Operation.Description
		require.Contains(t, said, "the target cluster does not allow it: removes node m-1: ")
		require.Contains(t, said, "no role allows it")
		w.away = false
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
}

// A webhook that is down in the target cluster is no cluster that does not answer: the way out is to mend the webhook,
// not to skip the drain.
func TestATargetClusterWithABrokenWebhookIsNotCalledAway(t *testing.T) {
	w := newGoing(t)
	w.away = true
	down := apierrors.NewInternalError(errors.New("failed calling webhook"))
	w.denied = kube.Answered(t.Context(), down)
	w.env.RegisterDelayedCallback(func() {
		defer w.lock()()
		require.Empty(t, w.reports, "it may pass")
		w.denied = kube.Refused(down.Error())
	}, 2*time.Second)
	w.after(time.Minute, func() {
		for _, r := range w.reports {
			require.Equal(t, []string{"Refused"}, r.Step.BlockedBy)
			require.Contains(t, r.Step.Cause, "failed calling webhook")
		}
		w.away = false
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	require.NotEmpty(t, w.reports)
}

// The label force-deletion ends the wait for a cluster that is away, so that the instance goes. The Node is waited for.
func TestForceDoesNotWaitForATargetClusterThatIsAway(t *testing.T) {
	w := newGoing(t)
	w.away = true
	w.after(time.Minute, func() { w.going.Force = "label force-deletion is set" })
	w.after(2*time.Minute, func() {
		require.Contains(t, w.log, "delete virtual:///i-1")
		require.NotContains(t, w.log, "release")
		require.Equal(t, []string{"TargetUnavailable"}, w.reports[len(w.reports)-1].Step.BlockedBy)
		w.away = false
	})
	require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
	skipped := slices.IndexFunc(w.reports, func(r machine.Report) bool {
		return r.Deletion != nil && r.Deletion.Result == vocabulary.DrainSkipped
	})
	require.GreaterOrEqual(t, skipped, 0, "a node that was not asked is not called empty")
	require.Contains(t, w.reports[skipped].Conditions[0].Message, "the cluster of node m-1 does not answer")
}

func TestWaitForVolumesEndsWhenAPersonWantsSomethingElse(t *testing.T) {
	for name, wish := range map[string]func(f *deletion.Facts){
		"hold":    func(f *deletion.Facts) { f.Hold = "alice: look at it first" },
		"exclude": func(f *deletion.Facts) { f.SkipDetach = "annotation exclude asks for it" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newGoing(t)
			w.going.Recorded, w.going.Attached, w.going.Result, w.attached = deletion.Detach, 1, vocabulary.DrainDrained, true
			w.after(time.Minute, func() { wish(&w.going) })
			w.after(time.Hour, func() { w.going.Hold, w.attached = "", false })
			require.Equal(t, run.OutcomeGone, w.run(t).Outcome)
			if name == "hold" {
				require.Equal(t, "held by alice (look at it first)", w.reports[0].Event.Message)
			}
		})
	}
}
