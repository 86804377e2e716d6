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
	"strconv"
	"strings"

	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/phrase"
)

// WrapConfig makes the clients of a config report the answers of the API server to the Recorder. client-go runs a
// credential plugin outside the transport wrappers of a config. WrapConfig moves the plugin below the wrappers, so that
// the Recorder also records failures of the plugin.
func (r *Recorder) WrapConfig(config *rest.Config, system System) error {
	if config.ExecProvider != nil || config.AuthProvider != nil {
		host, _, err := rest.DefaultServerUrlFor(config) // the URL depends on the TLS settings, which are removed below
		if err != nil {
			return fmt.Errorf("read the address of the API server: %w", err)
		}
		authenticated, err := rest.TransportFor(config)
		if err != nil {
			return fmt.Errorf("make the transport: %w", err)
		}
		config.Host, config.Transport, config.WrapTransport = host.String(), authenticated, nil
		config.TLSClientConfig, config.ExecProvider, config.AuthProvider = rest.TLSClientConfig{}, nil, nil
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return recordingTransport{next, r, system} })
	return nil
}

// recordingTransport reports the answers to requests.
type recordingTransport struct {
	next     http.RoundTripper
	recorder *Recorder
	system   System
}

// RoundTrip implements http.RoundTripper.
func (t recordingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil && response.StatusCode < http.StatusBadRequest && t.recorder.isEmpty() {
		return response, nil
	}
	k, ok := t.requestKey(request)
	all := problemKey{system: t.system} // key of problems with all requests to the system
	switch {
	case !ok:
	case errors.Is(err, context.Canceled): // the caller no longer waits for the response
	case errors.Is(err, context.DeadlineExceeded):
		t.recorder.recordFailure(k, Failing, "no answer in time")
	case err != nil:
		t.recorder.recordFailure(all, Unanswered, err.Error())
	default:
		switch kind, words := classifyResponse(k, response); {
		case kind == Unauthenticated: // the API server rejects all requests
			t.recorder.recordFailure(all, kind, words)
		case kind != "":
			t.recorder.recordSuccess(all)
			t.recorder.recordFailure(k, kind, words)
		case response.StatusCode < http.StatusBadRequest, !k.isRead(),
			k.verb == verbGet && response.StatusCode == http.StatusNotFound:
			// a failed write that reaches this case is no problem of the process
			t.recorder.recordSuccess(all, k)
			if request.URL.Query().Get("sendInitialEvents") == "true" { // this watch replaces a list request
				k.verb = verbList
				t.recorder.recordSuccess(k)
			}
		default: // this failure does not show whether the process may read: the watch may be too old or not supported
			t.recorder.recordSuccess(all)
		}
	}
	return response, err
}

// Verbs of read requests. Admission plugins do not check read requests.
const (
	verbGet   = "get"
	verbList  = "list"
	verbWatch = "watch"
)

// requestKey returns the key of a request. ok is false if the request is for no resource.
func (t recordingTransport) requestKey(request *http.Request) (k problemKey, ok bool) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	// the address of an API server may contain a path
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
		k.namespace, rest = rest[1], rest[2:]
	}
	k.system, k.resource = t.system, rest[0]+group
	if len(rest) > 2 {
		k.resource += "/" + rest[2]
	}
	k.verb = map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[request.Method]
	if request.Method == http.MethodGet {
		isWatch, _ := strconv.ParseBool(request.URL.Query().Get("watch"))
		switch {
		case isWatch:
			k.verb = verbWatch
		case len(rest) == 1:
			k.verb = verbList
		default:
			k.verb = verbGet
		}
	}
	return k, k.verb != ""
}

// isRead reports whether requests of the key only read.
func (k problemKey) isRead() bool {
	return k.verb == verbGet || k.verb == verbList || k.verb == verbWatch
}

// needsInstalledCRD reports whether the resource of the key comes from a CRD that a person must install before
// Millwright can work. Other resources may be missing: a target cluster may not serve PodDisruptionBudgets, and the CRD
// of a control plane may be installed later.
func (k problemKey) needsInstalledCRD() bool {
	group := Problem{Resource: k.resource}.APIGroup()
	return group == v1alpha1.GroupName || group == clusterv1.GroupVersion.Group
}

// classifyResponse returns the problem that a response shows, with the API server's message; the kind is empty if the
// response is no problem of the process. A response about a single object is no problem of the process, because the
// object shows it.
func classifyResponse(k problemKey, response *http.Response) (kind FailureKind, words string) {
	if response.StatusCode < http.StatusBadRequest {
		return "", ""
	}
	status := readStatus(response)
	words = cmp.Or(status.Message, response.Status)
	switch {
	case k.isRead():
		return failedReadKind(k, response.StatusCode), words
	case phrase.IsWebhookDenial(status.Message):
		return "", ""
	case strings.HasPrefix(k.resource, "secrets"): // an admission webhook may quote the Secret in its message
		words = "the API server answered " + response.Status
	}
	return failedWriteKind(k, response.StatusCode, status), words
}

func failedReadKind(k problemKey, code int) FailureKind {
	switch {
	case code == http.StatusUnauthorized:
		return Unauthenticated
	case code == http.StatusForbidden:
		return Refused
	case code == http.StatusNotFound && k.verb != verbGet && k.needsInstalledCRD():
		return Unserved
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return Failing
	default:
		return ""
	}
}

func failedWriteKind(k problemKey, code int, status *metav1.Status) FailureKind {
	switch {
	// an admission policy returned 401: a failed authentication sets no Details
	case code == http.StatusUnauthorized && status.Details != nil:
		return ""
	case code == http.StatusUnauthorized:
		return Unauthenticated
	// An admission plugin may also respond with 403. Only the response of an authorizer contains these words.
	case code == http.StatusForbidden && strings.Contains(status.Message, " cannot "+k.verb+" resource "):
		return Refused
	case strings.HasSuffix(k.resource, "/eviction"): // a PodDisruptionBudget rejects an eviction with 429
		return ""
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		return Failing
	default: // the object shows the API server's message
		return ""
	}
}

// maxStatusBytes is the maximum number of bytes that readStatus reads from a response. A response with an error has
// some hundred bytes.
const maxStatusBytes = 64 << 10

// readStatus returns the Status in an error response. If the response contains no Status, the message is the text of
// the response. The caller can still read the body afterwards.
func readStatus(response *http.Response) *metav1.Status {
	body := response.Body
	data, _ := io.ReadAll(io.LimitReader(body, maxStatusBytes)) // the caller gets the same error when it reads the body
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), body), body}
	answer, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if status, is := answer.(*metav1.Status); err == nil && is {
		return status
	}
	return &metav1.Status{Message: string(data)}
}

// InterceptTemporal is an interceptor that reports the answers of Temporal to the Recorder.
func (r *Recorder) InterceptTemporal(
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
	k, status := problemKey{system: Temporal, verb: path.Base(method)}, serviceerror.ToStatus(err)
	_, isNamespaceGone := errors.AsType[*serviceerror.NamespaceNotFound](serviceerror.FromStatus(status))
	switch code := status.Code(); {
	case isNamespaceGone, code == codes.PermissionDenied, code == codes.Unauthenticated:
		r.recordFailure(k, Refused, status.Message())
	case code == codes.ResourceExhausted:
		r.recordFailure(k, Failing, status.Message())
	case code == codes.Unavailable:
		r.recordFailure(k, Unanswered, status.Message())
	// the client may cancel a long request before the server responds
	case code == codes.DeadlineExceeded, code == codes.Canceled:
	default:
		r.recordSuccess(k)
	}
	return err
}
