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
	Since                         time.Time // last change of Status; for Progressing, last change of Reason
}

// MachineSet holds the facts from the status of a set and its machines.
type MachineSet struct {
	Namespace, Name    string
	ClassName          string // name of the class in the set's template
	IsClusterAPI       bool   // the set is a Cluster API MachineSet, whose template has no MachineClass
	Conditions         []Condition
	Deleting           bool
	HasPendingChanges  bool   // machines are missing, surplus or being deleted; a pause delays these changes
	Frozen             bool   // the set or its deployment has the label freeze
	PausedBy           string // deployment whose annotation pauses the set; empty: the set's own annotation pauses the set
	FrozenBy           string // deployment that has the label freeze; empty: the set has the label
	Machines           []Machine
	ClusterAPIMachines []ClusterAPIMachine // machines of a Cluster API set, instead of Machines
	MachineCount       int                 // existing or wanted number of machines, whichever is larger
}

// BlockedSummary returns the Summary of the set and its machines.
func (s MachineSet) BlockedSummary(now time.Time) Summary {
	own := s.waitsOfSet()
	return summarizeWaits(
		own,
		append(waitsOfMachines(own, s.Machines), waitsOfClusterAPIMachines(s.ClusterAPIMachines)...),
		s.MachineCount,
		now,
	)
}

// HasMachineInStage reports whether any Cluster API machine of the set is in a stage.
func (s MachineSet) HasMachineInStage() bool {
	return slices.ContainsFunc(s.ClusterAPIMachines, func(m ClusterAPIMachine) bool { return m.Stage != "" })
}

// NextEvaluationTime returns the time of the next evaluation if no object changes; zero: never. NextEvaluationTime is
// the earlier of recheck and the time at which a Cluster API machine begins to count as blocked; a zero recheck is
// ignored.
func (s MachineSet) NextEvaluationTime(recheck time.Time) (first time.Time) {
	first = recheck
	for _, m := range s.ClusterAPIMachines {
		first = phrase.EarlierTime(first, m.BlockerStart())
	}
	return first
}

// waitsOfSet returns the waits of the set itself. If only its machines wait, waitsOfSet returns no waits.
func (s MachineSet) waitsOfSet() []WaitState {
	var waits []WaitState
	for _, c := range s.Conditions {
		w := WaitState{Blockers: []string{c.Reason}, Since: c.Since, Cause: strings.ReplaceAll(c.Message, "\n", " ")}
		switch {
		case c.Type == vocabulary.ConditionMachinesCreated && c.Status == vocabulary.StatusFalse:
			w.Cause, w.Command = s.noCreationCause(c)
			switch {
			case c.Reason == vocabulary.ReasonMachineCreationFailed:
				w.NextEvent = writeRetryEvent()
			case c.Reason == vocabulary.ReasonPreflightCheckFailed && !s.Frozen:
				w.NextEvent = newEvent("it creates its machines by itself once the control plane passes the check", "")
			}
		case c.Type == vocabulary.ConditionReplicaFailure && c.Status == vocabulary.StatusTrue && c.Reason == vocabulary.ReasonFailedDelete:
			w.Cause = "the API server refuses to delete machines: " + w.Cause
			w.NextEvent = writeRetryEvent()
		case c.Type == vocabulary.ConditionReplacementHeld && c.Status == vocabulary.StatusTrue:
			w.Cause = fmt.Sprintf("set %s does not replace machines: %s", s.Name, w.Cause)
			w.Command = fmt.Sprintf("kubectl get %s -n %s", s.machineResourceName(), s.Namespace)
		case c.Type == vocabulary.ConditionPaused && c.Status == vocabulary.StatusTrue && s.HasPendingChanges:
			goes := phrase.TextIf(s.Deleting, "being deleted, and waits because it is ")
			w.Cause = fmt.Sprintf("set %s is %spaused: %s", s.Name, goes, w.Cause)
			w.Command = s.keyRemovalCommand("annotate", s.PausedBy, vocabulary.AnnotationPaused)
		default:
			continue
		}
		waits = append(waits, w)
	}
	return waits
}

// writeRetryEvent returns the event of the retry of a write that the API server refused.
func writeRetryEvent() Event {
	return newEvent("it is tried again every "+phrase.DurationText(RefusedWriteRetryPause), "")
}

// noCreationCause returns the reason why the set creates no machine, and the command that changes this.
func (s MachineSet) noCreationCause(c Condition) (cause, command string) {
	switch {
	case c.Reason == vocabulary.ReasonTemplateNotFound && s.IsClusterAPI:
		command = fmt.Sprintf("kubectl get %s -n %s %s -o yaml", s.resourceName(), s.Namespace, s.Name)
	case c.Reason == vocabulary.ReasonTemplateNotFound:
		return fmt.Sprintf(
			"set %s creates no machine: MachineClass %s/%s does not exist",
			s.Name,
			s.Namespace,
			s.ClassName,
		), "kubectl get machineclasses -n " + s.Namespace
	case s.Frozen:
		command = s.keyRemovalCommand("label", s.FrozenBy, vocabulary.LabelFreeze)
	case c.Reason == vocabulary.ReasonPreflightCheckFailed:
		command = fmt.Sprintf(
			"kubectl annotate %s -n %s %s %s=All",
			s.resourceName(),
			s.Namespace,
			s.Name,
			vocabulary.AnnotationSkipPreflightChecks,
		)
	default:
		command = fmt.Sprintf("kubectl describe %s -n %s %s", s.resourceName(), s.Namespace, s.Name)
	}
	return fmt.Sprintf("set %s creates no machine: %s", s.Name, strings.ReplaceAll(c.Message, "\n", " ")), command
}

// keyRemovalCommand returns the command that removes a label or an annotation from the set, or from the deployment if
// one is named.
func (s MachineSet) keyRemovalCommand(verb, deployment, key string) string {
	if deployment != "" {
		return fmt.Sprintf("kubectl %s machinedeployment -n %s %s %s-", verb, s.Namespace, deployment, key)
	}
	return fmt.Sprintf("kubectl %s %s -n %s %s %s-", verb, s.resourceName(), s.Namespace, s.Name, key)
}

// machineResourceName returns the resource of the set's machines for kubectl.
func (s MachineSet) machineResourceName() string {
	if s.IsClusterAPI {
		return "machines.cluster.x-k8s.io"
	}
	return "machines"
}

// resourceName returns the set's resource for kubectl. Both API groups have machinesets, so Cluster API's name has the
// group.
func (s MachineSet) resourceName() string {
	if s.IsClusterAPI {
		return "machinesets.cluster.x-k8s.io"
	}
	return "machineset"
}
