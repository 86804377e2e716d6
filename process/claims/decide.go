package claims

import (
	"cmp"
	"maps"
	"slices"
)

// view is what a process sees: the shards, and the processes of the same role that are alive, itself included.
type view struct {
	count   int
	self    string
	allowed map[string][]int // shards that a live process may claim, by identity; empty list: all shards
	holders map[int]string   // the holder of each shard; missing: no live process
	overdue map[int]bool     // shards that had no live holder for longer than overdueTime
}

// plan returns the shards to claim and the shards to release, sorted. Processes that may claim the same shards form a
// group, and share these shards evenly. If a group is limited to some shards, no other group claims these shards. A
// shard that nobody claimed in overdueTime is claimed by any process that may claim it.
func (v view) plan() (claim, release []int) {
	pool, peers := v.group()
	held := map[string]int{}
	var mine []int
	for shard, holder := range v.holders {
		held[holder]++
		if holder == v.self {
			mine = append(mine, shard)
		}
	}
	slices.Sort(mine)
	own := slices.DeleteFunc(slices.Clone(mine), func(shard int) bool { return !slices.Contains(pool, shard) })
	least, most := len(pool)/len(peers), (len(pool)+len(peers)-1)/len(peers)
	for _, shard := range pool {
		if _, isHeld := v.holders[shard]; !isHeld && (len(own)+len(claim) < most || v.overdue[shard]) {
			claim = append(claim, shard)
		}
	}
	for shard := range v.count { // shards of other groups that nobody claims
		_, isHeld := v.holders[shard]
		if !isHeld && v.overdue[shard] && v.mayClaim(v.self, shard) && !slices.Contains(claim, shard) {
			claim = append(claim, shard)
		}
	}
	slices.Sort(claim)
	for _, shard := range mine {
		if !slices.Contains(pool, shard) && v.isReserved(shard) {
			release = append(release, shard)
		}
	}
	switch {
	case len(own) > most:
		release = append(release, own[most:]...)
	case len(own) > least && v.mustYield(peers, held, least):
		release = append(release, own[len(own)-1])
	}
	slices.Sort(release)
	return claim, release
}

// group returns the shards that the group of this process shares, and the identities of the group, both sorted.
func (v view) group() (pool []int, peers []string) {
	limits := v.allowed[v.self]
	for identity, other := range v.allowed {
		if slices.Equal(limits, other) {
			peers = append(peers, identity)
		}
	}
	slices.Sort(peers)
	for shard := range v.count {
		if len(limits) == 0 && !v.isReserved(shard) || slices.Contains(limits, shard) {
			pool = append(pool, shard)
		}
	}
	return pool, peers
}

// isReserved reports whether a live process is limited to shards that include this shard.
func (v view) isReserved(shard int) bool {
	for limits := range maps.Values(v.allowed) {
		if slices.Contains(limits, shard) {
			return true
		}
	}
	return false
}

func (v view) mayClaim(identity string, shard int) bool {
	limits := v.allowed[identity]
	return len(limits) == 0 || slices.Contains(limits, shard)
}

// mustYield reports whether a peer has fewer shards than each process should have at least, and this process is the one
// that must release a shard for it: the peer with the most shards, of several the first by identity.
func (v view) mustYield(peers []string, held map[string]int, least int) bool {
	isShort := func(identity string) bool { return held[identity] < least }
	richest := slices.MaxFunc(peers, func(a, b string) int {
		return cmp.Or(cmp.Compare(held[a], held[b]), cmp.Compare(b, a))
	})
	return slices.ContainsFunc(peers, isShort) && richest == v.self
}
