// Package isolated runs servers in a root folder of their own and in namespaces of their own (mount, PID, network).
// When the process that started such a server ends, process 1 of the namespaces ends, too, and with it all mounts,
// processes and network interfaces of the server. Only its cgroups stay; package cgroup removes them. It needs root on
// Linux.
package isolated

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// enterFunctions has shell functions for the scripts that run as process 1 of new namespaces.
//
//go:embed enter.sh
var enterFunctions string

// Options are the properties of the first process.
type Options struct {
	// Script is run by sh as the first process of the namespaces. It calls join_groups, fill_root and enter_root of
	// enter.sh, and then starts the server.
	Script string
	Dir    string     // folder of the server; it gets the script
	Groups []string   // cgroup folders that the first process enters: see cgroup.Make
	Env    []string   // whole environment of the script
	Files  []*os.File // open files: descriptor 3 and the following ones
	Log    string     // path of the file that the output is appended to
}

// Process is the first process of the namespaces. Only one goroutine may call End.
type Process struct {
	PID int // process ID in the namespace of the calling process

	command *exec.Cmd
	ended   chan struct{} // closed when the process has been waited for
}

// Done is closed when the process and all others of its namespaces have ended.
func (p *Process) Done() <-chan struct{} { return p.ended }

// Command returns a command that runs beside a server with this first process: in its namespaces and with its root
// folder. It has no other environment than the given one.
func Command(ctx context.Context, pid int, environment []string, program string, arguments ...string) *exec.Cmd {
	inside := []string{"-t", strconv.Itoa(pid), "-m", "-p", "-n", "env", "-i"}
	inside = append(append(inside, environment...), program)
	return exec.CommandContext(ctx, "nsenter", append(inside, arguments...)...)
}

// retryEvery is the time between two attempts, in waits that take much less than a second.
const retryEvery = 50 * time.Millisecond
