package problems

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"millwright/api/v1alpha1"
	"millwright/process/commandline"
)

// fakeAPIServer is an API server that gives the same answer to every request.
type fakeAPIServer struct {
	code           int
	message        string
	reason         metav1.StatusReason
	details        *metav1.StatusDetails
	transportError error
	mediaType      string // media type of the answer
}

// newDenyingServer is an API server whose admission webhook denies requests with this status code.
func newDenyingServer(code int) fakeAPIServer {
	return fakeAPIServer{
		code:      code,
		message:   `admission webhook "w.example.com" denied the request: no`,
		mediaType: runtime.ContentTypeJSON,
	}
}

func (s *fakeAPIServer) RoundTrip(*http.Request) (*http.Response, error) {
	if s.transportError != nil {
		return nil, s.transportError
	}
	body := []byte(s.message)
	if s.mediaType != "" {
		info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), s.mediaType)
		status := &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure,
			Code:     int32(s.code),
			Message:  s.message,
			Reason:   s.reason,
			Details:  s.details,
		}
		body, _ = runtime.Encode(info.Serializer, status)
	}
	return &http.Response{
		StatusCode: s.code,
		Status:     fmt.Sprintf("%d %s", s.code, http.StatusText(s.code)),
		Body:       io.NopCloser(strings.NewReader(string(body))),
	}, nil
}

// sendRequest sends a request, given as METHOD PATH, and returns the body of the answer.
func sendRequest(t *testing.T, r *Recorder, to http.RoundTripper, text string) string {
	t.Helper()
	config := &rest.Config{}
	require.NoError(t, r.WrapConfig(config, ControlCluster))
	method, path, _ := strings.Cut(text, " ")
	request, err := http.NewRequestWithContext(t.Context(), method, "https://api"+path, http.NoBody)
	require.NoError(t, err)
	response, err := config.WrapTransport(to).RoundTrip(request)
	if err != nil {
		return ""
	}
	defer func() { require.NoError(t, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

const deploymentsPath = "/apis/machine.sapcloud.io/v1alpha1/namespaces/shop/machinedeployments"

// sendRequestTwice sends a request twice, so that its failure lasts.
func sendRequestTwice(t *testing.T, r *Recorder, to http.RoundTripper, text string) {
	t.Helper()
	sendRequest(t, r, to, text)
	time.Sleep(minFailureDuration)
	sendRequest(t, r, to, text)
}

// A failed request is a problem of the process only if the cause is neither the request's object nor a temporary state.
func TestAnswersAreClassifiedAsProblems(t *testing.T) {
	const denied = `User "w" cannot %s resource "x" in API group ""`
	for name, row := range map[string]struct {
		request string
		answer  fakeAPIServer
		lasts   bool // the failure lasts for some seconds
		text    string
	}{
		"a role is not bound": {
			"GET " + deploymentsPath + "?watch=1",
			fakeAPIServer{code: 403, message: fmt.Sprintf(denied, "list"), mediaType: runtime.ContentTypeProtobuf},
			false,
			`the worker may not watch machinedeployments.machine.sapcloud.io in namespace shop: User "w" cannot list resource "x" in API group ""`,
		},
		"a right to write a status is missing": {
			"PUT " + deploymentsPath + "/web/status",
			fakeAPIServer{code: 403, message: fmt.Sprintf(denied, "update"), mediaType: runtime.ContentTypeJSON},
			false,
			`the worker may not update machinedeployments.machine.sapcloud.io/status in namespace shop: User "w" cannot update resource "x" in API group ""`,
		},
		"the API server has an address with a path": {
			"GET /k8s/clusters/c/api/v1/nodes/n",
			fakeAPIServer{code: 403, message: "not for w"},
			false,
			"the worker may not get nodes: not for w",
		},
		"credentials that are renewed": {"GET /api/v1/nodes", fakeAPIServer{code: 401, message: "Unauthorized"}, false, ""},
		"credentials that have expired": {
			"PUT " + deploymentsPath + "/web",
			fakeAPIServer{code: 401, message: "Unauthorized", reason: metav1.StatusReasonUnauthorized, mediaType: runtime.ContentTypeJSON},
			true,
			"the API server does not accept the credentials of the worker: Unauthorized",
		},
		"a policy refuses an object like an authenticator": {
			"PUT " + deploymentsPath + "/web",
			fakeAPIServer{
				code:      401,
				message:   `"web" is forbidden: ValidatingAdmissionPolicy 'denied' denied request`,
				reason:    metav1.StatusReasonUnauthorized,
				details:   &metav1.StatusDetails{Name: "web"},
				mediaType: runtime.ContentTypeProtobuf,
			},
			true, "",
		},
		"a webhook refuses an object like an authenticator":  {"POST " + deploymentsPath, newDenyingServer(401), true, ""},
		"a webhook refuses an object like a busy API server": {"POST " + deploymentsPath, newDenyingServer(429), true, ""},
		"a webhook refuses an object like one that is down":  {"POST " + deploymentsPath, newDenyingServer(503), true, ""},
		"a control plane whose kind is installed later": {
			"GET /apis/controlplane.cluster.x-k8s.io/v1beta2/kubeadmcontrolplanes?watch=true", fakeAPIServer{code: 404}, true, "",
		},
		"the resource is not served": {
			"GET " + deploymentsPath,
			fakeAPIServer{code: 404, message: "the server could not find the requested resource"},
			false,
			"the worker cannot list machinedeployments.machine.sapcloud.io in namespace shop: the server could not find the requested resource",
		},
		"a target without budgets": {"GET /apis/policy/v1/poddisruptionbudgets", fakeAPIServer{code: 404}, false, ""},
		"an object is gone":        {"GET " + deploymentsPath + "/web", fakeAPIServer{code: 404}, false, ""},
		"a policy refuses an object": {
			"POST " + deploymentsPath, fakeAPIServer{code: 403, message: `"web" is forbidden: ValidatingAdmissionPolicy 'denied' denied request`}, false, "",
		},
		"a quota is used up": {"POST " + deploymentsPath, fakeAPIServer{code: 403, message: `"web" is forbidden: exceeded quota`}, true, ""},
		"an invalid object":  {"POST " + deploymentsPath, fakeAPIServer{code: 422, message: "invalid"}, true, ""},
		"a conflict":         {"PUT " + deploymentsPath + "/web", fakeAPIServer{code: 409}, true, ""},
		"an internal error for a moment": {
			"GET " + deploymentsPath, fakeAPIServer{code: 500, message: "conversion webhook is down"}, false, "",
		},
		"an internal error that lasts": {
			"GET " + deploymentsPath,
			fakeAPIServer{code: 500, message: "conversion webhook is down"},
			true,
			"the worker cannot list machinedeployments.machine.sapcloud.io in namespace shop: conversion webhook is down",
		},
		"a webhook is down for an object": {
			"POST " + deploymentsPath, fakeAPIServer{code: 500, message: "failed calling webhook"}, true, "",
		},
		"a webhook that has seen a Secret": {
			"PATCH /api/v1/namespaces/shop/secrets/small",
			fakeAPIServer{code: 503, message: "webhook saw hunter2"},
			true,
			"the worker cannot patch secrets in namespace shop: the API server answered 503 Service Unavailable",
		},
		"the API server is overloaded": {
			"GET /api/v1/nodes",
			fakeAPIServer{code: 429, message: "too many requests"},
			true,
			"the worker cannot list nodes: too many requests",
		},
		"a budget allows no eviction": {"POST /api/v1/namespaces/shop/pods/p/eviction", fakeAPIServer{code: 429}, true, ""},
		"two budgets select one pod": {
			"POST /api/v1/namespaces/shop/pods/p/eviction", fakeAPIServer{code: 500, message: "This pod has more than one PodDisruptionBudget"}, true, "",
		},
		"nobody answers": {
			"GET /api/v1/nodes",
			fakeAPIServer{transportError: errors.New("dial tcp 10.0.0.1:443: connect: connection refused")},
			true,
			"the worker gets no answer from the API server: dial tcp 10.0.0.1:443: connect: connection refused",
		},
		"an answer is too late": {
			"GET /api/v1/nodes", fakeAPIServer{transportError: context.DeadlineExceeded}, true, "the worker cannot list nodes: no answer in time",
		},
		"a request is called off": {"GET /api/v1/nodes", fakeAPIServer{transportError: context.Canceled}, true, ""},
		"no resource":             {"GET /version", fakeAPIServer{code: 500}, true, ""},
		"only discovery":          {"GET /apis/apps/v1", fakeAPIServer{code: 500}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New("prod")
				body := sendRequest(t, r, &row.answer, row.request)
				if row.answer.mediaType == "" && row.answer.transportError == nil {
					assert.Equal(t, row.answer.message, body, "the client reads the whole answer")
				}
				assert.Empty(t, r.List(), "the answer may be a momentary one")
				if row.lasts || row.text != "" {
					time.Sleep(minFailureDuration)
					sendRequest(t, r, &row.answer, row.request)
				}
				if row.text == "" {
					assert.Empty(t, r.List())
					return
				}
				require.Len(t, r.List(), 1)
				assert.Equal(t, row.text, r.List()[0].Text("worker"))
				sendRequest(t, r, &fakeAPIServer{code: 200}, row.request)
				assert.Empty(t, r.List(), "the request has succeeded since")
			})
		})
	}
}

func TestProblemsAreLimitedAndExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("prod")
		for i := range 100 {
			time.Sleep(time.Second)
			sendRequestTwice(
				t,
				r,
				&fakeAPIServer{code: 403, message: strings.Repeat("no ", 1000)},
				fmt.Sprintf("GET /api/v1/things%02d", i),
			)
		}
		kept := r.List()
		require.Len(t, kept, 64, "more than a worker watches")
		for _, p := range kept {
			assert.LessOrEqual(t, len(p.Message), 300)
			assert.Equal(t, Refused, p.Kind)
		}
		assert.Equal(t, "things99", kept[len(kept)-1].Resource, "the newest ones are kept")
		lease := &coordinationv1.Lease{}
		r.annotateLease(lease, "w")
		assert.Len(t, ReadReports(lease, time.Now())[0].Problems, 10)
		time.Sleep(forgetAfter + time.Second)
		assert.Empty(t, r.List())
	})
}

// Each namespace has its own RoleBinding, so its problems are separate.
func TestProblemsOfNamespacesAreSeparate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("prod")
		ask := func(code int, namespace, query string) {
			sendRequestTwice(t, r, &fakeAPIServer{code: code, message: "no"}, "GET /api/v1/namespaces/"+namespace+"/pods"+query)
		}
		ask(403, "b", "")
		ask(200, "a", "")
		require.Len(t, r.List(), 1, "an answer for one namespace says nothing about another one")
		assert.Equal(t, "the worker may not list pods in namespace b: no", r.List()[0].Text("worker"))
		ask(403, "b", "?watch=true")
		require.Len(t, r.List(), 1, "an informer needs both verbs")
		assert.False(t, r.List()[0].AffectsOtherNamespaces)
		ask(403, "a", "")
		registry := prometheus.NewRegistry()
		registry.MustRegister(r)
		_, err := registry.Gather()
		require.NoError(t, err, "a sample for each namespace would be the same sample twice")
		require.Len(t, r.List(), 1)
		assert.Equal(t, "the worker may not list pods in namespace a and others: no", r.List()[0].Text("worker"))
	})
}

// An API server without streamed lists rejects a streaming watch with 422, and the client then sends a list request.
func TestARejectedWatchDoesNotEndAListProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("prod")
		const streamed = "GET " + deploymentsPath + "?watch=true&sendInitialEvents=true"
		for range 5 {
			sendRequest(t, r, &fakeAPIServer{code: 422, message: "sendInitialEvents is forbidden"}, streamed)
			sendRequest(t, r, &fakeAPIServer{code: 500, message: "conversion webhook is down"}, "GET "+deploymentsPath)
			time.Sleep(time.Second)
		}
		require.Len(t, r.List(), 1)
		for _, code := range []int{400, 410, 422} {
			sendRequest(t, r, &fakeAPIServer{code: code}, "GET "+deploymentsPath)
			require.Len(t, r.List(), 1, "%d is no success", code)
		}
		sendRequest(t, r, &fakeAPIServer{code: 200}, streamed)
		assert.Empty(t, r.List(), "a watch that begins with the objects is a list, too")
	})
}

// If a credential plugin fails, no request is sent.
func TestFailedCredentialPluginIsAProblem(t *testing.T) {
	r := New("prod")
	config := &rest.Config{
		Host:            "api.example.com",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ExecProvider: &clientcmdapi.ExecConfig{
			Command:         "/does/not/exist",
			APIVersion:      "client.authentication.k8s.io/v1",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		},
	}
	require.NoError(t, r.WrapConfig(config, TargetCluster))
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	assert.Equal(t, "https", client.CoreV1().RESTClient().Get().URL().Scheme)
	_, err = client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	require.ErrorContains(t, err, "getting credentials")
	require.Len(t, r.problems, 1)
	for _, p := range r.problems {
		text := p.Text("worker")
		assert.Contains(
			t,
			text,
			"the worker gets no answer from the API server of the target cluster: getting credentials: exec: ",
		)
		assert.Contains(t, p.Remedy("worker"), "check --target-kubeconfig of the worker")
	}
}

func TestTemporalErrorsAreClassifiedAsProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("prod")
		ask := func(err error) {
			failed := r.InterceptTemporal(
				t.Context(),
				"/temporal.api.workflowservice.v1.WorkflowService/PollWorkflowTaskQueue",
				nil,
				nil,
				nil,
				func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
					return serviceerror.ToStatus(err).Err()
				},
			)
			assert.Equal(t, err == nil, failed == nil)
		}
		for _, momentary := range []error{
			serviceerror.NewNotFound("no such run"), serviceerror.NewDeadlineExceeded("late"),
		} {
			ask(momentary)
			time.Sleep(time.Minute)
			ask(momentary)
			assert.Empty(t, r.List(), momentary)
		}
		for words, err := range map[string]error{
			"Request unauthorized.":        serviceerror.NewPermissionDenied("Request unauthorized.", ""),
			"Namespace prod is not found.": serviceerror.NewNamespaceNotFound("prod"),
		} {
			ask(err)
			time.Sleep(minFailureDuration)
			ask(err)
			require.Len(t, r.List(), 1)
			assert.Equal(t, "Temporal refuses PollWorkflowTaskQueue to the bridge: "+words, r.List()[0].Text("bridge"))
			ask(nil)
			assert.Empty(t, r.List())
		}
		full := &serviceerror.ResourceExhausted{Message: "namespace rate limit exceeded"}
		ask(full)
		assert.Empty(t, r.List(), "a limit that is reached for a moment")
		time.Sleep(minFailureDuration)
		ask(full)
		require.Len(t, r.List(), 1)
		assert.Equal(t, Failing, r.List()[0].Kind)
		ask(nil)
		ask(serviceerror.NewUnavailable("connection refused"))
		assert.Empty(t, r.List(), "Temporal is restarted")
		time.Sleep(minFailureDuration)
		ask(serviceerror.NewUnavailable("connection refused"))
		require.Len(t, r.List(), 1)
		assert.Equal(
			t,
			"Temporal does not serve PollWorkflowTaskQueue to the bridge: connection refused",
			r.List()[0].Text("bridge"),
		)
	})
}

func TestProblemsAreWrittenToTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client := fake.NewClientset().CoordinationV1().Leases("default")
		lease := func() *coordinationv1.Lease {
			l, err := client.Get(ctx, "millwright-worker", metav1.GetOptions{})
			require.NoError(t, err)
			return l
		}
		a, b := New("prod"), New("prod")
		prepared := 0
		prepare := func(*coordinationv1.Lease) { prepared++ }
		require.NoError(t, a.WriteToLease(ctx, a.WrapLeaseClient(client, "a"), "millwright-worker", prepare))
		_, err := client.Get(ctx, "millwright-worker", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "nothing is written without a problem")

		sendRequestTwice(t, a, &fakeAPIServer{code: 403, message: "no"}, "GET /api/v1/nodes")
		require.NoError(t, a.WriteToLease(ctx, a.WrapLeaseClient(client, "a"), "millwright-worker", prepare))
		assert.Nil(t, lease().Spec.RenewTime, "a process that shows problems is not at work for that")
		assert.Equal(t, commandline.Version(), lease().Annotations[v1alpha1.AnnotationVersion])
		require.NoError(t, a.WriteToLease(ctx, a.WrapLeaseClient(client, "a"), "millwright-worker", prepare))
		assert.Equal(t, 1, prepared)
		sendRequestTwice(t, b, &fakeAPIServer{code: 403, message: "no"}, "GET /api/v1/pods")
		_, err = b.WrapLeaseClient(client, "b").Update(ctx, lease(), metav1.UpdateOptions{})
		require.NoError(t, err)
		by := func() (names []string) {
			for _, report := range ReadReports(lease(), time.Now()) {
				names = append(names, report.Identity+" "+report.Problems[0].Resource)
			}
			return names
		}
		assert.Equal(t, []string{"b pods", "a nodes"}, by(), "each process keeps the reports of the others")

		sendRequest(t, b, &fakeAPIServer{code: 200}, "GET /api/v1/pods")
		_, err = b.WrapLeaseClient(client, "b").Update(ctx, lease(), metav1.UpdateOptions{})
		require.NoError(t, err)
		assert.Equal(t, []string{"a nodes"}, by())
		sendRequest(t, a, &fakeAPIServer{code: 200}, "GET /api/v1/nodes")
		require.NoError(t, a.WriteToLease(ctx, a.WrapLeaseClient(client, "a"), "millwright-worker", prepare))
		assert.Empty(t, by(), "a problem that is gone is shown no more")
		require.NoError(t, a.WriteToLease(ctx, a.WrapLeaseClient(client, "a"), "millwright-worker", prepare))
		assert.Equal(t, 2, prepared, "and then nothing is written")
		sendRequestTwice(t, a, &fakeAPIServer{code: 403, message: "no"}, "GET /api/v1/nodes")
		require.NoError(t, a.WriteToLease(ctx, a.WrapLeaseClient(client, "a"), "millwright-worker", prepare))
		assert.Equal(t, "prod", ReadReports(lease(), time.Now())[0].Installation)
		assert.Empty(t, ReadReports(lease(), time.Now().Add(2*time.Minute+time.Second)), "nobody writes the Lease any more")
		time.Sleep(maxReportAge + time.Second)
		_, err = b.WrapLeaseClient(client, "b").Update(ctx, lease(), metav1.UpdateOptions{})
		require.NoError(t, err)
		assert.Empty(t, by(), "process a writes no more")
		assert.NotContains(t, lease().Annotations, "machine.sapcloud.io/problems")
	})
}

func TestUnreadableReportsAreIgnored(t *testing.T) {
	for _, text := range []string{"", "{", `[{"by":"a"}]`} {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"machine.sapcloud.io/problems": text}},
		}
		assert.Empty(t, ReadReports(l, time.Now()), text)
	}
}

func TestProblemsAreExportedAsMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("prod")
		registry := prometheus.NewRegistry()
		registry.MustRegister(r)
		sendRequestTwice(t, r, &fakeAPIServer{code: 403, message: "no"}, "GET /api/v1/nodes/web-1")
		families, err := registry.Gather()
		require.NoError(t, err)
		require.Len(t, families, 1)
		require.Len(t, families[0].GetMetric(), 1)
		labels := map[string]string{}
		for _, l := range families[0].GetMetric()[0].GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		assert.Equal(t, map[string]string{"system": "control", "resource": "nodes", "verb": "get", "kind": "refused"}, labels)
		assert.InDelta(t, 1, families[0].GetMetric()[0].GetGauge().GetValue(), 0)
	})
}

// Each problem names a command or a setting.
func TestEachProblemHasARemedy(t *testing.T) {
	for want, p := range map[string]Problem{
		"is each of its roles bound, and of its version? kubectl get clusterrolebindings,rolebindings -A -o wide | grep millwright-worker":                         {System: ControlCluster, Kind: Refused, Resource: "nodes", Verb: "get"},
		"is each of its roles bound, and of its version? kubectl get clusterrolebindings,rolebindings -A -o wide | grep millwright-worker (in the target cluster)": {System: TargetCluster, Kind: Refused, Resource: "nodes", Verb: "get"},
		"give this right to the user in Secret shop/c1-kubeconfig (in the workload cluster shop/c1)":                                                               {System: WorkloadClusterSystem("shop", "c1"), Kind: Refused, Resource: "nodes", Verb: "get"},
		"renew the credentials in --target-kubeconfig of the worker":                                                                                               {System: TargetCluster, Kind: Unauthenticated},
		"check --temporal-namespace, --temporal-api-key-path and --temporal-tls-cert-path of the worker":                                                           {System: Temporal, Kind: Refused, Verb: "GetSystemInfo"},
		"is the CRD installed? kubectl api-resources --api-group=machine.sapcloud.io":                                                                              {System: ControlCluster, Kind: Unserved, Resource: "machines.machine.sapcloud.io/status", Verb: "watch"},
	} {
		assert.Equal(t, want, p.Remedy("worker"))
	}
}
