package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"millwright/devstack/component"
)

// joinRunningStack waits until a stack that another process started is ready, and restarts components that have ended.
func joinRunningStack(ctx context.Context, o Options) (*Stack, error) {
	s, err := reportStackStart(ctx, o, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range o.Components {
		if !slices.Contains(s.state.Plan.Components, name) {
			return nil, fmt.Errorf("the stack in %s runs without %s: stop it first", o.Dir, name)
		}
	}
	status, err := s.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range status {
		if c.State.IsReadyOrDone() || c.State == StatePaused {
			continue
		}
		_, _ = fmt.Fprintf(o.Output, "starting %s again (%s %s)\n", c.Name, c.State, c.Error)
		if err := s.StartComponent(ctx, c.Name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// reportStackStart prints a line for each component that becomes ready, and returns when the whole stack is ready.
func reportStackStart(ctx context.Context, o Options, ended <-chan error) (*Stack, error) {
	ticker := time.NewTicker(component.ProbeInterval)
	defer ticker.Stop()
	told := map[string]bool{}
	deadline := time.Now().Add(o.StartTimeout + terminationGracePeriod) // the supervisor's own timeout ends earlier
	for {
		state, live, err := readLiveState(o.Dir)
		if err != nil {
			return nil, err
		}
		if live {
			reportReadyComponents(o, state, told)
		}
		switch {
		case live && state.Phase == PhaseReady:
			return &Stack{state}, nil
		case !live && ended == nil && isStackUnlocked(o.Dir):
			return nil, supervisorEndError(o.Dir, ErrNotRunning)
		case time.Now().After(deadline):
			return nil, fmt.Errorf("the stack in %s is not ready after %s", o.Dir, o.StartTimeout+terminationGracePeriod)
		}
		select {
		case err := <-ended:
			return nil, supervisorEndError(o.Dir, err)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}

// isStackUnlocked reports whether no process holds the stack's lock. If the lock is free, no process runs, starts or
// stops the stack.
func isStackUnlocked(dir string) bool {
	lock, err := component.TryLockFile(component.StackFolder(dir).LockFile())
	if err != nil {
		return false
	}
	_ = lock.Close()
	return true
}

// reportReadyComponents prints the components that became ready since the last call.
func reportReadyComponents(o Options, state State, told map[string]bool) {
	for _, c := range state.Components {
		if c.State.IsReadyOrDone() && !told[c.Name] {
			told[c.Name] = true
			pid := "-"
			if c.Process.PID != 0 {
				pid = strconv.Itoa(c.Process.PID)
			}
			_, _ = fmt.Fprintf(o.Output, "  %-24s %-6s pid %-8s %5.1f s\n", c.Name, c.State, pid, c.StartDuration.Seconds())
		}
	}
}

// supervisorEndError returns the error of a supervisor that ended before the stack was ready.
func supervisorEndError(dir string, err error) error {
	state, readErr := readState(dir)
	if readErr == nil && state.Phase == PhaseFailed {
		return errors.New(state.Error)
	}
	if err == nil {
		return errors.New("the stack was stopped before it was ready")
	}
	log := component.StackFolder(dir).LogFile(supervisorLogName)
	return fmt.Errorf(
		"the supervisor ended before the stack was ready (%w); its log %s ends with:\n%s",
		err,
		log,
		logTail(log),
	)
}
