// Package rollout answers what a deployment has to do next with its sets, and what its status says meanwhile: which set to
// make, how big each shall be, what to do at nodes, what a stage waits for, when to give up or to be content. Scaling and
// rolling are one decision. The DecideDeployment activity and the one of a Rollout call it with what they read. It knows no
// API kind and changes nothing.
package rollout

import "strings"

// Decide takes the next step. What changes the template or has to be seen before sizes change stands alone; everything else
// goes together, so that a step costs one round. Never are there more places for machines than Replicas and surge, unless
// fewer became wanted; never does a step take available machines below Replicas less maxUnavailable, unless it is Forced, or the
// strategy is Recreate or OnDelete, which promise none. The same input gives the same output, in whatever order sets and machines stand.
func Decide(o Observed) Decision { return next(o) }

func next(o Observed) Decision {
	o = o.sorted()
	b := open(o)
	d := b.decide()
	if b.now != nil && d.Create == nil {
		d.Revision = b.revision()
	}
	return d
}

func (b *book) decide() Decision {
	o := b.o
	switch {
	case o.Deleting:
		return b.teardown()
	case o.Invalid != "":
		why := cut(o.Invalid, maxReason)
		return Decision{HoldBy: HeldByFault, Hold: why, Why: "hold: " + why}
	}
	if d, alone := b.alone(); alone {
		return d
	}
	return b.step()
}

// What holds a rollout, in one word.
const (
	HeldBy         = "Held" // somebody cancelled it
	HeldByPause    = "Paused"
	HeldByStage    = "Stage"
	HeldByMachines = "Machines"
	HeldByFault    = "Invalid" // nothing can be done with the deployment
)

// teardown deletes all sets of a deployment that is to go.
func (b *book) teardown() Decision {
	d := Decision{Done: len(b.o.Sets) == 0, Why: phrase("the deployment is being deleted, %d sets left", len(b.o.Sets))}
	for _, e := range b.sets[:min(len(b.sets), MaxBatch)] {
		d.Delete = append(d.Delete, e.target("the deployment is being deleted"))
	}
	if d.bound(); len(d.Delete) > 0 {
		d.Why = phrase("delete %d sets: the deployment is being deleted", len(d.Delete))
	}
	return d
}

// resize runs the strategy.
func (b *book) resize() {
	if b.o.stopped() != "" || b.now == nil {
		b.frozen()
		return
	}
	b.include()
	switch {
	case b.o.Strategy == Recreate:
		b.recreate()
	case b.o.Strategy == OnDelete:
		b.onDelete()
	case b.o.inPlace():
		b.updateInPlace()
	default:
		b.rolling()
	}
}

// step sizes the sets and does what goes with it.
func (b *book) step() Decision {
	p, gate := b.progress()
	b.resize()
	stopped := b.o.stopped()
	d := Decision{
		Rolling: b.underway() && b.now != nil, Pending: b.now == nil, Complete: b.complete(), Gate: gate, Late: b.late(), Recheck: b.due(),
	}
	d.Record = b.unrecorded(p)
	b.resizes(&d)
	if stopped == "" {
		b.handOver(&d)
	}
	b.taints(&d, stopped == "")
	b.guards(&d, stopped == "")
	if d.Complete || b.o.Paused {
		d.Delete = b.cleanup()
	}
	d.bound()
	if gate != nil && (d.Recheck.IsZero() || !gate.Until.IsZero() && gate.Until.Before(d.Recheck)) {
		d.Recheck = gate.Until
	}
	b.holds(&d, stopped)
	d.Why = b.sentence(d)
	return d
}

// holds says what the rollout waits for.
func (b *book) holds(d *Decision, stopped string) {
	switch {
	case b.o.Paused:
		d.HoldBy, d.Hold = HeldByPause, stopped
	case stopped != "":
		d.HoldBy, d.Hold = HeldBy, cut(stopped, maxReason)
	case d.Gate != nil:
		d.HoldBy, d.Hold = HeldByStage, d.Gate.says()
	case b.why != "" && len(d.Select)+len(d.Move) == 0:
		d.HoldBy, d.Hold = HeldByMachines, b.why
	}
}

// sentence tells the step.
func (b *book) sentence(d Decision) string {
	why := resizings(d.Resize)
	if n := len(d.Move); n > 0 {
		why = append(why, phrase("hand over %s", machines(n)))
	}
	if n := len(d.Select); n > 0 {
		why = append(why, phrase("select %s for the in-place update", machines(n)))
	}
	if n := len(d.Delete); n > 0 {
		why = append(why, phrase("delete %d old sets: %d are kept", n, *b.o.HistoryLimit))
	}
	switch {
	case len(why) > 0:
		return strings.Join(why, "; ")
	case d.Hold != "":
		return "hold: " + d.Hold
	case d.Complete:
		return phrase("%s wanted and there, all of revision %d", machines(b.o.Replicas), b.now.Revision)
	default:
		return phrase("%s wanted, %d available", machines(b.o.Replicas), b.available())
	}
}

// resizings tells of the sizes that change: as many as have room, and how many others there are.
func resizings(list []Resize) []string {
	var why []string
	room, others := maxSentence, 0
	for _, r := range list {
		if r.From == r.To {
			continue
		}
		text := phrase("resize set %s %d→%d: %s", r.Name, r.From, r.To, r.Why)
		if room -= len(text); room < 0 {
			others++
			continue
		}
		why = append(why, text)
	}
	if others > 0 {
		why = append(why, phrase("resize %d other sets", others))
	}
	return why
}
