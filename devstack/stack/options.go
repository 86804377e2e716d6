// Package stack starts, stops and damages a local stack in a folder: Kubernetes' control plane, KWOK, Temporal, virtualcloud,
// our worker and bridge. The devstack command, the integration tests and the benchmarks call it. It builds nothing itself
// (package build does) and knows nothing of machines.
//
// A supervisor process is the parent of all components. Each component ends when the supervisor ends for any reason, because
// the kernel sends a parent-death signal; see package attached for its pitfall. The state file <dir>/stack.json says what runs;
// only the supervisor writes it.
package stack

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"millwright/devstack/build"
	"millwright/devstack/component"
)

// Options are the properties of the stack that Up starts. The zero value is the whole stack on its documented ports, in
// <repo>/.devstack, which keeps running when this process ends.
type Options struct {
	// Repo is the root of the clone; empty means the one that contains the working directory.
	Repo string
	// Dir is the folder of this stack: data, logs, credentials, state. Empty means <repo>/.devstack. Down keeps the data, so
	// that the next Up continues with them; remove the folder for a fresh start.
	Dir string
	// FreePorts uses a free block of ports instead of the documented ones, so that several stacks can run.
	FreePorts bool
	// Components are the components to start; those that they need are added. Empty means all.
	Components []string
	// Nodes is where machines with real kubelets run, beside the simulated ones: "incus" adds a server of Incus, which needs root
	// on Linux with Debian's packages (incus.Supported), and the worker of provider incus if Components has our worker. Empty
	// means nowhere.
	Nodes string
	// Observe adds Prometheus, which scrapes our processes every few seconds and evaluates the rules of deploy/alerts, and Alertmanager.
	// Both come from Debian's packages.
	Observe bool
	// ClusterAPI adds the released Cluster API: its core with the watch filter component.UpstreamFilter, the kubeadm providers, and the
	// development provider, whose workload clusters are in its memory.
	ClusterAPI bool
	// Output receives progress; nil means none.
	Output io.Writer
	// Attached ends the stack together with this process, even when that is killed: for tests.
	Attached bool
	// Env adds NAME=value pairs to the environment of a component, by component name.
	Env map[string][]string
	// Args adds flags to a component's command line, by component name; they come last, so they override others.
	Args map[string][]string
	// Binaries are paths of binaries to run instead of those of the clone, by component name: another version of ours.
	Binaries map[string]string
	// TemporalTLS makes Temporal's frontend demand certificates (mTLS): component.WriteTemporalCertificates. Our processes have them.
	TemporalTLS bool
	// Quiet makes nodes renew their leases six times less often, and be found dead later accordingly: for benchmarks, where
	// 5,000 idle nodes would otherwise use a core. Without it, a dead node is found after a minute.
	Quiet bool
	// NodeLease is how long the lease of a virtual node is valid. It is renewed after a quarter of it, and a dead node is found after one
	// and a quarter. Zero: 40 s, or 240 s if Quiet. For fleets: 10,000 nodes with a lease of 240 s send 167 renewals a second.
	NodeLease time.Duration
	// Timeout bounds the start, without builds; zero means two minutes. An idle machine needs less than 15 s.
	Timeout time.Duration
	// Supervisor is the path of a binary with the command "run" (the devstack command uses itself). Empty means that devstack
	// is built from the clone.
	Supervisor string
}

// nodesIncus is the only kind of real machines.
const nodesIncus = "incus"

// defaultTimeout is generous, for two cores that compile at the same time.
const defaultTimeout = 2 * time.Minute

// withDefaults sets the defaults of fields that are left out.
func (o Options) withDefaults() (Options, error) {
	var err error
	if o.Repo, err = build.FindRepo(o.Repo); err != nil {
		return o, err
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(o.Repo, ".devstack")
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, fmt.Errorf("find the stack's folder: %w", err)
	}
	if o.Output == nil {
		o.Output = io.Discard
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	switch o.Nodes {
	case "":
	case nodesIncus:
		if len(o.Components) == 0 {
			o.Components = component.Names()
		}
		o.Components = append(slices.Clone(o.Components), component.Incusd)
		if slices.Contains(o.Components, component.Worker) {
			o.Components = append(o.Components, component.IncusWorker)
		}
	default:
		return o, fmt.Errorf("no nodes of kind %q: have %q", o.Nodes, nodesIncus)
	}
	if o.Observe {
		if len(o.Components) == 0 {
			o.Components = component.Names()
		}
		o.Components = append(slices.Clone(o.Components), component.Prometheus)
	}
	if o.ClusterAPI {
		if len(o.Components) == 0 {
			o.Components = component.Names()
		}
		o.Components = append(slices.Clone(o.Components), component.ClusterAPI()...)
	}
	o.Components, err = component.WithNeeds(o.Components)
	return o, err
}
