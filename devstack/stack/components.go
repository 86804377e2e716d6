package stack

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
	ProviderWorker    = "worker-provider" // only on demand: a worker that serves the provider's queue alone, as a user of its own
	SecondBridge      = "bridge-2"        // only on demand: for tests of failover
)

// component is what the supervisor must know about a component. Its command line is in commands_*.go, its readiness probe in
// probes.go.
type component struct {
	name   string
	needs  []string // must be ready before; they are chosen together with this component
	after  []string // the same, but only if they are chosen
	heavy  string   // name of the heavy binary that it runs from, if any
	folder string   // or the folder of our own binary, if any

	onDemand bool // not part of "all"
}

// components returns the table, in starting order: no component needs a later one.
func components() []component {
	return []component{
		{name: Etcd, heavy: build.Kubernetes},
		{name: APIServer, needs: []string{Etcd}, heavy: build.Kubernetes},
		{name: ControllerManager, needs: []string{APIServer}, heavy: build.Kubernetes},
		{name: Scheduler, needs: []string{APIServer}, heavy: build.Kubernetes},
		{name: Kwok, needs: []string{APIServer}, heavy: build.Kubernetes},
		{name: Temporal, heavy: build.Temporal},
		{name: VirtualCloud, needs: []string{APIServer}, folder: build.VirtualCloud},
		{name: Bootstrap, needs: []string{APIServer}, after: []string{Temporal}, folder: build.Starter},
		{name: Worker, needs: []string{Bootstrap, Temporal, VirtualCloud}, folder: build.Worker},
		{name: Bridge, needs: []string{Bootstrap, Temporal}, folder: build.Bridge},
		{name: ProviderWorker, needs: []string{Bootstrap, Temporal, VirtualCloud}, folder: build.Worker, onDemand: true},
		{name: SecondBridge, needs: []string{Bridge}, folder: build.Bridge, onDemand: true},
	}
}

// ComponentNames returns the names of the components of a whole stack, in starting order, without those that run only on
// demand.
func ComponentNames() []string {
	var names []string
	for _, c := range components() {
		if !c.onDemand {
			names = append(names, c.name)
		}
	}
	return names
}

// componentNamed finds a component by name.
func componentNamed(name string) (component, error) {
	all := components()
	i := slices.IndexFunc(all, func(c component) bool { return c.name == name })
	if i < 0 {
		return component{}, fmt.Errorf("no component %q: have %s", name, strings.Join(ComponentNames(), ", "))
	}
	return all[i], nil
}

// withNeeds returns the chosen components and all that they need, in starting order; all components if none is chosen.
func withNeeds(chosen []string) ([]string, error) {
	if len(chosen) == 0 {
		return ComponentNames(), nil
	}
	wanted := map[string]bool{}
	var want func(name string) error
	want = func(name string) error {
		c, err := componentNamed(name)
		if err != nil {
			return err
		}
		wanted[name] = true
		for _, need := range c.needs {
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
	for _, c := range components() {
		if wanted[c.name] {
			names = append(names, c.name)
		}
	}
	return names, nil
}

// waitsFor returns which of the chosen components must be ready before this one starts.
func (c component) waitsFor(chosen []string) []string {
	return slices.DeleteFunc(slices.Concat(c.needs, c.after), func(name string) bool { return !slices.Contains(chosen, name) })
}
