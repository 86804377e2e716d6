package virtual

import (
	"fmt"
	"time"
)

// Paths of the cloud's API. Every request carries "Authorization: Bearer TOKEN".
const (
	// POST creates; GET lists ?cluster=&class=&page=; POST {id}/initialize; DELETE {id}?cluster=
	PathInstances = "/v1/instances"
	// GET ?id= or ?cluster=&uid=; with &machine=&class= also an instance of that name without a UID, if none has the UID;
	// &page=
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
	Name     string `json:"name"` // of the instance and of its Node
	Tags     Tags   `json:"tags"`
	Spec     Spec   `json:"spec"`
	UserData []byte `json:"userData,omitempty"`

	// ClientToken makes the request idempotent for as long as its instance exists: the same token returns that instance.
	ClientToken string `json:"clientToken,omitempty"`

	// NotAfter is the time, by the cloud's clock, after which the cloud refuses the request (ReasonExpired). It bounds how
	// long a request can be delayed by a network or a frozen process and still take effect, as the expiry of a signed
	// request does in real clouds. Zero means no bound.
	NotAfter time.Time `json:"notAfter,omitzero"`
}

// The states of an instance in the cloud. An instance that is gone is not listed, or listed as terminated for a while.
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
	NodeName    string    `json:"nodeName,omitempty"` // of its Node; in some clouds empty until the instance has booted
	Tags        Tags      `json:"tags"`
	State       string    `json:"state"`
	Initialize  bool      `json:"initialize,omitempty"`  // its class asks for the initialize step
	Initialized bool      `json:"initialized,omitempty"` // and that step ran
	Address     string    `json:"address"`
	Created     time.Time `json:"created"`
}

// ReadAnswer answers list and lookup. Items may be older than the truth by the staleness in Limits.ConsistencyWindow;
// Now is the cloud's clock when it answered and is never stale.
type ReadAnswer struct {
	Now   time.Time  `json:"now"`
	Items []Instance `json:"items"` // sorted by number
	// parameter page of the request for the next page; empty: this was the last one
	Next string `json:"next,omitempty"`
}

// Limits is what the cloud documents about itself.
type Limits struct {
	// ClientTokens says whether the cloud obeys CreateRequest.ClientToken.
	ClientTokens bool `json:"clientTokens"`

	// ConsistencyWindow is how long after a create request reached the cloud every read shows its instance, if it created
	// one. It covers the time before a request has a record, and the age of stale reads.
	ConsistencyWindow Duration `json:"consistencyWindow"`
}

// Duration is a time.Duration that reads and writes as Go's text form ("1m30s") in JSON. It is never negative.
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
