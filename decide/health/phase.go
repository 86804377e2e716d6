package health

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Facts are what DecideMachine read of a machine that is being made or was made. Times that are zero are not known.
type Facts struct {
	Name      string
	Phase     string
	NoTarget  bool // there is no cluster that a node could join
	Instance  bool // the instance is on record
	NodeName  string
	Healthy   bool // the node is, by Decide
	NodeGoing bool // the Node is being deleted, and the machine is not
	NodeHeld  bool // critical components of the node are not ready: it has not joined yet
	Why       string
	BadSince  time.Time // when the node's conditions turned bad; zero when the node is missing or does not tell

	Created  time.Time
	CreateBy time.Time // when the creation timeout ends; it moves on with Now while its clock stands still

	Since          time.Time // of the phase
	UnhealthySince time.Time // the health clock, as recorded
	RecoveredAt    time.Time
	InstanceGoneAt time.Time
	Timeout        time.Duration // of health; zero means at once
	NoTimeout      bool

	Preserved bool // kept on purpose: no set touches it

	UpdateResult  string        // of the in-place update, as its agent says: successful, failed or nothing yet
	UpdateTimeout time.Duration // of the in-place update

	Due     bool   // recorded: patience has ended
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
	Deadline time.Time // when patience ends; zero means never, or that it has ended already
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
	UnhealthySince time.Time
	RecoveredAt    time.Time
}

// Due says whether patience with the machine has ended, for its condition.
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
	case f.Phase == "Failed":
		return failed(f)
	case f.Granted:
		return fail("HealthCheck", "ReplacementGranted", fmt.Sprintf("Machine %s is to be replaced: %s", f.Name, f.Why))
	case !f.Instance, f.Phase == "", f.Phase == "CrashLoopBackOff":
		return made(f, "the provider has not made its instance")
	case f.NoTarget:
		return available(f)
	}
	switch well := f.Healthy && !f.NodeGoing; f.Phase {
	case "Pending", "Available":
		if well && !f.NodeHeld {
			return join(f)
		}
		return made(f, f.Why)
	case "Running":
		if well {
			return Verdict{}
		}
		return sicken(f)
	case "Unknown":
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
	case f.Phase != "InPlaceUpdating" && f.Phase != "InPlaceUpdateSuccessful" && f.Phase != "InPlaceUpdateFailed":
		return Verdict{} // a phase of another controller
	case f.Phase == "InPlaceUpdateSuccessful" && f.Healthy && !f.NodeGoing:
		return heal(f)
	case f.Phase == "InPlaceUpdateSuccessful":
		return sicken(f)
	case f.UpdateResult == "successful":
		message := fmt.Sprintf("Machine %s: its node was updated in place", f.Name)
		return updated("InPlaceUpdateSuccessful", "Successful", message, false)
	case f.Phase == "InPlaceUpdateFailed":
		return endure(f, f.Since)
	case f.UpdateResult == "failed":
		message := fmt.Sprintf("Machine %s: the in-place update of its node failed", f.Name)
		return updated("InPlaceUpdateFailed", "Failed", message, true)
	}
	if deadline := f.Since.Add(f.UpdateTimeout); f.Now.Before(deadline) {
		return Verdict{Why: "waits for the agent that updates node " + f.NodeName, Deadline: deadline}
	}
	message := fmt.Sprintf("Machine %s: the in-place update of its node took longer than %s minutes", f.Name, minutes(f.UpdateTimeout))
	return updated("InPlaceUpdateFailed", "Failed", message, true)
}

func updated(phase, state, message string, warning bool) Verdict {
	return Verdict{Why: message, Change: &Change{
		Phase: phase, Operation: "InPlaceUpdate", State: state, Reason: phase, Warning: warning, Message: message,
	}}
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
	v := fail("Create", "CreationTimeout", message)
	v.Due = &Due{True: true, Reason: "CreationTimeout", Message: message}
	return v
}

func available(f Facts) Verdict {
	return Verdict{Why: f.Why, Change: &Change{
		Phase: "Available", Operation: "Create", State: "Successful", Reason: "InstanceCreated", Message: "Created machine on cloud provider",
	}}
}

func join(f Facts) Verdict {
	message := fmt.Sprintf("Machine %s successfully joined the cluster in %s", f.Name, f.Now.Sub(f.Created).Truncate(time.Second))
	return Verdict{Why: message, Change: &Change{
		Phase: "Running", Operation: "Create", State: "Successful", Reason: "Joined", Message: message, Joined: true,
	}}
}

// sicken starts the health clock: at the moment from which the node says that it is unhealthy, but not before the machine
// was last seen well. A node that was well for a moment only goes on with the clock of its earlier illness.
func sicken(f Facts) Verdict {
	since := f.BadSince
	if since.IsZero() || since.After(f.Now) {
		since = f.Now
	}
	if since.Before(f.Since) {
		since = f.Since
	}
	steady := min(f.Timeout/10, steadyAtMost)
	if !f.RecoveredAt.IsZero() && !f.UnhealthySince.IsZero() && since.Sub(f.RecoveredAt) < steady {
		since = f.UnhealthySince
	}
	message := fmt.Sprintf("Machine %s is unhealthy - changing MachinePhase to Unknown: %s", f.Name, f.Why)
	return Verdict{
		Why: message, Clock: &Clock{UnhealthySince: since}, Look: true,
		Change: &Change{Phase: "Unknown", Operation: "HealthCheck", State: "Processing", Reason: "Unhealthy", Warning: true, Message: message},
	}
}

func heal(f Facts) Verdict {
	message := fmt.Sprintf("Machine %s successfully re-joined the cluster", f.Name)
	v := Verdict{
		Why: message, Clock: &Clock{UnhealthySince: f.UnhealthySince, RecoveredAt: f.Now},
		Change: &Change{Phase: "Running", Operation: "HealthCheck", State: "Successful", Reason: "Rejoined", Message: message},
	}
	if f.Due {
		v.Due = &Due{Reason: "Recovered", Message: message}
	}
	return v
}

// endure waits for the end of patience with an unhealthy machine, or says that it has come.
func endure(f Facts, since time.Time) Verdict {
	if since.IsZero() {
		since = f.Since // written by another controller: the phase is the best base there is
	}
	reason, message, deadline := patience(f, since)
	switch {
	case reason == "" && f.Due: // somebody has more patience now
		message := fmt.Sprintf("Machine %s has more time to recover: its health timeout was changed", f.Name)
		return Verdict{Why: f.Why, Deadline: deadline, Look: true, Due: &Due{Reason: "PatienceExtended", Message: message}}
	case reason == "":
		return Verdict{Why: f.Why, Deadline: deadline, Look: true}
	case f.Alone && f.Breaker == "":
		v := fail("HealthCheck", reason, message)
		v.Due = &Due{True: true, Reason: reason, Message: message}
		return v
	case f.Breaker != "":
		message += "; held: " + f.Breaker
	case !f.Alone:
		message += "; waits until its deployment's replacement budget allows it"
	}
	return Verdict{Why: message, Due: &Due{True: true, Reason: reason, Message: message}, Look: f.InstanceGoneAt.IsZero()}
}

// patience says why it has ended; with an empty reason, when it will, if ever.
func patience(f Facts, since time.Time) (reason, message string, deadline time.Time) {
	deadline = since.Add(f.Timeout)
	switch {
	case f.NodeGoing:
		return "NodeDeleted", fmt.Sprintf("Machine %s: node %s is being deleted", f.Name, f.NodeName), time.Time{}
	case !f.InstanceGoneAt.IsZero():
		return "InstanceGone", fmt.Sprintf("Machine %s: the provider has no instance of it any more", f.Name), time.Time{}
	case f.NoTimeout:
		return "", "", time.Time{}
	case f.Now.Before(deadline):
		return "", "", deadline
	default:
		return "HealthTimeout", fmt.Sprintf("Machine %s is not healthy since %s minutes: %s", f.Name, minutes(f.Timeout), f.Why), time.Time{}
	}
}

func fail(operation, reason, message string) Verdict {
	return Verdict{Why: message, Change: &Change{
		Phase: "Failed", Operation: operation, State: "Failed", Reason: reason, Warning: true, Message: message,
	}}
}

// minutes tells a duration as MCM's messages do, in minutes, with two decimal places where it needs them.
func minutes(d time.Duration) string {
	return strconv.FormatFloat(math.Round(100*d.Minutes())/100, 'f', -1, 64)
}
