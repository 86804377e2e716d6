package replace

import "fmt"

// fewestDead is how many nodes must be dead before the breaker looks at their share. One or two dead nodes of a small
// cluster are replaced like any other: the budget bounds them. Source: kube-controller-manager, which lets no zone with
// fewer than 3 nodes that are not Ready count as unhealthy (--unhealthy-zone-threshold).
const fewestDead = 3

// Breaker says whether so many nodes of the cluster look dead at once that the machines are hardly to blame: at least
// fewestDead, and at least half. It is open then, and the sentence says why. It remembers nothing, so that an API server
// which comes and goes leaves nothing behind that acts later (D5).
//
// Source of one half: kube-controller-manager stops evicting from a small zone at 0.55 (--unhealthy-zone-threshold); a
// replacement destroys more than an eviction, so it stops a little earlier.
func Breaker(n Nodes) (open bool, why string) {
	if n.Dead < fewestDead || 2*n.Dead < n.Joined {
		return false, ""
	}
	return true, fmt.Sprintf("%d of %d nodes look dead at once: that is more likely the API server or the network than the machines; nothing is replaced until most of them report again", n.Dead, n.Joined)
}
