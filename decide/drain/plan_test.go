package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

func TestPodsWithoutVolumesAreEvictedTogether(t *testing.T) {
	d := drain.Decide(newFacts(newPod("b"), newPod("a"), newPod("c", withPriority(1000))))
	assert.Equal(t, []drain.Action{
		{
			UID:   "uid-c",
			Means: drain.MeansEvict,
		},
		{UID: "uid-a", Means: drain.MeansEvict},
		{UID: "uid-b", Means: drain.MeansEvict},
	}, d.Act)
	assert.Empty(t, d.Blockers)
	assert.Zero(t, d.Look)
	assert.False(t, d.Done)
}

func TestEvictionIsTheFirstMeans(t *testing.T) {
	assert.Equal(
		t,
		[]drain.Action{{UID: "uid-a", Means: drain.MeansEvict}},
		drain.Decide(withMeans("", newFacts(newPod("a")))).Act,
	)
}

func TestANodeIsEmptyWhenOnlySkippedPodsAreLeft(t *testing.T) {
	stay := []drain.Pod{
		newPod("a", asMirrorPod),
		newPod("b", asDaemonSetPod),
		newPod("c", withDrainLabel("skip")),
		newPod("d", withDrainRule("Skip", 0)),
		newPod("e", withDrainLabel("wait-completed"), asFinishedPod),
	}
	for _, means := range []drain.RemovalMeans{drain.MeansEvict, drain.MeansDelete, drain.MeansKill} {
		d := drain.Decide(withMeans(means, newFacts(stay...)))
		assert.Equal(
			t,
			drain.Decision{Done: true, Picture: drain.Overview{Counts: drain.PodCounts{Skipped: 5}, Why: "empty"}},
			d,
		)
	}
}

func TestALeavingPodIsNotEvictedAgain(t *testing.T) {
	accepted := newPod("accepted", withRequestAnswer(drain.RequestAnswer{Result: drain.ResultAccepted}, time.Hour))
	gone := newPod("gone", withRequestAnswer(drain.RequestAnswer{Result: drain.ResultPodGone}, time.Hour))
	d := drain.Decide(newFacts(accepted, gone, newPod("deleted", withDeletionTime(epochPlus(time.Second)))))
	assert.Empty(t, d.Act)
	assert.False(t, d.Done, "they are waited for")
	assert.Equal(t, map[string]string{"accepted": "Evicting", "gone": "Evicting", "deleted": "Terminating"}, rowStates(d))

	accepted = changedPod(accepted, withRequestAnswer(drain.RequestAnswer{Result: drain.ResultFailed}, time.Minute))
	assert.Empty(t, drain.Decide(newFacts(accepted)).Act, "whatever was answered since")
}

func TestDecisionEvictsOnlyPodsOfLowestOrder(t *testing.T) {
	answer := func(name string, r drain.RequestResult, message string, ago time.Duration) drain.Pod {
		return newPod(
			name,
			withDrainRule("Drain", 1),
			withBudgets("shop/web"),
			withRequestAnswer(drain.RequestAnswer{Result: r, Message: message}, ago),
		)
	}
	o := withKnownBudgets(newFacts(
		newPod("terminating", withDrainRule("Drain", 1), withDeletionTime(epochPlus(10*time.Second))),
		changedPod(answer("refused", drain.ResultRefused, "", time.Second), func(p *drain.Pod) { p.Rule.Order = 1 }),
		changedPod(answer("going", drain.ResultNamespaceDeleting, "", time.Second), withBudgets()),
		changedPod(answer("failed", drain.ResultFailed, "no such thing", 2*time.Second), withBudgets()),
		changedPod(answer("throttled", drain.ResultThrottled, "", time.Second), withBudgets()),
		changedPod(answer("notfound", drain.ResultPodGone, "", time.Second), withBudgets()),
		newPod("next", withDrainRule("Drain", 1)),
		newPod("high", withDrainRule("Drain", 2)),
		newPod("higher", withDrainRule("Drain", 3), withProtection("true")),
		newPod("done", asFinishedPod),
	), withProbeAtEpoch(webBudget(0, 2, 2, 3)))
	d := drain.Decide(o)
	assert.Equal(t, []string{"done", "next"}, requestedPodNames(d))
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
	}, rowStates(d))
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
	assert.Equal(t, epochPlus(3*time.Second), d.Look, "failed is tried again")

	o.Now = epochPlus(4 * time.Second)
	d = drain.Decide(o)
	assert.Equal(t, []string{"done", "failed", "next", "throttled"}, requestedPodNames(d))
	assert.Equal(t, "Blocked", rowStates(d)["failed"], "until it is answered")
}

func TestPodsAreEvictedInAscendingOrder(t *testing.T) {
	o := newFacts(newPod("low", withDrainRule("Drain", -5)), newPod("none"), newPod("high", withDrainRule("Drain", 5)))
	for _, want := range []string{"low", "none", "high"} {
		assert.Equal(t, []string{want}, requestedPodNames(drain.Decide(o)))
		o.Pods[0].DeletedAt = epochPlus(time.Second)
		assert.Empty(t, drain.Decide(o).Act, "%s terminates: the next order waits until it is gone", want)
		o.Pods = o.Pods[1:]
	}
	assert.True(t, drain.Decide(o).Done)
}

func TestDrainWaitsForPodsWithWaitCompleted(t *testing.T) {
	work := newPod("work", withDrainLabel("wait-completed"))
	o := newFacts(
		work,
		newPod("a"),
		newPod("low", withDrainRule("Drain", -1)),
		newPod("high", withDrainRule("Drain", 1)),
	)
	d := drain.Decide(o)
	assert.Equal(t, []string{"low"}, requestedPodNames(d))
	assert.Equal(t, "Waiting", rowStates(d)["work"], "its order is zero")

	o = newFacts(work, newPod("a"), newPod("high", withDrainRule("Drain", 1)))
	d = drain.Decide(o)
	assert.Equal(t, []string{"a"}, requestedPodNames(d), "of the same order")
	assert.Equal(t, []drain.Blocker{{Kind: "WaitCompleted", Pods: 1, Why: "waits for shop/work to complete"}}, d.Blockers)

	o = newFacts(work, newPod("high", withDrainRule("Drain", 1)))
	d = drain.Decide(o)
	assert.Empty(t, d.Act)
	assert.False(t, d.Done)
	assert.Zero(t, d.Look, "no time ends it")

	o.Pods[0].Finished = true
	assert.Equal(t, []string{"high"}, requestedPodNames(drain.Decide(o)))
	assert.Equal(
		t,
		[]string{"work", "high"},
		requestedPodNames(
			drain.Decide(withMeans(drain.MeansDelete, newFacts(work, newPod("high", withDrainRule("Drain", 1))))),
		),
		"deletion waits for no work",
	)
}

func TestFinishedPodsDelayNoOtherPod(t *testing.T) {
	o := newFacts(
		newPod("done", asFinishedPod, withRequestAnswer(drain.RequestAnswer{Result: drain.ResultFailed}, 0)),
		newPod("a", withDrainRule("Drain", 3)),
	)
	assert.Equal(t, []string{"a"}, requestedPodNames(drain.Decide(o)))
}

func TestUnexpectedRefusalDelaysTheNextRequest(t *testing.T) {
	refused := drain.RequestAnswer{Result: drain.ResultRefused, Message: "would violate shop/db"}
	a := newPod("a", withBudgets("shop/web"), withRequestAnswer(refused, time.Second))
	d := drain.Decide(withKnownBudgets(newFacts(a), webBudget(1, 3, 2, 3)))
	assert.Empty(t, d.Act)
	assert.Equal(t, epochPlus(9*time.Second), d.Look)
	assert.Equal(t, []drain.Blocker{
		{
			Kind: "PodDisruptionBudget",
			Name: "shop/web",
			Pods: 1,
			Why:  "the API server refuses an eviction for PodDisruptionBudget shop/web, whose status as it is seen here allows one",
		},
	}, d.Blockers)

	a.Tries = drain.RequestRecordWithoutPause(a.Tries)
	d = drain.Decide(withKnownBudgets(newFacts(a), webBudget(1, 3, 2, 3)))
	assert.Equal(t, []string{"a"}, requestedPodNames(d), "its status has changed")
	assert.Empty(t, d.Blockers)

	d = drain.Decide(newFacts(newPod("a", withRequestAnswer(refused, 10*time.Second))))
	assert.Equal(t, []string{"a"}, requestedPodNames(d))
	assert.Equal(t, []drain.Blocker{
		{
			Kind: "PodDisruptionBudget",
			Pods: 1,
			Why:  "a PodDisruptionBudget that is not seen here keeps shop/a: would violate shop/db",
		},
	}, d.Blockers)
	assert.Equal(t, "PodDisruptionBudget", rowOfPod(d, "a").BlockedBy)
}

func TestAStuckTerminatingPodIsABlocker(t *testing.T) {
	o := newFacts(newPod("a", withDeletionTime(epoch)), newPod("b", withDeletionTime(epochPlus(-10*time.Second))))
	d := drain.Decide(o)
	assert.Empty(t, d.Blockers)
	assert.Equal(t, epochPlus(50*time.Second), d.Look, "one minute after b should have ended")

	o.Now = d.Look
	d = drain.Decide(o)
	assert.Equal(
		t,
		[]drain.Blocker{
			{Kind: "Terminating", Pods: 1, Why: "shop/b should have ended long ago: its kubelet or a finalizer holds it"},
		},
		d.Blockers,
	)
	assert.Equal(t, epochPlus(time.Minute), d.Look)

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
