package claims

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fleet has processes that plan one after another, until no plan changes anything.
type fleet struct {
	count   int
	allowed map[string][]int
	counts  map[string]int // shards that a process knows; missing: count
	holders map[int]string
}

func (f *fleet) viewOf(identity string, overdue bool) view {
	v := view{
		self: identity, peers: map[string]peer{}, holders: maps.Clone(f.holders), overdue: map[int]bool{},
	}
	for other, only := range f.allowed {
		v.peers[other] = peer{count: f.count, only: only}
		if count, is := f.counts[other]; is {
			v.peers[other] = peer{count: count, only: only}
		}
	}
	for shard := range f.count {
		v.overdue[shard] = overdue && f.holders[shard] == ""
	}
	return v
}

// settle returns the number of rounds until no process changes anything.
func (f *fleet) settle(t *testing.T) {
	t.Helper()
	for range 4*f.count + 8 {
		changes := 0
		for _, overdue := range []bool{false, true} {
			for _, identity := range slices.Sorted(maps.Keys(f.allowed)) {
				claim, release := f.viewOf(identity, overdue).plan()
				for _, shard := range claim {
					require.Empty(t, f.holders[shard], "a held shard is claimed")
					f.holders[shard] = identity
				}
				for _, shard := range release {
					require.Equal(t, identity, f.holders[shard], "the shard of another process is released")
					delete(f.holders, shard)
				}
				changes += len(claim) + len(release)
			}
		}
		if changes == 0 {
			return
		}
	}
	t.Fatalf("the claims do not settle: %v, %v", f.allowed, f.holders)
}

func (f *fleet) shares() map[string]int {
	shares := map[string]int{}
	for _, holder := range f.holders {
		shares[holder]++
	}
	return shares
}

func TestProcessesShareShardsEvenly(t *testing.T) {
	f := fleet{count: 4, allowed: map[string][]int{"a": nil}, holders: map[int]string{}}
	f.settle(t)
	assert.Equal(t, map[string]int{"a": 4}, f.shares())
	f.allowed["b"] = nil
	f.settle(t)
	assert.Equal(t, map[string]int{"a": 2, "b": 2}, f.shares())
	f.allowed["c"] = nil
	f.settle(t)
	assert.ElementsMatch(t, []int{1, 1, 2}, slices.Collect(maps.Values(f.shares())))
	delete(f.allowed, "b")
	maps.DeleteFunc(f.holders, func(_ int, holder string) bool { return holder == "b" })
	before := maps.Clone(f.holders)
	f.settle(t)
	assert.Equal(t, map[string]int{"a": 2, "c": 2}, f.shares())
	for shard, holder := range before {
		assert.Equal(t, holder, f.holders[shard], "the shards of the living do not move")
	}
}

func TestAProcessWithReservedShardsServesThemAlone(t *testing.T) {
	f := fleet{count: 4, allowed: map[string][]int{"a": nil, "b": nil}, holders: map[int]string{}}
	f.settle(t)
	f.allowed["canary"] = []int{3}
	f.settle(t)
	assert.Equal(t, "canary", f.holders[3])
	assert.Len(t, f.holders, 4)
	delete(f.allowed, "canary")
	delete(f.holders, 3)
	f.settle(t)
	assert.Contains(t, []string{"a", "b"}, f.holders[3], "without the canary another process serves its shard")
}

func TestAShardThatOnlyLimitedProcessesMayServeWaitsForThem(t *testing.T) {
	f := fleet{count: 2, allowed: map[string][]int{"canary": {1}}, holders: map[int]string{}}
	f.settle(t)
	assert.Equal(t, map[int]string{1: "canary"}, f.holders)
}

// Whatever joins and dies, each shard that a process may serve is served, and the shares of equal processes differ by
// one at most.
func TestSharesSettleAfterAnyChange(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		f := fleet{count: 1 + r.IntN(9), allowed: map[string][]int{}, holders: map[int]string{}}
		for step := range 8 {
			identity := fmt.Sprint("p", r.IntN(6))
			if _, lives := f.allowed[identity]; lives {
				delete(f.allowed, identity)
				maps.DeleteFunc(f.holders, func(_ int, holder string) bool { return holder == identity })
			} else {
				f.allowed[identity] = nil
				if r.IntN(5) == 0 {
					f.allowed[identity] = []int{r.IntN(f.count)}
				}
			}
			f.settle(t)
			free := slices.Collect(maps.Keys(f.allowed))
			free = slices.DeleteFunc(free, func(p string) bool { return f.allowed[p] != nil })
			if len(free) == 0 {
				continue
			}
			require.Len(t, f.holders, f.count, "step %d: %v", step, f.allowed)
			least, most := f.count, 0
			for _, p := range free {
				least, most = min(least, f.shares()[p]), max(most, f.shares()[p])
			}
			require.LessOrEqual(t, most-least, 1, "step %d: %v %v", step, f.allowed, f.holders)
		}
	}
}

// round lets all processes plan at the same time: each sees the claims before the round. Of several claims of a shard, the
// first counts, as the API server refuses the others. round returns the number of changes.
func (f *fleet) round(overdue bool) (changes int) {
	before := fleet{count: f.count, allowed: f.allowed, counts: f.counts, holders: maps.Clone(f.holders)}
	for _, identity := range slices.Sorted(maps.Keys(f.allowed)) {
		claim, release := before.viewOf(identity, overdue).plan()
		for _, shard := range release {
			delete(f.holders, shard)
		}
		for _, shard := range claim {
			if f.holders[shard] == "" {
				f.holders[shard] = identity
			}
		}
		changes += len(claim) + len(release)
	}
	return changes
}

// During an upgrade from a number of shards to a larger one, old and new processes live together. From any claims that old
// processes may have had, the claims come to rest, each shard is served, and the claims stay.
func TestClaimsRestWhileOldAndNewProcessesKnowDifferentShards(t *testing.T) {
	for old := range 5 {
		for fresh := 1; old+fresh <= 6; fresh++ {
			for before := 1; before <= 5; before++ {
				for after := before; after <= before+4; after++ {
					for _, together := range []bool{false, true} {
						checkUpgrade(t, old, fresh, before, after, together)
					}
				}
			}
		}
	}
}

// checkUpgrade starts old processes, then new processes, and ends the old processes one after another.
func checkUpgrade(t *testing.T, old, fresh, before, after int, together bool) {
	t.Helper()
	f := fleet{count: after, allowed: map[string][]int{}, counts: map[string]int{}, holders: map[int]string{}}
	rest := func(shards int) {
		t.Helper()
		if together {
			rounds := 0
			for f.round(false) > 0 {
				rounds++
				require.Less(t, rounds, 6, "%v %v", f.counts, f.holders)
			}
			require.Zero(t, f.round(true), "an overdue shard is free")
		}
		f.settle(t)
		require.Len(t, f.holders, shards, "%v %v", f.counts, f.holders)
		for shard, holder := range f.holders {
			require.Less(t, shard, f.counts[holder], "a process holds a shard that it does not know")
		}
	}
	for i := range old {
		f.allowed[fmt.Sprint("old", i)], f.counts[fmt.Sprint("old", i)] = nil, before
		rest(before)
	}
	for i := range fresh { // by name, new processes come before and after old ones
		identity := fmt.Sprint([]string{"new", "then"}[i%2], i)
		f.allowed[identity], f.counts[identity] = nil, after
		rest(after)
	}
	for i := range old {
		delete(f.allowed, fmt.Sprint("old", i))
		maps.DeleteFunc(f.holders, func(_ int, holder string) bool { return holder == fmt.Sprint("old", i) })
		rest(after)
	}
}

// Processes of many versions, with and without limits, also come to rest if all plan at the same time.
func TestClaimsRestForAnyMixOfProcesses(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		f := fleet{count: 1 + r.IntN(12), allowed: map[string][]int{}, counts: map[string]int{}, holders: map[int]string{}}
		for p := range 1 + r.IntN(6) {
			identity := fmt.Sprint("p", p)
			f.allowed[identity], f.counts[identity] = nil, 1+r.IntN(f.count)
			for shard := range f.counts[identity] {
				if p > 3 && r.IntN(4) == 0 {
					f.allowed[identity] = append(f.allowed[identity], shard)
				}
				f.holders[shard] = identity // claims from before the processes knew each other
			}
		}
		rounds := 0
		for f.round(false) > 0 {
			rounds++
			require.Less(t, rounds, 10, "%v %v %v", f.allowed, f.counts, f.holders)
		}
	}
}
