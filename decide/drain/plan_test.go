package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

func TestPodsWithoutVolumesGoAtOnce(t *testing.T) {
	d := drain.Decide(seen(pod("b"), pod("a"), pod("c", priority(1000))))
	assert.Equal(t, []drain.Action{
		{UID: "uid-c", Means: drain.Evict}, {UID: "uid-a", Means: drain.Evict}, {UID: "uid-b", Means: drain.Evict},
	}, d.Act)
	assert.Empty(t, d.Blockers)
	assert.Zero(t, d.Look)
	assert.False(t, d.Done)
}

func TestEvictionIsTheFirstMeans(t *testing.T) {
	assert.Equal(t, []drain.Action{{UID: "uid-a", Means: drain.Evict}}, drain.Decide(by("", seen(pod("a")))).Act)
}

func TestANodeIsEmptyWhenOnlySkippedPodsAreLeft(t *testing.T) {
	stay := []drain.Pod{
		pod("a", mirror),
		pod("b", daemonSet),
		pod("c", labelled("skip")),
		pod("d", ruled("Skip", 0)),
		pod("e", labelled("wait-completed"), finished),
	}
	for _, means := range []drain.Means{drain.Evict, drain.Delete, drain.Kill} {
		d := drain.Decide(by(means, seen(stay...)))
		assert.Equal(t, drain.Decision{Done: true, Picture: drain.Picture{Counts: drain.Counts{Skipped: 5}, Why: "empty"}}, d)
	}
}

func TestAPodThatGoesIsNotEvictedAgain(t *testing.T) {
	accepted := pod("accepted", answered(drain.Answer{Result: drain.Accepted}, time.Hour))
	gone := pod("gone", answered(drain.Answer{Result: drain.Gone}, time.Hour))
	d := drain.Decide(seen(accepted, gone, pod("deleted", terminating(at(time.Second)))))
	assert.Empty(t, d.Act)
	assert.False(t, d.Done, "they are waited for")
	assert.Equal(t, map[string]string{"accepted": "Evicting", "gone": "Evicting", "deleted": "Terminating"}, states(d))

	accepted = with(accepted, answered(drain.Answer{Result: drain.Failed}, time.Minute))
	assert.Empty(t, drain.Decide(seen(accepted)).Act, "whatever was answered since")
}

func TestARoundSendsTheLowestOrderAndListsTheOthers(t *testing.T) {
	answer := func(name string, r drain.Result, message string, ago time.Duration) drain.Pod {
		return pod(name, ruled("Drain", 1), budgets("shop/web"), answered(drain.Answer{Result: r, Message: message}, ago))
	}
	o := knowing(seen(
		pod("terminating", ruled("Drain", 1), terminating(at(10*time.Second))),
		with(answer("refused", drain.Refused, "", time.Second), func(p *drain.Pod) { p.Rule.Order = 1 }),
		with(answer("going", drain.Going, "", time.Second), budgets()),
		with(answer("failed", drain.Failed, "no such thing", 2*time.Second), budgets()),
		with(answer("throttled", drain.Throttled, "", time.Second), budgets()),
		with(answer("notfound", drain.Gone, "", time.Second), budgets()),
		pod("next", ruled("Drain", 1)),
		pod("high", ruled("Drain", 2)),
		pod("higher", ruled("Drain", 3), protected("true")),
		pod("done", finished),
	), tried(web(0, 2, 2, 3)))
	d := drain.Decide(o)
	assert.Equal(t, []string{"done", "next"}, sent(d))
	assert.Equal(t, map[string]string{
		"terminating": "Terminating",
		"refused":     "Blocked",
		"going":       "Blocked",
		"failed":      "Blocked",
		"throttled":   "Waiting",
		"notfound":    "Evicting",
		"next":        "Evicting",
		"high":        "Waiting",
		"higher":      "Waiting",
		"done":        "Evicting",
	}, states(d))
	assert.Equal(t, []drain.Blocker{
		{Kind: "Error", Pods: 1, Why: "request for shop/failed failed: no such thing"},
		{Kind: "Namespace", Pods: 1, Why: "namespace shop is being deleted, and shop/going with it"},
		{
			Kind: "PodDisruptionBudget",
			Name: "shop/web",
			Pods: 1,
			Why:  "PodDisruptionBudget shop/web needs 2 healthy pods and has 2",
		},
	}, d.Blockers)
	assert.Equal(t, at(3*time.Second), d.Look, "failed is tried again")

	o.Now = at(4 * time.Second)
	d = drain.Decide(o)
	assert.Equal(t, []string{"done", "failed", "next", "throttled"}, sent(d))
	assert.Equal(t, "Blocked", states(d)["failed"], "until it is answered")
}

func TestOrdersGoOneAfterTheOther(t *testing.T) {
	o := seen(pod("low", ruled("Drain", -5)), pod("none"), pod("high", ruled("Drain", 5)))
	for _, want := range []string{"low", "none", "high"} {
		assert.Equal(t, []string{want}, sent(drain.Decide(o)))
		o.Pods[0].DeletedAt = at(time.Second)
		assert.Empty(t, drain.Decide(o).Act, "%s terminates: the next order waits until it is gone", want)
		o.Pods = o.Pods[1:]
	}
	assert.True(t, drain.Decide(o).Done)
}

func TestPodsWithWaitCompleted(t *testing.T) {
	work := pod("work", labelled("wait-completed"))
	o := seen(work, pod("a"), pod("low", ruled("Drain", -1)), pod("high", ruled("Drain", 1)))
	d := drain.Decide(o)
	assert.Equal(t, []string{"low"}, sent(d))
	assert.Equal(t, "Waiting", states(d)["work"], "its order is zero")

	o = seen(work, pod("a"), pod("high", ruled("Drain", 1)))
	d = drain.Decide(o)
	assert.Equal(t, []string{"a"}, sent(d), "of the same order")
	assert.Equal(t, []drain.Blocker{{Kind: "WaitCompleted", Pods: 1, Why: "waits for shop/work to complete"}}, d.Blockers)

	o = seen(work, pod("high", ruled("Drain", 1)))
	d = drain.Decide(o)
	assert.Empty(t, d.Act)
	assert.False(t, d.Done)
	assert.Zero(t, d.Look, "no time ends it")

	o.Pods[0].Finished = true
	assert.Equal(t, []string{"high"}, sent(drain.Decide(o)))
	assert.Equal(
		t,
		[]string{"work", "high"},
		sent(drain.Decide(by(drain.Delete, seen(work, pod("high", ruled("Drain", 1)))))),
		"deletion waits for no work",
	)
}

func TestFinishedPodsHoldNobodyBack(t *testing.T) {
	o := seen(pod("done", finished, answered(drain.Answer{Result: drain.Failed}, 0)), pod("a", ruled("Drain", 3)))
	assert.Equal(t, []string{"a"}, sent(drain.Decide(o)))
}

func TestARefusalAlthoughTheStatusOfTheBudgetAllowsTheEviction(t *testing.T) {
	refused := drain.Answer{Result: drain.Refused, Message: "would violate shop/db"}
	a := pod("a", budgets("shop/web"), answered(refused, time.Second))
	d := drain.Decide(knowing(seen(a), web(1, 3, 2, 3)))
	assert.Empty(t, d.Act)
	assert.Equal(t, at(9*time.Second), d.Look)
	assert.Equal(t, []drain.Blocker{
		{
			Kind: "PodDisruptionBudget",
			Name: "shop/web",
			Pods: 1,
			Why:  "the API server refuses an eviction for PodDisruptionBudget shop/web, whose status as it is seen here allows one",
		},
	}, d.Blockers)

	a.Tries = drain.Woken(a.Tries)
	d = drain.Decide(knowing(seen(a), web(1, 3, 2, 3)))
	assert.Equal(t, []string{"a"}, sent(d), "its status has changed")
	assert.Empty(t, d.Blockers)

	d = drain.Decide(seen(pod("a", answered(refused, 10*time.Second))))
	assert.Equal(t, []string{"a"}, sent(d))
	assert.Equal(t, []drain.Blocker{
		{
			Kind: "PodDisruptionBudget",
			Pods: 1,
			Why:  "a PodDisruptionBudget that is not seen here keeps shop/a: would violate shop/db",
		},
	}, d.Blockers)
	assert.Equal(t, "PodDisruptionBudget", row(d, "a").BlockedBy)
}

func TestAPodThatDoesNotEnd(t *testing.T) {
	o := seen(pod("a", terminating(epoch)), pod("b", terminating(at(-10*time.Second))))
	d := drain.Decide(o)
	assert.Empty(t, d.Blockers)
	assert.Equal(t, at(50*time.Second), d.Look, "one minute after b should have ended")

	o.Now = d.Look
	d = drain.Decide(o)
	assert.Equal(
		t,
		[]drain.Blocker{
			{Kind: "Terminating", Pods: 1, Why: "shop/b should have ended long ago: its kubelet or a finalizer holds it"},
		},
		d.Blockers,
	)
	assert.Equal(t, at(time.Minute), d.Look)

	o.Now = d.Look
	d = drain.Decide(o)
	assert.Equal(t, []drain.Blocker{
		{
			Kind: "Terminating",
			Pods: 2,
			Why:  "shop/a, shop/b should have ended long ago: their kubelet or a finalizer holds them",
		},
	}, d.Blockers)
	assert.Zero(t, d.Look)
}
