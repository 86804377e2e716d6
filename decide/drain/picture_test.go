package drain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

func TestSummaryOfADrain(t *testing.T) {
	web3 := withProbeAtEpoch(webBudget(0, 3, 3, 4))
	for _, row := range []struct {
		name string
		seen drain.Facts
		want string
	}{
		{"nothing is left", newFacts(), "empty"},
		{"one", newFacts(newPod("a", withDeletionTime(epochPlus(time.Second)))), "1 pod left: 1 is terminating"},
		{
			"three", withKnownBudgets(newFacts(newPod("a", withBudgets("shop/web")), newPod("b", withBudgets("shop/web")), newPod("c", withDeletionTime(epochPlus(time.Second)))), web3),
			"3 pods left: PodDisruptionBudget shop/web needs 3 healthy pods and has 3; 1 is terminating",
		},
		{
			"two orders", newFacts(newPod("a"), newPod("b"), newPod("c", withDrainRule("Drain", 1)), newPod("d", withDrainRule("Drain", 1))),
			"4 pods left: 2 are terminating; 2 wait for their turn",
		},
		{
			"volumes", factsAfterDeparture(newFacts(newPod("b", withVolumes("pv-b"))), volumesByName{"pv-a": volumeAttachedHere}, departedPod("a", 0, "pv-a")),
			"1 pod left: volume pv-a of shop/a is still attached to the node; 1 waits for its turn",
		},
		{
			"nothing but volumes", factsAfterDeparture(newFacts(), volumesByName{"pv-a": volumeAttachedHere}, departedPod("a", 0, "pv-a")),
			"no pods left: volume pv-a of shop/a is still attached to the node",
		},
		{
			"many pods", newFacts(newPod("a", withProtection("true")), newPod("b", withProtection("true")), newPod("c", withProtection("true")), newPod("d", withProtection("true")), newPod("e", withProtection("true"))),
			"5 pods left: shop/a, shop/b, shop/c and 2 more are not to be disrupted",
		},
		{
			"many blockers, those first that need somebody", withKnownBudgets(newFacts(
				newPod("a", withProtection("true")), newPod("b", withProtection("true")), newPod("c", withDrainLabel("wait-completed")),
				newPod("d", withRequestAnswer(drain.RequestAnswer{Result: drain.ResultNamespaceDeleting}, 0)), newPod("e", withRequestAnswer(drain.RequestAnswer{Result: drain.ResultFailed, Message: "no"}, 0)),
				newPod("f", withBudgets("shop/web")),
			), withProbeAtEpoch(webBudget(0, 1, 1, 1))),
			"6 pods left: PodDisruptionBudget shop/web allows none of its 1 healthy pod to go: it needs 1 of 1; " +
				"shop/a, shop/b are not to be disrupted; request for shop/e failed: no; 2 more blockers",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := drain.Decide(row.seen)
			assert.Equal(t, row.want, d.Picture.Why)
			assert.Equal(t, row.want == "empty", d.Done)
		})
	}
}

func TestOverviewHasLimitedSize(t *testing.T) {
	o := newFacts()
	o.GonePodCount = 7
	for i := range 100 {
		name := fmt.Sprintf("%03d", i)
		o.Pods = append(
			o.Pods,
			newPod("blocked-"+name, withBudgets("shop/"+name)),
			newPod("waiting-"+name, withDrainRule("Drain", 1)),
			newPod(
				"agent-"+name,
				asDaemonSetPod,
			),
			newPod(
				"failed-"+name,
				withRequestAnswer(drain.RequestAnswer{Result: drain.ResultFailed, Message: strings.Repeat("x", 10_000)}, 0),
			),
		)
		o.Budgets = append(
			o.Budgets,
			withProbeAtEpoch(
				drain.DisruptionBudget{
					Key:            "shop/" + name,
					DesiredHealthy: 2,
					CurrentHealthy: 2,
					ExpectedPods:   2 + i%2,
					IsUpToDate:     true,
				},
			),
		)
	}
	o.Pods = append(o.Pods, newPod("another", withBudgets("shop/030"))) // the blocker with the most pods
	d := drain.Decide(o)
	assert.Len(t, d.Picture.Rows, drain.MaxOverviewRows)
	assert.Equal(t, drain.PodCounts{Gone: 7, Blocked: 201, Waiting: 100, Skipped: 100}, d.Picture.Counts)
	assert.Len(t, d.Blockers, drain.MaxBlockers)
	for _, b := range d.Blockers {
		assert.True(t, b.Bad, "those first that need somebody: %s", b.Name)
		assert.Less(t, len(b.Why), 500)
	}
	assert.IsIncreasing(t, blockerNames(d.Blockers))
	assert.Less(t, len(d.Picture.Why), 1000)
	assert.Contains(t, d.Picture.Why, "98 more blockers")

	errors := drain.Decide(newFacts(o.Pods[3]))
	assert.Less(t, len(errors.Picture.Why), 1000)
}

func blockerNames(blockers []drain.Blocker) []string {
	var result []string
	for _, b := range blockers {
		result = append(result, b.Kind+" "+b.Name)
	}
	return result
}

func TestOverviewRowsAreSortedByState(t *testing.T) {
	o := factsAfterDeparture(withKnownBudgets(newFacts(
		newPod("waiting", withDrainRule("Drain", 1)),
		newPod("evicting"),
		newPod(
			"a-young",
			withDeletionTime(epochPlus(20*time.Second)),
			withRequestAnswer(drain.RequestAnswer{Result: drain.ResultAccepted}, 5*time.Second),
		),
		newPod("old", withDeletionTime(epochPlus(10*time.Second))),
		newPod(
			"blocked",
			withBudgets("shop/web"),
			withRequestAnswer(drain.RequestAnswer{Result: drain.ResultRefused}, time.Minute),
		),
	), withProbeAtEpoch(webBudget(0, 1, 1, 2))), volumesByName{"pv-1": volumeAttachedHere}, departedPod("b-left", time.Second, "pv-1"), departedPod("a-left", time.Second, "pv-2"))
	assert.Equal(t, []drain.PodRow{
		{
			Pod:       "shop/blocked",
			State:     "Blocked",
			Attempts:  1,
			BlockedBy: "shop/web",
			Budgets:   []string{"shop/web"},
			Next:      epochPlus(time.Minute),
		},
		{Pod: "shop/old", State: "Terminating", Since: epochPlus(-20 * time.Second)},
		{Pod: "shop/a-young", State: "Terminating", Since: epochPlus(-5 * time.Second), Attempts: 1},
		{Pod: "shop/evicting", State: "Evicting", Since: epoch},
		{
			Pod:       "shop/b-left",
			State:     "Detaching",
			Since:     epochPlus(-time.Second),
			BlockedBy: "pv-1",
			Next:      epochPlus(119 * time.Second),
		},
		{Pod: "shop/a-left", State: "Attaching", Since: epoch, BlockedBy: "pv-2", Next: epochPlus(90 * time.Second)},
		{Pod: "shop/waiting", State: "Waiting"},
	}, drain.Decide(o).Picture.Rows)
}
