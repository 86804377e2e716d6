// Package health decides whether a node is healthy (DecideNode), and the next phase of a machine by its node, its
// instance and its timeouts (Decide).
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
	Status          string // "True", "False" or "Unknown"
	Reason, Message string
	Since           time.Time // lastTransitionTime
}

// DecideNode reports whether a node is healthy: it has the condition Ready with status True, and every condition of a
// type in bad has status False, so that Unknown counts as bad, as in MCM. Why says why not; it is empty for a healthy
// node.
func DecideNode(conditions []Condition, bad []string) (healthy bool, why string) {
	unhealthy := list.Where(conditions, func(c Condition) bool { return isBad(c, bad) })
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

// BadSince returns since when these conditions make the node unhealthy: the earliest transition of a bad one. It is
// zero if none is bad, or none has a time.
func BadSince(conditions []Condition, bad []string) time.Time {
	var since time.Time
	for _, c := range conditions {
		if isBad(c, bad) && !c.Since.IsZero() && (since.IsZero() || c.Since.Before(since)) {
			since = c.Since
		}
	}
	return since
}

func isBad(c Condition, bad []string) bool {
	if c.Type == vocabulary.ConditionReady {
		return c.Status != vocabulary.StatusTrue
	}
	return slices.Contains(bad, c.Type) && c.Status != vocabulary.StatusFalse
}

// Node is what is known about the node of a machine.
type Node struct {
	NodeName     string
	Healthy      bool   // by DecideNode
	NodeDeleting bool   // the Node is being deleted, and the machine is not
	NodeGone     bool   // it is certain that the Node does not exist
	NodeWaits    string // why a node that is healthy has not joined yet; empty: nothing keeps it
	Why          string
	BadSince     time.Time // when the node became unhealthy; zero: the node is missing, or has no time
}

// Clocks are the recorded times from which timeouts count.
type Clocks struct {
	Created                     time.Time
	CreateBy                    time.Time // end of the creation timeout; it moves with Now while its clock stands still
	Since                       time.Time // since when the machine is in this phase
	UnhealthySince              time.Time // the recorded health clock
	RecoveredAt, InstanceGoneAt time.Time
}

// Replacement is how far the replacement of a machine is.
type Replacement struct {
	Due     bool   // condition ReplacementDue is True
	Granted bool   // its replacement was granted
	Alone   bool   // its replacement needs no grant
	Breaker string // why the breaker is open; empty: it is not
}

// Facts describe a machine that is being created or exists. A zero time is not known.
type Facts struct {
	Name, Phase string
	NoTarget    bool // there is no target cluster
	Instance    bool // the instance is recorded
	Preserved   bool // no set replaces it
	Node
	Clocks
	Timeout   time.Duration // health timeout; zero: at once
	NoTimeout bool

	UpdateResult  string        // result of the in-place update: successful or failed; empty: none yet
	UpdateTimeout time.Duration // timeout of the in-place update
	Replacement
	Now time.Time
}

// Verdict is the result of Decide. The zero Verdict changes nothing.
type Verdict struct {
	Change   *Change   // nil: the phase stays
	Clock    *Clock    // nil: the health clock stays
	Due      *Due      // nil: the condition ReplacementDue stays
	Deadline time.Time // end of the timeout; zero: never, or it has ended
	Why      string    // what the machine waits for, or why it changes
	Look     bool      // ask the provider whether the instance exists
	Held     bool      `json:",omitempty"` // it is due, and the breaker is open: nothing is replaced
}

// Change is a new phase, with the texts for lastOperation and the event.
type Change struct {
	Phase     string
	Operation string // as in lastOperation.type
	State     string // as in lastOperation.state
	Message   string
	Reason    string // of the event
	Warning   bool   // of the event
	Joined    bool   // the node has just joined for the first time
}

// Clock is the health clock. A zero time is not set.
type Clock struct {
	UnhealthySince, RecoveredAt time.Time
}

// Due is the condition ReplacementDue.
type Due struct {
	True    bool
	Reason  string // of the condition
	Message string
}

// Decide returns the next phase of a machine. Each timeout counts from a recorded time of its own, so that no other
// write restarts it, and it ends whatever else happens.
func Decide(f Facts) Verdict {
	switch {
	case f.Phase == vocabulary.PhaseFailed:
		return failed(f)
	case f.Granted:
		message := fmt.Sprintf("Machine %s is to be replaced: %s", f.Name, f.Why)
		// it stays due
		return change(vocabulary.PhaseFailed, vocabulary.OperationHealthCheck, vocabulary.ReasonReplacementGranted, message)
	case !f.Instance, f.Phase == "", f.Phase == vocabulary.PhaseCrashLoopBackOff:
		return awaitCreation(f, "the provider has not created its instance")
	case f.NoTarget:
		v := change(
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
			return join(f)
		}
		return awaitCreation(f, f.Why)
	case vocabulary.PhaseRunning:
		if well {
			return Verdict{}
		}
		return markUnhealthy(f)
	case vocabulary.PhaseUnknown:
		if well {
			return markRecovered(f)
		}
		return awaitTimeout(f, f.UnhealthySince)
	default:
		return update(f)
	}
}

// update follows an in-place update. While the agent works, the node's health is ignored.
func update(f Facts) Verdict {
	switch {
	case f.Phase != vocabulary.PhaseInPlaceUpdating && f.Phase != vocabulary.PhaseInPlaceUpdateSuccessful && f.Phase != vocabulary.PhaseInPlaceUpdateFailed:
		return Verdict{} // a phase of another controller
	case f.Phase == vocabulary.PhaseInPlaceUpdateSuccessful && f.Healthy && !f.NodeDeleting:
		return markRecovered(f)
	case f.Phase == vocabulary.PhaseInPlaceUpdateSuccessful:
		return markUnhealthy(f)
	case f.UpdateResult == vocabulary.UpdateSuccessful:
		message := fmt.Sprintf("Machine %s: its node was updated in place", f.Name)
		return change(
			vocabulary.PhaseInPlaceUpdateSuccessful,
			vocabulary.OperationInPlaceUpdate,
			vocabulary.PhaseInPlaceUpdateSuccessful,
			message,
		)
	case f.Phase == vocabulary.PhaseInPlaceUpdateFailed:
		return awaitTimeout(f, f.Since)
	}
	message := fmt.Sprintf("Machine %s: the in-place update of its node failed", f.Name)
	deadline := f.Since.Add(f.UpdateTimeout)
	switch {
	case f.UpdateResult == vocabulary.UpdateFailed:
	case f.Now.Before(deadline):
		return Verdict{Why: "waits for the agent that updates node " + f.NodeName, Deadline: deadline}
	default:
		message = fmt.Sprintf(
			"Machine %s: the in-place update of its node took longer than %s",
			f.Name,
			phrase.Length(f.UpdateTimeout),
		)
	}
	return change(
		vocabulary.PhaseInPlaceUpdateFailed,
		vocabulary.OperationInPlaceUpdate,
		vocabulary.PhaseInPlaceUpdateFailed,
		message,
	)
}

// failed keeps a Failed machine as it is, because its set replaces it. Only a preserved machine, which no set replaces,
// can recover.
func failed(f Facts) Verdict {
	if f.Preserved && f.Healthy && !f.NodeDeleting {
		return markRecovered(f)
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
		phrase.Length(f.CreateBy.Sub(f.Created).Round(time.Second)),
		missing,
	)
	return fail(vocabulary.OperationCreate, vocabulary.ReasonCreationTimeout, message)
}

func join(f Facts) Verdict {
	message := fmt.Sprintf(
		"Machine %s successfully joined the cluster in %s",
		f.Name,
		phrase.Length(f.Now.Sub(f.Created).Truncate(time.Second)),
	)
	v := change(vocabulary.PhaseRunning, vocabulary.OperationCreate, vocabulary.ReasonJoined, message)
	v.Change.Joined = true
	return v
}

// markUnhealthy starts the health clock at the time since which the node is unhealthy, but not before the machine was
// last seen healthy. After a short recovery the earlier clock continues.
func markUnhealthy(f Facts) Verdict {
	since := f.BadSince
	if since.IsZero() || since.After(f.Now) {
		since = f.Now
	}
	since = phrase.Later(f.Since, since)
	if !f.RecoveredAt.IsZero() && !f.UnhealthySince.IsZero() &&
		since.Sub(f.RecoveredAt) < min(f.Timeout/10, steadyAtMost) {
		since = f.UnhealthySince
	}
	message := fmt.Sprintf("Machine %s is unhealthy - changing MachinePhase to Unknown: %s", f.Name, f.Why)
	v := change(vocabulary.PhaseUnknown, vocabulary.OperationHealthCheck, vocabulary.ReasonUnhealthy, message)
	v.Clock, v.Look = &Clock{UnhealthySince: since}, true
	return v
}

func markRecovered(f Facts) Verdict {
	message := fmt.Sprintf("Machine %s successfully re-joined the cluster", f.Name)
	v := change(vocabulary.PhaseRunning, vocabulary.OperationHealthCheck, vocabulary.ReasonRejoined, message)
	v.Clock = &Clock{UnhealthySince: f.UnhealthySince, RecoveredAt: f.Now}
	if f.Due {
		v.Due = &Due{Reason: vocabulary.ReasonRecovered, Message: message}
	}
	return v
}

// TimedOut reports whether the health timeout of an unhealthy machine has ended. Then the breaker decides whether the
// machine is replaced.
func TimedOut(f Facts) bool {
	since := f.Since
	switch f.Phase {
	case vocabulary.PhaseUnknown:
		since = cmp.Or(f.UnhealthySince, f.Since) // without a clock, another controller wrote the phase
	case vocabulary.PhaseInPlaceUpdateFailed:
	default:
		return false
	}
	reason, _, _ := timeout(f, since)
	return reason != ""
}

// awaitTimeout waits for the health timeout of an unhealthy machine, or reports that it has ended.
func awaitTimeout(f Facts, since time.Time) Verdict {
	if since.IsZero() {
		since = f.Since // the phase was written by another controller, without a clock
	}
	reason, message, deadline := timeout(f, since)
	switch {
	case reason == "" && f.Due: // the timeout was extended
		message := fmt.Sprintf("Machine %s has more time to recover: its health timeout was changed", f.Name)
		return Verdict{
			Why:      f.Why,
			Deadline: deadline,
			Look:     true,
			Due:      &Due{Reason: vocabulary.ReasonHealthTimeoutExtended, Message: message},
		}
	case reason == "":
		return Verdict{Why: f.Why, Deadline: deadline, Look: true}
	case f.Alone && f.Breaker == "":
		return fail(vocabulary.OperationHealthCheck, reason, message)
	case f.Breaker != "":
		message += "; held: " + f.Breaker
	case !f.Alone:
		message += "; waits until its deployment's replacement budget allows it"
	}
	return Verdict{
		Why:  message,
		Due:  &Due{True: true, Reason: reason, Message: message},
		Look: f.InstanceGoneAt.IsZero(),
		Held: f.Breaker != "",
	}
}

// timeout says why the machine is due. If reason is empty, the machine is not due, and deadline is the end of the
// health timeout; zero: it never ends.
func timeout(f Facts, since time.Time) (reason, message string, deadline time.Time) {
	deadline = since.Add(f.Timeout)
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
			phrase.Length(f.Timeout),
			f.Why,
		), time.Time{}
	}
}

// fail makes a machine Failed and due, for the same reason.
func fail(operation, reason, message string) Verdict {
	v := change(vocabulary.PhaseFailed, operation, reason, message)
	v.Due = &Due{True: true, Reason: reason, Message: message}
	return v
}

// change returns a new phase. The state and the kind of event follow from the phase.
func change(phase, operation, reason, message string) Verdict {
	c := Change{Phase: phase, Operation: operation, State: vocabulary.StateSuccessful, Reason: reason, Message: message}
	switch phase {
	case vocabulary.PhaseUnknown:
		c.State, c.Warning = vocabulary.StateProcessing, true
	case vocabulary.PhaseFailed, vocabulary.PhaseInPlaceUpdateFailed:
		c.State, c.Warning = vocabulary.StateFailed, true
	}
	return Verdict{Why: message, Change: &c}
}
