// Package engine runs a container engine for tests of images and of docker-compose.yml: Docker with BuildKit and
// Compose, from Debian's packages in a root folder of its own in the user's cache folder. It shares no data, socket or
// network with an engine that is installed on the machine. It runs in its own mount, PID and network namespaces and
// reaches nothing outside, not even a registry: package standin makes the images that a test needs. It needs root on
// Linux with Debian's package manager; see Supported.
package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"millwright/devstack/build"
	"millwright/devstack/lab/debian"
	"millwright/devstack/lab/isolated"
)

// HostAddress is the address at which containers reach Listen's listeners. It is the address of the bridge in the
// engine's network namespace.
const HostAddress = "172.31.250.1"

// searchPath is the variable PATH of programs in the engine's root folder.
const searchPath = "/usr/sbin:/usr/bin"

// Options are the properties of an engine.
type Options struct {
	// Output receives the progress of builds; nil means none.
	Output io.Writer
	// Shown are folders of this machine, by absolute paths. The engine, its clients and its containers may read them at
	// the same paths.
	Shown []string
}

// Engine is a running engine.
type Engine struct {
	Dir   string // folder with images, containers and the log, as given to Start
	PID   int    // ID of process 1 of the engine's namespaces, in the namespace of this process
	Group string // name of its cgroup, which no other engine has

	process *isolated.Process
}

// engineCount counts the engines of this process: each has a cgroup of its own.
var engineCount atomic.Int32

// Supported returns why this machine cannot run an engine, or nil.
func Supported() error { return debian.Supported("container engines") }

// rootRecipe returns the recipe of the engine's root folder. Two of its packages only provide files for images:
// postgresql, and busybox as the shell of the images.
func rootRecipe() debian.Root {
	return debian.Root{
		Suite:   "trixie", // this release has Docker 26 with BuildKit, and Compose 2
		Variant: "extract",
		Packages: []string{
			"base-files",
			"docker.io",
			"docker-cli",
			"docker-buildx",
			"docker-compose",
			"containerd",
			"runc",
			"iptables",
			"iproute2",
			"coreutils",
			"mount",
			"postgresql-17",
			"busybox-static",
			"ca-certificates",
		},
		Without: []string{
			"/usr/bin/containerd-shim",
			"/usr/bin/containerd-shim-runc-v1",
			"/usr/bin/docker-compose",
			"/usr/bin/ctr",
			"/usr/bin/*perl*",
			"/usr/share/perl*",
			"/usr/lib/*-linux-gnu/libLLVM*",
			"/usr/lib/*-linux-gnu/libz3*",
			"/usr/lib/*-linux-gnu/perl*",
			"/usr/lib/postgresql/*/lib/bitcode/*",
		},
	}
}

// Root returns the path of the engine's root folder, and makes it first unless the cache has it: a minute or so, once,
// and 500 MB. It installs Debian's mmdebstrap if it is missing. The folder must not be changed.
func Root(ctx context.Context, output io.Writer) (string, error) {
	if err := Supported(); err != nil {
		return "", err
	}
	if output == nil {
		output = io.Discard
	}
	packages := rootRecipe()
	dir, err := build.Folder(ctx, "engine-root", strings.Join(packages.Arguments(), "\n"), output, func(dir string) error {
		root := filepath.Join(dir, "root")
		if err := packages.Make(ctx, root, output); err != nil {
			return err
		}
		// the installation of the package iptables makes the same link
		return os.Symlink("iptables-nft", filepath.Join(root, "usr", "sbin", "iptables"))
	})
	if err != nil {
		return "", fmt.Errorf("make the root folder of the engine: %w", err)
	}
	return filepath.Join(dir, "root"), nil
}

// Start starts an engine whose data are in dir, an empty folder, and returns when it answers. When this process ends,
// even by a kill, the engine ends, too.
func Start(ctx context.Context, dir string, o Options) (*Engine, error) {
	root, err := Root(ctx, o.Output)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("find the engine's folder: %w", err)
	}
	e := &Engine{Dir: dir, Group: fmt.Sprintf("%s%d-%d", groupPrefix, os.Getpid(), engineCount.Add(1))}
	if err := e.launch(ctx, root, o.Shown); err != nil {
		return nil, errors.Join(fmt.Errorf("start the engine: %w", err), e.Stop(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// Docker runs the command docker with these arguments beside the engine, with an input that may be nil, and returns its
// output. The error has its messages.
func (e *Engine) Docker(ctx context.Context, input io.Reader, arguments ...string) ([]byte, error) {
	return e.Run(ctx, nil, input, "docker", arguments...)
}

// Run runs a program of the engine's root folder beside the engine, with more environment.
func (e *Engine) Run(
	ctx context.Context,
	environment []string,
	input io.Reader,
	program string,
	arguments ...string,
) ([]byte, error) {
	environment = append(
		[]string{"PATH=" + searchPath, "HOME=/tmp", "DOCKER_HOST=unix:///run/docker.sock"},
		environment...)
	command := isolated.Command(ctx, e.PID, environment, program, arguments...)
	command.Stdin = input
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		return out, fmt.Errorf(
			"%s %s: %w: %s",
			program,
			strings.Join(arguments, " "),
			err,
			bytes.TrimSpace(complaint.Bytes()),
		)
	}
	return out, nil
}

// Listen listens for TCP connections in the engine's network namespace, for instance at HostAddress, or at 127.0.0.1
// for containers that share the network of the host.
func (e *Engine) Listen(address string) (net.Listener, error) { return e.process.Listen(address) }

// Dial connects to an address in the engine's network namespace, for instance a published port at 127.0.0.1.
func (e *Engine) Dial(ctx context.Context, address string) (net.Conn, error) {
	return e.process.Dial(ctx, address)
}

// Log returns the end of dockerd's messages, or why they cannot be read.
func (e *Engine) Log() string {
	const kept = 4000
	text, err := os.ReadFile(e.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-kept):])
}

func (e *Engine) logPath() string { return filepath.Join(e.Dir, "dockerd.log") }
