// Package health answers whether a node is healthy (Decide), and what becomes of a machine because of its node, its instance
// and its timeouts (Next).
package health

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
)

// Condition is one condition of a node, as the API server returned it.
type Condition struct {
	Type            string
	Status          string // "True", "False" or "Unknown"
	Reason, Message string
	Since           time.Time // lastTransitionTime
}

// Decide says whether a node with these conditions is healthy: it reports at least one condition, Ready is True, and none
// of the types in bad has a status other than False (so Unknown counts as bad, as in MCM). The sentence says why not;
// it is empty for a healthy node.
func Decide(conditions []Condition, bad []string) (healthy bool, why string) {
	var reasons []string
	for _, c := range conditions {
		if isBad(c, bad) {
			reasons = append(reasons, fmt.Sprintf("%s is %s (%s)", c.Type, c.Status, c.Reason))
		}
	}
	slices.Sort(reasons)
	if len(reasons) == 0 && !slices.ContainsFunc(conditions, func(c Condition) bool { return c.Type == vocabulary.ConditionReady }) {
		return false, "no Ready condition reported yet"
	}
	return len(reasons) == 0, strings.Join(reasons, ", ")
}

// BadSince returns the moment from which these conditions have made the node unhealthy: the transition of the first that
// turned bad. It is zero when none is bad, or when none tells.
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

// Facts are what the caller of Next read of a machine that is being made or was made. Times that are zero are not known.
type Facts struct {
	Name, Phase string
	NoTarget    bool // there is no cluster that a node could join
	Instance    bool // the instance is on record
	NodeName    string
	Healthy     bool // the node is, by Decide
	NodeGoing   bool // the Node is being deleted, and the machine is not
	NodeHeld    bool // critical components of the node are not ready: it has not joined yet
	Why         string
	BadSince    time.Time // when the node's conditions turned bad; zero when the node is missing or does not tell

	Created  time.Time
	CreateBy time.Time // when the creation timeout ends; it moves on with Now while its clock stands still

	Since                       time.Time // of the phase
	UnhealthySince              time.Time // the health clock, as recorded
	RecoveredAt, InstanceGoneAt time.Time
	Timeout                     time.Duration // of health; zero means at once
	NoTimeout                   bool

	Preserved bool // kept on purpose: no set touches it

	UpdateResult  string        // of the in-place update, as its agent says: successful, failed or nothing yet
	UpdateTimeout time.Duration // of the in-place update

	Due     bool   // recorded: the machine is to be replaced
	Granted bool   // the replacement was granted
	Alone   bool   // no deployment has to grant it
	Breaker string // why nothing is replaced now; empty when it may be
	Now     time.Time
}

// Verdict is what becomes of a machine. The zero Verdict leaves everything as it is.
type Verdict struct {
	Change   *Change   // nil keeps the phase
	Clock    *Clock    // nil keeps the health clock
	Due      *Due      // nil keeps the condition ReplacementDue
	Deadline time.Time // when the timeout ends; zero means never, or that it has ended already
	Why      string    // what the machine waits for, or why it changes
	Look     bool      // the provider may know why the node is silent
}

// Change is what becomes of a machine: its new phase and the sentence for lastOperation and the event.
type Change struct {
	Phase     string
	Operation string // as in lastOperation.type
	State     string // as in lastOperation.state
	Message   string
	Reason    string // of the event
	Warning   bool   // of the event
	Joined    bool   // the node has just joined for the first time
}

// Clock is the health clock. Zero times mean "not set".
type Clock struct {
	UnhealthySince, RecoveredAt time.Time
}

// Due says whether the machine is to be replaced, for its condition ReplacementDue.
type Due struct {
	True    bool
	Reason  string // of the condition
	Message string
}

// steadyAtMost bounds for how long a node must be healthy before an illness counts as a new one. Below it, and below a
// tenth of the health timeout, the clock of the earlier illness goes on, so that a node which flaps does not postpone its
// end for ever. Source: MCM's issue of that kind was with nodes that flapped several times a minute.
const steadyAtMost = time.Minute

// Next says what becomes of a machine. Each timeout counts from its own recorded base, so that no other write restarts it,
// and fires when it has passed, whatever else happens.
func Next(f Facts) Verdict {
	switch {
	case f.Phase == vocabulary.PhaseFailed:
		return failed(f)
	case f.Granted:
		message := fmt.Sprintf("Machine %s is to be replaced: %s", f.Name, f.Why)
		return change(vocabulary.PhaseFailed, vocabulary.OperationHealthCheck, vocabulary.ReasonReplacementGranted, message) // and stays due
	case !f.Instance, f.Phase == "", f.Phase == vocabulary.PhaseCrashLoopBackOff:
		return made(f, "the provider has not made its instance")
	case f.NoTarget:
		v := change(vocabulary.PhaseAvailable, vocabulary.OperationCreate, vocabulary.ReasonInstanceCreated, "Created machine on cloud provider")
		v.Why = f.Why
		return v
	}
	switch well := f.Healthy && !f.NodeGoing; f.Phase {
	case vocabulary.PhasePending, vocabulary.PhaseAvailable:
		if well && !f.NodeHeld {
			return join(f)
		}
		return made(f, f.Why)
	case vocabulary.PhaseRunning:
		if well {
			return Verdict{}
		}
		return sicken(f)
	case vocabulary.PhaseUnknown:
		if well {
			return heal(f)
		}
		return endure(f, f.UnhealthySince)
	default:
		return update(f)
	}
}

// update follows an in-place update. While the agent works, the node's health says nothing.
func update(f Facts) Verdict {
	switch {
	case f.Phase != vocabulary.PhaseInPlaceUpdating && f.Phase != vocabulary.PhaseInPlaceUpdateSuccessful && f.Phase != vocabulary.PhaseInPlaceUpdateFailed:
		return Verdict{} // a phase of another controller
	case f.Phase == vocabulary.PhaseInPlaceUpdateSuccessful && f.Healthy && !f.NodeGoing:
		return heal(f)
	case f.Phase == vocabulary.PhaseInPlaceUpdateSuccessful:
		return sicken(f)
	case f.UpdateResult == vocabulary.UpdateSuccessful:
		message := fmt.Sprintf("Machine %s: its node was updated in place", f.Name)
		return change(vocabulary.PhaseInPlaceUpdateSuccessful, vocabulary.OperationInPlaceUpdate, vocabulary.PhaseInPlaceUpdateSuccessful, message)
	case f.Phase == vocabulary.PhaseInPlaceUpdateFailed:
		return endure(f, f.Since)
	}
	message, deadline := fmt.Sprintf("Machine %s: the in-place update of its node failed", f.Name), f.Since.Add(f.UpdateTimeout)
	switch {
	case f.UpdateResult == vocabulary.UpdateFailed:
	case f.Now.Before(deadline):
		return Verdict{Why: "waits for the agent that updates node " + f.NodeName, Deadline: deadline}
	default:
		message = fmt.Sprintf("Machine %s: the in-place update of its node took longer than %s minutes", f.Name, minutes(f.UpdateTimeout))
	}
	return change(vocabulary.PhaseInPlaceUpdateFailed, vocabulary.OperationInPlaceUpdate, vocabulary.PhaseInPlaceUpdateFailed, message)
}

// failed leaves a machine that has failed alone: its set replaces it, and it is not taken back behind the set's back. No set
// touches one that is preserved.
func failed(f Facts) Verdict {
	if f.Preserved && f.Healthy && !f.NodeGoing {
		return heal(f)
	}
	return Verdict{}
}

// made waits for the end of a creation, or gives it up.
func made(f Facts, missing string) Verdict {
	if f.CreateBy.IsZero() || f.Now.Before(f.CreateBy) {
		return Verdict{Deadline: f.CreateBy, Why: missing}
	}
	message := fmt.Sprintf("Machine %s failed to join the cluster in %s minutes: %s", f.Name, minutes(f.CreateBy.Sub(f.Created)), missing)
	return fail(vocabulary.OperationCreate, vocabulary.ReasonCreationTimeout, message)
}

func join(f Facts) Verdict {
	message := fmt.Sprintf("Machine %s successfully joined the cluster in %s", f.Name, f.Now.Sub(f.Created).Truncate(time.Second))
	v := change(vocabulary.PhaseRunning, vocabulary.OperationCreate, vocabulary.ReasonJoined, message)
	v.Change.Joined = true
	return v
}

// sicken starts the health clock: at the moment from which the node says that it is unhealthy, but not before the machine
// was last seen well. A node that was well for a moment only goes on with the clock of its earlier illness.
func sicken(f Facts) Verdict {
	since := f.BadSince
	if since.IsZero() || since.After(f.Now) {
		since = f.Now
	}
	since = phrase.Later(f.Since, since)
	if !f.RecoveredAt.IsZero() && !f.UnhealthySince.IsZero() && since.Sub(f.RecoveredAt) < min(f.Timeout/10, steadyAtMost) {
		since = f.UnhealthySince
	}
	message := fmt.Sprintf("Machine %s is unhealthy - changing MachinePhase to Unknown: %s", f.Name, f.Why)
	v := change(vocabulary.PhaseUnknown, vocabulary.OperationHealthCheck, vocabulary.ReasonUnhealthy, message)
	v.Clock, v.Look = &Clock{UnhealthySince: since}, true
	return v
}

func heal(f Facts) Verdict {
	message := fmt.Sprintf("Machine %s successfully re-joined the cluster", f.Name)
	v := change(vocabulary.PhaseRunning, vocabulary.OperationHealthCheck, vocabulary.ReasonRejoined, message)
	v.Clock = &Clock{UnhealthySince: f.UnhealthySince, RecoveredAt: f.Now}
	if f.Due {
		v.Due = &Due{Reason: vocabulary.ReasonRecovered, Message: message}
	}
	return v
}

// endure waits for the end of the health timeout of an unhealthy machine, or says that it has come.
func endure(f Facts, since time.Time) Verdict {
	if since.IsZero() {
		since = f.Since // written by another controller: the phase is the best base there is
	}
	reason, message, deadline := timeout(f, since)
	switch {
	case reason == "" && f.Due: // somebody made the timeout longer
		message := fmt.Sprintf("Machine %s has more time to recover: its health timeout was changed", f.Name)
		return Verdict{Why: f.Why, Deadline: deadline, Look: true, Due: &Due{Reason: vocabulary.ReasonHealthTimeoutExtended, Message: message}}
	case reason == "":
		return Verdict{Why: f.Why, Deadline: deadline, Look: true}
	case f.Alone && f.Breaker == "":
		return fail(vocabulary.OperationHealthCheck, reason, message)
	case f.Breaker != "":
		message += "; held: " + f.Breaker
	case !f.Alone:
		message += "; waits until its deployment's replacement budget allows it"
	}
	return Verdict{Why: message, Due: &Due{True: true, Reason: reason, Message: message}, Look: f.InstanceGoneAt.IsZero()}
}

// timeout says why the machine is due; with an empty reason, when the health timeout ends. Zero: never.
func timeout(f Facts, since time.Time) (reason, message string, deadline time.Time) {
	deadline = since.Add(f.Timeout)
	switch {
	case f.NodeGoing:
		return vocabulary.ReasonNodeDeleted, fmt.Sprintf("Machine %s: node %s is being deleted", f.Name, f.NodeName), time.Time{}
	case !f.InstanceGoneAt.IsZero():
		return vocabulary.ReasonInstanceGone, fmt.Sprintf("Machine %s: the provider has no instance of it any more", f.Name), time.Time{}
	case f.NoTimeout:
		return "", "", time.Time{}
	case f.Now.Before(deadline):
		return "", "", deadline
	default:
		return vocabulary.ReasonHealthTimeout, fmt.Sprintf("Machine %s is not healthy since %s minutes: %s", f.Name, minutes(f.Timeout), f.Why), time.Time{}
	}
}

// fail gives a machine up: it is to be replaced for the same reason.
func fail(operation, reason, message string) Verdict {
	v := change(vocabulary.PhaseFailed, operation, reason, message)
	v.Due = &Due{True: true, Reason: reason, Message: message}
	return v
}

// change is a new phase. Its state follows from the phase, and so does whether its event is a warning.
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

// minutes tells a duration as MCM's messages do, in minutes, with two decimal places where it needs them.
func minutes(d time.Duration) string {
	return strconv.FormatFloat(math.Round(100*d.Minutes())/100, 'f', -1, 64)
}
