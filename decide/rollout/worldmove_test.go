package rollout_test

import (
	"slices"
	"strings"

	"millwright/decide/rollout"
	"millwright/decide/scale"
)

// recordExtensionAnswer records an extension's answer on the sets.
func (w *rolloutSimulation) recordExtensionAnswer(sets []rollout.ObjectTarget) {
	current := slices.IndexFunc(w.sets, func(g *simulatedSet) bool { return g.template == w.template })
	for _, t := range sets {
		if g := w.setByUID(t.UID, t.Version); g != nil && current >= 0 {
			g.ClusterAPI.ExtensionAnswer = w.extensionAnswer()
			g.ClusterAPI.ExtensionAnswer.TargetSetUID, g.ClusterAPI.ExtensionAnswer.RequestedAt = w.sets[current].UID, w.now
			g.bumpVersion()
		}
	}
}

// setByName returns the set with the given name; nil: no such set.
func (w *rolloutSimulation) setByName(name string) *simulatedSet {
	for _, g := range w.sets {
		if g.Name == name {
			return g
		}
	}
	return nil
}

// acknowledgesMachine reports whether the set's size includes a machine that was moved to the set.
func (g *simulatedSet) acknowledgesMachine(u *simulatedMachine) bool {
	return slices.Contains(strings.Split(g.ClusterAPI.Transfer.Acknowledged, ","), u.Name)
}

// moveAndUpdateMachines carries out a set's decision about machines that an extension updates in place.
func (w *rolloutSimulation) moveAndUpdateMachines(g *simulatedSet, d scale.Decision) {
	for _, t := range d.Move {
		to, u := w.setByName(g.ClusterAPI.Transfer.To), w.machineByUID(t.UID)
		if to == nil || u == nil || u.Deleting || w.ownerUID(t.UID) != g.UID {
			continue
		}
		g.machines = slices.DeleteFunc(g.machines, func(x *simulatedMachine) bool { return x == u })
		to.machines = append(to.machines, u)
		u.ClusterAPI.Moved, u.Updating, u.Available, u.Ready = true, true, false, false
		w.appendTrace("move %s to %s", u.Name, to.Name)
	}
	for _, t := range d.Update {
		if u := w.machineByUID(t.UID); u != nil && !u.Deleting && w.ownerUID(t.UID) == g.UID {
			u.ClusterAPI.Moved, u.hasUpdateBegun, u.readyTime = false, true, w.now.Add(w.creationDuration())
			w.appendTrace("update %s", u.Name)
		}
	}
}
