package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/rollout"
	"millwright/decide/scale"
)

// takeSetTurn takes one turn of a set's workflow. The workflow makes a decision, or executes the decision of its last
// turn.
func (w *rolloutSimulation) takeSetTurn(g *simulatedSet) {
	if g.pendingDecision == nil {
		g.intendedSize = g.Replicas
		d := scale.Decide(g.observeSet(w))
		if len(d.Create)+len(d.Delete)+len(d.Remediate)+len(d.Move)+len(d.Update) > 0 {
			g.pendingDecision = &d
			return
		}
		g.ObservedReplicas, g.reportedGeneration = g.intendedSize, g.generation
		return
	}
	d, before := *g.pendingDecision, w.servingMachineCount()
	// The status may already have a later size that the workflow has not acted on.
	g.pendingDecision, g.ObservedReplicas, g.reportedGeneration = nil, g.intendedSize, g.generation
	for _, name := range d.Create {
		w.createdMachineCount++
		w.addMachine(g, name)
	}
	for _, t := range slices.Concat(d.Delete, d.Remediate) {
		if u := w.machineByUID(t.UID); u != nil && !u.Deleting && w.ownerUID(t.UID) == g.UID {
			u.isReplacedEarly = u.Failed
			w.deleteMachine(u)
		}
	}
	w.moveAndUpdateMachines(g, d)
	w.checkServingMachines(before, "set "+g.Name+": "+d.Why)
	w.checkMaxMachines("set " + g.Name + ": " + d.Why)
}

func (w *rolloutSimulation) addMachine(g *simulatedSet, name string) {
	fails := w.newMachineFails() || w.isBadTemplate(g.template)
	u := &simulatedMachine{willFail: fails, readyTime: w.now.Add(w.creationDuration())}
	u.Member = newMachine(name, asUnhealthyMachine, withoutNode)
	u.CreatedAt = w.now
	g.machines = append(g.machines, u)
}

// deleteMachine begins the deletion of a machine.
func (w *rolloutSimulation) deleteMachine(u *simulatedMachine) {
	asDeletingMachine(&u.Member)
	u.deletionEndTime = w.now.Add(w.deletionDuration())
}

// observeSet returns the facts that the set's activity would read.
func (g *simulatedSet) observeSet(w *rolloutSimulation) scale.Facts {
	o := scale.Facts{
		Now:        w.now,
		NameParts:  []string{g.Name + "-", ""},
		Settings:   scale.Settings{Replicas: g.Replicas},
		NameSeed:   uint64(w.createdMachineCount*31 + len(g.Name)),
		ClusterAPI: scale.ClusterAPISet{MoveTarget: g.ClusterAPI.Transfer.To},
	}
	if g.ScaleUpDisabled {
		o.StopReasons = []string{"MachineSet has the label scale-up-disabled"}
	}
	if to := w.setByName(g.ClusterAPI.Transfer.To); o.ClusterAPI.MoveTarget != "" &&
		(to == nil || !slices.Contains(strings.Split(to.ClusterAPI.Transfer.From, ","), g.Name)) {
		o.ClusterAPI.NoMoveReason = "it takes none"
	}
	for _, u := range g.machines {
		m := scale.Member{
			Name:            u.Name,
			UID:             u.UID,
			Version:         "7",
			CreatedAt:       u.CreatedAt,
			MatchesSelector: true,
			MCM: scale.MCMMember{
				Labelled:    true,
				Failed:      u.Failed,
				Replaceable: u.Failed,
			},
			TemplateDifferences: scale.TemplateDifferences{UpToDate: scale.ConditionTrue},
			Deleting:            u.Deleting,
			DeletingSince:       w.now,
			Updating:            u.Updating,
			MovedForUpdate:      u.MCM.HandedOver || u.ClusterAPI.Moved,
			ClusterAPI: scale.ClusterAPIMember{
				UpdateDue: u.Updating && !u.hasUpdateBegun && (!u.ClusterAPI.Moved || g.acknowledgesMachine(u)) && w.isClusterAPI,
			},
			Joined:   u.MCM.NodeName != "",
			Priority: u.Priority,
			Phase:    "Running",
		}
		switch {
		case u.Available:
			m.NodeState, m.Ready, m.ReadySince = scale.NodeHealthy, scale.ConditionTrue, u.CreatedAt
		case u.MCM.NodeName != "":
			m.NodeState, m.Ready = scale.NodeUnhealthy, scale.ConditionFalse
		default:
			m.Ready = scale.ConditionFalse
		}
		o.Members = append(o.Members, m)
	}
	return o
}

// servingMachineCount returns the number of available machines. OnDelete guarantees only that a new template deletes no
// machine. With OnDelete, servingMachineCount includes all machines that have not failed, and machines that the current
// set will create.
func (w *rolloutSimulation) servingMachineCount() int {
	n := 0
	for _, g := range w.sets {
		here, onDelete := 0, w.spec.Strategy == rollout.OnDelete
		for _, u := range g.machines {
			if u.Available || onDelete && !u.Deleting && !u.Failed {
				here++
			}
		}
		if onDelete && g.template == w.template && !g.ScaleUpDisabled {
			here = max(here, g.Replicas)
		}
		n += here
	}
	return n
}

// existingMachineCount returns the number of machines that count against replicas plus surge. Machines that are being
// deleted count, unless IgnoresDeletingMachines is true. A machine whose set creates a replacement early does not
// count.
func (w *rolloutSimulation) existingMachineCount() int {
	n := 0
	for _, g := range w.sets {
		for _, u := range g.machines {
			if !u.isReplacedEarly && (!u.Deleting || !w.spec.IgnoresDeletingMachines) {
				n++
			}
		}
	}
	return n
}

// possibleMachineCount returns the number of machines that exist or may be created without another decision of the
// rollout.
func (w *rolloutSimulation) possibleMachineCount() int {
	n := w.deletingMachineCount()
	for _, g := range w.sets {
		live := g.liveMachineCount()
		if g.pendingDecision != nil {
			live += len(g.pendingDecision.Create)
		}
		n += max(live, g.Replicas)
	}
	return n
}

// liveMachineCount counts machines that are not being deleted.
func (g *simulatedSet) liveMachineCount() int {
	n := 0
	for _, u := range g.machines {
		if !u.Deleting {
			n++
		}
	}
	return n
}

// updateBounds applies the bounds of the current spec. A looser bound applies at once. A stricter bound applies as soon
// as the machines satisfy it.
func (w *rolloutSimulation) updateBounds() {
	surge, unavailable := rollout.SurgeAndUnavailable(w.spec)
	limit, floor := w.spec.Replicas+surge, w.spec.Replicas-unavailable
	if w.isOnlyScaling() {
		limit += w.deletingMachineCount() // without a rollout, sizes follow spec.replicas at once
	}
	if w.spec.Strategy == rollout.Recreate {
		floor = 0 // Recreate does not guarantee availability
	}
	if w.maxMachines = max(w.maxMachines, limit); w.pendingDecision == nil && w.possibleMachineCount() <= limit {
		w.maxMachines = limit
	}
	if w.minServingMachines = min(w.minServingMachines, floor); w.servingMachineCount() >= floor && w.isSettled() {
		w.minServingMachines = floor
	}
}

// targetTemplate returns the template that the machines will have, which is the deployment's template or, while a pin
// is in force, an old template.
func (w *rolloutSimulation) targetTemplate() string {
	if pin := w.lastDecision.Pin; pin != nil {
		if g := w.setByName(pin.Set); g != nil {
			return g.template
		}
	}
	return w.template
}

// isOnlyScaling reports whether the number of machines is the only possible difference from the spec.
func (w *rolloutSimulation) isOnlyScaling() bool {
	for _, g := range w.sets {
		if g.template != w.targetTemplate() && (g.Replicas > 0 || len(g.machines) > 0) {
			return false
		}
	}
	return len(w.spec.ReportedStatus.Conditions) > 1 &&
		w.spec.ReportedStatus.Conditions[1].Reason == "NewMachineSetAvailable"
}

// deletingMachineCount returns the number of machines that are being deleted and count against replicas plus surge.
func (w *rolloutSimulation) deletingMachineCount() int {
	n := 0
	for _, g := range w.sets {
		if !w.spec.IgnoresDeletingMachines {
			n += len(g.machines) - g.liveMachineCount()
		}
	}
	return n
}

// isSettled reports whether no set has a machine to delete and no decision is pending.
func (w *rolloutSimulation) isSettled() bool {
	for _, g := range w.sets {
		if g.liveMachineCount() > g.Replicas || g.pendingDecision != nil || g.ObservedReplicas != g.Replicas {
			return false
		}
	}
	return w.pendingDecision == nil
}

// recentLossCount returns the number of machines that failed or that people deleted within the last seconds. A decision
// that is executed now may be older than the recent losses.
func (w *rolloutSimulation) recentLossCount() int {
	n := 0
	for _, t := range w.failureTimes {
		if w.now.Sub(t) < 15*time.Second {
			n++
		}
	}
	for _, t := range w.removalTimes {
		if w.now.Sub(t) < 6*time.Second {
			n++
		}
	}
	return n
}

// wasResizeForcedRecently reports whether a Forced resize was written within the last 15 s.
func (w *rolloutSimulation) wasResizeForcedRecently() bool {
	return w.forcedResizeCount > 0 && w.now.Sub(w.forcedResizeTime) < 15*time.Second
}

// recordBrokenInvariant records the first broken invariant.
func (w *rolloutSimulation) recordBrokenInvariant(format string, values ...any) {
	if w.brokenInvariant == "" {
		w.brokenInvariant = fmt.Sprintf("%s: %s;%s", w.now.Sub(epoch), fmt.Sprintf(format, values...), w.stateLine())
	}
}

// checkServingMachines records a broken invariant if a decision left too few serving machines. Machines that failed or
// that people deleted are not counted against the decision.
func (w *rolloutSimulation) checkServingMachines(before int, act string) {
	if n := w.servingMachineCount(); n < before && n+w.recentLossCount() < w.minServingMachines &&
		!w.wasResizeForcedRecently() {
		w.recordBrokenInvariant("%s: %d serve, %d did, %d have to", act, n, before, w.minServingMachines)
	}
}

// checkMaxMachines records a broken invariant if there are too many machines.
func (w *rolloutSimulation) checkMaxMachines(after string) {
	if n := w.existingMachineCount(); n > w.maxMachines {
		w.recordBrokenInvariant("after %s: %d machines, %d allowed", after, n, w.maxMachines)
	}
	w.updateBounds()
}
