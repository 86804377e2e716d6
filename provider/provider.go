// Package provider answers what a cloud must be able to do for Millwright, and how it may fail. The provider activities
// call it on the worker that holds the credentials; the packages below it are one cloud each. It decides nothing: it does
// not know machines' phases, retries or timeouts beyond the deadline of the context it is given.
package provider

import (
	"context"
	"encoding/json"
	"time"
)

// Provider is one cloud.
//
// Every method returns an *Error for whatever the cloud refuses, obeys the deadline and cancellation of its context, and
// is safe to call again after any outcome, also from two processes at once. What a method learns of secrets it keeps to
// itself: no error, no result and no log line of a Provider carries a value from Class.Secret.
type Provider interface {
	// CreateInstance makes the instance of a machine, or returns the one that already carries the machine's UID tag. It
	// never makes a second one for the same UID. The instance may still be Uninitialized when it returns.
	CreateInstance(ctx context.Context, class Class, machine Machine) (Instance, error)

	// InitializeInstance does what can only be done once the instance exists. It returns code Unimplemented where a cloud
	// has no such step, which callers take as done. NotFound when the instance is absent.
	InitializeInstance(ctx context.Context, class Class, machine Machine) (Instance, error)

	// DeleteInstance removes the instance and everything that was made for it (interfaces, disks), found by the provider
	// ID and by the UID tag: should several instances carry it, all of them go. An absent instance is a success. The instance may still be there,
	// Terminating, when it returns: InstanceStatus says NotFound when it is gone.
	DeleteInstance(ctx context.Context, class Class, machine Machine) error

	// InstanceStatus returns the instance of a machine: NotFound when there is none, Uninitialized (with the instance
	// in Error.Instance) when it waits for InitializeInstance, OutOfRange when several carry the UID tag.
	InstanceStatus(ctx context.Context, class Class, machine Machine) (Instance, error)

	// ListInstances returns every instance of the cluster that was made from the class, sorted by provider ID. Instances
	// of other clusters are never returned.
	ListInstances(ctx context.Context, class Class, cluster string) ([]Instance, error)

	// VolumeIDs returns the cloud's names for those of the volumes that are this cloud's, in the order given; others are
	// left out. It talks to nobody.
	VolumeIDs(ctx context.Context, volumes []Volume) ([]string, error)
}

// Class is what a MachineClass and its Secrets say, read for one call.
type Class struct {
	Namespace string
	Name      string
	Spec      json.RawMessage // providerSpec: the provider's own schema
	Secret    Secret          // data of secretRef merged with credentialsSecretRef; the latter wins per key
}

// Machine names the machine that an instance is for.
type Machine struct {
	Cluster        string // value of --cluster-name; instances carry it as a tag
	Namespace      string
	Name           string
	UID            string // tag of the instance, and source of client tokens
	ProviderID     string // empty until an instance is known
	LastKnownState string // opaque text that the provider returned earlier; empty at first

	// NeverTried says that the caller knows that no create call for this UID was ever begun, by anybody. The zero value is
	// the safe one: an earlier call may still be under way at the cloud, or be hidden by a stale read, so that a lookup
	// that finds nothing has to outwait the cloud's consistency window before CreateInstance makes an instance and before
	// DeleteInstance takes it for absent. True saves that wait. How a caller can know: docs/adr/0005-create-exactly-once.md.
	NeverTried bool
}

// Instance is a VM as the cloud knows it.
type Instance struct {
	ProviderID     string // as in node.spec.providerID
	NodeName       string // name under which its kubelet registers
	MachineName    string // tag
	MachineUID     string // tag
	Addresses      []Address
	State          State
	Created        time.Time // by the cloud's clock; zero when the cloud does not tell
	LastKnownState string    // kept by the caller and handed back with the next call
}

// State is how far an instance is.
type State string

// The states of an instance. The zero value means that the cloud does not tell.
const (
	Uninitialized State = "Uninitialized" // exists, InitializeInstance has yet to run
	Running       State = "Running"
	Terminating   State = "Terminating" // deletion was accepted
)

// Address is one address of an instance; Type as in node.status.addresses.
type Address struct {
	Type    string
	Address string
}

// Volume is a PersistentVolume's source, as far as a provider needs it.
type Volume struct {
	Name      string // of the PersistentVolume
	CSIDriver string // empty for in-tree volumes
	Handle    string // CSI volume handle, or the in-tree source's ID
}

// Secret holds credentials and user data. It prints as a placeholder, so that it never reaches a log or a payload by way
// of fmt or encoding/json.
type Secret map[string][]byte

const redacted = "[redacted]"

// String implements fmt.Stringer.
func (Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return redacted }

// MarshalJSON implements json.Marshaler.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }
