package drain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
)

// stayingPods returns pods that no drain touches, and a pod of another node.
func stayingPods() []runtime.Object {
	skip := func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelDrain: "skip"} }
	return []runtime.Object{
		activitiestest.NewPod(
			"mirror",
			activitiestest.WithMirrorAnnotation,
		),
		activitiestest.NewPod("agent", activitiestest.WithDaemonSetOwner),
		activitiestest.NewPod("kept", skip),
		activitiestest.NewPod("elsewhere", activitiestest.WithOtherNode),
		activitiestest.NewPod(
			"broken",
			activitiestest.WithMirrorAnnotation,
			activitiestest.WithPodPhase(corev1.PodFailed),
		),
		activitiestest.NewPod(
			"leaving",
			activitiestest.WithDaemonSetOwner,
			activitiestest.WithDeletionTimestamp[*corev1.Pod],
		),
	}
}

func TestNodeWithOnlyStayingPodsIsEmpty(t *testing.T) {
	t.Parallel()
	for name, means := range map[string]drain.RemovalMeans{"by eviction": drain.MeansEvict, "by deletion": drain.MeansDelete, "by force": drain.MeansKill} {
		t.Run(name, func(t *testing.T) {
			runEvictionTest(t, stayingPods(), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				in.Means, in.Until = means, time.Now().Add(-time.Hour)
				seen := activitiestest.RunActivityTwice[activities.EvictionResult](d.World, newActivities(d.Kube).EvictPods, in)
				assert.Equal(t, activities.EvictionResult{
					Outcome: activities.OutcomeEmpty, Picture: drain.Overview{Counts: drain.PodCounts{Skipped: 5}, Why: "empty"},
				}, seen)
				assert.Empty(t, d.TakeNewRequests())
				assert.Empty(t, d.MutatingRequests())
				assert.Equal(t, []string{"list pods", "watch pods", "list pods", "watch pods"}, d.Requests(), "live")
			})
		})
	}
}

func TestDrainWaitsForEvictedPods(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		append(podsToRemove("a", "b"), stayingPods()...),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			e := d.StartEviction(in)
			e.AssertRunning(t)
			assert.Equal(
				t,
				[]activitiestest.PodRequest{newEvictRequest("a"), newEvictRequest("b")},
				d.TakeNewRequests(),
				"each with its UID",
			)
			d.RemovePods("a")
			e.AssertRunning(t)
			activitiestest.AdvanceTime(time.Minute)
			e.AssertRunning(t)
			assert.Empty(t, d.TakeNewRequests(), "nobody is asked twice")
			d.RemovePods("b")
			seen, took := e.AwaitResult(t)
			assert.Zero(t, took)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			assert.Equal(t, 2, seen.Accepted)
			assert.Empty(t, seen.Left)
			assert.Empty(t, seen.Blockers)
			assert.Zero(t, seen.Grace)
		},
	)
}

func TestPodPastGracePeriodIsReported(t *testing.T) {
	t.Parallel()
	runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
		seen, took := d.StartEviction(in).AwaitResult(t)
		assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
		assert.GreaterOrEqual(t, took, 91*time.Second, "its grace period, and a minute")
		require.Len(t, seen.Blockers, 1)
		assert.Equal(t, drain.BlockedByTermination, seen.Blockers[0].Kind)
		assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests())
	})
}

func TestOverviewCountsDepartedPods(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		append(podsToRemove("a", "b"), stayingPods()...),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			e := d.StartEviction(in)
			e.AssertRunning(t)
			d.RemovePods("a", "agent")
			e.AssertRunning(t)
			d.RemovePods("b")
			seen, _ := e.AwaitResult(t)
			assert.Equal(t, drain.PodCounts{Gone: 2, Skipped: 4}, seen.Picture.Counts, "those that had to go")
		},
	)
}

func TestTerminatingPodIsNotEvictedAgain(t *testing.T) {
	t.Parallel()
	t.Run("by the next attempt", func(t *testing.T) {
		runEvictionTest(
			t,
			podsToRemove("a", "b"),
			func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				first := d.StartEviction(in)
				first.AssertRunning(t)
				assert.Len(t, d.TakeNewRequests(), 2)
				require.NoError(t, first.CancelAndWait())

				second := d.StartEviction(in)
				second.AssertRunning(t)
				assert.Empty(t, d.TakeNewRequests(), "their own deletion timestamps tell")
				d.RemovePods("a", "b")
				seen, _ := second.AwaitResult(t)
				assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
				assert.Zero(t, seen.Accepted, "they were asked before")
			},
		)
	})
	t.Run("by the next means, unless that kills", func(t *testing.T) {
		runEvictionTest(
			t,
			[]runtime.Object{activitiestest.NewPod("a", activitiestest.WithDeletionTimestamp[*corev1.Pod])},
			func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				for means, want := range map[drain.RemovalMeans][]activitiestest.PodRequest{drain.MeansEvict: {}, drain.MeansDelete: {}, drain.MeansKill: {newKillRequest("a")}} {
					in.Means = means
					e := d.StartEviction(in)
					e.AssertRunning(t)
					assert.ElementsMatch(t, want, d.TakeNewRequests(), means)
					require.NoError(t, e.CancelAndWait())
				}
			},
		)
	})
	t.Run("nor is another one of its name", func(t *testing.T) {
		runEvictionTest(t, podsToRemove("db-0"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			d.UseFakePodWatch() // the pod watch delivers no events
			d.SetRequestError(budgetRefusalError("db"), "db-0")
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget}}
			e := d.StartEviction(in)
			e.AssertRunning(t)
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("db-0")}, d.TakeNewRequests())

			d.SetRequestError(nil, "db-0")
			d.RemovePods("db-0")
			next := activitiestest.NewPod("db-0", activitiestest.WithOtherNode, func(p *corev1.Pod) { p.UID = "uid-next" })
			require.NoError(t, d.TargetClient.Tracker().Create(activitiestest.PodsResource, next, "web"))
			seen, _ := e.AwaitResult(t)
			assert.Zero(t, seen.Accepted)
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("db-0")}, d.TakeNewRequests(), "it is tried again")
			p, err := d.TargetClient.Tracker().Get(activitiestest.PodsResource, "web", "db-0")
			require.NoError(t, err)
			assert.Nil(t, p.(*corev1.Pod).DeletionTimestamp)

			seen, _ = d.StartEviction(in).AwaitResult(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			assert.Empty(t, d.TakeNewRequests())
		})
	})
}

func TestEachRemovalMeansSendsItsRequest(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		means drain.RemovalMeans
		want  func(string) activitiestest.PodRequest
	}{
		"eviction":                           {drain.MeansEvict, newEvictRequest},
		"deletion, with the pod's own grace": {drain.MeansDelete, newDeleteRequest},
		"deletion in order, the same":        {drain.MeansDeleteInOrder, newDeleteRequest},
		"force, with none":                   {drain.MeansKill, newKillRequest},
	} {
		t.Run(name, func(t *testing.T) {
			long := activitiestest.NewPod("a", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(300)) })
			runEvictionTest(
				t,
				append(stayingPods(), long),
				func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
					in.Means = row.means
					e := d.StartEviction(in)
					e.AssertRunning(t)
					assert.Equal(t, []activitiestest.PodRequest{row.want("a")}, d.TakeNewRequests())
					activitiestest.AdvanceTime(time.Minute)
					assert.Empty(t, d.TakeNewRequests(), "once")
					d.RemovePods("a")
					seen, _ := e.AwaitResult(t)
					assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
					assert.Equal(t, 1, seen.Accepted)
				},
			)
		})
	}
}

func TestPodsThatArriveDuringDrainAreEvicted(t *testing.T) {
	t.Parallel()
	runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
		e := d.StartEviction(in)
		e.AssertRunning(t)
		assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests())
		for _, p := range []*corev1.Pod{activitiestest.NewPod("late"), activitiestest.NewPod("agent", activitiestest.WithDaemonSetOwner), activitiestest.NewPod("far", activitiestest.WithOtherNode)} {
			require.NoError(t, d.TargetClient.Tracker().Create(activitiestest.PodsResource, p, "web"))
		}
		d.RemovePods("a")
		e.AssertRunning(t)
		assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("late")}, d.TakeNewRequests())
		d.RemovePods("late")
		seen, _ := e.AwaitResult(t)
		assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		assert.Equal(t, 1, seen.Picture.Counts.Skipped)
	})
}

// A client that places pods on the node by name replaces each evicted pod at once.
func TestPodsThatReturnAgainAndAgainAreEvictedSlowly(t *testing.T) {
	t.Parallel()
	runEvictionTest(t, podsToRemove("p0"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
		e := d.StartEviction(in)
		evicted := 0
		for range 200 {
			activitiestest.AdvanceTime(300 * time.Millisecond)
			for _, request := range d.TakeNewRequests() {
				evicted++
				d.RemovePods(request.Pod)
				next := activitiestest.NewPod(fmt.Sprintf("p%d", evicted))
				require.NoError(t, d.TargetClient.Tracker().Create(activitiestest.PodsResource, next, "web"))
			}
			e.AssertRunning(t)
		}
		assert.Equal(t, 1+10+5, evicted, "the first pod, ten at once, and one every ten seconds until the minute ends")
	})
}

func TestHeartbeatsContainDrainOverview(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		podsToRemove("a", "b"),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			e := d.StartEviction(in)
			e.AssertRunning(t)
			first := (<-e.Heartbeats).Picture
			assert.Equal(t, drain.PodCounts{Terminating: 2}, first.Counts)
			assert.Equal(t, "2 pods left: 2 are terminating", first.Why)
			require.Len(t, first.Rows, 2)
			assert.Equal(t, "web/a", first.Rows[0].Pod)
			assert.Equal(t, 1, first.Rows[0].Attempts)
			d.RemovePods("a")
			for p := range e.Heartbeats { // heartbeats are sent even without changes; the SDK delays some heartbeats
				if p.Picture.Counts.Terminating == 1 {
					assert.Equal(t, 1, p.Gone)
					break
				}
			}
			d.RemovePods("b")
			e.AwaitResult(t)
		},
	)
}

func TestEvictionAttemptsOfEarlierRunsAreCounted(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		podsToRemove("a", "b"),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Known = []drain.PodRow{{Pod: "web/a", State: drain.StateBlocked, Attempts: 7}, {Pod: "other/b", Attempts: 9}}
			e := d.StartEviction(in)
			e.AssertRunning(t)
			rows := (<-e.Heartbeats).Picture.Rows
			require.Len(t, rows, 2)
			assert.Equal(t, []int{8, 1}, []int{rows[0].Attempts, rows[1].Attempts})
			d.RemovePods("a", "b")
			e.AwaitResult(t)
		},
	)
}
