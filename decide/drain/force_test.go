package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

// nodeWithBlockedPods returns a node with one pod for each reason that prevents an eviction, and with skipped pods.
func nodeWithBlockedPods() drain.Facts {
	return withKnownBudgets(newFacts(
		newPod("budget", withBudgets("shop/web")),
		newPod("high", withDrainRule("Drain", 9), withVolumes("pv-3")),
		newPod("protected", withProtection("true"), withVolumes("pv-1")),
		newPod("several", withBudgets("shop/db", "shop/web")),
		newPod("volume", withVolumes("pv-2")),
		newPod("work", withDrainLabel("wait-completed")),
		newPod("agent", asDaemonSetPod), newPod("static", asMirrorPod), newPod("stays", withDrainLabel("skip")),
	), withProbeAtEpoch(webBudget(0, 2, 2, 3)))
}

var blockedPodNames = []string{"budget", "protected", "several", "volume", "work", "high"}

func TestDeleteInOrderSendsDeletionsInsteadOfEvictions(t *testing.T) {
	d := drain.Decide(withMeans(drain.MeansDeleteInOrder, newFacts(newPod("a"), newPod("b"))))
	assert.Equal(
		t,
		[]drain.Action{{UID: "uid-a", Means: drain.MeansDeleteInOrder}, {UID: "uid-b", Means: drain.MeansDeleteInOrder}},
		d.Act,
	)
}

// With the means DeleteInOrder, volumes, do-not-disrupt, WaitCompleted and the order of rules have the same effect as
// with Evict. No budget applies, even if several budgets select one pod, because the API server checks no budget for a
// deletion.
func TestDeleteInOrderKeepsOrderAndRemovalSequences(t *testing.T) {
	o := withMeans(drain.MeansDeleteInOrder, nodeWithBlockedPods())
	d := drain.Decide(o)
	assert.Equal(t, []string{"budget", "several", "volume"}, requestedPodNames(d), "volume is the first of its lane")
	assert.Equal(t, map[string]string{
		"budget":    "Evicting",
		"several":   "Evicting",
		"volume":    "Evicting",
		"protected": "Blocked",
		"work":      "Blocked",
		"high":      "Waiting",
	}, rowStates(d))

	left := drain.NewDepartedPod(newPod("left", withVolumes("pv-9")), epoch)
	o = withMeans(drain.MeansDeleteInOrder, newFacts(newPod("volume", withVolumes("pv-2")), newPod("web")))
	o.DepartedPods, o.Volumes = []drain.DepartedPod{left}, map[string]drain.VolumeState{"pv-9": {AttachedHere: true}}
	d = drain.Decide(o)
	assert.Equal(t, []string{"web"}, requestedPodNames(d), "the lane waits for the volume of the pod before")
	assert.False(t, d.Done)
}

func TestDeleteAndKillRemoveAllPodsTogether(t *testing.T) {
	left := drain.NewDepartedPod(newPod("left", withVolumes("pv-1")), epoch)
	for _, means := range []drain.RemovalMeans{drain.MeansDelete, drain.MeansKill} {
		o := withMeans(means, nodeWithBlockedPods())
		o.DepartedPods = []drain.DepartedPod{left}
		o.Volumes = map[string]drain.VolumeState{"pv-1": {AttachedHere: true}}
		d := drain.Decide(o)
		assert.Equal(t, blockedPodNames, requestedPodNames(d), means)
		assert.Empty(t, d.Blockers)
		for i := range o.Pods {
			for _, a := range d.Act {
				if a.UID == o.Pods[i].UID {
					o.Pods[i] = changedPod(
						o.Pods[i],
						withRequestAnswer(drain.RequestAnswer{Means: means, Result: drain.ResultAccepted}, 0),
					)
				}
			}
		}
		d = drain.Decide(o)
		assert.Empty(t, d.Act, "once is enough")
		assert.False(t, d.Done)
		assert.Equal(t, drain.PodCounts{Terminating: 6, Skipped: 3}, d.Picture.Counts)

		o.Pods = nil
		d = drain.Decide(o)
		assert.True(t, d.Done, "no lane waits for volumes")
		assert.Empty(t, d.Departed)
	}
}

func TestDeleteSendsNothingForPodsThatTerminate(t *testing.T) {
	o := withMeans(drain.MeansDelete, newFacts(
		newPod("evicted", withRequestAnswer(drain.RequestAnswer{Result: drain.ResultAccepted}, time.Minute)),
		newPod("gone", withRequestAnswer(drain.RequestAnswer{Result: drain.ResultPodGone}, time.Minute)),
		newPod(
			"terminating",
			withDeletionTime(epochPlus(time.Minute)),
			withRequestAnswer(drain.RequestAnswer{Means: drain.MeansDelete, Result: drain.ResultFailed}, 0),
		),
	))
	d := drain.Decide(o)
	assert.Empty(t, d.Act)
	assert.Empty(t, d.Blockers)
	assert.Equal(
		t,
		map[string]string{"evicted": "Evicting", "gone": "Evicting", "terminating": "Terminating"},
		rowStates(d),
	)
}

func TestKillSendsARequestForPodsThatTerminate(t *testing.T) {
	long := newPod(
		"long",
		withDeletionTime(epochPlus(time.Hour)),
		func(p *drain.Pod) { p.Grace = time.Hour },
		withRequestAnswer(drain.RequestAnswer{Result: drain.ResultAccepted}, time.Minute),
	)
	assert.Empty(t, drain.Decide(newFacts(long)).Act)
	assert.Empty(t, drain.Decide(withMeans(drain.MeansDelete, newFacts(long))).Act)
	o := withMeans(
		drain.MeansKill,
		newFacts(
			long,
			newPod("deleted", withRequestAnswer(drain.RequestAnswer{Means: drain.MeansDelete, Result: drain.ResultAccepted}, 0)),
		),
	)
	assert.Equal(
		t,
		[]drain.Action{{UID: "uid-deleted", Means: drain.MeansKill}, {UID: "uid-long", Means: drain.MeansKill}},
		drain.Decide(o).Act,
	)

	o.Pods[0] = changedPod(
		o.Pods[0],
		withRequestAnswer(drain.RequestAnswer{Means: drain.MeansKill, Result: drain.ResultAccepted}, 0),
	)
	o.Pods[1] = changedPod(
		o.Pods[1],
		withRequestAnswer(drain.RequestAnswer{Means: drain.MeansKill, Result: drain.ResultPodGone}, 0),
	)
	assert.Empty(t, drain.Decide(o).Act)
}

func TestAFailedRequestIsSentAgain(t *testing.T) {
	for _, means := range []drain.RemovalMeans{drain.MeansDelete, drain.MeansKill} {
		failed := newPod(
			"a",
			withRequestAnswer(drain.RequestAnswer{Result: drain.ResultSeveralBudgets}, 0),
			withRequestAnswer(drain.RequestAnswer{Means: means, Result: drain.ResultFailed, Message: "no"}, 0),
		)
		o := withMeans(
			means,
			newFacts(
				failed,
				newPod(
					"b",
					withRequestAnswer(drain.RequestAnswer{Means: means, Result: drain.ResultThrottled, RetryAfter: time.Minute}, 0),
				),
			),
		)
		d := drain.Decide(o)
		assert.Empty(t, d.Act)
		assert.Equal(t, epochPlus(5*time.Second), d.Look)
		assert.Equal(t, []drain.Blocker{{Kind: "Error", Pods: 1, Why: "request for shop/a failed: no"}}, d.Blockers)
		assert.Equal(t, map[string]string{"a": "Blocked", "b": "Waiting"}, rowStates(d))
		o.Now = d.Look
		assert.Equal(t, []string{"a"}, requestedPodNames(drain.Decide(o)))
	}
}

func TestAnswersToEvictionsDoNotDelayDeletions(t *testing.T) {
	for _, r := range []drain.RequestResult{drain.ResultRefused, drain.ResultSeveralBudgets, drain.ResultThrottled, drain.ResultNamespaceDeleting, drain.ResultFailed} {
		d := drain.Decide(
			withMeans(drain.MeansDelete, newFacts(newPod("a", withRequestAnswer(drain.RequestAnswer{Result: r}, 0)))),
		)
		assert.Equal(t, []string{"a"}, requestedPodNames(d), r)
		assert.Empty(t, d.Blockers, r)
	}
}
