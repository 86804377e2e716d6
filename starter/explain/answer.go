package explain

import (
	"regexp"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/observe/cache"
)

// answer is what JSON and YAML show of an object. Fields that are absent are not known, or there is nothing to say.
type answer struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Sentence  string `json:"sentence"` // what the status says; of an object that waits for nothing, its state
	Waits     bool   `json:"waits"`
	Blocked   bool   `json:"blocked"` // it stands still

	step
	Commands []string `json:"commands,omitempty"` // of the sentence, in its order

	Generation int64    `json:"generation,omitempty"` // that the status is of
	Unseen     bool     `json:"unseen"`               // the object has a newer generation
	Notes      []string `json:"notes,omitempty"`      // who is not at work, and what Temporal does not answer
	// of the object's workflow, that are open or wait for their next attempt
	Calls    []call  `json:"calls,omitempty"`
	Counts   *counts `json:"counts,omitempty"`   // of a deployment or a set
	Machines []waits `json:"machines,omitempty"` // of a deployment or a set, that wait
}

// step is what is done now, and what is in its way. What and Next are absent where the sentence is a sum: each of the
// machines has its own.
type step struct {
	Workflow  string    `json:"workflow,omitempty"` // ID of the workflow that does the step
	Step      string    `json:"step,omitempty"`
	What      string    `json:"what,omitempty"` // what cannot be done yet
	Why       string    `json:"why,omitempty"`
	BlockedBy []string  `json:"blockedBy,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Next      string    `json:"next,omitempty"`    // what happens without a person
	Deadline  time.Time `json:"deadline,omitzero"` // when that happens
	Command   string    `json:"command,omitempty"` // that changes it
}

// waits is a machine of a deployment or a set.
type waits struct {
	Name   string `json:"name"`
	Status string `json:"status"`

	step
}

// counts are numbers of machines.
type counts struct {
	Desired   int32  `json:"desired"`
	Updated   *int32 `json:"updated,omitempty"` // of a deployment
	Ready     int32  `json:"ready"`
	Available int32  `json:"available"`
	Machines  int    `json:"machines"`
	Waiting   int    `json:"waiting"`
	Blocked   int    `json:"blocked"`
}

// structured returns what the text says, as fields.
func structured(s *subject, notes []string, calls []call) answer {
	a := answer{
		Kind: s.kind, Namespace: s.object.GetNamespace(), Name: s.object.GetName(), Sentence: s.calm,
		Generation: s.seen, Unseen: s.unseen(), Notes: notes, Calls: calls, Counts: s.counts,
	}
	if o := s.operation; o != nil {
		a.step = stepOf(o)
		if o.WaitsFor != "" {
			a.Waits, a.Sentence, a.Commands = true, o.WaitsFor, commandsIn(o.WaitsFor)
		}
	}
	if s.self != nil {
		a.step = s.self.step()
	}
	a.Blocked = len(a.BlockedBy) > 0
	for _, m := range s.waiting() {
		a.Machines = append(a.Machines, waits{m.name, m.status, m.step()})
	}
	if c := a.Counts; c != nil {
		c.Machines, c.Waiting = len(s.members), len(a.Machines)
		c.Blocked = list.Count(a.Machines, func(m waits) bool { return len(m.BlockedBy) > 0 })
	}
	return a
}

// commandOf matches the command at the end of a part of a sentence.
var commandOf = regexp.MustCompile("; `([^`]+)`")

// commandsIn returns the commands of a sentence.
func commandsIn(sentence string) (commands []string) {
	for _, found := range commandOf.FindAllStringSubmatch(sentence, -1) {
		commands = append(commands, found[1])
	}
	return commands
}

// stepOf returns what a status says of a step.
func stepOf(o *v1alpha1.Operation) step {
	return step{
		Workflow:  o.WorkflowID,
		Step:      o.Step,
		Why:       o.Cause,
		BlockedBy: o.BlockedBy,
		Since:     o.Since.Time,
		Deadline:  cache.TimeOf(o.Deadline),
	}
}

// step adds to what the status says the parts of which the sentence is formed.
func (m member) step() step {
	if m.operation == nil {
		return step{}
	}
	s, w := stepOf(m.operation), m.wait
	s.What, s.Why, s.BlockedBy, s.Next, s.Command = w.Goal.One, w.Cause, w.Blockers, w.Next.One, w.Command
	if !w.At.IsZero() {
		s.Deadline = w.At
	}
	return s
}
