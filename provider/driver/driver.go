// Package driver makes a provider.Provider of a Driver: of single requests to a cloud, and of what the cloud promises
// about them. It does what is the same for all clouds: it searches before it creates, waits until a search is
// conclusive, adopts, deletes duplicates, and turns errors into codes without secrets. A new provider is a Driver;
// package conformance checks the result.
package driver

import (
	"context"
	"time"

	"millwright/provider"
)

// Driver is one cloud, as single requests. Each method sends what it says and returns: it does not retry, wait for an
// instance to be ready, or look whether there is one already.
//
// A method returns a *provider.Error with the code for whatever the cloud refuses; any other error counts as Unknown.
// The message is one line, and may quote the cloud: the Provider removes the values of the Secret, in the forms that
// Secret.Redact knows. A method ends when its context ends. The same Driver is used by many calls at once, with the
// credentials of many classes: it keeps nothing of a class's Secret between calls.
//
// A machine can be deleted whatever happened to its class, and a deletion calls Find and Delete. So these two need no
// valid class.Spec: where the cloud is they read from the Secret, or from the Spec as far as it can be read.
type Driver interface {
	// Traits returns what the cloud of a class promises. It may send a request, and is called only when the answer
	// matters.
	Traits(ctx context.Context, class provider.Class) (provider.Traits, error)

	// Find returns the instances that may be the machine's: all with its UID, the one with its provider ID, and, if the
	// machine has a name and no provider ID, those of the class with that name and without a UID. It never returns
	// instances of another cluster than machine.Cluster. It may return more than the machine's, such as all of the class.
	// None is no error. A field of the machine that is empty is not known; at least one of UID, ProviderID and Name is
	// set.
	Find(ctx context.Context, class provider.Class, machine provider.Machine) (Found, error)

	// Create sends one create request. If the cloud is idempotent by token and refuses a second request with the same
	// token, Create reads the instance of the first one and returns it. It returns AlreadyExists if the cloud is
	// idempotent by name and has the name, and Expired() if the cloud refused the request as too late. Of an instance that
	// it returns with an error, only LastKnownState counts.
	Create(ctx context.Context, class provider.Class, machine provider.Machine, request Request) (provider.Instance, error)

	// Delete requests that one instance of machine.Cluster and everything that was created for it be deleted. Only the
	// provider ID of the instance is sure to be set. NotFound means that it is gone, or of another cluster. The instance
	// may still be Terminating when it returns.
	Delete(ctx context.Context, class provider.Class, machine provider.Machine, instance provider.Instance) error

	// List returns all instances of a cluster that were created from the class, of all pages, in any order.
	List(ctx context.Context, class provider.Class, cluster string) ([]provider.Instance, error)
}

// Initializer is a Driver of a cloud with a step that needs an existing instance. It may return Unimplemented for some
// classes.
type Initializer interface {
	// Initialize does the step for an instance that Find returned, and may be called again.
	Initialize(
		ctx context.Context,
		class provider.Class,
		machine provider.Machine,
		instance provider.Instance,
	) (provider.Instance, error)
}

// VolumeNamer is a Driver of a cloud that has volumes of its own.
type VolumeNamer interface {
	// VolumeIDs returns the cloud's names for those of the volumes that belong to it, in the given order. It sends no
	// request.
	VolumeIDs(ctx context.Context, volumes []provider.Volume) ([]string, error)
}

// Historian is a Driver that can read from LastKnownState when an instance was created.
type Historian interface {
	// CreatedAt returns the time of the creation by the cloud's clock; zero if the text does not have it.
	CreatedAt(lastKnownState string) time.Time
}

// Found is the result of a search.
type Found struct {
	Instances []provider.Instance

	// Now is the cloud's clock when it answered, if the cloud's create requests expire by that clock; otherwise zero.
	Now time.Time
}

// Request is what Create needs besides class and machine.
type Request struct {
	// Token is the same for each request for one machine, and for no other machine, also of other clusters. It is for
	// clouds that are idempotent by token. It is a text without a fixed form: where the cloud wants another form, such as
	// a UUID, use a hash of it.
	Token string

	// NotAfter is the time, by the cloud's clock, after which the cloud must refuse the request. Zero if Found.Now was
	// zero.
	NotAfter time.Time
}
