package takeover

import (
	"time"

	"millwright/decide/attention"
)

// Facts describe a namespace, as it was read at one moment.
type Facts struct {
	Now       time.Time
	Namespace string
	AsMCM     bool // worker and bridge will run with --as-mcm

	Others       []Other       // other namespaces with Machines that the flags of worker and bridge do not exclude
	Leases       []Lease       // of MCM's processes
	Controllers  []Controller  // Deployments that run MCM
	MissingKinds []string      // kinds of Millwright that the API server does not serve
	Unreadable   []string      // what could not be read, and why
	Classes      []Class       // those that exist, and those that only a template or a machine names
	Deployments  []Deployment  // MachineDeployments
	Sets         []Set         // MachineSets
	Machines     []Machine     // Machines
	Refused      []RefusedSpec // templates whose machines the API server rejects
}

// Lease is the Lease of a leader election.
type Lease struct {
	Name, Holder string
	Renewed      time.Time
	Lasts        time.Duration // how long it is valid after a renewal
}

// Controller is a Deployment whose pods are MCM.
type Controller struct {
	Name     string
	Replicas int // wanted, or there
}

// Class is a MachineClass.
type Class struct {
	Name     string
	Exists   bool
	Provider string // in lower case
	BadName  string // why Provider cannot be the name of a provider; empty: it can
	Machines int    // number of machines that name the class
	Lenders  []Lender
}

// Lender is a Secret of another namespace that a class names.
type Lender struct {
	Namespace, Name string
	Allows          bool   // classes of the class's namespace may use it
	Allowed         string // value of its annotation
	Unread          string // why it could not be read; empty: it was
}

// RefusedSpec is a template whose machines the API server rejects.
type RefusedSpec struct{ Object, Why string }

// Deployment is a MachineDeployment, with what Millwright would decide about it now.
type Deployment struct {
	Name     string
	Invalid  string // why Millwright cannot follow its spec; empty: it can
	MinReady time.Duration
	Frozen   bool
	NewSet   bool   // no set has its template: another one is created
	Rolling  bool   // machines of other templates are replaced
	Why      string // what is done next
}

// Set is a MachineSet, with what Millwright would decide about it now.
type Set struct {
	Name             string
	Alone            bool // no deployment controls it
	Invalid          string
	MinReady         time.Duration
	Frozen           bool
	Creates, Deletes int    // machines
	Relabels         int    // machines that would be adopted, released, or get labels and annotations of the template
	Why              string // what is done next
}

// Machine is a Machine, with what Millwright would decide about it now.
type Machine struct {
	Name         string
	Node         string // name; empty: not known
	ProviderID   string
	NodeInstance string // provider ID of that node, if it names another instance
	Deleting     bool
	Need         attention.Need
	Why          string
	Fails        bool // its phase becomes Failed, or is: it is replaced
	Kept         bool // it is preserved
}
