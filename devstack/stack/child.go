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

// terminationGrace is how long a component may take to end after SIGTERM. It is short: no component needs more, and
// data survive SIGKILL.
const terminationGrace = 3 * time.Second

// childProcess is one process of a component.
type childProcess struct {
	name       string
	process    Process
	handle     *os.Process
	began      time.Time
	ended      chan struct{} // closed when the process has been waited for
	exitReason string        // how the process ended; valid when ended is closed
	succeeded  bool          // the process ended without an error; valid when ended is closed
}

// start makes a component ready: it starts a process unless one runs, and waits until it is ready, or, for bootstrap,
// until it has ended. It returns an error as soon as the process ends by itself.
func (s *supervisor) start(ctx context.Context, name string) error {
	if name == component.Bootstrap {
		if err := s.applyProduct(ctx); err != nil {
			return err
		}
	}
	if name == component.Bootstrap && !slices.Contains(s.plan.Components, component.Temporal) {
		s.changeComponent(name, func(status *ComponentStatus) { status.State = StateDone })
		return nil
	}
	c, err := s.launch(name)
	if err != nil {
		s.changeComponent(name, func(status *ComponentStatus) { status.State, status.Error = StateFailed, err.Error() })
		return err
	}
	if err := s.awaitReady(ctx, c); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	return nil
}

// applyProduct does the part of the component bootstrap that needs no process: it applies CRDs, roles and flow schemas.
func (s *supervisor) applyProduct(ctx context.Context) error {
	s.changeComponent(component.Bootstrap, func(status *ComponentStatus) { status.State = StateStarting })
	err := applyProduct(ctx, s.plan)
	if err != nil {
		err = fmt.Errorf("bootstrap: %w", err)
		s.changeComponent(
			component.Bootstrap,
			func(status *ComponentStatus) { status.State, status.Error = StateFailed, err.Error() },
		)
	}
	return err
}

// launch returns the running process of a component; it starts one if there is none.
func (s *supervisor) launch(name string) (*childProcess, error) {
	s.launching.Lock()
	defer s.launching.Unlock()
	if s.stopping {
		return nil, fmt.Errorf("start %s: %w", name, errStopped)
	}
	if c := s.childNamed(name); c != nil {
		return c, nil
	}
	return s.spawn(name)
}

// apiServerCollection makes the API server run its garbage collector less often, until its heap is large. Measured in a
// rollout of a hundred machines: with Go's default it took a sixth of the API server's time.
var apiServerCollection = []string{"GOGC=400", "GOMEMLIMIT=2GiB"}

func (s *supervisor) spawn(name string) (*childProcess, error) {
	command := exec.Command(s.plan.Binaries[name], s.plan.Command(name)...)
	command.Dir = s.plan.Dir
	// The user's TEMPORAL_ variables and configuration file are for another Temporal: components must not read them.
	command.Env = slices.DeleteFunc(
		os.Environ(),
		func(variable string) bool { return strings.HasPrefix(variable, "TEMPORAL_") },
	)
	command.Env = append(command.Env, "TEMPORAL_CONFIG_FILE="+os.DevNull)
	command.Env = append(command.Env, "KWOK_WORKDIR="+s.plan.Layout().Path(component.Kwok)) // otherwise kwok reads ~/.kwok
	if name == component.APIServer && os.Getenv("GOGC")+os.Getenv("GOMEMLIMIT") == "" {
		command.Env = append(command.Env, apiServerCollection...)
	}
	command.Env = slices.Concat(command.Env, s.plan.Environment(name), s.plan.Env[name])
	log, err := os.OpenFile(s.plan.Layout().Log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
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

	c := &childProcess{name: name, began: time.Now(), ended: make(chan struct{})}
	if err := attached.Start(command); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.handle = command.Process
	if c.process, err = processOf(command.Process.Pid); err != nil {
		return nil, errors.Join(err, command.Process.Kill(), command.Wait())
	}
	slog.Info("started", "component", name, "pid", c.process.PID)
	s.changeComponent(name, func(status *ComponentStatus) {
		s.running[name] = c
		*status = ComponentStatus{Name: name, State: StateStarting, Process: c.process, Port: status.Port, Since: c.began}
	})
	go s.recordEnd(c, command)
	return c, nil
}

// recordEnd waits for the end of a process and records it.
func (s *supervisor) recordEnd(c *childProcess, command *exec.Cmd) {
	c.succeeded = command.Wait() == nil
	c.exitReason = command.ProcessState.String()
	slog.Info("ended", "component", c.name, "pid", c.process.PID, "how", c.exitReason)
	s.changeComponent(c.name, func(status *ComponentStatus) {
		delete(s.running, c.name)
		status.Process = Process{}
		if c.name == component.Bootstrap && c.succeeded {
			status.State, status.Took = StateDone, time.Since(c.began)
			return
		}
		status.State, status.Error = StateExited, c.exitReason
	})
	close(c.ended)
}

// awaitReady waits until the component is ready, or returns why it cannot be.
func (s *supervisor) awaitReady(ctx context.Context, c *childProcess) error {
	ticker := time.NewTicker(component.ProbeEvery)
	defer ticker.Stop()
	for {
		var notReady error
		if c.name != component.Bootstrap {
			if notReady = s.plan.Probe(ctx, c.name); notReady == nil {
				s.becomeReady(c)
				return nil
			}
		}
		select {
		case <-c.ended:
			if c.name == component.Bootstrap && c.succeeded {
				return nil
			}
			log := s.plan.Layout().Log(c.name)
			return fmt.Errorf("it ended before it was ready (%s); its log %s ends with:\n%s", c.exitReason, log, logTail(log))
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), notReady)
		case <-ticker.C:
		}
	}
}

// becomeReady records that a process is ready, unless it ended meanwhile.
func (s *supervisor) becomeReady(c *childProcess) {
	s.changeComponent(c.name, func(status *ComponentStatus) {
		if status.State == StateStarting && status.Process == c.process {
			status.State, status.Took = StateReady, time.Since(c.began)
		}
	})
}

// kill sends SIGKILL to a component and returns when it is gone. It does nothing if the component does not run.
func (s *supervisor) kill(name string) {
	if c := s.childNamed(name); c != nil {
		_ = c.handle.Signal(syscall.SIGKILL)
		<-c.ended
	}
}

// terminate sends SIGTERM to a component, and SIGKILL if it takes too long to end. It continues a paused component,
// which could not receive SIGTERM.
func (s *supervisor) terminate(name string) {
	c := s.childNamed(name)
	if c == nil {
		return
	}
	_ = c.handle.Signal(syscall.SIGTERM)
	_ = c.handle.Signal(syscall.SIGCONT)
	select {
	case <-c.ended:
	case <-time.After(terminationGrace):
		_ = c.handle.Signal(syscall.SIGKILL)
		<-c.ended
	}
}

func (s *supervisor) childNamed(name string) *childProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[name]
}

// stopAll ends all components, each after those that need it.
func (s *supervisor) stopAll() {
	stopped := map[string]chan struct{}{}
	for _, name := range s.plan.Components {
		stopped[name] = make(chan struct{})
	}
	var group errgroup.Group
	for _, name := range s.plan.Components {
		group.Go(func() error {
			defer close(stopped[name])
			for _, other := range component.All(s.plan.Extras...) {
				for _, need := range other.WaitsFor(s.plan.Components) {
					if need == name && stopped[other.Name] != nil {
						<-stopped[other.Name]
					}
				}
			}
			s.terminate(name)
			return nil
		})
	}
	_ = group.Wait() // no function fails: a component that does not end is killed
}
