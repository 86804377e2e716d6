package cloud_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/api/vocabulary"
	"millwright/decide/explain"
	"millwright/provider"
)

func TestReactionToEachCode(t *testing.T) {
	t.Parallel()
	table := map[provider.Code]kube.Reaction{
		provider.OK:                 kube.ReactionRetry, // ReactionToCode is never called with OK
		provider.Canceled:           kube.ReactionRetry,
		provider.Unknown:            kube.ReactionRetry,
		provider.InvalidArgument:    kube.ReactionUntilSpecChange,
		provider.DeadlineExceeded:   kube.ReactionRetry,
		provider.NotFound:           kube.ReactionRetry,
		provider.AlreadyExists:      kube.ReactionUntilSpecChange,
		provider.PermissionDenied:   kube.ReactionUntilCredentialChange,
		provider.ResourceExhausted:  kube.ReactionRetryLong,
		provider.FailedPrecondition: kube.ReactionUntilSpecChange,
		provider.Aborted:            kube.ReactionRetry,
		provider.OutOfRange:         kube.ReactionUntilSpecChange,
		provider.Unimplemented:      kube.ReactionUntilSpecChange,
		provider.Internal:           kube.ReactionRetry,
		provider.Unavailable:        kube.ReactionRetry,
		provider.DataLoss:           kube.ReactionRetry,
		provider.Unauthenticated:    kube.ReactionUntilCredentialChange,
		provider.NotInitialized:     kube.ReactionRetry,
	}
	for _, code := range append(provider.Codes(), provider.OK) {
		want, known := table[code]
		require.True(t, known, "no row for %s", code)
		assert.Equal(t, want, kube.ReactionToCode(code), code)
	}
	assert.Equal(t, kube.ReactionRetry, kube.ReactionToCode(99), "a code that this version does not know")
}

// Package decide/explain does not use the reactions. The test checks that explain's message matches the reaction: if
// only people can fix a refusal, the call is repeated once an hour.
func TestExplainSentenceMatchesReaction(t *testing.T) {
	t.Parallel()
	for _, code := range provider.Codes() {
		if code == provider.OK {
			continue
		}
		waits := explain.Machine{
			Deleting:  true,
			Step:      vocabulary.StepDeleteInstance,
			Cause:     "no",
			BlockedBy: []string{code.String()},
		}.CurrentWait()
		react := kube.ReactionToCode(code)
		assert.Equal(
			t,
			react == kube.ReactionUntilSpecChange || react == kube.ReactionUntilCredentialChange,
			strings.HasSuffix(waits.NextEvent.Singular, " at least every 1h"),
			code,
		)
	}
}

func TestAProblemIsShownOnce(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	o.Cloud.FailCalls(provider.MethodCreateInstance, 3, provider.Errorf(provider.Unavailable, "the cloud is away"))

	t.Run("the first failure is an answer, so that people see it", func(t *testing.T) {
		answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.Equal(
			t,
			kube.Problem{Reason: "Unavailable", Message: "the cloud is away", React: kube.ReactionRetry, Failures: 1},
			*answer.Problem,
		)
	})
	known := activitiestest.DefaultInstanceCall
	known.Known = &kube.Problem{
		Reason:   "Unavailable",
		Message:  "the cloud is away",
		React:    kube.ReactionRetry,
		Failures: 1,
	}
	t.Run("the next activity backs off before it asks again", func(t *testing.T) {
		before := o.Cloud.CallCount(provider.MethodCreateInstance)
		_, err := o.RunActivity(o.CreateInstance, known)
		activitiestest.AssertFailure(t, err, "Unavailable", true)
		assert.Equal(t, before, o.Cloud.CallCount(provider.MethodCreateInstance))
	})
	t.Run("and keeps trying as long as it is the same", func(t *testing.T) {
		answer, took, err := o.RunActivityWithRetries(o.CreateInstance, known)
		require.NoError(t, err)
		assert.Equal(t, firstInstanceAnswer(), answer)
		assertEqualUpToJitter(t, (2+4+8)*time.Second, took, "three waits: before the first call and after two failures")
	})
}

// Temporal's timeline shows a call that failed with a problem as failed, if the workflow understands such a failure.
func TestProblemIsAFailureIfTheWorkflowWantsThat(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	refusal := provider.Errorf(provider.ResourceExhausted, "quota of 3 is used up")
	refusal.RetryAfter = time.Minute
	o.Cloud.FailCalls(provider.MethodCreateInstance, 2, refusal)
	call := activitiestest.DefaultInstanceCall
	want, err := o.RunActivity(o.CreateInstance, call)
	require.NoError(t, err)
	require.NotNil(t, want.Problem)

	call.FailsWithProblem = true
	_, err = o.RunActivity(o.CreateInstance, call)
	activitiestest.AssertFailure(t, err, kube.FailureTypeProblem, false)
	failure, is := kube.FailureOfType(err, kube.FailureTypeProblem)
	require.True(t, is)
	assert.Equal(t, "quota of 3 is used up (ResourceExhausted)", failure.Message())
	assert.Equal(t, temporal.ApplicationErrorCategoryBenign, failure.Category(), "no alarm: the workflow reports it")
	var got cloud.InstanceAnswer
	require.NoError(t, failure.Details(&got))
	assert.Equal(t, want, got)

	answer, err := o.RunActivity(o.CreateInstance, call)
	require.NoError(t, err)
	assert.Equal(t, firstInstanceAnswer(), answer, "a success stays a result")
}

func TestNewMessageOfSameCodeIsNotShown(t *testing.T) {
	t.Parallel()
	known := activitiestest.DefaultInstanceCall
	known.Known = &kube.Problem{Reason: "Unavailable", Message: "request 1 failed", React: kube.ReactionRetry, Failures: 1}
	t.Run("similar: another request", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		o.Cloud.FailCalls(provider.MethodCreateInstance, 1, provider.Errorf(provider.Unavailable, "request 2 failed"))
		o.Cloud.FailCalls(provider.MethodCreateInstance, 1, provider.Errorf(provider.Unavailable, "the cloud is away"))
		answer, _, err := o.RunActivityWithRetries(o.CreateInstance, known)
		require.NoError(t, err)
		assert.Equal(t, firstInstanceAnswer(), answer, "it is not shown again")
		assert.Equal(t, 3, o.Cloud.CallCount(provider.MethodCreateInstance))
	})
	t.Run("the failure of an attempt says what the cloud says now", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		o.Cloud.FailCalls(provider.MethodCreateInstance, 0, provider.Errorf(provider.Unavailable, "request 2 failed"))
		_, _, err := o.RunActivityWithRetries(o.CreateInstance, known)
		require.ErrorContains(t, err, "request 2 failed")
	})
	t.Run("different: another code", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		o.Cloud.FailCalls(provider.MethodCreateInstance, 1, provider.Errorf(provider.Internal, "request 1 failed"))
		answer, _, err := o.RunActivityWithRetries(o.CreateInstance, known)
		require.NoError(t, err)
		require.NotNil(t, answer.Problem)
		assert.Equal(t, "Internal", answer.Problem.Reason)
	})
}

func TestAProblemThatChangesIsShownAgain(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	o.Cloud.FailCalls(provider.MethodCreateInstance, 1, provider.Errorf(provider.ResourceExhausted, "zone a is full"))
	in := activitiestest.DefaultInstanceCall
	in.Known = &kube.Problem{Reason: "Unavailable"}
	answer, _, err := o.RunActivityWithRetries(o.CreateInstance, in)
	require.NoError(t, err)
	assert.Equal(t, "ResourceExhausted", answer.Problem.Reason)
}

func TestProblemThatNeedsAPersonIsAlwaysReturned(t *testing.T) {
	t.Parallel()
	for _, code := range []provider.Code{provider.InvalidArgument, provider.PermissionDenied} {
		t.Run(code.String(), func(t *testing.T) {
			o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
			o.Cloud.FailCalls(provider.MethodCreateInstance, 0, provider.Errorf(code, "no"))
			in := activitiestest.DefaultInstanceCall
			in.Known = &kube.Problem{Reason: code.String()}
			answer, _, err := o.RunActivityWithRetries(o.CreateInstance, in)
			require.NoError(t, err, "to try again by oneself cannot help")
			assert.Equal(t, code.String(), answer.Problem.Reason)
		})
	}
}

func TestProblemMessageIsTruncated(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	o.Cloud.FailCalls(
		provider.MethodCreateInstance,
		1,
		provider.Errorf(provider.Internal, "%s", strings.Repeat("ö", 5000)),
	)
	answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	assert.Less(t, len(answer.Problem.Message), 1010)
	assert.True(t, strings.HasSuffix(answer.Problem.Message, "ö…"), "cut between letters")
}

func TestErrorCodeIsNotParsedFromMessage(t *testing.T) {
	t.Parallel()
	t.Run("a code is a type, not a text", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		o.Cloud.FailCalls(
			provider.MethodCreateInstance,
			1,
			provider.Errorf(provider.ResourceExhausted, "[[NotFound] quota [x]]"),
		)
		answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.Equal(t, "ResourceExhausted", answer.Problem.Reason)
	})
}
