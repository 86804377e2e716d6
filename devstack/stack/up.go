package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"millwright/devstack/attached"
	"millwright/devstack/component"
)

// Up starts a stack and returns when all components are ready. Up builds missing binaries. If the stack runs already,
// Up only starts components that have ended. If ctx ends during the start, Up stops all components that Up has started.
func Up(ctx context.Context, o Options) (*Stack, error) {
	if err := checkPlatform(); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := Open(o.Dir); err == nil {
		return joinRunningStack(ctx, o)
	}
	plan, supervisor, err := buildBinariesAndPlan(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the stack's folder: %w", err)
	}
	lock, err := component.TryLockFile(component.StackFolder(o.Dir).LockFile())
	if errors.Is(err, component.ErrLocked) { // another process was the first to start the stack
		return joinRunningStack(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	ended, err := reservePortsAndLaunchSupervisor(ctx, o, plan, supervisor, lock)
	if err != nil {
		return nil, err
	}
	s, err := reportStackStart(ctx, o, ended)
	if err == nil {
		return s, nil
	}
	if _, open := Open(o.Dir); open == nil || ctx.Err() != nil { // the stack runs, or ctx ended during the start
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*downTimeout)
		defer cancel()
		err = errors.Join(fmt.Errorf("start the stack: %w", err), Down(down, o.Dir))
	}
	return nil, err
}

// reservePortsAndLaunchSupervisor starts a supervisor after killing leftover processes. The supervisor inherits the
// stack's lock and the lock of its ports. This process closes its copies of the locks when
// reservePortsAndLaunchSupervisor returns, so that the locks are released when the supervisor ends.
func reservePortsAndLaunchSupervisor(
	ctx context.Context,
	o Options,
	plan component.Plan,
	supervisor string,
	lock *os.File,
) (<-chan error, error) {
	defer func() { _ = lock.Close() }()
	if err := killLeftoverProcesses(ctx, o.Dir); err != nil {
		return nil, err
	}
	locks := []*os.File{lock}
	if o.UseFreePorts {
		ports, held, err := component.ReserveFreePorts(ctx, plan.Components, plan.ExtraComponents...)
		if err != nil {
			return nil, err
		}
		defer func() { _ = held.Close() }()
		plan.Ports, locks = ports, append(locks, held)
	} else {
		ports, err := component.StandardPorts(plan.Components, plan.ExtraComponents...)
		if err != nil {
			return nil, err
		}
		plan.Ports = ports
	}
	if o.CompletePlan != nil {
		held, err := o.CompletePlan(ctx, &plan)
		for _, file := range held {
			defer func() { _ = file.Close() }()
		}
		if err != nil {
			return nil, err
		}
		locks = append(locks, held...)
	}
	return launchSupervisor(supervisor, plan, locks, o.EndsWithThisProcess)
}

// launchSupervisor starts the supervisor in its own session, so that neither a terminal's Ctrl-C nor the end of this
// process reaches the supervisor. If withParent is true, the supervisor ends with this process. The returned channel
// receives the result of Wait when the supervisor ends.
func launchSupervisor(binary string, plan component.Plan, locks []*os.File, withParent bool) (<-chan error, error) {
	text, err := json.Marshal(supervisorInput{Plan: plan, LockCount: len(locks)})
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	l := plan.StackFolder()
	if err := os.MkdirAll(filepath.Dir(l.LogFile(supervisorLogName)), 0o700); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	log, err := os.OpenFile(l.LogFile(supervisorLogName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	defer func() { _ = log.Close() }()
	_, _ = fmt.Fprintf(log, "=== %s supervisor starts\n", time.Now().Format(time.RFC3339))
	command := exec.Command(binary, "run", "--dir", plan.Dir) // --dir shows the folder in lists of processes
	command.Dir = plan.Dir
	command.Stdin = strings.NewReader(string(text))
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = locks
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	start := (*exec.Cmd).Start
	if withParent {
		start = attached.StartCommand
	}
	if err := start(command); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	return ended, nil
}

// supervisorLogName is the name of the supervisor's own log.
const supervisorLogName = "supervisor"
