package explain

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

// newLease returns a Lease in namespace millwright that was renewed the duration ago before the command's time.
func newLease(name string, ago time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "millwright", Name: name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(clitest.Now.Add(-ago)))},
	}
}

func TestHeartbeatsCommandNamesInactiveProcesses(t *testing.T) {
	const worker, bridge = "millwright-worker", "millwright-bridge"
	for name, row := range map[string]struct {
		leases []runtime.Object
		from   string
		fails  string
	}{
		"both are at work":              {[]runtime.Object{newLease(worker, 44*time.Second), newLease(bridge, 44*time.Second)}, "millwright", ""},
		"no worker is":                  {[]runtime.Object{newLease(worker, 46*time.Second), newLease(bridge, time.Second)}, "millwright", "No worker has been at work since "},
		"no bridge is":                  {[]runtime.Object{newLease(worker, time.Second), newLease(bridge, 46*time.Second)}, "millwright", "No bridge has been at work since "},
		"neither ever was":              {nil, "millwright", "No worker has ever been at work"},
		"those of another installation": {[]runtime.Object{newLease(worker, time.Second), newLease(bridge, time.Second)}, "default", "No worker has ever been at work"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clitest.NewFakeBackend()
			w.ClusterClient = kubefake.NewClientset(row.leases...)
			out, err := w.Run(t.Context(), HeartbeatsCommand(w.Environment()), "--lease-namespace", row.from)
			if row.fails == "" {
				require.NoError(t, err)
				assert.Equal(t, "a worker and a bridge are at work\n", out)
				return
			}
			require.ErrorContains(t, err, row.fails)
		})
	}
	t.Run("a Lease that cannot be read is no answer", func(t *testing.T) {
		w := clitest.NewFakeBackend()
		kube := kubefake.NewClientset(newLease(worker, time.Second), newLease(bridge, time.Second))
		kube.PrependReactor(
			"list",
			"leases",
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") },
		)
		w.ClusterClient = kube
		_, err := w.Run(t.Context(), HeartbeatsCommand(w.Environment()), "--lease-namespace", "millwright")
		require.ErrorContains(t, err, "read Lease millwright-worker: forbidden")
	})
}

func TestHeartbeatsAsJSON(t *testing.T) {
	w := clitest.NewFakeBackend()
	w.ClusterClient = kubefake.NewClientset(
		newLease("millwright-worker", 46*time.Second),
		newLease("millwright-bridge", 21*time.Second),
	)
	out, err := w.Run(t.Context(), HeartbeatsCommand(w.Environment()), "--lease-namespace", "millwright", "-o", "json")
	require.ErrorContains(t, err, "No worker has been at work since ")
	var got struct{ Items []heartbeatAnswer }
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.Items, 2)
	assert.Equal(t, "worker", got.Items[0].Process)
	assert.False(t, got.Items[0].IsAtWork)
	assert.Contains(t, got.Items[0].Message, "No worker has been at work since ")
	assert.Equal(t, heartbeatAnswer{
		Process: "bridge", IsAtWork: true, IsOverdue: true, RenewedAt: clitest.Now.Add(-21 * time.Second),
	}, got.Items[1])
	_, err = w.Run(t.Context(), HeartbeatsCommand(w.Environment()), "-o", "json", "--address", "127.0.0.1:0")
	require.EqualError(t, err, "--address serves probes, and prints nothing: leave out --output")
}

func TestHeartbeatProbesReportReadiness(t *testing.T) {
	kube := kubefake.NewClientset(newLease("millwright-worker", time.Second), newLease("millwright-bridge", time.Second))
	w := clitest.NewFakeBackend()
	w.ClusterClient = kube
	clients, err := w.Environment().NewClients(kubecli.ClusterAccess{})
	require.NoError(t, err)
	server := httptest.NewServer(
		probeHandler(func(ctx context.Context) error {
			return CheckProcessesAreActive(ctx, clients.Leases, "millwright", clitest.Now)
		}),
	)
	defer server.Close()
	status := func(path string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
		require.NoError(t, err)
		answer, err := server.Client().Do(request)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	assert.Equal(t, http.StatusOK, status("/readyz"))
	require.NoError(
		t,
		kube.CoordinationV1().Leases("millwright").Delete(t.Context(), "millwright-bridge", metav1.DeleteOptions{}),
	)
	assert.Equal(t, http.StatusServiceUnavailable, status("/readyz"))
	assert.Equal(t, http.StatusOK, status("/healthz"), "the process runs")
	_, err = kube.CoordinationV1().
		Leases("millwright").
		Create(t.Context(), newLease("millwright-bridge", time.Second), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status("/readyz"), "a bridge is back")
}
