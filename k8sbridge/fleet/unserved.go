package fleet

import (
	"github.com/prometheus/client_golang/prometheus"

	"millwright/process/claims"
)

// NewUnservedNamespacesGauge returns the gauge of the namespaces that nobody serves, without values. Register it only
// while the process leads shard 0.
func NewUnservedNamespacesGauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "millwright_unserved_namespaces",
		Help: "Namespaces with objects that nobody serves, by reason: NoShard, NoWorker or NoBridge. " +
			"Only in an installation with several shards.",
	}, []string{"reason"})
}

// SetUnservedNamespaces sets the value of each reason; a reason that is not in counts gets 0.
func SetUnservedNamespaces(gauge *prometheus.GaugeVec, counts map[claims.UnservedReason]int) {
	for _, reason := range claims.UnservedReasons() {
		gauge.WithLabelValues(string(reason)).Set(float64(counts[reason]))
	}
}
