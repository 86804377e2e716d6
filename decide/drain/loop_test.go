package drain_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/drain"
)

// node is a simulated node on which decisions are carried out.
type node struct {
	dice
	drain.Observed
	sent map[string]int // requests by UID
}

// newNode returns a node with pods of all kinds and attached volumes. Each request is accepted in the end.
func newNode(seed int, means drain.Means) *node {
	n := &node{dice: dice(seed), Observed: seen(), sent: map[string]int{}}
	n.Means, n.Volumes, n.Settings.Parallel = means, attached{}, n.oneIn(2)
	for i := range 3 + n.below(25) {
		p := anyPod(&n.dice, fmt.Sprintf("p%02d", i))
		if p.Protected == "true" && means == drain.Evict {
			p.Protected = "2h" // nobody takes the annotation away here
		}
		for _, name := range p.Volumes {
			n.Volumes[name] = here
		}
		n.Pods = append(n.Pods, p)
	}
	for _, key := range []string{"shop/db", "shop/mq", "shop/web"} {
		n.Budgets = append(
			n.Budgets,
			drain.Budget{Key: key, Allowed: n.below(3), Healthy: 5, Desired: 3, Expected: 3 + n.below(4), Current: !n.oneIn(4)},
		)
	}
	return n
}

// carryOut sends what was decided. Some requests fail, and some budgets do not allow what their status says.
func (n *node) carryOut(d drain.Decision) {
	n.Departed = d.Departed
	for _, a := range d.Act {
		i := slices.IndexFunc(n.Pods, func(p drain.Pod) bool { return p.UID == a.UID })
		p := &n.Pods[i]
		answer := drain.Answer{Means: a.Means, Result: drain.Accepted}
		switch {
		case n.oneIn(5):
			answer.Result = pick(&n.dice, drain.Throttled, drain.Going, drain.Failed)
		case len(a.Probe) > 1 && n.oneIn(2):
			answer.Result = drain.Several
		case len(a.Probe) == 1 && n.oneIn(2), len(p.Budgets) == 1 && n.oneIn(5):
			answer.Result = drain.Refused
		}
		n.sent[a.UID]++
		p.Tries = drain.After(p.Tries, answer, n.Now)
		for j := range n.Budgets {
			if b := &n.Budgets[j]; slices.Contains(p.Budgets, b.Key) {
				b.Next = drain.AfterProbe(n.Now, b.Misconfigured() || len(a.Probe) > 1)
				b.Used++
			}
		}
	}
}

// live lets one event happen, and reports whether one could.
func (n *node) live() bool {
	n.Now = n.Now.Add(time.Duration(1+n.below(5)) * time.Second)
	var events []func()
	for i, p := range n.Pods {
		switch {
		case stays(p):
		case p.Tries.Accepted && p.DeletedAt.IsZero():
			events = append(events, func() { n.Pods[i].DeletedAt = n.Now.Add(p.Grace) })
		case !p.DeletedAt.IsZero():
			events = append(events, func() { n.leave(i) })
		case waits(p):
			events = append(events, func() { n.Pods[i].Finished = true })
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Volumes)) {
		inUse := slices.ContainsFunc(n.Pods, func(p drain.Pod) bool { return slices.Contains(p.Volumes, name) })
		if n.Volumes[name].Here && !inUse && !stuck(name) {
			events = append(events, func() { n.Volumes[name] = pick(&n.dice, elsewhere, drain.Volume{}) })
		}
	}
	if len(events) == 0 {
		return false
	}
	pick(&n.dice, events...)()
	return true
}

// stuck volumes are never detached.
func stuck(volume string) bool { return volume == "pv-1" }

// leave takes a pod away. Its substitute gets ready elsewhere at once.
func (n *node) leave(i int) {
	n.Departed = append(n.Departed, drain.Leave(n.Pods[i], n.Now))
	for j := range n.Budgets {
		if b := &n.Budgets[j]; slices.Contains(n.Pods[i].Budgets, b.Key) && b.Used > 0 {
			b.Used = 0
			for k := range n.Pods {
				if slices.Contains(n.Pods[k].Budgets, b.Key) {
					n.Pods[k].Tries = drain.Woken(n.Pods[k].Tries)
				}
			}
		}
	}
	n.Pods, n.Gone = slices.Delete(n.Pods, i, i+1), n.Gone+1
}

// A drain that decides again at each event and at the time Look ends with an empty node.
func TestADrainEnds(t *testing.T) {
	for _, means := range []drain.Means{drain.Evict, drain.Delete, drain.Kill} {
		for seed := range decidetest.Seeds(150) {
			n := newNode(seed, means)
			for step := 0; ; step++ {
				require.Less(t, step, 2000, "%s, seed %d: does not end", means, seed)
				d := drain.Decide(n.Observed)
				if d.Done {
					break
				}
				n.carryOut(d)
				again := drain.Decide(n.Observed)
				for _, a := range again.Act {
					require.Falsef(
						t,
						slices.ContainsFunc(d.Act, func(b drain.Action) bool { return a.UID == b.UID }),
						"%s, seed %d: hammers",
						means,
						seed,
					)
				}
				if n.live() {
					continue
				}
				n.carryOut(again)
				if len(again.Act) == 0 {
					require.False(
						t,
						again.Look.IsZero(),
						"%s, seed %d: nobody would ever look again: %s",
						means,
						seed,
						again.Picture.Why,
					)
					n.Now = later(n.Now, again.Look)
				}
			}
			for _, p := range n.Pods {
				require.True(t, stays(p), "%s, seed %d: %+v", means, seed, p)
				require.True(t, n.sent[p.UID] == 0 || waits(p), "%s, seed %d: only what completed was touched before", means, seed)
			}
			require.Less(t, n.Now.Sub(epoch), 12*time.Hour, "%s, seed %d", means, seed)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
