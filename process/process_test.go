package process

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFlags(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "")
	t.Setenv("TEMPORAL_NAMESPACE", "")
	parse := func(args ...string) Flags {
		var f Flags
		set := flag.NewFlagSet("test", flag.ContinueOnError)
		f.Register(set)
		require.NoError(t, set.Parse(args))
		return f
	}
	assert.Equal(t, Flags{
		TemporalAddress: "127.0.0.1:7233", TemporalNamespace: "millwright", MetricsAddress: ":9464", LogLevel: "info", LeaseNamespace: "default", QPS: 150, Burst: 200,
	}, parse())

	t.Setenv("TEMPORAL_ADDRESS", "temporal:7233")
	t.Setenv("TEMPORAL_NAMESPACE", "other")
	assert.Equal(t, "temporal:7233", parse().TemporalAddress, "as Temporal's own tools")
	assert.Equal(t, "other", parse().TemporalNamespace)
	assert.Equal(t, "here:1", parse("--temporal-address=here:1").TemporalAddress, "a flag beats the environment")
}

func TestLogger(t *testing.T) {
	logger, err := (&Flags{LogLevel: "warn"}).Logger()
	require.NoError(t, err)
	assert.False(t, logger.Enabled(t.Context(), slog.LevelInfo))
	assert.True(t, logger.Enabled(t.Context(), slog.LevelWarn))
	_, err = (&Flags{LogLevel: "loud"}).Logger()
	assert.ErrorContains(t, err, "--log-level")
}

func TestKubernetesConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`), 0o600))
	config, err := (&Flags{Kubeconfig: path, QPS: 7, Burst: 9}).Kubernetes("millwright-test")
	require.NoError(t, err)
	assert.Equal(t, "https://127.0.0.1:6443", config.Host)
	assert.Equal(t, "millwright-test", config.UserAgent, "so that requests can be attributed")
	assert.InDelta(t, 7, config.QPS, 0)
	assert.Equal(t, 9, config.Burst)

	_, err = (&Flags{Kubeconfig: path + "-absent"}).Kubernetes("millwright-test")
	assert.ErrorContains(t, err, path+"-absent")
}

func TestTemporalIsWaitedForUntilTheEnd(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	f := Flags{TemporalAddress: freeAddress(t), TemporalNamespace: "millwright"}
	_, err := f.Temporal(ctx, slog.New(slog.DiscardHandler), NewRegistry())
	assert.ErrorContains(t, err, "connect to Temporal at "+f.TemporalAddress)
}

func freeAddress(t *testing.T) string {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f := Flags{MetricsAddress: freeAddress(t)}
	var ready atomic.Bool
	require.NoError(t, f.Serve(ctx, NewRegistry(), func() error {
		if !ready.Load() {
			return errors.New("caches are not filled yet")
		}
		return nil
	}))
	get := func(path string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.MetricsAddress+path, http.NoBody)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(body)
	}
	code, body := get("/healthz")
	assert.Equal(t, http.StatusOK, code, "it lives")
	assert.Equal(t, "ok\n", body)
	code, body = get("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Equal(t, "caches are not filled yet\n", body, "it says what it waits for")
	ready.Store(true)
	code, _ = get("/readyz")
	assert.Equal(t, http.StatusOK, code)
	code, body = get("/metrics")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "go_goroutines")
	assert.Contains(t, body, "process_cpu_seconds_total")

	require.ErrorContains(t, f.Serve(ctx, NewRegistry(), nil), "listen on --metrics-address", "taken")
	stop()
	require.Eventually(t, func() bool {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", f.MetricsAddress)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, 5*time.Second, time.Millisecond, "it ends with its context")
}
