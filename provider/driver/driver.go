// Package driver makes a provider.Provider from a Driver. A Driver sends single requests to a cloud, and returns the
// cloud's guarantees about these requests. Package driver contains the logic that is common to all clouds. It searches
// before it creates, repeats a search until the result is certain, adopts instances, deletes duplicates, and maps
// errors to codes without secrets. A new provider implements Driver; package conformance tests the resulting Provider.
package driver

import (
	"context"
	"time"

	"millwright/provider"
)

// Driver sends single requests to one cloud. A method of a Driver sends its request and returns: the method does not
// retry, does not wait until an instance is ready, and does not check whether an instance already exists.
//
// If the cloud rejects a request, the method returns a *provider.Error with a code; any other error has the code
// Unknown. The message of an error is one line and may quote the cloud: the Provider removes the values of the Secret,
// in all forms that Secret.Redact finds. Every method returns when its context is done. Concurrent calls for many
// classes use the same Driver, so a Driver must not keep data of a class's Secret between calls.
//
// A deletion calls Find and Delete, and must succeed even if the class's Spec has become invalid. Therefore, Find and
// Delete do not need a valid class.Spec. Find and Delete read the address of the cloud from the Secret, or from the
// valid part of the Spec.
type Driver interface {
	// Traits returns the guarantees that the cloud of a class gives. Traits may send a request, so the Provider calls
	// Traits only if it needs the answer.
	Traits(ctx context.Context, class provider.Class) (provider.Traits, error)

	// Find returns all instances with the machine's UID, and the instance with the machine's provider ID. If the
	// machine has a name and no provider ID, Find also returns the instances of the class with this name and without a
	// UID. Find may also return instances of other machines, such as all instances of the class, but never an instance
	// of a cluster other than machine.Cluster. If no instance exists, Find returns no error. An empty field of the
	// machine means that the field's value is unknown; at least one of UID, ProviderID and Name is set.
	Find(ctx context.Context, class provider.Class, machine provider.Machine) (SearchResult, error)

	// Create sends one create request. If the cloud is idempotent by token and refuses a second request with one token,
	// Create reads and returns the instance of the first request. Create returns AlreadyExists if the cloud is
	// idempotent by name and has an instance with the name. If the cloud rejects the request because it arrived too
	// late, Create returns ExpiredError(). If Create returns an instance and an error, the caller uses only the
	// instance's LastKnownState.
	Create(
		ctx context.Context,
		class provider.Class,
		machine provider.Machine,
		request CreateRequest,
	) (provider.Instance, error)

	// Delete requests the deletion of one instance of machine.Cluster and of all resources that were created for the
	// instance. The parameter instance always has a provider ID; its other fields may be empty. NotFound means that the
	// instance is gone or belongs to another cluster. The instance may still be Terminating when Delete returns.
	Delete(ctx context.Context, class provider.Class, machine provider.Machine, instance provider.Instance) error

	// List returns all instances of a cluster that were created from the class, in any order. List reads all pages.
	List(ctx context.Context, class provider.Class, cluster string) ([]provider.Instance, error)
}

// Initializer is a Driver of a cloud with an initialize step. The initialize step needs an existing instance.
// Initialize may return Unimplemented for classes without an initialize step.
type Initializer interface {
	// Initialize runs the initialize step of an instance that Find returned. Initialize may be called repeatedly.
	Initialize(
		ctx context.Context,
		class provider.Class,
		machine provider.Machine,
		instance provider.Instance,
	) (provider.Instance, error)
}

// VolumeIDReader is a Driver that can return the volume IDs of its cloud.
type VolumeIDReader interface {
	// VolumeIDs returns the cloud's IDs of the volumes that belong to the cloud, in the given order. VolumeIDs omits
	// volumes of other clouds, and sends no request.
	VolumeIDs(ctx context.Context, volumes []provider.Volume) ([]string, error)
}

// CreationTimeReader is a Driver that stores the creation time of an instance in LastKnownState.
type CreationTimeReader interface {
	// CreatedAt returns the creation time by the cloud's clock, or zero if lastKnownState contains no creation time.
	CreatedAt(lastKnownState string) time.Time
}

// SearchResult is the result of Driver.Find.
type SearchResult struct {
	Instances []provider.Instance

	// Now is the time of the answer by the cloud's clock. Now is zero if create requests do not expire by the cloud's
	// clock.
	Now time.Time
}

// CreateRequest contains the parameters of a create request that Class and Machine do not contain.
type CreateRequest struct {
	// Token is unique to the machine among all machines of all clusters, and equal in all requests for the machine.
	// Clouds that are idempotent by token use Token. Token has no special form. If the cloud requires a form such as a
	// UUID, the driver derives it from a hash of Token.
	Token string

	// NotAfter is when the request expires by the cloud's clock. The cloud must reject a request that arrives after
	// NotAfter. NotAfter is zero if SearchResult.Now was zero.
	NotAfter time.Time
}
