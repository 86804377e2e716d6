package rollout_test

import (
	"fmt"
	"slices"
	"time"

	"millwright/decide/rollout"
	"millwright/decide/scale"
)

// unit is a machine of the world.
type unit struct {
	rollout.Member
	readyAt  time.Time
	goneAt   time.Time
	doomed   bool // it fails instead of becoming ready
	replaced bool // its set makes another one before it is gone: it had failed, or a person deleted it
	begun    bool // its update in place by an extension has begun
}

// group is a set of the world with a workflow of its own: it looks, and acts on what it saw at its next turn.
type group struct {
	rollout.Set
	template string
	intent   int // size that its workflow acts on
	units    []*unit
	saw      *scale.Decision

	generation, reported int // of the spec, and the one that its status shows
	former               int // its size when its status last showed its generation
}

// coarse returns what the status of a set of Cluster API tells: whether it has seen its generation, but not which size
// it has acted on. Source: seen() and set() of observe/capi/deployment.
func (g *group) coarse(s rollout.Set) rollout.Set {
	if s.ActedOn = s.Replicas; g.reported < g.generation {
		s.ActedOn = g.former
	}
	if g.live() > s.Replicas {
		for i := range s.Machines {
			s.Machines[i].Unhealthy = false
		}
	}
	return s
}

// world is a small cluster in which rollout.Decide and scale.Decide run a deployment. Its promises are checked after
// every action.
type world struct {
	dice     dice
	now      time.Time
	spec     rollout.Observed // what is wanted
	template string
	edited   int   // how often the deployment was changed
	decided  int   // and when the last decision was made
	approved int64 // the revision that spec.Approved is about
	sets     []*group
	names    int
	made     int
	create   func() time.Duration
	remove   func() time.Duration
	doom     func() bool
	asCAPI   bool                  // the sets are those of Cluster API
	stale    bool                  // a decision may be carried out after others have acted
	answers  func() rollout.Answer // what an extension says about a set
	people   int                   // somebody does what is left to people in one of so many turns; zero: never
	saw      *rollout.Decision

	said     []string
	broken   string      // the first promise that was broken
	limit    int         // machines that may exist
	floor    int         // machines that have to serve
	failures []time.Time // of machines, by themselves
	lost     []time.Time // machines that people took away
	forced   int
	forcedAt time.Time
	last     rollout.Decision
}

func newWorld(seed uint64, spec rollout.Observed) *world {
	w := &world{
		dice: dice(seed), now: epoch, spec: spec, template: "v1",
		create: func() time.Duration { return 2 * time.Second }, remove: func() time.Duration { return time.Second },
		doom: func() bool { return false },
	}
	w.bound()
	return w
}

// observe is what the deployment's activity would read.
func (w *world) observe() rollout.Observed {
	o := w.spec
	o.Now, o.Sets, o.Approved = w.now, nil, 0
	for _, g := range w.sets {
		s := g.Set
		if s.Current = g.template == w.template; s.Current && s.Revision == w.approved {
			o.Approved = w.spec.Approved
		}
		s.Machines = nil
		for _, u := range g.units {
			m := u.Member
			m.ClusterAPI.Unacknowledged = u.ClusterAPI.Moved && !g.acknowledges(u)
			s.Machines = append(s.Machines, m)
		}
		if w.asCAPI {
			s = g.coarse(s)
		}
		o.Sets = append(o.Sets, s)
	}
	return o
}

// roll takes one turn of the rollout: it decides, and carries that out at once or at its next turn.
func (w *world) roll() {
	if w.saw == nil {
		o := w.observe()
		d := rollout.Decide(o)
		w.saw, w.last, w.decided = &d, d, w.edited
		w.heed(o, d)
		if w.stale && w.dice.oneIn(2) {
			return
		}
	}
	d := *w.saw
	w.saw = nil
	before := w.serving()
	w.carryOut(d)
	w.charge(before, "rollout: "+d.Why)
	status := rollout.Report(w.observe())
	w.spec.Reported = status
	w.check("rollout: " + d.Why)
}

func (w *world) group(uid, version string) *group {
	for _, g := range w.sets {
		if g.UID == uid && (version == "" || version == g.Version) {
			return g
		}
	}
	return nil // gone, or changed since: the write would be refused
}

func (g *group) write() { g.Version += "+" }

func (w *world) carryOut(d rollout.Decision) {
	if d.Create != nil && w.decided == w.edited {
		w.addSet(w.template, *d.Create)
	}
	if d.Record != nil {
		w.spec.Progress = w.spec.Progress.Recorded(*d.Record)
	}
	for _, t := range d.AllowScaleUp {
		if g := w.group(t.UID, t.Version); g != nil {
			g.NoScaleUp = false
			g.write()
		}
	}
	for _, t := range d.ForbidScaleUp {
		if g := w.group(t.UID, t.Version); g != nil {
			g.NoScaleUp = true
			g.write()
		}
	}
	if d.Revise != nil {
		if g := w.group(d.Revise.UID, d.Revise.Version); g != nil {
			g.Revision, g.History = d.Revise.Revision, d.Revise.History
			g.write()
		}
	}
	for _, r := range d.Resize {
		g := w.group(r.UID, r.Version)
		if g == nil {
			return // the others are decided again as well
		}
		if r.From != r.To {
			w.tell("resize %s %d→%d", g.Name, r.From, r.To)
		}
		if r.Forced {
			w.forced, w.forcedAt = w.forced+1, w.now
		}
		if g.reported == g.generation {
			g.former = g.Replicas
		}
		g.Replicas, g.Desired, g.Max, g.ClusterAPI.Transfer = r.To, r.Desired, r.Max, r.Transfer
		g.generation++
		g.write()
	}
	for _, t := range d.Delete {
		if g := w.group(t.UID, t.Version); g != nil && len(g.units) == 0 {
			w.sets = slices.DeleteFunc(w.sets, func(x *group) bool { return x == g })
		}
	}
	w.ask(d.Ask)
	w.atMachines(d)
}

func (w *world) addSet(template string, c rollout.Creation) *group {
	w.names++
	name := fmt.Sprintf("ms%d", w.names)
	g := &group{template: template, generation: 1, Set: rollout.Set{
		Name: name, UID: "uid-" + name, Version: "1", Created: w.now.Add(time.Duration(w.names)), Replicas: c.Replicas,
		Revision: c.Revision, Desired: c.Desired, Max: c.Max,
	}}
	w.sets = append(w.sets, g)
	w.tell("create %s with %d", name, c.Replicas)
	return g
}

// atMachines does what is decided about machines and nodes.
func (w *world) atMachines(d rollout.Decision) {
	each := func(list []rollout.Target, do func(*unit)) {
		for _, t := range list {
			if u := w.unit(t.UID); u != nil && !u.Deleting {
				do(u)
			}
		}
	}
	each(d.Candidates, func(u *unit) { u.MCM.Candidate, u.MCM.UpdateLabels = true, true })
	each(d.Select, w.update)
	each(d.FinishUpdate, func(u *unit) { u.MCM.Candidate, u.MCM.UpdateLabels, u.MCM.Updated = false, false, false })
	each(d.ClearUpdateLabels, func(u *unit) { u.MCM.Candidate, u.MCM.UpdateLabels = false, false })
	each(d.ClearUpdateResult, func(u *unit) { u.MCM.HandedOver = false })
	each(d.Taint, func(u *unit) { u.MCM.Tainted = true })
	each(d.Untaint, func(u *unit) { u.MCM.Tainted = false })
	each(d.ProtectFromAutoscaler, func(u *unit) { u.MCM.Guard, u.MCM.Guarded = "true", true })
	each(d.UnprotectFromAutoscaler, func(u *unit) { u.MCM.Guard, u.MCM.Guarded = "", false })
	for _, move := range d.Move {
		from, to, u := w.group(w.owner(move.Machine.UID), ""), w.group(move.ToUID, ""), w.unit(move.Machine.UID)
		if u == nil || to == nil || u.Deleting {
			continue
		}
		from.units = slices.DeleteFunc(from.units, func(x *unit) bool { return x == u })
		to.units = append(to.units, u)
		u.MCM.HandedOver = true
		w.tell("hand %s to %s", u.Name, to.Name)
	}
}

// update begins the in-place update of a machine: meanwhile it does not serve.
func (w *world) update(u *unit) {
	u.Updating, u.Available, u.Ready = true, false, false
	u.readyAt = w.now.Add(w.create())
	w.tell("select %s", u.Name)
}

func (w *world) unit(uid string) *unit {
	for _, g := range w.sets {
		for _, u := range g.units {
			if u.UID == uid {
				return u
			}
		}
	}
	return nil
}

func (w *world) owner(uid string) string {
	for _, g := range w.sets {
		if slices.ContainsFunc(g.units, func(u *unit) bool { return u.UID == uid }) {
			return g.UID
		}
	}
	return ""
}
