package serve_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/provider"
	"millwright/provider/driver"
	"millwright/provider/fake"
	"millwright/worker/serve"
)

func TestCallsOfAProviderAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	cloud := fake.New()
	p := serve.NewCloudMetrics(registry).MeasureProvider("fake", cloud)
	class := provider.Class{Namespace: "shop", Name: "small"}
	m := provider.Machine{Cluster: "c", Namespace: "shop", Name: "m", UID: "uid-m"}
	cloud.FailCalls(provider.MethodCreateInstance, 1, provider.Errorf(provider.ResourceExhausted, "no room"))
	_, err := p.CreateInstance(t.Context(), class, m)
	require.Error(t, err)
	_, err = p.CreateInstance(t.Context(), class, m)
	require.NoError(t, err)
	_, err = p.InstanceStatus(t.Context(), class, m)
	require.NoError(t, err)
	_, err = p.InitializeInstance(t.Context(), class, m)
	require.Error(t, err)
	_, err = p.ListInstances(t.Context(), class, "c")
	require.NoError(t, err)
	require.NoError(t, p.DeleteInstance(t.Context(), class, m))
	assert.Empty(t, cloud.Instances())
	assert.Equal(t, map[string]float64{
		"OK CreateInstance":                1,
		"ResourceExhausted CreateInstance": 1,
		"OK InstanceStatus":                1,
		"Unimplemented InitializeInstance": 1,
		"OK ListInstances":                 1,
		"OK DeleteInstance":                1,
	}, metricValues(t, registry, "millwright_provider_calls_total"))
	assert.Equal(t, map[string]float64{
		"CreateInstance": 2, "InstanceStatus": 1, "InitializeInstance": 1, "ListInstances": 1, "DeleteInstance": 1,
	}, metricValues(t, registry, "millwright_provider_call_duration_seconds"))
	assert.Equal(t, map[string]float64{
		"create_machine": 1, "get_machine_status": 1, "list_machine": 1, "delete_machine": 1,
	}, metricValues(t, registry, "mcm_cloud_api_driver_request_duration_seconds"))
	assert.Equal(t, map[string]float64{"8 create_machine": 1, "12 initialize_machine": 1},
		metricValues(t, registry, "mcm_cloud_api_driver_requests_failed_total"))
	assert.Empty(t, metricValues(t, registry, "millwright_provider_requests_total"), "it has no driver")
}

// singleInstanceDriver is a driver for a cloud that has one instance, which belongs to every machine.
// singleInstanceDriver creates no instance.
type singleInstanceDriver struct{ deleted bool }

func (*singleInstanceDriver) Traits(context.Context, provider.Class) (provider.Traits, error) {
	return provider.Traits{Idempotency: provider.ByName}, nil
}

func (c *singleInstanceDriver) Find(
	_ context.Context,
	_ provider.Class,
	m provider.Machine,
) (driver.SearchResult, error) {
	if c.deleted {
		return driver.SearchResult{}, nil
	}
	return driver.SearchResult{Instances: []provider.Instance{{ProviderID: "one", MachineUID: m.UID}}}, nil
}

func (*singleInstanceDriver) Create(
	context.Context,
	provider.Class,
	provider.Machine,
	driver.CreateRequest,
) (provider.Instance, error) {
	return provider.Instance{}, provider.Errorf(provider.ResourceExhausted, "no room")
}

func (c *singleInstanceDriver) Delete(context.Context, provider.Class, provider.Machine, provider.Instance) error {
	c.deleted = true
	return nil
}

func (*singleInstanceDriver) List(context.Context, provider.Class, string) ([]provider.Instance, error) {
	return nil, provider.Errorf(provider.Unauthenticated, "who are you?")
}

func (*singleInstanceDriver) Initialize(
	context.Context,
	provider.Class,
	provider.Machine,
	provider.Instance,
) (provider.Instance, error) {
	return provider.Instance{}, provider.Errorf(provider.Internal, "no")
}

// If a provider uses a driver, the driver's requests are also counted, because one call may send several requests.
func TestRequestsOfADriverAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := serve.NewCloudMetrics(registry).MeasureProvider("one", driver.New(&singleInstanceDriver{}))
	class := provider.Class{Namespace: "shop", Name: "small"}
	m := provider.Machine{Cluster: "c", Namespace: "shop", Name: "m", UID: "uid-m"}
	_, err := p.CreateInstance(t.Context(), class, m) // Find
	require.NoError(t, err)
	_, err = p.InitializeInstance(t.Context(), class, m) // Find, Initialize
	require.Error(t, err)
	// this call sends the driver's requests Find and Delete
	require.NoError(
		t,
		p.DeleteInstance(t.Context(), class, provider.Machine{Cluster: "c", Name: "m", UID: "uid-m", ProviderID: "one"}),
	)
	// this call sends the driver's requests Find, Traits and Create
	_, err = p.CreateInstance(t.Context(), class, m)
	require.Error(t, err)
	_, err = p.ListInstances(t.Context(), class, "c") // List
	require.Error(t, err)
	assert.Equal(t, map[string]float64{
		"OK Find":                  4,
		"Internal Initialize":      1,
		"OK Delete":                1,
		"OK Traits":                1,
		"ResourceExhausted Create": 1,
		"Unauthenticated List":     1,
	}, metricValues(t, registry, "millwright_provider_requests_total"))
	assert.Equal(t, map[string]float64{"Find": 4, "Initialize": 1, "Delete": 1, "Traits": 1, "Create": 1, "List": 1},
		metricValues(t, registry, "millwright_provider_request_duration_seconds"))
	assert.Equal(t, map[string]float64{
		"OK CreateInstance":                1,
		"ResourceExhausted CreateInstance": 1,
		"Internal InitializeInstance":      1,
		"OK DeleteInstance":                1,
		"Unauthenticated ListInstances":    1,
	}, metricValues(t, registry, "millwright_provider_calls_total"))
}

// metricValues returns the values of a counter or the counts of a histogram. The keys are the labels without the
// provider.
func metricValues(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "provider" {
					labels = append(labels, l.GetValue())
				}
			}
			switch key := strings.Join(labels, " "); {
			case family.GetName() != name:
			case m.GetCounter() != nil:
				values[key] = m.GetCounter().GetValue()
			default:
				values[key] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return values
}
