// Package provider defines what a cloud must be able to do for Millwright, and how it may fail. The provider activities
// call it on the worker that has the credentials; each package below it implements one cloud. It decides nothing: it
// does not know machines' phases, retries, or timeouts beyond the deadline of the context.
package provider

import (
	"context"
	"encoding/json"
	"time"
)

// Provider is one cloud.
//
// Every method returns an *Error for whatever the cloud refuses, obeys the deadline and cancellation of its context,
// and may be called again after any outcome, also from two processes at once. It does not reveal secrets: no error,
// result or log line of a Provider contains a value from Class.Secret.
type Provider interface {
	// Traits returns what the cloud of a class promises. It may send a request.
	Traits(ctx context.Context, class Class) (Traits, error)

	// CreateInstance creates the instance of a machine, or returns the one that already has the machine's UID tag; if none
	// has it, the one of the class and cluster that has the machine's name and no UID at all, as another controller made
	// it. It never creates a second one for the same UID. The instance may still be Uninitialized when it returns.
	CreateInstance(ctx context.Context, class Class, machine Machine) (Instance, error)

	// InitializeInstance does what needs an existing instance. It returns code Unimplemented if the cloud has no such
	// step, which callers treat as done; NotFound if the instance does not exist.
	InitializeInstance(ctx context.Context, class Class, machine Machine) (Instance, error)

	// DeleteInstance deletes the instance and everything that was created for it (interfaces, disks), found by the
	// provider ID and by the UID tag: if several instances have the tag, all of them are deleted. It succeeds if there is
	// none. The instance may still exist, Terminating, when it returns: InstanceStatus returns NotFound when it is gone.
	DeleteInstance(ctx context.Context, class Class, machine Machine) error

	// InstanceStatus returns the instance of a machine, found by the UID tag, else by the provider ID, else, if the
	// provider ID is not known and the machine has a name, by that name as CreateInstance does: NotFound if there is none,
	// Uninitialized (with the instance in Error.Instance) if it waits for InitializeInstance, OutOfRange if several have
	// the UID tag, or the name.
	InstanceStatus(ctx context.Context, class Class, machine Machine) (Instance, error)

	// ListInstances returns every instance of the cluster that was created from the class, with or without a UID tag,
	// sorted by provider ID. It never returns instances of other clusters.
	ListInstances(ctx context.Context, class Class, cluster string) ([]Instance, error)

	// VolumeIDs returns the cloud's names for those of the volumes that belong to this cloud, in the given order; others
	// are left out. It sends no request.
	VolumeIDs(ctx context.Context, volumes []Volume) ([]string, error)
}

// Class is the content of a MachineClass and its Secrets, read for one call.
type Class struct {
	Namespace string
	Name      string
	Provider  string          // as the class writes it, with its upper case letters
	Spec      json.RawMessage // providerSpec, in the provider's own schema
	Secret    Secret          // data of secretRef merged with credentialsSecretRef; the latter wins per key
}

// Machine identifies the machine that an instance is for.
type Machine struct {
	Cluster        string // value of --cluster-name; a tag of the instances
	Namespace      string
	Name           string
	UID            string // tag of the instance, and base of client tokens
	ProviderID     string // empty until an instance is known
	LastKnownState string // opaque text that the provider returned earlier; empty at first

	// FormerUID is the UID that the instance with ProviderID carries as its tag, if the caller has proven that it is the
	// machine's although that is not the machine's UID: the Machine was restored from a backup. Empty: not proven, and
	// CreateInstance and DeleteInstance refuse an instance that carries the UID of another machine; see Foreign.
	FormerUID string

	// NodeAnnotations are those of the Machine's spec.nodeTemplate: some of MCM's drivers take wishes for the instance
	// from them. They are read for CreateInstance alone, and only by a worker that is told so.
	NodeAnnotations map[string]string

	// NeverTried says that the caller knows that no create call for this UID was ever begun by any process. The zero value
	// is the safe one: an earlier call may still be in flight, or a stale read may hide its instance, so that after a
	// lookup that finds nothing, CreateInstance and DeleteInstance must outwait the cloud's consistency window before they
	// create an instance or treat it as absent. True saves that wait. How a caller can know:
	// docs/adr/0005-create-exactly-once.md.
	NeverTried bool

	// MayRunUntil is until when an earlier create call for this UID may still run, in a process that was not heard of
	// again: the deadline of its attempt. Where nothing else bounds a create request, CreateInstance waits for its
	// instance so long. Zero: each earlier call has ended, or there was none.
	MayRunUntil time.Time
}

// Foreign returns the refusal of an instance with the machine's provider ID that carries the UID of another machine; nil
// for any other instance. Its code is AlreadyExists, and it has the instance: the caller decides whose it is.
// CreateInstance and DeleteInstance return it before they act; InstanceStatus does not. A machine without a UID is that of
// a caller who has decided already.
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
	ProviderID string // as in node.spec.providerID
	// name under which its kubelet registers; empty: not known yet, and the Node is found by its provider ID
	NodeName       string
	MachineName    string // tag
	MachineUID     string // tag
	Addresses      []Address
	State          State
	Created        time.Time // by the cloud's clock; zero if the cloud does not report it
	LastKnownState string    // stored by the caller and returned with the next call
}

// State is the state of an instance.
type State string

// The states of an instance. The zero value means that the cloud does not report it.
const (
	Uninitialized State = "Uninitialized" // exists; InitializeInstance must run
	Running       State = "Running"
	Terminating   State = "Terminating" // deletion was accepted
	Terminated    State = "Terminated"  // gone, although the cloud still lists it; a Provider never returns it
)

// Address is one address of an instance; Type as in node.status.addresses.
type Address struct {
	Type    string
	Address string
}

// Volume is a PersistentVolume's source, reduced to what a provider needs.
type Volume struct {
	Name      string // of the PersistentVolume
	CSIDriver string // empty for in-tree volumes
	Handle    string // CSI volume handle, or the in-tree source's ID
}

// Secret has credentials and user data. It is formatted as a placeholder, so that fmt and encoding/json never write it
// into a log or a payload.
type Secret map[string][]byte

const redacted = "[redacted]"

// String implements fmt.Stringer.
func (Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return redacted }

// MarshalJSON implements json.Marshaler.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }
