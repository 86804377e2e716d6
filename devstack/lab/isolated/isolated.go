// Package isolated runs servers in their own root folder and their own namespaces (mount, PID, network). When the
// process that started a server ends, process 1 of the namespaces ends, and the kernel removes all mounts, processes
// and network interfaces of the server. The kernel does not remove the server's cgroups, so package cgroup removes
// them. Package isolated needs root on Linux.
package isolated

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// namespaceShellFunctions are shell functions for the scripts that run as process 1 of new namespaces.
//
//go:embed enter.sh
var namespaceShellFunctions string

// Options are the options of Start.
type Options struct {
	// Script is the shell script of process 1. The script calls join_groups, fill_root and enter_root of enter.sh, and
	// then starts the server.
	Script        string
	Dir           string     // the server's folder; Start writes the script there
	CgroupFolders []string   // cgroup folders that process 1 enters: see cgroup.Make
	Env           []string   // complete environment of the script
	Files         []*os.File // open files that the script inherits as descriptors 3 and higher
	LogPath       string     // path of the log; standard output and error are appended
}

// Process is process 1 of the namespaces. Only one goroutine may call Terminate.
type Process struct {
	PID int // process ID as seen by the calling process

	command *exec.Cmd
	done    chan struct{} // closed when Wait has returned
}

// Done returns a channel that is closed when all processes of the PID namespace have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// CommandInNamespaces returns a command that runs in a server's namespaces and root folder. pid is process 1 of the
// server. The command has only the given environment.
func CommandInNamespaces(
	ctx context.Context,
	pid int,
	environment []string,
	program string,
	arguments ...string,
) *exec.Cmd {
	inside := []string{"-t", strconv.Itoa(pid), "-m", "-p", "-n", "env", "-i"}
	inside = append(append(inside, environment...), program)
	return exec.CommandContext(ctx, "nsenter", append(inside, arguments...)...)
}

// retryInterval is the time between two attempts of waits that usually take less than a second.
const retryInterval = 50 * time.Millisecond
