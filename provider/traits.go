package provider

import "time"

// Traits are what a cloud promises about creations and reads. Package driver derives from them how a creation makes
// exactly one instance; docs/provider.md says what each combination guarantees. The zero value promises that reads are
// never stale and that instances carry tags, and nothing about create requests that are repeated.
type Traits struct {
	// Idempotency says what makes the cloud refuse a second instance for one machine.
	Idempotency Idempotency

	// Named says that instances carry the name of their machine, and no UID. Such an instance counts as one of another
	// controller: it belongs to the Machine of its name, until another Machine names its provider ID. The name then counts
	// in all classes of the cluster, and ListInstances may return the instances of all of them.
	Named bool

	// Window is how long after a create request reached the cloud every read shows its instance, if the request made one.
	// It covers the time in which an accepted request has no record, and the age of stale reads. Zero: each read shows the
	// truth.
	Window time.Duration

	// Expires says that the cloud refuses a create request that arrives after a time in the request, by the cloud's own
	// clock. Without it, a request that was delayed by a frozen process or a network may take effect at any time.
	Expires bool
}

// Idempotency says what makes a cloud refuse a second instance for one machine.
type Idempotency string

// The kinds of idempotency. The token is the client token of a request, or another key of an instance that the cloud
// keeps unique and the driver derives from the token, such as a UUID. The name is that of the Machine: two Machines of
// one name cannot have instances at the same time.
const (
	NotIdempotent Idempotency = "" // each create request makes an instance
	// a create request with the token of an earlier one returns the instance of that one
	ByToken Idempotency = "Token"
	ByName  Idempotency = "Name" // a create request with the name of an instance is refused with AlreadyExists
)
