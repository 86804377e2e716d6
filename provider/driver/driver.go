// Package driver makes a provider.Provider from a Driver. A Driver sends single requests to a cloud, and says what the
// cloud promises about them. This package does what is the same for all clouds: it searches before it creates, waits
// until a search is conclusive, adopts instances, deletes duplicates, and turns errors into codes without secrets. A
// new provider implements Driver; package conformance checks the result.
package driver

import (
	"context"
	"time"

	"millwright/provider"
)

// Driver sends single requests to one cloud. A method sends its request and returns: it does not retry, does not wait
// until an instance is ready, and does not check whether there is an instance already.
//
// If the cloud refuses a request, the method returns a *provider.Error with a code; any other error counts as Unknown.
// The message is one line, and may quote the cloud: the Provider removes the values of the Secret, in the forms that
// Secret.Redact knows. A method returns when its context ends. Many calls use the same Driver at once, with the
// credentials of many classes, so a Driver keeps nothing of a class's Secret between calls.
//
// A deletion calls Find and Delete, and must be possible when the class's Spec is not valid any more. So these two
// methods need no valid class.Spec: they read the address of the cloud from the Secret, or from the valid part of the
// Spec.
type Driver interface {
	// Traits returns what the cloud of a class promises. It may send a request, so it is called only if the answer is
	// needed.
	Traits(ctx context.Context, class provider.Class) (provider.Traits, error)

	// Find returns the instances that may be the machine's: all with its UID, the one with its provider ID, and, if the
	// machine has a name and no provider ID, the instances of the class with this name and without a UID. It may return
	// other instances, too, such as all instances of the class, but never an instance of another cluster than
	// machine.Cluster. It is no error if there is no instance. An empty field of the machine means that its value is
	// not known; at least one of UID, ProviderID and Name is set.
	Find(ctx context.Context, class provider.Class, machine provider.Machine) (Found, error)

	// Create sends one create request. If the cloud is idempotent by token and refuses a second request with the same
	// token, Create reads the instance of the first request and returns it. It returns AlreadyExists if the cloud is
	// idempotent by name and has an instance with the name, and Expired() if the cloud refused the request as too late.
	// If it returns an instance with an error, only its LastKnownState is used.
	Create(ctx context.Context, class provider.Class, machine provider.Machine, request Request) (provider.Instance, error)

	// Delete requests the deletion of one instance of machine.Cluster and of everything that was created for it. Only
	// the provider ID of the instance is always set. NotFound means that the instance is gone or belongs to another
	// cluster. The instance may still be Terminating when Delete returns.
	Delete(ctx context.Context, class provider.Class, machine provider.Machine, instance provider.Instance) error

	// List returns all instances of a cluster that were created from the class, from all pages, in any order.
	List(ctx context.Context, class provider.Class, cluster string) ([]provider.Instance, error)
}

// Initializer is a Driver of a cloud with an initialize step, which needs an existing instance. Initialize may return
// Unimplemented for classes without this step.
type Initializer interface {
	// Initialize does the step for an instance that Find returned. It may be called again.
	Initialize(
		ctx context.Context,
		class provider.Class,
		machine provider.Machine,
		instance provider.Instance,
	) (provider.Instance, error)
}

// VolumeNamer is a Driver of a cloud that has volumes of its own.
type VolumeNamer interface {
	// VolumeIDs returns the cloud's names for the volumes that belong to the cloud, in the given order, and leaves out
	// the others. It sends no request.
	VolumeIDs(ctx context.Context, volumes []provider.Volume) ([]string, error)
}

// Historian is a Driver whose LastKnownState has the time at which the instance was created.
type Historian interface {
	// CreatedAt returns the time of the creation by the cloud's clock; zero if lastKnownState does not have it.
	CreatedAt(lastKnownState string) time.Time
}

// Found is the result of a search.
type Found struct {
	Instances []provider.Instance

	// Now is the time of the answer by the cloud's clock, if create requests expire by this clock; otherwise zero.
	Now time.Time
}

// Request is what Create needs besides class and machine.
type Request struct {
	// Token is the same in each request for one machine, and differs from that of every other machine in any cluster.
	// It is for clouds that are idempotent by token. Its form is not fixed: if the cloud needs a certain form, such as
	// a UUID, the driver derives it from a hash of Token.
	Token string

	// NotAfter is the time, by the cloud's clock, after which the cloud must refuse the request; zero if Found.Now was
	// zero.
	NotAfter time.Time
}
