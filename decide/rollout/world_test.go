package rollout_test

import (
	"fmt"
	"slices"
	"time"

	"millwright/decide/rollout"
	"millwright/decide/scale"
)

// simulatedMachine is a machine of the simulated cluster.
type simulatedMachine struct {
	rollout.Member
	readyTime       time.Time
	deletionEndTime time.Time
	willFail        bool // the machine fails instead of becoming ready
	isReplacedEarly bool // the set replaces the failed or manually deleted machine before it is gone
	hasUpdateBegun  bool // the in-place update by an extension has begun
}

// simulatedSet is a set of the simulation with its own workflow. The workflow makes a decision in one turn and executes
// the decision in its next turn.
type simulatedSet struct {
	rollout.MachineSet
	template        string
	intendedSize    int // size that the set's workflow acts on
	machines        []*simulatedMachine
	pendingDecision *scale.Decision

	generation, reportedGeneration int // generation of the spec, and observed generation in the status
	formerSize                     int // size when the status last showed the current generation
}

// withClusterAPIStatus returns the facts from the status of a Cluster API set. The status shows whether the set has
// observed its generation, but not the size that the set's workflow used. Source: seen() and set() of
// observe/capi/deployment.
func (g *simulatedSet) withClusterAPIStatus(s rollout.MachineSet) rollout.MachineSet {
	if s.ObservedReplicas = s.Replicas; g.reportedGeneration < g.generation {
		s.ObservedReplicas = g.formerSize
	}
	if g.liveMachineCount() > s.Replicas {
		for i := range s.Machines {
			s.Machines[i].Unhealthy = false
		}
	}
	return s
}

// rolloutSimulation is a small simulated cluster in which rollout.Decide and scale.Decide run a deployment. The
// simulation checks the invariants after every action.
type rolloutSimulation struct {
	random              randomSource
	now                 time.Time
	spec                rollout.Facts // the deployment's spec
	template            string
	editCount           int   // number of changes of the deployment
	editCountAtDecision int   // value of edits at the last decision
	approvedRevision    int64 // the revision that spec.Approved applies to
	sets                []*simulatedSet
	createdSetCount     int
	createdMachineCount int
	creationDuration    func() time.Duration
	deletionDuration    func() time.Duration
	newMachineFails     func() bool
	isClusterAPI        bool                           // the sets are Cluster API sets
	writesLate          bool                           // other actors may act between a decision and its writes
	extensionAnswer     func() rollout.ExtensionAnswer // an extension's answer about a set
	turnsPerUserAction  int                            // people act once in turnsPerUserAction turns; zero: never
	isBadTemplate       func(string) bool              // no machine of a bad template becomes ready
	pendingDecision     *rollout.Decision

	turnTexts          []string
	brokenInvariant    string      // the first broken invariant
	maxMachines        int         // maximum number of machines that may exist
	minServingMachines int         // minimum number of machines that servingMachineCount must return
	failureTimes       []time.Time // times of machine failures
	removalTimes       []time.Time // times at which people deleted or selected machines
	forcedResizeCount  int
	forcedResizeTime   time.Time
	lastDecision       rollout.Decision
}

func newSimulation(seed uint64, spec rollout.Facts) *rolloutSimulation {
	w := &rolloutSimulation{
		random:           randomSource(seed),
		now:              epoch,
		spec:             spec,
		template:         "v1",
		creationDuration: func() time.Duration { return 2 * time.Second },
		deletionDuration: func() time.Duration { return time.Second },
		newMachineFails:  func() bool { return false },
		isBadTemplate:    func(string) bool { return false },
	}
	w.updateBounds()
	return w
}

// observeDeployment returns the facts that the deployment's activity would read.
func (w *rolloutSimulation) observeDeployment() rollout.Facts {
	o := w.spec
	o.Now, o.Sets, o.ApprovedStepCount = w.now, nil, 0
	for _, g := range w.sets {
		s := g.MachineSet
		if s.Current = g.template == w.template; s.Current && s.Revision == w.approvedRevision {
			o.ApprovedStepCount = w.spec.ApprovedStepCount
		}
		s.Machines = nil
		for _, u := range g.machines {
			m := u.Member
			m.ClusterAPI.Unacknowledged = u.ClusterAPI.Moved && !g.acknowledgesMachine(u)
			s.Machines = append(s.Machines, m)
		}
		if w.isClusterAPI {
			s = g.withClusterAPIStatus(s)
		}
		o.Sets = append(o.Sets, s)
	}
	return o
}

// takeRolloutTurn takes one turn of the rollout. The rollout makes a decision, and executes the decision at once or in
// its next turn.
func (w *rolloutSimulation) takeRolloutTurn() {
	if w.pendingDecision == nil {
		o := w.observeDeployment()
		d := rollout.Decide(o)
		w.pendingDecision, w.lastDecision, w.editCountAtDecision = &d, d, w.editCount
		w.checkRequests(o, d)
		if w.writesLate && w.random.randomBoolOneIn(2) {
			return
		}
	}
	d := *w.pendingDecision
	w.pendingDecision = nil
	before := w.servingMachineCount()
	w.carryOutDecision(d)
	w.checkServingMachines(before, "rollout: "+d.Why)
	status := rollout.PlannedStatus(w.observeDeployment())
	w.spec.ReportedStatus = status
	w.checkMaxMachines("rollout: " + d.Why)
}

func (w *rolloutSimulation) setByUID(uid, version string) *simulatedSet {
	for _, g := range w.sets {
		if g.UID == uid && (version == "" || version == g.Version) {
			return g
		}
	}
	return nil // the set is gone or was changed, so that the API server would refuse the write
}

func (g *simulatedSet) bumpVersion() { g.Version += "+" }

func (w *rolloutSimulation) carryOutDecision(d rollout.Decision) {
	if d.Create != nil && w.editCountAtDecision == w.editCount {
		w.addSet(w.template, *d.Create)
	}
	if d.Record != nil {
		w.spec.Progress = w.spec.Progress.MergedWith(*d.Record)
	}
	for _, t := range d.AllowScaleUp {
		if g := w.setByUID(t.UID, t.Version); g != nil {
			g.ScaleUpDisabled = false
			g.bumpVersion()
		}
	}
	for _, t := range d.ForbidScaleUp {
		if g := w.setByUID(t.UID, t.Version); g != nil {
			g.ScaleUpDisabled = true
			g.bumpVersion()
		}
	}
	if d.Revise != nil {
		if g := w.setByUID(d.Revise.UID, d.Revise.Version); g != nil {
			g.Revision, g.History = d.Revise.Revision, d.Revise.History
			g.bumpVersion()
		}
	}
	for _, r := range d.Resize {
		g := w.setByUID(r.UID, r.Version)
		if g == nil {
			return // the next decision includes the other sizes
		}
		if r.From != r.To {
			w.appendTrace("resize %s %d→%d", g.Name, r.From, r.To)
		}
		if r.Forced {
			w.forcedResizeCount, w.forcedResizeTime = w.forcedResizeCount+1, w.now
		}
		if g.reportedGeneration == g.generation {
			g.formerSize = g.Replicas
		}
		g.Replicas, g.DesiredReplicas, g.MaxReplicas, g.ClusterAPI.Transfer = r.To, r.Desired, r.Max, r.Transfer
		g.generation++
		g.bumpVersion()
	}
	for _, t := range d.Delete {
		if g := w.setByUID(t.UID, t.Version); g != nil && len(g.machines) == 0 {
			w.sets = slices.DeleteFunc(w.sets, func(x *simulatedSet) bool { return x == g })
		}
	}
	w.recordExtensionAnswer(d.Ask)
	w.changeMachines(d)
}

func (w *rolloutSimulation) addSet(template string, c rollout.SetCreation) *simulatedSet {
	w.createdSetCount++
	name := fmt.Sprintf("ms%d", w.createdSetCount)
	g := &simulatedSet{template: template, generation: 1, MachineSet: rollout.MachineSet{
		Name:            name,
		UID:             "uid-" + name,
		Version:         "1",
		CreatedAt:       w.now.Add(time.Duration(w.createdSetCount)),
		Replicas:        c.Replicas,
		Revision:        c.Revision,
		DesiredReplicas: c.Desired,
		MaxReplicas:     c.Max,
	}}
	w.sets = append(w.sets, g)
	w.appendTrace("create %s with %d", name, c.Replicas)
	return g
}

// changeMachines carries out a decision's changes of machines and nodes.
func (w *rolloutSimulation) changeMachines(d rollout.Decision) {
	each := func(list []rollout.ObjectTarget, do func(*simulatedMachine)) {
		for _, t := range list {
			if u := w.machineByUID(t.UID); u != nil && !u.Deleting {
				do(u)
			}
		}
	}
	each(d.Candidates, func(u *simulatedMachine) { u.MCM.IsUpdateCandidate, u.MCM.HasUpdateLabels = true, true })
	each(d.Select, w.beginUpdate)
	each(
		d.FinishUpdate,
		func(u *simulatedMachine) {
			u.MCM.IsUpdateCandidate, u.MCM.HasUpdateLabels, u.MCM.Updated = false, false, false
		},
	)
	each(d.ClearUpdateLabels, func(u *simulatedMachine) { u.MCM.IsUpdateCandidate, u.MCM.HasUpdateLabels = false, false })
	each(d.ClearUpdateResult, func(u *simulatedMachine) { u.MCM.HandedOver = false })
	each(d.Taint, func(u *simulatedMachine) { u.MCM.NodeTainted = true })
	each(d.Untaint, func(u *simulatedMachine) { u.MCM.NodeTainted = false })
	each(d.ProtectFromAutoscaler, func(u *simulatedMachine) {
		u.MCM.ScaleDownDisabledValue, u.MCM.ScaleDownDisabledByMillwright = "true", true
	})
	each(d.UnprotectFromAutoscaler, func(u *simulatedMachine) {
		u.MCM.ScaleDownDisabledValue, u.MCM.ScaleDownDisabledByMillwright = "", false
	})
	for _, move := range d.Move {
		from, to, u := w.setByUID(
			w.ownerUID(move.Machine.UID),
			"",
		), w.setByUID(
			move.ToUID,
			"",
		), w.machineByUID(
			move.Machine.UID,
		)
		if u == nil || to == nil || u.Deleting {
			continue
		}
		from.machines = slices.DeleteFunc(from.machines, func(x *simulatedMachine) bool { return x == u })
		to.machines = append(to.machines, u)
		u.MCM.HandedOver = true
		w.appendTrace("hand %s to %s", u.Name, to.Name)
	}
}

// beginUpdate begins the in-place update of a machine. The machine is unavailable during the update.
func (w *rolloutSimulation) beginUpdate(u *simulatedMachine) {
	u.Updating, u.Available, u.Ready = true, false, false
	u.readyTime = w.now.Add(w.creationDuration())
	w.appendTrace("select %s", u.Name)
}

func (w *rolloutSimulation) machineByUID(uid string) *simulatedMachine {
	for _, g := range w.sets {
		for _, u := range g.machines {
			if u.UID == uid {
				return u
			}
		}
	}
	return nil
}

func (w *rolloutSimulation) ownerUID(uid string) string {
	for _, g := range w.sets {
		if slices.ContainsFunc(g.machines, func(u *simulatedMachine) bool { return u.UID == uid }) {
			return g.UID
		}
	}
	return ""
}
