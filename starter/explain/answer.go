package explain

import (
	"regexp"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/observe/cache"
)

// answer is what JSON and YAML show of an object. An absent field is not known or has nothing to say.
type answer struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Sentence  string `json:"sentence"` // the sentence of the status; the state of an object that waits for nothing
	Waits     bool   `json:"waits"`
	Blocked   bool   `json:"blocked"` // it stands still

	step
	Commands []string `json:"commands,omitempty"` // the commands in the sentence, in its order

	Generation int64    `json:"generation,omitempty"` // observed by the status
	Unseen     bool     `json:"unseen"`               // the object has a newer generation
	Notes      []string `json:"notes,omitempty"`      // which process is not at work, and what Temporal does not answer
	// the calls of the object's workflow that are open, or wait for their next attempt
	Calls    []call  `json:"calls,omitempty"`
	Counts   *counts `json:"counts,omitempty"`   // only of a deployment or a set
	Machines []waits `json:"machines,omitempty"` // the machines of a deployment or a set that wait
}

// step is what is done now, and what it waits for. What and Next are absent for a deployment and a set, whose sentence
// sums up their machines: there each machine has them.
type step struct {
	Workflow  string    `json:"workflow,omitempty"` // ID of the workflow that does the step
	Step      string    `json:"step,omitempty"`
	What      string    `json:"what,omitempty"` // what cannot be done yet
	Why       string    `json:"why,omitempty"`
	BlockedBy []string  `json:"blockedBy,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Next      string    `json:"next,omitempty"`    // what happens without a person
	Deadline  time.Time `json:"deadline,omitzero"` // when that happens
	Command   string    `json:"command,omitempty"` // command that changes it
}

// waits is a machine of a deployment or a set that waits for something.
type waits struct {
	Name   string `json:"name"`
	Status string `json:"status"`

	step
}

// counts are numbers of machines.
type counts struct {
	Desired   int32  `json:"desired"`
	Updated   *int32 `json:"updated,omitempty"` // only of a deployment
	Ready     int32  `json:"ready"`
	Available int32  `json:"available"`
	Machines  int    `json:"machines"`
	Waiting   int    `json:"waiting"`
	Blocked   int    `json:"blocked"`
}

// structured returns as fields what the text output says.
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

// commandOf matches a command of a sentence: it follows a semicolon, in backquotes.
var commandOf = regexp.MustCompile("; `([^`]+)`")

// commandsIn returns the commands of a sentence.
func commandsIn(sentence string) (commands []string) {
	for _, found := range commandOf.FindAllStringSubmatch(sentence, -1) {
		commands = append(commands, found[1])
	}
	return commands
}

// stepOf returns the fields of a step that the status has.
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

// step returns the fields of the status, and the parts from which the machine's sentence is formed.
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
