package activities_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities"
	"millwright/provider"
)

func TestReactionTo(t *testing.T) {
	t.Parallel()
	table := map[provider.Code]activities.Reaction{
		provider.OK:                 activities.Retry, // never asked
		provider.Canceled:           activities.Retry,
		provider.Unknown:            activities.Retry,
		provider.InvalidArgument:    activities.UntilSpec,
		provider.DeadlineExceeded:   activities.Retry,
		provider.NotFound:           activities.Retry,
		provider.AlreadyExists:      activities.UntilSpec,
		provider.PermissionDenied:   activities.UntilCredential,
		provider.ResourceExhausted:  activities.RetryLong,
		provider.FailedPrecondition: activities.UntilSpec,
		provider.Aborted:            activities.Retry,
		provider.OutOfRange:         activities.UntilSpec,
		provider.Unimplemented:      activities.UntilSpec,
		provider.Internal:           activities.Retry,
		provider.Unavailable:        activities.Retry,
		provider.DataLoss:           activities.Retry,
		provider.Unauthenticated:    activities.UntilCredential,
		provider.NotInitialized:     activities.Retry,
	}
	for _, code := range append(provider.Codes(), provider.OK) {
		want, known := table[code]
		require.True(t, known, "no row for %s", code)
		assert.Equal(t, want, activities.ReactionTo(code), code)
	}
	assert.Equal(t, activities.Retry, activities.ReactionTo(99), "a code that this version does not know")
}

func TestAProblemIsShownOnce(t *testing.T) {
	t.Parallel()
	o := newOffice(t, class())
	o.cloud.Fail(provider.MethodCreateInstance, 3, provider.Errorf(provider.Unavailable, "the cloud is away"))

	t.Run("the first failure is an answer, so that people see it", func(t *testing.T) {
		answer, err := o.ask(o.CreateInstance, instanceCall)
		require.NoError(t, err)
		assert.Equal(t, activities.Problem{Reason: "Unavailable", Message: "the cloud is away", React: activities.Retry, Failures: 1}, *answer.Problem)
	})
	known := instanceCall
	known.Known = &activities.Problem{Reason: "Unavailable", Message: "the cloud is away", React: activities.Retry, Failures: 1}
	t.Run("the next activity backs off before it asks again", func(t *testing.T) {
		before := o.cloud.Calls(provider.MethodCreateInstance)
		_, err := o.ask(o.CreateInstance, known)
		assertFailure(t, err, "Unavailable", true)
		assert.Equal(t, before, o.cloud.Calls(provider.MethodCreateInstance))
	})
	t.Run("and keeps trying as long as it is the same", func(t *testing.T) {
		answer, took, err := o.patiently(o.CreateInstance, known)
		require.NoError(t, err)
		assert.Equal(t, instanceOne(), answer)
		assertAbout(t, (2+4+8)*time.Second, took, "three waits: before the first call and after two failures")
	})
}

func TestU125_AnotherMessageOfTheSameCodeIsNoNews(t *testing.T) {
	t.Parallel()
	known := instanceCall
	known.Known = &activities.Problem{Reason: "Unavailable", Message: "request 1 failed", React: activities.Retry, Failures: 1}
	t.Run("U125: similar: another request", func(t *testing.T) {
		o := newOffice(t, class())
		o.cloud.Fail(provider.MethodCreateInstance, 1, provider.Errorf(provider.Unavailable, "request 2 failed"))
		o.cloud.Fail(provider.MethodCreateInstance, 1, provider.Errorf(provider.Unavailable, "the cloud is away"))
		answer, _, err := o.patiently(o.CreateInstance, known)
		require.NoError(t, err)
		assert.Equal(t, instanceOne(), answer, "it is not shown again")
		assert.Equal(t, 3, o.cloud.Calls(provider.MethodCreateInstance))
	})
	t.Run("U125: the failure of an attempt says what the cloud says now", func(t *testing.T) {
		o := newOffice(t, class())
		o.cloud.Fail(provider.MethodCreateInstance, 0, provider.Errorf(provider.Unavailable, "request 2 failed"))
		_, _, err := o.patiently(o.CreateInstance, known)
		require.ErrorContains(t, err, "request 2 failed")
	})
	t.Run("U125: different: another code", func(t *testing.T) {
		o := newOffice(t, class())
		o.cloud.Fail(provider.MethodCreateInstance, 1, provider.Errorf(provider.Internal, "request 1 failed"))
		answer, _, err := o.patiently(o.CreateInstance, known)
		require.NoError(t, err)
		require.NotNil(t, answer.Problem)
		assert.Equal(t, "Internal", answer.Problem.Reason)
	})
}

func TestAProblemThatChangesIsShownAgain(t *testing.T) {
	t.Parallel()
	o := newOffice(t, class())
	o.cloud.Fail(provider.MethodCreateInstance, 1, provider.Errorf(provider.ResourceExhausted, "zone a is full"))
	in := instanceCall
	in.Known = &activities.Problem{Reason: "Unavailable"}
	answer, _, err := o.patiently(o.CreateInstance, in)
	require.NoError(t, err)
	assert.Equal(t, "ResourceExhausted", answer.Problem.Reason)
}

func TestWhatOnlyPeopleCanMendIsAlwaysAnAnswer(t *testing.T) {
	t.Parallel()
	for _, code := range []provider.Code{provider.InvalidArgument, provider.PermissionDenied} {
		t.Run(code.String(), func(t *testing.T) {
			o := newOffice(t, class())
			o.cloud.Fail(provider.MethodCreateInstance, 0, provider.Errorf(code, "no"))
			in := instanceCall
			in.Known = &activities.Problem{Reason: code.String()}
			answer, _, err := o.patiently(o.CreateInstance, in)
			require.NoError(t, err, "to try again by oneself cannot help")
			assert.Equal(t, code.String(), answer.Problem.Reason)
		})
	}
}

func TestAProblemFitsAStatus(t *testing.T) {
	t.Parallel()
	o := newOffice(t, class())
	o.cloud.Fail(provider.MethodCreateInstance, 1, provider.Errorf(provider.Internal, "%s", strings.Repeat("ö", 5000)))
	answer, err := o.ask(o.CreateInstance, instanceCall)
	require.NoError(t, err)
	assert.Less(t, len(answer.Problem.Message), 1010)
	assert.True(t, strings.HasSuffix(answer.Problem.Message, "ö…"), "cut between letters")
}

func TestBracketsInAMessageHideNoCode(t *testing.T) {
	t.Parallel()
	t.Run("D30: a code is a type, not a text", func(t *testing.T) {
		o := newOffice(t, class())
		o.cloud.Fail(provider.MethodCreateInstance, 1, provider.Errorf(provider.ResourceExhausted, "[[NotFound] quota [x]]"))
		answer, err := o.ask(o.CreateInstance, instanceCall)
		require.NoError(t, err)
		assert.Equal(t, "ResourceExhausted", answer.Problem.Reason)
	})
}
