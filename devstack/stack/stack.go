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

// ErrNotRunning means that no supervisor runs in the folder. Processes of a crashed supervisor may remain.
var ErrNotRunning = errors.New("no stack is running")

// Stack is a handle on a running stack. A Stack has no connection and no process, and need not be closed. Several
// handles may exist, in several processes. All methods are safe for concurrent use.
type Stack struct{ state State }

// Open returns the stack that runs in a folder, or ErrNotRunning.
func Open(dir string) (*Stack, error) {
	state, live, err := readLiveState(dir)
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

// State returns the current content of the stack's state file.
func (s *Stack) State() (State, error) { return readState(s.Dir()) }

// Status returns the status of all components in starting order, with CPU time and memory.
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
		status[i].CPUTime, status[i].MemoryBytes = status[i].Process.ResourceUsage()
		if status[i].State.IsReadyOrDone() && status[i].Process.isPaused() {
			status[i].State = StatePaused
		}
	}
	return status, nil
}

// StartComponent starts a component and returns when the component is ready. If the component is ready already,
// StartComponent does nothing.
func (s *Stack) StartComponent(ctx context.Context, name string) error {
	return s.postComponentAction(ctx, name, "start")
}

// StopComponent sends SIGTERM to a component, SIGKILL after a grace period, and returns when the process has ended. If
// the component does not run, StopComponent does nothing.
func (s *Stack) StopComponent(ctx context.Context, name string) error {
	return s.postComponentAction(ctx, name, "stop")
}

// KillComponent sends SIGKILL to a component and returns when the process has ended. If the component does not run,
// KillComponent does nothing.
func (s *Stack) KillComponent(ctx context.Context, name string) error {
	return s.postComponentAction(ctx, name, "kill")
}

// RestartComponent stops a component as StopComponent does, and starts the component as StartComponent does.
func (s *Stack) RestartComponent(ctx context.Context, name string) error {
	if err := s.StopComponent(ctx, name); err != nil {
		return err
	}
	return s.StartComponent(ctx, name)
}

// SignalComponent sends a signal to a component: SIGSTOP pauses the component, SIGCONT continues it. If the component
// does not run, SignalComponent returns an error.
func (s *Stack) SignalComponent(ctx context.Context, name string, signal syscall.Signal) error {
	return s.postComponentAction(ctx, name, "signal/"+strconv.Itoa(int(signal)))
}

func (s *Stack) postComponentAction(ctx context.Context, name, verb string) error {
	if !slices.Contains(s.state.Plan.Components, name) {
		return fmt.Errorf("this stack has no component %q: have %s", name, strings.Join(s.state.Plan.Components, ", "))
	}
	return s.state.postToSupervisor(ctx, "/components/"+name+"/"+verb)
}

// postToSupervisor sends a request to the supervisor's HTTP API.
func (s State) postToSupervisor(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.ControlAddress+path, nil)
	if err != nil {
		return fmt.Errorf("call the supervisor: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+s.ControlToken)
	response, err := component.LoopbackHTTPClient.Do(request)
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

// KubeconfigPath returns the path of an identity's kubeconfig: Admin, Test, WorkerIdentity, …. The file exists after
// the first start of a stack that has an API server.
func (s *Stack) KubeconfigPath(identity string) string {
	return s.state.Plan.StackFolder().KubeconfigFile(identity)
}

// CheckedKubeconfigPath returns the same path as KubeconfigPath, or an error if the stack has no such identity.
func (s *Stack) CheckedKubeconfigPath(identity string) (string, error) {
	if !slices.Contains(component.IdentityNames(), identity) {
		return "", fmt.Errorf("no identity %q: have %s", identity, strings.Join(component.IdentityNames(), ", "))
	}
	return s.KubeconfigPath(identity), nil
}

// TemporalAddress returns host:port of Temporal's frontend. The namespace is component.TemporalNamespace.
func (s *Stack) TemporalAddress() string {
	return component.Address(s.state.Plan.Ports[component.Temporal])
}

// TemporalClientOptions returns the options of a client of the stack's Temporal, without a logger.
func (s *Stack) TemporalClientOptions() (client.Options, error) {
	return s.state.Plan.TemporalClientOptions()
}

// StackFolder returns the folder of the stack.
func (s *Stack) StackFolder() component.StackFolder { return s.state.Plan.StackFolder() }

// TemporalUIURL returns the URL of Temporal's UI.
func (s *Stack) TemporalUIURL() string { return s.state.Plan.TemporalUIURL() }

// VirtualCloudURL returns the URL of virtualcloud.
func (s *Stack) VirtualCloudURL() string { return s.state.Plan.VirtualCloudURL() }

// APIServerURL returns the URL of the API server.
func (s *Stack) APIServerURL() string { return s.state.Plan.APIServerURL() }

// MetricsURL returns the URL at which a worker or bridge serves /metrics and /readyz, or the URL of an extra
// component.
func (s *Stack) MetricsURL(name string) string {
	return "http://" + component.Address(s.state.Plan.Ports[name])
}

// LogPath returns the file with a component's output; restarts append to this file.
func (s *Stack) LogPath(name string) string { return s.state.Plan.StackFolder().LogFile(name) }

// AuditLogPath returns the path of the API server's audit log, with one line of JSON for each request of the identities
// in the audit policy.
func (s *Stack) AuditLogPath() string { return s.state.Plan.StackFolder().AuditLogFile() }

// RunKubectl runs kubectl as the admin and returns kubectl's output. The error contains kubectl's messages.
func (s *Stack) RunKubectl(ctx context.Context, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, s.state.Plan.StackFolder().KubectlPath(), arguments...)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		return out, fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}

// KubectlPath returns the path of a script that runs kubectl with the admin's kubeconfig.
func (s *Stack) KubectlPath() string { return s.state.Plan.StackFolder().KubectlPath() }
