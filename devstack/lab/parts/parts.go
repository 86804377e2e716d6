// Package parts adds the lab's components to a local stack. These components are real machines (an Incus server and the
// worker of provider incus), and Prometheus with Alertmanager. Package parts only describes these components; the
// stack's supervisor runs them like its own components.
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

// The names of the components.
const (
	Incusd       = "incusd"               // the Incus server, and the machines' connection to the API server
	IncusWorker  = "worker-incus"         // the worker of provider incus, which makes real machines
	Alertmanager = observers.Alertmanager // shows the firing alerts
	Prometheus   = observers.Prometheus   // scrapes Millwright's processes and evaluates the rules of deploy/alerts
)

// extraComponents returns the descriptions of the lab's components in starting order.
func extraComponents() []component.ExtraComponent {
	return []component.ExtraComponent{
		{Name: Incusd, NeededComponents: []string{component.APIServer}, ReadinessPath: "/readyz"},
		{
			Name:             IncusWorker,
			NeededComponents: []string{component.Bootstrap, component.Temporal, Incusd},
			ReadinessPath:    "/readyz",
		},
		{Name: Alertmanager, ReadinessPath: "/-/ready"},
		{Name: Prometheus, NeededComponents: []string{Alertmanager}, ReadinessPath: "/-/ready"},
	}
}

// Selection selects the components that are added to a stack.
type Selection struct {
	// WithRealMachines adds machines with real kubelets: an Incus server, and the worker of provider incus if the stack
	// has Millwright's worker. WithRealMachines needs root on Linux with Debian packages (incus.CheckSupport). Simulated
	// machines are still available.
	WithRealMachines bool
	// WithObservers adds Prometheus and Alertmanager from Debian packages. Prometheus scrapes Millwright's processes
	// every few seconds and evaluates the rules of deploy/alerts.
	WithObservers bool
	// LabProgramPath is the path of the program lab, which contains the component incusd. If LabProgramPath is empty,
	// AddToOptions builds lab from the clone.
	LabProgramPath string
}

// AddToOptions adds the parts to the options of a stack. AddToOptions builds the parts' programs and images if the
// cache lacks them. The first call takes some minutes.
func (p Selection) AddToOptions(ctx context.Context, o stack.Options) (stack.Options, error) {
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
	o.Components, o.ExtraComponents = slices.Clone(o.Components), extraComponents()
	programs := map[string]string{}
	if p.WithRealMachines {
		err = p.addRealMachines(ctx, &o, programs)
	}
	if err == nil && p.WithObservers {
		err = addObservers(ctx, &o, programs)
	}
	maps.Copy(programs, o.BinaryPaths)
	o.BinaryPaths = programs
	o.CompletePlan = p.completePlan
	return o, err
}

// addRealMachines adds the components of real machines to the options.
func (p Selection) addRealMachines(ctx context.Context, o *stack.Options, programs map[string]string) (err error) {
	if err := incus.BuildServerRootAndNodeImage(ctx, incus.Options{Repo: o.Repo, Output: o.Output}); err != nil {
		return err
	}
	o.Components = append(o.Components, Incusd)
	if programs[Incusd] = p.LabProgramPath; p.LabProgramPath == "" {
		if programs[Incusd], err = build.NestedBinary(ctx, o.Repo, "devstack/lab", ".", "lab", o.Output); err != nil {
			return err
		}
	}
	if slices.Contains(o.Components, component.Worker) {
		o.Components = append(o.Components, IncusWorker)
		programs[IncusWorker], err = build.NestedBinary(ctx, o.Repo, "provider/incus", "worker", IncusWorker, o.Output)
	}
	return err
}

// addObservers adds Prometheus to the options, and the programs of Prometheus and Alertmanager to programs.
func addObservers(ctx context.Context, o *stack.Options, programs map[string]string) (err error) {
	o.Components = append(o.Components, Prometheus)
	for _, name := range []string{Alertmanager, Prometheus} {
		if programs[name], err = observers.ProgramPath(ctx, name, o.Output); err != nil {
			return err
		}
	}
	return nil
}

// completePlan adds the lab's files and flags to a plan. stack.Options.CompletePlan calls it.
func (p Selection) completePlan(ctx context.Context, plan *component.Plan) ([]*os.File, error) {
	if p.WithObservers {
		if err := addObserverSettings(plan); err != nil {
			return nil, err
		}
	}
	if !p.WithRealMachines {
		return nil, nil
	}
	network, lock, err := incus.LockFreeNetwork(ctx, plan.Dir)
	if err != nil {
		return nil, err
	}
	return []*os.File{lock}, addRealMachineSettings(plan, network)
}

// prependFlags puts flags before a component's flags in the plan. The flags of the stack's options remain last and
// override the new flags.
func prependFlags(plan *component.Plan, name string, flags ...string) {
	plan.Args[name] = slices.Concat(flags, plan.Args[name])
}

// StopStack stops the stack in a folder, as stack.Down does, and removes the leftovers of a killed Incus server.
func StopStack(ctx context.Context, dir string) error {
	if err := stack.Down(ctx, dir); err != nil {
		return err
	}
	return incus.CleanUpKilledServer(ctx, incusDataFolder(component.StackFolder(dir)))
}
