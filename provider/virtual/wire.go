package virtual

import (
	"fmt"
	"time"
)

// Paths of the cloud's API. Every request carries "Authorization: Bearer TOKEN".
const (
	PathInstances = "/v1/instances" // POST creates; GET lists ?cluster=&class=; POST {id}/initialize; DELETE {id}?cluster=
	PathLookup    = "/v1/lookup"    // GET ?id= or ?cluster=&uid=
	PathLimits    = "/v1/limits"    // GET
)

// Tags are what an instance remembers of the machine that it is for.
type Tags struct {
	Cluster    string `json:"cluster"`
	Class      string `json:"class"` // namespace/name of the MachineClass
	Machine    string `json:"machine"`
	MachineUID string `json:"machineUID"`
}

// CreateRequest asks for one instance. Without a client token, or when the cloud ignores tokens, each accepted request
// makes another instance, as RunInstances of EC2 does.
type CreateRequest struct {
	Name     string `json:"name"` // of the instance and of its Node
	Tags     Tags   `json:"tags"`
	Spec     Spec   `json:"spec"`
	UserData []byte `json:"userData,omitempty"`

	// ClientToken makes the request idempotent for as long as its instance exists: the same token returns that instance.
	ClientToken string `json:"clientToken,omitempty"`

	// NotAfter is the moment, by the cloud's clock, after which the cloud refuses to begin (ReasonExpired). It bounds how
	// long a request can lie in a network or in a frozen process and still take effect, as the expiry of a signed
	// request does in real clouds. Zero means no bound.
	NotAfter time.Time `json:"notAfter,omitzero"`
}

// The states of an instance at the cloud. One that is gone is not listed at all.
const (
	StatePending     = "pending"
	StateRunning     = "running"
	StateTerminating = "terminating"
)

// Instance is an instance as the cloud tells it.
type Instance struct {
	ID          string    `json:"id"`         // i-N
	ProviderID  string    `json:"providerID"` // virtual:///REGION/i-N
	Name        string    `json:"name"`
	Tags        Tags      `json:"tags"`
	State       string    `json:"state"`
	Initialize  bool      `json:"initialize,omitempty"`  // its class asks for the initialize step
	Initialized bool      `json:"initialized,omitempty"` // and that step ran
	Address     string    `json:"address"`
	Created     time.Time `json:"created"`
}

// ReadAnswer answers list and lookup. Items is what the cloud shows, which may be older than the truth by the staleness
// in Limits.ConsistencyWindow; Now is the cloud's clock when it answered and is never stale.
type ReadAnswer struct {
	Now   time.Time  `json:"now"`
	Items []Instance `json:"items"` // sorted by number
}

// Limits is what the cloud documents about itself.
type Limits struct {
	// ClientTokens says whether CreateRequest.ClientToken is honoured.
	ClientTokens bool `json:"clientTokens"`

	// ConsistencyWindow is how long after a create request reached the cloud every read shows its instance, if it made
	// one. It covers the time before a request has a record and the age of stale reads.
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
