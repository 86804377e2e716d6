// Package component describes the components of a local stack: dependencies between components, command lines, ports,
// credentials, files and readiness probes. Package stack runs the components.
package component

import (
	"fmt"
	"slices"
	"strings"

	"millwright/devstack/build"
)

// The names of the components, in starting order.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
	Temporal          = "temporal"
	VirtualCloud      = "virtualcloud"
	Bootstrap         = "bootstrap" // ends after its work: CRDs, RBAC, namespace, search attributes
	Worker            = "worker"
	Bridge            = "bridge"
	// ProviderWorker runs only on demand: a worker that polls only the provider's task queue, with a user of its own.
	ProviderWorker = "worker-provider"
	SecondBridge   = "bridge-2" // only on demand: a second bridge for failover tests
	SecondWorker   = "worker-2" // only on demand: a second worker for failover tests
	// MCMManager runs only on demand: machine-controller-manager's process for MachineDeployments and MachineSets.
	MCMManager  = "mcm-manager"
	MCMMachines = "mcm-machines" // only on demand: machine-controller-manager's process for Machines

	// Cluster API's components run only on demand, in the same cluster as Millwright.
	ClusterAPICore         = build.ClusterAPICore
	ClusterAPIBootstrap    = build.ClusterAPIBootstrap
	ClusterAPIControlPlane = build.ClusterAPIControlPlane
	ClusterAPIDev          = build.ClusterAPIDev
)

// Component has the facts that the supervisor needs about a component. The component's command line is in
// kubernetes.go, clusterapi.go or ours.go, and its readiness probe is in probes.go.
type Component struct {
	Name       string
	Needs      []string // components that are chosen with this component and must be ready before it starts
	After      []string // components that, if chosen, must be ready before this component starts
	Heavy      string   // name of the heavy binary; empty: the program is not a heavy binary
	Folder     string   // folder of the main package; empty: the program is not a Millwright binary
	ClusterAPI bool     // the program is in build.ClusterAPIPrograms, under the component's name

	OnDemand bool // runs only if named; a whole stack does not include the component
}

// ExtraComponent is a component that the caller adds to the component table. Plan.Binaries has the extra's program, and
// Plan.Args has its command line. An extra gets one port.
type ExtraComponent struct {
	Name  string   `json:"name"`
	Needs []string `json:"needs,omitempty"` // like Component.Needs
	Ready string   `json:"ready"`           // HTTP path of the readiness check at the extra's port; 200 means ready
}

// All returns the component table followed by the extras, in starting order: no component needs a later component.
func All(extras ...ExtraComponent) []Component {
	table := []Component{
		{Name: Etcd, Heavy: build.Kubernetes},
		{Name: APIServer, Needs: []string{Etcd}, Heavy: build.Kubernetes},
		{Name: ControllerManager, Needs: []string{APIServer}, Heavy: build.Kubernetes},
		{Name: Scheduler, Needs: []string{APIServer}, Heavy: build.Kubernetes},
		{Name: Kwok, Needs: []string{APIServer}, Heavy: build.Kubernetes},
		{Name: Temporal, Heavy: build.Temporal},
		{Name: VirtualCloud, Needs: []string{APIServer}, Folder: build.VirtualCloud},
		{Name: Bootstrap, Needs: []string{APIServer}, After: []string{Temporal}, Folder: build.Starter},
		{Name: Worker, Needs: []string{Bootstrap, Temporal, VirtualCloud}, Folder: build.Worker},
		{Name: Bridge, Needs: []string{Bootstrap, Temporal}, Folder: build.Bridge},
		{Name: ProviderWorker, Needs: []string{Bootstrap, Temporal, VirtualCloud}, Folder: build.Worker, OnDemand: true},
		{Name: SecondBridge, Needs: []string{Bridge}, Folder: build.Bridge, OnDemand: true},
		{Name: SecondWorker, Needs: []string{Worker}, Folder: build.Worker, OnDemand: true},
		{Name: MCMManager, Needs: []string{Bootstrap}, Heavy: build.MCM, OnDemand: true},
		{Name: MCMMachines, Needs: []string{Bootstrap, VirtualCloud}, Heavy: build.MCM, OnDemand: true},
		// Core needs ControllerManager, whose garbage collector deletes the objects that a deleted Cluster owns.
		{Name: ClusterAPICore, Needs: []string{Bootstrap, ControllerManager}, ClusterAPI: true, OnDemand: true},
		{Name: ClusterAPIBootstrap, Needs: []string{Bootstrap}, ClusterAPI: true, OnDemand: true},
		{Name: ClusterAPIControlPlane, Needs: []string{Bootstrap}, ClusterAPI: true, OnDemand: true},
		{Name: ClusterAPIDev, Needs: []string{Bootstrap}, ClusterAPI: true, OnDemand: true},
	}
	for _, e := range extras {
		table = append(table, Component{Name: e.Name, Needs: e.Needs, OnDemand: true})
	}
	return table
}

// Names returns the names of the components of a whole stack, in starting order. Components that run only on demand are
// not included.
func Names() []string {
	var names []string
	for _, c := range All() {
		if !c.OnDemand {
			names = append(names, c.Name)
		}
	}
	return names
}

// Named returns the component with the name.
func Named(name string, extras ...ExtraComponent) (Component, error) {
	all := All(extras...)
	i := slices.IndexFunc(all, func(c Component) bool { return c.Name == name })
	if i < 0 {
		return Component{}, fmt.Errorf("no component %q: have %s", name, strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// WithNeeds returns the chosen components and all components that the chosen components need, in starting order. For an
// empty choice, WithNeeds returns Names.
func WithNeeds(chosen []string, extras ...ExtraComponent) ([]string, error) {
	if len(chosen) == 0 {
		return Names(), nil
	}
	wanted := map[string]bool{}
	var want func(name string) error
	want = func(name string) error {
		c, err := Named(name, extras...)
		if err != nil {
			return err
		}
		wanted[name] = true
		for _, need := range c.Needs {
			if err := want(need); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range chosen {
		if err := want(name); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, c := range All(extras...) {
		if wanted[c.Name] {
			names = append(names, c.Name)
		}
	}
	return names, nil
}

// WaitsFor returns those of the chosen components that must be ready before c starts.
func (c Component) WaitsFor(chosen []string) []string {
	return slices.DeleteFunc(
		slices.Concat(c.Needs, c.After),
		func(name string) bool { return !slices.Contains(chosen, name) },
	)
}
