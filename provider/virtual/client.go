package virtual

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"millwright/provider"
	"millwright/provider/driver"
)

// maxErrorBodyBytes is the maximum number of bytes that the client reads from the body of an error answer.
const maxErrorBodyBytes = 64 << 10

// session is a Driver with the credentials of one call. token is the bearer token.
type session struct {
	*Driver
	token string
}

// openSession returns a session for a class. If the class's Secret has no token, openSession returns Unauthenticated
// without sending a request.
func (d *Driver) openSession(class provider.Class) (*session, error) {
	token := strings.TrimSpace(string(class.Secret[SecretKeyToken]))
	if token == "" {
		return nil, provider.Errorf(
			provider.Unauthenticated,
			"the secret of machine class %s has no key %q",
			classTag(class),
			SecretKeyToken,
		)
	}
	return &session{Driver: d, token: token}, nil
}

// readAllPages reads all pages of a query. Found.Now is the cloud's clock at the first page: the data of later pages
// are at least as recent.
func (s *session) readAllPages(ctx context.Context, path string, query url.Values) (driver.SearchResult, error) {
	var found driver.SearchResult
	for {
		var answer ReadAnswer
		if err := s.sendRequest(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &answer); err != nil {
			return driver.SearchResult{}, err
		}
		if found.Now.IsZero() {
			found.Now = answer.Now
		}
		for _, item := range answer.Items {
			found.Instances = append(found.Instances, toProviderInstance(item))
		}
		if answer.NextPage == "" {
			return found, nil
		}
		query.Set("page", answer.NextPage)
	}
}

// sendRequest sends one request and decodes the answer into out; if out is nil, sendRequest discards the answer. An
// error of the cloud or of the network is a *provider.Error.
func (s *session) sendRequest(ctx context.Context, method, path string, in, out any) error {
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
	answer, err := s.httpClient.Do(request)
	if err != nil {
		return unreachableError(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusMultipleChoices {
		return errorFromAnswer(answer)
	}
	if out == nil {
		_, _ = io.Copy(io.Discard, answer.Body) // if the body is not read, the connection cannot be reused
		return nil
	}
	if err := json.NewDecoder(answer.Body).Decode(out); err != nil {
		return unreachableError(err)
	}
	return nil
}

// errorFromAnswer converts an answer with an HTTP error status to an error.
func errorFromAnswer(answer *http.Response) error {
	var told ErrorAnswer
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorBodyBytes))
	if err != nil || json.Unmarshal(body, &told) != nil || told.Code == "" {
		return provider.Errorf(codeFromHTTPStatus(answer.StatusCode), "the cloud answered HTTP %d", answer.StatusCode)
	}
	if told.Reason == ReasonExpired {
		return driver.ExpiredError(told.Message)
	}
	return &provider.Error{
		Code:       provider.ParseCode(told.Code),
		Message:    told.Message,
		RetryAfter: time.Duration(told.RetryAfter),
	}
}

// unreachableError returns the Unavailable error for a failed connection.
func unreachableError(err error) error {
	return &provider.Error{Code: provider.Unavailable, Message: "the cloud cannot be reached or broke off", Cause: err}
}
