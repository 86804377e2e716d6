package explain

import (
	"regexp"
	"time"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/observe/cache"
)

// explanation is the explanation of an object in the output formats JSON and YAML. Unknown and empty fields are
// omitted.
type explanation struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Sentence  string `json:"sentence"` // the sentence of the status, or the state of an object that waits for nothing
	IsWaiting bool   `json:"waits"`
	IsBlocked bool   `json:"blocked"` // something blocks the object

	step
	Commands []string `json:"commands,omitempty"` // the commands in the sentence, in their order
	// the causes in the sentence, each with its machines, next event and command, as in the status
	Causes []v1alpha1.Wait `json:"causes,omitempty"`

	Generation       int64 `json:"generation,omitempty"` // the generation that the status observed
	IsStatusOutdated bool  `json:"unseen"`               // the object has a newer generation than its status
	// processes that are down, and requests that Temporal did not answer
	Notes []string `json:"notes,omitempty"`
	// the pending activities of the object's workflow
	PendingActivities []pendingActivity `json:"calls,omitempty"`
	// address of the page in Temporal's UI; empty if the address of the UI is not known
	Page     string           `json:"page,omitempty"`
	Counts   *counts          `json:"counts,omitempty"`   // set only for a deployment or a set
	Machines []waitingMachine `json:"machines,omitempty"` // the waiting machines of a deployment or a set
}

// step is the current step of an object, and its reason to wait. For a deployment or a set, Goal and Next are empty:
// the sentence summarizes the machines, and each machine has its own Goal and Next.
type step struct {
	WorkflowID string    `json:"workflow,omitempty"` // ID of the workflow that runs the step
	StepName   string    `json:"step,omitempty"`
	Goal       string    `json:"what,omitempty"` // what cannot be done yet
	Why        string    `json:"why,omitempty"`
	BlockedBy  []string  `json:"blockedBy,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Next       string    `json:"next,omitempty"`    // what happens next without an operator
	Deadline   time.Time `json:"deadline,omitzero"` // when Next happens
	Command    string    `json:"command,omitempty"` // command that a person can use to change the step
}

// waitingMachine is one machine that waits, in the output about its deployment or set.
type waitingMachine struct {
	Name   string `json:"name"`
	Status string `json:"status"`

	step
}

// counts are numbers of machines.
type counts struct {
	Desired   int32  `json:"desired"`
	Updated   *int32 `json:"updated,omitempty"` // set only for a deployment
	Ready     int32  `json:"ready"`
	Available int32  `json:"available"`
	Machines  int    `json:"machines"`
	Waiting   int    `json:"waiting"`
	Blocked   int    `json:"blocked"`
}

// newExplanation returns the fields that JSON and YAML print for a subject.
func newExplanation(s *subject, notes []string, calls []pendingActivity) explanation {
	a := explanation{
		Kind:              s.kind,
		Namespace:         s.object.GetNamespace(),
		Name:              s.object.GetName(),
		Sentence:          s.stateText(),
		Generation:        s.observedGeneration,
		IsStatusOutdated:  s.isStatusOutdated(),
		Notes:             notes,
		PendingActivities: calls,
		Counts:            s.counts,
	}
	if o := s.operation; o != nil {
		a.step, a.Causes = stepFromStatus(o), o.Waits
		if o.WaitsFor != "" {
			a.IsWaiting, a.Sentence, a.Commands = true, o.WaitsFor, CommandsInSentence(o.WaitsFor)
		}
	}
	if s.machine != nil {
		a.step = s.machine.step()
	}
	a.IsBlocked = len(a.BlockedBy) > 0
	for _, m := range s.waitingMembers() {
		a.Machines = append(a.Machines, waitingMachine{m.name, m.status, m.step()})
	}
	if c := a.Counts; c != nil {
		c.Machines, c.Waiting = len(s.members), len(a.Machines)
		c.Blocked = list.CountWhere(a.Machines, func(m waitingMachine) bool { return len(m.BlockedBy) > 0 })
	}
	return a
}

// commandPattern matches a command in a sentence: a text in backquotes after a semicolon.
var commandPattern = regexp.MustCompile("; `([^`]+)`")

// CommandsInSentence returns the commands of a sentence of decide/explain, in their order; nil if the sentence has no
// command.
func CommandsInSentence(sentence string) (commands []string) {
	for _, found := range commandPattern.FindAllStringSubmatch(sentence, -1) {
		commands = append(commands, found[1])
	}
	return commands
}

// stepFromStatus returns a step with the fields that the status has.
func stepFromStatus(o *v1alpha1.Operation) step {
	return step{
		WorkflowID: o.WorkflowID,
		StepName:   o.Step,
		Why:        o.Cause,
		BlockedBy:  o.BlockedBy,
		Since:      o.Since.Time,
		Deadline:   cache.TimeOrZero(o.Deadline),
	}
}

// step returns the fields of the status, and the parts of the machine's sentence.
func (m memberMachine) step() step {
	if m.operation == nil {
		return step{}
	}
	s, w := stepFromStatus(m.operation), m.currentWait
	s.Goal, s.Why, s.BlockedBy, s.Next, s.Command = w.Goal.Singular, w.Cause, w.Blockers, w.NextEvent.Singular, w.Command
	if !w.NextEventTime.IsZero() {
		s.Deadline = w.NextEventTime
	}
	return s
}
