package commandline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExitCodes(t *testing.T) {
	assert.Equal(t, 1, ExitCode(errors.New("no answer")))
	assert.Equal(t, 2, ExitCode(usageError{errors.New("what?"), "millwright"}))
	assert.Equal(t, 4, ExitCode(fmt.Errorf("shop/web: %w", WithExitCode(errors.New("it waits"), 4))))
	assert.Equal(t, 143, ExitCode(fmt.Errorf("shop/web: %w", SignalError{syscall.SIGTERM})))
	assert.NoError(t, WithExitCode(nil, 4))
}

func TestASignalIsTheCauseOfTheEnd(t *testing.T) {
	ctx, stop := contextWithSignals(t.Context())
	defer stop()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	<-ctx.Done()
	err := InterruptedError(ctx, "the rollout is not known to be complete")
	require.EqualError(t, err, "the rollout is not known to be complete: ended by the signal interrupt")
	assert.Equal(t, 130, ExitCode(err))
}

func TestACommandThatEndsWithoutASignalHasNoSignal(t *testing.T) {
	ctx, stop := contextWithSignals(t.Context())
	stop()
	<-ctx.Done()
	assert.Equal(t, context.Canceled, context.Cause(ctx))
}

func TestBuildsHaveAText(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	revision := setting("vcs.revision", "c5bb2f16d1aa0123456789abcdef0123456789ab")
	commitTime, changed := setting("vcs.time", "2026-11-30T17:31:00Z"), setting("vcs.modified", "true")
	for want, info := range map[string]debug.BuildInfo{
		"v0.1.0, commit c5bb2f16d1aa of 2026-11-30, go1.26.8":                  {GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{revision, commitTime, setting("vcs.modified", "false")}},
		"unreleased, commit c5bb2f16d1aa of 2026-11-30 with changes, go1.26.8": {GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{revision, commitTime, changed}},
		"unreleased, commit not recorded, go1.26.8":                            {GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}},
		"v0.1.0, go1.26.8": {GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"}},
	} {
		assert.Equal(t, want, buildOf(&info).String())
	}
	b := buildOf(&debug.BuildInfo{Settings: []debug.BuildSetting{revision, commitTime, changed}})
	assert.True(t, b.IsModified)
	assert.Equal(t, time.Date(2026, 11, 30, 17, 31, 0, 0, time.UTC), b.CommitTime)
}
