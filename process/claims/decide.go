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
	least, most := len(pool)/len(peers), (len(pool)+len(peers)-1)/len(peers)
	var own []int // held shards of the group
	for shard := range v.count {
		switch {
		case v.holders[shard] != v.self:
		case slices.Contains(pool, shard):
			own = append(own, shard)
		case v.isReserved(shard):
			release = append(release, shard)
		}
	}
	switch {
	case len(own) > most:
		release = append(release, own[most:]...)
	case len(own) > least && v.mustYield(peers, least):
		release = append(release, own[len(own)-1])
	}
	slices.Sort(release)
	return v.claims(pool, most-len(own)), release
}

// claims returns the shards to claim: up to room free shards of the pool, and overdue shards.
func (v view) claims(pool []int, room int) (claim []int) {
	for shard := range v.count {
		if _, isHeld := v.holders[shard]; isHeld {
			continue
		}
		fits := slices.Contains(pool, shard) && len(claim) < room
		if fits || v.overdue[shard] && v.mayClaim(v.self, shard) {
			claim = append(claim, shard)
		}
	}
	return claim
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
func (v view) mustYield(peers []string, least int) bool {
	held := map[string]int{}
	for _, holder := range v.holders {
		held[holder]++
	}
	isShort := func(identity string) bool { return held[identity] < least }
	richest := slices.MaxFunc(peers, func(a, b string) int {
		return cmp.Or(cmp.Compare(held[a], held[b]), cmp.Compare(b, a))
	})
	return slices.ContainsFunc(peers, isShort) && richest == v.self
}
