package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"millwright/api/v1alpha1"
	"millwright/k8sbridge/fleet"
	"millwright/process/claims"
)

// metricValues returns the values of the only metric of a collector, by the value of its label; empty without a label.
func metricValues(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			label := ""
			for _, pair := range m.GetLabel() {
				label = pair.GetValue()
			}
			values[label] = m.GetGauge().GetValue()
		}
	}
	return values
}

// The alert MillwrightNoLeader sums the gauge over all bridges.
func TestOnlyTheBridgeOfShardZeroIsTheLeader(t *testing.T) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "leads"})
	for _, row := range []struct {
		shards []int
		value  float64
	}{{[]int{0, 2}, 1}, {[]int{1, 2}, 0}, {nil, 0}} {
		setLeaderGauge(gauge, row.shards)
		assert.Equal(t, map[string]float64{"": row.value}, metricValues(t, gauge))
	}
}

func TestNamespacesGetOnlyShardsThatTheWorkersServe(t *testing.T) {
	lease := func(annotation string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationShards: annotation}},
		}
	}
	assert.Equal(t, 0, servedShardCount(nil, 4))
	assert.Equal(t, 1, servedShardCount(&coordinationv1.Lease{}, 4))
	assert.Equal(t, 2, servedShardCount(lease("2"), 4))
	assert.Equal(t, 4, servedShardCount(lease("4"), 4))
	assert.Equal(t, 2, servedShardCount(lease("4"), 2), "this bridge does not know the other shards")
}

func TestTheGaugeOfUnservedNamespacesFollowsTheLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		leases := client.CoordinationV1().Leases("default")
		add := func(name, role, shard string) {
			labels := map[string]string{"machine.sapcloud.io/claims-of": role}
			if shard != "" {
				labels["machine.sapcloud.io/shard"] = shard
			}
			_, err := leases.Create(t.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("of " + role), RenewTime: new(metav1.NowMicro())},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		add("p", claims.RoleWorker, "")
		add("q", claims.RoleBridge, "")
		gauge := fleet.NewUnservedNamespacesGauge()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go exportUnservedNamespaces(ctx, leases, gauge, func(workers, bridges map[int]string) map[claims.UnservedReason]int {
			return map[claims.UnservedReason]int{claims.DecideUnservedReason(0, true, workers, bridges): 1}
		})
		for _, step := range []struct {
			role     string
			noWorker float64
			noBridge float64
		}{{"", 1, 0}, {claims.RoleWorker, 0, 1}, {claims.RoleBridge, 0, 0}} {
			if step.role != "" {
				add("shard of "+step.role, step.role, "0")
			}
			time.Sleep(unservedExportInterval + time.Second)
			synctest.Wait()
			assert.Equal(
				t,
				map[string]float64{"NoShard": 0, "NoWorker": step.noWorker, "NoBridge": step.noBridge},
				metricValues(t, gauge),
			)
		}
	})
}
