package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

// withProbeAtEpoch returns a budget for which a probe was sent at epoch.
func withProbeAtEpoch(b drain.DisruptionBudget) drain.DisruptionBudget {
	b.NextProbe = drain.NextProbeTime(epoch, b.IsMisconfigured())
	return b
}

func changedBudget(b drain.DisruptionBudget, change func(*drain.DisruptionBudget)) drain.DisruptionBudget {
	change(&b)
	return b
}

func TestBudgetLimitsTheNumberOfEvictions(t *testing.T) {
	web3 := func(changes ...func(*drain.Pod)) []drain.Pod {
		var pods []drain.Pod
		for _, name := range []string{"a", "b", "c"} {
			pods = append(pods, changedPod(newPod(name, withBudgets("shop/web")), changes...))
		}
		return pods
	}
	unhealthy := func(b *drain.DisruptionBudget) { b.AlwaysAllowsUnhealthy = true }
	old := func(b *drain.DisruptionBudget) { b.IsUpToDate = false }
	used := func(b *drain.DisruptionBudget) { b.SentEvictions = 1 }
	for _, row := range []struct {
		name   string
		pods   []drain.Pod
		budget drain.DisruptionBudget
		want   []string
	}{
		{"in order", web3(), webBudget(3, 6, 3, 6), []string{"a", "b", "c"}},
		{"no more than it allows", web3(), webBudget(2, 5, 3, 6), []string{"a", "b"}},
		{"at the next look, those that were sent are counted", web3(), changedBudget(webBudget(2, 5, 3, 6), used), []string{"a"}},
		{"while evicting", web3(), withProbeAtEpoch(changedBudget(webBudget(1, 4, 3, 6), used)), nil},
		{"none allowed", web3(), withProbeAtEpoch(webBudget(0, 3, 3, 6)), nil},
		{"one as a probe, when it is time", web3(), webBudget(0, 3, 3, 6), []string{"a as a probe of shop/web"}},
		{"no probe of what this decision uses up", web3(), webBudget(1, 4, 3, 6), []string{"a"}},
		{"a status that is old allows none", web3(), withProbeAtEpoch(changedBudget(webBudget(3, 6, 3, 6), old)), nil},
		{"pending pods do not count", web3(asPendingPod), withProbeAtEpoch(webBudget(0, 3, 3, 6)), []string{"a", "b", "c"}},
		{"finished ones neither", web3(asFinishedPod), withProbeAtEpoch(webBudget(0, 3, 3, 6)), []string{"a", "b", "c"}},
		{"unready pods, enough are healthy", web3(asUnreadyPod), withProbeAtEpoch(webBudget(0, 3, 3, 6)), []string{"a", "b", "c"}},
		{"unready pods, too few are healthy", web3(asUnreadyPod), withProbeAtEpoch(webBudget(0, 2, 3, 6)), nil},
		{"unready pods, none is needed", web3(asUnreadyPod), withProbeAtEpoch(webBudget(0, 0, 0, 6)), nil},
		{"unready pods may always be evicted", web3(asUnreadyPod), changedBudget(withProbeAtEpoch(webBudget(0, 2, 3, 6)), unhealthy), []string{"a", "b", "c"}},
		{"ready pods are not meant by that", web3(), changedBudget(withProbeAtEpoch(webBudget(0, 2, 3, 6)), unhealthy), nil},
		{"a budget that is not known is left to the API server", web3(), drain.DisruptionBudget{Key: "shop/other"}, []string{"a", "b", "c"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := drain.Decide(withKnownBudgets(newFacts(row.pods...), row.budget))
			assert.Equal(t, row.want, requestedPodNames(d))
			assert.False(t, d.Done)
		})
	}
}

func TestUnreadyPodsUseUpNoBudget(t *testing.T) {
	o := withKnownBudgets(
		newFacts(newPod("a", withBudgets("shop/web"), asUnreadyPod), newPod("b", withBudgets("shop/web"))),
		webBudget(1, 3, 2, 4),
	)
	assert.Equal(t, []string{"a", "b"}, requestedPodNames(drain.Decide(o)))
}

func TestWhichBudgetsAreMisconfigured(t *testing.T) {
	for _, row := range []struct {
		name   string
		budget drain.DisruptionBudget
		want   bool
	}{
		{"maxUnavailable 0 or minAvailable of all", webBudget(0, 3, 3, 3), true},
		{"more than there are", webBudget(0, 3, 5, 3), true},
		{"some of them are not healthy", webBudget(0, 1, 3, 3), true},
		{"all are healthy and none may go, yet it could", webBudget(0, 3, 2, 3), false},
		{"it allows one", webBudget(1, 3, 2, 3), false},
		{"evictions are on their way", changedBudget(webBudget(0, 3, 3, 3), func(b *drain.DisruptionBudget) { b.DisruptedCount = 1 }), false},
		{"an old status", changedBudget(webBudget(0, 3, 3, 3), func(b *drain.DisruptionBudget) { b.IsUpToDate = false }), false},
		{"it selects no pods", webBudget(0, 0, 0, 0), false},
		{"in percent, of pods without a controller", webBudget(0, 2, 0, 0), true},
		{"a pod was deleted by force, the rest is too few", webBudget(0, 2, 2, 3), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, row.budget.IsMisconfigured())
			d := drain.Decide(withKnownBudgets(newFacts(newPod("a", withBudgets("shop/web"))), withProbeAtEpoch(row.budget)))
			bad := len(d.Blockers) == 1 && d.Blockers[0].Bad
			assert.Equal(t, row.want, bad)
		})
	}
}

func TestBlockerSentenceOfABudget(t *testing.T) {
	for _, row := range []struct {
		name   string
		budget drain.DisruptionBudget
		want   string
	}{
		{"too few", webBudget(0, 2, 3, 4), "PodDisruptionBudget shop/web needs 3 healthy pods and has 2"},
		{"just enough", webBudget(0, 1, 1, 4), "PodDisruptionBudget shop/web needs 1 healthy pod and has 1"},
		{"never", webBudget(0, 3, 3, 3), "PodDisruptionBudget shop/web allows none of its 3 healthy pods to go: it needs 3 of 3"},
		{"never, one pod", webBudget(0, 1, 1, 1), "PodDisruptionBudget shop/web allows none of its 1 healthy pod to go: it needs 1 of 1"},
		{"never, none is healthy", webBudget(0, 0, 3, 3), "PodDisruptionBudget shop/web allows none of its pods to go: it needs 3 of 3, and none is healthy"},
		{"in percent, of pods without a controller", webBudget(0, 2, 0, 0), "PodDisruptionBudget shop/web allows none of its 2 healthy pods to go: it is in percent or a maximum, and no controller says how many pods there should be; an integer minAvailable helps"},
		{"old", changedBudget(webBudget(1, 3, 2, 3), func(b *drain.DisruptionBudget) { b.IsUpToDate = false }), "PodDisruptionBudget shop/web was changed, and its pods are not counted again yet"},
		{"used up", changedBudget(webBudget(1, 3, 2, 3), func(b *drain.DisruptionBudget) { b.SentEvictions = 1 }), "PodDisruptionBudget shop/web needs 2 healthy pods and has 3; the one allowed eviction is in progress"},
		{"several are used up", changedBudget(webBudget(2, 4, 2, 4), func(b *drain.DisruptionBudget) { b.SentEvictions = 2 }), "PodDisruptionBudget shop/web needs 2 healthy pods and has 4; the 2 allowed evictions are in progress"},
		{"not counted yet", changedBudget(webBudget(0, 3, 2, 4), func(b *drain.DisruptionBudget) { b.DisruptedCount = 1 }), "PodDisruptionBudget shop/web needs 2 healthy pods and has 3, of which 1 is being evicted"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := drain.Decide(
				withKnownBudgets(
					newFacts(newPod("a", withBudgets("shop/web")), newPod("b", withBudgets("shop/web"))),
					withProbeAtEpoch(row.budget),
				),
			)
			assert.Equal(t, []drain.Blocker{{
				Kind: "PodDisruptionBudget", Name: "shop/web", Pods: 2, Why: row.want, Bad: row.budget.IsMisconfigured(),
			}}, d.Blockers)
		})
	}
}

// The API server receives one request per minute for a budget that allows no eviction.
func TestOneProbePerBudgetAndMinute(t *testing.T) {
	pods := []drain.Pod{
		newPod("a", withBudgets("shop/web")),
		newPod("b", withBudgets("shop/web")),
		newPod("c", withBudgets("shop/db")),
	}
	db := changedBudget(webBudget(0, 3, 3, 3), func(b *drain.DisruptionBudget) { b.Key = "shop/db" })
	o := withKnownBudgets(newFacts(pods...), webBudget(0, 2, 2, 3), db)
	d := drain.Decide(o)
	assert.Equal(t, []string{"a as a probe of shop/web", "c as a probe of shop/db"}, requestedPodNames(d))
	assert.Equal(
		t,
		map[string]string{"a": "Blocked", "b": "Blocked", "c": "Blocked"},
		rowStates(d),
		"until an answer says otherwise",
	)

	o.Budgets = []drain.DisruptionBudget{withProbeAtEpoch(o.Budgets[0]), withProbeAtEpoch(db)}
	d = drain.Decide(o)
	assert.Empty(t, d.Act)
	assert.Equal(t, epochPlus(time.Minute), d.Look)
	assert.Equal(t, epochPlus(5*time.Minute), rowOfPod(d, "c").Next, "somebody has to change this one first")

	o.Pods[0] = changedPod(o.Pods[0], withRequestAnswer(drain.RequestAnswer{Result: drain.ResultRefused}, -59*time.Second))
	o.Now = epochPlus(time.Minute)
	assert.Equal(t, []string{"b as a probe of shop/web"}, requestedPodNames(drain.Decide(o)), "a was refused a second ago")
}

func TestAPodOfSeveralBudgetsGetsOnlyProbes(t *testing.T) {
	both := withBudgets("shop/db", "shop/web")
	o := withKnownBudgets(
		newFacts(newPod("a", both), newPod("b", both), newPod("c", both, asPendingPod)),
		webBudget(3, 6, 3, 6),
	)
	d := drain.Decide(o)
	assert.Equal(
		t,
		[]string{"a as a probe of shop/db, shop/web", "c"},
		requestedPodNames(d),
		"what waits to be scheduled needs no budget",
	)
	blocked := []drain.Blocker{{
		Kind: "PodDisruptionBudget", Name: "shop/db and shop/web", Pods: 2, Bad: true,
		Why: "PodDisruptionBudgets shop/db and shop/web select the same pods: the API server evicts none of those",
	}}
	assert.Equal(t, blocked, d.Blockers)

	o.Pods[0] = changedPod(o.Pods[0], withRequestAnswer(drain.RequestAnswer{Result: drain.ResultSeveralBudgets}, 0))
	o.Budgets[0].NextProbe = drain.NextProbeTime(epoch, true)
	o.Pods = o.Pods[:2]
	d = drain.Decide(o)
	assert.Empty(t, d.Act, "one of the two was tried a moment ago")
	assert.Equal(t, epochPlus(5*time.Minute), d.Look)
	assert.Equal(t, blocked, d.Blockers)
}
