package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

// tried is a budget for which a pod was tried a moment ago.
func tried(b drain.Budget) drain.Budget {
	b.Next = drain.AfterProbe(epoch, b.Misconfigured())
	return b
}

func changed(b drain.Budget, change func(*drain.Budget)) drain.Budget {
	change(&b)
	return b
}

func TestWhatABudgetAllows(t *testing.T) {
	web3 := func(changes ...func(*drain.Pod)) []drain.Pod {
		var pods []drain.Pod
		for _, name := range []string{"a", "b", "c"} {
			pods = append(pods, with(pod(name, budgets("shop/web")), changes...))
		}
		return pods
	}
	unhealthy := func(b *drain.Budget) { b.Unhealthy = true }
	old := func(b *drain.Budget) { b.Current = false }
	used := func(b *drain.Budget) { b.Used = 1 }
	for _, row := range []struct {
		name   string
		pods   []drain.Pod
		budget drain.Budget
		want   []string
	}{
		{"in order", web3(), web(3, 6, 3, 6), []string{"a", "b", "c"}},
		{"no more than it allows", web3(), web(2, 5, 3, 6), []string{"a", "b"}},
		{"at the next look, those that were sent are counted", web3(), changed(web(2, 5, 3, 6), used), []string{"a"}},
		{"while evicting", web3(), tried(changed(web(1, 4, 3, 6), used)), nil},
		{"none allowed", web3(), tried(web(0, 3, 3, 6)), nil},
		{"one as a probe, when it is time", web3(), web(0, 3, 3, 6), []string{"a as a probe of shop/web"}},
		{"no probe of what this decision uses up", web3(), web(1, 4, 3, 6), []string{"a"}},
		{"a status that is old allows none", web3(), tried(changed(web(3, 6, 3, 6), old)), nil},
		{"pending pods do not count", web3(pending), tried(web(0, 3, 3, 6)), []string{"a", "b", "c"}},
		{"finished ones neither", web3(finished), tried(web(0, 3, 3, 6)), []string{"a", "b", "c"}},
		{"unready pods, enough are healthy", web3(unready), tried(web(0, 3, 3, 6)), []string{"a", "b", "c"}},
		{"unready pods, too few are healthy", web3(unready), tried(web(0, 2, 3, 6)), nil},
		{"unready pods, none is needed", web3(unready), tried(web(0, 0, 0, 6)), nil},
		{"unready pods may always be evicted", web3(unready), changed(tried(web(0, 2, 3, 6)), unhealthy), []string{"a", "b", "c"}},
		{"ready pods are not meant by that", web3(), changed(tried(web(0, 2, 3, 6)), unhealthy), nil},
		{"a budget that is not known is left to the API server", web3(), drain.Budget{Key: "shop/other"}, []string{"a", "b", "c"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := drain.Decide(knowing(seen(row.pods...), row.budget))
			assert.Equal(t, row.want, sent(d))
			assert.False(t, d.Done)
		})
	}
}

func TestUnreadyPodsUseUpNothing(t *testing.T) {
	o := knowing(seen(pod("a", budgets("shop/web"), unready), pod("b", budgets("shop/web"))), web(1, 3, 2, 4))
	assert.Equal(t, []string{"a", "b"}, sent(drain.Decide(o)))
}

func TestABudgetThatCanNeverBeMet(t *testing.T) {
	for _, row := range []struct {
		name   string
		budget drain.Budget
		want   bool
	}{
		{"maxUnavailable 0 or minAvailable of all", web(0, 3, 3, 3), true},
		{"more than there are", web(0, 3, 5, 3), true},
		{"some of them are not healthy", web(0, 1, 3, 3), true},
		{"all are healthy and none may go, yet it could", web(0, 3, 2, 3), false},
		{"it allows one", web(1, 3, 2, 3), false},
		{"evictions are on their way", changed(web(0, 3, 3, 3), func(b *drain.Budget) { b.Disrupted = 1 }), false},
		{"an old status", changed(web(0, 3, 3, 3), func(b *drain.Budget) { b.Current = false }), false},
		{"it selects no pods", web(0, 0, 0, 0), false},
		{"in percent, of pods without a controller", web(0, 2, 0, 0), true},
		{"a pod was deleted by force, the rest is too few", web(0, 2, 2, 3), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, row.budget.Misconfigured())
			d := drain.Decide(knowing(seen(pod("a", budgets("shop/web"))), tried(row.budget)))
			bad := len(d.Blockers) == 1 && d.Blockers[0].Bad
			assert.Equal(t, row.want, bad)
		})
	}
}

func TestWhatIsSaidOfABudget(t *testing.T) {
	for _, row := range []struct {
		name   string
		budget drain.Budget
		want   string
	}{
		{"too few", web(0, 2, 3, 4), "PodDisruptionBudget shop/web needs 3 healthy pods and has 2"},
		{"just enough", web(0, 1, 1, 4), "PodDisruptionBudget shop/web needs 1 healthy pod and has 1"},
		{"never", web(0, 3, 3, 3), "PodDisruptionBudget shop/web allows none of its 3 healthy pods to go: it needs 3 of 3"},
		{"never, one pod", web(0, 1, 1, 1), "PodDisruptionBudget shop/web allows none of its 1 healthy pod to go: it needs 1 of 1"},
		{"never, none is healthy", web(0, 0, 3, 3), "PodDisruptionBudget shop/web allows none of its pods to go: it needs 3 of 3, and none is healthy"},
		{"in percent, of pods without a controller", web(0, 2, 0, 0), "PodDisruptionBudget shop/web allows none of its 2 healthy pods to go: it is in percent or a maximum, and no controller says how many pods there should be; an integer minAvailable helps"},
		{"old", changed(web(1, 3, 2, 3), func(b *drain.Budget) { b.Current = false }), "PodDisruptionBudget shop/web was changed, and its pods are not counted again yet"},
		{"used up", changed(web(1, 3, 2, 3), func(b *drain.Budget) { b.Used = 1 }), "PodDisruptionBudget shop/web needs 2 healthy pods and has 3; the one allowed eviction is in progress"},
		{"several are used up", changed(web(2, 4, 2, 4), func(b *drain.Budget) { b.Used = 2 }), "PodDisruptionBudget shop/web needs 2 healthy pods and has 4; the 2 allowed evictions are in progress"},
		{"not counted yet", changed(web(0, 3, 2, 4), func(b *drain.Budget) { b.Disrupted = 1 }), "PodDisruptionBudget shop/web needs 2 healthy pods and has 3, of which 1 is being evicted"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := drain.Decide(knowing(seen(pod("a", budgets("shop/web")), pod("b", budgets("shop/web"))), tried(row.budget)))
			assert.Equal(t, []drain.Blocker{{
				Kind: "PodDisruptionBudget", Name: "shop/web", Pods: 2, Why: row.want, Bad: row.budget.Misconfigured(),
			}}, d.Blockers)
		})
	}
}

// A budget that allows nothing is watched, not hammered.
func TestOneProbePerBudgetAndMinute(t *testing.T) {
	pods := []drain.Pod{pod("a", budgets("shop/web")), pod("b", budgets("shop/web")), pod("c", budgets("shop/db"))}
	db := changed(web(0, 3, 3, 3), func(b *drain.Budget) { b.Key = "shop/db" })
	o := knowing(seen(pods...), web(0, 2, 2, 3), db)
	d := drain.Decide(o)
	assert.Equal(t, []string{"a as a probe of shop/web", "c as a probe of shop/db"}, sent(d))
	assert.Equal(
		t,
		map[string]string{"a": "Blocked", "b": "Blocked", "c": "Blocked"},
		states(d),
		"until an answer says otherwise",
	)

	o.Budgets = []drain.Budget{tried(o.Budgets[0]), tried(db)}
	d = drain.Decide(o)
	assert.Empty(t, d.Act)
	assert.Equal(t, at(time.Minute), d.Look)
	assert.Equal(t, at(5*time.Minute), row(d, "c").Next, "somebody has to change this one first")

	o.Pods[0] = with(o.Pods[0], answered(drain.Answer{Result: drain.Refused}, -59*time.Second))
	o.Now = at(time.Minute)
	assert.Equal(t, []string{"b as a probe of shop/web"}, sent(drain.Decide(o)), "a was refused a second ago")
}

func TestAPodOfSeveralBudgetsIsOnlyTried(t *testing.T) {
	both := budgets("shop/db", "shop/web")
	o := knowing(seen(pod("a", both), pod("b", both), pod("c", both, pending)), web(3, 6, 3, 6))
	d := drain.Decide(o)
	assert.Equal(
		t,
		[]string{"a as a probe of shop/db, shop/web", "c"},
		sent(d),
		"what waits to be scheduled needs no budget",
	)
	blocked := []drain.Blocker{{
		Kind: "PodDisruptionBudget", Name: "shop/db and shop/web", Pods: 2, Bad: true,
		Why: "PodDisruptionBudgets shop/db and shop/web select the same pods: the API server evicts none of those",
	}}
	assert.Equal(t, blocked, d.Blockers)

	o.Pods[0] = with(o.Pods[0], answered(drain.Answer{Result: drain.Several}, 0))
	o.Budgets[0].Next = drain.AfterProbe(epoch, true)
	o.Pods = o.Pods[:2]
	d = drain.Decide(o)
	assert.Empty(t, d.Act, "one of the two was tried a moment ago")
	assert.Equal(t, at(5*time.Minute), d.Look)
	assert.Equal(t, blocked, d.Blockers)
}
