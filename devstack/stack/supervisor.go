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
	Plan  component.Plan `json:"plan"`
	Files int            `json:"files"` // inherited locks: file descriptors from 3 on
}

// supervisor is the parent of all components.
type supervisor struct {
	plan component.Plan
	stop context.CancelCauseFunc // starts the shutdown

	launching sync.Mutex // held while a process is being started
	stopping  bool       // if true, no process is started any more; guarded by launching

	mu      sync.Mutex
	state   State
	running map[string]*childProcess // running processes, by name of the component
}

// errStopped is the cause of an orderly end.
var errStopped = errors.New("told to stop")

// Supervise runs a stack until it is stopped by a signal or through its HTTP API. It is the hidden command "run": Up
// starts it and writes the plan to its standard input. It returns an error if a component does not become ready;
// everything is stopped by then.
func Supervise(ctx context.Context, input io.Reader) error {
	var given supervisorInput
	if err := json.NewDecoder(input).Decode(&given); err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	for fd := 3; fd < 3+given.Files; fd++ {
		syscall.CloseOnExec(fd) // children must not inherit the locks
	}
	ctx, unregister := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer unregister()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := &supervisor{plan: given.Plan, stop: stop, running: map[string]*childProcess{}}
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
	go s.serve(listener)

	err = s.startAll(ctx)
	if err == nil {
		slog.Info("stack is ready")
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		err = nil // the supervisor was told to stop, perhaps during the start
	}
	s.finish(err)
	return err
}

// writeFirstState writes the first state, so that other processes find this supervisor.
func (s *supervisor) writeFirstState(control string) error {
	self, err := processOf(os.Getpid())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = State{
		Plan: s.plan, Supervisor: self, Control: control, Token: rand.Text(), Phase: PhaseStarting,
		Started: time.Now(), Versions: component.Versions(s.plan),
	}
	for _, name := range s.plan.Components {
		status := ComponentStatus{Name: name, State: StateWaiting, Port: s.plan.Ports[name]}
		s.state.Components = append(s.state.Components, status)
	}
	return s.state.write()
}

// startAll starts all components, each as soon as those that it needs are ready, and returns when all are ready.
func (s *supervisor) startAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(
		ctx,
		s.plan.Timeout,
		fmt.Errorf("the stack was not ready within %s", s.plan.Timeout),
	)
	defer cancel()
	if err := component.Prepare(ctx, s.plan); err != nil {
		return err
	}
	ready := map[string]chan struct{}{}
	for _, name := range s.plan.Components {
		ready[name] = make(chan struct{})
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range s.plan.Components {
		c, err := component.Named(name, s.plan.Extras...)
		if err != nil {
			return err
		}
		group.Go(func() error {
			for _, need := range c.WaitsFor(s.plan.Components) {
				select {
				case <-ready[need]:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			if err := s.start(ctx, name); err != nil {
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
		state.Took = time.Since(state.Started)
	})
	return nil
}

// finish stops all components in reverse order. After an orderly end it removes the state file; after a failure the
// file stays and says why.
func (s *supervisor) finish(failure error) {
	s.launching.Lock()
	s.stopping = true
	s.launching.Unlock()
	s.changeState(func(state *State) { state.Phase = PhaseStopping })
	s.stopAll()
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
	_ = os.Remove(s.plan.Layout().State())
}

// changeState edits the state and writes it to stack.json. A failed write is only logged: the components matter more.
func (s *supervisor) changeState(edit func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(&s.state)
	if err := s.state.write(); err != nil {
		slog.Error("write state", "error", err)
	}
}

// changeComponent edits one component's status and writes the state.
func (s *supervisor) changeComponent(name string, edit func(*ComponentStatus)) {
	s.changeState(func(state *State) {
		i := slices.IndexFunc(state.Components, func(c ComponentStatus) bool { return c.Name == name })
		before := state.Components[i].State
		edit(&state.Components[i])
		if state.Components[i].State != before {
			state.Components[i].Since = time.Now()
		}
	})
}
