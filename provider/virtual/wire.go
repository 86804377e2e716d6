package virtual

import (
	"fmt"
	"time"
)

// Paths of the cloud's API. Every request carries "Authorization: Bearer TOKEN".
const (
	// PathInstances: POST creates an instance; GET ?cluster=&class=&page= lists instances; POST {id}/initialize
	// initializes an instance; DELETE {id}?cluster= deletes an instance.
	PathInstances = "/v1/instances"
	// PathLookup: GET ?id= or ?cluster=&uid= finds instances. If no instance has the UID, &machine=&class= also finds
	// an instance with the machine's name and without a UID. &page= selects the page.
	PathLookup = "/v1/lookup"
	PathLimits = "/v1/limits" // GET returns the Limits of the cloud
)

// Tags are the data that an instance stores about its machine.
type Tags struct {
	Cluster     string `json:"cluster"`
	Class       string `json:"class"` // namespace/name of the MachineClass
	MachineName string `json:"machine"`
	MachineUID  string `json:"machineUID"`
}

// CreateRequest requests one instance. Without a client token, or if the cloud ignores client tokens, each accepted
// request creates another instance, as with RunInstances of EC2.
type CreateRequest struct {
	Name     string `json:"name"` // name of the instance and of the instance's Node
	Tags     Tags   `json:"tags"`
	Spec     Spec   `json:"spec"`
	UserData []byte `json:"userData,omitempty"`

	// ClientToken makes the request idempotent while the instance exists: another request with an equal token returns
	// the existing instance.
	ClientToken string `json:"clientToken,omitempty"`

	// NotAfter is the time, by the cloud's clock, after which the cloud refuses the request (ReasonExpired). Therefore
	// a request that the network or a frozen process has delayed past NotAfter takes no effect, like an expired signed
	// request in a real cloud. A zero NotAfter means no limit.
	NotAfter time.Time `json:"notAfter,omitzero"`
}

// The states of an instance in the cloud. The cloud removes a deleted instance from its lists at once, or lists the
// instance as terminated for some time.
const (
	StatePending     = "pending"
	StateRunning     = "running"
	StateTerminating = "terminating"
	StateTerminated  = "terminated"
)

// Instance is an instance as the cloud reports it.
type Instance struct {
	ID                  string    `json:"id"`         // i-N
	ProviderID          string    `json:"providerID"` // virtual:///REGION/i-N
	Name                string    `json:"name"`
	NodeName            string    `json:"nodeName,omitempty"` // name of the instance's Node; may be empty before the boot
	Tags                Tags      `json:"tags"`
	State               string    `json:"state"`
	NeedsInitialization bool      `json:"initialize,omitempty"`  // the instance's class has the initialize step
	Initialized         bool      `json:"initialized,omitempty"` // the initialize step has run
	Address             string    `json:"address"`
	Created             time.Time `json:"created"`
}

// ReadAnswer is the answer to a list or lookup request. Items may be stale by less than Limits.ConsistencyWindow. Now
// is the time of the answer by the cloud's clock, and never stale.
type ReadAnswer struct {
	Now   time.Time  `json:"now"`
	Items []Instance `json:"items"` // sorted by the number N of the ID i-N
	// NextPage is the value of the parameter page for the next page. NextPage is empty on the last page.
	NextPage string `json:"next,omitempty"`
}

// Limits contains what the cloud guarantees in its documentation.
type Limits struct {
	// HonorsClientTokens is true if the cloud obeys CreateRequest.ClientToken.
	HonorsClientTokens bool `json:"clientTokens"`

	// ConsistencyWindow is the cloud's provider.Traits.Window.
	ConsistencyWindow Duration `json:"consistencyWindow"`
}

// Duration is a time.Duration with Go's text form ("1m30s") in JSON. A Duration is never negative.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. UnmarshalText returns an error for a negative duration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`%q is not a Go duration such as "1m30s"`, text)
	}
	if parsed < 0 {
		return fmt.Errorf("%s is negative", parsed)
	}
	*d = Duration(parsed)
	return nil
}
