package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"millwright/activities/kube"
	"millwright/k8sbridge/fleet"
	"millwright/k8sbridge/watch"
	"millwright/observe/cache"
	"millwright/process/problems"
	"millwright/worker/serve"
)

// metric is one metric of a process.
type metric struct {
	name, kind, help string
	labels           []string
}

// metricRecorder is a registry that stores the names, types, labels and help texts of the registered metrics.
type metricRecorder struct {
	metrics []metric
	err     error // first error of a registration
}

var _ prometheus.Registerer = (*metricRecorder)(nil)

// Register implements prometheus.Registerer.
func (r *metricRecorder) Register(c prometheus.Collector) error {
	described := make(chan *prometheus.Desc)
	go func() {
		c.Describe(described)
		close(described)
	}()
	for d := range described {
		m, err := parseDesc(d)
		r.err = cmp.Or(r.err, err)
		m.kind = metricType(c)
		r.metrics = append(r.metrics, m)
	}
	return r.err
}

// MustRegister implements prometheus.Registerer. MustRegister stores the first error in err.
func (r *metricRecorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = r.Register(c)
	}
}

// Unregister implements prometheus.Registerer.
func (r *metricRecorder) Unregister(prometheus.Collector) bool { return false }

// metricType returns the type of the metrics of a collector.
func metricType(c prometheus.Collector) string {
	switch c.(type) {
	case prometheus.Gauge: // check Gauge first, because a Gauge also has the methods of a Counter
		return "gauge"
	case *prometheus.CounterVec, prometheus.Counter:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	default: // all other collectors of Millwright are of this type
		return "gauge"
	}
}

// descPattern matches the text of a Desc. A Desc can be read only as text.
var descPattern = regexp.MustCompile(
	`^Desc\{fqName: "([^"]+)", help: "([^"]+)", unit: "", constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`,
)

func parseDesc(d *prometheus.Desc) (metric, error) {
	parts := descPattern.FindStringSubmatch(d.String())
	if parts == nil {
		return metric{}, fmt.Errorf("read %s: unknown form", d)
	}
	m := metric{name: parts[1], help: parts[2]}
	if parts[3] != "" {
		m.labels = strings.Split(parts[3], ",")
	}
	return m, nil
}

// metricsSection is a section of the page. A section has the metrics that one function registers, for a process or for
// a part of a process.
type metricsSection struct {
	title    string
	register func(prometheus.Registerer)
}

func metricsSections() ([]metricsSection, error) {
	cluster, err := cache.NewCluster(nil, nil, nil) // the cache may be empty, because no metric is collected
	if err != nil {
		return nil, fmt.Errorf("make empty caches: %w", err)
	}
	return []metricsSection{
		{"Every process", func(r prometheus.Registerer) { r.MustRegister(problems.New("")) }},
		{"Bridge", func(r prometheus.Registerer) {
			watch.NewMetrics(r)
			watch.NewLeaderGauge(r)
		}},
		{"Bridge, while it is the leader", func(r prometheus.Registerer) {
			r.MustRegister(fleet.NewGaugeCollector(cluster, nil), fleet.NewUnservedNamespacesGauge())
			fleet.NewDurationMetrics(r)
		}},
		{"Worker", func(r prometheus.Registerer) {
			kube.NewMetrics(r)
			serve.NewHeartbeatGauge(r)
			r.MustRegister(serve.NewTargetsGauge())
		}},
		{"Worker, and the workers of providers", func(r prometheus.Registerer) { serve.NewCloudMetrics(r) }},
	}, nil
}

// metricsPage returns the page of the metrics that the processes register.
func metricsPage() (string, error) {
	all, err := metricsSections()
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString(metricsPageIntro)
	for _, p := range all {
		var r metricRecorder
		p.register(&r)
		if r.err != nil {
			return "", r.err
		}
		slices.SortFunc(r.metrics, func(a, b metric) int { return strings.Compare(a.name, b.name) })
		fmt.Fprintf(&page, "\n## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", p.title)
		for _, m := range r.metrics {
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), m.help)
		}
	}
	return page.String(), nil
}

const metricsPageIntro = `# Metrics

` + "`make generate`" + ` writes this page from what the processes register. Each process serves its metrics at ` + "`/metrics`" + ` of
` + "`--metrics-address`" + `. Metrics that begin with ` + "`mcm_`" + ` have the names and labels of machine-controller-manager
([ADR 0077](../adr/0077-metrics-of-mcm.md)). Only these have the names of machines in labels. Metrics that begin with ` + "`capi_`" + `
have the names and labels of Cluster API's controllers.

A timestamp is in seconds since 1970: ` + "`time() - millwright_blocked_oldest_start_timestamp_seconds`" + ` is an age.

Every process also has the metrics of the Go runtime (` + "`go_`" + `), of the process (` + "`process_`" + `), and of the Temporal SDK
(` + "`temporal_`" + `): the SDK's counters end with ` + "`_total`" + `, and its timers are histograms that end with ` + "`_seconds`" + `. All SDK metrics
have the same labels, which are empty where they do not apply: ` + "`namespace`, `task_queue`, `worker_type`, `workflow_type`,\n`activity_type`, `poller_type`, `operation`, `status_code`, `failure_reason`, `cause`" + `.
`
