// Package stack starts and stops a local stack in a folder, and kills or pauses its components: Kubernetes' control
// plane, KWOK, Temporal, virtualcloud, Millwright's worker and bridge. The devstack command, the integration tests and
// the benchmarks call this package. Package build builds the binaries. Package stack contains no code for machines.
//
// A supervisor process is the parent of all components. Each component ends when the supervisor ends for any reason,
// because the kernel sends a parent-death signal (see package attached). The state file <dir>/stack.json records the
// components and their processes; only the supervisor writes this file.
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
// <repo>/.devstack. By default, the stack keeps running when this process ends.
type Options struct {
	// Repo is the root of the clone; empty means the clone that contains the working directory.
	Repo string
	// Dir is the folder of this stack: data, logs, credentials, state. Empty means <repo>/.devstack. Down keeps the
	// data, so that the next Up continues with the old data; remove the folder for a fresh start.
	Dir string
	// UseFreePorts selects a free block of ports instead of the documented ports, so that several stacks can run.
	UseFreePorts bool
	// Components are the components to start. Up adds the components that the chosen components need. Empty means all.
	Components []string
	// WithClusterAPI adds the released Cluster API: its core with the watch filter component.UpstreamFilter, the kubeadm
	// providers, and the development provider, which keeps its workload clusters in memory.
	WithClusterAPI bool
	// ClusterAPIRelease is the minor version of Cluster API, such as 1.13; see build.ClusterAPIMinorVersions. Empty means
	// the newest.
	ClusterAPIRelease string
	// Output receives progress messages; nil means no messages.
	Output io.Writer
	// EndsWithThisProcess ends the stack when this process ends, even by SIGKILL. Tests use this option.
	EndsWithThisProcess bool
	// Env adds environment variables (NAME=value) to a component, by component name.
	Env map[string][]string
	// Args adds flags to a component's command line, by component name. The flags come last and override earlier flags.
	Args map[string][]string
	// BinaryPaths are paths of binaries that replace the clone's binaries, by component name. A path may also be the
	// program of an extra component.
	BinaryPaths map[string]string
	// RequireTemporalTLS makes Temporal's frontend require client certificates (mTLS): see
	// component.WriteTemporalCertificates. Millwright's processes get client certificates.
	RequireTemporalTLS bool
	// UseLongLeases makes Nodes renew their Leases six times less often, for benchmarks, because 5,000 idle Nodes would
	// otherwise use one core. With UseLongLeases, the detection of a dead Node takes five minutes instead of one minute.
	UseLongLeases bool
	// NodeLeaseDuration is the Lease duration of a virtual Node. A Node renews its Lease after a quarter of
	// NodeLeaseDuration. A dead Node is detected after 1.25 times NodeLeaseDuration. If NodeLeaseDuration is zero, the
	// duration is 240 s with UseLongLeases and 40 s without UseLongLeases. NodeLeaseDuration is for large fleets: 10,000
	// Nodes with a Lease of 240 s send 167 renewals a second.
	NodeLeaseDuration time.Duration
	// ExtraComponents describes additional components, in starting order, at most component.MaxExtraComponents. Up starts
	// only the extras that Components names.
	ExtraComponents []component.ExtraComponent
	// Up calls CompletePlan once the ports of the plan are known. CompletePlan adds the files, flags and manifests that
	// depend on the ports. The supervisor keeps the returned locks until the stack ends. If the stack already runs, Up
	// does not call CompletePlan. Nil adds nothing.
	CompletePlan func(ctx context.Context, plan *component.Plan) (locks []*os.File, err error)
	// StartTimeout is the timeout of the start, without builds; zero means two minutes. An idle computer needs less than
	// 15 s.
	StartTimeout time.Duration
	// SupervisorProgramPath is the path of a binary with the command "run". The devstack command passes its own path. If
	// empty, Up builds devstack from the clone.
	SupervisorProgramPath string
}

// defaultStartTimeout is long enough for a computer with two cores that compiles at the same time.
const defaultStartTimeout = 2 * time.Minute

// Folder returns the absolute path of a stack's folder. If dir is empty, the folder is <repo>/.devstack. An empty repo
// means the clone that contains the working directory.
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

// withDefaults sets the defaults of empty fields.
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
	if o.StartTimeout == 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if len(o.ExtraComponents) > component.MaxExtraComponents {
		return o, fmt.Errorf(
			"there are ports for %d extras, not for %d",
			component.MaxExtraComponents,
			len(o.ExtraComponents),
		)
	}
	if o.WithClusterAPI {
		if len(o.Components) == 0 {
			o.Components = component.Names()
		}
		o.Components = append(slices.Clone(o.Components), component.ClusterAPINames()...)
	}
	o.Components, err = component.WithNeededComponents(o.Components, o.ExtraComponents...)
	return o, err
}
