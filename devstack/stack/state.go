package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Phase says how far the stack as a whole is.
type Phase string

// The phases of a stack.
const (
	PhaseStarting Phase = "starting"
	PhaseReady    Phase = "ready"  // every component was ready once; one may have died since
	PhaseFailed   Phase = "failed" // a component did not become ready, and everything was stopped
	PhaseStopping Phase = "stopping"
)

// ComponentState says what became of one component.
type ComponentState string

// The states of a component. Only paused is looked up; the supervisor sees all others itself.
const (
	StateWaiting  ComponentState = "waiting"  // for what it needs
	StateStarting ComponentState = "starting" // runs, not ready yet
	StateReady    ComponentState = "ready"
	StateDone     ComponentState = "done"   // of bootstrap: did its work and ended
	StatePaused   ComponentState = "paused" // SIGSTOP
	StateExited   ComponentState = "exited" // by itself, or killed
	StateFailed   ComponentState = "failed" // to start, or to become ready
)

// Alive reports whether a component in this state is as it should be.
func (s ComponentState) Alive() bool { return s == StateReady || s == StateDone }

// Process identifies a process beyond doubt: a number alone may have been given to another one since.
type Process struct {
	PID   int    `json:"pid,omitempty"`   // zero means none
	Start string `json:"start,omitempty"` // boot and clock tick at which it started
}

// ComponentStatus is one component, as it was when asked.
type ComponentStatus struct {
	Name    string         `json:"name"`
	State   ComponentState `json:"state"`
	Process Process        `json:"process"`
	Port    int            `json:"port,omitempty"`  // main port; zero means none
	Since   time.Time      `json:"since,omitzero"`  // of this state; zero while waiting
	Took    time.Duration  `json:"took,omitempty"`  // from its start until ready
	Error   string         `json:"error,omitempty"` // of an exit or a failure

	CPU    time.Duration `json:"-"` // used so far; only from Stack.Status
	Memory int64         `json:"-"` // resident bytes; only from Stack.Status
}

// State is the content of stack.json. The supervisor is its only writer, and replaces the file as a whole.
type State struct {
	Plan       Plan              `json:"plan"`
	Supervisor Process           `json:"supervisor"`
	Control    string            `json:"control"` // address of the supervisor's HTTP API on loopback
	Token      string            `json:"token"`   // that the API asks for
	Phase      Phase             `json:"phase"`
	Error      string            `json:"error,omitempty"`
	Started    time.Time         `json:"started"`
	Took       time.Duration     `json:"took,omitempty"` // from start until ready
	Versions   map[string]string `json:"versions"`       // by component
	Components []ComponentStatus `json:"components"`     // in starting order
}

// Plan is what the supervisor is told to run.
type Plan struct {
	Dir        string              `json:"dir"`
	Repo       string              `json:"repo"`
	Components []string            `json:"components"`
	Ports      map[string]int      `json:"ports"`
	Binaries   map[string]string   `json:"binaries"`          // path by component
	Kubectl    string              `json:"kubectl,omitempty"` // the multi-call binary, if there is an API server
	Env        map[string][]string `json:"env,omitempty"`
	Args       map[string][]string `json:"args,omitempty"`
	Quiet      bool                `json:"quiet,omitempty"`
	Timeout    time.Duration       `json:"timeout"`
}

func (p Plan) layout() layout { return layout(p.Dir) }

// readState reads stack.json. It says fs.ErrNotExist when there never was a stack here.
func readState(dir string) (State, error) {
	var state State
	text, err := os.ReadFile(layout(dir).state())
	if err != nil {
		return state, fmt.Errorf("read state of the stack: %w", err)
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return state, fmt.Errorf("read state of the stack in %s: %w", dir, err)
	}
	return state, nil
}

// write replaces stack.json. A reader sees the old or the new state, never half of one.
func (s State) write() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write state of the stack: %w", err)
	}
	path := layout(s.Plan.Dir).state()
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write state of the stack: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write state of the stack: %w", err)
	}
	return nil
}

// liveState reads stack.json and reports whether its supervisor lives. A state whose supervisor is dead is stale. No
// state at all is no error.
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

// processes returns every process that the state knows of, the supervisor first.
func (s State) processes() []Process {
	all := []Process{s.Supervisor}
	for _, c := range s.Components {
		all = append(all, c.Process)
	}
	return all
}
