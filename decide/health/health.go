// Package health decides whether a node is healthy (DecideNodeHealth). Package health also decides the next phase of a
// machine from its node, its instance and its timeouts (Decide).
package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/list"
	"millwright/decide/phrase"
)

// Condition is one condition of a node.
type Condition struct {
	Type            string
	Status          string // status of the condition: "True", "False" or "Unknown"
	Reason, Message string
	Since           time.Time // lastTransitionTime of the condition
}

// DecideNodeHealth reports whether a node is healthy: the condition Ready is True, and every condition of a type in bad
// is False. As in MCM, Unknown counts as bad. why is the reason if the node is unhealthy; empty for a healthy node.
func DecideNodeHealth(conditions []Condition, bad []string) (healthy bool, why string) {
	unhealthy := list.Filter(conditions, func(c Condition) bool { return isBadCondition(c, bad) })
	reasons := list.Map(
		unhealthy,
		func(c Condition) string { return fmt.Sprintf("%s is %s (%s)", c.Type, c.Status, c.Reason) },
	)
	slices.Sort(reasons)
	if len(reasons) == 0 &&
		!slices.ContainsFunc(conditions, func(c Condition) bool { return c.Type == vocabulary.ConditionReady }) {
		return false, "no Ready condition reported yet"
	}
	return len(reasons) == 0, strings.Join(reasons, ", ")
}

// BadConditionStart returns the earliest transition time of a bad condition, at which the node became unhealthy.
// BadConditionStart is zero if no condition is bad, or if no bad condition has a transition time.
func BadConditionStart(conditions []Condition, bad []string) time.Time {
	var since time.Time
	for _, c := range conditions {
		if isBadCondition(c, bad) && !c.Since.IsZero() && (since.IsZero() || c.Since.Before(since)) {
			since = c.Since
		}
	}
	return since
}

func isBadCondition(c Condition, bad []string) bool {
	if c.Type == vocabulary.ConditionReady {
		return c.Status != vocabulary.StatusTrue
	}
	return slices.Contains(bad, c.Type) && c.Status != vocabulary.StatusFalse
}

// Node holds the facts about the node of a machine.
type Node struct {
	NodeName     string
	Healthy      bool   // the node is healthy, as DecideNodeHealth decided
	NodeDeleting bool   // the Node is being deleted, and the machine is not being deleted
	NodeGone     bool   // the Node certainly does not exist
	NodeWaits    string // why a healthy node has not joined yet; empty: the node may join
	Why          string
	BadSince     time.Time // when the node became unhealthy; zero: no node, or no transition time
}

// TimeoutClocks holds the recorded times from which timeouts count.
type TimeoutClocks struct {
	Created                     time.Time
	CreateBy                    time.Time // end of the creation timeout; moves with Now while the timeout is paused
	Since                       time.Time // since when the machine is in its present phase
	UnhealthySince              time.Time // recorded time at which the node became unhealthy
	RecoveredAt, InstanceGoneAt time.Time
	// TargetAbsent is the time, since the health timeout began, in which the target cluster did not answer. TargetAbsent
	// extends the health timeout: a node that recovers during an outage of its API server cannot report the recovery.
	TargetAbsent time.Duration
}

// Replacement holds the state of a machine's replacement.
type Replacement struct {
	Due     bool   // the condition ReplacementDue is True
	Granted bool   // the replacement of the machine was granted
	Alone   bool   // the replacement needs no grant
	Breaker string // why the breaker is open; empty: the breaker is closed
}

// Facts holds the facts about a machine that is not being deleted. A zero time is not known.
type Facts struct {
	Name, Phase     string
	NoTargetCluster bool // the machine has no target cluster
	// TargetDown is why the target cluster is not connected; empty: the target cluster is connected. Without a connection
	// the facts about the node are old, so that no timeout ends.
	TargetDown string
	Instance   bool // the machine's instance is recorded
	Preserved  bool // the machine is preserved, so that no set replaces it
	Node
	TimeoutClocks
	Timeout   time.Duration // health timeout; zero: the timeout ends at once
	NoTimeout bool

	UpdateResult  string        // result of the in-place update, successful or failed; empty: no result yet
	UpdateTimeout time.Duration // timeout of the in-place update
	Replacement
	Now time.Time
}

// Verdict is the result of Decide. The zero Verdict changes nothing.
type Verdict struct {
	Change   *PhaseChange    // the new phase; nil: the phase stays
	Clock    *UnhealthyTimes // the new times of the health timeout; nil: the times stay
	Due      *ReplacementDue // the new condition ReplacementDue; nil: the condition stays
	Deadline time.Time       // end of the present timeout; zero: the timeout has no end, or has ended
	Why      string          // what the machine waits for, or why its phase changes
	Look     bool            // the workflow has to request the state of the instance from the provider
	// the machine is due, but the breaker is open, so that no machine is replaced
	Held bool `json:",omitempty"`
}

// PhaseChange is a new phase, with the texts for lastOperation and the event.
type PhaseChange struct {
	Phase     string
	Operation string // value for lastOperation.type
	State     string // value for lastOperation.state
	Message   string
	Reason    string // reason of the Kubernetes event
	Warning   bool   // the Kubernetes event has type Warning
	Joined    bool   // the node has just joined for the first time
}

// UnhealthyTimes has the times from which the health timeout counts, also called the health clock. A zero time is not
// set.
type UnhealthyTimes struct {
	UnhealthySince, RecoveredAt time.Time
}

// ReplacementDue is the condition ReplacementDue.
type ReplacementDue struct {
	True    bool
	Reason  string // reason of the condition ReplacementDue
	Message string
}

// Decide returns the next phase of a machine. Each timeout counts from its own recorded time. No other status write
// restarts a timeout, and no other event postpones its end.
func Decide(f Facts) Verdict {
	switch {
	case f.Phase == vocabulary.PhaseFailed:
		return failedVerdict(f)
	case f.Granted:
		message := fmt.Sprintf("Machine %s is to be replaced: %s", f.Name, f.Why)
		// the condition ReplacementDue stays True
		return newPhaseVerdict(
			vocabulary.PhaseFailed,
			vocabulary.OperationHealthCheck,
			vocabulary.ReasonReplacementGranted,
			message,
		)
	case f.TargetDown != "":
		return targetDownVerdict(f)
	case !f.Instance, f.Phase == "", f.Phase == vocabulary.PhaseCrashLoopBackOff:
		return awaitCreation(f, "the provider has not created its instance")
	case f.NoTargetCluster:
		v := newPhaseVerdict(
			vocabulary.PhaseAvailable,
			vocabulary.OperationCreate,
			vocabulary.ReasonInstanceCreated,
			"Created machine on cloud provider",
		)
		v.Why = f.Why
		return v
	}
	switch well := f.Healthy && !f.NodeDeleting; f.Phase {
	case vocabulary.PhasePending, vocabulary.PhaseAvailable:
		if well && f.NodeWaits == "" {
			return markNodeJoined(f)
		}
		return awaitCreation(f, f.Why)
	case vocabulary.PhaseRunning:
		if well {
			return Verdict{}
		}
		return markNodeUnhealthy(f)
	case vocabulary.PhaseUnknown:
		if well {
			return markMachineRecovered(f)
		}
		return awaitHealthTimeout(f, f.UnhealthySince)
	default:
		return inPlaceUpdateVerdict(f)
	}
}

// targetDownVerdict keeps the phase while the target cluster is not connected.
func targetDownVerdict(f Facts) Verdict {
	if f.Phase == vocabulary.PhaseRunning {
		return Verdict{}
	}
	return Verdict{Why: f.TargetDown}
}

// inPlaceUpdateVerdict returns the next phase during an in-place update. While the agent updates the node, the
// node's health is ignored.
func inPlaceUpdateVerdict(f Facts) Verdict {
	switch {
	case f.Phase != vocabulary.PhaseInPlaceUpdating && f.Phase != vocabulary.PhaseInPlaceUpdateSuccessful && f.Phase != vocabulary.PhaseInPlaceUpdateFailed:
		return Verdict{} // another controller wrote the phase
	case f.Phase == vocabulary.PhaseInPlaceUpdateSuccessful && f.Healthy && !f.NodeDeleting:
		return markMachineRecovered(f)
	case f.Phase == vocabulary.PhaseInPlaceUpdateSuccessful:
		return markNodeUnhealthy(f)
	case f.UpdateResult == vocabulary.ValueUpdateSuccessful:
		message := fmt.Sprintf("Machine %s: its node was updated in place", f.Name)
		return newPhaseVerdict(
			vocabulary.PhaseInPlaceUpdateSuccessful,
			vocabulary.OperationInPlaceUpdate,
			vocabulary.PhaseInPlaceUpdateSuccessful,
			message,
		)
	case f.Phase == vocabulary.PhaseInPlaceUpdateFailed:
		return awaitHealthTimeout(f, f.Since)
	}
	message := fmt.Sprintf("Machine %s: the in-place update of its node failed", f.Name)
	deadline := f.Since.Add(f.UpdateTimeout)
	switch {
	case f.UpdateResult == vocabulary.ValueUpdateFailed:
	case f.Now.Before(deadline):
		return Verdict{Why: "waits for the agent that updates node " + f.NodeName, Deadline: deadline}
	default:
		message = fmt.Sprintf(
			"Machine %s: the in-place update of its node took longer than %s",
			f.Name,
			phrase.DurationText(f.UpdateTimeout),
		)
	}
	return newPhaseVerdict(
		vocabulary.PhaseInPlaceUpdateFailed,
		vocabulary.OperationInPlaceUpdate,
		vocabulary.PhaseInPlaceUpdateFailed,
		message,
	)
}

// failedVerdict keeps a Failed machine Failed, because its set replaces the machine. Only a preserved machine can
// recover, because no set replaces a preserved machine.
func failedVerdict(f Facts) Verdict {
	if f.Preserved && f.Healthy && !f.NodeDeleting {
		return markMachineRecovered(f)
	}
	return Verdict{}
}

// awaitCreation waits for the creation timeout, or makes the machine Failed once the timeout has ended.
func awaitCreation(f Facts, missing string) Verdict {
	if f.CreateBy.IsZero() || f.Now.Before(f.CreateBy) {
		return Verdict{Deadline: f.CreateBy, Why: missing}
	}
	message := fmt.Sprintf(
		"Machine %s failed to join the cluster in %s: %s",
		f.Name,
		phrase.DurationText(f.CreateBy.Sub(f.Created).Round(time.Second)),
		missing,
	)
	return markMachineFailed(vocabulary.OperationCreate, vocabulary.ReasonCreationTimeout, message)
}

func markNodeJoined(f Facts) Verdict {
	message := fmt.Sprintf(
		"Machine %s successfully joined the cluster in %s",
		f.Name,
		phrase.DurationText(f.Now.Sub(f.Created).Truncate(time.Second)),
	)
	v := newPhaseVerdict(vocabulary.PhaseRunning, vocabulary.OperationCreate, vocabulary.ReasonJoined, message)
	v.Change.Joined = true
	return v
}

// markNodeUnhealthy records when the node became unhealthy, but no time before the machine entered its present phase.
// After a short recovery, the earlier recorded time stays.
func markNodeUnhealthy(f Facts) Verdict {
	since := f.BadSince
	if since.IsZero() || since.After(f.Now) {
		since = f.Now
	}
	since = phrase.LaterTime(f.Since, since)
	if !f.RecoveredAt.IsZero() && !f.UnhealthySince.IsZero() &&
		since.Sub(f.RecoveredAt) < min(f.Timeout/10, minRecoveryTime) {
		since = f.UnhealthySince
	}
	message := fmt.Sprintf("Machine %s is unhealthy - changing MachinePhase to Unknown: %s", f.Name, f.Why)
	v := newPhaseVerdict(vocabulary.PhaseUnknown, vocabulary.OperationHealthCheck, vocabulary.ReasonUnhealthy, message)
	v.Clock, v.Look = &UnhealthyTimes{UnhealthySince: since}, true
	return v
}

func markMachineRecovered(f Facts) Verdict {
	message := fmt.Sprintf("Machine %s successfully re-joined the cluster", f.Name)
	v := newPhaseVerdict(vocabulary.PhaseRunning, vocabulary.OperationHealthCheck, vocabulary.ReasonRejoined, message)
	v.Clock = &UnhealthyTimes{UnhealthySince: f.UnhealthySince, RecoveredAt: f.Now}
	if f.Due {
		v.Due = &ReplacementDue{Reason: vocabulary.ReasonRecovered, Message: message}
	}
	return v
}

// HasTimedOut reports whether the health timeout of an unhealthy machine has ended. The breaker then decides whether
// the machine is replaced.
func HasTimedOut(f Facts) bool {
	since := f.Since
	switch f.Phase {
	case vocabulary.PhaseUnknown:
		since = cmp.Or(f.UnhealthySince, f.Since) // no time is recorded if another controller wrote the phase
	case vocabulary.PhaseInPlaceUpdateFailed:
	default:
		return false
	}
	reason, _, _ := replacementReason(f, since)
	return reason != ""
}

// awaitHealthTimeout waits for the health timeout of an unhealthy machine, or reports that the timeout has ended.
func awaitHealthTimeout(f Facts, since time.Time) Verdict {
	if since.IsZero() {
		since = f.Since // another controller wrote the phase, and recorded no health clock
	}
	reason, message, deadline := replacementReason(f, since)
	switch {
	case reason == "" && f.Due: // the timeout was extended
		message := fmt.Sprintf("Machine %s has more time to recover: its health timeout was changed", f.Name)
		return Verdict{
			Why:      f.Why,
			Deadline: deadline,
			Look:     true,
			Due:      &ReplacementDue{Reason: vocabulary.ReasonHealthTimeoutExtended, Message: message},
		}
	case reason == "":
		return Verdict{Why: f.Why, Deadline: deadline, Look: true}
	case f.Alone && f.Breaker == "":
		return markMachineFailed(vocabulary.OperationHealthCheck, reason, message)
	case f.Breaker != "":
		message += "; held: " + f.Breaker
	case !f.Alone:
		message += "; waits until its deployment's replacement budget allows it"
	}
	return Verdict{
		Why:  message,
		Due:  &ReplacementDue{True: true, Reason: reason, Message: message},
		Look: f.InstanceGoneAt.IsZero(),
		Held: f.Breaker != "",
	}
}

// replacementReason returns why the machine is due for replacement. An empty reason means that the machine is not due;
// deadline is then the end of the health timeout. A zero deadline means that the timeout has no end.
func replacementReason(f Facts, since time.Time) (reason, message string, deadline time.Time) {
	deadline = since.Add(f.Timeout + f.TargetAbsent)
	switch {
	case f.NodeDeleting:
		return vocabulary.ReasonNodeDeleted, fmt.Sprintf(
			"Machine %s: node %s is being deleted",
			f.Name,
			f.NodeName,
		), time.Time{}
	case !f.InstanceGoneAt.IsZero():
		return vocabulary.ReasonInstanceGone, fmt.Sprintf(
			"Machine %s: the provider no longer has its instance",
			f.Name,
		), time.Time{}
	case f.NodeGone:
		return vocabulary.ReasonNodeDeleted, fmt.Sprintf(
			"Machine %s: node %s does not exist any more",
			f.Name,
			f.NodeName,
		), time.Time{}
	case f.NoTimeout:
		return "", "", time.Time{}
	case f.Now.Before(deadline):
		return "", "", deadline
	default:
		return vocabulary.ReasonHealthTimeout, fmt.Sprintf(
			"Machine %s has not been healthy for %s: %s",
			f.Name,
			phrase.DurationText(f.Timeout),
			f.Why,
		), time.Time{}
	}
}

// markMachineFailed makes a machine Failed, and sets ReplacementDue with the same reason.
func markMachineFailed(operation, reason, message string) Verdict {
	v := newPhaseVerdict(vocabulary.PhaseFailed, operation, reason, message)
	v.Due = &ReplacementDue{True: true, Reason: reason, Message: message}
	return v
}

// newPhaseVerdict returns a new phase. The phase determines lastOperation.state and the type of the event.
func newPhaseVerdict(phase, operation, reason, message string) Verdict {
	c := PhaseChange{
		Phase:     phase,
		Operation: operation,
		State:     vocabulary.StateSuccessful,
		Reason:    reason,
		Message:   message,
	}
	switch phase {
	case vocabulary.PhaseUnknown:
		c.State, c.Warning = vocabulary.StateProcessing, true
	case vocabulary.PhaseFailed, vocabulary.PhaseInPlaceUpdateFailed:
		c.State, c.Warning = vocabulary.StateFailed, true
	}
	return Verdict{Why: message, Change: &c}
}
