package activities

import (
	"go.temporal.io/sdk/temporal"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/provider"
)

// The types of failures that workflows tell apart. They stand in histories: append only.
const (
	TypeObjectGone  = "ObjectGone"  // the object does not exist any more, or another one has its name
	TypeCacheBehind = "CacheBehind" // the caches have not reached the gate yet
	TypeConflict    = "Conflict"    // the object is not as the decision saw it: decide again
	TypeRefused     = "Refused"     // the API server will not take this write, now or later
	TypeTerminating = "Terminating" // the instance's deletion is under way
)

func objectGone(ref Ref) error {
	return temporal.NewApplicationErrorWithOptions("object "+ref.Key()+" is gone", TypeObjectGone,
		temporal.ApplicationErrorOptions{NonRetryable: true, Category: temporal.ApplicationErrorCategoryBenign})
}

func cacheBehind() error {
	return temporal.NewApplicationErrorWithOptions("caches are behind what woke us", TypeCacheBehind,
		temporal.ApplicationErrorOptions{Category: temporal.ApplicationErrorCategoryBenign})
}

func conflict(ref Ref) error {
	return temporal.NewApplicationErrorWithOptions("object "+ref.Key()+" changed since it was read", TypeConflict,
		temporal.ApplicationErrorOptions{NonRetryable: true, Category: temporal.ApplicationErrorCategoryBenign})
}

// writeError turns the API server's answer to a write into what workflows understand. Errors that may pass stay
// retryable.
func writeError(ref Ref, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return objectGone(ref)
	case apierrors.IsConflict(err):
		return conflict(ref)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return temporal.NewApplicationErrorWithOptions(err.Error(), TypeRefused, temporal.ApplicationErrorOptions{NonRetryable: true})
	default:
		return err
	}
}

// Reaction is what the core does about a provider's code.
type Reaction string

// The reactions.
const (
	Retry           Reaction = "Retry"           // back off shortly
	RetryLong       Reaction = "RetryLong"       // back off long: quota or capacity
	UntilSpec       Reaction = "UntilSpec"       // stop until the machine's or class's spec changes
	UntilCredential Reaction = "UntilCredential" // stop until the class or its Secret changes
)

// ReactionTo is the one table from codes to reactions. docs/provider.md shows it.
func ReactionTo(code provider.Code) Reaction {
	switch code {
	case provider.ResourceExhausted:
		return RetryLong
	case provider.InvalidArgument, provider.FailedPrecondition, provider.OutOfRange, provider.Unimplemented, provider.AlreadyExists:
		return UntilSpec
	case provider.PermissionDenied, provider.Unauthenticated:
		return UntilCredential
	case provider.OK, provider.Canceled, provider.Unknown, provider.DeadlineExceeded, provider.NotFound, provider.Aborted,
		provider.Internal, provider.Unavailable, provider.DataLoss, provider.NotInitialized:
		return Retry
	}
	return Retry
}

// providerError returns the error of a provider as a failure whose type is the code's name: short, without the cause's
// text, which may hold what nobody should read in a history.
func providerError(err error) error { return backOff(*problemOf(err)) }
