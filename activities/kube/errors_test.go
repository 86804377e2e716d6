package kube_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
)

func TestTooLargeWriteBecomesRefusal(t *testing.T) {
	err := kube.ClassifyWriteError(
		t.Context(),
		kube.Ref{Namespace: "shop", Name: "s"},
		apierrors.NewRequestEntityTooLargeError("3 MiB"),
	)
	_, refused := kube.FailureOfType(err, kube.FailureTypeRefused)
	assert.True(t, refused)
}

// While an admission webhook is down, the API server answers 500. During a leader election of etcd, the API server
// answers 500 for about a second.
func TestLastingInternalErrorBecomesRefusal(t *testing.T) {
	down := apierrors.NewInternalError(errors.New(`failed calling webhook "dead.example.com": connection refused`))
	insist := func(ctx context.Context, _ string) (string, error) {
		return "", kube.ClassifyWriteError(ctx, kube.Ref{Namespace: "shop", Name: "s"}, down)
	}
	for tried, refused := range map[time.Duration]bool{0: false, time.Second: false, 5 * time.Second: true} {
		_, err := activitiestest.ExecuteActivity[string](
			t,
			insist,
			"",
			activitiestest.Worker{AttemptDelay: tried}.ExecuteActivity,
		)
		require.ErrorContains(t, err, "connection refused")
		kind, retryable := activitiestest.FailureTypeOf(t, err)
		assert.Equal(t, refused, kind == kube.FailureTypeRefused, "after %v", tried)
		assert.Equal(t, !refused, retryable, "after %v", tried)
	}
}

// An object's status shows the message of a refusal. An answer of the API server is no refusal if it needs a new
// decision, or if the API server is too busy or unreachable.
func TestAnswersThatCountAsRefusals(t *testing.T) {
	const never = -1
	const webhooksReason = "" // the webhook gives no reason; the message contains the webhook's name
	for name, row := range map[string]struct {
		code         int
		reason       metav1.StatusReason
		refusedAfter time.Duration
		deniedAfter  time.Duration // time after which ClassifyTargetError returns TypeDenied
	}{
		"a webhook like a busy API server": {429, webhooksReason, 0, 0},
		"a webhook like one that is away":  {503, webhooksReason, 0, 0},
		"a webhook like an authenticator":  {401, webhooksReason, 0, 0},
		"a webhook like a conflict":        {409, webhooksReason, 0, 0},
		"a webhook like a missing object":  {404, webhooksReason, 0, 0},
		"a policy without a reason":        {422, metav1.StatusReasonInvalid, 0, 0},
		"a quota, a policy, a role":        {403, metav1.StatusReasonForbidden, 0, 0},
		"a webhook with its own code":      {418, metav1.StatusReasonUnknown, 0, 0},
		"a bad request":                    {400, metav1.StatusReasonBadRequest, 0, 0},
		"a method that is not allowed":     {405, metav1.StatusReasonMethodNotAllowed, 0, 0},
		"an object that is too large":      {413, metav1.StatusReasonRequestEntityTooLarge, 0, 0},
		"credentials, or a policy":         {401, metav1.StatusReasonUnauthorized, 5 * time.Second, 0},
		"a webhook that is down":           {500, metav1.StatusReasonInternalError, 5 * time.Second, never},
		"a webhook that is slow":           {504, metav1.StatusReasonTimeout, 5 * time.Second, never},
		"the API server asks for a retry":  {500, metav1.StatusReasonServerTimeout, 5 * time.Second, never},
		"an API server that is busy":       {429, metav1.StatusReasonTooManyRequests, never, never},
		"an API server that is away":       {503, metav1.StatusReasonServiceUnavailable, never, never},
		"an object of that name exists":    {409, metav1.StatusReasonAlreadyExists, never, never},
		"a conflict":                       {409, metav1.StatusReasonConflict, never, never},
		"no object":                        {404, metav1.StatusReasonNotFound, never, never},
	} {
		t.Run(name, func(t *testing.T) {
			answer := &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: int32(row.code), Reason: row.reason, Message: "the words of the API server",
			}}
			if row.reason == webhooksReason {
				answer.ErrStatus.Message = `admission webhook "w.example.com" denied the request: ` + answer.ErrStatus.Message
			}
			ref := kube.Ref{Namespace: "shop", Name: "s"}
			for _, tried := range []time.Duration{0, 5 * time.Second} {
				fails := func(as func(context.Context) error) (kind string, err error) {
					act := func(ctx context.Context, _ string) (string, error) { return "", as(ctx) }
					_, err = activitiestest.ExecuteActivity[string](
						t,
						act,
						"",
						activitiestest.Worker{AttemptDelay: tried}.ExecuteActivity,
					)
					kind, _ = activitiestest.FailureTypeOf(t, err)
					return kind, err
				}
				isDue := func(after time.Duration) bool { return after != never && tried >= after }
				wrote, err := fails(
					func(ctx context.Context) error {
						return kube.ClassifyWriteError(ctx, ref, fmt.Errorf("write: %w", answer))
					},
				)
				assert.Equal(t, isDue(row.refusedAfter), wrote == kube.FailureTypeRefused, "%s after %v", wrote, tried)
				if wrote == kube.FailureTypeRefused || wrote == kube.FailureTypeInternal {
					assert.ErrorContains(t, err, "write: "+answer.ErrStatus.Message)
				}
				asked, err := fails(
					func(ctx context.Context) error { return kube.ClassifyTargetError(ctx, fmt.Errorf("ask: %w", answer)) },
				)
				assert.Equal(t, isDue(row.deniedAfter), asked == kube.FailureTypeDenied, "%s after %v", asked, tried)
				assert.ErrorContains(t, err, "ask: "+answer.ErrStatus.Message)
				secret, err := fails(
					func(ctx context.Context) error { return kube.ClassifySecretError(ctx, ref, "make the Secret", answer) },
				)
				assert.Equal(t, isDue(row.refusedAfter), secret == kube.FailureTypeRefused, "%s after %v", secret, tried)
				assert.NotContains(t, err.Error(), "the words of the API server", "a webhook may quote the Secret")
			}
		})
	}
}
