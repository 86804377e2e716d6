package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/rollout"
	"millwright/decide/scale"
)

// work takes one turn of a set's workflow: it looks and decides, or carries out what it decided at its last turn.
func (w *world) work(g *group) {
	if g.saw == nil {
		g.intent = g.Replicas
		d := scale.Decide(g.observe(w))
		if len(d.Create)+len(d.Delete)+len(d.Remediate)+len(d.Move)+len(d.Update) > 0 {
			g.saw = &d
			return
		}
		g.ActedOn, g.reported = g.intent, g.generation
		return
	}
	d, before := *g.saw, w.serving()
	g.saw, g.ActedOn, g.reported = nil, g.intent, g.generation // its report may see a later size, on which it has not acted
	for _, name := range d.Create {
		w.made++
		w.addUnit(g, name)
	}
	for _, t := range slices.Concat(d.Delete, d.Remediate) {
		if u := w.unit(t.UID); u != nil && !u.Deleting && w.owner(t.UID) == g.UID {
			u.replaced = u.Failed
			w.drop(u)
		}
	}
	w.moveAndUpdate(g, d)
	w.charge(before, "set "+g.Name+": "+d.Why)
	w.check("set " + g.Name + ": " + d.Why)
}

func (w *world) addUnit(g *group, name string) {
	u := &unit{doomed: w.doom(), readyAt: w.now.Add(w.create())}
	u.Member = machine(name, sick, nodeless)
	u.Created = w.now
	g.units = append(g.units, u)
}

// drop deletes a machine.
func (w *world) drop(u *unit) {
	deleting(&u.Member)
	u.goneAt = w.now.Add(w.remove())
}

// observe is what the set's activity would read.
func (g *group) observe(w *world) scale.Observed {
	o := scale.Observed{
		Now:        w.now,
		Naming:     []string{g.Name + "-", ""},
		Settings:   scale.Settings{Replicas: g.Replicas},
		Seed:       uint64(w.made*31 + len(g.Name)),
		ClusterAPI: scale.ClusterAPISet{MoveTo: g.ClusterAPI.Transfer.To},
	}
	if g.NoScaleUp {
		o.Stopped = []string{"MachineSet has the label scale-up-disabled"}
	}
	if to := w.named(g.ClusterAPI.Transfer.To); o.ClusterAPI.MoveTo != "" &&
		(to == nil || !slices.Contains(strings.Split(to.ClusterAPI.Transfer.From, ","), g.Name)) {
		o.ClusterAPI.NoMove = "it takes none"
	}
	for _, u := range g.units {
		m := scale.Member{
			Name:    u.Name,
			UID:     u.UID,
			Version: "7",
			Created: u.Created,
			Matches: true,
			MCM: scale.MCMMember{
				Labelled: true,
				Failed:   u.Failed,
				Replace:  u.Failed,
			},
			Template:      scale.Template{UpToDate: scale.True},
			Deleting:      u.Deleting,
			DeletingSince: w.now,
			Updating:      u.Updating,
			Updated:       u.MCM.HandedOver || u.ClusterAPI.Moved,
			ClusterAPI: scale.ClusterAPIMember{
				UpdateDue: u.Updating && !u.begun && (!u.ClusterAPI.Moved || g.acknowledges(u)) && w.asCAPI,
			},
			Joined:   u.MCM.Node != "",
			Priority: u.Priority,
			Phase:    "Running",
		}
		switch {
		case u.Available:
			m.Node, m.Ready, m.ReadyFrom = scale.NodeHealthy, scale.True, u.Created
		case u.MCM.Node != "":
			m.Node, m.Ready = scale.NodeUnhealthy, scale.False
		default:
			m.Ready = scale.False
		}
		o.Members = append(o.Members, m)
	}
	return o
}

// serving counts what the floor speaks of: available machines. OnDelete promises no more than that nothing is deleted
// for the template's sake: with it, all count that are there and have not failed, or are about to come of the current
// one.
func (w *world) serving() int {
	n := 0
	for _, g := range w.sets {
		here, onDelete := 0, w.spec.Strategy == rollout.OnDelete
		for _, u := range g.units {
			if u.Available || onDelete && !u.Deleting && !u.Failed {
				here++
			}
		}
		if onDelete && g.template == w.template && !g.NoScaleUp {
			here = max(here, g.Replicas)
		}
		n += here
	}
	return n
}

// existing counts machines that hold a place: those on their way out included, unless they are not to count. One that
// is replaced by its set does not count: its set makes another one before it is gone.
func (w *world) existing() int {
	n := 0
	for _, g := range w.sets {
		for _, u := range g.units {
			if !u.replaced && (!u.Deleting || !w.spec.FreeWhenDeleting) {
				n++
			}
		}
	}
	return n
}

// places counts what exists or may come without another decision of the rollout.
func (w *world) places() int {
	n := w.going()
	for _, g := range w.sets {
		live := g.live()
		if g.saw != nil {
			live += len(g.saw.Create)
		}
		n += max(live, g.Replicas)
	}
	return n
}

// live counts machines that are not being deleted.
func (g *group) live() int {
	n := 0
	for _, u := range g.units {
		if !u.Deleting {
			n++
		}
	}
	return n
}

// bound takes over what is wanted now. More is allowed, and less needed, from this moment on; less is allowed, and more
// needed, once it has been reached.
func (w *world) bound() {
	surge, unavailable := rollout.Bounds(w.spec)
	limit, floor := w.spec.Replicas+surge, w.spec.Replicas-unavailable
	if w.plain() {
		limit += w.going() // outside of a rollout, the number is followed at once
	}
	if w.spec.Strategy == rollout.Recreate {
		floor = 0 // it promises none
	}
	if w.limit = max(w.limit, limit); w.saw == nil && w.places() <= limit {
		w.limit = limit
	}
	if w.floor = min(w.floor, floor); w.serving() >= floor && w.settled() {
		w.floor = floor
	}
}

// plain reports whether only the number of machines can differ.
func (w *world) plain() bool {
	for _, g := range w.sets {
		if g.template != w.template && (g.Replicas > 0 || len(g.units) > 0) {
			return false
		}
	}
	return len(w.spec.Reported.Conditions) > 1 && w.spec.Reported.Conditions[1].Reason == "NewMachineSetAvailable"
}

// going counts machines on their way out that hold a place.
func (w *world) going() int {
	n := 0
	for _, g := range w.sets {
		if !w.spec.FreeWhenDeleting {
			n += len(g.units) - g.live()
		}
	}
	return n
}

// settled reports whether no set has anything left to delete.
func (w *world) settled() bool {
	for _, g := range w.sets {
		if g.live() > g.Replicas || g.saw != nil || g.ActedOn != g.Replicas {
			return false
		}
	}
	return w.saw == nil
}

// hurt returns how many machines failed by themselves, or were taken away by people, so lately that a decision that is
// carried out now may not know of it.
func (w *world) hurt() int {
	n := 0
	for _, t := range w.failures {
		if w.now.Sub(t) < 15*time.Second {
			n++
		}
	}
	for _, t := range w.lost {
		if w.now.Sub(t) < 6*time.Second {
			n++
		}
	}
	return n
}

// free reports whether a set was just now told to give one up whatever it takes.
func (w *world) free() bool { return w.forced > 0 && w.now.Sub(w.forcedAt) < 15*time.Second }

// fail notes the first promise that is broken.
func (w *world) fail(format string, values ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf("%s: %s;%s", w.now.Sub(epoch), fmt.Sprintf(format, values...), w.state())
	}
}

// charge looks what an act of a decision cost: too few may be left by chance or by people, but not by a decision.
func (w *world) charge(before int, act string) {
	if n := w.serving(); n < before && n+w.hurt() < w.floor && !w.free() {
		w.fail("%s: %d serve, %d did, %d have to", act, n, before, w.floor)
	}
}

// check looks for too many machines, whoever made them.
func (w *world) check(after string) {
	if n := w.existing(); n > w.limit {
		w.fail("after %s: %d machines, %d allowed", after, n, w.limit)
	}
	w.bound()
}
