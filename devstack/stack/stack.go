package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"go.temporal.io/sdk/client"

	"millwright/devstack/component"
)

// ErrNotRunning says that no supervisor runs in this folder. Processes of a crashed one may remain.
var ErrNotRunning = errors.New("no stack is running")

// Stack is a handle on a running stack. It has no connection and no process: several may exist, in several processes,
// and it need not be closed. All its methods are safe for concurrent use.
type Stack struct{ state State }

// Open returns the stack that runs in a folder, or ErrNotRunning.
func Open(dir string) (*Stack, error) {
	state, live, err := liveState(dir)
	if err != nil {
		return nil, err
	}
	switch {
	case live:
		return &Stack{state}, nil
	case state.Phase == PhaseFailed:
		return nil, fmt.Errorf("%w in %s: the last start failed: %s", ErrNotRunning, dir, state.Error)
	case state.Phase != "":
		return nil, fmt.Errorf("%w in %s: its supervisor was killed, and everything with it", ErrNotRunning, dir)
	}
	return nil, fmt.Errorf("%w in %s", ErrNotRunning, dir)
}

// State returns the stack's state file as it is now.
func (s *Stack) State() (State, error) { return readState(s.Dir()) }

// Status returns all components in starting order, with their CPU time and memory.
func (s *Stack) Status(ctx context.Context) ([]ComponentStatus, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now, err := Open(s.Dir())
	if err != nil {
		return nil, err
	}
	status := now.state.Components
	for i := range status {
		status[i].CPU, status[i].Memory = status[i].Process.usage()
		if status[i].State.Alive() && status[i].Process.paused() {
			status[i].State = StatePaused
		}
	}
	return status, nil
}

// Start makes a component ready and returns when it is ready. It does nothing for a component that is ready.
func (s *Stack) Start(ctx context.Context, name string) error {
	return s.callComponent(ctx, name, "start")
}

// Stop sends SIGTERM to a component, then SIGKILL if it does not end, and returns when it is gone. It does nothing for
// a component that does not run.
func (s *Stack) Stop(ctx context.Context, name string) error {
	return s.callComponent(ctx, name, "stop")
}

// Kill sends SIGKILL to a component and returns when it is gone. It does nothing for a component that does not run.
func (s *Stack) Kill(ctx context.Context, name string) error {
	return s.callComponent(ctx, name, "kill")
}

// Restart stops a component as Stop does, and starts it as Start does.
func (s *Stack) Restart(ctx context.Context, name string) error {
	if err := s.Stop(ctx, name); err != nil {
		return err
	}
	return s.Start(ctx, name)
}

// Signal sends a signal to a component: SIGSTOP makes it hang, SIGCONT lets it continue. It returns an error for a
// component that does not run.
func (s *Stack) Signal(ctx context.Context, name string, signal syscall.Signal) error {
	return s.callComponent(ctx, name, "signal/"+strconv.Itoa(int(signal)))
}

func (s *Stack) callComponent(ctx context.Context, name, verb string) error {
	if !slices.Contains(s.state.Plan.Components, name) {
		return fmt.Errorf("this stack has no component %q: have %s", name, strings.Join(s.state.Plan.Components, ", "))
	}
	return s.state.post(ctx, "/components/"+name+"/"+verb)
}

// post calls the supervisor's HTTP API.
func (s State) post(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Control+path, nil)
	if err != nil {
		return fmt.Errorf("call the supervisor: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+s.Token)
	response, err := component.LoopbackClient.Do(request)
	if err != nil {
		return fmt.Errorf("call the supervisor: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read the answer of the supervisor: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}

// Dir returns the stack's folder.
func (s *Stack) Dir() string { return s.state.Plan.Dir }

// Kubeconfig returns the path of the kubeconfig of an identity: Admin, Test, WorkerIdentity, …. The file exists after
// the first start of a stack that has an API server.
func (s *Stack) Kubeconfig(identity string) string { return s.state.Plan.Layout().Kubeconfig(identity) }

// IdentityKubeconfig returns the path that Kubeconfig returns, or an error if the stack has no such identity.
func (s *Stack) IdentityKubeconfig(identity string) (string, error) {
	if !slices.Contains(component.Identities(), identity) {
		return "", fmt.Errorf("no identity %q: have %s", identity, strings.Join(component.Identities(), ", "))
	}
	return s.Kubeconfig(identity), nil
}

// TemporalAddress returns host and port of Temporal's frontend; its namespace is TemporalNamespace.
func (s *Stack) TemporalAddress() string {
	return component.Address(s.state.Plan.Ports[component.Temporal])
}

// TemporalOptions returns the options of a client of the stack's Temporal, without a logger.
func (s *Stack) TemporalOptions() (client.Options, error) { return s.state.Plan.TemporalOptions() }

// Layout returns the folder of the stack.
func (s *Stack) Layout() component.Layout { return s.state.Plan.Layout() }

// UIAddress returns the URL of Temporal's UI.
func (s *Stack) UIAddress() string { return s.state.Plan.TemporalUI() }

// CloudAddress returns the URL of virtualcloud.
func (s *Stack) CloudAddress() string { return s.state.Plan.Cloud() }

// APIServer returns the URL of the API server.
func (s *Stack) APIServer() string { return s.state.Plan.APIServer() }

// MetricsAddress returns the URL at which a worker or bridge serves /metrics and /readyz, or at which an extra answers.
func (s *Stack) MetricsAddress(name string) string {
	return "http://" + component.Address(s.state.Plan.Ports[name])
}

// LogPath returns the file that a component's output goes to, across restarts.
func (s *Stack) LogPath(name string) string { return s.state.Plan.Layout().Log(name) }

// AuditLog returns the file in which the API server records the requests of our own identities, one line of JSON each.
func (s *Stack) AuditLog() string { return s.state.Plan.Layout().AuditLog() }

// Kubectl runs kubectl as the admin and returns its output. The error contains its messages.
func (s *Stack) Kubectl(ctx context.Context, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, s.state.Plan.Layout().Kubectl(), arguments...)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		return out, fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}

// KubectlPath returns a script that runs kubectl with the admin's kubeconfig.
func (s *Stack) KubectlPath() string { return s.state.Plan.Layout().Kubectl() }
