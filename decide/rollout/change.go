package rollout

import "slices"

// target names a set for a decision.
func (s Set) target(why string) Target {
	return Target{Name: s.Name, UID: s.UID, Version: s.Version, Why: why}
}

// target names a machine, and its node.
func (m Member) target(why string) Target {
	return Target{Name: m.Name, UID: m.UID, Version: m.Version, Node: m.Node, Why: why}
}

// resizes fills in the sets whose size or annotations change. The annotations of sets that want no machine are left alone. A
// set that is to grow and may not make machines is opened first, unless it has them.
func (b *book) resizes(d *Decision) {
	for _, e := range b.sets {
		if e.NoScaleUp && e.size > e.Replicas && (e == b.now || e.size > e.live) {
			d.Open = append(d.Open, e.target(e.why))
			continue
		}
		stale := (e.size > 0 || e == b.now) && (e.Desired != b.o.Replicas || e.Max != most(b.o))
		if (stale || e.size != e.Replicas) && len(d.Resize) < MaxBatch {
			d.Resize = append(d.Resize, Resize{
				Name: e.Name, UID: e.UID, Version: e.Version, From: e.Replicas, To: e.size,
				Desired: b.o.Replicas, Max: most(b.o), Forced: e.forced, Why: e.why,
			})
		}
	}
}

func (p Progress) equal(q Progress) bool {
	return p.Revision == q.Revision && p.Step == q.Step && p.Reached.Equal(q.Reached) && p.Automatic == q.Automatic &&
		p.ReturnsTo == q.ReturnsTo && slices.Equal(p.Failed, q.Failed)
}

// unrecorded returns what of p is not on record yet; nil when all is.
func (b *book) unrecorded(p Progress) *Progress {
	recorded := b.o.Progress
	if p.equal(recorded) {
		return nil
	}
	if p.Revision == recorded.Revision {
		p.Failed = slices.DeleteFunc(slices.Clone(p.Failed), func(name string) bool { return slices.Contains(recorded.Failed, name) })
	}
	return &p
}

// Recorded returns the record once that of a decision was written: of one revision, machines that failed are added to those that are
// on it. Recording one twice changes nothing.
func (p Progress) Recorded(next Progress) Progress {
	if p.Revision == next.Revision {
		next.Failed = slices.Concat(p.Failed, next.Failed)
	}
	next.Failed = slices.Compact(slices.Sorted(slices.Values(next.Failed)))
	return next
}
