package virtual

import (
	"fmt"
	"time"
)

// Paths of the cloud's API. Every request carries "Authorization: Bearer TOKEN".
const (
	// POST creates an instance; GET ?cluster=&class=&page= lists; POST {id}/initialize initializes; DELETE
	// {id}?cluster= deletes
	PathInstances = "/v1/instances"
	// GET ?id= or ?cluster=&uid= finds instances; with &machine=&class=, if no instance has the UID, also an instance
	// with the machine's name and without a UID; &page= is the page
	PathLookup = "/v1/lookup"
	PathLimits = "/v1/limits" // GET
)

// Tags are what an instance stores about its machine.
type Tags struct {
	Cluster    string `json:"cluster"`
	Class      string `json:"class"` // namespace/name of the MachineClass
	Machine    string `json:"machine"`
	MachineUID string `json:"machineUID"`
}

// CreateRequest requests one instance. Without a client token, or if the cloud ignores tokens, each accepted request
// creates another instance, as RunInstances of EC2 does.
type CreateRequest struct {
	Name     string `json:"name"` // name of the instance and of its Node
	Tags     Tags   `json:"tags"`
	Spec     Spec   `json:"spec"`
	UserData []byte `json:"userData,omitempty"`

	// ClientToken makes the request idempotent while its instance exists: a request with the same token returns the
	// instance.
	ClientToken string `json:"clientToken,omitempty"`

	// NotAfter is the time, by the cloud's clock, after which the cloud refuses the request (ReasonExpired). So a
	// request that the network or a frozen process has delayed for longer takes no effect, like an expired signed
	// request in a real cloud. Zero means no limit.
	NotAfter time.Time `json:"notAfter,omitzero"`
}

// The states of an instance in the cloud. An instance that is gone is not listed, or is listed as terminated for some
// time.
const (
	StatePending     = "pending"
	StateRunning     = "running"
	StateTerminating = "terminating"
	StateTerminated  = "terminated"
)

// Instance is an instance as the cloud reports it.
type Instance struct {
	ID          string    `json:"id"`         // i-N
	ProviderID  string    `json:"providerID"` // virtual:///REGION/i-N
	Name        string    `json:"name"`
	NodeName    string    `json:"nodeName,omitempty"` // name of its Node; some clouds report it only after the boot
	Tags        Tags      `json:"tags"`
	State       string    `json:"state"`
	Initialize  bool      `json:"initialize,omitempty"`  // its class has the initialize step
	Initialized bool      `json:"initialized,omitempty"` // the initialize step has run
	Address     string    `json:"address"`
	Created     time.Time `json:"created"`
}

// ReadAnswer is the answer to list and lookup. Items may be stale, by less than Limits.ConsistencyWindow. Now is the
// cloud's clock at the answer, and never stale.
type ReadAnswer struct {
	Now   time.Time  `json:"now"`
	Items []Instance `json:"items"` // sorted by number
	// value of the parameter page for the next page; empty: this is the last page
	Next string `json:"next,omitempty"`
}

// Limits is what the cloud documents about itself.
type Limits struct {
	// ClientTokens says whether the cloud obeys CreateRequest.ClientToken.
	ClientTokens bool `json:"clientTokens"`

	// ConsistencyWindow has the meaning of provider.Traits.Window.
	ConsistencyWindow Duration `json:"consistencyWindow"`
}

// Duration is a time.Duration that has Go's text form ("1m30s") in JSON. It is never negative.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It refuses negative durations.
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
