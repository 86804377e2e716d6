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

// simulatedNode is a simulated node that executes decisions.
type simulatedNode struct {
	randomSource
	drain.Facts
	requestCounts map[string]int // number of requests by UID of the pod
}

// newSimulatedNode returns a node with random pods and attached volumes. The API server eventually accepts the request
// for each pod.
func newSimulatedNode(seed int, means drain.RemovalMeans) *simulatedNode {
	n := &simulatedNode{randomSource: randomSource(seed), Facts: newFacts(), requestCounts: map[string]int{}}
	n.Means, n.Volumes, n.Settings.Parallel = means, volumesByName{}, n.randomBoolOneIn(2)
	for i := range 3 + n.randomIntBelow(25) {
		p := randomPod(&n.randomSource, fmt.Sprintf("p%02d", i))
		if p.Protected == "true" && means == drain.MeansEvict {
			p.Protected = "2h" // the simulation never removes the annotation
		}
		for _, name := range p.Volumes {
			n.Volumes[name] = volumeAttachedHere
		}
		n.Pods = append(n.Pods, p)
	}
	for _, key := range []string{"shop/db", "shop/mq", "shop/web"} {
		n.Budgets = append(
			n.Budgets,
			drain.DisruptionBudget{
				Key:                key,
				DisruptionsAllowed: n.randomIntBelow(3),
				CurrentHealthy:     5,
				DesiredHealthy:     3,
				ExpectedPods:       3 + n.randomIntBelow(4),
				IsUpToDate:         !n.randomBoolOneIn(4),
			},
		)
	}
	return n
}

// executeDecision sends the requests of a decision. Some requests fail; some budgets refuse an eviction that their
// status allows.
func (n *simulatedNode) executeDecision(d drain.Decision) {
	n.DepartedPods = d.Departed
	for _, a := range d.Act {
		i := slices.IndexFunc(n.Pods, func(p drain.Pod) bool { return p.UID == a.UID })
		p := &n.Pods[i]
		answer := drain.RequestAnswer{Means: a.Means, Result: drain.ResultAccepted}
		switch {
		case n.randomBoolOneIn(5):
			answer.Result = pickItem(&n.randomSource, drain.ResultThrottled, drain.ResultNamespaceDeleting, drain.ResultFailed)
		case len(a.Probe) > 1 && n.randomBoolOneIn(2):
			answer.Result = drain.ResultSeveralBudgets
		case len(a.Probe) == 1 && n.randomBoolOneIn(2), len(p.Budgets) == 1 && n.randomBoolOneIn(5):
			answer.Result = drain.ResultRefused
		}
		n.requestCounts[a.UID]++
		p.Tries = drain.RequestRecordAfterAnswer(p.Tries, answer, n.Now)
		for j := range n.Budgets {
			if b := &n.Budgets[j]; slices.Contains(p.Budgets, b.Key) {
				b.NextProbe = drain.NextProbeTime(n.Now, b.IsMisconfigured() || len(a.Probe) > 1)
				b.SentEvictions++
			}
		}
	}
}

// runRandomEvent executes one random event, and reports whether an event was possible.
func (n *simulatedNode) runRandomEvent() bool {
	n.Now = n.Now.Add(time.Duration(1+n.randomIntBelow(5)) * time.Second)
	var events []func()
	for i, p := range n.Pods {
		switch {
		case isSkippedPod(p):
		case p.Tries.Accepted && p.DeletedAt.IsZero():
			events = append(events, func() { n.Pods[i].DeletedAt = n.Now.Add(p.Grace) })
		case !p.DeletedAt.IsZero():
			events = append(events, func() { n.removePod(i) })
		case waitsForCompletion(p):
			events = append(events, func() { n.Pods[i].Finished = true })
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Volumes)) {
		inUse := slices.ContainsFunc(n.Pods, func(p drain.Pod) bool { return slices.Contains(p.Volumes, name) })
		if n.Volumes[name].AttachedHere && !inUse && !isStuckVolume(name) {
			events = append(
				events,
				func() { n.Volumes[name] = pickItem(&n.randomSource, volumeAttachedElsewhere, drain.VolumeState{}) },
			)
		}
	}
	if len(events) == 0 {
		return false
	}
	pickItem(&n.randomSource, events...)()
	return true
}

// isStuckVolume reports whether a volume is never detached.
func isStuckVolume(volume string) bool { return volume == "pv-1" }

// removePod removes a pod. The pod's replacement is ready on another node at once.
func (n *simulatedNode) removePod(i int) {
	n.DepartedPods = append(n.DepartedPods, drain.NewDepartedPod(n.Pods[i], n.Now))
	for j := range n.Budgets {
		if b := &n.Budgets[j]; slices.Contains(n.Pods[i].Budgets, b.Key) && b.SentEvictions > 0 {
			b.SentEvictions = 0
			for k := range n.Pods {
				if slices.Contains(n.Pods[k].Budgets, b.Key) {
					n.Pods[k].Tries = drain.RequestRecordWithoutPause(n.Pods[k].Tries)
				}
			}
		}
	}
	n.Pods, n.GonePodCount = slices.Delete(n.Pods, i, i+1), n.GonePodCount+1
}

// A drain that calls Decide at each event and at the time Look ends with an empty node.
func TestEveryDrainEndsWithAnEmptyNode(t *testing.T) {
	for _, means := range []drain.RemovalMeans{drain.MeansEvict, drain.MeansDelete, drain.MeansKill} {
		for seed := range decidetest.RandomRunCount(150) {
			n := newSimulatedNode(seed, means)
			for step := 0; ; step++ {
				require.Less(t, step, 2000, "%s, seed %d: does not end", means, seed)
				d := drain.Decide(n.Facts)
				if d.Done {
					break
				}
				n.executeDecision(d)
				again := drain.Decide(n.Facts)
				for _, a := range again.Act {
					require.Falsef(
						t,
						slices.ContainsFunc(d.Act, func(b drain.Action) bool { return a.UID == b.UID }),
						"%s, seed %d: hammers",
						means,
						seed,
					)
				}
				if n.runRandomEvent() {
					continue
				}
				n.executeDecision(again)
				if len(again.Act) == 0 {
					require.False(
						t,
						again.Look.IsZero(),
						"%s, seed %d: nobody would ever look again: %s",
						means,
						seed,
						again.Picture.Why,
					)
					n.Now = laterTime(n.Now, again.Look)
				}
			}
			for _, p := range n.Pods {
				require.True(t, isSkippedPod(p), "%s, seed %d: %+v", means, seed, p)
				require.True(
					t,
					n.requestCounts[p.UID] == 0 || waitsForCompletion(p),
					"%s, seed %d: only what completed was touched before",
					means,
					seed,
				)
			}
			require.Less(t, n.Now.Sub(epoch), 12*time.Hour, "%s, seed %d", means, seed)
		}
	}
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
