package cloud_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/provider"
)

// assertEqualUpToJitter asserts that a wait equals the expected wait, up to jitter.
func assertEqualUpToJitter(t *testing.T, want, got time.Duration, why ...any) {
	t.Helper()
	assert.GreaterOrEqual(t, got, want*8/10, why...)
	assert.LessOrEqual(t, got, want*12/10+time.Second, why...) // the test workflow's clock has a resolution of 1 s
}

func TestBackOffDependsOnReaction(t *testing.T) {
	t.Parallel()
	const most = 1 << 30 // a very large number of failures in a row
	for name, row := range map[string]struct {
		react    kube.Reaction
		limit    time.Duration // ExhaustedRetry of the Provider
		failures map[int]int   // expected back-off in seconds, by the number of failures in a row
	}{
		"two seconds at first, doubled up to two minutes": {kube.ReactionRetry, 0, map[int]int{1: 2, 2: 4, 3: 8, 4: 16, 5: 32, 6: 64, 7: 120, 8: 120, most: 120}},
		"of an answer that does not count":                {kube.ReactionRetry, 0, map[int]int{0: 2}},
		"the limit of quotas is nothing to it":            {kube.ReactionRetry, time.Second, map[int]int{1: 2, 7: 120}},
		"longer for quota and capacity":                   {kube.ReactionRetryLong, 0, map[int]int{1: 30, 2: 60, 3: 120, 4: 240, 5: 480, 6: 600, 7: 600, most: 600}},
		"up to what is configured":                        {kube.ReactionRetryLong, time.Hour, map[int]int{1: 30, 6: 960, 7: 1920, 8: 3600, 9: 3600}},
		"also where that is short":                        {kube.ReactionRetryLong, 10 * time.Second, map[int]int{1: 10, 2: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
			o.ExhaustedRetry = row.limit
			for failures, seconds := range row.failures {
				got := o.MeasureBackOff(kube.Problem{Reason: "Some", React: row.react, Failures: failures})
				want := time.Duration(seconds) * time.Second
				assert.GreaterOrEqual(t, got, want*8/10, "%d failures", failures)
				assert.LessOrEqual(t, got, want*12/10, "%d failures", failures)
			}
		})
	}
	t.Run("not all at the same moment", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		waits := map[time.Duration]bool{}
		for range 20 {
			waits[o.MeasureBackOff(kube.Problem{Reason: "Unavailable", React: kube.ReactionRetry, Failures: 7})] = true
		}
		assert.Greater(t, len(waits), 10)
	})
	t.Run("the cloud knows better", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		for _, react := range []kube.Reaction{kube.ReactionRetry, kube.ReactionRetryLong} {
			assert.Equal(
				t,
				40*time.Second,
				o.MeasureBackOff(kube.Problem{Reason: "Some", React: react, Failures: 9, After: 40 * time.Second}),
			)
			assert.Equal(
				t,
				time.Hour,
				o.MeasureBackOff(kube.Problem{Reason: "Some", React: react, Failures: 1, After: time.Hour}),
			)
		}
	})
}

func TestBackOffAfterResourceExhausted(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		configured time.Duration
		want       time.Duration // expected sum of five back-offs in a row
	}{
		"by default":  {0, (30 + 60 + 120 + 240 + 480) * time.Second},
		"configured":  {time.Minute, (30 + 60 + 60 + 60 + 60) * time.Second},
		"impatiently": {time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
			o.ExhaustedRetry = row.configured
			o.Cloud.FailCalls(provider.MethodCreateInstance, 5, provider.Errorf(provider.ResourceExhausted, "no room"))
			answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
			require.NoError(t, err)
			assert.Equal(
				t,
				kube.Problem{Reason: "ResourceExhausted", Message: "no room", React: kube.ReactionRetryLong, Failures: 1},
				*answer.Problem,
			)
			in := activitiestest.DefaultInstanceCall
			in.Known = answer.Problem
			answer, took, err := o.RunActivityWithRetries(o.CreateInstance, in)
			require.NoError(t, err)
			assert.Equal(t, firstInstanceAnswer(), answer)
			assertEqualUpToJitter(t, row.want, took)
		})
	}
}

func TestBackOffUsesRetryAfterOfProvider(t *testing.T) {
	t.Parallel()
	slow := provider.Errorf(provider.Unavailable, "slow down")
	slow.RetryAfter = 40 * time.Second
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	o.Cloud.FailCalls(provider.MethodCreateInstance, 2, slow)
	answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	assert.Equal(t, 40*time.Second, answer.Problem.After)
	in := activitiestest.DefaultInstanceCall
	in.Known = answer.Problem
	_, took, err := o.RunActivityWithRetries(o.CreateInstance, in)
	require.NoError(t, err)
	assert.Equal(t, 80*time.Second, took.Truncate(time.Second), "before the first call, and after its failure")
}

func TestABackOffGrowsAlthoughTheCodeChanges(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	in := activitiestest.DefaultInstanceCall
	for failures := 1; failures <= 5; failures++ {
		code := []provider.Code{provider.Unavailable, provider.Internal}[failures%2]
		o.Cloud.FailCalls(provider.MethodCreateInstance, 1, provider.Errorf(code, "no"))
		answer, _, err := o.RunActivityWithRetries(o.CreateInstance, in)
		require.NoError(t, err)
		require.NotNil(t, answer.Problem)
		assert.Equal(t, code.String(), answer.Problem.Reason)
		assert.Equal(t, failures, answer.Problem.Failures)
		in.Known = answer.Problem
	}
	t.Run("and counts the failures of one activity", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		o.Cloud.FailCalls(provider.MethodCreateInstance, 3, provider.Errorf(provider.Unavailable, "no"))
		o.Cloud.FailCalls(provider.MethodCreateInstance, 1, provider.Errorf(provider.Internal, "no"))
		in := activitiestest.DefaultInstanceCall
		in.Known = &kube.Problem{Reason: "Unavailable", React: kube.ReactionRetry, Failures: 2}
		answer, _, err := o.RunActivityWithRetries(o.CreateInstance, in)
		require.NoError(t, err)
		assert.Equal(t, 6, answer.Problem.Failures)
	})
}
