package rollout

// alone returns what must be done before anything else is decided.
func (b *book) alone() (Decision, bool) {
	var d Decision
	if r := b.asked(); r != nil && !b.o.Paused {
		d.rollBack(b, r, b.o.Progress, "")
		return d, true
	}
	if b.o.scaler(&d); d.Acts() {
		d.bound()
		d.Why = phrase("mark %s for the cluster autoscaler, take the mark off %d", machines(len(d.Mark)), len(d.Unmark))
		return d, true
	}
	stopped := b.o.stopped()
	if b.now == nil {
		if stopped != "" {
			return d, false
		}
		return b.create(), true
	}
	b.doors(&d)
	if d.Acts() {
		d.bound()
		d.Why = "let the current set make machines, and old ones make none"
		return d, true
	}
	if d.Revise = b.revise(); d.Revise != nil || b.now.Drift {
		if d.Revise == nil {
			d.Sync = []Target{b.now.target("it differs from the deployment")}
		}
		d.Why = phrase("bring set %s up to date", b.now.Name)
		return d, true
	}
	if r := b.automatic(); r != nil {
		p, _ := b.progress()
		d.rollBack(b, r, p, r.Set.Name)
		return d, true
	}
	return d, false
}

// rollBack orders a rollback, and before that a record of the set whose template returns by itself.
func (d *Decision) rollBack(b *book, r *Rollback, p Progress, returnsTo string) {
	p.ReturnsTo = returnsTo
	d.Rollback, d.Record, d.Why = r, b.unrecorded(p), r.Why
	d.bound()
}

// doors says which sets may make machines: the current one always; old ones not when machines are handed over or wait to be deleted.
func (b *book) doors(d *Decision) {
	switch {
	case !b.now.NoScaleUp:
	case b.now.size > b.now.live && sum(b.sets, b.places) > b.o.Replicas+b.surge: // it gave machines away: it must not make them again
		b.now.put(b.now.live, phrase("%s left of it", machines(b.now.live)))
		b.resizes(d)
		return
	default:
		d.Open = append(d.Open, b.now.target("it is the current set"))
	}
	if b.o.stopped() != "" || !b.o.inPlace() && b.o.Strategy != OnDelete {
		return
	}
	for _, e := range b.old() {
		if !e.NoScaleUp && (e.size > 0 || e.live > 0) && len(d.Close) < MaxBatch {
			d.Close = append(d.Close, e.target("its machines give way and are not made again"))
		}
	}
}

// create asks for the set of the current template, with the size that it would get if it were there.
func (b *book) create() Decision {
	now := &entry{Set: Set{Name: "the new set", Current: true, Revision: b.revision()}}
	b.now, b.sets = now, append(b.sets, now)
	b.progress()
	b.resize()
	return Decision{
		Create:  &Creation{Replicas: now.size, Revision: now.Revision, Desired: b.o.Replicas, Max: most(b.o)},
		Rolling: b.underway(),
		Why:     phrase("create a set of %s for revision %d: the template has none", machines(now.size), now.Revision),
	}
}
