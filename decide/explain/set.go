package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// Condition is a condition of a set or a deployment.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         time.Time // when Status last changed; for Progressing, when Reason last changed
}

// Set is what the status of a set says, with its machines.
type Set struct {
	Namespace, Name string
	Class           string // name of the class in its template
	ClusterAPI      bool   // it is a MachineSet of Cluster API, whose templates are no MachineClass
	Conditions      []Condition
	Deleting        bool
	Busy            bool   // machines are missing, too many, or being deleted: a pause keeps them so
	Frozen          bool   // the set has the label freeze, or its deployment
	PausedBy        string // name of the deployment whose annotation pauses the set; empty: its own annotation does
	FrozenBy        string // name of the deployment that has the label freeze; empty: the set has it
	Machines        []Machine
	Upstream        []UpstreamMachine // of a set of Cluster API, in place of Machines
	Of              int               // number of machines that there are or that are wanted, whichever is larger
}

// Blocked sums up what blocks the set and its machines.
func (s Set) Blocked(now time.Time) Summary {
	own := s.waits()
	return summarize(own, append(ofMachines(own, s.Machines), ofUpstream(s.Upstream)...), s.Of, now)
}

// Moves reports whether a machine of Cluster API is on its way, or stands still.
func (s Set) Moves() bool {
	return slices.ContainsFunc(s.Upstream, func(m UpstreamMachine) bool { return m.Stage != "" })
}

// StandsStillAt returns when to evaluate the set again although nothing changes: at recheck, the time known for other reasons
// (zero: none), or earlier, when a machine of Cluster API begins to count as standing still. Zero: never.
func (s Set) StandsStillAt(recheck time.Time) (first time.Time) {
	first = recheck
	for _, m := range s.Upstream {
		first = earlier(first, m.StandsStillAt())
	}
	return first
}

// waits returns what the set itself waits for; none if only its machines wait.
func (s Set) waits() []Wait {
	var waits []Wait
	for _, c := range s.Conditions {
		w := Wait{Blockers: []string{c.Reason}, Since: c.Since, Cause: strings.ReplaceAll(c.Message, "\n", " ")}
		switch {
		case c.Type == vocabulary.ConditionMachinesCreated && c.Status == vocabulary.StatusFalse:
			w.Cause, w.Command = s.uncreated(c)
			switch {
			case c.Reason == vocabulary.ReasonMachineCreationFailed:
				w.Next = writtenAgain()
			case c.Reason == vocabulary.ReasonPreflightCheckFailed && !s.Frozen:
				w.Next = Words{One: "it creates its machines by itself once the control plane passes the check"}
			}
		case c.Type == vocabulary.ConditionReplicaFailure && c.Status == vocabulary.StatusTrue && c.Reason == vocabulary.ReasonFailedDelete:
			w.Cause = "the API server refuses to delete machines: " + w.Cause
			w.Next = writtenAgain()
		case c.Type == vocabulary.ConditionPaused && c.Status == vocabulary.StatusTrue && s.Busy:
			goes := phrase.If(s.Deleting, "being deleted, and waits because it is ")
			w.Cause = fmt.Sprintf("set %s is %spaused: %s", s.Name, goes, w.Cause)
			w.Command = s.remove("annotate", s.PausedBy, vocabulary.AnnotationPaused)
		default:
			continue
		}
		waits = append(waits, w)
	}
	return waits
}

// writtenAgain says what follows a refusal of the API server.
func writtenAgain() Words {
	return Words{One: "it is tried again every " + phrase.Length(RefusedAgain)}
}

// uncreated says why the set creates no machine, and which command changes that.
func (s Set) uncreated(c Condition) (cause, command string) {
	switch {
	case c.Reason == vocabulary.ReasonTemplateNotFound && s.ClusterAPI:
		command = fmt.Sprintf("kubectl get %s -n %s %s -o yaml", s.resource(), s.Namespace, s.Name)
	case c.Reason == vocabulary.ReasonTemplateNotFound:
		return fmt.Sprintf(
			"set %s creates no machine: MachineClass %s/%s does not exist",
			s.Name,
			s.Namespace,
			s.Class,
		), "kubectl get machineclasses -n " + s.Namespace
	case s.Frozen:
		command = s.remove("label", s.FrozenBy, vocabulary.LabelFreeze)
	case c.Reason == vocabulary.ReasonPreflightCheckFailed:
		command = fmt.Sprintf(
			"kubectl annotate %s -n %s %s %s=All",
			s.resource(),
			s.Namespace,
			s.Name,
			vocabulary.AnnotationSkipPreflightChecks,
		)
	default:
		command = fmt.Sprintf("kubectl describe %s -n %s %s", s.resource(), s.Namespace, s.Name)
	}
	return fmt.Sprintf("set %s creates no machine: %s", s.Name, strings.ReplaceAll(c.Message, "\n", " ")), command
}

// remove is the command that removes a label or an annotation from the set, or from its deployment if that is named.
func (s Set) remove(verb, deployment, key string) string {
	if deployment != "" {
		return fmt.Sprintf("kubectl %s machinedeployment -n %s %s %s-", verb, s.Namespace, deployment, key)
	}
	return fmt.Sprintf("kubectl %s %s -n %s %s %s-", verb, s.resource(), s.Namespace, s.Name, key)
}

// resource names the kind of the set for kubectl. Both API groups have machinesets.
func (s Set) resource() string {
	if s.ClusterAPI {
		return "machinesets.cluster.x-k8s.io"
	}
	return "machineset"
}
