package provider

import "time"

// Traits are what a cloud promises about creations and reads. Package driver derives from them how a creation makes
// exactly one instance; docs/provider.md says what each combination guarantees. The zero value promises that reads are
// never stale and that instances carry UIDs. It promises nothing about repeated create requests.
type Traits struct {
	// Idempotency says what makes the cloud refuse a second instance for one machine.
	Idempotency Idempotency

	// Named says that instances carry the name of their machine, and no UID. Such an instance belongs to the Machine
	// with its name, in any class of the cluster, unless another Machine has its provider ID. ListInstances may then
	// return the instances of all classes of the cluster.
	Named bool

	// Window is the time from the moment at which a create request reaches the cloud until every read shows its
	// instance, if the request made one. It includes the time in which an accepted request has no record yet, and the
	// age of stale reads. Zero: reads are never stale.
	Window time.Duration

	// Expires says that a create request has a time after which the cloud refuses it, by the cloud's own clock. Without
	// this, a request that a frozen process or the network has delayed may take effect at any time.
	Expires bool
}

// Idempotency says what makes a cloud refuse a second instance for one machine.
type Idempotency string

// The kinds of idempotency. A token is the client token of a request, or another key of an instance that the cloud
// keeps unique and that the driver derives from Request.Token, such as a UUID. The name is the name of the Machine: two
// Machines with the same name cannot have instances at the same time.
const (
	NotIdempotent Idempotency = "" // each create request makes an instance
	// a create request with the token of an earlier request returns the instance of the earlier request
	ByToken Idempotency = "Token"
	ByName  Idempotency = "Name" // a create request with the name of an existing instance is refused with AlreadyExists
)
