// Package incus runs a server of Incus (a manager of containers and virtual machines with a REST API) for machines with
// real kubelets, and makes the image of these machines. The local stack, the tests of provider/incus and the demo use
// it.
//
// The server comes from Debian's packages, in a root folder of its own in the user's cache folder: nothing is installed
// on the host. The server runs in its own mount, PID and network namespaces. When the process that called Start ends,
// process 1 of these namespaces ends, too, and with it all mounts, processes and network interfaces of the server. It
// needs root on Linux with Debian's package manager; see Supported.
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

// ImageAlias is the alias of the image of nodes: a small Debian with containerd and kubelet. A machine from it executes
// its user data ("user.user-data" of its config) once, at its first boot; see UserData.
const ImageAlias = "node"

// NetworkName is the name of the instances' network in Incus; the default profile has it.
const NetworkName = "machines"

// Images that every node has: no registry can be reached.
const (
	// WorkloadImage serves HTTP on port 8080 and answers with the name of its pod. Its flag --linger=10s makes it serve
	// on for that long after SIGTERM.
	WorkloadImage = "millwright.local/workload:1"
	pauseImage    = "millwright.local/pause:1"
)

// apiPort is the port of the server's HTTPS API: the usual one of Incus. The server listens only in its own network
// namespace.
const apiPort = 8443

// Options are the properties of a server.
type Options struct {
	// Repo is the root of the clone; empty means the one that contains the working directory.
	Repo string
	// Output receives the progress of builds; nil means none.
	Output io.Writer
	// Network is the network of the machines, which the caller has locked. If it is the zero value, Start chooses a
	// free network, and locks it until Stop.
	Network Network
}

// Server is a running server. Its fields are written to <Dir>/server.json, so that other processes can use it (Open).
type Server struct {
	Dir string `json:"dir"` // folder with instances, images, logs and certificates, as given to Start; Stop keeps it

	// Address is the URL of the API, on the machines' network. Clients show a certificate.
	Address    string `json:"address"`
	ClientCert string `json:"clientCert"` // path of a trusted client's certificate (PEM)
	ClientKey  string `json:"clientKey"`  // path of its key (PEM)
	// path of the server's certificate (PEM), which is self-signed: compare it as a whole
	ServerCert string `json:"serverCert"`
	// Socket is the path of the API's Unix socket, where root needs no certificate. The kernel refuses paths of more
	// than 107 bytes.
	Socket string `json:"socket"`

	Network Network `json:"network"`
	PID     int     `json:"pid"` // ID of process 1 of the server's namespaces, in the namespace of this process

	process *isolated.Process // nil for a server that Open returned
	lock    *os.File          // lock of the network, if Start chose one
}

// Supported returns why this machine cannot run a server, or nil.
func Supported() error { return debian.Supported("real machines") }

// Build makes the server's root folder and the nodes' image, unless the cache has them: some minutes, once. It installs
// Debian's mmdebstrap if it is missing. Start builds both, too, if they are missing.
func Build(ctx context.Context, o Options) error {
	_, _, err := o.build(ctx)
	return err
}

// Start starts a server whose data are in dir, and returns when it answers, trusts the client's certificate and has the
// nodes' image, the network and the default profile: instances of that profile are nodes. Data of an earlier server in
// dir are used again; its instances that ran start again. When this process ends, even by a kill, the server ends, too.
func Start(ctx context.Context, dir string, o Options) (*Server, error) {
	root, image, err := o.build(ctx)
	if err != nil {
		return nil, err
	}
	s, err := newServer(ctx, dir, o.Network)
	if err != nil {
		return nil, err
	}
	err = s.launch(ctx, root)
	if err == nil {
		err = s.prepare(ctx, image)
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
		Dir:        dir,
		ClientCert: filepath.Join(dir, "client.crt"),
		ClientKey:  filepath.Join(dir, "client.key"),
		ServerCert: filepath.Join(dir, "lib", "server.crt"),
		Socket:     filepath.Join(dir, "lib", "unix.socket"),
		Network:    network,
	}
	if network == (Network{}) {
		if s.Network, s.lock, err = FreeNetwork(ctx, dir); err != nil {
			return nil, err
		}
	}
	s.Address = "https://" + s.Network.Bridge + ":" + strconv.Itoa(apiPort)
	return s, nil
}

// Open returns the server that runs in dir, started by this or another process. Only Run and the fields of the returned
// Server may be used. Open returns fs.ErrNotExist if no server was started or it was stopped, and no error for a server
// that was killed.
func Open(dir string) (*Server, error) {
	text, err := os.ReadFile(statePath(dir))
	if err != nil {
		return nil, fmt.Errorf("find the server: %w", err)
	}
	s := &Server{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("read %s: %w", statePath(dir), err)
	}
	return s, nil
}

func statePath(dir string) string { return filepath.Join(dir, "server.json") }

// removeState removes the server's state.
func (s *Server) removeState() error {
	if err := os.Remove(statePath(s.Dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the server's state: %w", err)
	}
	return nil
}

func (s *Server) writeState() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the server's state: %w", err)
	}
	if err := os.WriteFile(statePath(s.Dir), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the server's state: %w", err)
	}
	return nil
}

// Run runs the command incus with these arguments beside the server and returns its output. The error has its messages.
func (s *Server) Run(ctx context.Context, arguments ...string) ([]byte, error) {
	return s.runIncus(ctx, nil, arguments...)
}

func (s *Server) runIncus(ctx context.Context, input io.Reader, arguments ...string) ([]byte, error) {
	command := isolated.Command(ctx, s.PID, []string{"HOME=/tmp", "PATH=" + path}, "incus", arguments...)
	command.Stdin = input
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		return out, fmt.Errorf("incus %s: %w: %s", strings.Join(arguments, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}

// Clean removes the two things that a killed server leaves: its folders in the cgroup hierarchies, and its state file.
// It does nothing if no server was killed in dir. The caller makes sure that none runs there.
func Clean(ctx context.Context, dir string) error {
	s, err := Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lock, err := LockNetwork(s.Network)
	if errors.Is(err, component.ErrLocked) { // another server has the network now, and cleaned up when it started
		return s.removeState()
	}
	if err != nil {
		return fmt.Errorf("clean up after the server in %s: %w", dir, err)
	}
	return errors.Join(s.clean(ctx), lock.Close())
}

// LogPath returns the file of incusd's messages, across restarts.
func (s *Server) LogPath() string { return filepath.Join(s.Dir, "incusd.log") }
