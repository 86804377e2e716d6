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
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
)

// budget selects all pods of the namespace web. allowed is the number of disruptions that it allows of five healthy
// pods.
func budget(allowed int32, change ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "all", UID: "uid-all", ResourceVersion: "900", Generation: 1},
	}
	b.Spec.Selector = &metav1.LabelSelector{}
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: 5, DesiredHealthy: 5 - allowed, ExpectedPods: 6,
	}
	return activitiestest.With(b, change)
}

func named(name string) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Name, b.UID = name, "uid-pdb" }
}

// misconfigured makes a budget one that never allows a disruption.
func misconfigured(b *policyv1.PodDisruptionBudget) { b.Status.ExpectedPods = 5 }

func TestAsManyGoAsABudgetAllows(t *testing.T) {
	t.Parallel()
	evicting(
		t,
		append(healthy("a", "b", "c"), budget(2)),
		func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
			e := d.Empty(in)
			e.GoesOn(t)
			assert.Equal(t, []activitiestest.Asked{evicted("a"), evicted("b")}, d.Since(), "in order")
			d.Count(budget(1)) // two are gone, and one is ready again
			synctest.Wait()
			assert.Equal(t, []activitiestest.Asked{evicted("c")}, d.Since(), "at the next look")
			d.End("a", "b", "c")
			seen, _ := e.Ends(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		},
	)
}

func TestABudgetThatYieldsWakesTheDrain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change []func(*policyv1.PodDisruptionBudget)
		bad    bool
		probes int // in nine minutes
	}{
		"as it is now":              {nil, false, 9},
		"one that can never be met": {[]func(*policyv1.PodDisruptionBudget){misconfigured}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			evicting(
				t,
				append(healthy("a"), budget(0, row.change...)),
				func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
					d.Answer(refusal("all"), "a")
					seen, took := d.Empty(in).Ends(t)
					assert.Equal(t, time.Second, took)
					assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
					require.Len(t, seen.Blockers, 1)
					assert.Equal(
						t,
						drain.Blocker{Kind: drain.BlockedByBudget, Name: "web/all", Pods: 1, Bad: row.bad, Why: seen.Blockers[0].Why},
						seen.Blockers[0],
					)
					assert.Contains(t, seen.Blockers[0].Why, "PodDisruptionBudget web/all")
					assert.Empty(t, d.Since(), "its status says enough")

					in.Shown, in.Known = seen.Blockers, seen.Picture.Rows
					e := d.Empty(in)
					activitiestest.After(9*time.Minute + 30*time.Second)
					e.GoesOn(t)
					probes := d.Since()
					assert.Len(t, probes, row.probes, "number of trial evictions in the time that passed")
					d.Answer(nil, "a")
					d.Count(budget(1))
					synctest.Wait()
					assert.Equal(t, []activitiestest.Asked{evicted("a")}, d.Since(), "at once")
					d.End("a")
					seen, _ = e.Ends(t)
					assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
				},
			)
		})
	}
	t.Run("one that is deleted", func(t *testing.T) {
		evicting(t, append(healthy("a"), budget(0)), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all"}}
			e := d.Empty(in)
			e.GoesOn(t)
			assert.Empty(t, d.Since())
			require.NoError(
				t,
				d.Target.PolicyV1().PodDisruptionBudgets("web").Delete(t.Context(), "all", metav1.DeleteOptions{}),
			)
			synctest.Wait()
			assert.Equal(t, []activitiestest.Asked{evicted("a")}, d.Since())
			d.End("a")
			seen, _ := e.Ends(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		})
	})
	for name, change := range map[string]func(*activitiestest.Desk) error{
		"is counted again": func(d *activitiestest.Desk) error { d.Count(budget(2)); return nil },
		"is deleted": func(d *activitiestest.Desk) error {
			return d.Target.PolicyV1().PodDisruptionBudgets("web").Delete(d.T.Context(), "all", metav1.DeleteOptions{})
		},
	} {
		t.Run("one that refused although its status allowed "+name, func(t *testing.T) {
			evicting(t, append(healthy("a"), budget(1)), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
				d.Answer(refusal("all"), "a")
				e := d.Empty(in)
				e.GoesOn(t)
				assert.Len(t, d.Since(), 1)
				d.Answer(nil, "a")
				require.NoError(t, change(d))
				synctest.Wait()
				assert.Equal(t, []activitiestest.Asked{evicted("a")}, d.Since(), "at once")
				d.End("a")
				<-e.Ended
			})
		})
	}
}

func TestSeveralBudgetsOfOnePodNeedSomebody(t *testing.T) {
	t.Parallel()
	both := append(healthy("a"), budget(1), budget(1, named("more")))
	evicting(t, both, func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
		d.Answer(errSeveral, "a")
		seen, _ := d.Empty(in).Ends(t)
		assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
		require.Len(t, seen.Blockers, 1)
		assert.Equal(t, drain.Blocker{
			Kind: drain.BlockedByBudget, Name: "web/all and web/more", Pods: 1, Bad: true,
			Why: "PodDisruptionBudgets web/all and web/more select the same pods: the API server evicts none of those",
		}, seen.Blockers[0])

		in.Shown = seen.Blockers
		e := d.Empty(in)
		activitiestest.After(9 * time.Minute)
		e.GoesOn(t)
		assert.LessOrEqual(t, len(d.Since()), 3, "what cannot go is not hammered")
		_ = e.Quit()
	})
	t.Run("until one of them goes", func(t *testing.T) {
		evicting(t, both, func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all and web/more", Bad: true}}
			d.Answer(errSeveral, "a")
			e := d.Empty(in)
			for len(d.Since()) == 0 { // it is probed now and then
				activitiestest.After(time.Second)
			}
			d.Answer(nil, "a")
			require.NoError(
				t,
				d.Target.PolicyV1().PodDisruptionBudgets("web").Delete(t.Context(), "more", metav1.DeleteOptions{}),
			)
			synctest.Wait()
			assert.Equal(t, []activitiestest.Asked{evicted("a")}, d.Since(), "at once")
			_ = e.Quit()
		})
	})
}

func TestABudgetWhoseStatusIsOldIsTried(t *testing.T) {
	t.Parallel()
	old := func(b *policyv1.PodDisruptionBudget) { b.Generation = 2 }
	evicting(
		t,
		append(healthy("a", "b"), budget(1, old)),
		func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all"}}
			d.Answer(refusal("all"), "a")
			e := d.Empty(in)
			e.GoesOn(t)
			assert.Equal(t, []activitiestest.Asked{evicted("a")}, d.Since(), "with one pod")
			_ = e.Quit()
		},
	)
}

func TestPodsThatABudgetDoesNotCountUseNothingOfIt(t *testing.T) {
	t.Parallel()
	for name, uncounted := range map[string]func(*corev1.Pod){
		"finished ones": activitiestest.InPhase(corev1.PodSucceeded), "pending ones": activitiestest.InPhase(corev1.PodPending),
		"those not ready, while it has spare": func(p *corev1.Pod) { p.Status.Conditions = nil },
	} {
		t.Run(name, func(t *testing.T) {
			later := activitiestest.Pod("b", isReady, protectedFor("10s"))
			evicting(
				t,
				[]runtime.Object{budget(1), activitiestest.Pod("a", isReady, uncounted), later},
				func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
					in.Shown = []drain.Blocker{{Kind: drain.BlockedByProtection}}
					e := d.Empty(in)
					e.GoesOn(t)
					assert.Equal(t, []activitiestest.Asked{evicted("a")}, d.Since())
					d.End("a")
					activitiestest.After(12 * time.Second)
					assert.Equal(t, []activitiestest.Asked{evicted("b")}, d.Since(), "its turn comes, and nobody has used the budget")
					d.End("b")
					<-e.Ended
				},
			)
		})
	}
}

// healthy are pods that budgets count.
func healthy(names ...string) []runtime.Object {
	var list []runtime.Object
	for _, name := range names {
		list = append(list, activitiestest.Pod(name, isReady))
	}
	return list
}

// protectedFor gives a pod the annotation do-not-disrupt with this value.
func protectedFor(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationDoNotDisrupt: value}
		p.Status.StartTime = new(metav1.NewTime(activitiestest.Bubble))
	}
}

func isReady(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func TestAFailedRequestUsesNothingOfABudget(t *testing.T) {
	t.Parallel()
	evicting(t, append(healthy("a"), budget(1)), func(t *testing.T, d *activitiestest.Desk, in activities.Eviction) {
		d.Answer(errWebhook, "a")
		seen, _ := d.Empty(in).Ends(t)
		require.Len(t, seen.Blockers, 1)
		assert.Equal(t, drain.BlockedByError, seen.Blockers[0].Kind, "the budget keeps nobody: %s", seen.Blockers[0].Why)
	})
}
