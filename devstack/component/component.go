// Package component describes the components of a local stack: which components a component needs, and their command
// lines, ports, credentials, files and readiness probes. Package stack runs the components.
package component

import (
	"fmt"
	"slices"
	"strings"

	"millwright/devstack/build"
)

// The components, in the order in which they start.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
	Temporal          = "temporal"
	VirtualCloud      = "virtualcloud"
	Bootstrap         = "bootstrap" // ends when complete: CRDs and RBAC, Temporal's namespace and search attributes
	Worker            = "worker"
	Bridge            = "bridge"
	// only on demand: a worker that serves the provider's queue alone, with its own user
	ProviderWorker = "worker-provider"
	SecondBridge   = "bridge-2" // only on demand: for tests of failover
	SecondWorker   = "worker-2" // only on demand: for tests of failover
	// only on demand: machine-controller-manager, its process for deployments and sets
	MCMManager  = "mcm-manager"
	MCMMachines = "mcm-machines" // only on demand: machine-controller-manager, its process for machines

	// Only on demand: Cluster API beside Millwright.
	ClusterAPICore         = build.ClusterAPICore
	ClusterAPIBootstrap    = build.ClusterAPIBootstrap
	ClusterAPIControlPlane = build.ClusterAPIControlPlane
	ClusterAPIDev          = build.ClusterAPIDev
)

// Component has the facts about a component that the supervisor needs. Its command line is in kubernetes.go,
// clusterapi.go or ours.go, its readiness probe in probes.go.
type Component struct {
	Name       string
	Needs      []string // components that must be ready before it starts, and that are chosen together with it
	After      []string // components that must be ready before it starts, if they are chosen
	Heavy      string   // name of its heavy binary; empty: it has another program
	Folder     string   // folder of its main package among Millwright's own binaries; empty: it has another program
	ClusterAPI bool     // its program is the one with its name in build.ClusterAPIPrograms

	OnDemand bool // runs only if it is named, not as part of a whole stack
}

// Extra is a component that is not in the table. The caller that starts the stack describes it. Its program is in
// Plan.Binaries, its command line in Plan.Args. An extra gets one port.
type Extra struct {
	Name  string   `json:"name"`
	Needs []string `json:"needs,omitempty"` // components that it needs: see Component.Needs
	Ready string   `json:"ready"`           // HTTP path at its port that answers 200 when it is ready
}

// All returns the table and then the extras, in starting order: no component needs a later one.
func All(extras ...Extra) []Component {
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
		// which collects what clusters leave
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

// Names returns the names of the components of a whole stack, in starting order, without those that run only on
// demand.
func Names() []string {
	var names []string
	for _, c := range All() {
		if !c.OnDemand {
			names = append(names, c.Name)
		}
	}
	return names
}

// Named finds a component by name.
func Named(name string, extras ...Extra) (Component, error) {
	all := All(extras...)
	i := slices.IndexFunc(all, func(c Component) bool { return c.Name == name })
	if i < 0 {
		return Component{}, fmt.Errorf("no component %q: have %s", name, strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// WithNeeds returns the chosen components and all components that they need, in starting order. If none is chosen, it
// returns Names.
func WithNeeds(chosen []string, extras ...Extra) ([]string, error) {
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

// WaitsFor returns which of the chosen components must be ready before this one starts.
func (c Component) WaitsFor(chosen []string) []string {
	return slices.DeleteFunc(
		slices.Concat(c.Needs, c.After),
		func(name string) bool { return !slices.Contains(chosen, name) },
	)
}
