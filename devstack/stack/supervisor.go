package stack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"millwright/devstack/component"

	"golang.org/x/sync/errgroup"
)

// supervisorInput is what Up writes to the supervisor's standard input.
type supervisorInput struct {
	Plan      component.Plan `json:"plan"`
	LockCount int            `json:"files"` // number of inherited locks, which are the file descriptors from 3 on
}

// supervisor is the parent process of all components.
type supervisor struct {
	plan      component.Plan
	cancelRun context.CancelCauseFunc // starts the shutdown

	launchMu   sync.Mutex // locked during the start of a process
	isStopping bool       // true: no process may start any more; launchMu guards this field

	mu       sync.Mutex
	state    State
	children map[string]*childProcess // running processes, by component name
}

// errStackStopped is the cause of a shutdown by POST /stop, and the error of a component's start during a shutdown.
var errStackStopped = errors.New("told to stop")

// RunSupervisor runs a stack until a signal or POST /stop ends the stack. RunSupervisor implements the hidden command
// "run". Up starts this command and writes the plan to its standard input. If a component does not become ready,
// RunSupervisor stops all components and returns an error.
func RunSupervisor(ctx context.Context, input io.Reader) error {
	var given supervisorInput
	if err := json.NewDecoder(input).Decode(&given); err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	for fd := 3; fd < 3+given.LockCount; fd++ {
		syscall.CloseOnExec(fd) // children must not inherit the locks
	}
	ctx, unregister := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer unregister()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := &supervisor{plan: given.Plan, cancelRun: stop, children: map[string]*childProcess{}}
	return s.run(ctx)
}

func (s *supervisor) run(ctx context.Context) error {
	listener, err := net.Listen("tcp", component.Address(0))
	if err != nil {
		return fmt.Errorf("listen for control: %w", err)
	}
	if err := s.writeFirstState(listener.Addr().String()); err != nil {
		return err
	}
	go s.serveControlAPI(listener)

	err = s.startAllComponents(ctx)
	if err == nil {
		slog.Info("stack is ready")
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		err = nil // the shutdown may have begun during the start
	}
	s.shutDown(err)
	return err
}

// writeFirstState writes the first state, so that other processes find the supervisor.
func (s *supervisor) writeFirstState(control string) error {
	self, err := ProcessWithPID(os.Getpid())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = State{
		Plan: s.plan, Supervisor: self, ControlAddress: control, ControlToken: rand.Text(), Phase: PhaseStarting,
		StartedAt: time.Now(), Versions: component.VersionsByComponent(s.plan),
	}
	for _, name := range s.plan.Components {
		status := ComponentStatus{Name: name, State: StateWaiting, Port: s.plan.Ports[name]}
		s.state.Components = append(s.state.Components, status)
	}
	return s.state.writeFile()
}

// startAllComponents starts each component as soon as the components that it needs are ready, and returns when all
// components are ready.
func (s *supervisor) startAllComponents(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(
		ctx,
		s.plan.StartTimeout,
		fmt.Errorf("the stack was not ready within %s", s.plan.StartTimeout),
	)
	defer cancel()
	if err := component.WriteStackFiles(ctx, s.plan); err != nil {
		return err
	}
	ready := map[string]chan struct{}{}
	for _, name := range s.plan.Components {
		ready[name] = make(chan struct{})
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range s.plan.Components {
		c, err := component.FindByName(name, s.plan.ExtraComponents...)
		if err != nil {
			return err
		}
		group.Go(func() error {
			for _, need := range c.AwaitedComponents(s.plan.Components) {
				select {
				case <-ready[need]:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			if err := s.startComponent(ctx, name); err != nil {
				return err
			}
			close(ready[name])
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.changeState(func(state *State) {
		state.Phase = PhaseReady
		state.StartDuration = time.Since(state.StartedAt)
	})
	return nil
}

// shutDown stops all components in reverse order. After an orderly end, shutDown removes the state file; after a
// failure, the state file stays and contains the reason.
func (s *supervisor) shutDown(failure error) {
	s.launchMu.Lock()
	s.isStopping = true
	s.launchMu.Unlock()
	s.changeState(func(state *State) { state.Phase = PhaseStopping })
	s.stopAllProcesses()
	if failure != nil {
		slog.Error("stack failed", "error", failure)
		s.changeState(func(state *State) {
			state.Phase = PhaseFailed
			state.Error = failure.Error()
		})
		return
	}
	slog.Info("stack is stopped")
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = os.Remove(s.plan.StackFolder().StateFile())
}

// changeState edits the state and writes stack.json. A failed write is only logged, because the components must
// continue.
func (s *supervisor) changeState(edit func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(&s.state)
	if err := s.state.writeFile(); err != nil {
		slog.Error("write state", "error", err)
	}
}

// changeComponentStatus edits one component's status and writes stack.json.
func (s *supervisor) changeComponentStatus(name string, edit func(*ComponentStatus)) {
	s.changeState(func(state *State) {
		i := slices.IndexFunc(state.Components, func(c ComponentStatus) bool { return c.Name == name })
		before := state.Components[i].State
		edit(&state.Components[i])
		if state.Components[i].State != before {
			state.Components[i].StateChangedAt = time.Now()
		}
	})
}
