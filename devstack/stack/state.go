package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"millwright/devstack/component"
)

// Phase is the state of the stack as a whole.
type Phase string

// The phases of a stack.
const (
	PhaseStarting Phase = "starting"
	PhaseReady    Phase = "ready"  // every component was ready once; one may have ended since
	PhaseFailed   Phase = "failed" // a component did not become ready, and everything was stopped
	PhaseStopping Phase = "stopping"
)

// ComponentState is the state of one component.
type ComponentState string

// The states of a component. Only paused is read from the system; the supervisor knows all others itself.
const (
	StateWaiting  ComponentState = "waiting"  // the component waits for components that it needs
	StateStarting ComponentState = "starting" // the process runs and is not ready yet
	StateReady    ComponentState = "ready"
	StateDone     ComponentState = "done"   // only bootstrap: it is complete
	StatePaused   ComponentState = "paused" // stopped by SIGSTOP
	StateExited   ComponentState = "exited" // the process ended by itself, or was killed
	StateFailed   ComponentState = "failed" // the component did not start, or did not become ready
)

// Alive reports whether a component in this state is ready, or complete in the case of bootstrap.
func (s ComponentState) Alive() bool { return s == StateReady || s == StateDone }

// Process identifies a process uniquely: a PID alone may belong to another process later.
type Process struct {
	PID   int    `json:"pid,omitempty"`   // process ID; zero: there is no process
	Start string `json:"start,omitempty"` // boot and clock tick at which it started
}

// ComponentStatus is one component at the time of the request.
type ComponentStatus struct {
	Name    string         `json:"name"`
	State   ComponentState `json:"state"`
	Process Process        `json:"process"`
	Port    int            `json:"port,omitempty"`  // main port; zero: the component has none
	Since   time.Time      `json:"since,omitzero"`  // start of this state; zero while waiting
	Took    time.Duration  `json:"took,omitempty"`  // time from its start until it was ready
	Error   string         `json:"error,omitempty"` // why it ended or failed

	CPU    time.Duration `json:"-"` // processor time used so far; only Stack.Status sets it
	Memory int64         `json:"-"` // resident memory in bytes; only Stack.Status sets it
}

// State is the content of stack.json. The supervisor is its only writer, and replaces the file as a whole.
type State struct {
	Plan       component.Plan    `json:"plan"`
	Supervisor Process           `json:"supervisor"`
	Control    string            `json:"control"` // address of the supervisor's HTTP API on loopback
	Token      string            `json:"token"`   // token that a request to that API must have
	Phase      Phase             `json:"phase"`
	Error      string            `json:"error,omitempty"`
	Started    time.Time         `json:"started"`
	Took       time.Duration     `json:"took,omitempty"` // time from the start until all components were ready
	Versions   map[string]string `json:"versions"`       // version of each component
	Components []ComponentStatus `json:"components"`     // in starting order
}

// readState reads stack.json. It returns fs.ErrNotExist if there was never a stack in the folder.
func readState(dir string) (State, error) {
	var state State
	text, err := os.ReadFile(component.Layout(dir).State())
	if err != nil {
		return state, fmt.Errorf("read state of the stack: %w", err)
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return state, fmt.Errorf("read state of the stack in %s: %w", dir, err)
	}
	return state, nil
}

// write replaces stack.json. A reader gets the old or the new state, never a part of one.
func (s State) write() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write state of the stack: %w", err)
	}
	path := component.Layout(s.Plan.Dir).State()
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write state of the stack: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write state of the stack: %w", err)
	}
	return nil
}

// liveState reads stack.json and reports whether its supervisor runs. The state of a dead supervisor is stale. A
// missing state is not an error.
func liveState(dir string) (state State, live bool, err error) {
	state, err = readState(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, err
	}
	return state, state.Supervisor.alive(), nil
}

// processes returns every process in the state, the supervisor first.
func (s State) processes() []Process {
	all := []Process{s.Supervisor}
	for _, c := range s.Components {
		all = append(all, c.Process)
	}
	return all
}
