package activities_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

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
		assert.Equal(t, activities.Problem{Reason: "Unavailable", Message: "the cloud is away", React: activities.Retry}, *answer.Problem)
	})
	known := instanceCall
	known.Known = &activities.Problem{Reason: "Unavailable", Message: "the cloud is away", React: activities.Retry}
	t.Run("the next activity backs off before it asks again", func(t *testing.T) {
		before := o.cloud.Calls(provider.MethodCreateInstance)
		_, err := o.ask(o.CreateInstance, known)
		assertFailure(t, err, "Unavailable", true)
		assert.Equal(t, before, o.cloud.Calls(provider.MethodCreateInstance))
	})
	t.Run("and keeps trying as long as it is the same", func(t *testing.T) {
		answer, took, err := o.patiently(o.CreateInstance, known)
		require.NoError(t, err)
		assert.Nil(t, answer.Problem)
		assert.Equal(t, "fake:///i-1", answer.ProviderID)
		assert.Equal(t, 6*time.Second, took.Truncate(time.Second), "three waits: before the first call and after two failures")
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

func TestHowLongAProblemIsWaitedFor(t *testing.T) {
	t.Parallel()
	asked := provider.Errorf(provider.Unavailable, "slow down")
	asked.RetryAfter = 40 * time.Second
	soon := provider.Errorf(provider.ResourceExhausted, "soon")
	soon.RetryAfter = time.Second
	for name, row := range map[string]struct {
		err  *provider.Error
		want time.Duration
	}{
		"as the retry policy says":      {provider.Errorf(provider.Internal, "x"), 0},
		"as long as the cloud asks":     {asked, 40 * time.Second},
		"long when capacity is missing": {provider.Errorf(provider.ResourceExhausted, "x"), 3 * time.Minute},
		"unless the cloud knows better": {soon, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t, class())
			o.cloud.Fail(provider.MethodCreateInstance, 2, row.err)
			answer, err := o.ask(o.CreateInstance, instanceCall)
			require.NoError(t, err)
			assert.Equal(t, row.want, answer.Problem.After)

			in := instanceCall
			in.Known = answer.Problem
			_, err = o.ask(o.CreateInstance, in)
			var failed *temporal.ApplicationError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, row.want, failed.NextRetryDelay())
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
