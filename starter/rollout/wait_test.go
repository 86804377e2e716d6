package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/process/commandline"
)

// runWait runs `status --wait` with a backend whose reads return these pools and errors one after the other.
func runWait(t *testing.T, args []string, found ...any) (out, progress string, err error) {
	t.Helper()
	w := newBackendWithReadResults(found...)
	var stdout, stderr bytes.Buffer
	c := Command(w.Environment())
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(append([]string{"status", "shop/web", "--wait", "--interval=1ms"}, args...))
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	err = c.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestWaitEndsWhenTheRolloutIsComplete(t *testing.T) {
	out, progress, err := runWait(t, nil, waitingPool(), errors.New("away"), completedPool())
	require.NoError(t, err)
	assert.Contains(t, out, "shop/web: revision 7 is complete.\n")
	assert.NotContains(t, out, "away")
	assert.Contains(t, progress, "2/3 up to date")
	assert.Contains(t, progress, "away")
}

func TestWaitHasAnExitCodeForEachEnd(t *testing.T) {
	for name, row := range map[string]struct {
		found []any
		args  []string
		code  int
		says  string
	}{
		"rolled back":               {[]any{waitingPool(), rolledBackPool()}, nil, 3, "revision 7 was rolled back"},
		"pinned by a policy":        {[]any{completedPool(withPinToFormerSet(""))}, nil, 3, ""},
		"paused":                    {[]any{waitingPool(setPaused)}, nil, 4, "it is paused"},
		"held":                      {[]any{waitingPool(withAnnotation(v1alpha1.AnnotationRolloutHold, "7 ann: lunch"))}, nil, 4, "revision 7 is held by ann (lunch)"},
		"a step waits for a person": {[]any{stepPool(approvalStep(1))}, nil, 4, "waits for approval"},
		"late":                      {[]any{waitingPool(withProgressDeadline(600))}, nil, 1, "made no progress for 10m"},
		"invalid":                   {[]any{waitingPool(removeClass)}, nil, 1, "nothing can be done with it"},
		"gone":                      {[]any{waitingPool(), errDeploymentNotFound}, nil, 1, "deployment shop/web is gone, and its rollout was not complete"},
		"it cannot be read":         {[]any{errors.New("forbidden")}, nil, 1, "get deployment shop/web: forbidden"},
		"out of time":               {[]any{waitingPool()}, []string{"--timeout=50ms"}, 1, "shop/web: not complete after 50ms: revision 7 "},
	} {
		out, _, err := runWait(t, row.args, row.found...)
		require.Error(t, err, name)
		require.ErrorContains(t, err, row.says, name)
		assert.Equal(t, row.code, commandline.ExitCode(err), "%s: %v", name, err)
		if name != "it cannot be read" {
			assert.Contains(t, out, "up to date", "%s: the status at the end", name)
		}
	}
}

func TestWaitPrintsTheLastStatusAsJSON(t *testing.T) {
	out, _, err := runWait(t, []string{"-o", "json"}, stepPool(approvalStep(1)))
	assert.Equal(t, 4, commandline.ExitCode(err))
	var got statusAnswer
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, stateWaitsForApproval, got.State)
}

func TestWaitFailsAfterASignal(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	w := newBackendWithReadResults(waitingPool())
	w.MachineClient.PrependReactor("get", "machinedeployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel(commandline.SignalError{Signal: 15})
		return true, nil, errors.New("interrupted")
	})
	c := Command(w.Environment())
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs([]string{"status", "shop/web", "--wait", "--timeout", "1h"})
	c.SetOut(io.Discard)
	err := c.ExecuteContext(ctx)
	require.EqualError(t, err, "the rollout of shop/web is not known to be complete: ended by the signal terminated")
	assert.Equal(t, 143, commandline.ExitCode(err))
}

func TestATimeoutNeedsAWait(t *testing.T) {
	_, err := waitingPool().runCommand(t, "status", "shop/web", "--timeout", time.Minute.String())
	require.EqualError(t, err, "--timeout is for --wait")
}
