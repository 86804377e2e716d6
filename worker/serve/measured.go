package serve

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millwright/provider"
	"millwright/provider/driver"
)

// CloudMetrics count the calls and requests of a process to clouds.
type CloudMetrics struct {
	calls    callMetrics // count and durations of provider calls
	requests callMetrics // count and durations of driver requests; one call may send several requests

	// The metrics below count the calls under the names of machine-controller-manager (ADR 0077).
	mcmDurations *prometheus.HistogramVec
	mcmFailures  *prometheus.CounterVec
}

// NewCloudMetrics registers the metrics. Call NewCloudMetrics once per registry.
func NewCloudMetrics(registry prometheus.Registerer) CloudMetrics {
	m := CloudMetrics{
		calls: newCallMetrics(
			registry,
			"method",
			"millwright_provider_calls_total",
			"millwright_provider_call_duration_seconds",
			"Calls of a provider, by method and by code; OK for a success. A call may send several requests to the cloud.",
		),
		requests: newCallMetrics(
			registry,
			"request",
			"millwright_provider_requests_total",
			"millwright_provider_request_duration_seconds",
			"Single requests of a provider's driver, by kind and by code; OK for a success. Providers without a driver have none.",
		),
		mcmDurations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "mcm_cloud_api_driver_request_duration_seconds",
			Help:    "Durations of calls of a provider that succeeded.",
			Buckets: durationBuckets(),
		}, []string{"provider", "operation"}),
		mcmFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcm_cloud_api_driver_requests_failed_total",
			Help: "Calls of a provider that failed, by the number of the code.",
		}, []string{"provider", "operation", "error_code"}),
	}
	registry.MustRegister(m.mcmDurations, m.mcmFailures)
	return m
}

// durationBuckets returns the buckets of durations in seconds, up to the longest attempt.
func durationBuckets() []float64 { return []float64{.01, .05, .1, .5, 1, 5, 15, 30, 60, 120, 300, 600} }

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

// callMetrics are a counter and a duration histogram of the same operation.
type callMetrics struct {
	counter   *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

// newCallMetrics registers a counter with the labels provider, kind and code, and a histogram with the labels provider
// and kind.
func newCallMetrics(registry prometheus.Registerer, kind, total, took, help string) callMetrics {
	s := callMetrics{
		counter: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: total, Help: help},
			[]string{"provider", kind, "code"},
		),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: took, Help: "Durations of what " + total + " counts.", Buckets: durationBuckets(),
		}, []string{"provider", kind}),
	}
	registry.MustRegister(s.counter, s.durations)
	return s
}

func (s callMetrics) observeCall(of, kind string, code provider.Code, took time.Duration) {
	s.counter.WithLabelValues(of, kind, code.String()).Inc()
	s.durations.WithLabelValues(of, kind).Observe(took.Seconds())
}

// countCall counts one call.
func (m CloudMetrics) countCall(name string, method provider.Method, code provider.Code, took time.Duration) {
	m.calls.observeCall(name, string(method), code, took)
	operation := mcmOperation(method)
	if code != provider.OK {
		m.mcmFailures.WithLabelValues(name, operation, strconv.Itoa(int(code))).Inc()
		return
	}
	m.mcmDurations.WithLabelValues(name, operation).Observe(took.Seconds())
}

// MeasureProvider returns a provider that counts its calls. VolumeIDs and Traits are not counted, because they send no
// request. If the provider uses a driver, the requests of the driver are also counted. Call MeasureProvider before the
// first call of the provider.
func (m CloudMetrics) MeasureProvider(name string, of provider.Provider) provider.Provider {
	if derived, is := of.(*driver.Provider); is {
		derived.SetObserver(func(method string, code provider.Code, took time.Duration) {
			m.requests.observeCall(name, method, code, took)
		})
	}
	return measuredProvider{Provider: of, name: name, metrics: m}
}

// measuredProvider is a provider whose calls are counted.
type measuredProvider struct {
	provider.Provider

	name    string
	metrics CloudMetrics
}

// measureCall makes one call and counts it.
func measureCall[T any](m measuredProvider, method provider.Method, call func() (T, error)) (T, error) {
	began := time.Now()
	result, err := call()
	m.metrics.countCall(m.name, method, provider.CodeOfError(err), time.Since(began))
	return result, err
}

func (m measuredProvider) CreateInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return measureCall(
		m,
		provider.MethodCreateInstance,
		func() (provider.Instance, error) { return m.Provider.CreateInstance(ctx, class, machine) },
	)
}

func (m measuredProvider) InitializeInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return measureCall(
		m,
		provider.MethodInitializeInstance,
		func() (provider.Instance, error) { return m.Provider.InitializeInstance(ctx, class, machine) },
	)
}

func (m measuredProvider) DeleteInstance(ctx context.Context, class provider.Class, machine provider.Machine) error {
	_, err := measureCall(
		m,
		provider.MethodDeleteInstance,
		func() (struct{}, error) { return struct{}{}, m.Provider.DeleteInstance(ctx, class, machine) },
	)
	return err
}

func (m measuredProvider) InstanceStatus(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return measureCall(
		m,
		provider.MethodInstanceStatus,
		func() (provider.Instance, error) { return m.Provider.InstanceStatus(ctx, class, machine) },
	)
}

func (m measuredProvider) ListInstances(
	ctx context.Context,
	class provider.Class,
	cluster string,
) ([]provider.Instance, error) {
	return measureCall(
		m,
		provider.MethodListInstances,
		func() ([]provider.Instance, error) { return m.Provider.ListInstances(ctx, class, cluster) },
	)
}
