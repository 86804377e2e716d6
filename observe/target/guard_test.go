package target_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"millwright/observe/target"
)

// roundTripperFunc answers the requests of a client.
type roundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripperFunc) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// newClient returns the client of a target whose API server answers with the function answer.
func newClient(t *testing.T, host string, answer http.RoundTripper) kubernetes.Interface {
	t.Helper()
	kubeconfig, err := target.ParseKubeconfig(newKubeconfig(host, "token"), "kubeconfig", "")
	require.NoError(t, err)
	client, err := (*target.Client)(nil).Renew(kubeconfig, func(config *rest.Config) (kubernetes.Interface, error) {
		config.Transport, config.QPS = answer, -1
		return kubernetes.NewForConfig(config)
	})
	require.NoError(t, err)
	return client.Clientset
}

func listNodes(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	return err
}

func newResponse(code int, header http.Header, body io.Reader) *http.Response {
	header.Set("Content-Type", "application/json")
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(body)}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	requests := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	err := listNodes(t.Context(), newClient(t, server.URL, nil))
	require.ErrorContains(t, err, "307 Temporary Redirect")
	assert.Zero(t, requests, "the other server would get the token")
}

func TestAClientIgnoresRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, "https://a", roundTripperFunc(func(*http.Request) (*http.Response, error) {
			return newResponse(http.StatusTooManyRequests, http.Header{"Retry-After": {"3600"}}, strings.NewReader("{}")), nil
		}))
		begun := time.Now()
		assert.True(t, apierrors.IsTooManyRequests(listNodes(t.Context(), client)))
		assert.Equal(t, begun, time.Now())
	})
}

// endlessBody is a body that does not end. A Read takes pause, and returns at most size bytes.
type endlessBody struct {
	ctx          context.Context
	readDelay    time.Duration
	maxReadBytes int
}

// Read implements io.Reader.
func (e endlessBody) Read(p []byte) (int, error) {
	select {
	case <-e.ctx.Done():
		return 0, e.ctx.Err()
	case <-time.After(e.readDelay):
		return min(len(p), e.maxReadBytes), nil
	}
}

func TestLongAndSlowAnswersAreCutOff(t *testing.T) {
	for name, test := range map[string]struct {
		pause time.Duration
		size  int
		took  time.Duration
		why   string
	}{
		"endless": {0, 1 << 20, 0, "a longer answer than Millwright reads"},
		"slow":    {time.Second, 1, time.Minute, "not completed its answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newClient(t, "https://a", roundTripperFunc(func(r *http.Request) (*http.Response, error) {
					return newResponse(http.StatusOK, http.Header{}, endlessBody{r.Context(), test.pause, test.size}), nil
				}))
				begun := time.Now()
				require.ErrorContains(t, listNodes(t.Context(), client), test.why)
				assert.Equal(t, test.took, time.Since(begun))
			})
		})
	}
}

func TestOnlyReadsHaveAHeaderTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, "https://a", roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			select {
			case <-r.Context().Done():
				return nil, r.Context().Err()
			case <-time.After(30 * time.Second):
				return newResponse(http.StatusOK, http.Header{}, strings.NewReader("{}")), nil
			}
		}))
		require.ErrorContains(t, listNodes(t.Context(), client), "has not answered within 10s")
		_, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{}, metav1.CreateOptions{})
		assert.NoError(t, err)
	})
}

func TestATargetHasAtMostFiftyOpenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, "https://a", roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}))
		for range 50 {
			go func() { _ = listNodes(t.Context(), client) }()
		}
		time.Sleep(time.Second)
		begun := time.Now()
		require.ErrorContains(
			t,
			listNodes(t.Context(), client),
			"50 requests to the API server of the target cluster are open",
		)
		assert.Equal(t, begun, time.Now())
		time.Sleep(10 * time.Second)
		require.ErrorContains(t, listNodes(t.Context(), client), "has not answered", "the other requests have ended")
	})
}
