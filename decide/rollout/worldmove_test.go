package rollout_test

import (
	"slices"
	"strings"

	"millwright/decide/rollout"
	"millwright/decide/scale"
)

// ask gives sets the answer of an extension.
func (w *world) ask(sets []rollout.Target) {
	current := slices.IndexFunc(w.sets, func(g *group) bool { return g.template == w.template })
	for _, t := range sets {
		if g := w.group(t.UID, t.Version); g != nil && current >= 0 {
			g.ClusterAPI.Answer = w.answers()
			g.ClusterAPI.Answer.Set, g.ClusterAPI.Answer.At = w.sets[current].UID, w.now
			g.write()
		}
	}
}

// named returns the set of this name; nil: it is gone.
func (w *world) named(name string) *group {
	for _, g := range w.sets {
		if g.Name == name {
			return g
		}
	}
	return nil
}

// acknowledges reports whether the size of a set counts a machine that was moved to it.
func (g *group) acknowledges(u *unit) bool {
	return slices.Contains(strings.Split(g.ClusterAPI.Transfer.Acknowledged, ","), u.Name)
}

// moveAndUpdate carries out what a set decided about machines that are updated in place by an extension.
func (w *world) moveAndUpdate(g *group, d scale.Decision) {
	for _, t := range d.Move {
		to, u := w.named(g.ClusterAPI.Transfer.To), w.unit(t.UID)
		if to == nil || u == nil || u.Deleting || w.owner(t.UID) != g.UID {
			continue
		}
		g.units = slices.DeleteFunc(g.units, func(x *unit) bool { return x == u })
		to.units = append(to.units, u)
		u.ClusterAPI.Moved, u.Updating, u.Available, u.Ready = true, true, false, false
		w.tell("move %s to %s", u.Name, to.Name)
	}
	for _, t := range d.Update {
		if u := w.unit(t.UID); u != nil && !u.Deleting && w.owner(t.UID) == g.UID {
			u.ClusterAPI.Moved, u.begun, u.readyAt = false, true, w.now.Add(w.create())
			w.tell("update %s", u.Name)
		}
	}
}
