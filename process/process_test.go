package process

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"millwright/process/connection"
)

func TestRegisterBindsFlags(t *testing.T) {
	var f Flags
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.Register(set)
	require.NoError(t, set.Parse([]string{"--temporal-address=here:1"}))
	assert.Equal(t, "here:1", f.Connection.Address)
	f.Connection = connection.Flags{}
	assert.Equal(
		t,
		Flags{
			MetricsAddress: ":9464",
			LogLevel:       "info",
			LeaseNamespace: "default",
			Burst:          200,
			Targets:        TargetFlags{kubeconfigKey: "kubeconfig"},
			Shards:         ShardFlags{Count: 1},
		},
		f,
	)
}

func TestLoggerHasTheLevelOfTheFlag(t *testing.T) {
	logger, err := (&Flags{LogLevel: "warn"}).Logger()
	require.NoError(t, err)
	assert.False(t, logger.Enabled(t.Context(), slog.LevelInfo))
	assert.True(t, logger.Enabled(t.Context(), slog.LevelWarn))
	_, err = (&Flags{LogLevel: "loud"}).Logger()
	assert.ErrorContains(t, err, "--log-level")
}

func TestControlClusterConfigReadsTheKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`), 0o600))
	config, err := (&Flags{Kubeconfig: path, QPS: 7, Burst: 9}).ControlClusterConfig("millwright-test")
	require.NoError(t, err)
	assert.Equal(t, "https://127.0.0.1:6443", config.Host)
	assert.Equal(t, "millwright-test", config.UserAgent, "so that requests can be attributed")
	assert.InDelta(t, 7, config.QPS, 0)
	assert.Equal(t, 9, config.Burst)
	config, err = (&Flags{Kubeconfig: path}).ControlClusterConfig("millwright-test")
	require.NoError(t, err)
	assert.Negative(t, config.QPS, "no limit")

	_, err = (&Flags{Kubeconfig: path + "-absent"}).ControlClusterConfig("millwright-test")
	assert.ErrorContains(t, err, path+"-absent")
}

func TestConnectTemporalRetriesUntilTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	f := Flags{Connection: connection.Flags{Address: unusedAddress(t), Namespace: "millwright"}}
	_, err := f.ConnectTemporal(ctx, slog.New(slog.DiscardHandler), NewMetricsRegistry())
	assert.ErrorContains(t, err, "connect to Temporal at "+f.Connection.Address)
}

func unusedAddress(t *testing.T) string {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// fakeTemporal is a Temporal client whose server can be down.
type fakeTemporal struct {
	client.Client

	isDown atomic.Bool
}

func (a *fakeTemporal) CheckHealth(context.Context, *client.CheckHealthRequest) (*client.CheckHealthResponse, error) {
	if a.isDown.Load() {
		return nil, errors.New("connection refused")
	}
	return &client.CheckHealthResponse{}, nil
}

func TestProcessServesMetricsAndHealth(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f := Flags{MetricsAddress: unusedAddress(t), Connection: connection.Flags{Address: "temporal:7233"}, LogLevel: "info"}
	p, err := f.Start(ctx)
	require.NoError(t, err)
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
	temporal := &fakeTemporal{}
	p.MarkReady(temporal)
	code, _ = get("/readyz")
	assert.Equal(t, http.StatusOK, code)
	temporal.isDown.Store(true)
	code, body = get("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Equal(t, "the Temporal server at temporal:7233 does not answer: connection refused\n", body)
	temporal.isDown.Store(false)
	code, _ = get("/readyz")
	assert.Equal(t, http.StatusOK, code, "as soon as it answers again")
	code, body = get("/metrics")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "go_goroutines")
	assert.Contains(t, body, "process_cpu_seconds_total")

	require.ErrorContains(t, f.ServeMetrics(ctx, NewMetricsRegistry(), nil), "listen on --metrics-address", "taken")
	stop()
	require.Eventually(t, func() bool {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", f.MetricsAddress)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, 2*time.Minute, time.Millisecond, "it ends with its context")
}

// The development stack relies on this: it appends the flags of a test to its own flags.
func TestTheLastValueOfARepeatedFlagIsUsed(t *testing.T) {
	var (
		f       Flags
		rollout RolloutFlags
	)
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.Register(set)
	rollout.Register(set)
	const guard = "--autoscaler-scaledown-annotation-during-rollout"
	require.NoError(
		t,
		set.Parse(
			[]string{
				"--log-level",
				"warn",
				"--kube-api-burst=5",
				guard + "=true",
				"--log-level=debug",
				"--kube-api-burst",
				"7",
				guard + "=false",
			},
		),
	)
	assert.Equal(t, "debug", f.LogLevel)
	assert.Equal(t, 7, f.Burst)
	assert.False(t, rollout.UsesAutoscalerGuard)
	require.NoError(t, set.Parse([]string{guard}))
	assert.True(t, rollout.UsesAutoscalerGuard)
}
