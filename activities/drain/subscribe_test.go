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

// A budget that refuses after each of its changes is tried once per look: the number of requests is the number of
// looks.
func TestBurstOfChangesCausesFewLooks(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		append(readyPods("a"), newBudget(1)),
		func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all"}}
			d.Answer(budgetRefusal("all"), "a")
			e := d.Empty(in)
			activitiestest.After(time.Second) // the first looks of the drain use up part of the rate limit
			e.GoesOn(t)
			d.Since()
			current := func(b *policyv1.PodDisruptionBudget) { b.ResourceVersion = "" } // no precondition
			for i := range 200 {
				d.Count(newBudget(1+int32(i%2), current))
				synctest.Wait()
			}
			e.GoesOn(t)
			assert.Len(t, d.Since(), 10, "a few at once")
			activitiestest.After(50 * time.Millisecond)
			assert.Len(t, d.Since(), 1, "and what came meanwhile in one")
			activitiestest.After(time.Second)
			d.Count(newBudget(1, current))
			synctest.Wait()
			assert.Len(t, d.Since(), 1, "then at once again")
			_ = e.Quit()
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
		func(t *testing.T, d *activitiestest.Desk, eviction activities.Eviction) {
			eviction.Shown = []drain.Blocker{
				{Kind: drain.BlockedByBudget, Name: "db/all"},
				{Kind: drain.BlockedByBudget, Name: "web/all"},
			}
			e := d.Empty(eviction)
			e.GoesOn(t)
			late := readyPods("late")[0].(*corev1.Pod)
			late.Namespace = "db"
			require.NoError(t, d.Target.Tracker().Create(activitiestest.PodsResource, late, "db"))
			e.GoesOn(t)
			assert.Empty(t, d.Since())
			d.Answer(budgetRefusal("all"), "late")
			_, err := d.Target.PolicyV1().
				PodDisruptionBudgets("db").
				UpdateStatus(t.Context(), newBudget(1, in("db")), metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
			assert.Equal(t, []activitiestest.Asked{evictRequest("late")}, d.Since(), "at once")
			_ = e.Quit()
		},
	)
}

// The blockers change faster than debounceDelay. The drain reports the blockers after 30 s, and does not report each
// change.
func TestFlappingBlockersAreDebounced(t *testing.T) {
	t.Parallel()
	job := activitiestest.Pod(
		"job",
		func(p *corev1.Pod) { p.Labels = map[string]string{"cluster.x-k8s.io/drain": "wait-completed"} },
	)
	runEvictionTest(t, []runtime.Object{job}, func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
		begun := time.Now()
		e := d.Empty(in)
		for range 45 { // the 45 rounds take 29.7 s
			activitiestest.After(330 * time.Millisecond)
			require.NoError(
				t,
				d.Target.Tracker().Create(activitiestest.PodsResource, activitiestest.Pod("a", withDoNotDisrupt("true")), "web"),
			)
			activitiestest.After(330 * time.Millisecond)
			d.End("a")
			e.GoesOn(t)
		}
		seen, _ := e.Ends(t)
		assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
		assert.Equal(t, 30*time.Second, time.Since(begun))
	})
}
