package activities_test

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

	"millwright/activities"
	"millwright/decide/drain"
)

// A budget that refuses at each of its changes is asked once for each look: that counts them.
func TestP5_ABurstOfChangesIsFewLooks(t *testing.T) {
	t.Parallel()
	emptying(t, append(healthy("a"), budget(1)), func(t *testing.T, d *desk, in activities.Eviction) {
		in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all"}}
		d.answer(refusal("all"), "a")
		e := d.empty(in)
		after(time.Second) // its beginning was a few looks, too
		e.goesOn(t)
		d.since()
		current := func(b *policyv1.PodDisruptionBudget) { b.ResourceVersion = "" } // whichever it has
		for i := range 200 {
			d.count(budget(1+int32(i%2), current))
			synctest.Wait()
		}
		e.goesOn(t)
		assert.Len(t, d.since(), 10, "a few at once")
		after(50 * time.Millisecond)
		assert.Len(t, d.since(), 1, "and what came meanwhile in one")
		after(time.Second)
		d.count(budget(1, current))
		synctest.Wait()
		assert.Len(t, d.since(), 1, "then at once again")
		_ = e.quit()
	})
}

func TestN14_ABudgetIsHeardOfThatCameIntoConcern(t *testing.T) {
	t.Parallel()
	in := func(namespace string) func(*policyv1.PodDisruptionBudget) {
		return func(b *policyv1.PodDisruptionBudget) { b.Namespace = namespace }
	}
	emptying(t, append(healthy("a"), budget(0), budget(0, in("db"))), func(t *testing.T, d *desk, eviction activities.Eviction) {
		eviction.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "db/all"}, {Kind: drain.BlockedByBudget, Name: "web/all"}}
		e := d.empty(eviction)
		e.goesOn(t)
		late := healthy("late")[0].(*corev1.Pod)
		late.Namespace = "db"
		require.NoError(t, d.target.Tracker().Create(podsResource, late, "db"))
		e.goesOn(t)
		assert.Empty(t, d.since())
		d.answer(refusal("all"), "late")
		_, err := d.target.PolicyV1().PodDisruptionBudgets("db").UpdateStatus(t.Context(), budget(1, in("db")), metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []asked{evicted("late")}, d.since(), "at once")
		_ = e.quit()
	})
}

// What blocks flaps faster than it would be told: people are told now and then, and not at each turn.
func TestBlockersThatFlapEndNoAttemptAtOnce(t *testing.T) {
	t.Parallel()
	job := pod("job", func(p *corev1.Pod) { p.Labels = map[string]string{"cluster.x-k8s.io/drain": "wait-completed"} })
	emptying(t, []runtime.Object{job}, func(t *testing.T, d *desk, in activities.Eviction) {
		begun := time.Now()
		e := d.empty(in)
		for range 45 { // 29.7 s
			after(330 * time.Millisecond)
			require.NoError(t, d.target.Tracker().Create(podsResource, pod("a", protectedFor("true")), "web"))
			after(330 * time.Millisecond)
			d.end("a")
			e.goesOn(t)
		}
		seen, _ := e.ends(t)
		assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
		assert.Equal(t, 30*time.Second, time.Since(begun))
	})
}
