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
	Number      int          `json:"number"` // N of i-N; grows with each instance
	Name        string       `json:"name"`
	Tags        virtual.Tags `json:"tags"`
	Spec        virtual.Spec `json:"spec"`
	ClientToken string       `json:"clientToken,omitempty"`

	Accepted    time.Time `json:"accepted"`             // exists from then on, pending
	Runs        time.Time `json:"runs"`                 // running from then on
	Boots       time.Time `json:"boots"`                // its Node may register from then on
	Initialized time.Time `json:"initialized,omitzero"` // the initialize step ran
	Deleted     time.Time `json:"deleted,omitzero"`     // the delete call was accepted
	Gone        time.Time `json:"gone,omitzero"`        // does not exist from then on; may be in the future
	Vanished    bool      `json:"vanished,omitempty"`   // gone without a delete call
	KeepNode    bool      `json:"keepNode,omitempty"`   // the Node stays when the instance is gone, without its kubelet

	NodeName   string        `json:"nodeName,omitempty"`   // name that the cloud chose for the Node; empty: it is Name
	NodeInit   time.Duration `json:"nodeInit,omitempty"`   // from Registered until its Node is initialised
	Registered time.Time     `json:"registered,omitzero"`  // its Node was created
	NodeInited bool          `json:"nodeInited,omitempty"` // its Node was initialised
	NodeEnded  bool          `json:"nodeEnded,omitempty"`  // the instance is gone, and nothing is left to do for its Node
}

func (r *record) id() string { return fmt.Sprintf("i-%d", r.Number) }

// is reports whether that is the instance's ID.
func (r *record) is(id string) bool { return parseID(id) == r.Number }

// parseID returns the number in an ID; zero, which no instance has, for any other text.
func parseID(id string) int {
	digits, _ := strings.CutPrefix(id, "i-")
	number, err := strconv.Atoi(digits)
	if err != nil || id != fmt.Sprintf("i-%d", number) {
		return 0
	}
	return number
}

// live reports whether the instance exists at t.
func (r *record) live(t time.Time) bool {
	return !r.Accepted.After(t) && (r.Gone.IsZero() || r.Gone.After(t))
}

// happened reports whether a time is not after t.
func happened(moment, t time.Time) bool { return !moment.IsZero() && !moment.After(t) }

// at returns the instance as it was at t.
func (r *record) at(t time.Time) virtual.Instance {
	state := virtual.StatePending
	switch {
	case happened(r.Gone, t):
		state = virtual.StateTerminated
	case happened(r.Deleted, t):
		state = virtual.StateTerminating
	case happened(r.Runs, t):
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
		Initialized: happened(r.Initialized, t),
		Address:     r.address(),
		Created:     r.Accepted,
	}
}

// nodeName returns the name of its Node, as far as it is known at t.
func (r *record) nodeName(t time.Time) string {
	switch {
	case r.NodeName == "":
		return r.Name
	case happened(r.Boots, t):
		return r.NodeName
	default:
		return ""
	}
}

// address gives each instance its own address in 10.0.0.0/8.
func (r *record) address() string {
	return fmt.Sprintf("10.%d.%d.%d", r.Number>>16&0xff, r.Number>>8&0xff, r.Number&0xff)
}

// truth returns the instance for the admin API.
func (r *record) truth(t time.Time) admin.Instance {
	return admin.Instance{
		Instance: r.at(t), Zone: r.Spec.Zone, InstanceType: r.Spec.InstanceType,
		ClientToken: r.ClientToken, Registered: r.Registered,
	}
}
