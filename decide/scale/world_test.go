package scale_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/decide/scale"
)

// setSimulation carries out the decisions of one set. Each step lasts one minute. A new machine is Pending after one
// step and Running after two. A deleted machine is gone after two steps.
type setSimulation struct {
	scale.Facts
	failsToJoin            func(name string) bool // whether a machine fails instead of joining; nil: none fails
	refusesCreation        func(nth int) bool     // whether the API server refuses the nth creation; nil: none
	createdMachineCount    int                    // number of machines ever created
	requestedCreationCount int                    // number of requested creations
	deletedNames           []string               // names in the order of deletion
	log                    strings.Builder
	lastTextByTopic        map[string]string
}

func newSetSimulation(o scale.Facts) *setSimulation {
	return &setSimulation{Facts: o, lastTextByTopic: map[string]string{}}
}

// runSteps runs the given number of steps.
func (w *setSimulation) runSteps(steps int) *setSimulation {
	for range steps {
		w.runStep()
	}
	return w
}

// runStep advances the time by one minute, then carries decisions out until nothing is left to do.
func (w *setSimulation) runStep() {
	w.Now = w.Now.Add(time.Minute)
	w.changeMachines()
	w.carryOutDecisions()
}

// carryOutDecisions carries decisions out until nothing is left to do now, and logs changed sentences and conditions.
func (w *setSimulation) carryOutDecisions() {
	for range 100 {
		d := scale.Decide(w.Facts)
		w.logChange("", d.Why)
		complete := w.carryOutOneDecision(d)
		w.writeStatus()
		if isIdleDecision(d) || !complete {
			return
		}
	}
}

// changeMachines applies the changes of machines that are due.
func (w *setSimulation) changeMachines() {
	w.Members = slices.DeleteFunc(w.Members, func(m scale.Member) bool {
		return m.Deleting && !w.Now.Before(m.DeletingSince.Add(2*time.Minute))
	})
	for i := range w.Members {
		m := &w.Members[i]
		switch {
		case m.Deleting || m.MCM.Failed:
		case m.Phase == "":
			m.Phase, m.Ready = "Pending", scale.ConditionFalse
		case m.Phase == "Pending" && w.failsToJoin != nil && w.failsToJoin(m.Name):
			asNeverJoinedMachine(m)
		case m.Phase == "Pending":
			m.Phase, m.Joined, m.NodeState, m.Ready, m.ReadySince = "Running", true, scale.NodeHealthy, scale.ConditionTrue, w.Now
		}
	}
}

// carryOutOneDecision carries out a decision. carryOutOneDecision returns false if a creation failed.
func (w *setSimulation) carryOutOneDecision(d scale.Decision) bool {
	w.NameSeed++
	if d.Generations != nil {
		w.Generations = *d.Generations
	}
	for _, target := range d.Release {
		w.removeMember(target)
		w.ReleasedMachineCount++
	}
	for _, target := range d.Adopt {
		w.Orphans = slices.DeleteFunc(w.Orphans, func(m scale.Orphan) bool { return m.UID == target.UID })
		w.Members = append(w.Members, newMember(target.Name, 0, withoutCreationTime))
		w.Members[len(w.Members)-1].CreatedAt = w.Now.Add(-time.Hour)
	}
	for _, target := range d.Keep {
		asAutoPreservedMachine(w.memberOfTarget(target))
	}
	for _, target := range d.Unmark {
		w.memberOfTarget(target).Marked = false
	}
	for _, target := range d.Sync {
		w.memberOfTarget(target).Drift = ""
	}
	for _, target := range slices.Concat(d.Remediate, d.Delete) {
		m := w.memberOfTarget(target)
		m.Deleting, m.DeletingSince, m.Phase = true, w.Now, "Terminating"
		w.deletedNames = append(w.deletedNames, m.Name)
	}
	return w.createBatches(d.Create)
}

// createBatches creates machines in batches, and stops after the first batch with an error. An existing name is not an
// error, because an earlier run of the same decision created this machine.
func (w *setSimulation) createBatches(names []string) bool {
	w.LastWriteFailure = scale.WriteFailure{}
	for _, size := range scale.BatchSizes(len(names)) {
		for _, name := range names[:size] {
			w.requestedCreationCount++
			switch {
			case w.refusesCreation != nil && w.refusesCreation(w.requestedCreationCount):
				w.LastWriteFailure.Message = fmt.Sprintf("create machine %d: refused", w.requestedCreationCount)
			case !slices.ContainsFunc(w.Members, func(m scale.Member) bool { return m.Name == name }):
				m := newMember(name, 0, asFreshMachine)
				m.CreatedAt = w.Now
				w.Members = append(w.Members, m)
				w.createdMachineCount++
			}
		}
		if names = names[size:]; w.LastWriteFailure.Message != "" {
			return false
		}
	}
	return true
}

func (w *setSimulation) memberOfTarget(target scale.MachineTarget) *scale.Member {
	i := slices.IndexFunc(
		w.Members,
		func(m scale.Member) bool { return m.UID == target.UID && m.Version == target.Version },
	)
	return &w.Members[i]
}

func (w *setSimulation) removeMember(target scale.MachineTarget) {
	w.Members = slices.DeleteFunc(w.Members, func(m scale.Member) bool { return m.UID == target.UID })
}

// writeStatus writes the status, and logs each changed condition.
func (w *setSimulation) writeStatus() {
	s := scale.PlanSet(w.Facts).Status
	w.ReportedStatus.PeakReplicas, w.ReportedStatus.ObservedReplicas = s.PeakReplicas, s.ObservedReplicas
	for _, c := range s.Conditions {
		w.logChange(c.Type, fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
	}
}

func (w *setSimulation) logChange(topic, text string) {
	if w.lastTextByTopic[topic] == text {
		return
	}
	first := w.lastTextByTopic[topic] == ""
	w.lastTextByTopic[topic] = text
	if topic != "" && first &&
		(strings.HasPrefix(text, "False") || strings.HasPrefix(text, "True NoReplicas") || topic == "MachinesCreated" && strings.HasPrefix(text, "True")) {
		return // a condition in its initial state is not logged
	}
	if topic != "" {
		topic = "  " + topic + ": "
	}
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", " / ")
	fmt.Fprintf(&w.log, "%5s %s%s\n", w.Now.Sub(epoch).Truncate(time.Second).String(), topic, text)
}

// logNote logs an action of a person or another program.
func (w *setSimulation) logNote(text string) *setSimulation {
	fmt.Fprintf(&w.log, "%5s -- %s\n", w.Now.Sub(epoch).String(), text)
	return w
}

// liveMachineCount returns the number of machines that are not being deleted.
func (w *setSimulation) liveMachineCount() int {
	n := 0
	for _, m := range w.Members {
		if !m.Deleting {
			n++
		}
	}
	return n
}
