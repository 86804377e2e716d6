package takeover

import (
	"time"

	"millwright/decide/attention"
)

// Facts holds the facts about a namespace at one moment.
type Facts struct {
	Now       time.Time
	Namespace string
	RunsAsMCM bool // worker and bridge will run with --as-mcm

	// other namespaces that have Machines, and that the flags of worker and bridge do not exclude
	OtherNamespaces   []OtherNamespace
	Leases            []Lease            // Leases of MCM's processes
	MCMControllers    []MCMController    // Deployments that run MCM
	MissingKinds      []string           // kinds of Millwright that the API server does not serve
	UnreadableObjects []string           // objects that could not be read, and why
	Classes           []Class            // existing MachineClasses, and missing classes that a template or a machine names
	Deployments       []Deployment       // facts about the MachineDeployments
	Sets              []MachineSet       // facts about the MachineSets
	Machines          []Machine          // facts about the Machines
	RejectedTemplates []RejectedTemplate // templates whose machines the API server rejects
}

// Lease is the Lease of a leader election.
type Lease struct {
	Name, Holder string
	RenewedAt    time.Time
	Duration     time.Duration // how long the Lease is valid after a renewal
}

// MCMController is a Deployment whose pods run MCM.
type MCMController struct {
	Name     string
	Replicas int // the larger of wanted and existing replicas
}

// Class is a MachineClass.
type Class struct {
	Name                  string
	Exists                bool
	Provider              string // name of the provider in lower case
	InvalidProviderReason string // why Provider is not a valid provider name; empty: valid
	MachineCount          int    // number of machines that name the class
	CrossNamespaceSecrets []CrossNamespaceSecret
}

// CrossNamespaceSecret is a Secret of another namespace that a class uses.
type CrossNamespaceSecret struct {
	Namespace, Name   string
	AllowsUse         bool   // classes of the class's namespace may use the Secret
	AllowedNamespaces string // value of the Secret's annotation allowed-class-namespaces
	ReadError         string // why the Secret could not be read; empty: the Secret was read
}

// RejectedTemplate is a template whose machines the API server rejects.
type RejectedTemplate struct{ Object, Reason string }

// Deployment is a MachineDeployment, with Millwright's present decision about it.
type Deployment struct {
	Name             string
	InvalidReason    string // why the spec is invalid for Millwright; empty: valid
	MinReadyDuration time.Duration
	Frozen           bool
	NeedsNewSet      bool   // no set has the deployment's template, so Millwright creates a new set
	Rolling          bool   // machines of other templates are replaced
	NextAction       string // what Millwright does next
}

// MachineSet is a MachineSet, with Millwright's present decision about it.
type MachineSet struct {
	Name                         string
	Standalone                   bool // no deployment controls the set
	InvalidReason                string
	MinReadyDuration             time.Duration
	Frozen                       bool
	CreationCount, DeletionCount int    // number of machines that Millwright creates or deletes
	MetadataChangeCount          int    // number of machines to adopt, to release, or to update with metadata of the template
	NextAction                   string // what Millwright does next
}

// Machine is a Machine, with Millwright's present decision about it.
type Machine struct {
	Name           string
	NodeName       string // name of the node; empty: not known
	ProviderID     string
	NodeProviderID string // provider ID of the node, if it names another instance than the machine's provider ID
	Deleting       bool
	Need           attention.Need
	NeedReason     string
	Fails          bool // the phase is Failed or becomes Failed, so the machine is replaced
	Preserved      bool // the machine is preserved
}
