// Package provider defines the calls that Millwright makes to a cloud, and the errors that a cloud may return. The
// provider activities call a Provider on the worker that has the credentials. Each package below provider implements a
// cloud or helps to implement one. A Provider makes no decisions: it has no phases and no retries, and its only timeout
// is the deadline of its context.
package provider

import (
	"context"
	"encoding/json"
	"time"
)

// Provider is the interface to one cloud.
//
// If the cloud refuses a request, a method returns an *Error. Every method obeys the deadline and the cancellation of
// its context. Every method may be called again after any result, also by two processes at once. No error, result or
// log line of a Provider contains a value of Class.Secret.
type Provider interface {
	// Traits returns the guarantees that the cloud of a class gives. Traits may send a request.
	Traits(ctx context.Context, class Class) (Traits, error)

	// CreateInstance returns the existing instance with the machine's UID tag. If no instance has the UID tag,
	// CreateInstance returns the instance of the class and cluster with the machine's name and without a UID tag. Other
	// controllers create instances without UID tags. If no instance has the machine's UID or name, CreateInstance
	// creates an instance. CreateInstance never creates a second instance for one UID. The returned instance may be
	// Uninitialized.
	CreateInstance(ctx context.Context, class Class, machine Machine) (Instance, error)

	// InitializeInstance runs the initialize step: the part of a creation that needs an existing instance. If the cloud
	// has no initialize step, InitializeInstance returns Unimplemented, which callers treat as success.
	// InitializeInstance returns NotFound if the instance does not exist.
	InitializeInstance(ctx context.Context, class Class, machine Machine) (Instance, error)

	// DeleteInstance deletes the instance with the machine's provider ID and every instance with the machine's UID tag,
	// together with their network interfaces, disks and other resources. DeleteInstance succeeds if no instance exists.
	// When DeleteInstance returns, an instance may still be Terminating; when the deletion has ended, InstanceStatus
	// returns NotFound.
	DeleteInstance(ctx context.Context, class Class, machine Machine) error

	// InstanceStatus returns the instance of a machine. InstanceStatus searches by the UID tag, and then by the
	// provider ID. If the provider ID is unknown and the machine has a name, InstanceStatus searches by the name as
	// CreateInstance does. InstanceStatus returns NotFound if no instance exists, and OutOfRange if several instances
	// have the UID tag or the name. InstanceStatus returns NotInitialized, with the instance in Error.Instance, if
	// InitializeInstance must be called first.
	InstanceStatus(ctx context.Context, class Class, machine Machine) (Instance, error)

	// ListInstances returns every instance of the cluster that was created from the class, with or without a UID tag,
	// sorted by provider ID. ListInstances never returns an instance of another cluster.
	ListInstances(ctx context.Context, class Class, cluster string) ([]Instance, error)

	// VolumeIDs returns the cloud's IDs of the volumes that belong to this cloud, in the given order. VolumeIDs omits
	// volumes of other clouds, and sends no request.
	VolumeIDs(ctx context.Context, volumes []Volume) ([]string, error)
}

// Class is the content of a MachineClass and its Secrets, read for one call.
type Class struct {
	Namespace string
	Name      string
	Provider  string          // name of the provider as in the MachineClass; may contain upper-case letters
	Spec      json.RawMessage // providerSpec, whose schema depends on the provider
	// merged data of secretRef and credentialsSecretRef; if both contain a key, the value of credentialsSecretRef is
	// used
	Secret Secret
}

// Machine identifies a machine in a call of a Provider.
type Machine struct {
	Cluster        string // value of the flag --cluster-name; a tag of every instance
	Namespace      string
	Name           string
	UID            string // UID of the Machine: a tag of its instance, and the base of client tokens
	ProviderID     string // provider ID of the known instance; empty before an instance is known
	LastKnownState string // opaque state from the provider's last answer; empty before the first call

	// FormerUID is the UID of the machine before its restore from a backup. The caller sets FormerUID after it has
	// proven that the instance with ProviderID and with FormerUID as its tag belongs to the machine. If FormerUID is
	// empty, CreateInstance and DeleteInstance refuse an instance with the UID tag of another machine; see
	// ForeignInstanceError.
	FormerUID string

	// NodeAnnotations are the annotations of the Machine's spec.nodeTemplate. Some drivers of
	// machine-controller-manager read options of the instance from the annotations of the nodeTemplate. NodeAnnotations
	// are set only for CreateInstance, and only by the worker of a provider that reads them.
	NodeAnnotations map[string]string

	// NeverTried is true if the caller knows that no process has ever begun a create call for this UID. False is the
	// safe value: an earlier create call may still be running, or a stale read may hide its instance. If NeverTried is
	// false and a search finds no instance, CreateInstance and DeleteInstance wait for the cloud's consistency window
	// before they create an instance or treat the instance as absent. NeverTried = true saves the wait for the
	// consistency window. docs/adr/0005-create-exactly-once.md describes when a caller may set NeverTried.
	NeverTried bool

	// MayRunUntil is the deadline of an earlier create call for this UID that may still run in a process without
	// heartbeats. If the cloud is not idempotent and create requests do not expire, CreateInstance waits until
	// MayRunUntil for the instance of the earlier call. A zero MayRunUntil means that no earlier create call for this
	// UID can still run.
	MayRunUntil time.Time
}

// ForeignInstanceError returns an error if the instance has the machine's provider ID and the UID tag of another
// machine; otherwise nil. The error has the code AlreadyExists and contains the instance, so that the caller can decide
// which machine owns the instance. CreateInstance and DeleteInstance return the error of ForeignInstanceError before
// they send a request that changes something; InstanceStatus ignores a foreign UID tag. ForeignInstanceError returns
// nil for a machine without a UID, because the caller of such a machine has already decided which machine owns the
// instance.
func ForeignInstanceError(instance Instance, machine Machine) error {
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

// Instance is a virtual machine as reported by the cloud.
type Instance struct {
	ProviderID string // value of node.spec.providerID
	// NodeName is the name of the instance's Node. If NodeName is empty, callers find the Node by the provider ID.
	NodeName       string
	MachineName    string // value of the tag with the Machine's name
	MachineUID     string // value of the tag with the Machine's UID; empty if the instance has no such tag
	Addresses      []Address
	State          State
	Created        time.Time // creation time by the cloud's clock; zero if the cloud does not report it
	LastKnownState string    // opaque state: the caller stores it and passes it on in Machine.LastKnownState
}

// State is the state of an instance.
type State string

// The states of an instance. The empty state means that the cloud does not report a state.
const (
	Uninitialized State = "Uninitialized" // the instance exists; InitializeInstance must still run
	Running       State = "Running"
	Terminating   State = "Terminating" // the cloud has accepted the deletion of the instance
	Terminated    State = "Terminated"  // the instance is deleted but still listed; only a Driver returns Terminated
)

// Address is one address of an instance. Type is a type of node.status.addresses, such as InternalIP.
type Address struct {
	Type    string
	Address string
}

// Volume is the part of a PersistentVolume that a provider needs.
type Volume struct {
	Name      string // name of the PersistentVolume
	CSIDriver string // name of the CSI driver; empty for in-tree volumes
	Handle    string // CSI volume handle, or volume ID of the in-tree source
}

// Secret contains credentials and user data. The methods for fmt and encoding/json return a placeholder, so that no
// value of a Secret reaches a log or a payload.
type Secret map[string][]byte

const redactedPlaceholder = "[redacted]"

// String implements fmt.Stringer.
func (Secret) String() string { return redactedPlaceholder }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return redactedPlaceholder }

// MarshalJSON implements json.Marshaler.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal(redactedPlaceholder) }
