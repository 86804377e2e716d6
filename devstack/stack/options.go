// Package stack starts, stops and damages a local stack in a folder: Kubernetes' control plane, KWOK, Temporal,
// virtualcloud, our worker and bridge. The devstack command, the integration tests and the benchmarks call it. It
// builds nothing itself (package build does) and knows nothing of machines.
//
// A supervisor process is the parent of all components. Each component ends when the supervisor ends for any reason,
// because the kernel sends a parent-death signal; see package attached for its pitfall. The state file <dir>/stack.json
// says what runs; only the supervisor writes it.
package stack

import (
	"context"
	"fmt"
	"io"
	"os"
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
	// Dir is the folder of this stack: data, logs, credentials, state. Empty means <repo>/.devstack. Down keeps the
	// data, so that the next Up continues with them; remove the folder for a fresh start.
	Dir string
	// FreePorts uses a free block of ports instead of the documented ones, so that several stacks can run.
	FreePorts bool
	// Components are the components to start; those that they need are added. Empty means all.
	Components []string
	// ClusterAPI adds the released Cluster API: its core with the watch filter component.UpstreamFilter, the kubeadm
	// providers, and the development provider, whose workload clusters are in its memory.
	ClusterAPI bool
	// Output receives progress; nil means none.
	Output io.Writer
	// Attached ends the stack together with this process, even when that is killed: for tests.
	Attached bool
	// Env adds NAME=value pairs to the environment of a component, by component name.
	Env map[string][]string
	// Args adds flags to a component's command line, by component name; they come last, so they override others.
	Args map[string][]string
	// Binaries are paths of binaries to run instead of those of the clone, by component name: another version of ours,
	// or the programs of extras.
	Binaries map[string]string
	// TemporalTLS makes Temporal's frontend demand certificates (mTLS): component.WriteTemporalCertificates.
	// Millwright's processes get such certificates.
	TemporalTLS bool
	// Quiet makes nodes renew their leases six times less often, for benchmarks: 5,000 idle nodes would otherwise use a
	// core. A dead node is then found after five minutes instead of one.
	Quiet bool
	// NodeLease is how long the lease of a virtual node is valid. A node renews it after a quarter of this time, and a
	// dead node is found after five quarters. Zero: Quiet decides, with 40 s or 240 s. For fleets: 10,000 nodes with a
	// lease of 240 s send 167 renewals a second.
	NodeLease time.Duration
	// Extras describes further components, in starting order, at most component.MaxExtras. Only the extras that
	// Components names start.
	Extras []component.Extra
	// Complete is called once the ports of the plan are known. It adds the files, flags and manifests that depend on
	// them. The supervisor holds the returned locks until the stack ends. Complete is not called if the stack runs
	// already. Nil adds nothing.
	Complete func(ctx context.Context, plan *component.Plan) (locks []*os.File, err error)
	// Timeout bounds the start, without builds; zero means two minutes. An idle machine needs less than 15 s.
	Timeout time.Duration
	// Supervisor is the path of a binary with the command "run" (the devstack command uses itself). Empty means that
	// devstack is built from the clone.
	Supervisor string
}

// defaultTimeout is generous, for two cores that compile at the same time.
const defaultTimeout = 2 * time.Minute

// Folder returns the absolute path of a stack's folder. If dir is empty, it is <repo>/.devstack; an empty repo means
// the clone that contains the working directory.
func Folder(repo, dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	repo, err := build.FindRepo(repo)
	if err != nil {
		return "", fmt.Errorf("%w (or name the stack's folder with --dir)", err)
	}
	return filepath.Join(repo, ".devstack"), nil
}

// withDefaults sets the defaults of fields that are left out.
func (o Options) withDefaults() (Options, error) {
	var err error
	if o.Repo, err = build.FindRepo(o.Repo); err != nil {
		return o, err
	}
	if o.Dir, err = Folder(o.Repo, o.Dir); err != nil {
		return o, err
	}
	if o.Output == nil {
		o.Output = io.Discard
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if len(o.Extras) > component.MaxExtras {
		return o, fmt.Errorf("there are ports for %d extras, not for %d", component.MaxExtras, len(o.Extras))
	}
	if o.ClusterAPI {
		if len(o.Components) == 0 {
			o.Components = component.Names()
		}
		o.Components = append(slices.Clone(o.Components), component.ClusterAPI()...)
	}
	o.Components, err = component.WithNeeds(o.Components, o.Extras...)
	return o, err
}
