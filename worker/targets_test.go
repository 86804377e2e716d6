package main

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/observe/cache"
	"millwright/observe/target"
)

func TestTargetReportsAreRenewedAndDeletedWithTheirTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		configMaps := kubefake.NewClientset().CoreV1().ConfigMaps("leases")
		reporter := newTargetReporter(configMaps, "w", slog.New(slog.DiscardHandler))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			reporter.run(ctx)
		}()
		reported := func() (namespaces []string) {
			synctest.Wait()
			all, err := configMaps.Get(t.Context(), target.ReportsConfigMapName, metav1.GetOptions{})
			require.NoError(t, err)
			for _, report := range target.ReadReports(all, time.Now()) {
				namespaces = append(namespaces, report.Namespace)
			}
			return namespaces
		}
		reporter.recordStatus("calm", cache.TargetStatus{State: cache.TargetReady})
		for range 12 { // one hour of changes, more often than the reports are renewed
			reporter.recordStatus("restless", cache.TargetStatus{State: cache.TargetUnavailable})
			time.Sleep(5 * time.Minute)
		}
		assert.Equal(t, []string{"calm", "restless"}, reported())
		assert.Equal(t, map[string]float64{
			"Connecting": 0, "Held": 0, "Missing": 0, "Ready": 1, "Unavailable": 1,
		}, targetCounts(t, reporter))
		reporter.forgetTarget("restless")
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"calm"}, reported())
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"calm"}, reported())
		cancel()
		<-ended
		assert.Empty(t, reported())
	})
}

// targetCounts returns the values of the metric of a worker's targets, by state.
func targetCounts(t *testing.T, reporter *targetReporter) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(reporter.targetsGauge)
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	require.Equal(t, "millwright_targets", families[0].GetName())
	counts := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		counts[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
	}
	return counts
}
