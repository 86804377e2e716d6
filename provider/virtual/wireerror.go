package virtual

import (
	"net/http"

	"millwright/provider"
)

// statusNotInitialized is the HTTP status for the code NotInitialized: 425, Too Early.
const statusNotInitialized = http.StatusTooEarly

// statusClientClosedRequest is nginx's HTTP status for a cancelled request; net/http has no constant for 499.
const statusClientClosedRequest = 499

// ReasonExpired is the reason in the answer to a create request that arrived after its NotAfter. The expired request
// creates no instance.
const ReasonExpired = "Expired"

// ErrorAnswer is the body of every error answer. Clients use the field Code; the HTTP status is for proxies and people.
type ErrorAnswer struct {
	Code       string   `json:"code"` // name of a provider.Code, such as NotFound
	Message    string   `json:"message"`
	Reason     string   `json:"reason,omitempty"` // distinguishes the meanings of an ambiguous code
	RetryAfter Duration `json:"retryAfter,omitempty"`
}

// HTTPStatus returns the HTTP status with which the cloud answers for a code.
func HTTPStatus(code provider.Code) int {
	switch code {
	case provider.OK:
		return http.StatusOK
	case provider.Canceled:
		return statusClientClosedRequest
	case provider.InvalidArgument:
		return http.StatusBadRequest
	case provider.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case provider.NotFound:
		return http.StatusNotFound
	case provider.AlreadyExists, provider.Aborted, provider.OutOfRange:
		return http.StatusConflict
	case provider.PermissionDenied:
		return http.StatusForbidden
	case provider.ResourceExhausted:
		return http.StatusTooManyRequests
	case provider.FailedPrecondition:
		return http.StatusPreconditionFailed
	case provider.Unimplemented:
		return http.StatusNotImplemented
	case provider.Unavailable:
		return http.StatusServiceUnavailable
	case provider.Unauthenticated:
		return http.StatusUnauthorized
	case provider.NotInitialized:
		return statusNotInitialized
	default: // Unknown, Internal, DataLoss
		return http.StatusInternalServerError
	}
}

// codeFromHTTPStatus returns the code for an answer whose body is not an ErrorAnswer, such as an answer of a proxy.
func codeFromHTTPStatus(status int) provider.Code {
	switch status {
	case http.StatusBadRequest:
		return provider.InvalidArgument
	case http.StatusUnauthorized:
		return provider.Unauthenticated
	case http.StatusForbidden:
		return provider.PermissionDenied
	case http.StatusTooManyRequests:
		return provider.ResourceExhausted
	case http.StatusGatewayTimeout:
		return provider.DeadlineExceeded
	case http.StatusNotImplemented:
		return provider.Unimplemented
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return provider.Unavailable
	default:
		// 404 must not become NotFound: if the address of the cloud is wrong, all instances would seem to be deleted.
		return provider.Unknown
	}
}
