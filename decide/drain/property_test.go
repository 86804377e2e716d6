package drain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/drain"
)

// randomSource is the SplitMix64 generator, which returns the same numbers for the same seed in every version of Go.
type randomSource uint64

func (d *randomSource) randomIntBelow(n int) int {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}

func (d *randomSource) randomBoolOneIn(n int) bool { return d.randomIntBelow(n) == 0 }

// randomTime returns a time up to two minutes before or after epoch; in half of the cases the zero time.
func (d *randomSource) randomTime() time.Time {
	if d.randomBoolOneIn(2) {
		return time.Time{}
	}
	return epochPlus(time.Duration(d.randomIntBelow(240)-120) * time.Second)
}

// randomSubset returns a random sorted subset of the names.
func (d *randomSource) randomSubset(names ...string) []string {
	return slices.DeleteFunc(names, func(string) bool { return !d.randomBoolOneIn(3) })
}

func pickItem[T any](d *randomSource, items ...T) T { return items[d.randomIntBelow(len(items))] }

func shuffleItems[T any](d *randomSource, items []T) []T {
	items = slices.Clone(items)
	for i := range items {
		j := i + d.randomIntBelow(len(items)-i)
		items[i], items[j] = items[j], items[i]
	}
	return items
}

// randomPod returns a random pod for which no request was sent.
func randomPod(d *randomSource, name string) drain.Pod {
	p := newPod(name, withPriority(int32(d.randomIntBelow(3))))
	p.Finished, p.Pending, p.Ready = d.randomBoolOneIn(10), d.randomBoolOneIn(10), !d.randomBoolOneIn(4)
	p.Mirror, p.DaemonSet = d.randomBoolOneIn(15), d.randomBoolOneIn(10)
	p.Label = pickItem(d, "", "", "", "", "skip", "WAIT-completed", "other")
	p.Protected = pickItem(d, "", "", "", "true", "61m", "10m", "no")
	if d.randomBoolOneIn(2) {
		p.Rule = &drain.Rule{
			Name:     "rule",
			Behavior: pickItem(d, "Drain", "Drain", "Skip", "WaitCompleted"),
			Order:    int32(d.randomIntBelow(3) - 1),
		}
	}
	if d.randomBoolOneIn(3) {
		p.Budgets = d.randomSubset("shop/db", "shop/mq", "shop/web")
	}
	if d.randomBoolOneIn(2) {
		p.Volumes = d.randomSubset("pv-1", "pv-2", "pv-3", "pv-4", "pv-"+name)
		p.StatefulSet = pickItem(d, "", "shop/db")
	}
	return p
}

// addRandomRequests adds random answers to earlier requests, with the means Evict or the present means.
func addRandomRequests(d *randomSource, p *drain.Pod, means drain.RemovalMeans) {
	for range d.randomIntBelow(3) {
		a := drain.RequestAnswer{
			Means: pickItem(d, drain.MeansEvict, means),
			Result: pickItem(
				d,
				drain.ResultAccepted,
				drain.ResultPodGone,
				drain.ResultRefused,
				drain.ResultSeveralBudgets,
				drain.ResultThrottled,
				drain.ResultNamespaceDeleting,
				drain.ResultFailed,
			),
		}
		p.Tries = drain.RequestRecordAfterAnswer(p.Tries, a, epochPlus(-time.Duration(d.randomIntBelow(60))*time.Second))
	}
	if d.randomBoolOneIn(3) {
		p.Tries = drain.RequestRecordWithoutPause(p.Tries)
	}
	if d.randomBoolOneIn(8) {
		p.DeletedAt = d.randomTime()
	}
}

// randomFacts returns the random facts of a node in a drain.
func randomFacts(d *randomSource) drain.Facts {
	o := newFacts()
	o.Means = pickItem(
		d,
		drain.MeansEvict,
		drain.MeansEvict,
		drain.MeansEvict,
		drain.MeansDeleteInOrder,
		drain.MeansDelete,
		drain.MeansKill,
	)
	o.Settings.Parallel, o.GonePodCount, o.Volumes = d.randomBoolOneIn(2), d.randomIntBelow(5), volumesByName{}
	for i := range d.randomIntBelow(30) {
		p := randomPod(d, fmt.Sprintf("p%02d", i))
		addRandomRequests(d, &p, o.Means)
		o.Pods = append(o.Pods, p)
	}
	for _, key := range []string{"shop/db", "shop/mq", "shop/web"} {
		if !d.randomBoolOneIn(6) {
			o.Budgets = append(o.Budgets, drain.DisruptionBudget{
				Key:                   key,
				DisruptionsAllowed:    d.randomIntBelow(4),
				CurrentHealthy:        d.randomIntBelow(5),
				DesiredHealthy:        d.randomIntBelow(4),
				ExpectedPods:          d.randomIntBelow(5),
				DisruptedCount:        d.randomIntBelow(2),
				IsUpToDate:            !d.randomBoolOneIn(5),
				AlwaysAllowsUnhealthy: d.randomBoolOneIn(4),
				SentEvictions:         d.randomIntBelow(2),
				NextProbe:             d.randomTime(),
			})
		}
	}
	for _, name := range d.randomSubset("pv-1", "pv-2", "pv-3", "pv-left") {
		o.Volumes[name] = drain.VolumeState{AttachedHere: d.randomBoolOneIn(2), AttachedElsewhere: d.randomBoolOneIn(2)}
	}
	for i := range d.randomIntBelow(3) {
		p := randomPod(d, fmt.Sprintf("left%d", i))
		addRandomRequests(d, &p, o.Means)
		o.DepartedPods = append(
			o.DepartedPods,
			drain.DepartedPod{Pod: p, At: epochPlus(-time.Duration(d.randomIntBelow(150)) * time.Second), Free: d.randomTime()},
		)
	}
	return o
}

// isSkippedPod reports whether a pod is skipped. Unlike TreatmentOfPod, isSkippedPod does not use the package's
// functions.
func isSkippedPod(p drain.Pod) bool {
	label := strings.ToLower(p.Label)
	byRule := label != "wait-completed" && p.Rule != nil && p.Rule.Behavior == "Skip"
	return p.Mirror || p.DaemonSet || label == "skip" || byRule || waitsForCompletion(p) && p.Finished
}

func waitsForCompletion(p drain.Pod) bool {
	label := strings.ToLower(p.Label)
	return label == "wait-completed" || label != "skip" && p.Rule != nil && p.Rule.Behavior == "WaitCompleted"
}

func drainOrderOfPod(p drain.Pod) int32 {
	if p.Rule == nil || waitsForCompletion(p) {
		return 0
	}
	return p.Rule.Order
}

func TestInvariantsOfDecide(t *testing.T) {
	acted, probed, done, seeds := 0, 0, 0, decidetest.RandomRunCount(3000)
	for seed := range seeds {
		random := randomSource(seed)
		o := randomFacts(&random)
		d := drain.Decide(o)
		again := randomSource(seed)
		require.Equal(t, randomFacts(&again), o, "seed %d: what was seen is left as it is", seed)

		mixed := o
		mixed.Pods = shuffleItems(&random, o.Pods)
		mixed.Budgets = shuffleItems(&random, o.Budgets)
		mixed.DepartedPods = shuffleItems(&random, o.DepartedPods)
		require.Equal(t, d, drain.Decide(mixed), "seed %d: the order matters", seed)
		mixed.DepartedPods = d.Departed
		require.Equal(t, d, drain.Decide(mixed), "seed %d: what was remembered says something else", seed)

		checkActions(t, seed, o, d)
		checkOverview(t, seed, o, d)
		acted += len(d.Act)
		for _, a := range d.Act {
			probed += len(a.Probe)
		}
		if d.Done {
			done++
		}
	}
	assert.Greater(t, acted, seeds)
	assert.Greater(t, probed, seeds/30)
	assert.Greater(t, done, seeds/100)
}

func checkActions(t *testing.T, seed int, o drain.Facts, d drain.Decision) {
	t.Helper()
	pods, counted := map[string]drain.Pod{}, map[string]int{}
	withVolumes, lowest := 0, int32(100)
	for _, p := range o.Pods {
		pods[p.UID] = p
		if !isSkippedPod(p) && !p.Finished {
			lowest = min(lowest, drainOrderOfPod(p))
		}
	}
	for _, a := range d.Act {
		p, exists := pods[a.UID]
		require.True(t, exists, "seed %d acts twice, or on nobody", seed)
		delete(pods, a.UID)
		require.False(t, isSkippedPod(p), "seed %d: %+v", seed, p)
		require.Equal(t, o.Means, a.Means)
		if p.Tries.Means == o.Means {
			require.False(t, p.Tries.Next.After(o.Now), "seed %d: too early %+v", seed, p)
		}
		if o.Means == drain.MeansKill {
			continue
		}
		require.True(
			t,
			p.DeletedAt.IsZero() && !p.Tries.Accepted && p.Tries.Result != drain.ResultPodGone,
			"seed %d: it goes already %+v",
			seed,
			p,
		)
		if o.Means == drain.MeansDelete {
			continue
		}
		require.False(t, waitsForCompletion(p), "seed %d: %+v", seed, p)
		if p.Finished {
			continue
		}
		require.Equal(t, lowest, drainOrderOfPod(p), "seed %d: %+v", seed, p)
		require.NotContains(t, []string{"true", "61m"}, p.Protected, "seed %d", seed)
		if len(p.Volumes) > 0 {
			withVolumes++
		}
		if o.Means == drain.MeansDeleteInOrder {
			require.Empty(t, a.Probe, "seed %d: no budget is asked", seed)
			continue
		}
		for _, key := range a.Probe {
			counted["probe of "+key]++
		}
		if len(a.Probe) == 0 && !p.Pending && p.Ready {
			require.LessOrEqual(t, len(p.Budgets), 1, "seed %d: %+v", seed, p)
			counted[strings.Join(p.Budgets, "")]++
		}
	}
	for _, b := range o.Budgets {
		allowed := max(b.DisruptionsAllowed-b.SentEvictions, 0)
		if !b.IsUpToDate {
			allowed = 0
		}
		require.LessOrEqual(t, counted[b.Key], allowed, "seed %d: %+v", seed, b)
		require.LessOrEqual(t, counted["probe of "+b.Key], 1, "seed %d: %+v", seed, b)
		require.False(t, counted["probe of "+b.Key] > 0 && b.NextProbe.After(o.Now), "seed %d: %+v", seed, b)
	}
	if o.Means.KeepsPodOrder() && !o.Settings.Parallel {
		busy := len(d.Departed) > 0 || slices.ContainsFunc(o.Pods, func(p drain.Pod) bool {
			return !isSkippedPod(p) && len(p.Volumes) > 0 &&
				(!p.DeletedAt.IsZero() || p.Tries.Accepted || p.Tries.Result == drain.ResultPodGone)
		})
		require.LessOrEqual(t, withVolumes, map[bool]int{false: 1}[busy], "seed %d", seed)
	}
}

func checkOverview(t *testing.T, seed int, o drain.Facts, d drain.Decision) {
	t.Helper()
	c := d.Picture.Counts
	require.Equal(t, len(o.Pods), c.Terminating+c.Blocked+c.Waiting+c.Skipped, "seed %d", seed)
	require.Len(t, d.Picture.Rows, min(drain.MaxOverviewRows, len(o.Pods)-c.Skipped+len(d.Departed)), "seed %d", seed)
	require.Equal(t, d.Done, c.Skipped == len(o.Pods) && len(d.Departed) == 0, "seed %d", seed)
	require.Equal(t, d.Done, d.Picture.Why == "empty", "seed %d", seed)
	require.True(t, d.Look.IsZero() || d.Look.After(o.Now), "seed %d", seed)
	require.False(t, d.Done && (len(d.Act) > 0 || len(d.Blockers) > 0 || !d.Look.IsZero()), "seed %d", seed)
	blocked := 0
	for _, b := range d.Blockers {
		require.NotEmpty(t, b.Why, "seed %d", seed)
		require.Equal(t, b.Pods == 0, c.Skipped == len(o.Pods), "seed %d: only the last volumes block no pod", seed)
		if b.Kind != drain.BlockedByVolume && b.Kind != drain.BlockedByTermination {
			blocked += b.Pods
		}
	}
	require.Equal(t, c.Blocked, blocked, "seed %d: every blocked pod has a blocker", seed)
	require.True(t, slices.IsSorted(blockerNames(d.Blockers)), "seed %d", seed)
}
