package explain

import (
	"fmt"
	"strings"
	"time"

	"millwright/api/vocabulary"
)

// Condition is a condition of a set or a deployment.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         time.Time // when Status last changed
}

// Set is what the status of a set says, with its machines.
type Set struct {
	Namespace, Name string
	Class           string // that its template names
	Conditions      []Condition
	Busy            bool   // machines are missing, too many, or being deleted: a pause keeps them so
	Frozen          bool   // the set has the label freeze, or its deployment
	PausedBy        string // name of the deployment whose annotation pauses the set; empty: its own annotation does
	FrozenBy        string // name of the deployment that has the label freeze; empty: the set has it
	Machines        []Machine
	Of              int // number of machines that there are or that are wanted, whichever is larger
}

// Blocked sums up what blocks the set and its machines.
func (s Set) Blocked(now time.Time) Summary { return summarize(s.waits(), s.Machines, s.Of, now) }

// waits returns what the set itself waits for; none if only its machines wait.
func (s Set) waits() []Wait {
	var waits []Wait
	for _, c := range s.Conditions {
		w := Wait{Blockers: []string{c.Reason}, Since: c.Since, Cause: strings.ReplaceAll(c.Message, "\n", " ")}
		switch {
		case c.Type == vocabulary.ConditionMachinesCreated && c.Status == vocabulary.StatusFalse:
			w.Cause, w.Command = s.uncreated(c)
		case c.Type == vocabulary.ConditionReplicaFailure && c.Status == vocabulary.StatusTrue && c.Reason == vocabulary.ReasonFailedDelete:
			w.Cause = "the API server refuses to delete machines: " + w.Cause
			w.Next = Words{One: "it is tried again"}
		case c.Type == vocabulary.ConditionPaused && c.Status == vocabulary.StatusTrue && s.Busy:
			w.Cause, w.Command = fmt.Sprintf("set %s is paused: %s", s.Name, w.Cause), s.remove("annotate", s.PausedBy, vocabulary.AnnotationPaused)
		default:
			continue
		}
		waits = append(waits, w)
	}
	return waits
}

// uncreated says why the set creates no machine, and which command changes that.
func (s Set) uncreated(c Condition) (cause, command string) {
	switch {
	case c.Reason == vocabulary.ReasonTemplateNotFound:
		return fmt.Sprintf("set %s creates no machine: MachineClass %s/%s does not exist", s.Name, s.Namespace, s.Class), "kubectl get machineclasses -n " + s.Namespace
	case s.Frozen:
		command = s.remove("label", s.FrozenBy, vocabulary.LabelFreeze)
	case c.Reason == vocabulary.ReasonPreflightCheckFailed:
		command = fmt.Sprintf("kubectl annotate machineset -n %s %s %s=All", s.Namespace, s.Name, vocabulary.AnnotationSkipPreflightChecks)
	default:
		command = fmt.Sprintf("kubectl describe machineset -n %s %s", s.Namespace, s.Name)
	}
	return fmt.Sprintf("set %s creates no machine: %s", s.Name, strings.ReplaceAll(c.Message, "\n", " ")), command
}

// remove is the command that removes a label or an annotation from the set, or from its deployment if that is named.
func (s Set) remove(verb, deployment, key string) string {
	if deployment != "" {
		return fmt.Sprintf("kubectl %s machinedeployment -n %s %s %s-", verb, s.Namespace, deployment, key)
	}
	return fmt.Sprintf("kubectl %s machineset -n %s %s %s-", verb, s.Namespace, s.Name, key)
}
