// Package simulate predicts what a rollout will do: it carries out the decisions of decide/rollout in a simulated
// cluster without failures.
package simulate

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
)

// longestPlan is the largest number of steps in a plan.
const longestPlan = 500

// Foreseen is a predicted step.
type Foreseen struct {
	Step  string // what would be done, in one sentence
	Sizes []Size // the sizes afterwards, from the oldest set to the newest, without sets of size zero
}

// Size is the predicted size of a set.
type Size struct {
	Set      string
	Replicas int
	Current  bool
}

// Plan returns the steps that a rollout would take from here if every machine came and went at once. It ignores a pause
// and a hold, and says this in the first step.
func Plan(o rollout.Observed) []Foreseen {
	var plan []Foreseen
	if why := o.Stopped(); why != "" {
		plan = append(plan, Foreseen{Step: why + "; these steps follow when it resumes"})
	}
	o.Paused, o.Held, o.Automatic, o.Deadline = false, "", rollout.AutoRollback{}, nil
	Run(o, 0, 0, longestPlan, func(d rollout.Decision, after rollout.Observed) {
		resized := slices.ContainsFunc(d.Resize, func(r rollout.Resize) bool { return r.From != r.To })
		switch {
		case d.Rollback != nil:
			plan = append(plan, Foreseen{Step: d.Why})
		case d.Create != nil, len(d.Move)+len(d.Select)+len(d.Delete) > 0, resized, !d.Acts():
			plan = append(plan, Foreseen{Step: d.Why, Sizes: sizes(after)})
		}
	})
	return plan
}

func sizes(o rollout.Observed) []Size {
	wanted := list.Where(o.Sorted().Sets, func(s rollout.Set) bool { return s.Replicas > 0 })
	return list.Map(wanted, func(s rollout.Set) Size { return Size{s.Name, s.Replicas, s.Current} })
}

// Ideal returns how long a rollout takes if decisions cost no time. A machine becomes available create after its
// creation began, and disappears remove after its deletion began. No system can be faster under the same promises. The
// second result is false if the rollout does not complete.
func Ideal(o rollout.Observed, create, remove time.Duration) (time.Duration, bool) {
	return IdealOf(o, func() time.Duration { return create }, remove)
}

// IdealOf is Ideal for machines whose creations take different times. IdealOf calls create once for each new machine.
func IdealOf(o rollout.Observed, create func() time.Duration, remove time.Duration) (time.Duration, bool) {
	o.Automatic, o.Deadline = rollout.AutoRollback{}, nil
	return run(o, create, remove, 100*longestPlan, func(rollout.Decision, rollout.Observed) {})
}

// Run carries out decisions, at most so many, until nothing is left to do or a template is rolled back. Machines become
// available and disappear as in Ideal. Steps that need approval are approved at once. Run calls done after each
// decision, with the facts after it. It returns the time that passed, and whether the rollout is complete.
func Run(
	o rollout.Observed,
	create, remove time.Duration,
	most int,
	done func(d rollout.Decision, after rollout.Observed),
) (time.Duration, bool) {
	return run(o, func() time.Duration { return create }, remove, most, done)
}

func run(
	o rollout.Observed,
	create func() time.Duration,
	remove time.Duration,
	most int,
	done func(d rollout.Decision, after rollout.Observed),
) (time.Duration, bool) {
	c := newCluster(o, create, remove)
	for range most {
		d := rollout.Decide(c.Observed)
		switch {
		case d.Complete && !d.Acts():
			return c.Now.Sub(o.Now), true
		case d.Rollback != nil:
			done(d, c.Observed)
			return c.Now.Sub(o.Now), false
		case d.Acts():
			c.do(d)
		case d.Pause != nil && d.Pause.Approve:
			c.Approved = d.Pause.Step + 1
		case !c.next(d.Recheck):
			return c.Now.Sub(o.Now), false
		}
		done(d, c.Observed)
	}
	return c.Now.Sub(o.Now), false
}

// cluster is a simulated cluster without failures: each machine comes after create() and goes after remove.
type cluster struct {
	rollout.Observed
	create      func() time.Duration // until a machine is available; called once for each machine
	remove      time.Duration        // until a deleted machine is gone
	ready, gone map[string]time.Time
	made        int
}

func newCluster(o rollout.Observed, create func() time.Duration, remove time.Duration) *cluster {
	c := &cluster{o.Sorted(), create, remove, map[string]time.Time{}, map[string]time.Time{}, 0}
	for i := range c.Sets {
		s := &c.Sets[i]
		s.ActedOn, s.Counted, s.Drift = s.Replicas, 0, false
		for _, m := range s.Machines {
			switch {
			case m.Deleting:
				c.gone[m.UID] = o.Now.Add(remove)
			case !m.Available:
				c.ready[m.UID] = o.Now.Add(create())
			}
		}
	}
	c.advance()
	return c
}

// do carries out a decision.
func (c *cluster) do(d rollout.Decision) {
	if d.Create != nil {
		c.made++
		id, created := "set-"+strconv.Itoa(c.made), c.Now
		for _, s := range c.Sets {
			if !s.Created.Before(created) {
				created = s.Created.Add(1)
			}
		}
		c.Sets = append(c.Sets, rollout.Set{
			Name: "(new)", UID: id, Created: created, Current: true, Replicas: d.Create.Replicas,
			ActedOn: d.Create.Replicas, Revision: d.Create.Revision, Desired: d.Create.Desired, Max: d.Create.Max,
		})
	}
	for i := range c.Sets {
		s := &c.Sets[i]
		for _, r := range d.Resize {
			if r.UID == s.UID {
				s.Replicas, s.ActedOn, s.Desired, s.Max = r.To, r.To, r.Desired, r.Max
			}
		}
		s.NoScaleUp = s.NoScaleUp && !has(d.AllowScaleUp, s.UID) || has(d.ForbidScaleUp, s.UID)
		s.Drift = s.Drift && !has(d.Sync, s.UID)
		if d.Revise != nil && d.Revise.UID == s.UID {
			s.Revision, s.History = d.Revise.Revision, d.Revise.History
		}
	}
	c.Sets = slices.DeleteFunc(c.Sets, func(s rollout.Set) bool { return has(d.Delete, s.UID) || has(d.Release, s.UID) })
	if d.Record != nil {
		c.Progress = c.Progress.Recorded(*d.Record)
	}
	if d.Trigger != nil {
		c.MCM.Trigger = d.Trigger.Apply(c.MCM.Trigger)
	}
	c.handOver(d)
	c.advance()
}

func has(targets []rollout.Target, uid string) bool {
	return slices.ContainsFunc(targets, func(t rollout.Target) bool { return t.UID == uid })
}

// handOver carries out a decision's changes to machines and nodes.
func (c *cluster) handOver(d rollout.Decision) {
	moves := func(m rollout.Member) bool {
		return slices.ContainsFunc(d.Move, func(move rollout.Move) bool { return move.Machine.UID == m.UID })
	}
	var moved []rollout.Member
	for i := range c.Sets {
		s := &c.Sets[i]
		for j := range s.Machines {
			m := &s.Machines[j]
			c.touch(d, m)
			if moves(*m) {
				m.MCM.HandedOver = true
				moved = append(moved, *m)
			}
		}
		s.Machines = slices.DeleteFunc(s.Machines, moves)
	}
	for i := range c.Sets {
		if s := &c.Sets[i]; len(d.Move) > 0 && s.UID == d.Move[0].ToUID {
			s.Machines = append(s.Machines, moved...)
		}
	}
}

// touch carries out a decision's changes to one machine and its node.
func (c *cluster) touch(d rollout.Decision, m *rollout.Member) {
	m.MCM.Candidate = m.MCM.Candidate || has(d.Candidates, m.UID)
	m.MCM.Tainted = (m.MCM.Tainted || has(d.Taint, m.UID)) && !has(d.Untaint, m.UID)
	m.MCM.HandedOver = m.MCM.HandedOver && !has(d.ClearUpdateResult, m.UID)
	for _, mark := range d.Mark {
		if mark.UID == m.UID {
			m.Priority, m.MCM.MarkedAt = vocabulary.PriorityChosen, mark.At
		}
	}
	if has(d.Unmark, m.UID) {
		m.Priority, m.MCM.MarkedAt = vocabulary.PriorityDefault, ""
	}
	switch {
	case has(d.ProtectFromAutoscaler, m.UID):
		m.MCM.Guard, m.MCM.Guarded = "true", true
	case has(d.UnprotectFromAutoscaler, m.UID):
		m.MCM.Guard, m.MCM.Guarded = "", false
	}
	switch {
	case has(d.FinishUpdate, m.UID), has(d.ClearUpdateLabels, m.UID):
		m.MCM.UpdateLabels, m.MCM.Updated, m.MCM.Candidate = false, false, false
	case has(d.Select, m.UID):
		m.Updating, m.Available, m.MCM.UpdateLabels = true, false, true
		c.ready[m.UID] = c.Now.Add(c.create())
	}
}

// advance lets machines and sets change by themselves up to the present time.
func (c *cluster) advance() {
	for i := range c.Sets {
		s := &c.Sets[i]
		c.scale(s)
		for j := range s.Machines {
			m := &s.Machines[j]
			if at, waits := c.ready[m.UID]; waits && !m.Deleting && !c.Now.Before(at) {
				m.Available, m.Ready, m.Unhealthy, m.Failed = true, true, false, false
				if m.Updating {
					m.Updating, m.MCM.Updated = false, true
				}
				delete(c.ready, m.UID)
			}
		}
		s.Machines = slices.DeleteFunc(
			s.Machines,
			func(m rollout.Member) bool { return m.Deleting && !c.Now.Before(c.gone[m.UID]) },
		)
	}
}

// scale creates or deletes machines of a set: those that are not available first, then the youngest.
func (c *cluster) scale(s *rollout.Set) {
	var active []*rollout.Member
	for i := range s.Machines {
		if m := &s.Machines[i]; !m.Deleting {
			active = append(active, m)
		}
	}
	slices.SortStableFunc(active, func(a, b *rollout.Member) int {
		return cmp.Or(
			list.FalseFirst(a.Available, b.Available),
			list.FalseFirst(a.MCM.HandedOver, b.MCM.HandedOver),
			b.Created.Compare(a.Created),
		)
	})
	for _, m := range active[:max(len(active)-s.Replicas, 0)] {
		m.Deleting, m.Available, m.Ready = true, false, false
		c.gone[m.UID] = c.Now.Add(c.remove)
	}
	for n := len(active); n < s.Replicas && !s.NoScaleUp; n++ {
		c.made++
		id := "machine-" + strconv.Itoa(c.made)
		s.Machines = append(s.Machines, rollout.Member{
			Name:      id,
			UID:       id,
			MCM:       rollout.MCMMember{Node: id},
			Priority:  vocabulary.PriorityDefault,
			Unhealthy: true,
			Created:   c.Now.Add(time.Duration(c.made)),
		})
		c.ready[id] = c.Now.Add(c.create())
	}
}

// next advances the time to the next event, or to until if until is earlier and not zero. It reports whether there was
// such a time.
func (c *cluster) next(until time.Time) bool {
	for _, times := range []map[string]time.Time{c.ready, c.gone} {
		for _, at := range times {
			if at.After(c.Now) && (until.IsZero() || at.Before(until)) {
				until = at
			}
		}
	}
	if until.IsZero() {
		return false
	}
	c.Now = phrase.Later(until, c.Now)
	c.advance()
	return true
}
