package replace

import (
	"fmt"
	"slices"
	"time"
)

// fewestDead is how many nodes must be dead before the breaker looks at their share. One or two dead nodes of a small
// cluster are replaced like any other: the budget bounds them. Source: kube-controller-manager, which lets no zone with
// fewer than 3 nodes that are not Ready count as unhealthy (--unhealthy-zone-threshold).
const fewestDead = 3

// settle is for how long a node that recovered still counts as one of an outage that is ending: nodes come back one after
// the other, and those that come last must not be taken for broken when most of the others are back. Source: 50 s, the
// default of kube-controller-manager's --node-monitor-grace-period, after which a node that is still silent is so by
// itself, and a kubelet's lease interval of 10 s.
const settle = time.Minute

// Breaker says whether so many nodes of the cluster look dead at once, or looked so until a moment ago, that the machines
// are hardly to blame: at least fewestDead, and at least half. It is open then, and the sentence says why. Until is when it
// closes by itself should nothing change; zero means that nodes have to recover first. It remembers nothing, so that an API
// server which comes and goes leaves nothing behind that acts later (D5).
//
// Source of one half: kube-controller-manager stops evicting from a small zone at 0.55 (--unhealthy-zone-threshold); a
// replacement destroys more than an eviction, so it stops a little earlier.
func Breaker(n Nodes, now time.Time) (open bool, why string, until time.Time) {
	if most(n.Dead, n.Joined) {
		return true, fmt.Sprintf("%d of %d nodes look dead at once: that is more likely the API server or the network than the machines; nothing is replaced until most of them report again", n.Dead, n.Joined), until
	}
	recent := slices.DeleteFunc(slices.Clone(n.Recovered), func(at time.Time) bool { return now.Sub(at) >= settle })
	if len(recent) == 0 || !most(n.Dead+len(recent), n.Joined) {
		return false, "", until
	}
	until = slices.MaxFunc(recent, time.Time.Compare).Add(settle)
	return true, fmt.Sprintf("most of the %d nodes looked dead at once, and have just begun to report again; nothing is replaced before %s, so that the others can do so too", n.Joined, until.UTC().Format(time.TimeOnly+" MST")), until
}

func most(dead, joined int) bool { return dead >= fewestDead && 2*dead >= joined }
