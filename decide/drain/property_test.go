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

// dice is the SplitMix64 generator: the same numbers for the same seed, in every version of Go.
type dice uint64

func (d *dice) intBelow(n int) int {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}

func (d *dice) oneIn(n int) bool { return d.intBelow(n) == 0 }

// randomTime returns a time up to two minutes before or after epoch; in half of the cases the zero time.
func (d *dice) randomTime() time.Time {
	if d.oneIn(2) {
		return time.Time{}
	}
	return timeAt(time.Duration(d.intBelow(240)-120) * time.Second)
}

// randomSubset returns a random sorted subset of the names.
func (d *dice) randomSubset(names ...string) []string {
	return slices.DeleteFunc(names, func(string) bool { return !d.oneIn(3) })
}

func pickItem[T any](d *dice, items ...T) T { return items[d.intBelow(len(items))] }

func shuffle[T any](d *dice, items []T) []T {
	items = slices.Clone(items)
	for i := range items {
		j := i + d.intBelow(len(items)-i)
		items[i], items[j] = items[j], items[i]
	}
	return items
}

// randomPod returns a random pod for which no request was sent.
func randomPod(d *dice, name string) drain.Pod {
	p := newPod(name, withPriority(int32(d.intBelow(3))))
	p.Finished, p.Pending, p.Ready = d.oneIn(10), d.oneIn(10), !d.oneIn(4)
	p.Mirror, p.DaemonSet = d.oneIn(15), d.oneIn(10)
	p.Label = pickItem(d, "", "", "", "", "skip", "WAIT-completed", "other")
	p.Protected = pickItem(d, "", "", "", "true", "61m", "10m", "no")
	if d.oneIn(2) {
		p.Rule = &drain.Rule{
			Name:     "rule",
			Behavior: pickItem(d, "Drain", "Drain", "Skip", "WaitCompleted"),
			Order:    int32(d.intBelow(3) - 1),
		}
	}
	if d.oneIn(3) {
		p.Budgets = d.randomSubset("shop/db", "shop/mq", "shop/web")
	}
	if d.oneIn(2) {
		p.Volumes = d.randomSubset("pv-1", "pv-2", "pv-3", "pv-4", "pv-"+name)
		p.StatefulSet = pickItem(d, "", "shop/db")
	}
	return p
}

// addRandomTries adds random answers to earlier requests, with the means Evict or the present means.
func addRandomTries(d *dice, p *drain.Pod, means drain.Means) {
	for range d.intBelow(3) {
		a := drain.Answer{
			Means: pickItem(d, drain.Evict, means),
			Result: pickItem(
				d,
				drain.Accepted,
				drain.Gone,
				drain.Refused,
				drain.Several,
				drain.Throttled,
				drain.Going,
				drain.Failed,
			),
		}
		p.Tries = drain.AfterAttempt(p.Tries, a, timeAt(-time.Duration(d.intBelow(60))*time.Second))
	}
	if d.oneIn(3) {
		p.Tries = drain.EndPause(p.Tries)
	}
	if d.oneIn(8) {
		p.DeletedAt = d.randomTime()
	}
}

// randomObserved returns the random facts of a node in a drain.
func randomObserved(d *dice) drain.Observed {
	o := observedPods()
	o.Means = pickItem(d, drain.Evict, drain.Evict, drain.Evict, drain.DeleteInOrder, drain.Delete, drain.Kill)
	o.Settings.Parallel, o.Gone, o.Volumes = d.oneIn(2), d.intBelow(5), volumesByName{}
	for i := range d.intBelow(30) {
		p := randomPod(d, fmt.Sprintf("p%02d", i))
		addRandomTries(d, &p, o.Means)
		o.Pods = append(o.Pods, p)
	}
	for _, key := range []string{"shop/db", "shop/mq", "shop/web"} {
		if !d.oneIn(6) {
			o.Budgets = append(o.Budgets, drain.Budget{
				Key:       key,
				Allowed:   d.intBelow(4),
				Healthy:   d.intBelow(5),
				Desired:   d.intBelow(4),
				Expected:  d.intBelow(5),
				Disrupted: d.intBelow(2),
				Current:   !d.oneIn(5),
				Unhealthy: d.oneIn(4),
				Used:      d.intBelow(2),
				Next:      d.randomTime(),
			})
		}
	}
	for _, name := range d.randomSubset("pv-1", "pv-2", "pv-3", "pv-left") {
		o.Volumes[name] = drain.Volume{Here: d.oneIn(2), Elsewhere: d.oneIn(2)}
	}
	for i := range d.intBelow(3) {
		p := randomPod(d, fmt.Sprintf("left%d", i))
		addRandomTries(d, &p, o.Means)
		o.Departed = append(
			o.Departed,
			drain.Departed{Pod: p, At: timeAt(-time.Duration(d.intBelow(150)) * time.Second), Free: d.randomTime()},
		)
	}
	return o
}

// isSkipped reports whether a pod is skipped. Unlike Treat, isSkipped does not use the package's functions.
func isSkipped(p drain.Pod) bool {
	label := strings.ToLower(p.Label)
	byRule := label != "wait-completed" && p.Rule != nil && p.Rule.Behavior == "Skip"
	return p.Mirror || p.DaemonSet || label == "skip" || byRule || waitsForCompletion(p) && p.Finished
}

func waitsForCompletion(p drain.Pod) bool {
	label := strings.ToLower(p.Label)
	return label == "wait-completed" || label != "skip" && p.Rule != nil && p.Rule.Behavior == "WaitCompleted"
}

func orderOf(p drain.Pod) int32 {
	if p.Rule == nil || waitsForCompletion(p) {
		return 0
	}
	return p.Rule.Order
}

func TestDecideKeepsItsPromises(t *testing.T) {
	acted, probed, done, seeds := 0, 0, 0, decidetest.Seeds(3000)
	for seed := range seeds {
		random := dice(seed)
		o := randomObserved(&random)
		d := drain.Decide(o)
		again := dice(seed)
		require.Equal(t, randomObserved(&again), o, "seed %d: what was seen is left as it is", seed)

		mixed := o
		mixed.Pods = shuffle(&random, o.Pods)
		mixed.Budgets = shuffle(&random, o.Budgets)
		mixed.Departed = shuffle(&random, o.Departed)
		require.Equal(t, d, drain.Decide(mixed), "seed %d: the order matters", seed)
		mixed.Departed = d.Departed
		require.Equal(t, d, drain.Decide(mixed), "seed %d: what was remembered says something else", seed)

		checkActions(t, seed, o, d)
		checkPicture(t, seed, o, d)
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

func checkActions(t *testing.T, seed int, o drain.Observed, d drain.Decision) {
	t.Helper()
	pods, counted := map[string]drain.Pod{}, map[string]int{}
	withVolumes, lowest := 0, int32(100)
	for _, p := range o.Pods {
		pods[p.UID] = p
		if !isSkipped(p) && !p.Finished {
			lowest = min(lowest, orderOf(p))
		}
	}
	for _, a := range d.Act {
		p, exists := pods[a.UID]
		require.True(t, exists, "seed %d acts twice, or on nobody", seed)
		delete(pods, a.UID)
		require.False(t, isSkipped(p), "seed %d: %+v", seed, p)
		require.Equal(t, o.Means, a.Means)
		if p.Tries.Means == o.Means {
			require.False(t, p.Tries.Next.After(o.Now), "seed %d: too early %+v", seed, p)
		}
		if o.Means == drain.Kill {
			continue
		}
		require.True(
			t,
			p.DeletedAt.IsZero() && !p.Tries.Accepted && p.Tries.Result != drain.Gone,
			"seed %d: it goes already %+v",
			seed,
			p,
		)
		if o.Means == drain.Delete {
			continue
		}
		require.False(t, waitsForCompletion(p), "seed %d: %+v", seed, p)
		if p.Finished {
			continue
		}
		require.Equal(t, lowest, orderOf(p), "seed %d: %+v", seed, p)
		require.NotContains(t, []string{"true", "61m"}, p.Protected, "seed %d", seed)
		if len(p.Volumes) > 0 {
			withVolumes++
		}
		if o.Means == drain.DeleteInOrder {
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
		allowed := max(b.Allowed-b.Used, 0)
		if !b.Current {
			allowed = 0
		}
		require.LessOrEqual(t, counted[b.Key], allowed, "seed %d: %+v", seed, b)
		require.LessOrEqual(t, counted["probe of "+b.Key], 1, "seed %d: %+v", seed, b)
		require.False(t, counted["probe of "+b.Key] > 0 && b.Next.After(o.Now), "seed %d: %+v", seed, b)
	}
	if o.Means.Ordered() && !o.Settings.Parallel {
		busy := len(d.Departed) > 0 || slices.ContainsFunc(o.Pods, func(p drain.Pod) bool {
			return !isSkipped(p) && len(p.Volumes) > 0 &&
				(!p.DeletedAt.IsZero() || p.Tries.Accepted || p.Tries.Result == drain.Gone)
		})
		require.LessOrEqual(t, withVolumes, map[bool]int{false: 1}[busy], "seed %d", seed)
	}
}

func checkPicture(t *testing.T, seed int, o drain.Observed, d drain.Decision) {
	t.Helper()
	c := d.Picture.Counts
	require.Equal(t, len(o.Pods), c.Terminating+c.Blocked+c.Waiting+c.Skipped, "seed %d", seed)
	require.Len(t, d.Picture.Rows, min(drain.MaxRows, len(o.Pods)-c.Skipped+len(d.Departed)), "seed %d", seed)
	require.Equal(t, d.Done, c.Skipped == len(o.Pods) && len(d.Departed) == 0, "seed %d", seed)
	require.Equal(t, d.Done, d.Picture.Why == "empty", "seed %d", seed)
	require.True(t, d.Look.IsZero() || d.Look.After(o.Now), "seed %d", seed)
	require.False(t, d.Done && (len(d.Act) > 0 || len(d.Blockers) > 0 || !d.Look.IsZero()), "seed %d", seed)
	blocked := 0
	for _, b := range d.Blockers {
		require.NotEmpty(t, b.Why, "seed %d", seed)
		require.Equal(t, b.Pods == 0, c.Skipped == len(o.Pods), "seed %d: only the last volumes block no pod", seed)
		if b.Kind != drain.BlockedByVolume && b.Kind != drain.BlockedByEnding {
			blocked += b.Pods
		}
	}
	require.Equal(t, c.Blocked, blocked, "seed %d: every blocked pod has a blocker", seed)
	require.True(t, slices.IsSorted(blockerNames(d.Blockers)), "seed %d", seed)
}
