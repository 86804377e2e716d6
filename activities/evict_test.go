package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
)

// staying are pods that no drain touches, and one of another node.
func staying() []runtime.Object {
	skip := func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelDrain: "skip"} }
	return []runtime.Object{
		pod("mirror", mirror), pod("agent", ofDaemonSet), pod("kept", skip), pod("elsewhere", elsewhere),
		pod("broken", mirror, inPhase(corev1.PodFailed)), pod("leaving", ofDaemonSet, going[*corev1.Pod]),
	}
}

func TestDR34_ANodeWithPodsThatMayStayIsEmpty(t *testing.T) {
	t.Parallel()
	for name, means := range map[string]drain.Means{"DR-34: by eviction": drain.Evict, "by deletion": drain.Delete, "by force": drain.Kill} {
		t.Run(name, func(t *testing.T) {
			emptying(t, staying(), func(t *testing.T, d *desk, in activities.Eviction) {
				in.Means, in.Until = means, time.Now().Add(-time.Hour)
				seen := twice[activities.Evicted](d.world, d.EvictPods, in)
				assert.Equal(t, activities.Evicted{
					Outcome: activities.OutcomeEmpty, Picture: drain.Picture{Counts: drain.Counts{Skipped: 5}, Why: "empty"},
				}, seen)
				assert.Empty(t, d.since())
				assert.Empty(t, d.writes())
				assert.Equal(t, []string{"list pods", "watch pods", "list pods", "watch pods"}, d.world.requests(), "live")
			})
		})
	}
}

func TestU141_PodsAreEvictedAndWaitedFor(t *testing.T) {
	t.Parallel()
	emptying(t, append(pods("a", "b"), staying()...), func(t *testing.T, d *desk, in activities.Eviction) {
		e := d.empty(in)
		e.goesOn(t)
		assert.Equal(t, []asked{evicted("a"), evicted("b")}, d.since(), "D41: each with its UID")
		d.end("a")
		e.goesOn(t)
		after(time.Minute)
		e.goesOn(t)
		assert.Empty(t, d.since(), "nobody is asked twice")
		d.end("b")
		seen, took := e.ends(t)
		assert.Zero(t, took)
		assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		assert.Equal(t, 2, seen.Accepted)
		assert.Empty(t, seen.Left)
		assert.Empty(t, seen.Blockers)
		assert.Zero(t, seen.Grace)
	})
}

func TestAPodThatShouldHaveEndedLongAgoIsTold(t *testing.T) {
	t.Parallel()
	emptying(t, pods("a"), func(t *testing.T, d *desk, in activities.Eviction) {
		seen, took := d.empty(in).ends(t)
		assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
		assert.GreaterOrEqual(t, took, 91*time.Second, "its grace period, and a minute")
		require.Len(t, seen.Blockers, 1)
		assert.Equal(t, drain.BlockedByEnding, seen.Blockers[0].Kind)
		assert.Equal(t, []asked{evicted("a")}, d.since())
	})
}

func TestThePictureCountsThoseThatAreGone(t *testing.T) {
	t.Parallel()
	emptying(t, append(pods("a", "b"), staying()...), func(t *testing.T, d *desk, in activities.Eviction) {
		e := d.empty(in)
		e.goesOn(t)
		d.end("a", "agent")
		e.goesOn(t)
		d.end("b")
		seen, _ := e.ends(t)
		assert.Equal(t, drain.Counts{Gone: 2, Skipped: 4}, seen.Picture.Counts, "those that had to go")
	})
}

func TestD41_APodThatGoesIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	t.Run("D41: by the next attempt", func(t *testing.T) {
		emptying(t, pods("a", "b"), func(t *testing.T, d *desk, in activities.Eviction) {
			first := d.empty(in)
			first.goesOn(t)
			assert.Len(t, d.since(), 2)
			require.NoError(t, first.quit())

			second := d.empty(in)
			second.goesOn(t)
			assert.Empty(t, d.since(), "their own deletion timestamps tell")
			d.end("a", "b")
			seen, _ := second.ends(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			assert.Zero(t, seen.Accepted, "they were asked before")
		})
	})
	t.Run("D41: by the next means, unless that kills", func(t *testing.T) {
		emptying(t, []runtime.Object{pod("a", going[*corev1.Pod])}, func(t *testing.T, d *desk, in activities.Eviction) {
			for means, want := range map[drain.Means][]asked{drain.Evict: {}, drain.Delete: {}, drain.Kill: {killed("a")}} {
				in.Means = means
				e := d.empty(in)
				e.goesOn(t)
				assert.ElementsMatch(t, want, d.since(), means)
				require.NoError(t, e.quit())
			}
		})
	})
	t.Run("D41: nor is another one of its name", func(t *testing.T) {
		emptying(t, pods("db-0"), func(t *testing.T, d *desk, in activities.Eviction) {
			d.watchBy() // the watch is slow
			d.answer(refusal("db"), "db-0")
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget}}
			e := d.empty(in)
			e.goesOn(t)
			assert.Equal(t, []asked{evicted("db-0")}, d.since())

			d.answer(nil, "db-0")
			d.end("db-0")
			next := pod("db-0", elsewhere, func(p *corev1.Pod) { p.UID = "uid-next" })
			require.NoError(t, d.target.Tracker().Create(podsResource, next, "web"))
			seen, _ := e.ends(t)
			assert.Zero(t, seen.Accepted)
			assert.Equal(t, []asked{evicted("db-0")}, d.since(), "it is tried again")
			p, err := d.target.Tracker().Get(podsResource, "web", "db-0")
			require.NoError(t, err)
			assert.Nil(t, p.(*corev1.Pod).DeletionTimestamp)

			seen, _ = d.empty(in).ends(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			assert.Empty(t, d.since())
		})
	})
}

func TestTheMeansOfADrain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		means drain.Means
		want  func(string) asked
	}{
		"U141: eviction": {drain.Evict, evicted},
		"U140: deletion, with the pod's own grace": {drain.Delete, deleted},
		"U148: force, with none":                   {drain.Kill, killed},
	} {
		t.Run(name, func(t *testing.T) {
			long := pod("a", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(300)) })
			emptying(t, append(staying(), long), func(t *testing.T, d *desk, in activities.Eviction) {
				in.Means = row.means
				e := d.empty(in)
				e.goesOn(t)
				assert.Equal(t, []asked{row.want("a")}, d.since())
				after(time.Minute)
				assert.Empty(t, d.since(), "once")
				d.end("a")
				seen, _ := e.ends(t)
				assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
				assert.Equal(t, 1, seen.Accepted)
			})
		})
	}
}

func TestPodsThatComeMeanwhileGoToo(t *testing.T) {
	t.Parallel()
	emptying(t, pods("a"), func(t *testing.T, d *desk, in activities.Eviction) {
		e := d.empty(in)
		e.goesOn(t)
		assert.Equal(t, []asked{evicted("a")}, d.since())
		for _, p := range []*corev1.Pod{pod("late"), pod("agent", ofDaemonSet), pod("far", elsewhere)} {
			require.NoError(t, d.target.Tracker().Create(podsResource, p, "web"))
		}
		d.end("a")
		e.goesOn(t)
		assert.Equal(t, []asked{evicted("late")}, d.since())
		d.end("late")
		seen, _ := e.ends(t)
		assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		assert.Equal(t, 1, seen.Picture.Counts.Skipped)
	})
}

func TestHeartbeatsHoldThePicture(t *testing.T) {
	t.Parallel()
	emptying(t, pods("a", "b"), func(t *testing.T, d *desk, in activities.Eviction) {
		e := d.empty(in)
		e.goesOn(t)
		first := (<-e.beats).Picture
		assert.Equal(t, drain.Counts{Terminating: 2}, first.Counts)
		assert.Equal(t, "2 pods left: 2 are terminating", first.Why)
		require.Len(t, first.Rows, 2)
		assert.Equal(t, "web/a", first.Rows[0].Pod)
		assert.Equal(t, 1, first.Rows[0].Attempts)
		d.end("a")
		for p := range e.beats { // also when nothing happens; the SDK holds some back for a while
			if p.Picture.Counts.Terminating == 1 {
				assert.Equal(t, 1, p.Gone)
				break
			}
		}
		d.end("b")
		e.ends(t)
	})
}

func TestWhatEarlierRunsTriedIsShown(t *testing.T) {
	t.Parallel()
	emptying(t, pods("a", "b"), func(t *testing.T, d *desk, in activities.Eviction) {
		in.Known = []drain.Row{{Pod: "web/a", State: drain.Blocked, Attempts: 7}, {Pod: "other/b", Attempts: 9}}
		e := d.empty(in)
		e.goesOn(t)
		rows := (<-e.beats).Picture.Rows
		require.Len(t, rows, 2)
		assert.Equal(t, []int{8, 1}, []int{rows[0].Attempts, rows[1].Attempts})
		d.end("a", "b")
		e.ends(t)
	})
}
