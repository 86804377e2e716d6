package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"millwright/devstack/component"
)

// downTimeout is the maximum time of an orderly end of the stack; each component has its own grace period. After this
// time the supervisor is killed, and all components with it.
const downTimeout = 30 * time.Second

// Down stops the stack; see the function Down.
func (s *Stack) Down(ctx context.Context) error { return Down(ctx, s.Dir()) }

// Down stops what runs in a folder and returns when none of its processes is left: a complete stack, one that is still
// starting, or what a killed supervisor left. Data and logs are kept. Without a stack it does nothing.
func Down(ctx context.Context, dir string) error {
	patience := time.Now().Add(downTimeout)
	ticker := time.NewTicker(component.ProbeEvery)
	defer ticker.Stop()
	for told := false; ; {
		lock, err := component.TryLock(component.Layout(dir).Lock())
		if errors.Is(err, fs.ErrNotExist) {
			return nil // there was never a stack
		}
		if err == nil { // no supervisor runs, and none can start while this process holds the lock
			return errors.Join(endLeftovers(ctx, dir), lock.Close())
		}
		if !errors.Is(err, component.ErrLocked) {
			return err
		}
		state, live, err := liveState(dir)
		switch {
		case err != nil:
			return err
		case live && time.Now().After(patience):
			if err := killProcess(ctx, state.Supervisor); err != nil {
				return err
			}
		case live && !told:
			told = state.post(ctx, "/stop") == nil // if this fails, the loop tries again
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop the stack in %s: %w", dir, ctx.Err())
		case <-ticker.C:
		}
	}
}

// endLeftovers ends the processes that a dead supervisor left behind, normally none, and removes its state file. The
// caller holds the stack's lock.
func endLeftovers(ctx context.Context, dir string) error {
	state, err := readState(dir)
	if errors.Is(err, fs.ErrNotExist) { // the supervisor ended in order, and removed the file
		return nil
	}
	if err == nil { // an unreadable state names no processes
		for _, p := range state.processes() {
			if err := killProcess(ctx, p); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(component.Layout(dir).State()); err != nil {
		return fmt.Errorf("remove stale state: %w", err)
	}
	return nil
}

// killProcess kills a process if it is still the same one, and waits until it is gone.
func killProcess(ctx context.Context, p Process) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for p.alive() {
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d: %w", p.PID, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kill process %d: %w", p.PID, ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}
