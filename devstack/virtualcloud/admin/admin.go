// Package admin has the types and the client of the admin API of virtualcloud. A test or an operator uses this API to
// make the cloud fail on demand, and to read its true state. Integration tests, the safety checker and people with curl
// use it. No provider may use it: a real cloud has no such API.
//
// The API is HTTP with JSON bodies on the cloud's own address:
//
//	GET    /admin/behaviour   Behaviour
//	PUT    /admin/behaviour   replaces it; fields that are left out get their defaults; hangs that it lacks are released
//	PATCH  /admin/behaviour   changes the fields that are given
//	GET    /admin/faults      []Fault, with the remaining count of each
//	POST   /admin/faults      adds a Fault
//	DELETE /admin/faults      removes all of them
//	POST   /admin/vanish      Vanish: an instance is gone at once, without a delete call
//	POST   /admin/rejoin      Nodes are created and ended again, as after a restart of all kubelets
//	POST   /admin/create      an instance from a CreateRequest, regardless of faults, quotas and client tokens
//	GET    /admin/instances   []Instance: the true state, without staleness
//	GET    /admin/userdata    ?id=i-N: the bytes that the instance was started with
//	GET    /admin/stats       Stats
//	POST   /admin/reset       no instances, no faults, counters at zero, default behaviour
//
// Instances, counters and behaviour survive a restart of the cloud; faults do not.
package admin

import (
	"time"

	"millwright/provider/virtual"
)

// Paths of the admin API.
const (
	PathBehaviour    = "/admin/behaviour"
	PathFaults       = "/admin/faults"
	PathVanish       = "/admin/vanish"
	PathCreateByHand = "/admin/create"
	PathRejoin       = "/admin/rejoin"
	PathInstances    = "/admin/instances"
	PathUserData     = "/admin/userdata"
	PathStats        = "/admin/stats"
	PathReset        = "/admin/reset"
)

// Operation names a call of the cloud's API.
type Operation string

// The operations.
const (
	Create     Operation = "create"
	Initialize Operation = "initialize"
	Delete     Operation = "delete"
	Status     Operation = "status" // lookup of one machine's instance, including the one before a create
	List       Operation = "list"
	Limits     Operation = "limits"
)

// Operations returns every operation.
func Operations() []Operation {
	return []Operation{Create, Initialize, Delete, Status, List, Limits}
}

// HangPoint is where a hanging call waits until it is released or its client closes the connection.
type HangPoint string

// The points. A released call continues normally.
const (
	BeforeEffect HangPoint = "before" // the call has no effect yet; if the client closes the connection, it never has one
	AfterEffect  HangPoint = "after"  // the effect has happened, only the answer is missing
)

// Behaviour is how the cloud behaves, unless a class overrides it.
type Behaviour struct {
	// until a create call answers; default 0; a class can override it
	CreateLatency virtual.Duration `json:"createLatency"`
	// from running to the Node's registration; default 0; overridable
	BootLatency   virtual.Duration `json:"bootLatency"`
	DeleteLatency virtual.Duration `json:"deleteLatency"` // from the delete call until the instance is gone; default 0; overridable

	// AcceptLatency is how long an accepted create request has no record: even a fresh read cannot show its instance.
	// The request takes effect even if its client closes the connection. Part of Limits.ConsistencyWindow. Default 0.
	AcceptLatency virtual.Duration `json:"acceptLatency"`

	// Staleness is the age of the state that list and status show. Writes use the present state. Part of
	// Limits.ConsistencyWindow. Default 0.
	Staleness virtual.Duration `json:"staleness"`

	// NodeCleanup is the time from the end of an instance until the cloud deletes its Node, if that still exists. A
	// cloud-controller-manager does the same. Default 10 s; zero means at once.
	NodeCleanup virtual.Duration `json:"nodeCleanup"`

	ClientTokens bool `json:"clientTokens"` // default true; false: each create request creates another instance

	// OwnNodeNames makes the cloud choose the name of each Node. The name is known when the instance has booted.
	// Default false: a Node has the name of its instance.
	OwnNodeNames bool `json:"ownNodeNames,omitempty"`

	// NodeInit is how long after its registration a Node gets its provider ID and loses the taint
	// node.cloudprovider.kubernetes.io/uninitialized, as by a cloud-controller-manager. Default 0: the kubelet knows
	// the provider ID, and there is no taint.
	NodeInit virtual.Duration `json:"nodeInit,omitempty"`

	// instances in a page of list and status; default 0: one page has all
	PageSize int `json:"pageSize,omitempty"`
	// how long an instance that is gone is still shown, as terminated; default 0
	Linger virtual.Duration `json:"linger,omitempty"`

	// QuoteCredentials makes each refusal quote the caller's token: as it is, in base64, and escaped for a URL. Default
	// false.
	QuoteCredentials bool `json:"quoteCredentials,omitempty"`

	Tokens []string `json:"tokens,omitempty"` // accepted credentials; none, the default: any that are not empty

	// Quotas limits the instances that exist at the same time. Keys: "total", a zone, an instance type, or
	// "zone/instanceType".
	Quotas map[string]int `json:"quotas,omitempty"`

	RateLimits map[Operation]RateLimit `json:"rateLimits,omitempty"` // none by default
	// operations whose calls hang while they are in this map
	Hangs map[Operation]HangPoint `json:"hangs,omitempty"`
}

// DefaultNodeCleanup is the default of Behaviour.NodeCleanup.
const DefaultNodeCleanup = virtual.Duration(10 * time.Second)

// DefaultBehaviour returns a cloud without latency, limits or staleness that obeys client tokens.
func DefaultBehaviour() Behaviour {
	return Behaviour{ClientTokens: true, NodeCleanup: DefaultNodeCleanup}
}

// RateLimit is a token bucket. A call that finds it empty is refused, with the time after which to retry.
type RateLimit struct {
	PerSecond float64 `json:"perSecond"`      // must be above zero
	Burst     int     `json:"burst"`          // number of calls at once; at least one
	Code      string  `json:"code,omitempty"` // code of the refusal; empty means Unavailable
}

// Fault makes calls of one operation fail. Faults are checked in the order in which they were added; the first that
// matches is used.
type Fault struct {
	Operation  Operation        `json:"operation"`
	Code       string           `json:"code"` // name of a provider.Code
	Message    string           `json:"message,omitempty"`
	RetryAfter virtual.Duration `json:"retryAfter,omitempty"`
	After      bool             `json:"after,omitempty"` // the operation takes effect and then returns the error

	Machine string `json:"machine,omitempty"` // only calls for this machine (name)
	Class   string `json:"class,omitempty"`   // only calls for this class (namespace/name)

	// calls that fail before the fault is used up; zero means no limit
	Count       int              `json:"count,omitempty"`
	For         virtual.Duration `json:"for,omitempty"`         // how long the fault lasts; zero means no limit
	Every       int              `json:"every,omitempty"`       // only every Nth matching call; zero means each
	Probability float64          `json:"probability,omitempty"` // probability that a matching call fails; zero means 1
	Seed        uint64           `json:"seed,omitempty"`        // seed of the random numbers for Probability
}

// Vanish names an instance by one of its IDs. By default the Node stays, and becomes NotReady because its kubelet is
// gone.
type Vanish struct {
	ID         string `json:"id,omitempty"`
	Machine    string `json:"machine,omitempty"`
	DeleteNode bool   `json:"deleteNode,omitempty"` // delete the Node, too, after NodeCleanup
}

// Instance is the true state of an instance.
type Instance struct {
	virtual.Instance
	Zone         string    `json:"zone"`
	InstanceType string    `json:"instanceType"`
	ClientToken  string    `json:"clientToken,omitempty"`
	Registered   time.Time `json:"registered,omitzero"` // time at which its Node was created; zero: not yet
}

// Stats counts since the cloud was first started or reset.
type Stats struct {
	Creates  int `json:"creates"`  // instances created
	Deletes  int `json:"deletes"`  // delete calls accepted, each instance once
	Vanished int `json:"vanished"` // instances lost by Vanish
	Live     int `json:"live"`     // instances that are not gone; pending and terminating ones count
	MaxLive  int `json:"maxLive"`

	DuplicateCreates   int `json:"duplicateCreates"`   // instances created while another of the same machine UID was live
	LiveDuplicateUIDs  int `json:"liveDuplicateUIDs"`  // machine UIDs with more than one live instance
	LiveDuplicateNames int `json:"liveDuplicateNames"` // machine names with more than one live instance

	// The following counters are lost at a restart of the cloud.
	Creating int `json:"creating"` // create requests accepted and not yet answered
	// create requests for which a client token returned the earlier instance
	TokenReplays int               `json:"tokenReplays"`
	Expired      int               `json:"expired"`      // create requests refused for coming after their NotAfter
	Nodes        int               `json:"nodes"`        // Nodes created
	NodesCleaned int               `json:"nodesCleaned"` // Nodes deleted because their instance was gone
	Calls        map[Operation]int `json:"calls"`
	Errors       map[string]int    `json:"errors"` // refusals by code
}
