// Package engine runs a container engine (Docker with BuildKit and Compose) for tests of images and of
// docker-compose.yml. The engine's programs come from Debian packages, in a root folder below the user's cache folder.
// The engine shares no data, socket or network with an engine that is installed on the machine. The engine runs in its
// own mount, PID and network namespaces. No registry is reachable there, so package standin makes the images that a
// test needs. The engine needs root on Linux with Debian's package manager; see CheckSupport.
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

// BridgeAddress is the address of the bridge in the engine's network namespace. Containers connect to BridgeAddress to
// reach the listeners that Engine.Listen opens.
const BridgeAddress = "172.31.250.1"

// searchPath is the value of PATH for programs in the engine's root folder.
const searchPath = "/usr/sbin:/usr/bin"

// Options are the options of Start.
type Options struct {
	// Output receives the progress of builds; nil discards it.
	Output io.Writer
	// ReadableFolders are absolute paths of folders on this machine. The engine, its clients and its containers can
	// read the ReadableFolders at the same paths.
	ReadableFolders []string
}

// Engine is a running container engine.
type Engine struct {
	Dir        string // folder with images, containers and the log: the dir of Start
	PID        int    // PID of process 1 of the engine's namespaces, as seen by this process
	CgroupName string // name of the engine's own cgroup

	process *isolated.Process
}

// startedEngineCount counts the engines that this process has started. The count is part of each engine's cgroup name.
var startedEngineCount atomic.Int32

// CheckSupport returns an error with the reason if this machine cannot run an engine.
func CheckSupport() error { return debian.CheckSupport("container engines") }

// rootFilesystem returns the packages of the engine's root folder. The packages postgresql and busybox only provide
// files for images.
func rootFilesystem() debian.RootFilesystem {
	return debian.RootFilesystem{
		Suite:   "trixie", // trixie has Docker 26 with BuildKit, and Compose 2
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
		ExcludedFilePatterns: []string{
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

// RootFolder returns the path of the engine's root folder. If the cache lacks the folder, RootFolder makes it, which
// takes about a minute and 500 MB. RootFolder installs Debian's mmdebstrap if the program is missing. The caller must
// not change the folder.
func RootFolder(ctx context.Context, output io.Writer) (string, error) {
	if err := CheckSupport(); err != nil {
		return "", err
	}
	if output == nil {
		output = io.Discard
	}
	packages := rootFilesystem()
	dir, err := build.CachedFolder(
		ctx,
		"engine-root",
		strings.Join(packages.MmdebstrapArguments(), "\n"),
		output,
		func(dir string) error {
			root := filepath.Join(dir, "root")
			if err := packages.Make(ctx, root, output); err != nil {
				return err
			}
			// The installation of the package iptables makes the same link.
			return os.Symlink("iptables-nft", filepath.Join(root, "usr", "sbin", "iptables"))
		},
	)
	if err != nil {
		return "", fmt.Errorf("make the root folder of the engine: %w", err)
	}
	return filepath.Join(dir, "root"), nil
}

// Start starts an engine with its data in the empty folder dir, and returns when the engine answers. If the calling
// process ends, even by SIGKILL, the engine ends, too.
func Start(ctx context.Context, dir string, o Options) (*Engine, error) {
	root, err := RootFolder(ctx, o.Output)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("find the engine's folder: %w", err)
	}
	e := &Engine{Dir: dir, CgroupName: fmt.Sprintf("%s%d-%d", cgroupPrefix, os.Getpid(), startedEngineCount.Add(1))}
	if err := e.launch(ctx, root, o.ReadableFolders); err != nil {
		return nil, errors.Join(fmt.Errorf("start the engine: %w", err), e.Stop(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// RunDocker runs the docker command in the engine's namespaces and returns the command's standard output. input is
// standard input and may be nil. The error contains standard error.
func (e *Engine) RunDocker(ctx context.Context, input io.Reader, arguments ...string) ([]byte, error) {
	return e.RunProgram(ctx, nil, input, "docker", arguments...)
}

// RunProgram runs a program of the engine's root folder in the engine's namespaces, with additional environment
// variables.
func (e *Engine) RunProgram(
	ctx context.Context,
	environment []string,
	input io.Reader,
	program string,
	arguments ...string,
) ([]byte, error) {
	environment = append(
		[]string{"PATH=" + searchPath, "HOME=/tmp", "DOCKER_HOST=unix:///run/docker.sock"},
		environment...)
	command := isolated.CommandInNamespaces(ctx, e.PID, environment, program, arguments...)
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

// Listen listens for TCP connections in the engine's network namespace, for instance at BridgeAddress, or at 127.0.0.1
// for containers with host networking.
func (e *Engine) Listen(address string) (net.Listener, error) { return e.process.Listen(address) }

// Dial connects to an address in the engine's network namespace, for instance to a published port at 127.0.0.1.
func (e *Engine) Dial(ctx context.Context, address string) (net.Conn, error) {
	return e.process.Dial(ctx, address)
}

// LogTail returns the last 4000 bytes of dockerd's log, or the error text if the log cannot be read.
func (e *Engine) LogTail() string {
	const kept = 4000
	text, err := os.ReadFile(e.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-kept):])
}

func (e *Engine) logPath() string { return filepath.Join(e.Dir, "dockerd.log") }
