// Package simulate predicts a rollout by executing the decisions of decide/rollout in a simulated cluster without
// failures.
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

// maxPlanSteps is the maximum number of steps in a plan.
const maxPlanSteps = 500

// PredictedStep is one step of a predicted rollout.
type PredictedStep struct {
	Action string             // action of the step, as one sentence
	Sizes  []PredictedSetSize // sizes after the step, from the oldest set to the newest, without sets of size 0
}

// PredictedSetSize is the predicted size of a set.
type PredictedSetSize struct {
	Set      string
	Replicas int
	Current  bool
}

// PredictSteps returns the steps of the rollout if each machine were created and deleted without delay. PredictSteps
// ignores a pause or a hold, and mentions it in the first step.
func PredictSteps(o rollout.Facts) []PredictedStep {
	var plan []PredictedStep
	if why := o.StopReason(); why != "" {
		plan = append(plan, PredictedStep{Action: why + "; these steps follow when it resumes"})
	}
	o.Paused, o.HoldReason, o.RollbackPolicy, o.ProgressDeadline = false, "", rollout.AutoRollback{}, nil
	Run(o, 0, 0, maxPlanSteps, func(d rollout.Decision, after rollout.Facts) {
		resized := slices.ContainsFunc(d.Resize, func(r rollout.SetResize) bool { return r.From != r.To })
		switch {
		case d.Rollback != nil:
			plan = append(plan, PredictedStep{Action: d.Why})
		case d.Create != nil, len(d.Move)+len(d.Select)+len(d.Delete) > 0, resized, !d.HasActions():
			plan = append(plan, PredictedStep{Action: d.Why, Sizes: predictedSetSizes(after)})
		}
	})
	return plan
}

func predictedSetSizes(o rollout.Facts) []PredictedSetSize {
	wanted := list.Filter(o.SortedCopy().Sets, func(s rollout.MachineSet) bool { return s.Replicas > 0 })
	return list.Map(
		wanted,
		func(s rollout.MachineSet) PredictedSetSize { return PredictedSetSize{s.Name, s.Replicas, s.Current} },
	)
}

// IdealDuration returns the duration of a rollout if decisions took no time. A machine becomes available after the
// duration create, and is gone after the duration remove. With the same limits for surge and unavailable machines, no
// implementation can be faster. The second result is false if the rollout does not complete.
func IdealDuration(o rollout.Facts, create, remove time.Duration) (time.Duration, bool) {
	return IdealDurationOfMachines(o, func() time.Duration { return create }, remove)
}

// IdealDurationOfMachines is IdealDuration for machines whose creations take different times. IdealDurationOfMachines
// calls create once for each new machine.
func IdealDurationOfMachines(o rollout.Facts, create func() time.Duration, remove time.Duration) (time.Duration, bool) {
	o.RollbackPolicy, o.ProgressDeadline = rollout.AutoRollback{}, nil
	return runDecisions(o, create, remove, 100*maxPlanSteps, func(rollout.Decision, rollout.Facts) {})
}

// Run executes at most `most` decisions. Run returns earlier if nothing is left to do or a template is rolled back.
// Machines become available and disappear after the durations of IdealDuration. Steps that need approval are approved
// at once. After each decision, Run calls done with the new facts. Run returns the simulated time that passed, and
// whether the rollout is complete.
func Run(
	o rollout.Facts,
	create, remove time.Duration,
	most int,
	done func(d rollout.Decision, after rollout.Facts),
) (time.Duration, bool) {
	return runDecisions(o, func() time.Duration { return create }, remove, most, done)
}

func runDecisions(
	o rollout.Facts,
	create func() time.Duration,
	remove time.Duration,
	most int,
	done func(d rollout.Decision, after rollout.Facts),
) (time.Duration, bool) {
	c := newSimulatedCluster(o, create, remove)
	for range most {
		d := rollout.Decide(c.Facts)
		switch {
		case d.Complete && !d.HasActions():
			return c.Now.Sub(o.Now), true
		case d.Rollback != nil:
			done(d, c.Facts)
			return c.Now.Sub(o.Now), false
		case d.HasActions():
			c.carryOutDecision(d)
		case d.Pause != nil && d.Pause.Approve:
			c.ApprovedStepCount = d.Pause.Step + 1
		case !c.advanceToNextEvent(d.Recheck):
			return c.Now.Sub(o.Now), false
		}
		done(d, c.Facts)
	}
	return c.Now.Sub(o.Now), false
}

// simulatedCluster is a simulated cluster without failures. Each machine is available after creationDuration() and gone
// after deletionDuration.
type simulatedCluster struct {
	rollout.Facts
	creationDuration              func() time.Duration // time until a machine is available; called once for each machine
	deletionDuration              time.Duration        // time until a deleted machine is gone
	readyTimeByUID, goneTimeByUID map[string]time.Time
	createdObjectCount            int
}

func newSimulatedCluster(o rollout.Facts, create func() time.Duration, remove time.Duration) *simulatedCluster {
	o.Turns = rollout.Turns{} // other deployments are not simulated
	c := &simulatedCluster{o.SortedCopy(), create, remove, map[string]time.Time{}, map[string]time.Time{}, 0}
	for i := range c.Sets {
		s := &c.Sets[i]
		s.ObservedReplicas, s.StatusMachineCount, s.Drifted = s.Replicas, 0, false
		for _, m := range s.Machines {
			switch {
			case m.Deleting:
				c.goneTimeByUID[m.UID] = o.Now.Add(remove)
			case !m.Available:
				c.readyTimeByUID[m.UID] = o.Now.Add(create())
			}
		}
	}
	c.applyElapsedTime()
	return c
}

// carryOutDecision carries out a decision.
func (c *simulatedCluster) carryOutDecision(d rollout.Decision) {
	if d.Create != nil {
		c.createdObjectCount++
		id, created := "set-"+strconv.Itoa(c.createdObjectCount), c.Now
		for _, s := range c.Sets {
			if !s.CreatedAt.Before(created) {
				created = s.CreatedAt.Add(1)
			}
		}
		c.Sets = append(c.Sets, rollout.MachineSet{
			Name:             "(new)",
			UID:              id,
			CreatedAt:        created,
			Current:          true,
			Replicas:         d.Create.Replicas,
			ObservedReplicas: d.Create.Replicas,
			Revision:         d.Create.Revision,
			DesiredReplicas:  d.Create.Desired,
			MaxReplicas:      d.Create.Max,
		})
	}
	for i := range c.Sets {
		s := &c.Sets[i]
		for _, r := range d.Resize {
			if r.UID == s.UID {
				s.Replicas, s.ObservedReplicas, s.DesiredReplicas, s.MaxReplicas = r.To, r.To, r.Desired, r.Max
			}
		}
		s.ScaleUpDisabled = s.ScaleUpDisabled && !containsUID(d.AllowScaleUp, s.UID) || containsUID(d.ForbidScaleUp, s.UID)
		s.Drifted = s.Drifted && !containsUID(d.Sync, s.UID)
		if d.Revise != nil && d.Revise.UID == s.UID {
			s.Revision, s.History = d.Revise.Revision, d.Revise.History
		}
	}
	c.Sets = slices.DeleteFunc(
		c.Sets,
		func(s rollout.MachineSet) bool { return containsUID(d.Delete, s.UID) || containsUID(d.Release, s.UID) },
	)
	if d.Record != nil {
		c.Progress = c.Progress.MergedWith(*d.Record)
	}
	if d.Trigger != nil {
		c.MCM.TriggerAnnotation = d.Trigger.Apply(c.MCM.TriggerAnnotation)
	}
	c.changeMachines(d)
	c.applyElapsedTime()
}

func containsUID(targets []rollout.ObjectTarget, uid string) bool {
	return slices.ContainsFunc(targets, func(t rollout.ObjectTarget) bool { return t.UID == uid })
}

// changeMachines carries out a decision's changes of machines and nodes.
func (c *simulatedCluster) changeMachines(d rollout.Decision) {
	moves := func(m rollout.Member) bool {
		return slices.ContainsFunc(d.Move, func(move rollout.MachineMove) bool { return move.Machine.UID == m.UID })
	}
	var moved []rollout.Member
	for i := range c.Sets {
		s := &c.Sets[i]
		for j := range s.Machines {
			m := &s.Machines[j]
			c.changeMachine(d, m)
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

// changeMachine carries out a decision's changes of one machine and its node.
func (c *simulatedCluster) changeMachine(d rollout.Decision, m *rollout.Member) {
	m.MCM.IsUpdateCandidate = m.MCM.IsUpdateCandidate || containsUID(d.Candidates, m.UID)
	m.MCM.NodeTainted = (m.MCM.NodeTainted || containsUID(d.Taint, m.UID)) && !containsUID(d.Untaint, m.UID)
	m.MCM.HandedOver = m.MCM.HandedOver && !containsUID(d.ClearUpdateResult, m.UID)
	for _, mark := range d.Mark {
		if mark.UID == m.UID {
			m.Priority, m.MCM.MarkedAt = vocabulary.PriorityChosenByAutoscaler, mark.At
		}
	}
	if containsUID(d.Unmark, m.UID) {
		m.Priority, m.MCM.MarkedAt = vocabulary.PriorityDefault, ""
	}
	switch {
	case containsUID(d.ProtectFromAutoscaler, m.UID):
		m.MCM.ScaleDownDisabledValue, m.MCM.ScaleDownDisabledByMillwright = "true", true
	case containsUID(d.UnprotectFromAutoscaler, m.UID):
		m.MCM.ScaleDownDisabledValue, m.MCM.ScaleDownDisabledByMillwright = "", false
	}
	switch {
	case containsUID(d.FinishUpdate, m.UID), containsUID(d.ClearUpdateLabels, m.UID):
		m.MCM.HasUpdateLabels, m.MCM.Updated, m.MCM.IsUpdateCandidate = false, false, false
	case containsUID(d.Select, m.UID):
		m.Updating, m.Available, m.MCM.HasUpdateLabels = true, false, true
		c.readyTimeByUID[m.UID] = c.Now.Add(c.creationDuration())
	}
}

// applyElapsedTime applies the changes of machines and sets that are due at the current simulated time.
func (c *simulatedCluster) applyElapsedTime() {
	for i := range c.Sets {
		s := &c.Sets[i]
		c.scaleSet(s)
		for j := range s.Machines {
			m := &s.Machines[j]
			if at, waits := c.readyTimeByUID[m.UID]; waits && !m.Deleting && !c.Now.Before(at) {
				m.Available, m.Ready, m.Unhealthy, m.Failed = true, true, false, false
				if m.Updating {
					m.Updating, m.MCM.Updated = false, true
				}
				delete(c.readyTimeByUID, m.UID)
			}
		}
		s.Machines = slices.DeleteFunc(
			s.Machines,
			func(m rollout.Member) bool { return m.Deleting && !c.Now.Before(c.goneTimeByUID[m.UID]) },
		)
	}
}

// scaleSet creates or deletes machines of a set. scaleSet deletes unavailable machines first, and then the youngest
// machines.
func (c *simulatedCluster) scaleSet(s *rollout.MachineSet) {
	var active []*rollout.Member
	for i := range s.Machines {
		if m := &s.Machines[i]; !m.Deleting {
			active = append(active, m)
		}
	}
	slices.SortStableFunc(active, func(a, b *rollout.Member) int {
		return cmp.Or(
			list.CompareFalseFirst(a.Available, b.Available),
			list.CompareFalseFirst(a.MCM.HandedOver, b.MCM.HandedOver),
			b.CreatedAt.Compare(a.CreatedAt),
		)
	})
	for _, m := range active[:max(len(active)-s.Replicas, 0)] {
		m.Deleting, m.Available, m.Ready = true, false, false
		c.goneTimeByUID[m.UID] = c.Now.Add(c.deletionDuration)
	}
	for n := len(active); n < s.Replicas && !s.ScaleUpDisabled; n++ {
		c.createdObjectCount++
		id := "machine-" + strconv.Itoa(c.createdObjectCount)
		s.Machines = append(s.Machines, rollout.Member{
			Name:      id,
			UID:       id,
			MCM:       rollout.MCMMember{NodeName: id},
			Priority:  vocabulary.PriorityDefault,
			Unhealthy: true,
			CreatedAt: c.Now.Add(time.Duration(c.createdObjectCount)),
		})
		c.readyTimeByUID[id] = c.Now.Add(c.creationDuration())
	}
}

// advanceToNextEvent sets the time to the next event, or to `until` if `until` is set and earlier. advanceToNextEvent
// returns false if there is no next event and `until` is zero.
func (c *simulatedCluster) advanceToNextEvent(until time.Time) bool {
	for _, times := range []map[string]time.Time{c.readyTimeByUID, c.goneTimeByUID} {
		for _, at := range times {
			if at.After(c.Now) && (until.IsZero() || at.Before(until)) {
				until = at
			}
		}
	}
	if until.IsZero() {
		return false
	}
	c.Now = phrase.LaterTime(until, c.Now)
	c.applyElapsedTime()
	return true
}
