package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"millwright/observe/cache"
)

// NewTargetsGauge returns the gauge of the targets of a worker, without values. Register it only if each namespace has
// its own target.
func NewTargetsGauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "millwright_targets",
		Help: "Target clusters of the namespaces that this worker serves, by state: Ready, Missing, Held, Connecting or " +
			"Unavailable. Only if each namespace has its own target.",
	}, []string{"state"})
}

// SetTargetCounts sets the value of each state; a state that is not in counts gets 0.
func SetTargetCounts(gauge *prometheus.GaugeVec, counts map[cache.TargetState]int) {
	for _, state := range []cache.TargetState{
		cache.TargetReady, cache.TargetMissing, cache.TargetHeld, cache.TargetConnecting, cache.TargetUnavailable,
	} {
		gauge.WithLabelValues(string(state)).Set(float64(counts[state]))
	}
}
