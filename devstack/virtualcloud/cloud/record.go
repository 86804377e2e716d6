package cloud

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
)

// instanceRecord is the stored data of one instance. A record contains times instead of a state. The state at any time,
// also in the past, follows from these times. A restart therefore has nothing to resume, and a stale read is a read at
// an earlier time.
type instanceRecord struct {
	Number      int          `json:"number"` // the N in the ID i-N; a newer instance has a larger number
	Name        string       `json:"name"`
	Tags        virtual.Tags `json:"tags"`
	Spec        virtual.Spec `json:"spec"`
	ClientToken string       `json:"clientToken,omitempty"`

	AcceptedAt    time.Time `json:"accepted"`             // time from which the instance is pending
	RunningAt     time.Time `json:"runs"`                 // time from which the instance is running
	BootedAt      time.Time `json:"boots"`                // time from which the Node may register
	InitializedAt time.Time `json:"initialized,omitzero"` // time of the initialize call
	DeletedAt     time.Time `json:"deleted,omitzero"`     // time of the accepted delete call
	GoneAt        time.Time `json:"gone,omitzero"`        // end of the instance; may be in the future
	Vanished      bool      `json:"vanished,omitempty"`   // the instance ended without a delete call
	// the Node stays after the end of the instance, without its simulated kubelet
	NodeRemains bool `json:"keepNode,omitempty"`

	NodeName                string        `json:"nodeName,omitempty"`   // Node name chosen by the cloud; empty: Name
	NodeInitializationDelay time.Duration `json:"nodeInit,omitempty"`   // time from Registered to the Node's initialization
	RegisteredAt            time.Time     `json:"registered,omitzero"`  // time of the Node's creation
	NodeInitialized         bool          `json:"nodeInited,omitempty"` // the Node has its provider ID and no uninitializedTaint
	NodeSyncFinished        bool          `json:"nodeEnded,omitempty"`  // the instance is gone, and its Node needs no further work
}

func (r *instanceRecord) id() string { return fmt.Sprintf("i-%d", r.Number) }

func (r *instanceRecord) hasID(id string) bool { return parseID(id) == r.Number }

// parseID returns the number in an instance ID. For any other text, parseID returns zero, which is no instance's
// number.
func parseID(id string) int {
	digits, _ := strings.CutPrefix(id, "i-")
	number, err := strconv.Atoi(digits)
	if err != nil || id != fmt.Sprintf("i-%d", number) {
		return 0
	}
	return number
}

func (r *instanceRecord) existsAtTime(t time.Time) bool {
	return !r.AcceptedAt.After(t) && (r.GoneAt.IsZero() || r.GoneAt.After(t))
}

// isPast reports whether moment is set and not after t.
func isPast(moment, t time.Time) bool { return !moment.IsZero() && !moment.After(t) }

// instanceAtTime returns the instance in its state at t.
func (r *instanceRecord) instanceAtTime(t time.Time) virtual.Instance {
	state := virtual.StatePending
	switch {
	case isPast(r.GoneAt, t):
		state = virtual.StateTerminated
	case isPast(r.DeletedAt, t):
		state = virtual.StateTerminating
	case isPast(r.RunningAt, t):
		state = virtual.StateRunning
	}
	return virtual.Instance{
		ID:                  r.id(),
		ProviderID:          virtual.ProviderID(r.Spec.Region, r.id()),
		Name:                r.Name,
		NodeName:            r.nodeName(t),
		Tags:                r.Tags,
		State:               state,
		NeedsInitialization: r.Spec.NeedsInitialization,
		Initialized:         isPast(r.InitializedAt, t),
		Address:             r.address(),
		Created:             r.AcceptedAt,
	}
}

// nodeName returns the name of the instance's Node; empty if the cloud has not chosen the name at t.
func (r *instanceRecord) nodeName(t time.Time) string {
	switch {
	case r.NodeName == "":
		return r.Name
	case isPast(r.BootedAt, t):
		return r.NodeName
	default:
		return ""
	}
}

// address returns the instance's address in 10.0.0.0/8, derived from the instance's number.
func (r *instanceRecord) address() string {
	return fmt.Sprintf("10.%d.%d.%d", r.Number>>16&0xff, r.Number>>8&0xff, r.Number&0xff)
}

// adminInstance returns the instance at t in the form of the admin API.
func (r *instanceRecord) adminInstance(t time.Time) admin.Instance {
	return admin.Instance{
		Instance: r.instanceAtTime(t), Zone: r.Spec.Zone, InstanceType: r.Spec.InstanceType,
		ClientToken: r.ClientToken, RegisteredAt: r.RegisteredAt,
	}
}
