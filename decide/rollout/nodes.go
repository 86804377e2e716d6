package rollout

// valueTrue of the annotation by which the cluster autoscaler leaves a node alone.
const valueTrue = "true"

// taints keeps new pods off nodes of old sets, also of those that joined late, and lets them onto nodes of the current set
// again, should it have been old. It follows from what the nodes say now; a mark on the set is not asked.
func (b *book) taints(d *Decision, rolls bool) {
	if b.now == nil {
		return
	}
	rolls = rolls && b.o.Strategy != Recreate
	b.each(func(e *entry, m Member) {
		switch {
		case m.Node == "":
		case e == b.now && m.Tainted:
			add(&d.Untaint, m.target("its set is the current one"))
		case e != b.now && !m.Tainted && rolls:
			add(&d.Taint, m.target("its set is old"))
		}
	})
}

// guards keeps the cluster autoscaler off all nodes while old and new ones are mixed, and takes off afterwards what is ours. A
// guard that somebody else set is neither ours nor in the way. That of a preserved machine stays.
func (b *book) guards(d *Decision, rolls bool) {
	guard := b.o.Guard && b.now != nil && b.underway()
	b.each(func(_ *entry, m Member) {
		switch {
		case m.Node == "":
		case guard && rolls && m.Guard != valueTrue:
			add(&d.Guard, m.target("a rollout is under way"))
		case !guard && m.Guarded && !m.Preserved:
			add(&d.Unguard, m.target("no rollout is under way"))
		}
	})
}
