package cloud

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
)

// record is all that the cloud stores about one instance. It has times and no state: the state of the instance at any
// time, also a past one, follows from them. So a restart has nothing to resume, and a stale read is a read of an
// earlier time.
type record struct {
	Number      int          `json:"number"` // the N of the ID i-N; each instance has a larger number
	Name        string       `json:"name"`
	Tags        virtual.Tags `json:"tags"`
	Spec        virtual.Spec `json:"spec"`
	ClientToken string       `json:"clientToken,omitempty"`

	Accepted    time.Time `json:"accepted"`             // time from which on the instance exists, as pending
	Runs        time.Time `json:"runs"`                 // time from which on the instance runs
	Boots       time.Time `json:"boots"`                // time from which on its Node may register
	Initialized time.Time `json:"initialized,omitzero"` // time at which the initialize step ran
	Deleted     time.Time `json:"deleted,omitzero"`     // time at which the delete call was accepted
	Gone        time.Time `json:"gone,omitzero"`        // end of the instance; may be in the future
	Vanished    bool      `json:"vanished,omitempty"`   // the instance is gone without a delete call
	KeepNode    bool      `json:"keepNode,omitempty"`   // the Node stays when the instance is gone; its kubelet ends

	NodeName   string        `json:"nodeName,omitempty"`   // name that the cloud chose for the Node; empty: it is Name
	NodeInit   time.Duration `json:"nodeInit,omitempty"`   // time from Registered until its Node is initialised
	Registered time.Time     `json:"registered,omitzero"`  // time at which its Node was created
	NodeInited bool          `json:"nodeInited,omitempty"` // its Node has its provider ID, and no taint any more
	NodeEnded  bool          `json:"nodeEnded,omitempty"`  // the instance is gone, and nothing is left to do for its Node
}

func (r *record) id() string { return fmt.Sprintf("i-%d", r.Number) }

// hasID reports whether the instance has this ID.
func (r *record) hasID(id string) bool { return parseID(id) == r.Number }

// parseID returns the number in an ID; zero, which no instance has, for any other text.
func parseID(id string) int {
	digits, _ := strings.CutPrefix(id, "i-")
	number, err := strconv.Atoi(digits)
	if err != nil || id != fmt.Sprintf("i-%d", number) {
		return 0
	}
	return number
}

// existsAt reports whether the instance exists at t.
func (r *record) existsAt(t time.Time) bool {
	return !r.Accepted.After(t) && (r.Gone.IsZero() || r.Gone.After(t))
}

// isPast reports whether a time is not after t.
func isPast(moment, t time.Time) bool { return !moment.IsZero() && !moment.After(t) }

// instanceAt returns the instance as it was at t.
func (r *record) instanceAt(t time.Time) virtual.Instance {
	state := virtual.StatePending
	switch {
	case isPast(r.Gone, t):
		state = virtual.StateTerminated
	case isPast(r.Deleted, t):
		state = virtual.StateTerminating
	case isPast(r.Runs, t):
		state = virtual.StateRunning
	}
	return virtual.Instance{
		ID:          r.id(),
		ProviderID:  virtual.ProviderID(r.Spec.Region, r.id()),
		Name:        r.Name,
		NodeName:    r.nodeName(t),
		Tags:        r.Tags,
		State:       state,
		Initialize:  r.Spec.Initialize,
		Initialized: isPast(r.Initialized, t),
		Address:     r.address(),
		Created:     r.Accepted,
	}
}

// nodeName returns the name of the instance's Node, or "" if the name is not known at t.
func (r *record) nodeName(t time.Time) string {
	switch {
	case r.NodeName == "":
		return r.Name
	case isPast(r.Boots, t):
		return r.NodeName
	default:
		return ""
	}
}

// address returns the address of the instance in 10.0.0.0/8, which no other instance has.
func (r *record) address() string {
	return fmt.Sprintf("10.%d.%d.%d", r.Number>>16&0xff, r.Number>>8&0xff, r.Number&0xff)
}

// adminInstance returns the instance for the admin API.
func (r *record) adminInstance(t time.Time) admin.Instance {
	return admin.Instance{
		Instance: r.instanceAt(t), Zone: r.Spec.Zone, InstanceType: r.Spec.InstanceType,
		ClientToken: r.ClientToken, Registered: r.Registered,
	}
}
