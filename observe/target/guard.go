package target

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The limits of a guard.
const (
	// headerTimeout is how long an API server may take until it sends the header of the answer to a read request. Source:
	// five times the time of a slow list; a watch sends its header at once.
	headerTimeout = 10 * time.Second
	// readTimeout is how long a read request without watch may take. Source: far longer than the list of 5,000 nodes.
	readTimeout = time.Minute
	// writeTimeout is how long a write request may take. Source: an API server ends a request after 60 s.
	writeTimeout = 65 * time.Second
	// maxOpenRequests is the maximum number of requests without watches that a client has open at a time. Source: a
	// quarter of the activities that a worker runs at a time, so that one target cannot use all of them.
	maxOpenRequests = 50
	// maxAnswerBytes is the maximum length of an answer without watch, in bytes after decompression. Source: twice the
	// list of 5,000 nodes.
	maxAnswerBytes = 64 << 20
	// maxProbeAnswerBytes is maxAnswerBytes for the request that checks whether an API server answers. Source: twice the
	// longest object that etcd stores.
	maxProbeAnswerBytes = 4 << 20
)

var (
	errTooManyRequests = fmt.Errorf("%d requests to the API server of the target cluster are open", maxOpenRequests)
	errHeaderTimeout   = fmt.Errorf("the API server has not answered within %s", headerTimeout)
	errAnswerTimeout   = errors.New("the API server has not completed its answer in time")
	errAnswerTooLong   = errors.New("the API server has sent a longer answer than Millwright reads")
)

// redirectError is the error of a request that an API server redirects. A guard follows no redirect, because the next
// server would get the token.
type redirectError struct{ statusCode int }

func (e redirectError) Error() string { return statusCodeText(e.statusCode) }

func statusCodeText(code int) string {
	return fmt.Sprintf("the API server answers %d %s", code, http.StatusText(code))
}

// requestGuard limits what a cluster's API server can cost this process, because the writer of a namespace's Secret
// chooses the API server. requestGuard also sets the token of each request. A guard is safe for concurrent use.
type requestGuard struct {
	token            atomic.Pointer[string] // token of the next request; nil or empty: the client has other credentials
	openRequestCount atomic.Int32           // open requests without watches
}

// wrapTransport wraps the transport of a client.
func (g *requestGuard) wrapTransport(next http.RoundTripper) http.RoundTripper {
	return guardTransport{next, g}
}

type guardTransport struct {
	next  http.RoundTripper
	guard *requestGuard
}

// RoundTrip implements http.RoundTripper.
func (t guardTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	isWatch := request.URL.Query().Get("watch") != ""
	leave, err := t.guard.beginRequest(isWatch)
	if err != nil {
		closeRequestBody(request)
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	timeout, late := headerTimeout, errHeaderTimeout
	if request.Method != http.MethodGet {
		timeout, late = writeTimeout, errAnswerTimeout
	}
	timer := time.AfterFunc(timeout, func() { cancel(late) })
	end := sync.OnceFunc(func() {
		timer.Stop()
		cancel(nil)
		leave()
	})
	request = request.Clone(ctx)
	if token := t.guard.token.Load(); token != nil && *token != "" {
		request.Header.Set("Authorization", "Bearer "+*token)
	}
	response, err := t.next.RoundTrip(request)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), late):
		err = late
	case err == nil && response.StatusCode/100 == 3 && response.StatusCode != http.StatusNotModified:
		_ = response.Body.Close() // The error is ignored: nobody reads the body.
		err = redirectError{response.StatusCode}
	}
	if err != nil {
		end()
		return nil, err
	}
	// A client waits for this time before it repeats the request; a target must not hold an activity.
	response.Header.Del("Retry-After")
	body := &guardedBody{ReadCloser: response.Body, ctx: ctx, onClose: end, remainingBytes: maxAnswerBytes}
	if isProbeContext(ctx) {
		body.remainingBytes = maxProbeAnswerBytes
	}
	switch {
	case isWatch:
		timer.Stop()
		body.remainingBytes = 0
	case request.Method == http.MethodGet:
		timer.Stop()
		timer = time.AfterFunc(readTimeout, func() { cancel(errAnswerTimeout) })
	}
	response.Body = body
	return response, nil
}

// beginRequest counts a request until leave is called. beginRequest returns an error if too many requests are open.
func (g *requestGuard) beginRequest(isWatch bool) (leave func(), err error) {
	if isWatch {
		return func() {}, nil
	}
	if g.openRequestCount.Add(1) > maxOpenRequests {
		g.openRequestCount.Add(-1)
		return nil, errTooManyRequests
	}
	return func() { g.openRequestCount.Add(-1) }, nil
}

func closeRequestBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close() // The error is ignored: nobody reads the body.
	}
}

// guardedBody is the body of an answer.
type guardedBody struct {
	io.ReadCloser

	ctx            context.Context // of the request
	onClose        func()
	remainingBytes int // bytes that may still come; 0: any number
}

// Read implements io.Reader.
func (b *guardedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err != nil && errors.Is(context.Cause(b.ctx), errAnswerTimeout):
		err = errAnswerTimeout
	case b.remainingBytes > n:
		b.remainingBytes -= n
	case b.remainingBytes > 0:
		err = errAnswerTooLong
	}
	return n, err //nolint:wrapcheck // the error of the body
}

// Close implements io.Closer.
func (b *guardedBody) Close() error {
	defer b.onClose()
	return b.ReadCloser.Close() //nolint:wrapcheck // the error of the body
}

func isCertificateError(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate)
}

// requestErrorText returns a sentence for the error of a request. The sentence contains no text of the API server,
// because the people who read the sentence trust this process.
func requestErrorText(err error) string {
	for _, known := range []error{errHeaderTimeout, errAnswerTimeout, errAnswerTooLong, errTooManyRequests} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	var (
		redirect redirectError
		network  *net.OpError
		status   apierrors.APIStatus
	)
	switch {
	case errors.As(err, &redirect):
		return redirect.Error()
	case errors.As(err, &status):
		return statusCodeText(int(status.Status().Code))
	case isCertificateError(err):
		return "the certificate of the API server cannot be verified"
	case errors.As(err, &network):
		return network.Error() // operation and address
	case errors.Is(err, context.DeadlineExceeded):
		return errAnswerTimeout.Error()
	default:
		return "the API server does not speak the protocol of Kubernetes"
	}
}
