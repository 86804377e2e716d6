package health

import (
	"fmt"
	"time"
)

// Facts are what DecideMachine read of a machine whose phase no longer fits its node.
type Facts struct {
	Name    string
	Joined  bool // it was Running before
	Healthy bool
	Why     string // why the node is not healthy
	Created time.Time
	Now     time.Time
}

// Change is what becomes of a machine: its new phase and the sentence for lastOperation and the event.
type Change struct {
	Phase     string // Running or Unknown
	Operation string // Create or HealthCheck, as in lastOperation.type
	State     string // Successful or Processing, as in lastOperation.state
	Message   string
	Reason    string // of the event
	Warning   bool   // of the event
}

// Transition says what becomes of a machine with an instance: Running with a healthy node, else Unknown.
func Transition(m Facts) Change {
	switch {
	case !m.Healthy:
		return Change{
			Phase: "Unknown", Operation: "HealthCheck", State: "Processing", Reason: "Unhealthy", Warning: true,
			Message: fmt.Sprintf("Machine %s is unhealthy - changing MachinePhase to Unknown: %s", m.Name, m.Why),
		}
	case m.Joined:
		return Change{
			Phase: "Running", Operation: "HealthCheck", State: "Successful", Reason: "Rejoined",
			Message: fmt.Sprintf("Machine %s successfully re-joined the cluster", m.Name),
		}
	default:
		return Change{
			Phase: "Running", Operation: "Create", State: "Successful", Reason: "Joined",
			Message: fmt.Sprintf("Machine %s successfully joined the cluster in %s", m.Name, m.Now.Sub(m.Created).Round(time.Second)),
		}
	}
}
