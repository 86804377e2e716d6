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
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
)

// budget selects all pods of the namespace web. Of five healthy ones it allows so many to go.
func budget(allowed int32, change ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "all", UID: "uid-all", ResourceVersion: "900", Generation: 1}}
	b.Spec.Selector = &metav1.LabelSelector{}
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: 5, DesiredHealthy: 5 - allowed, ExpectedPods: 6,
	}
	return with(b, change)
}

func named(name string) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Name, b.UID = name, "uid-pdb" }
}

// misconfigured makes a budget one that can never be met.
func misconfigured(b *policyv1.PodDisruptionBudget) { b.Status.ExpectedPods = 5 }

// count writes the status of the budget, as its controller does.
func (d *desk) count(b *policyv1.PodDisruptionBudget) {
	d.t.Helper()
	_, err := d.target.PolicyV1().PodDisruptionBudgets("web").UpdateStatus(d.t.Context(), b, metav1.UpdateOptions{})
	require.NoError(d.t, err)
}

func TestU151_AsManyGoAsABudgetAllows(t *testing.T) {
	t.Parallel()
	emptying(t, append(healthy("a", "b", "c"), budget(2)), func(t *testing.T, d *desk, in activities.Eviction) {
		e := d.empty(in)
		e.goesOn(t)
		assert.Equal(t, []asked{evicted("a"), evicted("b")}, d.since(), "U151: in order")
		d.count(budget(1)) // two are gone, and one is ready again
		synctest.Wait()
		assert.Equal(t, []asked{evicted("c")}, d.since(), "U151: at the next look")
		d.end("a", "b", "c")
		seen, _ := e.ends(t)
		assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
	})
}

func TestN14_ABudgetThatYieldsWakesTheDrain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change []func(*policyv1.PodDisruptionBudget)
		bad    bool
		probes int // in nine minutes
	}{
		"N14: as it is now":                    {nil, false, 9},
		"N14, U151: one that can never be met": {[]func(*policyv1.PodDisruptionBudget){misconfigured}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			emptying(t, append(healthy("a"), budget(0, row.change...)), func(t *testing.T, d *desk, in activities.Eviction) {
				d.answer(refusal("all"), "a")
				seen, took := d.empty(in).ends(t)
				assert.Equal(t, time.Second, took)
				assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
				require.Len(t, seen.Blockers, 1)
				assert.Equal(t, drain.Blocker{Kind: drain.BlockedByBudget, Name: "web/all", Pods: 1, Bad: row.bad, Why: seen.Blockers[0].Why}, seen.Blockers[0])
				assert.Contains(t, seen.Blockers[0].Why, "PodDisruptionBudget web/all")
				assert.Empty(t, d.since(), "its status says enough")

				in.Shown, in.Known = seen.Blockers, seen.Picture.Rows
				e := d.empty(in)
				after(9*time.Minute + 30*time.Second)
				e.goesOn(t)
				probes := d.since()
				assert.Len(t, probes, row.probes, "now and then one pod is tried all the same")
				d.answer(nil, "a")
				d.count(budget(1))
				synctest.Wait()
				assert.Equal(t, []asked{evicted("a")}, d.since(), "at once")
				d.end("a")
				seen, _ = e.ends(t)
				assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			})
		})
	}
	t.Run("N14: one that is deleted", func(t *testing.T) {
		emptying(t, append(healthy("a"), budget(0)), func(t *testing.T, d *desk, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all"}}
			e := d.empty(in)
			e.goesOn(t)
			assert.Empty(t, d.since())
			require.NoError(t, d.target.PolicyV1().PodDisruptionBudgets("web").Delete(t.Context(), "all", metav1.DeleteOptions{}))
			synctest.Wait()
			assert.Equal(t, []asked{evicted("a")}, d.since())
			d.end("a")
			seen, _ := e.ends(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		})
	})
	for name, change := range map[string]func(*desk) error{
		"is counted again": func(d *desk) error { d.count(budget(2)); return nil },
		"is deleted": func(d *desk) error {
			return d.target.PolicyV1().PodDisruptionBudgets("web").Delete(d.t.Context(), "all", metav1.DeleteOptions{})
		},
	} {
		t.Run("N14: one that refused although its status allowed "+name, func(t *testing.T) {
			emptying(t, append(healthy("a"), budget(1)), func(t *testing.T, d *desk, in activities.Eviction) {
				d.answer(refusal("all"), "a")
				e := d.empty(in)
				e.goesOn(t)
				assert.Len(t, d.since(), 1)
				d.answer(nil, "a")
				require.NoError(t, change(d))
				synctest.Wait()
				assert.Equal(t, []asked{evicted("a")}, d.since(), "at once")
				d.end("a")
				<-e.ended
			})
		})
	}
}

func TestSeveralBudgetsOfOnePodNeedSomebody(t *testing.T) {
	t.Parallel()
	both := append(healthy("a"), budget(1), budget(1, named("more")))
	emptying(t, both, func(t *testing.T, d *desk, in activities.Eviction) {
		d.answer(errSeveral, "a")
		seen, _ := d.empty(in).ends(t)
		assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
		require.Len(t, seen.Blockers, 1)
		assert.Equal(t, drain.Blocker{
			Kind: drain.BlockedByBudget, Name: "web/all and web/more", Pods: 1, Bad: true,
			Why: "PodDisruptionBudgets web/all and web/more select the same pods: the API server evicts none of those",
		}, seen.Blockers[0])

		in.Shown = seen.Blockers
		e := d.empty(in)
		after(9 * time.Minute)
		e.goesOn(t)
		assert.LessOrEqual(t, len(d.since()), 3, "P5: what cannot go is not hammered")
		_ = e.quit()
	})
	t.Run("N14: until one of them goes", func(t *testing.T) {
		emptying(t, both, func(t *testing.T, d *desk, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all and web/more", Bad: true}}
			d.answer(errSeveral, "a")
			e := d.empty(in)
			for len(d.since()) == 0 { // now and then it is tried all the same
				after(time.Second)
			}
			d.answer(nil, "a")
			require.NoError(t, d.target.PolicyV1().PodDisruptionBudgets("web").Delete(t.Context(), "more", metav1.DeleteOptions{}))
			synctest.Wait()
			assert.Equal(t, []asked{evicted("a")}, d.since(), "at once")
			_ = e.quit()
		})
	})
}

func TestABudgetWhoseStatusIsOldIsTried(t *testing.T) {
	t.Parallel()
	old := func(b *policyv1.PodDisruptionBudget) { b.Generation = 2 }
	emptying(t, append(healthy("a", "b"), budget(1, old)), func(t *testing.T, d *desk, in activities.Eviction) {
		in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all"}}
		d.answer(refusal("all"), "a")
		e := d.empty(in)
		e.goesOn(t)
		assert.Equal(t, []asked{evicted("a")}, d.since(), "with one pod")
		_ = e.quit()
	})
}

func TestU151_PodsThatABudgetDoesNotCountUseNothingOfIt(t *testing.T) {
	t.Parallel()
	for name, uncounted := range map[string]func(*corev1.Pod){
		"finished ones": inPhase(corev1.PodSucceeded), "pending ones": inPhase(corev1.PodPending),
		"those not ready, while it has spare": func(p *corev1.Pod) { p.Status.Conditions = nil },
	} {
		t.Run("U151: "+name, func(t *testing.T) {
			later := pod("b", isReady, protectedFor("10s"))
			emptying(t, []runtime.Object{budget(1), pod("a", isReady, uncounted), later}, func(t *testing.T, d *desk, in activities.Eviction) {
				in.Shown = []drain.Blocker{{Kind: drain.BlockedByProtection}}
				e := d.empty(in)
				e.goesOn(t)
				assert.Equal(t, []asked{evicted("a")}, d.since())
				d.end("a")
				after(12 * time.Second)
				assert.Equal(t, []asked{evicted("b")}, d.since(), "its turn comes, and nobody has used the budget")
				d.end("b")
				<-e.ended
			})
		})
	}
}

// healthy are pods that budgets count.
func healthy(names ...string) []runtime.Object {
	var list []runtime.Object
	for _, name := range names {
		list = append(list, pod(name, isReady))
	}
	return list
}

// protectedFor makes a pod one that is not to be disrupted, for so long from when an emptying begins, or as the value says.
func protectedFor(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationDoNotDisrupt: value}
		p.Status.StartTime = new(metav1.NewTime(bubble))
	}
}

// bubble is when the time of a bubble begins. Source: testing/synctest.
var bubble = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func isReady(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func TestAFailedRequestUsesNothingOfABudget(t *testing.T) {
	t.Parallel()
	emptying(t, append(healthy("a"), budget(1)), func(t *testing.T, d *desk, in activities.Eviction) {
		d.answer(errWebhook, "a")
		seen, _ := d.empty(in).ends(t)
		require.Len(t, seen.Blockers, 1)
		assert.Equal(t, drain.BlockedByError, seen.Blockers[0].Kind, "the budget keeps nobody: %s", seen.Blockers[0].Why)
	})
}
