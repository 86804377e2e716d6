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

// Phase is the state of the whole stack.
type Phase string

// The phases of a stack.
const (
	PhaseStarting Phase = "starting"
	PhaseReady    Phase = "ready"  // every component was ready once; a component may have ended since then
	PhaseFailed   Phase = "failed" // a component did not become ready, and the supervisor stopped all components
	PhaseStopping Phase = "stopping"
)

// ComponentState is the state of one component.
type ComponentState string

// The states of a component. Status reads StatePaused from the kernel; the supervisor records all other states.
const (
	StateWaiting  ComponentState = "waiting"  // waits until the needed components are ready
	StateStarting ComponentState = "starting" // the process runs and is not ready yet
	StateReady    ComponentState = "ready"
	StateDone     ComponentState = "done"   // only for bootstrap: the process has completed its work
	StatePaused   ComponentState = "paused" // SIGSTOP has paused the process
	StateExited   ComponentState = "exited" // the process ended by itself or was killed
	StateFailed   ComponentState = "failed" // the component did not start or did not become ready
)

// IsReadyOrDone reports whether a component in this state is ready, or, in the case of bootstrap, has completed its
// work.
func (s ComponentState) IsReadyOrDone() bool { return s == StateReady || s == StateDone }

// Process identifies a process uniquely, because a PID alone may later belong to another process.
type Process struct {
	PID     int    `json:"pid,omitempty"`   // process ID; zero: there is no process
	StartID string `json:"start,omitempty"` // boot ID and clock tick at the start of the process
}

// ComponentStatus is the status of one component when the status was read.
type ComponentStatus struct {
	Name           string         `json:"name"`
	State          ComponentState `json:"state"`
	Process        Process        `json:"process"`
	Port           int            `json:"port,omitempty"`  // main port; zero: the component has none
	StateChangedAt time.Time      `json:"since,omitzero"`  // time of the last change of State; zero while the component waits
	StartDuration  time.Duration  `json:"took,omitempty"`  // time from the component's start until it was ready
	Error          string         `json:"error,omitempty"` // why the component ended or failed

	CPUTime     time.Duration `json:"-"` // processor time used so far; only Stack.Status sets it
	MemoryBytes int64         `json:"-"` // resident memory in bytes; only Stack.Status sets it
}

// State is the content of stack.json. Only the supervisor writes the file, and replaces the whole file.
type State struct {
	Plan           component.Plan    `json:"plan"`
	Supervisor     Process           `json:"supervisor"`
	ControlAddress string            `json:"control"` // address of the supervisor's HTTP API on loopback
	ControlToken   string            `json:"token"`   // token in requests to the supervisor's HTTP API
	Phase          Phase             `json:"phase"`
	Error          string            `json:"error,omitempty"`
	StartedAt      time.Time         `json:"started"`
	StartDuration  time.Duration     `json:"took,omitempty"` // time from the start until all components were ready
	Versions       map[string]string `json:"versions"`       // version of each component
	Components     []ComponentStatus `json:"components"`     // in starting order
}

// readState reads stack.json. If the folder never had a stack, the error is fs.ErrNotExist.
func readState(dir string) (State, error) {
	var state State
	text, err := os.ReadFile(component.StackFolder(dir).StateFile())
	if err != nil {
		return state, fmt.Errorf("read state of the stack: %w", err)
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return state, fmt.Errorf("read state of the stack in %s: %w", dir, err)
	}
	return state, nil
}

// writeFile replaces stack.json. A reader sees the old or the new content, never a part of the new content.
func (s State) writeFile() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write state of the stack: %w", err)
	}
	path := component.StackFolder(s.Plan.Dir).StateFile()
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write state of the stack: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write state of the stack: %w", err)
	}
	return nil
}

// readLiveState reads stack.json and reports whether the supervisor in this file runs. The state of a dead supervisor
// is stale. A missing file is not an error.
func readLiveState(dir string) (state State, live bool, err error) {
	state, err = readState(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, err
	}
	return state, state.Supervisor.isAlive(), nil
}

// processes returns the supervisor's process, followed by the components' processes.
func (s State) processes() []Process {
	all := []Process{s.Supervisor}
	for _, c := range s.Components {
		all = append(all, c.Process)
	}
	return all
}
