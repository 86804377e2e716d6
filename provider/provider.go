// Package provider defines what a cloud must be able to do for Millwright, and how it may fail. The provider activities
// call a Provider on the worker that has the credentials; each package below this one implements a cloud, or helps to
// do so. A Provider decides nothing: it knows no phases, no retries, and no timeouts except the deadline of its
// context.
package provider

import (
	"context"
	"encoding/json"
	"time"
)

// Provider is one cloud.
//
// If the cloud refuses a request, the method returns an *Error. Every method obeys the deadline and the cancellation of
// its context, and may be called again after any result, also from two processes at once. A Provider does not reveal
// secrets: none of its errors, results and log lines contains a value from Class.Secret.
type Provider interface {
	// Traits returns what the cloud of a class promises. It may send a request.
	Traits(ctx context.Context, class Class) (Traits, error)

	// CreateInstance returns the existing instance with the machine's UID tag. If there is none, it returns the
	// instance of the class and cluster that has the machine's name and no UID tag, as another controller makes
	// instances. If there is none either, it creates an instance. It never creates a second instance for the same UID.
	// The instance may still be Uninitialized when CreateInstance returns.
	CreateInstance(ctx context.Context, class Class, machine Machine) (Instance, error)

	// InitializeInstance does the initialize step, the part of a creation that needs an existing instance. It returns
	// code Unimplemented if the cloud has no such step, which callers treat as done, and NotFound if the instance does
	// not exist.
	InitializeInstance(ctx context.Context, class Class, machine Machine) (Instance, error)

	// DeleteInstance deletes the instance with the machine's provider ID and every instance with its UID tag, and
	// everything that was created for them, such as network interfaces and disks. It succeeds if there is no instance.
	// An instance may still be Terminating when DeleteInstance returns: InstanceStatus returns NotFound when it is
	// gone.
	DeleteInstance(ctx context.Context, class Class, machine Machine) error

	// InstanceStatus returns the instance of a machine. It finds the instance by the UID tag, otherwise by the provider
	// ID, otherwise, if the provider ID is not known and the machine has a name, by the name as CreateInstance does.
	// The code is NotFound if there is none, NotInitialized (with the instance in Error.Instance) if it waits for
	// InitializeInstance, and OutOfRange if several instances have the UID tag, or the name.
	InstanceStatus(ctx context.Context, class Class, machine Machine) (Instance, error)

	// ListInstances returns every instance of the cluster that was created from the class, with or without a UID tag,
	// sorted by provider ID. It never returns instances of other clusters.
	ListInstances(ctx context.Context, class Class, cluster string) ([]Instance, error)

	// VolumeIDs returns the cloud's names for the volumes that belong to this cloud, in the given order, and leaves out
	// the others. It sends no request.
	VolumeIDs(ctx context.Context, volumes []Volume) ([]string, error)
}

// Class is the content of a MachineClass and its Secrets, read for one call.
type Class struct {
	Namespace string
	Name      string
	Provider  string          // name of the provider as the class has it, also in upper case letters
	Spec      json.RawMessage // providerSpec, in the provider's own schema
	Secret    Secret          // data of secretRef and credentialsSecretRef; if both have a key, the latter is used
}

// Machine identifies the machine that an instance is for.
type Machine struct {
	Cluster        string // value of --cluster-name; a tag of the instances
	Namespace      string
	Name           string
	UID            string // tag of the instance, and base of client tokens
	ProviderID     string // empty until an instance is known
	LastKnownState string // text that the provider returned last, and alone can read; empty before the first call

	// FormerUID is a UID that the machine had before it was restored from a backup. It is set if the caller has proven
	// that the instance with ProviderID, which carries this UID as its tag, is the machine's. Empty: nothing is proven,
	// and CreateInstance and DeleteInstance refuse an instance that carries the UID of another machine; see Foreign.
	FormerUID string

	// NodeAnnotations are the annotations of the Machine's spec.nodeTemplate: some of MCM's drivers read options of the
	// instance from them. They are set for CreateInstance alone, and only by the worker of a provider that reads them.
	NodeAnnotations map[string]string

	// NeverTried says that the caller knows that no process has ever begun a create call for this UID. False is the
	// safe value: an earlier call may still run, or a stale read may hide its instance. So if a search finds nothing,
	// CreateInstance and DeleteInstance wait for the cloud's consistency window before they create an instance or treat
	// it as absent. True saves this wait. docs/adr/0005-create-exactly-once.md says how a caller can know.
	NeverTried bool

	// MayRunUntil is the time until which an earlier create call for this UID may still run in a process that has
	// stopped to answer: the deadline of that attempt. If nothing else bounds create requests, CreateInstance waits
	// until then for the instance. Zero: each earlier call has ended, or there was none.
	MayRunUntil time.Time
}

// Foreign returns an error for an instance that has the machine's provider ID and carries the UID of another machine;
// nil for any other instance. The error has the code AlreadyExists and the instance, so that the caller can decide
// whose the instance is. CreateInstance and DeleteInstance return it before they act; InstanceStatus does not. Foreign
// returns nil for a machine without a UID, because then the caller has decided already.
func Foreign(instance Instance, machine Machine) error {
	of := instance.MachineUID
	if instance.ProviderID != machine.ProviderID || machine.UID == "" || of == "" || of == machine.UID ||
		of == machine.FormerUID {
		return nil
	}
	refusal := Errorf(AlreadyExists, "instance %s carries the UID of another machine than %s: %s",
		instance.ProviderID, machine.Name, of)
	refusal.Instance = &instance
	return refusal
}

// Instance is a VM as reported by the cloud.
type Instance struct {
	ProviderID string // value of node.spec.providerID
	// name of its Node; empty: not known yet, and the Node is found by its provider ID
	NodeName       string
	MachineName    string // tag with the name of its Machine
	MachineUID     string // tag with the UID of its Machine; empty: it has no such tag
	Addresses      []Address
	State          State
	Created        time.Time // time of its creation by the cloud's clock; zero if the cloud does not report it
	LastKnownState string    // the caller stores it, and passes it to the next call in Machine.LastKnownState
}

// State is the state of an instance.
type State string

// The states of an instance. The empty state means that the cloud does not report a state.
const (
	Uninitialized State = "Uninitialized" // exists; InitializeInstance must run
	Running       State = "Running"
	Terminating   State = "Terminating" // the cloud has accepted its deletion
	Terminated    State = "Terminated"  // it is gone, although the cloud still lists it; a Provider never returns it
)

// Address is one address of an instance. The types are those of node.status.addresses.
type Address struct {
	Type    string
	Address string
}

// Volume is a PersistentVolume's source, reduced to what a provider needs.
type Volume struct {
	Name      string // name of the PersistentVolume
	CSIDriver string // empty for in-tree volumes
	Handle    string // CSI volume handle, or the in-tree source's ID
}

// Secret has credentials and user data. Its methods return a placeholder, so that fmt and encoding/json never write its
// values into a log or a payload.
type Secret map[string][]byte

const redacted = "[redacted]"

// String implements fmt.Stringer.
func (Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return redacted }

// MarshalJSON implements json.Marshaler.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }
