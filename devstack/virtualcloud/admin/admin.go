// Package admin has the types and the client of virtualcloud's admin API. A test or an operator uses this API to make
// the cloud fail on demand, and to read the cloud's true state. Integration tests, the safety checker and people with
// curl call the admin API. Providers must not call the admin API, because a real cloud has no admin API.
//
// The admin API is HTTP with JSON bodies on the cloud's own address:
//
//	GET    /admin/behaviour   Behaviour
//	PUT    /admin/behaviour   replaces the behaviour; absent fields get their defaults; absent hangs are released
//	PATCH  /admin/behaviour   changes only the fields in the request
//	GET    /admin/faults      []Fault, with the remaining count and lifetime of each fault
//	POST   /admin/faults      adds a Fault
//	DELETE /admin/faults      removes all faults; ?operation=create removes only the faults of one operation
//	POST   /admin/vanish      Vanish: ends an instance at once, without a delete call
//	POST   /admin/rejoin      creates and ends Nodes again, as after a restart of all kubelets
//	POST   /admin/create      creates an instance from a CreateRequest, regardless of faults, quotas and client tokens
//	GET    /admin/instances   []Instance: the true state, without staleness
//	GET    /admin/userdata    ?id=i-N: the instance's user data
//	GET    /admin/stats       Stats
//	POST   /admin/reset       ends all instances, clears faults and counters, restores the default behaviour
//
// Instances, counters and behaviour survive a restart of the cloud; faults do not survive a restart.
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
	PathResyncNodes  = "/admin/rejoin"
	PathInstances    = "/admin/instances"
	PathUserData     = "/admin/userdata"
	PathStats        = "/admin/stats"
	PathReset        = "/admin/reset"
)

// Operation names a call of the cloud's API.
type Operation string

// The operations of the cloud's API.
const (
	OperationCreate     Operation = "create"
	OperationInitialize Operation = "initialize"
	OperationDelete     Operation = "delete"
	OperationStatus     Operation = "status" // Status looks up one machine's instance, also before a create call.
	OperationList       Operation = "list"
	OperationLimits     Operation = "limits"
)

// Operations returns every operation.
func Operations() []Operation {
	return []Operation{
		OperationCreate,
		OperationInitialize,
		OperationDelete,
		OperationStatus,
		OperationList,
		OperationLimits,
	}
}

// HangPoint is the point at which a hanging call waits. The wait ends when the call is released or its client closes
// the connection.
type HangPoint string

// The hang points. A released call continues normally.
const (
	// The call hangs before its effect; if the client closes the connection, the call has no effect.
	HangBeforeEffect HangPoint = "before"
	HangAfterEffect  HangPoint = "after" // The call hangs after its effect and before the answer.
)

// Behaviour is the cloud's configured behaviour. A class can override some fields.
type Behaviour struct {
	// CreateLatency is the time until a create call answers. Default 0. A class can override CreateLatency.
	CreateLatency virtual.Duration `json:"createLatency"`
	// BootLatency is the time from the running state to the Node's registration. Default 0. A class can override
	// BootLatency.
	BootLatency virtual.Duration `json:"bootLatency"`
	// DeleteLatency is the time from the delete call until the instance is gone. Default 0. A class can override
	// DeleteLatency.
	DeleteLatency virtual.Duration `json:"deleteLatency"`

	// ExtraLatency is added to the latencies of every new instance, also if its class overrides them. Default 0.
	ExtraLatency Latencies `json:"extraLatency,omitzero"`

	// AcceptLatency is the time from the acceptance of a create request until the cloud records its instance. Until the
	// cloud records the instance, even a fresh read does not show it. The request takes effect even if its client
	// closes the connection. Limits.ConsistencyWindow includes AcceptLatency. Default 0.
	AcceptLatency virtual.Duration `json:"acceptLatency"`

	// ReadStaleness is the age of the state that list and status show. Write calls use the current state.
	// Limits.ConsistencyWindow includes ReadStaleness. Default 0.
	ReadStaleness virtual.Duration `json:"staleness"`

	// NodeCleanupDelay is the time from the end of an instance until the cloud deletes the instance's Node, if the Node
	// still exists. A cloud-controller-manager also deletes Nodes whose instance is gone. Default 10 s; zero means at
	// once.
	NodeCleanupDelay virtual.Duration `json:"nodeCleanup"`

	// If HonorClientTokens is false, each create request creates another instance; the default is true.
	HonorClientTokens bool `json:"clientTokens"`

	// ChooseNodeNames makes the cloud choose the name of each Node. The name is known once the instance has booted.
	// Default false: a Node has the name of its instance.
	ChooseNodeNames bool `json:"ownNodeNames,omitempty"`

	// NodeInitializationDelay simulates a cloud-controller-manager. NodeInitializationDelay is the time from a Node's
	// registration until the Node gets its provider ID and loses the taint node.cloudprovider.kubernetes.io/uninitialized.
	// With the default 0, the kubelet sets the provider ID, and the Node has no taint.
	NodeInitializationDelay virtual.Duration `json:"nodeInit,omitempty"`

	// PageSize is the number of instances in a page of list and status. With the default 0, one page has all instances.
	PageSize int `json:"pageSize,omitempty"`
	// LingerTime is the time during which list and status still show a deleted instance, with the state terminated.
	// Default
	// 0.
	LingerTime virtual.Duration `json:"linger,omitempty"`

	// QuoteCredentials makes each error response quote the caller's token: in plain text, in base64, and escaped for a
	// URL. Default false.
	QuoteCredentials bool `json:"quoteCredentials,omitempty"`

	AcceptedTokens []string `json:"tokens,omitempty"` // accepted tokens; by default, the cloud accepts every non-empty token

	// Quotas limits the number of instances that exist at the same time. A key is "total", a zone, an instance type, or
	// "zone/instanceType".
	Quotas map[string]int `json:"quotas,omitempty"`

	RateLimits map[Operation]RateLimit `json:"rateLimits,omitempty"` // rate limit by operation; default: no limits
	// HangPoints names the operations whose calls hang, and the point at which a call hangs.
	HangPoints map[Operation]HangPoint `json:"hangs,omitempty"`
}

// Latencies are additions to the latencies of a Behaviour; zero adds nothing.
type Latencies struct {
	Create virtual.Duration `json:"create,omitempty"` // added to CreateLatency
	Boot   virtual.Duration `json:"boot,omitempty"`   // added to BootLatency: Nodes register later
	Delete virtual.Duration `json:"delete,omitempty"` // added to DeleteLatency, also of existing instances
}

// DefaultNodeCleanupDelay is the default of Behaviour.NodeCleanupDelay.
const DefaultNodeCleanupDelay = virtual.Duration(10 * time.Second)

// DefaultBehaviour returns the behaviour of a cloud that obeys client tokens and has no latency, limits or staleness.
func DefaultBehaviour() Behaviour {
	return Behaviour{HonorClientTokens: true, NodeCleanupDelay: DefaultNodeCleanupDelay}
}

// RateLimit is a token bucket. If the bucket is empty, the cloud refuses the call and returns the time until the next
// token.
type RateLimit struct {
	TokensPerSecond float64 `json:"perSecond"`      // tokens per second; must be above zero
	Burst           int     `json:"burst"`          // size of the bucket; at least one
	Code            string  `json:"code,omitempty"` // code of the refusal; empty means Unavailable
}

// Fault makes calls of one operation fail. A call fails with the first matching fault, in the order in which the faults
// were added.
type Fault struct {
	Operation        Operation        `json:"operation"`
	Code             string           `json:"code"` // name of a provider.Code
	Message          string           `json:"message,omitempty"`
	RetryAfter       virtual.Duration `json:"retryAfter,omitempty"`
	FailsAfterEffect bool             `json:"after,omitempty"` // the call takes effect and then fails

	Machine string `json:"machine,omitempty"` // name of the machine; empty: all machines
	Class   string `json:"class,omitempty"`   // class as namespace/name; empty: all classes

	// MaxFailures is the number of calls that fail before the cloud removes the fault; zero means no limit.
	MaxFailures  int              `json:"count,omitempty"`
	Lifetime     virtual.Duration `json:"for,omitempty"`         // lifetime of the fault; zero means no limit
	EveryNthCall int              `json:"every,omitempty"`       // only every Nth matching call fails; zero: every call
	Probability  float64          `json:"probability,omitempty"` // probability that a matching call fails; zero means 1
	Seed         uint64           `json:"seed,omitempty"`        // seed of Probability's random numbers
}

// VanishRequest names an instance by its ID or by its machine. By default the Node stays and becomes NotReady, because
// its kubelet is gone.
type VanishRequest struct {
	ID         string `json:"id,omitempty"`
	Machine    string `json:"machine,omitempty"`
	DeleteNode bool   `json:"deleteNode,omitempty"` // also delete the Node, after NodeCleanupDelay
}

// Instance is the true state of an instance, without staleness.
type Instance struct {
	virtual.Instance
	Zone         string    `json:"zone"`
	InstanceType string    `json:"instanceType"`
	ClientToken  string    `json:"clientToken,omitempty"`
	RegisteredAt time.Time `json:"registered,omitzero"` // time of the Node's creation; zero: the instance has no Node yet
}

// Stats has counters since the first start or the last reset of the cloud.
type Stats struct {
	CreatedInstances  int `json:"creates"`  // instances created
	DeletedInstances  int `json:"deletes"`  // instances whose deletion was accepted
	VanishedInstances int `json:"vanished"` // instances that vanished
	LiveInstances     int `json:"live"`     // instances that are not gone, including pending and terminating instances
	MaxLiveInstances  int `json:"maxLive"`

	DuplicateInstances int `json:"duplicateCreates"`   // instances created while the machine UID had another live instance
	LiveDuplicateUIDs  int `json:"liveDuplicateUIDs"`  // machine UIDs with more than one live instance
	LiveDuplicateNames int `json:"liveDuplicateNames"` // machine names with more than one live instance

	// A restart of the cloud resets PendingCreates and the counters below it. PendingCreates counts accepted create
	// requests without an answer.
	PendingCreates int `json:"creating"`
	// TokenReplays counts create requests whose client token returned an earlier instance.
	TokenReplays    int               `json:"tokenReplays"`
	ExpiredRequests int               `json:"expired"`      // number of create requests that were refused because they came after NotAfter
	CreatedNodes    int               `json:"nodes"`        // Nodes created
	CleanedUpNodes  int               `json:"nodesCleaned"` // Nodes deleted because their instance was gone
	Calls           map[Operation]int `json:"calls"`
	RefusalsByCode  map[string]int    `json:"errors"` // refusals, by error code
}
