package scale

import "fmt"

// toRelease returns the members whose labels do not match any more. Until the release is done they count as members, so
// that the set makes none in their place while it still owns them. One that is being deleted is let be. A selector that
// cannot be read, or that is empty, is no reason to let go of anything.
func toRelease(o Observed, live []Member) []Target {
	var targets []Target
	if o.Invalid != "" || o.SelectsAll {
		return nil
	}
	for _, m := range live {
		if !m.Matches && len(targets) < MaxBatch {
			targets = append(targets, m.target("the labels do not match the selector"))
		}
	}
	return targets
}

// adopt takes machines that match and have no controller, so that the set does not make what is there already.
func adopt(o Observed, _ []Member) (Decision, bool) {
	var d Decision
	for _, m := range o.Orphans {
		if m.Matches && !m.Deleting && !o.SelectsAll && len(d.Adopt) < MaxBatch {
			d.Adopt = append(d.Adopt, Target{Name: m.Name, UID: m.UID, Version: m.Version, Why: "the labels match the selector, and there is no owner"})
		}
	}
	d.Why = fmt.Sprintf("adopt %s: the labels match the selector, and there is no owner", machines(len(d.Adopt)))
	return d, len(d.Adopt) > 0
}
