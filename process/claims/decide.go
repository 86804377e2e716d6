package claims

import (
	"cmp"
	"maps"
	"slices"
)

// UnservedReason says why nobody serves a namespace. The zero value, ReasonNone, means that a worker and a bridge serve
// it.
type UnservedReason string

// The reasons why nobody serves a namespace.
const (
	ReasonNone     UnservedReason = ""
	ReasonNoShard  UnservedReason = "NoShard"  // the namespace has no recorded shard
	ReasonNoWorker UnservedReason = "NoWorker" // no live worker holds the namespace's shard
	ReasonNoBridge UnservedReason = "NoBridge" // no live bridge holds the namespace's shard
)

// UnservedReasons returns all reasons except ReasonNone.
func UnservedReasons() []UnservedReason {
	return []UnservedReason{ReasonNoShard, ReasonNoWorker, ReasonNoBridge}
}

// DecideUnservedReason returns why nobody serves a namespace. number and recorded are the shard of the namespace;
// workers and bridges are the live holders of the shards, as Holders returns them.
func DecideUnservedReason(number int, recorded bool, workers, bridges map[int]string) UnservedReason {
	switch {
	case !recorded:
		return ReasonNoShard
	case workers[number] == "":
		return ReasonNoWorker
	case bridges[number] == "":
		return ReasonNoBridge
	default:
		return ReasonNone
	}
}

// peer is a live process of the same role.
type peer struct {
	shardCount    int   // number of shards that the process knows: it serves no shard with this number or a larger one
	allowedShards []int // shards that the process may claim, sorted; empty: all shards that the process knows
}

// view is what a process sees: the shards, and the processes of the same role that are alive, itself included.
type view struct {
	ownIdentity   string
	peers         map[string]peer // by identity
	holders       map[int]string  // the holder of each shard; missing: no live process
	overdueShards map[int]bool    // shards that had no live holder for longer than overdueAfter
}

// shardCount returns the number of shards that at least one live process knows. While an upgrade raises the number of
// shards, the processes know different numbers.
func (v view) shardCount() (shardCount int) {
	for p := range maps.Values(v.peers) {
		shardCount = max(shardCount, p.shardCount)
	}
	return shardCount
}

// plan returns the shards to claim and the shards to release, sorted. Processes that may claim the same shards form a
// group, and share these shards evenly. If a group is limited to some shards, no other group claims these shards. A
// shard that nobody claimed in overdueAfter is claimed by any process that may claim it.
func (v view) plan() (claim, release []int) {
	target := v.desiredHolders()
	for shard := range v.shardCount() {
		holder, isHeld := v.holders[shard]
		owner, isShared := target[shard] // isShared: the group of this process shares the shard
		switch {
		case !isHeld:
			if owner == v.ownIdentity || v.overdueShards[shard] && v.mayClaim(v.ownIdentity, shard) {
				claim = append(claim, shard)
			}
		case holder != v.ownIdentity:
		case isShared && owner != v.ownIdentity, !isShared && (v.isReserved(shard) || !v.mayClaim(v.ownIdentity, shard)):
			release = append(release, shard)
		}
	}
	return claim, release
}

// desiredHolders returns the process of the group that should hold each shard, for the shards that the group of this
// process holds or may claim. All processes of a group with the same view get the same target. The target leaves each
// held shard to its holder, unless another process that knows the shard has at least two shards fewer.
//
// The claims come to rest: free shards are placed with the smallest possible sum of the squares of the loads, because
// the shards that the fewest processes know come first, and each shard that changes its holder makes this sum smaller.
func (v view) desiredHolders() map[int]string {
	members := v.groupMembers()
	target, load := map[int]string{}, map[string]int{}
	var free []int
	for shard := range v.shardCount() {
		holder, isHeld := v.holders[shard]
		switch {
		case !slices.ContainsFunc(members, func(p string) bool { return v.sharesShard(p, shard) }):
		case !isHeld:
			free = append(free, shard)
		case slices.Contains(members, holder) && v.sharesShard(holder, shard):
			target[shard] = holder
			load[holder]++
		}
	}
	for _, shard := range slices.Backward(free) { // the fewest processes know the largest numbers
		owner := v.leastLoadedProcess(members, load, shard)
		target[shard] = owner
		load[owner]++
	}
	for {
		shard, to, found := v.bestMove(members, load, target)
		if !found {
			return target
		}
		load[target[shard]]--
		load[to]++
		target[shard] = to
	}
}

// bestMove returns the shard that should move, and the process that should get the shard: the move between the
// processes whose loads differ most, of several the one of the largest shard. found is false if no move makes the loads
// more even.
func (v view) bestMove(
	members []string,
	load map[string]int,
	target map[int]string,
) (shard int, to string, found bool) {
	most := 1 // a move between processes whose loads differ by one only exchanges these loads
	for number, from := range target {
		candidate := v.leastLoadedProcess(members, load, number)
		difference := load[from] - load[candidate]
		if difference > most || found && difference == most && number > shard {
			shard, to, found, most = number, candidate, true, difference
		}
	}
	return shard, to, found
}

// leastLoadedProcess returns the process with the smallest load among those that share a shard, of several the first by
// identity.
func (v view) leastLoadedProcess(members []string, load map[string]int, shard int) string {
	sharing := slices.DeleteFunc(slices.Clone(members), func(p string) bool { return !v.sharesShard(p, shard) })
	return slices.MinFunc(sharing, func(a, b string) int {
		return cmp.Or(cmp.Compare(load[a], load[b]), cmp.Compare(a, b))
	})
}

// groupMembers returns the identities of the processes with the same limits as this process, sorted.
func (v view) groupMembers() (members []string) {
	for identity, p := range v.peers {
		if slices.Equal(p.allowedShards, v.peers[v.ownIdentity].allowedShards) {
			members = append(members, identity)
		}
	}
	slices.Sort(members)
	return members
}

// sharesShard reports whether a process shares a shard with the other processes of its group.
func (v view) sharesShard(identity string, shard int) bool {
	return v.mayClaim(identity, shard) && (len(v.peers[identity].allowedShards) > 0 || !v.isReserved(shard))
}

// isReserved reports whether a live process is limited to shards that include this shard.
func (v view) isReserved(shard int) bool {
	for p := range maps.Values(v.peers) {
		if slices.Contains(p.allowedShards, shard) {
			return true
		}
	}
	return false
}

func (v view) mayClaim(identity string, shard int) bool {
	p := v.peers[identity]
	return shard < p.shardCount && (len(p.allowedShards) == 0 || slices.Contains(p.allowedShards, shard))
}
