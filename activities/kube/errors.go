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
	"millwright/api/vocabulary"
	"millwright/decide/phrase"
	"millwright/provider"
)

// Types of failures that workflows distinguish. Workflow histories contain these types: add types, but never change
// one.
const (
	FailureTypeObjectGone  = "ObjectGone"  // the object is gone, or another object has its name
	FailureTypeCacheBehind = "CacheBehind" // the caches have not reached the required versions yet
	// the object differs from the object that the decision saw, so the workflow decides again
	FailureTypeConflict    = "Conflict"
	FailureTypeRefused     = "Refused"     // the API server refuses the write, now and on each retry
	FailureTypeOldCRDs     = "OldCRDs"     // the API server dropped a field, because CRDs of an older version are installed
	FailureTypeTerminating = "Terminating" // the deletion of the instance is in progress
	FailureTypeRewound     = "Rewound"     // the API server was restored to a state that is older than the required versions
	FailureTypeDenied      = "Denied"      // the API server denies permission for the request
	FailureTypeInternal    = "Internal"    // the API server answers with an internal error, which may be temporary
	// the bootstrap token of the attempt is no longer usable, so the workflow starts another attempt
	FailureTypeTokenGone = "TokenGone"
	// the worker already makes as many calls of a provider for the namespace as it may
	FailureTypeNamespaceBusy = "NamespaceBusy"
	// a call of a provider has a problem; the detail of the failure is the answer of the call, with the problem
	FailureTypeProblem = "Problem"
)

// benignFailure returns a failure that raises no alarm. If final is true, the failure is not retried.
func benignFailure(kind, message string, final bool) error {
	return temporal.NewApplicationErrorWithOptions(message, kind,
		temporal.ApplicationErrorOptions{NonRetryable: final, Category: temporal.ApplicationErrorCategoryBenign})
}

// ObjectGoneError is the failure of an activity whose object is gone.
func ObjectGoneError(ref Ref) error {
	return benignFailure(FailureTypeObjectGone, "object "+ref.Key()+" is gone", true)
}

// CacheBehindError is the failure of an attempt whose caches are behind. The next attempt reads from the API server, or
// finds caches that are up to date.
func CacheBehindError(message string) error {
	return benignFailure(FailureTypeCacheBehind, message, false)
}

// ConflictError is the failure of a write if the object differs from the object that the decision saw.
func ConflictError(ref Ref) error {
	return benignFailure(FailureTypeConflict, "object "+ref.Key()+" changed since it was read", true)
}

// ReasonTokenGone is the reason of the Problem of an attempt whose bootstrap token is no longer usable.
const ReasonTokenGone = FailureTypeTokenGone

// TokenNeededError is the failure of a create call that had no bootstrap token, although the user data has a
// placeholder for a token. After this failure, the workflow makes a new decision.
func TokenNeededError(class string) error {
	return benignFailure(
		FailureTypeConflict,
		"the user data of MachineClass "+class+" has a place for a bootstrap token by now",
		true,
	)
}

// ProblemError is the failure of a provider call with a problem that the workflow does not show yet. answer is the
// answer of the call. The failure is final, because the workflow shows the problem before the next call.
func ProblemError(problem Problem, answer any) error {
	return temporal.NewApplicationErrorWithOptions(
		problem.Message+" ("+problem.Reason+")",
		FailureTypeProblem,
		temporal.ApplicationErrorOptions{
			NonRetryable: true, Category: temporal.ApplicationErrorCategoryBenign, Details: []any{answer},
		},
	)
}

// TokenGoneError is the failure of a creation whose bootstrap token is no longer usable.
func TokenGoneError(message string) error { return benignFailure(FailureTypeTokenGone, message, true) }

// MaxConflictRetries is how often one attempt of an activity reads an object again after a write conflict. After
// MaxConflictRetries reads, the back-off of the retry policy applies, so that an object that changes all the time does
// not cause endless requests.
const MaxConflictRetries = 3

// RepeatedConflictError is the failure of an attempt whose writes all met a conflict. RepeatedConflictError is
// retryable, unlike ConflictError, because the decision is still valid.
func RepeatedConflictError(ref Ref) error {
	return benignFailure(
		FailureTypeConflict,
		fmt.Sprintf("object %s changed %d times while it was written", ref.Key(), MaxConflictRetries),
		false,
	)
}

// RefusedError is the failure of a request that the API server rejects, now and on each retry.
func RefusedError(message string) error {
	return temporal.NewApplicationErrorWithOptions(
		ShortenMessage(message),
		FailureTypeRefused,
		temporal.ApplicationErrorOptions{NonRetryable: true},
	)
}

// FailureOfType returns the failure of an activity if the failure has this type.
func FailureOfType(err error, kind string) (failure *temporal.ApplicationError, is bool) {
	is = errors.As(err, &failure) && failure.Type() == kind
	return failure, is
}

// ShortenMessage truncates a text to the maximum length of a message in a status or a workflow history.
func ShortenMessage(text string) string { return phrase.TruncateMessage(text) }

// internalErrorRetryTime is how long an activity is retried while the API server answers with an internal error (500);
// see ADR 0101. Source: a leader election of etcd takes about one second; three seconds leave time for three retries.
const internalErrorRetryTime = 3 * time.Second

// isInternalErrorRetryOver reports whether this attempt of an activity began more than internalErrorRetryTime after the
// first attempt was due. If an admission webhook is down, the API server answers 500 until somebody repairs the
// webhook. The API server also answers 500 to an object that is too large for etcd. Only the elapsed time distinguishes
// a lasting internal error from a temporary one.
func isInternalErrorRetryOver(ctx context.Context) bool {
	if !activity.IsActivity(ctx) {
		return false
	}
	info := activity.GetInfo(ctx)
	return info.StartedTime.Sub(info.ScheduledTime) > internalErrorRetryTime
}

// mayBeTransientError reports whether an error may be temporary. Such an error is an internal error, a timeout (also of
// an admission webhook), or a refusal of credentials that are being renewed.
func mayBeTransientError(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsUnauthorized(err)
}

func isDeniedByWebhook(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && phrase.IsWebhookDenial(answer.Status().Message)
}

// ClassifyWriteError turns the API server's answer to a write into a failure that workflows distinguish.
// ClassifyWriteError returns a failure of type FailureTypeRefused if RefusalMessage returns a message for the error. A
// temporary error becomes a refusal if the attempt began more than three seconds after the first attempt was due. The
// API server may have applied a write although it answered with an error, so the next decision reads from the API
// server.
func ClassifyWriteError(ctx context.Context, ref Ref, err error) error {
	switch {
	case err == nil:
		return nil
	case RefusalMessage(ctx, err) != "":
		return RefusedError(err.Error())
	case apierrors.IsNotFound(err):
		return ObjectGoneError(ref)
	case apierrors.IsConflict(err):
		return ConflictError(ref)
	case mayBeTransientError(err):
		return benignFailure(FailureTypeInternal, ShortenMessage(err.Error()), false)
	default:
		return err
	}
}

// RefusalMessage returns the API server's message if ClassifyWriteError reports the write as refused. RefusalMessage
// returns "" if the error may be temporary or needs a new decision, or if the API server is too busy or does not
// answer. A denial by an admission webhook is a refusal, whatever status code the webhook returns.
func RefusalMessage(ctx context.Context, err error) string {
	var status apierrors.APIStatus
	switch {
	case isDeniedByWebhook(err):
		return ShortenMessage(err.Error())
	case !errors.As(err, &status), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err),
		apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err),
		mayBeTransientError(err) && !isInternalErrorRetryOver(ctx):
		return ""
	default:
		return ShortenMessage(err.Error())
	}
}

// ClassifySecretError does the same as ClassifyWriteError for a Secret, but without the API server's message (see
// ErrorWithoutMessage).
func ClassifySecretError(ctx context.Context, ref Ref, doing string, err error) error {
	switch wordless := ErrorWithoutMessage(doing, err); {
	case RefusalMessage(ctx, err) != "":
		return RefusedError(wordless.Error())
	case apierrors.IsConflict(err):
		return ConflictError(ref)
	default:
		return wordless
	}
}

// ClassifyTargetError sets the failure type of an error that the API server of a target cluster returned. A refused
// request gets FailureTypeDenied and is retried, because people may grant the permission, or change the policy or
// webhook that refuses. An internal error is handled as in ClassifyWriteError. ClassifyTargetError returns other errors
// and nil unchanged.
func ClassifyTargetError(ctx context.Context, err error) error {
	switch {
	case apierrors.IsUnauthorized(err), isDeniedByWebhook(err):
		return benignFailure(FailureTypeDenied, ShortenMessage(err.Error()), false)
	case mayBeTransientError(err):
		return ClassifyWriteError(ctx, Ref{}, err)
	case RefusalMessage(ctx, err) != "":
		return benignFailure(FailureTypeDenied, ShortenMessage(err.Error()), false)
	default:
		return err
	}
}

// IsNotFoundAnswer reports whether an API server answered that an object does not exist. Another 404 proves nothing
// about the object: the resource type may not exist, or a proxy in front of the API server sent the answer.
func IsNotFoundAnswer(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// HasNoServerAnswer reports whether a request failed without an answer of the API server.
func HasNoServerAnswer(err error) bool {
	var status apierrors.APIStatus
	return err != nil && !errors.As(err, &status)
}

// ErrorWithoutMessage returns the error of a request about a Secret without the API server's message, but with its code
// and reason. The message may quote the Secret, because an admission webhook has seen the Secret.
func ErrorWithoutMessage(doing string, err error) error {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: the API server answered %d %s", doing, answer.Status().Code, answer.Status().Reason)
}

// Problem describes why a step cannot be done. The machine's condition shows the Problem to people.
type Problem struct {
	Reason  string // condition reason or name of a provider code
	Message string
	React   Reaction
	After   time.Duration // delay that the cloud requested; zero: no request

	Failures int // failed calls in a row; only the back-off depends on Failures
}

// NewClassProblem is a problem of a class or its Secret. People have to fix the class or the Secret.
func NewClassProblem(reason, format string, words ...any) *Problem {
	return &Problem{Reason: reason, React: ReactionUntilCredentialChange, Message: fmt.Sprintf(format, words...)}
}

// NewClassNotFoundProblem is the problem of a machine whose class does not exist.
func NewClassNotFoundProblem(namespace, name string) *Problem {
	return NewClassProblem(v1alpha1.ReasonClassNotFound, "MachineClass %s does not exist in namespace %s", name, namespace)
}

// NewTargetProblem is the problem of a machine whose node cannot join, because the target cluster of the machine's
// namespace is not connected. The worker connects as soon as the Secret and the API server allow it.
func NewTargetProblem(message string) *Problem {
	return &Problem{
		Reason:  vocabulary.BlockedByUnavailableTarget,
		React:   ReactionUntilCredentialChange,
		Message: message,
	}
}

// NewTargetTimeoutProblem is the problem of a call that had to wait for the target cluster of the machine's namespace.
// The call is made again after a back-off.
func NewTargetTimeoutProblem(message string) *Problem {
	return &Problem{Reason: vocabulary.BlockedByUnavailableTarget, React: ReactionRetry, Message: message, Failures: 1}
}

// NewNoAnswerProblem is the problem of a provider that has not answered in time, or whose task queue no worker serves.
func NewNoAnswerProblem(message string) *Problem {
	return &Problem{
		Reason:   provider.DeadlineExceeded.String(),
		Message:  message,
		React:    ReactionToCode(provider.DeadlineExceeded),
		Failures: 1,
	}
}

// Reaction is how Millwright reacts to an error code of a provider.
type Reaction string

// Reactions to error codes.
const (
	ReactionRetry                 Reaction = "Retry"           // back off for a short time
	ReactionRetryLong             Reaction = "RetryLong"       // back off for a long time, for quota or capacity
	ReactionUntilSpecChange       Reaction = "UntilSpec"       // stop until the spec of the machine or class changes
	ReactionUntilCredentialChange Reaction = "UntilCredential" // stop until the class or its Secret changes
)

// ReactionToCode is the only table from codes to reactions. docs/provider.md shows the table.
func ReactionToCode(code provider.Code) Reaction {
	switch code {
	case provider.ResourceExhausted:
		return ReactionRetryLong
	case provider.InvalidArgument,
		provider.FailedPrecondition,
		provider.OutOfRange,
		provider.Unimplemented,
		provider.AlreadyExists:
		return ReactionUntilSpecChange
	case provider.PermissionDenied, provider.Unauthenticated:
		return ReactionUntilCredentialChange
	case provider.OK, provider.Canceled, provider.Unknown, provider.DeadlineExceeded, provider.NotFound, provider.Aborted,
		// Retry also applies to the codes below and to unknown codes, because these errors may be temporary.
		provider.Internal, provider.Unavailable, provider.DataLoss, provider.NotInitialized:
	}
	return ReactionRetry
}

// StartHeartbeats sends a heartbeat every HeartbeatInterval until stop is called. Heartbeats let Temporal cancel a long
// call and notice a dead worker.
func StartHeartbeats(ctx context.Context, details ...any) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		_ = wait.PollUntilContextCancel(ctx, HeartbeatInterval, false, func(ctx context.Context) (bool, error) {
			activity.RecordHeartbeat(ctx, details...)
			return false, nil
		}) // the poll stops when ctx is cancelled
	}()
	return stop
}
