package drain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/drain"
)

func TestWhatADrainSays(t *testing.T) {
	web3 := tried(web(0, 3, 3, 4))
	for _, row := range []struct {
		name string
		seen drain.Observed
		want string
	}{
		{"nothing is left", seen(), "empty"},
		{"one", seen(pod("a", terminating(at(time.Second)))), "1 pod left: 1 is terminating"},
		{
			"three", knowing(seen(pod("a", budgets("shop/web")), pod("b", budgets("shop/web")), pod("c", terminating(at(time.Second)))), web3),
			"3 pods left: PodDisruptionBudget shop/web needs 3 healthy pods and has 3; 1 is terminating",
		},
		{
			"two orders", seen(pod("a"), pod("b"), pod("c", ruled("Drain", 1)), pod("d", ruled("Drain", 1))),
			"4 pods left: 2 are terminating; 2 wait for their turn",
		},
		{
			"volumes", after(seen(pod("b", volumes("pv-b"))), attached{"pv-a": here}, left("a", 0, "pv-a")),
			"1 pod left: volume pv-a of shop/a is still attached to the node; 1 waits for its turn",
		},
		{
			"nothing but volumes", after(seen(), attached{"pv-a": here}, left("a", 0, "pv-a")),
			"no pods left: volume pv-a of shop/a is still attached to the node",
		},
		{
			"many pods", seen(pod("a", protected("true")), pod("b", protected("true")), pod("c", protected("true")), pod("d", protected("true")), pod("e", protected("true"))),
			"5 pods left: shop/a, shop/b, shop/c and 2 more are not to be disrupted",
		},
		{
			"many blockers, those first that need somebody", knowing(seen(
				pod("a", protected("true")), pod("b", protected("true")), pod("c", labelled("wait-completed")),
				pod("d", answered(drain.Answer{Result: drain.Going}, 0)), pod("e", answered(drain.Answer{Result: drain.Failed, Message: "no"}, 0)),
				pod("f", budgets("shop/web")),
			), tried(web(0, 1, 1, 1))),
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

func TestAPictureIsBounded(t *testing.T) {
	o := seen()
	o.Gone = 7
	for i := range 100 {
		name := fmt.Sprintf("%03d", i)
		o.Pods = append(
			o.Pods,
			pod("blocked-"+name, budgets("shop/"+name)),
			pod("waiting-"+name, ruled("Drain", 1)),
			pod(
				"agent-"+name,
				daemonSet,
			),
			pod("failed-"+name, answered(drain.Answer{Result: drain.Failed, Message: strings.Repeat("x", 10_000)}, 0)),
		)
		o.Budgets = append(
			o.Budgets,
			tried(drain.Budget{Key: "shop/" + name, Desired: 2, Healthy: 2, Expected: 2 + i%2, Current: true}),
		)
	}
	o.Pods = append(o.Pods, pod("another", budgets("shop/030"))) // which makes this the most important one
	d := drain.Decide(o)
	assert.Len(t, d.Picture.Rows, drain.MaxRows)
	assert.Equal(t, drain.Counts{Gone: 7, Blocked: 201, Waiting: 100, Skipped: 100}, d.Picture.Counts)
	assert.Len(t, d.Blockers, drain.MaxBlockers)
	for _, b := range d.Blockers {
		assert.True(t, b.Bad, "those first that need somebody: %s", b.Name)
		assert.Less(t, len(b.Why), 500)
	}
	assert.IsIncreasing(t, names(d.Blockers))
	assert.Less(t, len(d.Picture.Why), 1000)
	assert.Contains(t, d.Picture.Why, "98 more blockers")

	errors := drain.Decide(seen(o.Pods[3]))
	assert.Less(t, len(errors.Picture.Why), 1000)
}

func names(blockers []drain.Blocker) []string {
	var result []string
	for _, b := range blockers {
		result = append(result, b.Kind+" "+b.Name)
	}
	return result
}

func TestTheMostInterestingRowsComeFirst(t *testing.T) {
	o := after(knowing(seen(
		pod("waiting", ruled("Drain", 1)),
		pod("evicting"),
		pod("a-young", terminating(at(20*time.Second)), answered(drain.Answer{Result: drain.Accepted}, 5*time.Second)),
		pod("old", terminating(at(10*time.Second))),
		pod("blocked", budgets("shop/web"), answered(drain.Answer{Result: drain.Refused}, time.Minute)),
	), tried(web(0, 1, 1, 2))), attached{"pv-1": here}, left("b-left", time.Second, "pv-1"), left("a-left", time.Second, "pv-2"))
	assert.Equal(t, []drain.Row{
		{
			Pod:       "shop/blocked",
			State:     "Blocked",
			Attempts:  1,
			BlockedBy: "shop/web",
			Budgets:   []string{"shop/web"},
			Next:      at(time.Minute),
		},
		{Pod: "shop/old", State: "Terminating", Since: at(-20 * time.Second)},
		{Pod: "shop/a-young", State: "Terminating", Since: at(-5 * time.Second), Attempts: 1},
		{Pod: "shop/evicting", State: "Evicting", Since: epoch},
		{Pod: "shop/b-left", State: "Detaching", Since: at(-time.Second), BlockedBy: "pv-1", Next: at(119 * time.Second)},
		{Pod: "shop/a-left", State: "Attaching", Since: epoch, BlockedBy: "pv-2", Next: at(90 * time.Second)},
		{Pod: "shop/waiting", State: "Waiting"},
	}, drain.Decide(o).Picture.Rows)
}
