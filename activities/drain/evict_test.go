package drain_test

import (
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
		activitiestest.Pod(
			"mirror",
			activitiestest.Mirror,
		),
		activitiestest.Pod("agent", activitiestest.OfDaemonSet),
		activitiestest.Pod("kept", skip),
		activitiestest.Pod("elsewhere", activitiestest.Elsewhere),
		activitiestest.Pod(
			"broken",
			activitiestest.Mirror,
			activitiestest.InPhase(corev1.PodFailed),
		),
		activitiestest.Pod("leaving", activitiestest.OfDaemonSet, activitiestest.Going[*corev1.Pod]),
	}
}

func TestNodeWithOnlyStayingPodsIsEmpty(t *testing.T) {
	t.Parallel()
	for name, means := range map[string]drain.Means{"by eviction": drain.Evict, "by deletion": drain.Delete, "by force": drain.Kill} {
		t.Run(name, func(t *testing.T) {
			runEvictionTest(t, stayingPods(), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
				in.Means, in.Until = means, time.Now().Add(-time.Hour)
				seen := activitiestest.Twice[activities.Evicted](d.World, newActivities(d.Kube).EvictPods, in)
				assert.Equal(t, activities.Evicted{
					Outcome: activities.OutcomeEmpty, Picture: drain.Picture{Counts: drain.Counts{Skipped: 5}, Why: "empty"},
				}, seen)
				assert.Empty(t, d.Since())
				assert.Empty(t, d.Writes())
				assert.Equal(t, []string{"list pods", "watch pods", "list pods", "watch pods"}, d.Requests(), "live")
			})
		})
	}
}

func TestPodsAreEvictedAndWaitedFor(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		append(leavingPods("a", "b"), stayingPods()...),
		func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
			e := d.Empty(in)
			e.GoesOn(t)
			assert.Equal(t, []activitiestest.Asked{evictRequest("a"), evictRequest("b")}, d.Since(), "each with its UID")
			d.End("a")
			e.GoesOn(t)
			activitiestest.After(time.Minute)
			e.GoesOn(t)
			assert.Empty(t, d.Since(), "nobody is asked twice")
			d.End("b")
			seen, took := e.Ends(t)
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
	runEvictionTest(t, leavingPods("a"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
		seen, took := d.Empty(in).Ends(t)
		assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
		assert.GreaterOrEqual(t, took, 91*time.Second, "its grace period, and a minute")
		require.Len(t, seen.Blockers, 1)
		assert.Equal(t, drain.BlockedByEnding, seen.Blockers[0].Kind)
		assert.Equal(t, []activitiestest.Asked{evictRequest("a")}, d.Since())
	})
}

func TestPictureCountsDepartedPods(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		append(leavingPods("a", "b"), stayingPods()...),
		func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
			e := d.Empty(in)
			e.GoesOn(t)
			d.End("a", "agent")
			e.GoesOn(t)
			d.End("b")
			seen, _ := e.Ends(t)
			assert.Equal(t, drain.Counts{Gone: 2, Skipped: 4}, seen.Picture.Counts, "those that had to go")
		},
	)
}

func TestTerminatingPodIsNotRequestedAgain(t *testing.T) {
	t.Parallel()
	t.Run("by the next attempt", func(t *testing.T) {
		runEvictionTest(t, leavingPods("a", "b"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
			first := d.Empty(in)
			first.GoesOn(t)
			assert.Len(t, d.Since(), 2)
			require.NoError(t, first.Quit())

			second := d.Empty(in)
			second.GoesOn(t)
			assert.Empty(t, d.Since(), "their own deletion timestamps tell")
			d.End("a", "b")
			seen, _ := second.Ends(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			assert.Zero(t, seen.Accepted, "they were asked before")
		})
	})
	t.Run("by the next means, unless that kills", func(t *testing.T) {
		runEvictionTest(
			t,
			[]runtime.Object{activitiestest.Pod("a", activitiestest.Going[*corev1.Pod])},
			func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
				for means, want := range map[drain.Means][]activitiestest.Asked{drain.Evict: {}, drain.Delete: {}, drain.Kill: {killRequest("a")}} {
					in.Means = means
					e := d.Empty(in)
					e.GoesOn(t)
					assert.ElementsMatch(t, want, d.Since(), means)
					require.NoError(t, e.Quit())
				}
			},
		)
	})
	t.Run("nor is another one of its name", func(t *testing.T) {
		runEvictionTest(t, leavingPods("db-0"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
			d.WatchBy() // the pod watch delivers no events
			d.Answer(budgetRefusal("db"), "db-0")
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget}}
			e := d.Empty(in)
			e.GoesOn(t)
			assert.Equal(t, []activitiestest.Asked{evictRequest("db-0")}, d.Since())

			d.Answer(nil, "db-0")
			d.End("db-0")
			next := activitiestest.Pod("db-0", activitiestest.Elsewhere, func(p *corev1.Pod) { p.UID = "uid-next" })
			require.NoError(t, d.Target.Tracker().Create(activitiestest.PodsResource, next, "web"))
			seen, _ := e.Ends(t)
			assert.Zero(t, seen.Accepted)
			assert.Equal(t, []activitiestest.Asked{evictRequest("db-0")}, d.Since(), "it is tried again")
			p, err := d.Target.Tracker().Get(activitiestest.PodsResource, "web", "db-0")
			require.NoError(t, err)
			assert.Nil(t, p.(*corev1.Pod).DeletionTimestamp)

			seen, _ = d.Empty(in).Ends(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			assert.Empty(t, d.Since())
		})
	})
}

func TestRequestOfEachMeans(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		means drain.Means
		want  func(string) activitiestest.Asked
	}{
		"eviction":                           {drain.Evict, evictRequest},
		"deletion, with the pod's own grace": {drain.Delete, deleteRequest},
		"deletion in order, the same":        {drain.DeleteInOrder, deleteRequest},
		"force, with none":                   {drain.Kill, killRequest},
	} {
		t.Run(name, func(t *testing.T) {
			long := activitiestest.Pod("a", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(300)) })
			runEvictionTest(t, append(stayingPods(), long), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
				in.Means = row.means
				e := d.Empty(in)
				e.GoesOn(t)
				assert.Equal(t, []activitiestest.Asked{row.want("a")}, d.Since())
				activitiestest.After(time.Minute)
				assert.Empty(t, d.Since(), "once")
				d.End("a")
				seen, _ := e.Ends(t)
				assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
				assert.Equal(t, 1, seen.Accepted)
			})
		})
	}
}

func TestPodsThatArriveDuringDrainAreEvicted(t *testing.T) {
	t.Parallel()
	runEvictionTest(t, leavingPods("a"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
		e := d.Empty(in)
		e.GoesOn(t)
		assert.Equal(t, []activitiestest.Asked{evictRequest("a")}, d.Since())
		for _, p := range []*corev1.Pod{activitiestest.Pod("late"), activitiestest.Pod("agent", activitiestest.OfDaemonSet), activitiestest.Pod("far", activitiestest.Elsewhere)} {
			require.NoError(t, d.Target.Tracker().Create(activitiestest.PodsResource, p, "web"))
		}
		d.End("a")
		e.GoesOn(t)
		assert.Equal(t, []activitiestest.Asked{evictRequest("late")}, d.Since())
		d.End("late")
		seen, _ := e.Ends(t)
		assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		assert.Equal(t, 1, seen.Picture.Counts.Skipped)
	})
}

func TestHeartbeatsHoldThePicture(t *testing.T) {
	t.Parallel()
	runEvictionTest(t, leavingPods("a", "b"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
		e := d.Empty(in)
		e.GoesOn(t)
		first := (<-e.Beats).Picture
		assert.Equal(t, drain.Counts{Terminating: 2}, first.Counts)
		assert.Equal(t, "2 pods left: 2 are terminating", first.Why)
		require.Len(t, first.Rows, 2)
		assert.Equal(t, "web/a", first.Rows[0].Pod)
		assert.Equal(t, 1, first.Rows[0].Attempts)
		d.End("a")
		for p := range e.Beats { // heartbeats are sent even without changes; the SDK delays some heartbeats
			if p.Picture.Counts.Terminating == 1 {
				assert.Equal(t, 1, p.Gone)
				break
			}
		}
		d.End("b")
		e.Ends(t)
	})
}

func TestAttemptsOfEarlierRunsAreCounted(t *testing.T) {
	t.Parallel()
	runEvictionTest(t, leavingPods("a", "b"), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
		in.Known = []drain.Row{{Pod: "web/a", State: drain.Blocked, Attempts: 7}, {Pod: "other/b", Attempts: 9}}
		e := d.Empty(in)
		e.GoesOn(t)
		rows := (<-e.Beats).Picture.Rows
		require.Len(t, rows, 2)
		assert.Equal(t, []int{8, 1}, []int{rows[0].Attempts, rows[1].Attempts})
		d.End("a", "b")
		e.Ends(t)
	})
}
