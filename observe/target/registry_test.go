package target_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"millwright/observe/cache"
	"millwright/observe/target"
)

// fakeAPIServer is an API server with nodes. Its answers are made in the process, so that the time of a synctest bubble
// passes while a request hangs.
type fakeAPIServer struct {
	mu              sync.Mutex
	failureMode     string // "": the server answers; "refuse", "hang", "401" and "403" are failures
	rejectedToken   string // a token that the server does not accept
	resourceVersion string // version of the nodes; empty: "7"
	nodes           []corev1.Node
	requests        []string // method, path and token of each request that arrived
	watches         []chan struct{}
}

func (s *fakeAPIServer) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	failure := s.failureMode
	s.requests = append(s.requests, strings.TrimSpace(fmt.Sprint(
		request.URL.Path, " ", request.URL.Query().Get("watch"), " ", request.Header.Get("Authorization"),
	)))
	nodes, version := s.nodes, cmp.Or(s.resourceVersion, "7")
	if s.rejectedToken != "" && request.Header.Get("Authorization") == "Bearer "+s.rejectedToken {
		failure = "401"
	}
	end := make(chan struct{})
	s.watches = append(s.watches, end)
	s.mu.Unlock()
	answer := func(code int, object any) (*http.Response, error) {
		text, err := json.Marshal(object)
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(string(text))), Request: request,
		}, err
	}
	switch {
	case failure == "refuse":
		return nil, errors.New("connection refused")
	case failure == "hang":
		<-request.Context().Done()
		return nil, request.Context().Err()
	case failure == "401":
		return answer(
			http.StatusUnauthorized,
			metav1.Status{Status: metav1.StatusFailure, Code: 401, Reason: metav1.StatusReasonUnauthorized},
		)
	case failure == "403":
		return answer(
			http.StatusForbidden,
			metav1.Status{Status: metav1.StatusFailure, Code: 403, Message: "text of the API server"},
		)
	case request.URL.Query().Get("sendInitialEvents") == "true":
		return answer(
			http.StatusUnprocessableEntity,
			metav1.Status{Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid},
		)
	case request.URL.Query().Get("watch") != "" && request.URL.Query().Get("resourceVersion") != version:
		return answer(
			http.StatusGone,
			metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired},
		)
	case request.URL.Query().Get("watch") != "":
		body, write := io.Pipe()
		go func() {
			select {
			case <-end:
			case <-request.Context().Done():
			}
			_ = write.CloseWithError(errors.New("connection reset"))
		}()
		return &http.Response{
			StatusCode: http.StatusOK,
			Header:     http.Header{"Content-Type": {"application/json"}},
			Body:       body,
			Request:    request,
		}, nil
	default:
		return answer(http.StatusOK, corev1.NodeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
			ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: nodes,
		})
	}
}

// setNodes replaces the nodes.
func (s *fakeAPIServer) setNodes(version string, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resourceVersion, s.nodes = version, nil
	for _, name := range names {
		s.nodes = append(s.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}})
	}
}

// setFailureMode makes all requests fail, and ends the open watches; an empty failure ends the outage.
func (s *fakeAPIServer) setFailureMode(failure string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failureMode = failure
	if failure != "" {
		for _, end := range s.watches {
			close(end)
		}
		s.watches = nil
	}
}

func (s *fakeAPIServer) countRequests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *fakeAPIServer) lastRequest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[len(s.requests)-1]
}

const secretName = "target"

// client-go's second error handler uses the start time of the process, which is in the future of a synctest bubble.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

func newKubeconfigSecret(namespace, host, token string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secretName},
		Data:       map[string][]byte{"kubeconfig": newKubeconfig(host, token)},
	}
}

func newKubeconfig(host, token string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: x
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
`, host, token)
}

// testEnvironment is a control cluster with Secrets, and the API servers of targets by host.
type testEnvironment struct {
	t                         *testing.T
	controlClient             *kubefake.Clientset
	servers                   map[string]*fakeAPIServer
	registry                  *target.Registry
	areNamespacesHeld         atomic.Bool
	namespacesWithEndedTarget []string // namespaces whose target is not needed any more
}

// runRegistryTest runs a test in a bubble, with one API server for each host.
func runRegistryTest(t *testing.T, hosts []string, do func(w *testEnvironment), secrets ...*corev1.Secret) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		w := &testEnvironment{t: t, controlClient: kubefake.NewClientset(), servers: map[string]*fakeAPIServer{}}
		for _, host := range hosts {
			w.servers["https://"+host] = &fakeAPIServer{nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: host}}}}
		}
		for _, secret := range secrets {
			require.NoError(t, w.controlClient.Tracker().Add(secret))
		}
		w.registry = target.New(w.controlClient, target.Options{
			SecretName: secretName, KubeconfigKey: "kubeconfig",
			DrainsNodes: true,
			IsHeld:      func(string) bool { return w.areNamespacesHeld.Load() },
			OnTargetEnd: func(namespace string) { w.namespacesWithEndedTarget = append(w.namespacesWithEndedTarget, namespace) },
			IsServed:    func(namespace string) bool { return namespace != "foreign" && namespace != "moved" },
			IsInScope:   func(namespace string) bool { return namespace != "foreign" },
			NewClient: func(config *rest.Config) (kubernetes.Interface, error) {
				config.Transport = w.servers[config.Host]
				config.TLSClientConfig = rest.TLSClientConfig{}
				return kubernetes.NewForConfig(config)
			},
		})
		require.NoError(t, w.registry.Start(ctx))
		synctest.Wait()
		do(w)
	})
}

func (w *testEnvironment) updateSecret(secret *corev1.Secret) {
	w.t.Helper()
	_, err := w.controlClient.CoreV1().Secrets(secret.Namespace).Update(w.t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	synctest.Wait()
}

func (w *testEnvironment) nodeNames(namespace string) (names []string) {
	for _, node := range w.registry.Target(namespace).AllNodes() {
		names = append(names, node.Name)
	}
	return names
}

func (w *testEnvironment) status(namespace string) cache.TargetStatus {
	return w.registry.Target(namespace).Status()
}

// absenceDuration returns how long the target of a namespace was absent since a time.
func (w *testEnvironment) absenceDuration(namespace string, since time.Time) time.Duration {
	return w.registry.Target(namespace).Absences().DurationBetween(since, time.Now())
}

// advanceClock advances the fake clock, and waits until all goroutines are blocked.
func advanceClock(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestEachNamespaceHasItsOwnTarget(t *testing.T) {
	none := newKubeconfigSecret("none", "https://a", "")
	none.Data["kubeconfig"] = []byte(target.NoClusterValue)
	runRegistryTest(t, []string{"a", "b"}, func(w *testEnvironment) {
		advanceClock(time.Second)
		assert.Equal(t, []string{"a"}, w.nodeNames("shop"))
		assert.Equal(t, []string{"b"}, w.nodeNames("bank"))
		assert.Equal(t, cache.TargetReady, w.status("shop").State)
		assert.False(t, w.registry.Target("shop").HasSameCluster(w.registry.Target("bank")))
		assert.Nil(t, w.registry.Target("none"), "machines join no cluster")
		assert.Equal(t, cache.TargetMissing, w.status("other").State)
		assert.Equal(t, "Secret other/target with a kubeconfig does not exist", w.status("other").Message)
		assert.Equal(t, cache.TargetMissing, w.status("foreign").State, "a namespace that this process does not serve")
		_, err := w.registry.Target("other").Client().CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
		assert.Error(t, err)
	},
		newKubeconfigSecret("shop", "https://a", "x"), newKubeconfigSecret("bank", "https://b", "y"), none,
		newKubeconfigSecret("foreign", "https://b", "y"),
	)
}

func TestATargetOfAnotherShardIsConnectedOnDemand(t *testing.T) {
	runRegistryTest(t, []string{"a"}, func(w *testEnvironment) {
		advanceClock(time.Minute)
		require.Zero(t, w.servers["https://a"].countRequests())
		w.registry.KeepConnected("moved")
		w.registry.KeepConnected("foreign")
		advanceClock(time.Second)
		assert.Equal(t, []string{"a"}, w.nodeNames("moved"))
		assert.Equal(t, []string{"moved"}, w.registry.Namespaces())
		advanceClock(9 * time.Minute)
		w.registry.KeepConnected("moved")
		advanceClock(9 * time.Minute)
		assert.Equal(t, cache.TargetReady, w.status("moved").State)
		advanceClock(2 * time.Minute)
		assert.Empty(t, w.registry.Namespaces(), "nobody has needed the target for ten minutes")
	}, newKubeconfigSecret("moved", "https://a", "x"), newKubeconfigSecret("foreign", "https://a", "x"))
}

func TestTargetsWithTheSameServerAreTheSameCluster(t *testing.T) {
	runRegistryTest(t, []string{"a"}, func(w *testEnvironment) {
		advanceClock(time.Second)
		assert.True(t, w.registry.Target("shop").HasSameCluster(w.registry.Target("bank")))
	}, newKubeconfigSecret("shop", "https://a", "x"), newKubeconfigSecret("bank", "https://a", "y"))
}

func TestANewTokenIsUsedWithoutANewConnection(t *testing.T) {
	runRegistryTest(t, []string{"a", "b"}, func(w *testEnvironment) {
		advanceClock(time.Second)
		before := w.registry.Target("shop")
		requests := w.servers["https://a"].countRequests()
		w.updateSecret(newKubeconfigSecret("shop", "https://a", "new"))
		assert.Same(t, before, w.registry.Target("shop"))
		assert.Equal(t, requests, w.servers["https://a"].countRequests(), "no list, no watch")
		_, err := before.Client().CoreV1().Nodes().Get(w.t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "/api/v1/nodes/a  Bearer new", w.servers["https://a"].lastRequest())

		w.updateSecret(newKubeconfigSecret("shop", "https://b", "new"))
		advanceClock(time.Second)
		assert.NotSame(t, before, w.registry.Target("shop"))
		assert.Equal(t, []string{"b"}, w.nodeNames("shop"))
	}, newKubeconfigSecret("shop", "https://a", "old"))
}

func TestTheSameContentInANewVersionOfTheSecretChangesNothing(t *testing.T) {
	runRegistryTest(t, []string{"a"}, func(w *testEnvironment) {
		advanceClock(time.Second)
		before, requests := w.registry.Target("shop"), w.servers["https://a"].countRequests()
		same := newKubeconfigSecret("shop", "https://a", "x")
		same.ResourceVersion, same.Labels = "99", map[string]string{"touched": "now"}
		w.updateSecret(same)
		advanceClock(time.Second)
		assert.Same(t, before, w.registry.Target("shop"))
		assert.Equal(t, requests, w.servers["https://a"].countRequests())
	}, newKubeconfigSecret("shop", "https://a", "x"))
}

func TestADeadTargetIsTriedAgainWithBackOff(t *testing.T) {
	for _, failure := range []string{"refuse", "hang", "401"} {
		t.Run(failure, func(t *testing.T) {
			runRegistryTest(t, []string{"a", "b"}, func(w *testEnvironment) {
				advanceClock(time.Second)
				dead, begun := w.servers["https://a"], time.Now()
				dead.setFailureMode(failure)
				advanceClock(2 * time.Minute)
				status := w.status("shop")
				assert.Equal(t, cache.TargetUnavailable, status.State)
				assert.NotEmpty(t, status.Message)
				assert.WithinDuration(t, begun, status.Since, time.Minute)
				assert.Equal(t, cache.TargetReady, w.status("bank").State)
				assert.Equal(t, []string{"a"}, w.nodeNames("shop"), "the caches keep what they have")

				asked := time.Now()
				_, err := w.registry.Target("shop").Client().CoreV1().Nodes().Get(w.t.Context(), "a", metav1.GetOptions{})
				require.Error(t, err)
				assert.Equal(t, asked, time.Now(), "no request waits for a dead target")

				advanceClock(20 * time.Minute)
				requests := dead.countRequests()
				advanceClock(time.Hour)
				assert.InDelta(t, 11, dead.countRequests()-requests, 2, "one attempt in five minutes or more")

				dead.setFailureMode("")
				recovered := time.Now()
				advanceClock(7 * time.Minute)
				assert.Equal(t, cache.TargetReady, w.status("shop").State)
				absences := w.registry.Target("shop").Absences()
				require.NotEmpty(t, absences)
				down := absences.DurationBetween(begun, time.Now())
				assert.InDelta(t, recovered.Sub(begun).Seconds(), down.Seconds(), 400)
				assert.Zero(t, w.registry.Target("bank").Absences().DurationBetween(begun, time.Now()))
				_, err = w.registry.Target("shop").Client().CoreV1().Nodes().Get(w.t.Context(), "a", metav1.GetOptions{})
				assert.NoError(t, err)
			}, newKubeconfigSecret("shop", "https://a", "x"), newKubeconfigSecret("bank", "https://b", "y"))
		})
	}
}

func TestNewCredentialsEndTheBackOff(t *testing.T) {
	runRegistryTest(t, []string{"a"}, func(w *testEnvironment) {
		w.servers["https://a"].setFailureMode("401")
		advanceClock(time.Hour)
		w.servers["https://a"].setFailureMode("")
		w.updateSecret(newKubeconfigSecret("shop", "https://a", "new"))
		advanceClock(time.Second)
		assert.Equal(t, cache.TargetReady, w.status("shop").State)
	}, newKubeconfigSecret("shop", "https://a", "old"))
}

func TestAnIdleConnectionSendsNoRequests(t *testing.T) {
	runRegistryTest(t, []string{"a"}, func(w *testEnvironment) {
		advanceClock(time.Minute)
		requests := w.servers["https://a"].countRequests()
		advanceClock(time.Hour)
		assert.Equal(t, requests, w.servers["https://a"].countRequests(), "the watch of nodes stays open")
	}, newKubeconfigSecret("shop", "https://a", "x"))
}

func TestHandlersGetEachTargetBeforeItsCachesStart(t *testing.T) {
	runRegistryTest(t, []string{"a", "b"}, func(w *testEnvironment) {
		got := map[string]int{}
		stop := w.registry.OnTarget(func(namespace string, _ *cache.Target) { got[namespace]++ })
		assert.Equal(t, map[string]int{"shop": 1}, got)
		w.updateSecret(newKubeconfigSecret("shop", "https://b", "x"))
		advanceClock(time.Second)
		assert.Equal(t, map[string]int{"shop": 2}, got)
		stop()
		w.updateSecret(newKubeconfigSecret("shop", "https://a", "x"))
		advanceClock(time.Second)
		assert.Equal(t, map[string]int{"shop": 2}, got)
	}, newKubeconfigSecret("shop", "https://a", "x"))
}

func TestAServerThatRefusesTheCredentialsIsNotTheSameCluster(t *testing.T) {
	runRegistryTest(t, []string{"a", "b"}, func(w *testEnvironment) {
		w.servers["https://a"].rejectedToken = "forged"
		w.updateSecret(newKubeconfigSecret("thief", "https://a", "forged"))
		advanceClock(time.Minute)
		assert.Equal(t, cache.TargetReady, w.status("shop").State)
		assert.Equal(t, "the API server answers 401 Unauthorized", w.status("thief").Message)
		assert.False(t, w.registry.Target("thief").HasSameCluster(w.registry.Target("shop")))
	}, newKubeconfigSecret("shop", "https://a", "x"), newKubeconfigSecret("thief", "https://b", "forged"))
}

func TestAStatusContainsNoTextFromTheAPIServer(t *testing.T) {
	runRegistryTest(t, []string{"a", "b"}, func(w *testEnvironment) {
		w.servers["https://a"].setFailureMode("403")
		w.updateSecret(newKubeconfigSecret("shop", "https://a", "y"))
		advanceClock(time.Minute)
		assert.Equal(t, "the API server answers 403 Forbidden", w.status("shop").Message)
	}, newKubeconfigSecret("shop", "https://b", "x"))
}

func TestAbsencesAreKeptWhenTheKubeconfigChanges(t *testing.T) {
	runRegistryTest(t, []string{"a", "b", "c"}, func(w *testEnvironment) {
		advanceClock(time.Minute)
		begun := time.Now()
		w.servers["https://a"].setFailureMode("refuse")
		advanceClock(time.Hour)
		w.updateSecret(newKubeconfigSecret("shop", "https://b", "x"))
		advanceClock(time.Second)
		require.Equal(t, cache.TargetReady, w.status("shop").State)
		assert.Equal(t, time.Hour, w.absenceDuration("shop", begun).Round(time.Minute))

		w.servers["https://c"].setFailureMode("refuse")
		w.updateSecret(newKubeconfigSecret("shop", "https://c", "x"))
		advanceClock(time.Hour)
		assert.Equal(t, time.Hour, w.absenceDuration("shop", begun).Round(time.Minute), "the second outage has not ended")
		w.updateSecret(newKubeconfigSecret("shop", "https://b", "x"))
		advanceClock(time.Second)
		assert.Equal(t, 2*time.Hour, w.absenceDuration("shop", begun).Round(time.Minute))
	}, newKubeconfigSecret("shop", "https://a", "x"))
}

func TestNodesAreReadAgainAfterAnOutage(t *testing.T) {
	runRegistryTest(t, []string{"a"}, func(w *testEnvironment) {
		advanceClock(time.Second)
		w.servers["https://a"].setFailureMode("refuse")
		advanceClock(time.Minute)
		w.servers["https://a"].setNodes("9", "b", "c")
		w.servers["https://a"].setFailureMode("")
		for w.status("shop").State != cache.TargetReady {
			advanceClock(10 * time.Millisecond)
		}
		assert.ElementsMatch(t, []string{"b", "c"}, w.nodeNames("shop"))
	}, newKubeconfigSecret("shop", "https://a", "x"))
}

func TestAKubeconfigThatChangesAllTheTimeIsUsedOnceAMinute(t *testing.T) {
	runRegistryTest(t, []string{"a", "b"}, func(w *testEnvironment) {
		for n := range 600 {
			w.updateSecret(newKubeconfigSecret("shop", []string{"https://a", "https://b"}[n%2], "x"))
			advanceClock(time.Second)
		}
		requests := w.servers["https://a"].countRequests() + w.servers["https://b"].countRequests()
		assert.LessOrEqual(t, requests, 5*16, "5 requests for each of 5 + 10 connections, and for the calm namespace")
		assert.Equal(t, cache.TargetReady, w.status("calm").State)
		advanceClock(time.Minute)
		assert.Equal(t, cache.TargetReady, w.status("shop").State)
	}, newKubeconfigSecret("shop", "https://a", "x"), newKubeconfigSecret("calm", "https://a", "x"))
}

func TestADrainKeepsTheConnectionOpen(t *testing.T) {
	runRegistryTest(t, []string{"a"}, func(w *testEnvironment) {
		w.registry.KeepConnected("moved")
		advanceClock(time.Second)
		release, err := w.registry.Target("moved").UseDrainCaches(w.t.Context())
		require.NoError(t, err)
		advanceClock(time.Hour)
		assert.Equal(t, []string{"moved"}, w.registry.Namespaces())
		release()
		advanceClock(time.Minute)
		assert.Empty(t, w.registry.Namespaces())
		assert.Equal(t, []string{"moved"}, w.namespacesWithEndedTarget)
	}, newKubeconfigSecret("moved", "https://a", "x"))
}

func TestNobodyConnectsToTheTargetOfAHeldNamespace(t *testing.T) {
	runRegistryTest(t, []string{"a"}, func(w *testEnvironment) {
		advanceClock(time.Second)
		w.areNamespacesHeld.Store(true)
		advanceClock(time.Minute)
		assert.Equal(t, cache.TargetHeld, w.status("shop").State)
		w.servers["https://a"].setFailureMode("refuse")
		requests := w.servers["https://a"].countRequests()
		advanceClock(time.Hour)
		assert.Equal(t, requests, w.servers["https://a"].countRequests())
		w.servers["https://a"].setFailureMode("")
		w.areNamespacesHeld.Store(false)
		advanceClock(time.Minute)
		assert.Equal(t, cache.TargetReady, w.status("shop").State)
	}, newKubeconfigSecret("shop", "https://a", "x"))
}
