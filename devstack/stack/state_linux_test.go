package stack

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"millwright/devstack/attached"
	"millwright/devstack/component"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startSleepProcess starts the command sleep. The test reaps the process when the process ends.
func startSleepProcess(t *testing.T) (Process, <-chan struct{}) {
	t.Helper()
	command := exec.Command("sleep", "1000")
	require.NoError(t, attached.StartCommand(command))
	process, err := ProcessWithPID(command.Process.Pid)
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
	})
	return process, ended
}

func TestProcessWithAReusedPIDIsNotAlive(t *testing.T) {
	process, ended := startSleepProcess(t)
	assert.True(t, process.isAlive())
	assert.False(
		t,
		Process{PID: process.PID, StartID: "another-boot/1"}.isAlive(),
		"the number was given to another process",
	)
	assert.False(t, Process{}.isAlive())

	require.NoError(t, killProcess(t.Context(), process))
	<-ended
	assert.False(t, process.isAlive())
	require.NoError(t, killProcess(t.Context(), process), "ending a dead process")
}

func TestStateOfADeadSupervisorIsStale(t *testing.T) {
	dir := t.TempDir()
	_, live, err := readLiveState(dir)
	require.NoError(t, err)
	assert.False(t, live, "no state")

	supervisor, _ := startSleepProcess(t)
	state := State{Plan: component.Plan{Dir: dir}, Supervisor: supervisor, Phase: PhaseReady}
	require.NoError(t, state.writeFile())
	_, live, err = readLiveState(dir)
	require.NoError(t, err)
	assert.True(t, live)
	_, err = Open(dir)
	require.NoError(t, err)

	state.Supervisor.StartID = "before/the-reboot"
	require.NoError(t, state.writeFile())
	_, live, err = readLiveState(dir)
	require.NoError(t, err)
	assert.False(t, live)
	_, err = Open(dir)
	assert.ErrorIs(t, err, ErrNotRunning)
}

func TestDownKillsOnlyLeftoverProcesses(t *testing.T) {
	dir := t.TempDir()
	leftover, leftoverEnded := startSleepProcess(t)
	stranger, _ := startSleepProcess(t) // this process has a PID that once belonged to a component
	state := State{
		Plan:       component.Plan{Dir: dir},
		Supervisor: Process{PID: stranger.PID, StartID: "before/the-reboot"},
		Components: []ComponentStatus{
			{Name: component.Etcd, Process: leftover},
			{Name: component.Kwok, Process: Process{PID: stranger.PID, StartID: "before/the-reboot"}},
			{Name: component.Worker},
		},
	}
	require.NoError(t, state.writeFile())
	require.NoError(t, Down(t.Context(), dir))
	<-leftoverEnded
	assert.True(t, stranger.isAlive())
	assert.NoFileExists(t, component.StackFolder(dir).StateFile())
	require.NoError(t, Down(t.Context(), dir), "again")
}

func TestDownWithoutRunningStackIsNoError(t *testing.T) {
	require.NoError(t, Down(t.Context(), filepath.Join(t.TempDir(), "never-was")))
}

func TestUnreadableStateIsRemoved(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(component.StackFolder(dir).StateFile(), []byte("{half"), 0o600))
	require.NoError(t, Down(t.Context(), dir))
	assert.NoFileExists(t, component.StackFolder(dir).StateFile())
}
