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
	// applies CRDs and RBAC, creates the namespace and the search attributes, and then ends
	Bootstrap = "bootstrap"
	Worker    = "worker"
	Bridge    = "bridge"
	// ProviderWorker is a worker that runs only on demand. ProviderWorker polls only the provider's task queue, and has
	// its own user.
	ProviderWorker = "worker-provider"
	SecondBridge   = "bridge-2" // only on demand: a second bridge for failover tests
	SecondWorker   = "worker-2" // only on demand: a second worker for failover tests
	// MCMManager is machine-controller-manager's process for MachineDeployments and MachineSets, which runs only on
	// demand.
	MCMManager           = "mcm-manager"
	MCMMachineController = "mcm-machines" // only on demand: machine-controller-manager's process for Machines

	// Cluster API's components run only on demand, in the same cluster as Millwright.
	ClusterAPICore         = build.ClusterAPICore
	ClusterAPIBootstrap    = build.ClusterAPIBootstrap
	ClusterAPIControlPlane = build.ClusterAPIControlPlane
	ClusterAPIDev          = build.ClusterAPIDev
)

// Component describes a component of the stack to the supervisor. The component's command line is in kubernetes.go,
// clusterapi.go or ours.go, and its readiness probe is in probes.go.
type Component struct {
	Name                string
	NeededComponents    []string // components that are chosen with this component and must be ready before it starts
	StartsAfter         []string // components that, if chosen, must be ready before this component starts
	HeavyBinary         string   // name of the heavy binary; empty: the program is not a heavy binary
	MainFolder          string   // folder of the main package; empty: the program is not a Millwright binary
	IsClusterAPIProgram bool     // the program is in build.ClusterAPIProgramsFolder, under the component's name

	IsOnDemand bool // runs only if named; a whole stack does not include the component
}

// ExtraComponent is a component that the caller adds to the component table. Plan.Binaries has the extra's program, and
// Plan.Args has its command line. An extra component gets one port.
type ExtraComponent struct {
	Name             string   `json:"name"`
	NeededComponents []string `json:"needs,omitempty"` // like Component.NeededComponents
	ReadinessPath    string   `json:"ready"`           // HTTP path of the readiness check at the extra's port; 200 means ready
}

// All returns the components of the table and then the extra components, in starting order. No component needs a later
// component.
func All(extras ...ExtraComponent) []Component {
	table := []Component{
		{Name: Etcd, HeavyBinary: build.KubernetesBinary},
		{Name: APIServer, NeededComponents: []string{Etcd}, HeavyBinary: build.KubernetesBinary},
		{Name: ControllerManager, NeededComponents: []string{APIServer}, HeavyBinary: build.KubernetesBinary},
		{Name: Scheduler, NeededComponents: []string{APIServer}, HeavyBinary: build.KubernetesBinary},
		{Name: Kwok, NeededComponents: []string{APIServer}, HeavyBinary: build.KubernetesBinary},
		{Name: Temporal, HeavyBinary: build.TemporalBinary},
		{Name: VirtualCloud, NeededComponents: []string{APIServer}, MainFolder: build.VirtualCloudFolder},
		{
			Name:             Bootstrap,
			NeededComponents: []string{APIServer},
			StartsAfter:      []string{Temporal},
			MainFolder:       build.StarterFolder,
		},
		{Name: Worker, NeededComponents: []string{Bootstrap, Temporal, VirtualCloud}, MainFolder: build.WorkerFolder},
		{Name: Bridge, NeededComponents: []string{Bootstrap, Temporal}, MainFolder: build.BridgeFolder},
		{
			Name:             ProviderWorker,
			NeededComponents: []string{Bootstrap, Temporal, VirtualCloud},
			MainFolder:       build.WorkerFolder,
			IsOnDemand:       true,
		},
		{Name: SecondBridge, NeededComponents: []string{Bridge}, MainFolder: build.BridgeFolder, IsOnDemand: true},
		{Name: SecondWorker, NeededComponents: []string{Worker}, MainFolder: build.WorkerFolder, IsOnDemand: true},
		{Name: MCMManager, NeededComponents: []string{Bootstrap}, HeavyBinary: build.MCMBinary, IsOnDemand: true},
		{
			Name:             MCMMachineController,
			NeededComponents: []string{Bootstrap, VirtualCloud},
			HeavyBinary:      build.MCMBinary,
			IsOnDemand:       true,
		},
		// Core needs ControllerManager, whose garbage collector deletes the objects that a deleted Cluster owns.
		{
			Name:                ClusterAPICore,
			NeededComponents:    []string{Bootstrap, ControllerManager},
			IsClusterAPIProgram: true,
			IsOnDemand:          true,
		},
		{Name: ClusterAPIBootstrap, NeededComponents: []string{Bootstrap}, IsClusterAPIProgram: true, IsOnDemand: true},
		{Name: ClusterAPIControlPlane, NeededComponents: []string{Bootstrap}, IsClusterAPIProgram: true, IsOnDemand: true},
		{Name: ClusterAPIDev, NeededComponents: []string{Bootstrap}, IsClusterAPIProgram: true, IsOnDemand: true},
	}
	for _, e := range extras {
		table = append(table, Component{Name: e.Name, NeededComponents: e.NeededComponents, IsOnDemand: true})
	}
	return table
}

// Names returns the names of the components of a whole stack, in starting order. Components that run only on demand are
// not included.
func Names() []string {
	var names []string
	for _, c := range All() {
		if !c.IsOnDemand {
			names = append(names, c.Name)
		}
	}
	return names
}

// FindByName returns the component with the name.
func FindByName(name string, extras ...ExtraComponent) (Component, error) {
	all := All(extras...)
	i := slices.IndexFunc(all, func(c Component) bool { return c.Name == name })
	if i < 0 {
		return Component{}, fmt.Errorf("no component %q: have %s", name, strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// WithNeededComponents returns the chosen components and all components that the chosen components need, in starting
// order. For an empty choice, WithNeededComponents returns Names.
func WithNeededComponents(chosen []string, extras ...ExtraComponent) ([]string, error) {
	if len(chosen) == 0 {
		return Names(), nil
	}
	wanted := map[string]bool{}
	var want func(name string) error
	want = func(name string) error {
		c, err := FindByName(name, extras...)
		if err != nil {
			return err
		}
		wanted[name] = true
		for _, need := range c.NeededComponents {
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

// AwaitedComponents returns the chosen components that must be ready before c starts.
func (c Component) AwaitedComponents(chosen []string) []string {
	return slices.DeleteFunc(
		slices.Concat(c.NeededComponents, c.StartsAfter),
		func(name string) bool { return !slices.Contains(chosen, name) },
	)
}
