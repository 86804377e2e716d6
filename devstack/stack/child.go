package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"millwright/devstack/attached"
	"millwright/devstack/component"

	"golang.org/x/sync/errgroup"
)

// terminationGracePeriod is the time from SIGTERM to SIGKILL. The grace period is short, because no component needs
// more, and data survive SIGKILL.
const terminationGracePeriod = 3 * time.Second

// childProcess is one process of a component, a child of the supervisor.
type childProcess struct {
	name         string
	process      Process
	osProcess    *os.Process
	startedAt    time.Time
	done         chan struct{} // closed when Wait has returned
	exitReason   string        // how the process ended; valid after done is closed
	hasSucceeded bool          // whether the exit code was 0; valid after done is closed
}

// startComponent starts a component's process unless the process runs, and waits until the component is ready. The
// component bootstrap is ready when its process has ended. If the process ends before the component is ready,
// startComponent returns an error at once.
func (s *supervisor) startComponent(ctx context.Context, name string) error {
	if name == component.Bootstrap {
		if err := s.bootstrapAPIServer(ctx); err != nil {
			return err
		}
	}
	if name == component.Bootstrap && !slices.Contains(s.plan.Components, component.Temporal) {
		s.changeComponentStatus(name, func(status *ComponentStatus) { status.State = StateDone })
		return nil
	}
	c, err := s.ensureProcess(name)
	if err != nil {
		s.changeComponentStatus(name, func(status *ComponentStatus) { status.State, status.Error = StateFailed, err.Error() })
		return err
	}
	if err := s.awaitReadyComponent(ctx, c); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	return nil
}

// bootstrapAPIServer applies CRDs, roles and FlowSchemas, which is the part of bootstrap that needs no process.
// bootstrapAPIServer records a failure in the component's status.
func (s *supervisor) bootstrapAPIServer(ctx context.Context) error {
	s.changeComponentStatus(component.Bootstrap, func(status *ComponentStatus) { status.State = StateStarting })
	err := applyBootstrapObjects(ctx, s.plan)
	if err != nil {
		err = fmt.Errorf("bootstrap: %w", err)
		s.changeComponentStatus(
			component.Bootstrap,
			func(status *ComponentStatus) { status.State, status.Error = StateFailed, err.Error() },
		)
	}
	return err
}

// ensureProcess returns the running process of a component, and starts a process if none runs.
func (s *supervisor) ensureProcess(name string) (*childProcess, error) {
	s.launchMu.Lock()
	defer s.launchMu.Unlock()
	if s.isStopping {
		return nil, fmt.Errorf("start %s: %w", name, errStackStopped)
	}
	if c := s.findChild(name); c != nil {
		return c, nil
	}
	return s.startProcess(name)
}

// apiServerGCVariables are environment variables that make the API server collect garbage less often, until its heap is
// large. In a rollout of 100 machines with Go's defaults, garbage collection took a sixth of the API server's CPU time.
var apiServerGCVariables = []string{"GOGC=400", "GOMEMLIMIT=2GiB"}

func (s *supervisor) startProcess(name string) (*childProcess, error) {
	command := exec.Command(s.plan.BinaryPaths[name], s.plan.ComponentArguments(name)...)
	command.Dir = s.plan.Dir
	// The user's TEMPORAL_ variables and configuration file are for another Temporal server, so components must not
	// read them.
	command.Env = slices.DeleteFunc(
		os.Environ(),
		func(variable string) bool { return strings.HasPrefix(variable, "TEMPORAL_") },
	)
	command.Env = append(command.Env, "TEMPORAL_CONFIG_FILE="+os.DevNull)
	command.Env = append(
		command.Env,
		"KWOK_WORKDIR="+s.plan.StackFolder().Path(component.Kwok),
	) // otherwise KWOK reads ~/.kwok
	if name == component.APIServer && os.Getenv("GOGC")+os.Getenv("GOMEMLIMIT") == "" {
		command.Env = append(command.Env, apiServerGCVariables...)
	}
	command.Env = slices.Concat(command.Env, s.plan.Environment(name), s.plan.Env[name])
	log, err := os.OpenFile(s.plan.StackFolder().LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer func() { _ = log.Close() }()
	_, _ = fmt.Fprintf(
		log,
		"=== %s devstack starts %s\n",
		time.Now().Format(time.RFC3339),
		strings.Join(command.Args, " "),
	)
	command.Stdout, command.Stderr = log, log

	c := &childProcess{name: name, startedAt: time.Now(), done: make(chan struct{})}
	if err := attached.StartCommand(command); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.osProcess = command.Process
	if c.process, err = ProcessWithPID(command.Process.Pid); err != nil {
		return nil, errors.Join(err, command.Process.Kill(), command.Wait())
	}
	slog.Info("started", "component", name, "pid", c.process.PID)
	s.changeComponentStatus(name, func(status *ComponentStatus) {
		s.children[name] = c
		*status = ComponentStatus{
			Name:           name,
			State:          StateStarting,
			Process:        c.process,
			Port:           status.Port,
			StateChangedAt: c.startedAt,
		}
	})
	go s.awaitAndRecordProcessEnd(c, command)
	return c, nil
}

// awaitAndRecordProcessEnd waits until a process has ended, and records the end in the component's status.
func (s *supervisor) awaitAndRecordProcessEnd(c *childProcess, command *exec.Cmd) {
	c.hasSucceeded = command.Wait() == nil
	c.exitReason = command.ProcessState.String()
	slog.Info("ended", "component", c.name, "pid", c.process.PID, "how", c.exitReason)
	s.changeComponentStatus(c.name, func(status *ComponentStatus) {
		delete(s.children, c.name)
		status.Process = Process{}
		if c.name == component.Bootstrap && c.hasSucceeded {
			status.State, status.StartDuration = StateDone, time.Since(c.startedAt)
			return
		}
		status.State, status.Error = StateExited, c.exitReason
	})
	close(c.done)
}

// awaitReadyComponent waits until the component is ready. If the process or ctx ends earlier, awaitReadyComponent
// returns the reason.
func (s *supervisor) awaitReadyComponent(ctx context.Context, c *childProcess) error {
	ticker := time.NewTicker(component.ProbeInterval)
	defer ticker.Stop()
	for {
		var notReady error
		if c.name != component.Bootstrap {
			if notReady = s.plan.ProbeComponent(ctx, c.name); notReady == nil {
				s.recordReadyState(c)
				return nil
			}
		}
		select {
		case <-c.done:
			if c.name == component.Bootstrap && c.hasSucceeded {
				return nil
			}
			log := s.plan.StackFolder().LogFile(c.name)
			return fmt.Errorf("it ended before it was ready (%s); its log %s ends with:\n%s", c.exitReason, log, logTail(log))
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), notReady)
		case <-ticker.C:
		}
	}
}

// recordReadyState sets the component's state to ready, unless the process has ended in the meantime.
func (s *supervisor) recordReadyState(c *childProcess) {
	s.changeComponentStatus(c.name, func(status *ComponentStatus) {
		if status.State == StateStarting && status.Process == c.process {
			status.State, status.StartDuration = StateReady, time.Since(c.startedAt)
		}
	})
}

// killComponent sends SIGKILL to a component's process and returns when the process has ended. If the component does
// not run, killComponent does nothing.
func (s *supervisor) killComponent(name string) {
	if c := s.findChild(name); c != nil {
		_ = c.osProcess.Signal(syscall.SIGKILL)
		<-c.done
	}
}

// terminateComponent sends SIGTERM to a component's process, and SIGKILL after terminationGracePeriod.
// terminateComponent also sends SIGCONT, because a paused process does not handle SIGTERM.
func (s *supervisor) terminateComponent(name string) {
	c := s.findChild(name)
	if c == nil {
		return
	}
	_ = c.osProcess.Signal(syscall.SIGTERM)
	_ = c.osProcess.Signal(syscall.SIGCONT)
	select {
	case <-c.done:
	case <-time.After(terminationGracePeriod):
		_ = c.osProcess.Signal(syscall.SIGKILL)
		<-c.done
	}
}

func (s *supervisor) findChild(name string) *childProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.children[name]
}

// stopAllProcesses ends all components in parallel. A component ends only after all components that need it have ended.
func (s *supervisor) stopAllProcesses() {
	stopped := map[string]chan struct{}{}
	for _, name := range s.plan.Components {
		stopped[name] = make(chan struct{})
	}
	var group errgroup.Group
	for _, name := range s.plan.Components {
		group.Go(func() error {
			defer close(stopped[name])
			for _, other := range component.All(s.plan.ExtraComponents...) {
				for _, need := range other.AwaitedComponents(s.plan.Components) {
					if need == name && stopped[other.Name] != nil {
						<-stopped[other.Name]
					}
				}
			}
			s.terminateComponent(name)
			return nil
		})
	}
	_ = group.Wait() // no function returns an error, because terminateComponent finally sends SIGKILL
}
