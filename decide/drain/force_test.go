package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

// kept returns a node with one pod for each reason that keeps a pod from being evicted, and pods that stay.
func kept() drain.Observed {
	return knowing(seen(
		pod("budget", budgets("shop/web")),
		pod("high", ruled("Drain", 9), volumes("pv-3")),
		pod("protected", protected("true"), volumes("pv-1")),
		pod("several", budgets("shop/db", "shop/web")),
		pod("volume", volumes("pv-2")),
		pod("work", labelled("wait-completed")),
		pod("agent", daemonSet), pod("static", mirror), pod("stays", labelled("skip")),
	), tried(web(0, 2, 2, 3)))
}

var keptNames = []string{"budget", "protected", "several", "volume", "work", "high"}

func TestWithoutEvictionPodsAreDeleted(t *testing.T) {
	d := drain.Decide(by(drain.DeleteInOrder, seen(pod("a"), pod("b"))))
	assert.Equal(
		t,
		[]drain.Action{{UID: "uid-a", Means: drain.DeleteInOrder}, {UID: "uid-b", Means: drain.DeleteInOrder}},
		d.Act,
	)
}

// With DeleteInOrder, volumes, protection, WaitCompleted and the order of rules hold as they do for evictions. No
// budget does, not even several of one pod: the API server asks no budget about a deletion.
func TestWithoutEvictionPodsGoInOrder(t *testing.T) {
	o := by(drain.DeleteInOrder, kept())
	d := drain.Decide(o)
	assert.Equal(t, []string{"budget", "several", "volume"}, sent(d), "volume is the first of its lane")
	assert.Equal(t, map[string]string{
		"budget":    "Evicting",
		"several":   "Evicting",
		"volume":    "Evicting",
		"protected": "Blocked",
		"work":      "Blocked",
		"high":      "Waiting",
	}, states(d))

	left := drain.Leave(pod("left", volumes("pv-9")), epoch)
	o = by(drain.DeleteInOrder, seen(pod("volume", volumes("pv-2")), pod("web")))
	o.Departed, o.Volumes = []drain.Departed{left}, map[string]drain.Volume{"pv-9": {Here: true}}
	d = drain.Decide(o)
	assert.Equal(t, []string{"web"}, sent(d), "the lane waits for the volume of the pod before")
	assert.False(t, d.Done)
}

func TestByForceEverythingGoesAtOnce(t *testing.T) {
	left := drain.Leave(pod("left", volumes("pv-1")), epoch)
	for _, means := range []drain.Means{drain.Delete, drain.Kill} {
		o := by(means, kept())
		o.Departed = []drain.Departed{left}
		o.Volumes = map[string]drain.Volume{"pv-1": {Here: true}}
		d := drain.Decide(o)
		assert.Equal(t, keptNames, sent(d), means)
		assert.Empty(t, d.Blockers)
		for i := range o.Pods {
			for _, a := range d.Act {
				if a.UID == o.Pods[i].UID {
					o.Pods[i] = with(o.Pods[i], answered(drain.Answer{Means: means, Result: drain.Accepted}, 0))
				}
			}
		}
		d = drain.Decide(o)
		assert.Empty(t, d.Act, "once is enough")
		assert.False(t, d.Done)
		assert.Equal(t, drain.Counts{Terminating: 6, Skipped: 3}, d.Picture.Counts)

		o.Pods = nil
		d = drain.Decide(o)
		assert.True(t, d.Done, "no lane waits for volumes")
		assert.Empty(t, d.Departed)
	}
}

func TestDeleteSendsNothingForPodsThatTerminate(t *testing.T) {
	o := by(drain.Delete, seen(
		pod("evicted", answered(drain.Answer{Result: drain.Accepted}, time.Minute)),
		pod("gone", answered(drain.Answer{Result: drain.Gone}, time.Minute)),
		pod(
			"terminating",
			terminating(at(time.Minute)),
			answered(drain.Answer{Means: drain.Delete, Result: drain.Failed}, 0),
		),
	))
	d := drain.Decide(o)
	assert.Empty(t, d.Act)
	assert.Empty(t, d.Blockers)
	assert.Equal(t, map[string]string{"evicted": "Evicting", "gone": "Evicting", "terminating": "Terminating"}, states(d))
}

func TestKillAlsoTakesPodsThatTerminate(t *testing.T) {
	long := pod(
		"long",
		terminating(at(time.Hour)),
		func(p *drain.Pod) { p.Grace = time.Hour },
		answered(drain.Answer{Result: drain.Accepted}, time.Minute),
	)
	assert.Empty(t, drain.Decide(seen(long)).Act)
	assert.Empty(t, drain.Decide(by(drain.Delete, seen(long))).Act)
	o := by(drain.Kill, seen(long, pod("deleted", answered(drain.Answer{Means: drain.Delete, Result: drain.Accepted}, 0))))
	assert.Equal(
		t,
		[]drain.Action{{UID: "uid-deleted", Means: drain.Kill}, {UID: "uid-long", Means: drain.Kill}},
		drain.Decide(o).Act,
	)

	o.Pods[0] = with(o.Pods[0], answered(drain.Answer{Means: drain.Kill, Result: drain.Accepted}, 0))
	o.Pods[1] = with(o.Pods[1], answered(drain.Answer{Means: drain.Kill, Result: drain.Gone}, 0))
	assert.Empty(t, drain.Decide(o).Act)
}

func TestAFailedRequestIsSentAgain(t *testing.T) {
	for _, means := range []drain.Means{drain.Delete, drain.Kill} {
		failed := pod(
			"a",
			answered(drain.Answer{Result: drain.Several}, 0),
			answered(drain.Answer{Means: means, Result: drain.Failed, Message: "no"}, 0),
		)
		o := by(
			means,
			seen(failed, pod("b", answered(drain.Answer{Means: means, Result: drain.Throttled, RetryAfter: time.Minute}, 0))),
		)
		d := drain.Decide(o)
		assert.Empty(t, d.Act)
		assert.Equal(t, at(5*time.Second), d.Look)
		assert.Equal(t, []drain.Blocker{{Kind: "Error", Pods: 1, Why: "request for shop/a failed: no"}}, d.Blockers)
		assert.Equal(t, map[string]string{"a": "Blocked", "b": "Waiting"}, states(d))
		o.Now = d.Look
		assert.Equal(t, []string{"a"}, sent(drain.Decide(o)))
	}
}

func TestWhatEvictionAnsweredHoldsBackNoDeletion(t *testing.T) {
	for _, r := range []drain.Result{drain.Refused, drain.Several, drain.Throttled, drain.Going, drain.Failed} {
		d := drain.Decide(by(drain.Delete, seen(pod("a", answered(drain.Answer{Result: r}, 0)))))
		assert.Equal(t, []string{"a"}, sent(d), r)
		assert.Empty(t, d.Blockers, r)
	}
}
