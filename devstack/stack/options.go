// Package stack answers one question: is there a local stack (Kubernetes' control plane, KWOK, Temporal, virtualcloud, our
// worker and bridge) in this folder, and how is it started, reached, hurt and stopped? The devstack command, the
// integration tests and the benchmarks call it. It builds nothing itself (package build does) and knows nothing of machines.
//
// A supervisor process is the parent of all components. Each component dies with it, however it dies, because the kernel
// sends a parent-death signal; see process_linux.go for the trap in that. The state file <dir>/stack.json says what runs;
// the supervisor alone writes it.
package stack

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"millwright/devstack/build"
)

// Options say which stack Up shall bring up. The zero value is the whole stack on its documented ports, in
// <repo>/.devstack, left running when this process ends.
type Options struct {
	// Repo is the root of the clone; empty means the one that holds the working directory.
	Repo string
	// Dir holds everything of this stack: data, logs, credentials, state. Empty means <repo>/.devstack. Data survive
	// Down, so that the next Up continues; remove the folder for a fresh start.
	Dir string
	// FreePorts takes a free block of ports instead of the documented ones, so that stacks run side by side.
	FreePorts bool
	// Components names what to start; what they need is added. Empty means all.
	Components []string
	// Output receives progress; nil means none.
	Output io.Writer
	// Attached makes the stack die with this process, even when that is killed: for tests.
	Attached bool
	// Env adds NAME=value pairs to the environment of a component, by component name.
	Env map[string][]string
	// Args adds flags to a component's command line, by component name; they come last, so they win.
	Args map[string][]string
	// Quiet makes nodes renew their leases six times more rarely, and be missed accordingly later: for benchmarks, where
	// 5,000 idle nodes would otherwise cost a core. Without it a node that stops beating is found dead after a minute.
	Quiet bool
	// Timeout bounds the start, without builds; zero means two minutes. An idle machine needs less than 15 s.
	Timeout time.Duration
	// Supervisor is the path of a binary that has the command "run" (the devstack command names itself). Empty means that
	// devstack is built from the clone.
	Supervisor string
}

// defaultTimeout is generous on purpose: two cores that compile at the same time.
const defaultTimeout = 2 * time.Minute

// withDefaults fills in what was left out.
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
	o.Components, err = withNeeds(o.Components)
	return o, err
}
