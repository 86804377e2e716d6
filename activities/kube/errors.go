package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
	"millwright/provider"
)

// The types of failures that workflows distinguish. They are in histories: append only.
const (
	TypeObjectGone  = "ObjectGone"  // the object does not exist any more, or another one has its name
	TypeCacheBehind = "CacheBehind" // the caches have not reached the versions yet
	TypeConflict    = "Conflict"    // the object is not as the decision saw it: decide again
	TypeRefused     = "Refused"     // the API server refuses this write, now and later
	TypeOldCRDs     = "OldCRDs"     // the API server dropped a field: CRDs of an older version are installed
	TypeTerminating = "Terminating" // the instance's deletion is under way
	TypeRewound     = "Rewound"     // the API server is older than the versions to wait for: it was restored
	TypeDenied      = "Denied"      // the API server does not let us do it
	TypeInternal    = "Internal"    // the API server answers with an internal error, which may pass
	TypeTokenGone   = "TokenGone"   // the bootstrap token of this attempt cannot be used any more: begin another attempt
)

// benign returns a failure that raises no alarm. A final one is not retried.
func benign(kind, message string, final bool) error {
	return temporal.NewApplicationErrorWithOptions(message, kind,
		temporal.ApplicationErrorOptions{NonRetryable: final, Category: temporal.ApplicationErrorCategoryBenign})
}

// ObjectGone is the failure of an activity whose object does not exist any more.
func ObjectGone(ref Ref) error { return benign(TypeObjectGone, "object "+ref.Key()+" is gone", true) }

// CacheBehind is the failure of an attempt whose caches are behind; the next one reads live or finds them newer.
func CacheBehind(message string) error { return benign(TypeCacheBehind, message, false) }

// Conflict is the failure of a write whose object is not as the decision saw it.
func Conflict(ref Ref) error {
	return benign(TypeConflict, "object "+ref.Key()+" changed since it was read", true)
}

// ReasonTokenGone is the reason of the Problem of an attempt whose bootstrap token cannot be used any more.
const ReasonTokenGone = TypeTokenGone

// TokenNeeded is the failure of a creation without a bootstrap token whose user data has a place for one by now: decide
// again.
func TokenNeeded(class string) error {
	return benign(TypeConflict, "the user data of MachineClass "+class+" has a place for a bootstrap token by now", true)
}

// TokenGone is the failure of a creation whose bootstrap token cannot be used any more.
func TokenGone(message string) error { return benign(TypeTokenGone, message, true) }

// MaxConflicts is how often one attempt of an activity reads again because another writer was faster. After that the
// retry policy waits, so that an object that is written all the time does not cause requests without end.
const MaxConflicts = 3

// Contended is the failure of an attempt that met a faster writer each time. Unlike Conflict it does not doubt the
// decision: the same activity is retried.
func Contended(ref Ref) error {
	return benign(
		TypeConflict,
		fmt.Sprintf("object %s changed %d times while it was written", ref.Key(), MaxConflicts),
		false,
	)
}

// Refused is the failure of a request that an API server rejects, now and later.
func Refused(message string) error {
	return temporal.NewApplicationErrorWithOptions(
		Brief(message),
		TypeRefused,
		temporal.ApplicationErrorOptions{NonRetryable: true},
	)
}

// Failure returns the failure of an activity if it has this type.
func Failure(err error, kind string) (failure *temporal.ApplicationError, is bool) {
	is = errors.As(err, &failure) && failure.Type() == kind
	return failure, is
}

// Brief cuts a text to the length that a status or a history holds.
func Brief(text string) string { return phrase.Message(text) }

// insistFor is how long an activity is tried again while an API server answers with an internal error (500): ADR 0101.
// Source: an election of etcd takes about a second; three retries fit in.
const insistFor = 3 * time.Second

// insisted reports whether this attempt of an activity began more than insistFor after the first one was due. An
// admission webhook that is down makes the API server answer 500 until somebody mends the webhook, and so does an
// object that is too large for etcd; only the time distinguishes these from an error that passes.
func insisted(ctx context.Context) bool {
	if !activity.IsActivity(ctx) {
		return false
	}
	info := activity.GetInfo(ctx)
	return info.StartedTime.Sub(info.ScheduledTime) > insistFor
}

// internal is the failure of a request that an API server answers with an internal error.
func internal(ctx context.Context, err error) error {
	if insisted(ctx) {
		return Refused(err.Error())
	}
	return benign(TypeInternal, Brief(err.Error()), false)
}

// WriteError turns the API server's answer to a write into a failure that workflows distinguish. Other errors stay
// retryable. An internal error counts as a refusal in an attempt that began more than three seconds after the first one
// was due. The write may have been done: after a refusal the next decision reads from the API server.
func WriteError(ctx context.Context, ref Ref, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return ObjectGone(ref)
	case apierrors.IsConflict(err):
		return Conflict(ref)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err),
		apierrors.IsRequestEntityTooLargeError(err):
		return Refused(err.Error())
	case apierrors.IsInternalError(err):
		return internal(ctx, err)
	default:
		return err
	}
}

// RefusedWrite returns the words of the API server for a write that it rejected, as WriteError counts it; empty for an
// error that may pass or needs a new decision.
func RefusedWrite(ctx context.Context, err error) string {
	var status apierrors.APIStatus
	switch {
	case !errors.As(err, &status), apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsTooManyRequests(err),
		apierrors.IsInternalError(err) && !insisted(ctx), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return ""
	default:
		return Brief(err.Error())
	}
}

// Answered gives a type to the error of a request to a target cluster if the API server has answered. A request that it
// does not allow (401, 403) is TypeDenied, and is retried: people may grant the permission. An internal error is
// treated as in WriteError. Other errors, and nil, stay as they are.
func Answered(ctx context.Context, err error) error {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return benign(TypeDenied, Brief(err.Error()), false)
	case apierrors.IsInternalError(err):
		return internal(ctx, err)
	default:
		return err
	}
}

// Unanswered reports whether a request failed without an answer of the API server.
func Unanswered(err error) bool {
	var status apierrors.APIStatus
	return err != nil && !errors.As(err, &status)
}

// WithoutWords returns the error of a request about a Secret without the words of the API server, keeping its code and
// reason: an admission webhook has seen the Secret, and may quote it.
func WithoutWords(doing string, err error) error {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: the API server answered %d %s", doing, answer.Status().Code, answer.Status().Reason)
}

// Problem is why a step cannot be done, for people and for the machine's condition.
type Problem struct {
	Reason  string // a condition reason, or the name of a provider code
	Message string
	React   Reaction
	After   time.Duration // how long the cloud asked us to wait; zero: it did not ask

	Failures int // calls in a row that failed; only the back-off grows with it
}

// ClassProblem is a problem of a class or its Secret, which people have to fix.
func ClassProblem(reason, format string, words ...any) *Problem {
	return &Problem{Reason: reason, React: UntilCredential, Message: fmt.Sprintf(format, words...)}
}

// ClassNotFound is the problem of a machine whose class does not exist.
func ClassNotFound(namespace, name string) *Problem {
	return ClassProblem(v1alpha1.ReasonClassNotFound, "MachineClass %s does not exist in namespace %s", name, namespace)
}

// NoAnswer is the problem of a provider that has not answered in time, or whose task queue no worker serves.
func NoAnswer(message string) *Problem {
	return &Problem{
		Reason:   provider.DeadlineExceeded.String(),
		Message:  message,
		React:    ReactionTo(provider.DeadlineExceeded),
		Failures: 1,
	}
}

// Reaction is what Millwright does about an error code of a provider.
type Reaction string

// The reactions.
const (
	Retry           Reaction = "Retry"           // back off for a short time
	RetryLong       Reaction = "RetryLong"       // back off for a long time: quota or capacity
	UntilSpec       Reaction = "UntilSpec"       // stop until the machine's or class's spec changes
	UntilCredential Reaction = "UntilCredential" // stop until the class or its Secret changes
)

// ReactionTo is the only table from codes to reactions. docs/provider.md shows it.
func ReactionTo(code provider.Code) Reaction {
	switch code {
	case provider.ResourceExhausted:
		return RetryLong
	case provider.InvalidArgument,
		provider.FailedPrecondition,
		provider.OutOfRange,
		provider.Unimplemented,
		provider.AlreadyExists:
		return UntilSpec
	case provider.PermissionDenied, provider.Unauthenticated:
		return UntilCredential
	case provider.OK, provider.Canceled, provider.Unknown, provider.DeadlineExceeded, provider.NotFound, provider.Aborted,
		// these may pass, as any unknown code
		provider.Internal, provider.Unavailable, provider.DataLoss, provider.NotInitialized:
	}
	return Retry
}

// Beat sends a heartbeat every HeartbeatEvery until stop is called, so that a long call can be cancelled and a dead
// worker is noticed.
func Beat(ctx context.Context, details ...any) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		_ = wait.PollUntilContextCancel(ctx, HeartbeatEvery, false, func(ctx context.Context) (bool, error) {
			activity.RecordHeartbeat(ctx, details...)
			return false, nil
		}) // ends with ctx
	}()
	return stop
}
