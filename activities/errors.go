package activities

import (
	"errors"
	"fmt"
	"strings"

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
	TypeOldCRDs     = "OldCRDs"     // the API server does not keep what was written: CRDs of an older version are installed
	TypeTerminating = "Terminating" // the instance's deletion is under way
	TypeTokenGone   = "TokenGone"   // the bootstrap token of this attempt cannot be used any more: begin another attempt
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

// ReasonTokenGone is the reason of the Problem that the bootstrap token of an attempt cannot be used any more.
const ReasonTokenGone = TypeTokenGone

func tokenGone(message string) error {
	return temporal.NewApplicationErrorWithOptions(message, TypeTokenGone,
		temporal.ApplicationErrorOptions{NonRetryable: true, Category: temporal.ApplicationErrorCategoryBenign})
}

// maxConflicts is how often one attempt of an activity reads again because another writer was faster. After that its retry
// policy waits: whatever writes an object all the time must not be answered by requests without end (D20).
const maxConflicts = 3

// contended is the failure of an attempt that met a faster writer each time. Unlike conflict it says nothing about a
// decision: the same activity is right to try again.
func contended(ref Ref) error {
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("object %s changed %d times while it was written", ref.Key(), maxConflicts),
		TypeConflict, temporal.ApplicationErrorOptions{Category: temporal.ApplicationErrorCategoryBenign})
}

// longestMessage bounds what others write into a failure, a status or an event, in bytes. Source: events hold 1 KiB.
const longestMessage = 1000

// brief cuts a text that is too long for a status or a history.
func brief(text string) string {
	if len(text) <= longestMessage {
		return text
	}
	return strings.ToValidUTF8(text[:longestMessage], "") + "…"
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
		return temporal.NewApplicationErrorWithOptions(brief(err.Error()), TypeRefused, temporal.ApplicationErrorOptions{NonRetryable: true})
	default:
		return err
	}
}

// unanswered reports whether a request failed without a word of an API server.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	return err != nil && !errors.As(err, &status)
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
