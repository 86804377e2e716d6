package activities_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"millwright/provider"
)

// The times of these tests are those of a bubble: nobody waits for them.
func TestN12_AProviderThatHangs(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		step   func(*office) any
		method provider.Method // that hangs
	}{
		"CreateInstance":                      {func(o *office) any { return o.CreateInstance }, provider.MethodCreateInstance},
		"InitializeInstance":                  {func(o *office) any { return o.InitializeInstance }, provider.MethodInitializeInstance},
		"DeleteInstance":                      {func(o *office) any { return o.DeleteInstance }, provider.MethodDeleteInstance},
		"the status that DeleteInstance asks": {func(o *office) any { return o.DeleteInstance }, provider.MethodInstanceStatus},
		"InstanceStatus":                      {func(o *office) any { return o.InstanceStatus }, provider.MethodInstanceStatus},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOffice(t, class())
				o.cloud.Hang(row.method)
				took, err := o.until(row.step(o), 10*time.Minute)
				require.Error(t, err, "a deadline is no answer of the cloud's that people should see")
				assert.Equal(t, 10*time.Minute, took)
			})
		})
	}
	t.Run("N12: is asked again afterwards", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := newOffice(t, class())
			release := o.cloud.Hang(provider.MethodCreateInstance)
			_, err := o.until(o.CreateInstance, time.Minute)
			require.Error(t, err)
			release()
			answer, err := o.ask(o.CreateInstance, instanceCall)
			require.NoError(t, err)
			assert.Equal(t, instanceOne(), answer)
			assert.Equal(t, 1, o.cloud.Creates())
		})
	})
}

// until runs an activity whose context ends after so long, as Temporal ends it, and says how long it took.
func (o *office) until(step any, limit time.Duration) (took time.Duration, err error) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), limit)
	defer cancel()
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(o.Provider)
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	begun := time.Now()
	_, err = env.ExecuteActivity(step, instanceCall)
	return time.Since(begun), err
}
