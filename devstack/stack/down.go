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

// downTimeout is the timeout of an orderly end of the whole stack. After downTimeout, Down kills the supervisor, and
// the kernel then kills all components. Each component also has its own grace period.
const downTimeout = 30 * time.Second

// Down stops the stack as the function Down does.
func (s *Stack) Down(ctx context.Context) error { return Down(ctx, s.Dir()) }

// Down stops the stack in a folder and returns when all its processes have ended. The stack may be running, still
// starting, or without a supervisor after a kill. Down keeps data and logs. If there is no stack, Down does nothing.
func Down(ctx context.Context, dir string) error {
	patience := time.Now().Add(downTimeout)
	ticker := time.NewTicker(component.ProbeInterval)
	defer ticker.Stop()
	for told := false; ; {
		lock, err := component.TryLockFile(component.StackFolder(dir).LockFile())
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the folder never had a stack
		}
		if err == nil { // no supervisor runs, and this process' lock prevents the start of a supervisor
			return errors.Join(killLeftoverProcesses(ctx, dir), lock.Close())
		}
		if !errors.Is(err, component.ErrLocked) {
			return err
		}
		state, live, err := readLiveState(dir)
		switch {
		case err != nil:
			return err
		case live && time.Now().After(patience):
			if err := killProcess(ctx, state.Supervisor); err != nil {
				return err
			}
		case live && !told:
			told = state.postToSupervisor(ctx, "/stop") == nil // after an error, the next round sends the request again
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop the stack in %s: %w", dir, ctx.Err())
		case <-ticker.C:
		}
	}
}

// killLeftoverProcesses kills the processes that a dead supervisor left (normally there are none), and removes the
// supervisor's state file. The caller must have locked the stack.
func killLeftoverProcesses(ctx context.Context, dir string) error {
	state, err := readState(dir)
	if errors.Is(err, fs.ErrNotExist) { // the supervisor ended in order and removed the file
		return nil
	}
	if err == nil { // an unreadable state names no processes
		for _, p := range state.processes() {
			if err := killProcess(ctx, p); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(component.StackFolder(dir).StateFile()); err != nil {
		return fmt.Errorf("remove stale state: %w", err)
	}
	return nil
}

// killProcess kills a process and waits until the process has ended. If another process has the PID now, killProcess
// does nothing.
func killProcess(ctx context.Context, p Process) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for p.isAlive() {
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
