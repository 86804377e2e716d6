package problems

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Watch makes the clients of a config report the answers of the API server to the Recorder.
func (r *Recorder) Watch(config *rest.Config, system System) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next, r, system} })
}

// transport reports the answers to requests.
type transport struct {
	next     http.RoundTripper
	recorder *Recorder
	system   System
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil && response.StatusCode < http.StatusBadRequest && t.recorder.isEmpty() {
		return response, nil
	}
	k, ok := t.keyOf(request)
	all := key{system: t.system} // all requests to the system
	switch {
	case !ok:
	case errors.Is(err, context.Canceled): // nobody waits for the answer any more
	case errors.Is(err, context.DeadlineExceeded):
		t.recorder.fail(k, Failing, "no answer in time")
	case err != nil:
		t.recorder.fail(all, Unanswered, err.Error())
	default:
		if kind, words := problemOf(k, response); kind != "" {
			t.recorder.succeed(all)
			t.recorder.fail(k, kind, words)
		} else {
			t.recorder.succeed(all, k)
		}
	}
	return response, err
}

// Verbs of requests for a whole resource and for one object. A watch begins with a list, and needs both rights.
const (
	verbWatch = "watch"
	verbGet   = "get"
)

// keyOf returns the key of a request. ok is false if the request is for no resource.
func (t transport) keyOf(request *http.Request) (k key, ok bool) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	// the address of an API server may have a path of its own
	begin := slices.IndexFunc(parts, func(part string) bool { return part == "api" || part == "apis" })
	if begin < 0 {
		return k, false
	}
	group, rest := "", parts[begin+1:]
	if parts[begin] == "apis" && len(rest) > 0 {
		group, rest = "."+rest[0], rest[1:]
	}
	if len(rest) < 2 { // the first part is the version
		return k, false
	}
	rest = rest[1:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		rest = rest[2:]
	}
	k = key{system: t.system, resource: rest[0] + group}
	if len(rest) > 2 {
		k.resource += "/" + rest[2]
	}
	k.verb = map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[request.Method]
	if request.Method == http.MethodGet {
		if k.verb = verbGet; len(rest) == 1 {
			k.verb = verbWatch
		}
	}
	return k, k.verb != ""
}

// isRead reports whether requests of the key only read. No admission plugin judges reads.
func (k key) isRead() bool { return k.verb == verbGet || k.verb == verbWatch }

// problemOf returns the problem of an answer, with the API server's words; an empty kind if the answer is no problem of
// the process. An answer that concerns one object is no problem of the process: the object shows it.
func problemOf(k key, response *http.Response) (kind Kind, words string) {
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized:
		kind = Refused
	case code == http.StatusForbidden:
		// An admission plugin answers 403, too. Only an authorizer's answer has these words.
		if words = messageOf(response); !k.isRead() && !strings.Contains(words, " cannot "+k.verb+" resource ") {
			return "", ""
		}
		kind = Refused
	case code == http.StatusNotFound && k.verb == verbWatch && k.resource != "poddisruptionbudgets.policy":
		kind = Unserved // a target without policy/v1 has no budgets, and Millwright knows that
	case strings.HasSuffix(k.resource, "/eviction"): // a budget answers 429, and two budgets of one pod answer 500
		return "", ""
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		kind = Failing
	case code >= http.StatusInternalServerError && k.isRead(): // the object of a write shows the API server's words
		kind = Failing
	default:
		return "", ""
	}
	if strings.HasPrefix(k.resource, "secrets") && !k.isRead() { // an admission webhook may quote what it has seen
		return kind, fmt.Sprintf("the API server answered %s", response.Status)
	}
	return kind, cmp.Or(words, messageOf(response), response.Status)
}

// maxAnswer is the length of an answer that messageOf reads, in bytes. Source: an answer with an error has some hundred
// bytes.
const maxAnswer = 64 << 10

// messageOf returns the message of an answer with an error. The body of the answer can still be read afterwards.
func messageOf(response *http.Response) string {
	body := response.Body
	data, _ := io.ReadAll(io.LimitReader(body, maxAnswer)) // the reader of the body meets the error, too
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), body), body}
	answer, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if status, is := answer.(*metav1.Status); err == nil && is {
		return status.Message
	}
	return string(data)
}

// WatchTemporal is an interceptor that reports the answers of Temporal to the Recorder.
func (r *Recorder) WatchTemporal(
	ctx context.Context,
	method string,
	request, reply any,
	connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	err := invoke(ctx, method, request, reply, connection, options...)
	if err == nil && r.isEmpty() {
		return nil
	}
	k, status := key{system: Temporal, verb: path.Base(method)}, serviceerror.ToStatus(err)
	_, isNamespaceGone := errors.AsType[*serviceerror.NamespaceNotFound](serviceerror.FromStatus(status))
	switch code := status.Code(); {
	case isNamespaceGone, code == codes.PermissionDenied, code == codes.Unauthenticated:
		r.fail(k, Refused, status.Message())
	case code == codes.ResourceExhausted:
		r.fail(k, Failing, status.Message())
	case code == codes.Unavailable, code == codes.DeadlineExceeded, code == codes.Canceled: // Temporal has not answered
	default:
		r.succeed(k)
	}
	return err
}
