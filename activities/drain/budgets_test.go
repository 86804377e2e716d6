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

// newBudget returns a disruption budget that selects all pods of the namespace web. allowed is the budget's number of
// allowed disruptions; the budget has five healthy pods.
func newBudget(allowed int32, change ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "all", UID: "uid-all", ResourceVersion: "900", Generation: 1},
	}
	b.Spec.Selector = &metav1.LabelSelector{}
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: 5, DesiredHealthy: 5 - allowed, ExpectedPods: 6,
	}
	return activitiestest.ApplyChanges(b, change)
}

func withBudgetName(name string) func(*policyv1.PodDisruptionBudget) {
	return func(b *policyv1.PodDisruptionBudget) { b.Name, b.UID = name, "uid-pdb" }
}

// misconfigureBudget makes a budget that never allows a disruption.
func misconfigureBudget(b *policyv1.PodDisruptionBudget) { b.Status.ExpectedPods = 5 }

func TestDrainEvictsAsManyPodsAsBudgetAllows(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		append(readyPods("a", "b", "c"), newBudget(2)),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			e := d.StartEviction(in)
			e.AssertRunning(t)
			assert.Equal(
				t,
				[]activitiestest.PodRequest{newEvictRequest("a"), newEvictRequest("b")},
				d.TakeNewRequests(),
				"in order",
			)
			d.UpdateBudgetStatus(newBudget(1)) // pods a and b are gone, and one replacement pod is ready
			synctest.Wait()
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("c")}, d.TakeNewRequests(), "at the next look")
			d.RemovePods("a", "b", "c")
			seen, _ := e.AwaitResult(t)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		},
	)
}

func TestBudgetThatAllowsEvictionAgainResumesTheDrain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change []func(*policyv1.PodDisruptionBudget)
		bad    bool
		probes int // number of probe evictions in nine minutes
	}{
		"as it is now":              {nil, false, 9},
		"one that can never be met": {[]func(*policyv1.PodDisruptionBudget){misconfigureBudget}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			runEvictionTest(
				t,
				append(readyPods("a"), newBudget(0, row.change...)),
				func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
					d.SetRequestError(budgetRefusalError("all"), "a")
					seen, took := d.StartEviction(in).AwaitResult(t)
					assert.Equal(t, time.Second, took)
					assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
					require.Len(t, seen.Blockers, 1)
					assert.Equal(
						t,
						drain.Blocker{Kind: drain.BlockedByBudget, Name: "web/all", Pods: 1, Bad: row.bad, Why: seen.Blockers[0].Why},
						seen.Blockers[0],
					)
					assert.Contains(t, seen.Blockers[0].Why, "PodDisruptionBudget web/all")
					assert.Empty(t, d.TakeNewRequests(), "its status says enough")

					in.Shown, in.Known = seen.Blockers, seen.Picture.Rows
					e := d.StartEviction(in)
					activitiestest.AdvanceTime(9*time.Minute + 30*time.Second)
					e.AssertRunning(t)
					probes := d.TakeNewRequests()
					assert.Len(t, probes, row.probes, "number of trial evictions in the time that passed")
					d.SetRequestError(nil, "a")
					d.UpdateBudgetStatus(newBudget(1))
					synctest.Wait()
					assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests(), "at once")
					d.RemovePods("a")
					seen, _ = e.AwaitResult(t)
					assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
				},
			)
		})
	}
	t.Run("one that is deleted", func(t *testing.T) {
		runEvictionTest(
			t,
			append(readyPods("a"), newBudget(0)),
			func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all"}}
				e := d.StartEviction(in)
				e.AssertRunning(t)
				assert.Empty(t, d.TakeNewRequests())
				require.NoError(
					t,
					d.TargetClient.PolicyV1().PodDisruptionBudgets("web").Delete(t.Context(), "all", metav1.DeleteOptions{}),
				)
				synctest.Wait()
				assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests())
				d.RemovePods("a")
				seen, _ := e.AwaitResult(t)
				assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			},
		)
	})
	for name, change := range map[string]func(*activitiestest.EvictionWorld) error{
		"is counted again": func(d *activitiestest.EvictionWorld) error { d.UpdateBudgetStatus(newBudget(2)); return nil },
		"is deleted": func(d *activitiestest.EvictionWorld) error {
			return d.TargetClient.PolicyV1().PodDisruptionBudgets("web").Delete(d.T.Context(), "all", metav1.DeleteOptions{})
		},
	} {
		t.Run("one that refused although its status allowed "+name, func(t *testing.T) {
			runEvictionTest(
				t,
				append(readyPods("a"), newBudget(1)),
				func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
					d.SetRequestError(budgetRefusalError("all"), "a")
					e := d.StartEviction(in)
					e.AssertRunning(t)
					assert.Len(t, d.TakeNewRequests(), 1)
					d.SetRequestError(nil, "a")
					require.NoError(t, change(d))
					synctest.Wait()
					assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests(), "at once")
					d.RemovePods("a")
					<-e.Outcome
				},
			)
		})
	}
}

func TestPodWithSeveralBudgetsIsReportedAsMisconfigured(t *testing.T) {
	t.Parallel()
	both := append(readyPods("a"), newBudget(1), newBudget(1, withBudgetName("more")))
	runEvictionTest(t, both, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
		d.SetRequestError(errSeveralBudgets, "a")
		seen, _ := d.StartEviction(in).AwaitResult(t)
		assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
		require.Len(t, seen.Blockers, 1)
		assert.Equal(t, drain.Blocker{
			Kind: drain.BlockedByBudget, Name: "web/all and web/more", Pods: 1, Bad: true,
			Why: "PodDisruptionBudgets web/all and web/more select the same pods: the API server evicts none of those",
		}, seen.Blockers[0])

		in.Shown = seen.Blockers
		e := d.StartEviction(in)
		activitiestest.AdvanceTime(9 * time.Minute)
		e.AssertRunning(t)
		assert.LessOrEqual(t, len(d.TakeNewRequests()), 3, "what cannot go is not hammered")
		_ = e.CancelAndWait()
	})
	t.Run("until one of them goes", func(t *testing.T) {
		runEvictionTest(t, both, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all and web/more", Bad: true}}
			d.SetRequestError(errSeveralBudgets, "a")
			e := d.StartEviction(in)
			for len(d.TakeNewRequests()) == 0 { // the budget is probed at intervals
				activitiestest.AdvanceTime(time.Second)
			}
			d.SetRequestError(nil, "a")
			require.NoError(
				t,
				d.TargetClient.PolicyV1().PodDisruptionBudgets("web").Delete(t.Context(), "more", metav1.DeleteOptions{}),
			)
			synctest.Wait()
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests(), "at once")
			_ = e.CancelAndWait()
		})
	})
}

func TestEvictionIsTriedIfBudgetStatusIsStale(t *testing.T) {
	t.Parallel()
	old := func(b *policyv1.PodDisruptionBudget) { b.Generation = 2 }
	runEvictionTest(
		t,
		append(readyPods("a", "b"), newBudget(1, old)),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByBudget, Name: "web/all"}}
			d.SetRequestError(budgetRefusalError("all"), "a")
			e := d.StartEviction(in)
			e.AssertRunning(t)
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests(), "with one pod")
			_ = e.CancelAndWait()
		},
	)
}

func TestPodsThatBudgetDoesNotCountUseNoDisruption(t *testing.T) {
	t.Parallel()
	for name, uncounted := range map[string]func(*corev1.Pod){
		"finished ones": activitiestest.WithPodPhase(corev1.PodSucceeded), "pending ones": activitiestest.WithPodPhase(corev1.PodPending),
		"those not ready, while it has spare": func(p *corev1.Pod) { p.Status.Conditions = nil },
	} {
		t.Run(name, func(t *testing.T) {
			later := activitiestest.NewPod("b", setPodReady, withDoNotDisrupt("10s"))
			runEvictionTest(
				t,
				[]runtime.Object{newBudget(1), activitiestest.NewPod("a", setPodReady, uncounted), later},
				func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
					in.Shown = []drain.Blocker{{Kind: drain.BlockedByProtection}}
					e := d.StartEviction(in)
					e.AssertRunning(t)
					assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests())
					d.RemovePods("a")
					activitiestest.AdvanceTime(12 * time.Second)
					assert.Equal(
						t,
						[]activitiestest.PodRequest{newEvictRequest("b")},
						d.TakeNewRequests(),
						"its turn comes, and nobody has used the budget",
					)
					d.RemovePods("b")
					<-e.Outcome
				},
			)
		})
	}
}

// readyPods returns ready pods, which disruption budgets count.
func readyPods(names ...string) []runtime.Object {
	var list []runtime.Object
	for _, name := range names {
		list = append(list, activitiestest.NewPod(name, setPodReady))
	}
	return list
}

// withDoNotDisrupt sets the annotation do-not-disrupt of a pod to value.
func withDoNotDisrupt(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationDoNotDisrupt: value}
		p.Status.StartTime = new(metav1.NewTime(activitiestest.SynctestStartTime))
	}
}

func setPodReady(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func TestFailedEvictionUsesNoDisruption(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		append(readyPods("a"), newBudget(1)),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			d.SetRequestError(errWebhookFailed, "a")
			seen, _ := d.StartEviction(in).AwaitResult(t)
			require.Len(t, seen.Blockers, 1)
			assert.Equal(t, drain.BlockedByError, seen.Blockers[0].Kind, "the budget keeps nobody: %s", seen.Blockers[0].Why)
		},
	)
}
