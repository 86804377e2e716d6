package drain_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/decide/drain"
)

// After each change, the budget still refuses an eviction. Each check of the pods sends one request, so the number of
// requests is the number of checks.
func TestBurstOfChangesCausesFewEvictionRequests(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		append(readyPods("a"), newBudget(1)),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all"}}
			d.SetRequestError(budgetRefusalError("all"), "a")
			e := d.StartEviction(in)
			activitiestest.AdvanceTime(time.Second) // the first reads of the drain use up part of the rate limit
			e.AssertRunning(t)
			d.TakeNewRequests()
			current := func(b *policyv1.PodDisruptionBudget) { b.ResourceVersion = "" } // no precondition
			for i := range 200 {
				d.UpdateBudgetStatus(newBudget(1+int32(i%2), current))
				synctest.Wait()
			}
			e.AssertRunning(t)
			assert.Len(t, d.TakeNewRequests(), 10, "a few at once")
			activitiestest.AdvanceTime(50 * time.Millisecond)
			assert.Len(t, d.TakeNewRequests(), 1, "and what came meanwhile in one")
			activitiestest.AdvanceTime(time.Second)
			d.UpdateBudgetStatus(newBudget(1, current))
			synctest.Wait()
			assert.Len(t, d.TakeNewRequests(), 1, "then at once again")
			_ = e.CancelAndWait()
		},
	)
}

func TestBudgetInNamespaceOfNewPodIsWatched(t *testing.T) {
	t.Parallel()
	in := func(namespace string) func(*policyv1.PodDisruptionBudget) {
		return func(b *policyv1.PodDisruptionBudget) { b.Namespace = namespace }
	}
	runEvictionTest(
		t,
		append(readyPods("a"), newBudget(0), newBudget(0, in("db"))),
		func(t *testing.T, d *activitiestest.EvictionWorld, eviction activities.Eviction) {
			eviction.Shown = []drain.Blocker{
				{Kind: drain.BlockedByBudget, Name: "db/all"},
				{Kind: drain.BlockedByBudget, Name: "web/all"},
			}
			e := d.StartEviction(eviction)
			e.AssertRunning(t)
			late := readyPods("late")[0].(*corev1.Pod)
			late.Namespace = "db"
			require.NoError(t, d.TargetClient.Tracker().Create(activitiestest.PodsResource, late, "db"))
			e.AssertRunning(t)
			assert.Empty(t, d.TakeNewRequests())
			d.SetRequestError(budgetRefusalError("all"), "late")
			_, err := d.TargetClient.PolicyV1().
				PodDisruptionBudgets("db").
				UpdateStatus(t.Context(), newBudget(1, in("db")), metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("late")}, d.TakeNewRequests(), "at once")
			_ = e.CancelAndWait()
		},
	)
}

// The blockers change faster than debounceDelay. The drain reports the blockers after 30 s, and does not report each
// change.
func TestFlappingBlockersAreDebounced(t *testing.T) {
	t.Parallel()
	job := activitiestest.NewPod(
		"job",
		func(p *corev1.Pod) { p.Labels = map[string]string{"cluster.x-k8s.io/drain": "wait-completed"} },
	)
	runEvictionTest(t, []runtime.Object{job}, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
		begun := time.Now()
		e := d.StartEviction(in)
		for range 45 { // the 45 rounds take 29.7 s
			activitiestest.AdvanceTime(330 * time.Millisecond)
			require.NoError(
				t,
				d.TargetClient.Tracker().
					Create(activitiestest.PodsResource, activitiestest.NewPod("a", withDoNotDisrupt("true")), "web"),
			)
			activitiestest.AdvanceTime(330 * time.Millisecond)
			d.RemovePods("a")
			e.AssertRunning(t)
		}
		seen, _ := e.AwaitResult(t)
		assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
		assert.Equal(t, 30*time.Second, time.Since(begun))
	})
}
