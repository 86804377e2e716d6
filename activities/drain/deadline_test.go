package drain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/decide/drain"
)

func TestEvictPodsAfterDeadline(t *testing.T) {
	t.Parallel()
	t.Run("in time", func(t *testing.T) {
		runEvictionTest(
			t,
			podsToRemove("a", "b"),
			func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				in.Until = time.Now().Add(time.Minute + 100*time.Millisecond)
				seen, took := d.StartEviction(in).AwaitResult(t)
				assert.Equal(t, time.Minute+100*time.Millisecond, took)
				assert.Equal(t, activities.OutcomeDeadline, seen.Outcome)
				assert.Equal(t, []string{"web/a", "web/b"}, seen.Left, "they terminate still")
				assert.Equal(t, 2, seen.Accepted)
				assert.Equal(t, 30*time.Second, seen.Grace)
				assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a"), newEvictRequest("b")}, d.TakeNewRequests())
			},
		)
	})
	for name, until := range map[string]time.Duration{"it was over before": -time.Hour, "it is over now": 0} {
		for _, means := range []drain.RemovalMeans{drain.MeansEvict, drain.MeansDelete, drain.MeansKill} {
			t.Run(fmt.Sprintf("%s: %s: each pod is asked once", name, means), func(t *testing.T) {
				names := []string{
					"a",
					"b",
					"c",
					"d",
					"e",
					"f",
					"g",
					"h",
					"i",
					"j",
					"k",
					"l",
					"m",
					"n",
					"o",
					"p",
					"q",
					"r",
					"s",
					"t",
					"u",
					"v",
				}
				runEvictionTest(
					t,
					append(podsToRemove(names...), stayingPods()...),
					func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
						in.Means, in.Until = means, time.Now().Add(until)
						d.SetRequestError(errPodNotFound, "a")
						d.SetRequestError(errWebhookFailed, "b")
						seen, took := d.StartEviction(in).AwaitResult(t)
						assert.Zero(t, took)
						assert.Equal(t, activities.OutcomeDeadline, seen.Outcome)
						assert.Equal(t, len(names)-2, seen.Accepted)
						assert.Len(t, seen.Left, drain.MaxOverviewRows, "as many as a status holds")
						assert.Equal(t, "web/b", seen.Left[0])
						var asked []string
						for _, r := range d.TakeNewRequests() {
							asked = append(asked, r.Pod)
						}
						assert.Equal(t, names, asked)
					},
				)
			})
		}
	}
	t.Run("an empty node is empty, however late it is", func(t *testing.T) {
		runEvictionTest(t, podsToRemove("a"), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Until = time.Now().Add(-time.Hour)
			d.SetRequestError(errPodNotFound, "a")
			seen, _ := d.StartEviction(in).AwaitResult(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		})
	})
	t.Run("what blocks is told with it", func(t *testing.T) {
		runEvictionTest(
			t,
			append(readyPods("a"), newBudget(0)),
			func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				in.Until = time.Now()
				seen, _ := d.StartEviction(in).AwaitResult(t)
				assert.Equal(t, activities.OutcomeDeadline, seen.Outcome)
				assert.Len(t, seen.Blockers, 1)
			},
		)
	})
	t.Run("what is left tells the longest grace period", func(t *testing.T) {
		grace := func(seconds int64) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
		}
		objects := []runtime.Object{
			activitiestest.NewPod(
				"a",
				grace(60),
			),
			activitiestest.NewPod("b", grace(900)),
			activitiestest.NewPod("c", grace(0)),
			activitiestest.NewPod("agent", grace(3600), activitiestest.WithDaemonSetOwner),
			activitiestest.NewPod("gone", grace(1800)),
		}
		runEvictionTest(t, objects, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Until = time.Now().Add(time.Minute)
			e := d.StartEviction(in)
			e.AssertRunning(t)
			d.RemovePods("gone")
			seen, _ := e.AwaitResult(t)
			assert.Equal(t, 15*time.Minute, seen.Grace)
			assert.Equal(t, []string{"web/a", "web/b", "web/c"}, seen.Left)
		})
	})
}

func TestDisruptionProtectionEndsWhenPodsAreDeleted(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		[]runtime.Object{activitiestest.NewPod("a", withDoNotDisrupt("true"))},
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Until = time.Now().Add(time.Minute)
			seen, _ := d.StartEviction(in).AwaitResult(t)
			assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
			assert.Equal(
				t,
				[]drain.Blocker{{Kind: drain.BlockedByProtection, Pods: 1, Why: "web/a is not to be disrupted"}},
				seen.Blockers,
			)
			in.Shown = seen.Blockers
			seen, _ = d.StartEviction(in).AwaitResult(t)
			assert.Equal(t, activities.OutcomeDeadline, seen.Outcome)
			assert.Empty(t, d.TakeNewRequests())
			in.Means, in.Until = drain.MeansDelete, time.Now().Add(time.Minute)
			e := d.StartEviction(in)
			e.AssertRunning(t)
			assert.Equal(t, []activitiestest.PodRequest{newDeleteRequest("a")}, d.TakeNewRequests())
			d.RemovePods("a")
			e.AwaitResult(t)
		},
	)
}

func TestProtectedPodIsEvictedAfterProtectionTime(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		[]runtime.Object{activitiestest.NewPod("a", withDoNotDisrupt("10s"))},
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByProtection}}
			e := d.StartEviction(in)
			activitiestest.AdvanceTime(time.Until(activitiestest.SynctestStartTime.Add(10*time.Second - time.Millisecond)))
			e.AssertRunning(t)
			assert.Empty(t, d.TakeNewRequests())
			activitiestest.AdvanceTime(2 * time.Millisecond)
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests())
			_ = e.CancelAndWait()
		},
	)
}

func TestDrainWaitsForPodsWithWaitCompleted(t *testing.T) {
	t.Parallel()
	job := activitiestest.NewPod(
		"job",
		func(p *corev1.Pod) { p.Labels = map[string]string{"cluster.x-k8s.io/drain": "Wait-Completed"} },
	)
	runEvictionTest(
		t,
		append(podsToRemove("a"), job),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByCompletion}}
			e := d.StartEviction(in)
			e.AssertRunning(t)
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests())
			d.RemovePods("a")
			activitiestest.AdvanceTime(5 * time.Minute)
			e.AssertRunning(t)
			assert.Empty(t, d.TakeNewRequests())
			d.ChangePod("job", activitiestest.WithPodPhase(corev1.PodSucceeded))
			seen, took := e.AwaitResult(t)
			assert.Zero(t, took)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			assert.Empty(t, d.TakeNewRequests())
		},
	)
}
