package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThePageOfMetricsIsUpToDate(t *testing.T) {
	page, err := metricsPage()
	require.NoError(t, err)
	had, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "metrics.md"))
	require.NoError(t, err)
	assert.Equal(t, page, string(had), "run make generate")
}

func TestWritePageOverwritesAPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reference", "metrics.md")
	require.NoError(t, writePage(path, "a page"))
	require.NoError(t, writePage(path, "a page"))
	assert.FileExists(t, path)
}

func TestMetricTypesAndLabels(t *testing.T) {
	var r metricRecorder
	r.MustRegister(
		prometheus.NewCounterVec(prometheus.CounterOpts{Name: "a_total", Help: "A."}, []string{"x", "y"}),
		prometheus.NewHistogram(prometheus.HistogramOpts{Name: "b_seconds", Help: "B."}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "c", Help: "C."}),
	)
	require.NoError(t, r.err)
	assert.Equal(t, []metric{
		{name: "a_total", kind: "counter", help: "A.", labels: []string{"x", "y"}},
		{name: "b_seconds", kind: "histogram", help: "B."},
		{name: "c", kind: "gauge", help: "C."},
	}, r.metrics)
	assert.Error(
		t,
		r.Register(
			prometheus.NewGauge(prometheus.GaugeOpts{Name: "d", Help: "D.", ConstLabels: prometheus.Labels{"z": "1"}}),
		),
		"a form that is not known is not skipped",
	)
}

// Names of metrics follow the rules of Prometheus. Metrics of machine-controller-manager and of Cluster API keep their
// names. Only the metrics of machine-controller-manager may have the name of a machine as a label.
func TestMetricNamesFollowPrometheusRules(t *testing.T) {
	all, err := metricsSections()
	require.NoError(t, err)
	counters := regexp.MustCompile(`_total$`)
	ours := regexp.MustCompile(`^millwright_[a-z_]+$`)
	seen := map[string]bool{}
	for _, p := range all {
		var r metricRecorder
		p.register(&r)
		require.NoError(t, r.err)
		for _, m := range r.metrics {
			assert.False(t, seen[m.name], "%s is registered twice", m.name)
			seen[m.name] = true
			if !ours.MatchString(m.name) {
				assert.Regexp(t, `^(mcm|capi)_[a-z_]+$`, m.name)
				continue
			}
			assert.Equal(t, m.kind == "counter", counters.MatchString(m.name), "%s is a %s", m.name, m.kind)
			for _, label := range []string{"name", "machine", "node", "pod"} {
				assert.NotContains(t, m.labels, label, "%s would have a series for each", m.name)
			}
		}
	}
	assert.True(
		t,
		seen["millwright_bridge_leader"] && seen["mcm_machine_info"] && seen["millwright_drain_duration_seconds"],
	)
}
