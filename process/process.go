// Package process contains the common parts of all Millwright processes: flags, a logger, clients for Kubernetes and
// Temporal, and an endpoint for metrics and health. The main functions of all processes call package process. Package
// process contains nothing about machines except the flags that several processes share.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/process/connection"
	"millwright/process/problems"
	"millwright/workflows/run"
)

// Flags are the flags of every process. The zero Flags is invalid: Register sets the defaults.
type Flags struct {
	Kubeconfig       string
	TargetKubeconfig string
	Targets          TargetFlags
	Shards           ShardFlags
	Connection       connection.Flags // flags of the connection to Temporal
	MetricsAddress   string
	LogLevel         string
	ClusterName      string
	LeaseNamespace   string
	QPS              float64 // requests per second of each client; zero means no limit
	Burst            int
	ProblemRecorder  *problems.Recorder // problems of the process; nil before Start
}

// Register adds the flags to a set.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(
		&f.Kubeconfig,
		"kubeconfig",
		"",
		"kubeconfig of the cluster that holds the machine objects; empty means the service account of the pod",
	)
	set.StringVar(
		&f.TargetKubeconfig,
		"target-kubeconfig",
		"",
		"kubeconfig of the cluster that the machines join as nodes; empty means the cluster of --kubeconfig; \"none\" means that machines join no cluster; set the same value on worker and bridge",
	)
	f.Targets.Register(set)
	f.Shards.register(set)
	f.Connection.Register(set)
	set.StringVar(
		&f.ClusterName,
		"cluster-name",
		"",
		"name of this installation: the first part of its task queues and workflow IDs, and a tag on each instance; set the same value on worker and bridge (required)",
	)
	set.StringVar(
		&f.LeaseNamespace,
		"lease-namespace",
		"default",
		"namespace of the Leases for the leader election of the bridges and for the presence of the workers",
	)
	set.StringVar(&f.MetricsAddress, "metrics-address", ":9464", "host:port that serves /metrics, /healthz and /readyz")
	set.StringVar(&f.LogLevel, "log-level", "info", "debug, info, warn or error")
	// ADR 0087 explains the default QPS. Gardener runs machine-controller-manager with a burst of 200.
	set.Float64Var(
		&f.QPS,
		"kube-api-qps",
		0,
		"largest sustained number of requests per second of each client of an API server; 0: no limit but the priority and fairness of the API server",
	)
	set.IntVar(&f.Burst, "kube-api-burst", 200, "largest burst of requests of each client, if --kube-api-qps is set")
}

// Identity returns the identity of this process in Leases and reports: the host name and the process ID.
func Identity() string {
	host, _ := os.Hostname() // if Hostname fails, the process ID still identifies the process
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// Installation returns the name of this installation, or an error that says why --cluster-name is invalid.
func (f *Flags) Installation() (run.Installation, error) {
	name := run.Installation(f.ClusterName)
	if err := name.Check(); err != nil {
		return "", fmt.Errorf("--cluster-name: %w", err)
	}
	return name, nil
}

// Logger returns a logger that writes JSON lines to standard error.
func (f *Flags) Logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.LogLevel)); err != nil {
		return nil, fmt.Errorf("read --log-level: %w", err)
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})), nil
}

// ControlClusterConfig returns the configuration for clients of the control cluster. The parameter agent is the user
// agent and names the process.
func (f *Flags) ControlClusterConfig(agent string) (*rest.Config, error) {
	return f.clusterConfig(f.Kubeconfig, agent, problems.ControlCluster)
}

// NoTargetClusterValue is the value of --target-kubeconfig without a target cluster.
const NoTargetClusterValue = "none"

// TargetClusterConfig returns the configuration for clients of the target cluster of all namespaces; nil if namespaces
// have targets of their own, or if machines join no cluster.
func (f *Flags) TargetClusterConfig(agent string) (*rest.Config, error) {
	if err := f.checkTargetFlags(); err != nil {
		return nil, err
	}
	switch {
	case f.HasTargetPerNamespace(), f.TargetKubeconfig == NoTargetClusterValue:
		return nil, nil
	case f.TargetKubeconfig == "":
		return f.clusterConfig(f.Kubeconfig, agent, problems.ControlCluster)
	default:
		return f.clusterConfig(f.TargetKubeconfig, agent, problems.TargetCluster)
	}
}

func (f *Flags) clusterConfig(kubeconfig, agent string, system problems.System) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	switch {
	case err != nil && kubeconfig == "":
		return nil, fmt.Errorf("no kubeconfig is given, and this process runs in no pod: %w", err)
	case err != nil:
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	config.UserAgent = agent
	f.LimitRequests(config)
	if f.ProblemRecorder == nil {
		return config, nil
	}
	if err := f.ProblemRecorder.WrapConfig(config, system); err != nil {
		return nil, fmt.Errorf("use kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// LimitRequests sets the rate limit of the clients that are made with a configuration.
func (f *Flags) LimitRequests(config *rest.Config) {
	config.QPS, config.Burst = float32(f.QPS), f.Burst
	if f.QPS == 0 {
		config.QPS = -1 // a QPS of zero would mean client-go's default of 5
	}
}

// NewKubernetesClient returns a client of Kubernetes' own resources. The client uses protobuf to save traffic: nodes
// change much more often than machines, and the API server sends each change to every process that watches nodes.
func NewKubernetesClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// ConnectTemporal connects to Temporal. ConnectTemporal retries until the server answers or ctx is done.
// ConnectTemporal returns an error at once if a flag is invalid.
func (f *Flags) ConnectTemporal(
	ctx context.Context,
	logger *slog.Logger,
	registry prometheus.Registerer,
) (client.Client, error) {
	options, err := f.Connection.ClientOptions()
	if err != nil {
		return nil, err
	}
	options.Logger, options.MetricsHandler = log.NewStructuredLogger(logger), NewTemporalMetrics(registry)
	// Requests to Temporal have only a few kilobytes and the server is near, so compression costs more than it saves.
	options.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{}
	interceptors := []grpc.UnaryClientInterceptor{lengthenTimeouts, repeatHeartbeats}
	if f.ProblemRecorder != nil {
		interceptors = append(interceptors, f.ProblemRecorder.InterceptTemporal)
	}
	options.ConnectionOptions.DialOptions = append(
		options.ConnectionOptions.DialOptions,
		grpc.WithChainUnaryInterceptor(interceptors...),
	)
	for {
		c, err := client.DialContext(ctx, options)
		if err == nil {
			return c, nil
		}
		logger.Warn("Temporal does not answer, will try again", "address", f.Connection.Address, "error", err)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to Temporal at %s: %w", f.Connection.Address, err)
		case <-time.After(time.Second):
		}
	}
}

// NewMetricsRegistry returns a metrics registry with the metrics of the Go runtime and of the process.
func NewMetricsRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Process is a process with a logger, metrics and a health endpoint. Start returns a Process.
type Process struct {
	Logger          *slog.Logger
	MetricsRegistry *prometheus.Registry
	checkTemporal   atomic.Pointer[func(context.Context) error] // checks the connection to Temporal; nil until MarkReady
}

// healthTimeout is the timeout of a health check of Temporal. The timeout is shorter than the default probe timeout of
// one second, and much longer than a normal response takes.
const healthTimeout = 800 * time.Millisecond

// Start sets the default logger, starts to record problems, and serves metrics and health until ctx is done. The
// process is not ready before a call of MarkReady.
func (f *Flags) Start(ctx context.Context) (*Process, error) {
	logger, err := f.Logger()
	if err != nil {
		return nil, err
	}
	slog.SetDefault(logger)
	p := &Process{Logger: logger, MetricsRegistry: NewMetricsRegistry()}
	f.ProblemRecorder = problems.New(f.ClusterName)
	p.MetricsRegistry.MustRegister(f.ProblemRecorder)
	return p, f.ServeMetrics(ctx, p.MetricsRegistry, func(ctx context.Context) error {
		health := p.checkTemporal.Load()
		if health == nil {
			return errors.New("caches are not filled yet")
		}
		ctx, cancel := context.WithTimeout(ctx, healthTimeout)
		defer cancel()
		if err := (*health)(ctx); err != nil {
			return fmt.Errorf("the Temporal server at %s does not answer: %w", f.Connection.Address, err)
		}
		return nil
	})
}

// MarkReady makes /readyz succeed while Temporal answers.
func (p *Process) MarkReady(temporal client.Client) {
	health := func(ctx context.Context) error {
		_, err := temporal.CheckHealth(ctx, &client.CheckHealthRequest{})
		return err
	}
	p.checkTemporal.Store(&health)
}

// ServeMetrics serves /metrics, /healthz (the process runs) and /readyz (ready returns nil) until ctx is done.
// ServeMetrics returns an error if it cannot listen on the address.
func (f *Flags) ServeMetrics(
	ctx context.Context,
	registry *prometheus.Registry,
	ready func(context.Context) error,
) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ready")
	})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.MetricsAddress)
	if err != nil {
		return fmt.Errorf("listen on --metrics-address: %w", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("metrics endpoint ended", "error", err)
		}
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return nil
}
