// Package incus runs an Incus server for machines with real kubelets, and builds the image of these machines. Incus
// manages containers and virtual machines and has a REST API. The local stack, the tests of provider/incus and the demo
// use package incus.
//
// The server's programs come from Debian packages, in a root folder below the user's cache folder. Nothing is installed
// on the host. The server runs in its own mount, PID and network namespaces. When the process that called Start ends,
// process 1 of these namespaces ends, and the kernel removes all mounts, processes and network interfaces of the
// server. The server needs root on Linux with Debian's package manager; see CheckSupport.
package incus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"millwright/devstack/component"
	"millwright/devstack/lab/debian"
	"millwright/devstack/lab/isolated"
)

// NodeImageAlias is the alias of the node image: a small Debian with containerd and kubelet. A machine executes its
// user data (the config key "user.user-data") once, at its first boot; see UserData.
const NodeImageAlias = "node"

// NetworkName is Incus' name of the instances' network. The default profile uses this network.
const NetworkName = "machines"

// The node image contains these pod images, because nodes reach no registry.
const (
	// WorkloadImage serves HTTP on port 8080 and returns the name of its pod. With the flag --linger=10s the workload
	// serves for ten more seconds after SIGTERM.
	WorkloadImage = "millwright.local/workload:1"
	pauseImage    = "millwright.local/pause:1"
)

// apiPort is the port of the server's HTTPS API, which is Incus' default port. The server listens only in its own
// network namespace.
const apiPort = 8443

// Options are the options of Start and BuildServerRootAndNodeImage.
type Options struct {
	// Repo is the root of the clone; empty means the clone that contains the working directory.
	Repo string
	// Output receives the progress of builds; nil discards it.
	Output io.Writer
	// Network is the network of the machines, already locked by the caller. If Network is the zero value, Start chooses
	// a free network and keeps it locked until Stop.
	Network Network
}

// Server is a running server. Start writes the fields with JSON tags to <Dir>/server.json, so that other processes can
// open the server with Open.
type Server struct {
	// folder of instances, images, logs and certificates, as passed to Start; Stop does not delete it
	Dir string `json:"dir"`

	// URL is the URL of the API on the machines' network. Clients need a trusted certificate.
	URL            string `json:"address"`
	ClientCertFile string `json:"clientCert"` // path of a trusted client's certificate (PEM)
	ClientKeyFile  string `json:"clientKey"`  // path of the client's private key (PEM)
	// ServerCertFile is the path of the server's self-signed certificate (PEM). Clients accept only this certificate.
	ServerCertFile string `json:"serverCert"`
	// SocketPath is the path of the API's Unix socket; root needs no certificate there. The kernel refuses socket paths of
	// more than 107 bytes.
	SocketPath string `json:"socket"`

	Network Network `json:"network"`
	PID     int     `json:"pid"` // PID of process 1 of the server's namespaces, as seen by this process

	process     *isolated.Process // nil if the server comes from Open
	networkLock *os.File          // lock of the network, if Start chose the network
}

// CheckSupport returns an error with the reason if this machine cannot run a server.
func CheckSupport() error { return debian.CheckSupport("real machines") }

// BuildServerRootAndNodeImage makes the server's root folder and the node image, unless the cache has them. The first
// call takes some minutes. BuildServerRootAndNodeImage installs Debian's mmdebstrap if the program is missing. Start
// calls the same code.
func BuildServerRootAndNodeImage(ctx context.Context, o Options) error {
	_, _, err := o.ensureServerRootAndNodeImage(ctx)
	return err
}

// Start starts a server with its data in dir. Start returns when the server answers, trusts the client's certificate,
// and has the node image, the network and the default profile. Instances with this profile are nodes. If dir has the
// data of an earlier server, Start uses them again, and instances that were running start again. If the calling process
// ends, even by SIGKILL, the server ends, too.
func Start(ctx context.Context, dir string, o Options) (*Server, error) {
	root, image, err := o.ensureServerRootAndNodeImage(ctx)
	if err != nil {
		return nil, err
	}
	s, err := newServer(ctx, dir, o.Network)
	if err != nil {
		return nil, err
	}
	err = s.launch(ctx, root)
	if err == nil {
		err = s.configure(ctx, image)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start incusd: %w", err), s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func newServer(ctx context.Context, dir string, network Network) (*Server, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the server's folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the server's folder: %w", err)
	}
	s := &Server{
		Dir:            dir,
		ClientCertFile: filepath.Join(dir, "client.crt"),
		ClientKeyFile:  filepath.Join(dir, "client.key"),
		ServerCertFile: filepath.Join(dir, "lib", "server.crt"),
		SocketPath:     filepath.Join(dir, "lib", "unix.socket"),
		Network:        network,
	}
	if network == (Network{}) {
		if s.Network, s.networkLock, err = LockFreeNetwork(ctx, dir); err != nil {
			return nil, err
		}
	}
	s.URL = "https://" + s.Network.BridgeAddress + ":" + strconv.Itoa(apiPort)
	return s, nil
}

// Open returns the server that runs in dir, started by this process or another one. Only RunIncus and the fields of the
// returned Server may be used. Open returns fs.ErrNotExist if no server was started or if the server was stopped. Open
// returns no error for a server that was killed.
func Open(dir string) (*Server, error) {
	text, err := os.ReadFile(stateFilePath(dir))
	if err != nil {
		return nil, fmt.Errorf("find the server: %w", err)
	}
	s := &Server{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("read %s: %w", stateFilePath(dir), err)
	}
	return s, nil
}

func stateFilePath(dir string) string { return filepath.Join(dir, "server.json") }

// removeStateFile removes server.json.
func (s *Server) removeStateFile() error {
	if err := os.Remove(stateFilePath(s.Dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the server's state: %w", err)
	}
	return nil
}

func (s *Server) writeStateFile() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the server's state: %w", err)
	}
	if err := os.WriteFile(stateFilePath(s.Dir), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the server's state: %w", err)
	}
	return nil
}

// RunIncus runs the incus command in the server's namespaces and returns the command's standard output. The error
// contains standard error.
func (s *Server) RunIncus(ctx context.Context, arguments ...string) ([]byte, error) {
	return s.runIncusWithInput(ctx, nil, arguments...)
}

func (s *Server) runIncusWithInput(ctx context.Context, input io.Reader, arguments ...string) ([]byte, error) {
	command := isolated.CommandInNamespaces(ctx, s.PID, []string{"HOME=/tmp", "PATH=" + searchPath}, "incus", arguments...)
	command.Stdin = input
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		return out, fmt.Errorf("incus %s: %w: %s", strings.Join(arguments, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}

// CleanUpKilledServer removes two leftovers of a killed server: its cgroups and its file server.json.
// CleanUpKilledServer does nothing if no server was killed in dir. The caller must ensure that no server runs in dir.
func CleanUpKilledServer(ctx context.Context, dir string) error {
	s, err := Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lock, err := LockNetwork(s.Network)
	if errors.Is(err, component.ErrLocked) { // another server uses the network; its start removed the cgroups
		return s.removeStateFile()
	}
	if err != nil {
		return fmt.Errorf("clean up after the server in %s: %w", dir, err)
	}
	return errors.Join(s.removeLeftovers(ctx), lock.Close())
}

// LogPath returns the path of incusd's log, which is kept across restarts.
func (s *Server) LogPath() string { return filepath.Join(s.Dir, "incusd.log") }
