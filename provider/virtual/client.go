package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"millwright/provider"
)

// maxErrorBody is how many bytes of an error answer are read.
const maxErrorBody = 64 << 10

// session is the client with the credentials of one call.
type session struct {
	*Provider
	class  string // tag of the instances of the class
	secret provider.Secret
	token  string
}

// open returns a session for a class. It returns Unauthenticated, without a request, if the class's Secret has no token.
func (p *Provider) open(class provider.Class) (*session, error) {
	token := strings.TrimSpace(string(class.Secret[SecretToken]))
	if token == "" {
		return nil, provider.Errorf(provider.Unauthenticated, "the secret of machine class %s has no key %q", classTag(class), SecretToken)
	}
	return &session{Provider: p, class: classTag(class), secret: class.Secret, token: token}, nil
}

// list reads the instances of a cluster and class.
func (s *session) list(ctx context.Context, cluster, class string) (ReadAnswer, error) {
	query := url.Values{"cluster": {cluster}, "class": {class}}
	var answer ReadAnswer
	err := s.do(ctx, http.MethodGet, PathInstances+"?"+query.Encode(), nil, &answer)
	return answer, err
}

// lookup reads the instances of a query.
func (s *session) lookup(ctx context.Context, query url.Values) (ReadAnswer, error) {
	var answer ReadAnswer
	err := s.do(ctx, http.MethodGet, PathLookup+"?"+query.Encode(), nil, &answer)
	return answer, err
}

// limits reads what the cloud documents about itself. It is read each time, since the cloud may change it.
func (s *session) limits(ctx context.Context) (Limits, error) {
	var limits Limits
	err := s.do(ctx, http.MethodGet, PathLimits, nil, &limits)
	return limits, err
}

// do sends one request and decodes the answer into out, if that is not nil. Every error is an *Error or an *answerError.
func (s *session) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.address+path, body)
	if err != nil {
		return &provider.Error{Code: provider.InvalidArgument, Message: "the address of the cloud is malformed", Cause: err}
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := s.http.Do(request)
	if err != nil {
		return transportError(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusMultipleChoices {
		return s.refusal(answer)
	}
	if out == nil {
		_, _ = io.Copy(io.Discard, answer.Body) // otherwise the connection could not be reused
		return nil
	}
	if err := json.NewDecoder(answer.Body).Decode(out); err != nil {
		return transportError(ctx, err)
	}
	return nil
}

// answerError is an error answer of the cloud, with the parts that only this client needs.
type answerError struct {
	typed  *provider.Error
	reason string
}

// Error implements error.
func (e *answerError) Error() string { return e.typed.Error() }

// Unwrap returns the typed error.
func (e *answerError) Unwrap() error { return e.typed }

func (s *session) refusal(answer *http.Response) error {
	var told ErrorAnswer
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorBody))
	if err != nil || json.Unmarshal(body, &told) != nil || told.Code == "" {
		return provider.Errorf(codeOfStatus(answer.StatusCode), "the cloud answered HTTP %d", answer.StatusCode)
	}
	return &answerError{
		typed: &provider.Error{
			Code:       provider.ParseCode(told.Code),
			Message:    s.secret.Redact(told.Message),
			RetryAfter: time.Duration(told.RetryAfter),
		},
		reason: told.Reason,
	}
}

// transportError returns the typed error of a failed connection. The end of the context has precedence, since it closes the
// connection.
func transportError(ctx context.Context, err error) *provider.Error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return &provider.Error{Code: provider.Canceled, Message: "the call was canceled", Cause: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return &provider.Error{Code: provider.DeadlineExceeded, Message: "the cloud did not answer before the deadline", Cause: err}
	default:
		return &provider.Error{Code: provider.Unavailable, Message: "the cloud cannot be reached or broke off", Cause: err}
	}
}

// describe adds to the message of err what was tried, and keeps its other fields.
func describe(err error, format string, args ...any) *provider.Error {
	said := provider.Error{Code: provider.CodeOf(err), Message: "the call failed"}
	if typed, ok := errors.AsType[*provider.Error](err); ok {
		said = *typed
	}
	said.Cause = err
	said.Message = fmt.Sprintf(format, args...) + ": " + said.Message
	return &said
}

// isExpired reports whether the cloud refused a create request because it came too late, and so created nothing.
func isExpired(err error) bool {
	refused, ok := errors.AsType[*answerError](err)
	return ok && refused.reason == ReasonExpired
}

func sortByProviderID(instances []provider.Instance) {
	slices.SortFunc(instances, func(a, b provider.Instance) int { return strings.Compare(a.ProviderID, b.ProviderID) })
}
