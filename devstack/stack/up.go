package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"millwright/devstack/build"
)

// Up makes a stack run and returns when all its components are ready. It builds what is missing. When the stack runs
// already, dead components are started again and nothing else happens. When ctx ends meanwhile, what Up started is
// stopped.
func Up(ctx context.Context, o Options) (*Stack, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := Open(o.Dir); err == nil {
		return join(ctx, o)
	}
	plan, supervisor, err := prebuild(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the stack's folder: %w", err)
	}
	lock, err := tryLock(layout(o.Dir).lock())
	if errors.Is(err, errLocked) { // somebody else was faster
		return join(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	ended, err := launch(ctx, o, plan, supervisor, lock)
	if err != nil {
		return nil, err
	}
	s, err := follow(ctx, o, ended)
	if ctx.Err() != nil {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("start the stack: %w", ctx.Err()), Down(down, o.Dir))
	}
	return s, err
}

// launch starts a supervisor in place of a dead one. The supervisor inherits the stack's lock and the lock of its ports;
// ours are closed when launch returns, so that the locks end with the supervisor.
func launch(ctx context.Context, o Options, plan Plan, supervisor string, lock *os.File) (<-chan error, error) {
	defer func() { _ = lock.Close() }()
	if err := sweep(ctx, o.Dir); err != nil {
		return nil, err
	}
	locks := []*os.File{lock}
	if o.FreePorts {
		ports, held, err := freePorts(ctx, plan.Components)
		if err != nil {
			return nil, err
		}
		defer func() { _ = held.Close() }()
		plan.Ports, locks = ports, append(locks, held)
	} else {
		ports, err := standardPorts(plan.Components)
		if err != nil {
			return nil, err
		}
		plan.Ports = ports
	}
	return launchSupervisor(supervisor, plan, locks, o.Attached)
}

// prebuild returns the plan without its ports, and the supervisor's binary.
func prebuild(ctx context.Context, o Options) (Plan, string, error) {
	plan := Plan{
		Dir: o.Dir, Repo: o.Repo, Components: o.Components, Binaries: map[string]string{},
		Env: o.Env, Args: o.Args, Quiet: o.Quiet, Timeout: o.Timeout,
	}
	folders := []string{build.Devstack}
	if o.Supervisor != "" {
		folders = nil
	}
	heavy := map[string]string{}
	for _, name := range o.Components {
		c, err := componentNamed(name)
		if err != nil {
			return plan, "", err
		}
		if name == Bootstrap && !slices.Contains(o.Components, Temporal) {
			continue // nothing to do for the starter
		}
		if c.folder != "" && !slices.Contains(folders, c.folder) {
			folders = append(folders, c.folder)
		}
		if c.heavy != "" && heavy[c.heavy] == "" {
			if heavy[c.heavy], err = build.Heavy(ctx, o.Repo, c.heavy, o.Output); err != nil {
				return plan, "", err
			}
		}
	}
	ours := map[string]string{}
	if len(folders) > 0 {
		var err error
		if ours, err = build.Products(ctx, o.Repo, o.Output, folders...); err != nil {
			return plan, "", err
		}
	}
	for _, name := range o.Components {
		c, err := componentNamed(name)
		if err != nil {
			return plan, "", err
		}
		plan.Binaries[name] = heavy[c.heavy] + ours[c.folder] // one of them is empty
	}
	plan.Kubectl = heavy[build.Kubernetes]
	if o.Supervisor != "" {
		return plan, o.Supervisor, nil
	}
	return plan, ours[build.Devstack], nil
}

// launchSupervisor starts the supervisor in a session of its own, so that no terminal's Ctrl-C and no end of ours reaches
// it, unless it is attached. The channel yields how it ended.
func launchSupervisor(binary string, plan Plan, locks []*os.File, attached bool) (<-chan error, error) {
	text, err := json.Marshal(handover{Plan: plan, Files: len(locks)})
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	l := plan.layout()
	if err := os.MkdirAll(filepath.Dir(l.log(supervisorLog)), 0o700); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	log, err := os.OpenFile(l.log(supervisorLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	defer func() { _ = log.Close() }()
	_, _ = fmt.Fprintf(log, "=== %s supervisor starts\n", time.Now().Format(time.RFC3339))
	command := exec.Command(binary, "run", "--dir", plan.Dir) // the folder is for whoever looks at a list of processes
	command.Dir = plan.Dir
	command.Stdin = strings.NewReader(string(text))
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = locks
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	start := (*exec.Cmd).Start
	if attached {
		start = startChild
	}
	if err := start(command); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	return ended, nil
}

// supervisorLog names the supervisor's own log.
const supervisorLog = "supervisor"

// join waits for a stack that somebody else has started and starts what has died in it.
func join(ctx context.Context, o Options) (*Stack, error) {
	s, err := follow(ctx, o, nil)
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
		if c.State.Alive() || c.State == StatePaused {
			continue
		}
		_, _ = fmt.Fprintf(o.Output, "starting %s again (%s %s)\n", c.Name, c.State, c.Error)
		if err := s.Start(ctx, c.Name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// follow reports how the start goes, a line for each component that becomes ready, and returns when all are.
func follow(ctx context.Context, o Options, ended <-chan error) (*Stack, error) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	told := map[string]bool{}
	deadline := time.Now().Add(o.Timeout + grace) // the supervisor gives up before that
	for {
		state, live, err := liveState(o.Dir)
		if err != nil {
			return nil, err
		}
		if live {
			report(o, state, told)
		}
		switch {
		case live && state.Phase == PhaseReady:
			return &Stack{state}, nil
		case !live && ended == nil && abandoned(o.Dir):
			return nil, whyEnded(o.Dir, ErrNotRunning)
		case time.Now().After(deadline):
			return nil, fmt.Errorf("the stack in %s is not ready after %s", o.Dir, o.Timeout+grace)
		}
		select {
		case err := <-ended:
			return nil, whyEnded(o.Dir, err)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ticker.C:
		}
	}
}

// abandoned reports whether nobody runs, starts or stops the stack.
func abandoned(dir string) bool {
	lock, err := tryLock(layout(dir).lock())
	if err != nil {
		return false
	}
	_ = lock.Close()
	return true
}

// report prints the components that became ready since the last call.
func report(o Options, state State, told map[string]bool) {
	for _, c := range state.Components {
		if c.State.Alive() && !told[c.Name] {
			told[c.Name] = true
			pid := "-"
			if c.Process.PID != 0 {
				pid = strconv.Itoa(c.Process.PID)
			}
			_, _ = fmt.Fprintf(o.Output, "  %-24s %-6s pid %-8s %5.1f s\n", c.Name, c.State, pid, c.Took.Seconds())
		}
	}
}

// whyEnded explains a supervisor that ended before the stack was ready.
func whyEnded(dir string, err error) error {
	state, readErr := readState(dir)
	if readErr == nil && state.Phase == PhaseFailed {
		return errors.New(state.Error)
	}
	if err == nil {
		return errors.New("the stack was stopped before it was ready")
	}
	log := layout(dir).log(supervisorLog)
	return fmt.Errorf("the supervisor ended before the stack was ready (%v); its log %s ends with:\n%s", err, log, tail(log))
}
