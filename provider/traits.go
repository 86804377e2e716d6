package provider

import "time"

// Traits are the guarantees of a cloud about create requests and reads. Traits determine how package driver makes sure
// that a creation creates exactly one instance; docs/provider.md lists the result for each combination of Traits. The
// zero value means that reads are never stale, instances have UID tags, and each repeated create request may create
// another instance.
type Traits struct {
	// Idempotency is the key by which the cloud refuses a second instance for one machine.
	Idempotency Idempotency

	// Named is true if instances have the name of their machine but no UID tag. If Named is true, an instance belongs
	// to the Machine with the instance's name, in any class of the cluster, unless another Machine has the instance's
	// provider ID. If Named is true, ListInstances may return the instances of all classes of the cluster.
	Named bool

	// Window is the cloud's consistency window: the time from the arrival of a create request at the cloud until every
	// read shows the instance of the request. Window includes the time before the cloud records an accepted request,
	// and the age of stale reads. Zero means that reads are never stale.
	Window time.Duration

	// Expires is true if a create request has an expiry time after which the cloud refuses the request, by the cloud's
	// own clock. If Expires is false, a request delayed by a frozen process or by the network may take effect at any
	// time.
	Expires bool
}

// Idempotency is the key by which a cloud refuses a second instance for one machine.
type Idempotency string

// The kinds of idempotency. With ByToken, the key is the client token of a request, or another unique key that the
// driver derives from CreateRequest.Token, such as a UUID. With ByName, the key is the name of the Machine: two
// Machines with the same name cannot have instances at the same time.
const (
	NotIdempotent Idempotency = "" // each create request makes another instance
	// ByToken: a create request with the token of an earlier request returns the instance of the earlier request.
	ByToken Idempotency = "Token"
	ByName  Idempotency = "Name" // the cloud refuses a create request with the name of an existing instance: AlreadyExists
)
