package drain

import "time"

// Protected reports whether the annotation do-not-disrupt protects a pod from eviction now, and until when. A zero end
// means that no end is known: the value is "true", or the pod has not started yet. Any other value than "true" and a
// positive duration protects nothing. A finished pod has nothing to protect.
//
// It holds for evictions only. Deletion comes when the drain's own deadline has passed, and ends all protection.
func Protected(p Pod, now time.Time) (protected bool, until time.Time) {
	if p.Finished {
		return false, until
	}
	if p.Protected == "true" {
		return true, until
	}
	length, err := time.ParseDuration(p.Protected)
	if err != nil || length <= 0 {
		return false, until
	}
	if p.Started.IsZero() {
		return true, until
	}
	until = p.Started.Add(length)
	return now.Before(until), until
}
