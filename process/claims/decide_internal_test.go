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

// processGroup has processes that plan one after another, until no plan changes anything.
type processGroup struct {
	shardCount       int
	allowedShards    map[string][]int
	knownShardCounts map[string]int // shards that a process knows; missing: count
	holders          map[int]string
}

func (f *processGroup) newView(identity string, overdue bool) view {
	v := view{
		ownIdentity: identity, peers: map[string]peer{}, holders: maps.Clone(f.holders), overdueShards: map[int]bool{},
	}
	for other, only := range f.allowedShards {
		v.peers[other] = peer{shardCount: f.shardCount, allowedShards: only}
		if count, is := f.knownShardCounts[other]; is {
			v.peers[other] = peer{shardCount: count, allowedShards: only}
		}
	}
	for shard := range f.shardCount {
		v.overdueShards[shard] = overdue && f.holders[shard] == ""
	}
	return v
}

// planUntilStable returns the number of rounds until no process changes anything.
func (f *processGroup) planUntilStable(t *testing.T) {
	t.Helper()
	for range 4*f.shardCount + 8 {
		changes := 0
		for _, overdue := range []bool{false, true} {
			for _, identity := range slices.Sorted(maps.Keys(f.allowedShards)) {
				claim, release := f.newView(identity, overdue).plan()
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
	t.Fatalf("the claims do not settle: %v, %v", f.allowedShards, f.holders)
}

func (f *processGroup) heldShardCounts() map[string]int {
	shares := map[string]int{}
	for _, holder := range f.holders {
		shares[holder]++
	}
	return shares
}

func TestProcessesShareShardsEvenly(t *testing.T) {
	f := processGroup{shardCount: 4, allowedShards: map[string][]int{"a": nil}, holders: map[int]string{}}
	f.planUntilStable(t)
	assert.Equal(t, map[string]int{"a": 4}, f.heldShardCounts())
	f.allowedShards["b"] = nil
	f.planUntilStable(t)
	assert.Equal(t, map[string]int{"a": 2, "b": 2}, f.heldShardCounts())
	f.allowedShards["c"] = nil
	f.planUntilStable(t)
	assert.ElementsMatch(t, []int{1, 1, 2}, slices.Collect(maps.Values(f.heldShardCounts())))
	delete(f.allowedShards, "b")
	maps.DeleteFunc(f.holders, func(_ int, holder string) bool { return holder == "b" })
	before := maps.Clone(f.holders)
	f.planUntilStable(t)
	assert.Equal(t, map[string]int{"a": 2, "c": 2}, f.heldShardCounts())
	for shard, holder := range before {
		assert.Equal(t, holder, f.holders[shard], "the shards of the living do not move")
	}
}

func TestAProcessWithReservedShardsServesThemAlone(t *testing.T) {
	f := processGroup{shardCount: 4, allowedShards: map[string][]int{"a": nil, "b": nil}, holders: map[int]string{}}
	f.planUntilStable(t)
	f.allowedShards["canary"] = []int{3}
	f.planUntilStable(t)
	assert.Equal(t, "canary", f.holders[3])
	assert.Len(t, f.holders, 4)
	delete(f.allowedShards, "canary")
	delete(f.holders, 3)
	f.planUntilStable(t)
	assert.Contains(t, []string{"a", "b"}, f.holders[3], "without the canary another process serves its shard")
}

func TestAShardThatOnlyLimitedProcessesMayServeWaitsForThem(t *testing.T) {
	f := processGroup{shardCount: 2, allowedShards: map[string][]int{"canary": {1}}, holders: map[int]string{}}
	f.planUntilStable(t)
	assert.Equal(t, map[int]string{1: "canary"}, f.holders)
}

// Whatever joins and dies, each shard that a process may serve is served, and the shares of equal processes differ by
// one at most.
func TestClaimsSettleAfterAnyChange(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		f := processGroup{shardCount: 1 + r.IntN(9), allowedShards: map[string][]int{}, holders: map[int]string{}}
		for step := range 8 {
			identity := fmt.Sprint("p", r.IntN(6))
			if _, lives := f.allowedShards[identity]; lives {
				delete(f.allowedShards, identity)
				maps.DeleteFunc(f.holders, func(_ int, holder string) bool { return holder == identity })
			} else {
				f.allowedShards[identity] = nil
				if r.IntN(5) == 0 {
					f.allowedShards[identity] = []int{r.IntN(f.shardCount)}
				}
			}
			f.planUntilStable(t)
			free := slices.Collect(maps.Keys(f.allowedShards))
			free = slices.DeleteFunc(free, func(p string) bool { return f.allowedShards[p] != nil })
			if len(free) == 0 {
				continue
			}
			require.Len(t, f.holders, f.shardCount, "step %d: %v", step, f.allowedShards)
			least, most := f.shardCount, 0
			for _, p := range free {
				least, most = min(least, f.heldShardCounts()[p]), max(most, f.heldShardCounts()[p])
			}
			require.LessOrEqual(t, most-least, 1, "step %d: %v %v", step, f.allowedShards, f.holders)
		}
	}
}

// planConcurrently lets all processes plan at the same time: each sees the claims before the round. Of several claims
// of a shard, the first counts, as the API server refuses the others. planConcurrently returns the number of changes.
func (f *processGroup) planConcurrently(overdue bool) (changes int) {
	before := processGroup{
		shardCount:       f.shardCount,
		allowedShards:    f.allowedShards,
		knownShardCounts: f.knownShardCounts,
		holders:          maps.Clone(f.holders),
	}
	for _, identity := range slices.Sorted(maps.Keys(f.allowedShards)) {
		claim, release := before.newView(identity, overdue).plan()
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

// During an upgrade from a number of shards to a larger one, old and new processes live together. From any claims that
// old processes may have had, the claims come to rest, each shard is served, and the claims stay.
func TestClaimsSettleWhileProcessesKnowDifferentShards(t *testing.T) {
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
	f := processGroup{
		shardCount:       after,
		allowedShards:    map[string][]int{},
		knownShardCounts: map[string]int{},
		holders:          map[int]string{},
	}
	rest := func(shards int) {
		t.Helper()
		if together {
			rounds := 0
			for f.planConcurrently(false) > 0 {
				rounds++
				require.Less(t, rounds, 6, "%v %v", f.knownShardCounts, f.holders)
			}
			require.Zero(t, f.planConcurrently(true), "an overdue shard is free")
		}
		f.planUntilStable(t)
		require.Len(t, f.holders, shards, "%v %v", f.knownShardCounts, f.holders)
		for shard, holder := range f.holders {
			require.Less(t, shard, f.knownShardCounts[holder], "a process holds a shard that it does not know")
		}
	}
	for i := range old {
		f.allowedShards[fmt.Sprint("old", i)], f.knownShardCounts[fmt.Sprint("old", i)] = nil, before
		rest(before)
	}
	for i := range fresh { // by name, new processes come before and after old ones
		identity := fmt.Sprint([]string{"new", "then"}[i%2], i)
		f.allowedShards[identity], f.knownShardCounts[identity] = nil, after
		rest(after)
	}
	for i := range old {
		delete(f.allowedShards, fmt.Sprint("old", i))
		maps.DeleteFunc(f.holders, func(_ int, holder string) bool { return holder == fmt.Sprint("old", i) })
		rest(after)
	}
}

// Processes of many versions, with and without limits, also come to rest if all plan at the same time.
func TestClaimsSettleForAnyMixOfProcesses(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		f := processGroup{
			shardCount:       1 + r.IntN(12),
			allowedShards:    map[string][]int{},
			knownShardCounts: map[string]int{},
			holders:          map[int]string{},
		}
		for p := range 1 + r.IntN(6) {
			identity := fmt.Sprint("p", p)
			f.allowedShards[identity], f.knownShardCounts[identity] = nil, 1+r.IntN(f.shardCount)
			for shard := range f.knownShardCounts[identity] {
				if p > 3 && r.IntN(4) == 0 {
					f.allowedShards[identity] = append(f.allowedShards[identity], shard)
				}
				f.holders[shard] = identity // claims from before the processes knew each other
			}
		}
		rounds := 0
		for f.planConcurrently(false) > 0 {
			rounds++
			require.Less(t, rounds, 10, "%v %v %v", f.allowedShards, f.knownShardCounts, f.holders)
		}
	}
}
