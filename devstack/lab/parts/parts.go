// Package parts adds to a local stack what only the lab has: real machines (a server of Incus, and the worker of its
// provider), and Prometheus with Alertmanager. The stack runs them as it runs its own components: their definitions are
// data.
package parts

import (
	"context"
	"io"
	"maps"
	"os"
	"slices"

	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/devstack/lab/incus"
	"millwright/devstack/lab/observers"
	"millwright/devstack/stack"
)

// The components.
const (
	Incusd       = "incusd"               // real machines, and their way to the API server
	IncusWorker  = "worker-incus"         // serves the queue of provider incus, which makes real machines
	Alertmanager = observers.Alertmanager // shows the alerts that fire
	Prometheus   = observers.Prometheus   // scrapes our processes, and evaluates the rules of deploy/alerts
)

// extras returns the descriptions of the lab's components, in starting order.
func extras() []component.Extra {
	return []component.Extra{
		{Name: Incusd, Needs: []string{component.APIServer}, Ready: "/readyz"},
		{Name: IncusWorker, Needs: []string{component.Bootstrap, component.Temporal, Incusd}, Ready: "/readyz"},
		{Name: Alertmanager, Ready: "/-/ready"},
		{Name: Prometheus, Needs: []string{Alertmanager}, Ready: "/-/ready"},
	}
}

// Parts are what a stack gets besides its own components.
type Parts struct {
	// Nodes is for machines with real kubelets, beside the simulated ones: a server of Incus, which needs root on Linux
	// with Debian's packages (incus.Supported), and the worker of provider incus if the stack has our worker.
	Nodes bool
	// Observe is Prometheus, which scrapes our processes every few seconds and evaluates the rules of deploy/alerts,
	// and Alertmanager. Both come from Debian's packages.
	Observe bool
	// Lab is the path of the command lab, which has the component incusd. Empty means that it is built from the clone.
	Lab string
}

// Add returns the options of a stack with these parts. It builds or finds their programs and images: some minutes,
// once.
func (p Parts) Add(ctx context.Context, o stack.Options) (stack.Options, error) {
	var err error
	if o.Repo, err = build.FindRepo(o.Repo); err != nil {
		return o, err
	}
	if o.Output == nil {
		o.Output = io.Discard
	}
	if len(o.Components) == 0 {
		o.Components = component.Names()
	}
	o.Components, o.Extras = slices.Clone(o.Components), extras()
	programs := map[string]string{}
	if p.Nodes {
		err = p.addNodes(ctx, &o, programs)
	}
	if err == nil && p.Observe {
		err = addObservers(ctx, &o, programs)
	}
	maps.Copy(programs, o.Binaries)
	o.Binaries = programs
	o.Complete = p.complete
	return o, err
}

// addNodes adds the components of real machines.
func (p Parts) addNodes(ctx context.Context, o *stack.Options, programs map[string]string) (err error) {
	if err := incus.Build(ctx, incus.Options{Repo: o.Repo, Output: o.Output}); err != nil {
		return err
	}
	o.Components = append(o.Components, Incusd)
	if programs[Incusd] = p.Lab; p.Lab == "" {
		if programs[Incusd], err = build.Nested(ctx, o.Repo, "devstack/lab", ".", "lab", o.Output); err != nil {
			return err
		}
	}
	if slices.Contains(o.Components, component.Worker) {
		o.Components = append(o.Components, IncusWorker)
		programs[IncusWorker], err = build.Nested(ctx, o.Repo, "provider/incus", "worker", IncusWorker, o.Output)
	}
	return err
}

// addObservers adds Prometheus and what it needs.
func addObservers(ctx context.Context, o *stack.Options, programs map[string]string) (err error) {
	o.Components = append(o.Components, Prometheus)
	for _, name := range []string{Alertmanager, Prometheus} {
		if programs[name], err = observers.Program(ctx, name, o.Output); err != nil {
			return err
		}
	}
	return nil
}

// complete adds files and flags of the lab to a plan. It is the function for the field Complete of stack.Options.
func (p Parts) complete(ctx context.Context, plan *component.Plan) ([]*os.File, error) {
	if p.Observe {
		if err := completeObservers(plan); err != nil {
			return nil, err
		}
	}
	if !p.Nodes {
		return nil, nil
	}
	network, lock, err := incus.FreeNetwork(ctx, plan.Dir)
	if err != nil {
		return nil, err
	}
	return []*os.File{lock}, completeNodes(plan, network)
}

// prependFlags puts flags before those of the options, which come last.
func prependFlags(plan *component.Plan, name string, flags ...string) {
	plan.Args[name] = slices.Concat(flags, plan.Args[name])
}

// Down stops what runs in a folder, as stack.Down does, and removes what a killed server of Incus left behind.
func Down(ctx context.Context, dir string) error {
	if err := stack.Down(ctx, dir); err != nil {
		return err
	}
	return incus.Clean(ctx, incusdFolder(component.Layout(dir)))
}
