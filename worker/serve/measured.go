package serve

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millwright/provider"
	"millwright/provider/driver"
)

// CloudMetrics count what a process asks of clouds.
type CloudMetrics struct {
	calls    series // of a provider
	requests series // of a driver: one call may make several

	// The calls again, under the names of machine-controller-manager (ADR 0077).
	mcmTook   *prometheus.HistogramVec
	mcmFailed *prometheus.CounterVec
}

// NewCloudMetrics registers the metrics. Call it once for each registry.
func NewCloudMetrics(registry prometheus.Registerer) CloudMetrics {
	m := CloudMetrics{
		calls: newSeries(registry, "method", "millwright_provider_calls_total", "millwright_provider_call_duration_seconds",
			"Calls of a provider, by method and by code; OK for a success. A call may send several requests to the cloud."),
		requests: newSeries(
			registry,
			"request",
			"millwright_provider_requests_total",
			"millwright_provider_request_duration_seconds",
			"Single requests of a provider's driver, by kind and by code; OK for a success. Providers without a driver have none.",
		),
		mcmTook: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "mcm_cloud_api_driver_request_duration_seconds",
			Help:    "Durations of calls of a provider that succeeded.",
			Buckets: buckets(),
		}, []string{"provider", "operation"}),
		mcmFailed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcm_cloud_api_driver_requests_failed_total",
			Help: "Calls of a provider that failed, by the number of the code.",
		}, []string{"provider", "operation", "error_code"}),
	}
	registry.MustRegister(m.mcmTook, m.mcmFailed)
	return m
}

// buckets returns the buckets of durations, in seconds, up to the longest attempt.
func buckets() []float64 { return []float64{.01, .05, .1, .5, 1, 5, 15, 30, 60, 120, 300, 600} }

// mcmOperation returns the label of a method. Source: the drivers of machine-controller-manager.
func mcmOperation(method provider.Method) string {
	switch method {
	case provider.MethodCreateInstance:
		return "create_machine"
	case provider.MethodInitializeInstance:
		return "initialize_machine"
	case provider.MethodDeleteInstance:
		return "delete_machine"
	case provider.MethodInstanceStatus:
		return "get_machine_status"
	case provider.MethodListInstances:
		return "list_machine"
	default:
		return string(method)
	}
}

// series are a counter and a histogram of the same thing.
type series struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

// newSeries registers a counter with the labels provider, kind and code, and a histogram with the first two.
func newSeries(registry prometheus.Registerer, kind, total, took, help string) series {
	s := series{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: total, Help: help}, []string{"provider", kind, "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: took, Help: "Durations of what " + total + " counts.", Buckets: buckets(),
		}, []string{"provider", kind}),
	}
	registry.MustRegister(s.total, s.took)
	return s
}

func (s series) count(of, kind string, code provider.Code, took time.Duration) {
	s.total.WithLabelValues(of, kind, code.String()).Inc()
	s.took.WithLabelValues(of, kind).Observe(took.Seconds())
}

// called counts one call.
func (m CloudMetrics) called(name string, method provider.Method, code provider.Code, took time.Duration) {
	m.calls.count(name, string(method), code, took)
	operation := mcmOperation(method)
	if code != provider.OK {
		m.mcmFailed.WithLabelValues(name, operation, strconv.Itoa(int(code))).Inc()
		return
	}
	m.mcmTook.WithLabelValues(name, operation).Observe(took.Seconds())
}

// Measure returns the provider with each of its calls counted, except for VolumeIDs and Traits, which need no request.
// If it is derived from a driver, the driver's requests are counted, too: call Measure before the provider is called.
func (m CloudMetrics) Measure(name string, of provider.Provider) provider.Provider {
	if derived, is := of.(*driver.Provider); is {
		derived.Observe(func(method string, code provider.Code, took time.Duration) {
			m.requests.count(name, method, code, took)
		})
	}
	return measured{Provider: of, name: name, metrics: m}
}

// measured is a provider whose calls are counted.
type measured struct {
	provider.Provider

	name    string
	metrics CloudMetrics
}

// counted makes one call and counts it.
func counted[T any](m measured, method provider.Method, call func() (T, error)) (T, error) {
	began := time.Now()
	result, err := call()
	m.metrics.called(m.name, method, provider.CodeOf(err), time.Since(began))
	return result, err
}

func (m measured) CreateInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return counted(
		m,
		provider.MethodCreateInstance,
		func() (provider.Instance, error) { return m.Provider.CreateInstance(ctx, class, machine) },
	)
}

func (m measured) InitializeInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return counted(
		m,
		provider.MethodInitializeInstance,
		func() (provider.Instance, error) { return m.Provider.InitializeInstance(ctx, class, machine) },
	)
}

func (m measured) DeleteInstance(ctx context.Context, class provider.Class, machine provider.Machine) error {
	_, err := counted(
		m,
		provider.MethodDeleteInstance,
		func() (struct{}, error) { return struct{}{}, m.Provider.DeleteInstance(ctx, class, machine) },
	)
	return err
}

func (m measured) InstanceStatus(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return counted(
		m,
		provider.MethodInstanceStatus,
		func() (provider.Instance, error) { return m.Provider.InstanceStatus(ctx, class, machine) },
	)
}

func (m measured) ListInstances(
	ctx context.Context,
	class provider.Class,
	cluster string,
) ([]provider.Instance, error) {
	return counted(
		m,
		provider.MethodListInstances,
		func() ([]provider.Instance, error) { return m.Provider.ListInstances(ctx, class, cluster) },
	)
}
