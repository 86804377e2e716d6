package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/observe/cache"
	"millwright/observe/target"
	"millwright/worker/serve"
)

const (
	// reportDelay is the time for which targetReporter collects changes of targets before it writes the changes.
	// Source: a worker that starts connects to hundreds of targets within some seconds.
	reportDelay = time.Second
	// reportRetryDelay is the delay after a failed write.
	reportRetryDelay = 10 * time.Second
)

// targetReporter writes the states of this worker's targets to a ConfigMap. The bridge wakes the machines of a target
// that became ready, and `millwright fleet` shows the states.
type targetReporter struct {
	configMaps     typedcorev1.ConfigMapInterface
	workerIdentity string
	log            *slog.Logger
	changed        chan struct{}

	targetsGauge *prometheus.GaugeVec // targets by state

	mu                sync.Mutex
	reports           map[string]target.Report // by namespace
	pendingNamespaces map[string]bool          // namespaces whose report is not written yet
}

func newTargetReporter(configMaps typedcorev1.ConfigMapInterface, worker string, log *slog.Logger) *targetReporter {
	return &targetReporter{
		configMaps:        configMaps,
		workerIdentity:    worker,
		log:               log,
		changed:           make(chan struct{}, 1),
		targetsGauge:      serve.NewTargetsGauge(),
		reports:           map[string]target.Report{},
		pendingNamespaces: map[string]bool{},
	}
}

// recordStatus stores the state of a target. recordStatus does not wait.
func (r *targetReporter) recordStatus(namespace string, status cache.TargetStatus) {
	r.mu.Lock()
	r.reports[namespace] = target.Report{
		Namespace: namespace, Worker: r.workerIdentity, State: status.State, Why: status.Message, Since: status.Since,
	}
	r.pendingNamespaces[namespace] = true
	r.mu.Unlock()
	r.notifyChange()
}

// forgetTarget deletes the report of a target that this worker no longer serves. forgetTarget does not wait.
func (r *targetReporter) forgetTarget(namespace string) {
	r.mu.Lock()
	delete(r.reports, namespace)
	r.pendingNamespaces[namespace] = true
	r.mu.Unlock()
	r.notifyChange()
}

// notifyChange makes run write the reports, and updates the gauge of the targets.
func (r *targetReporter) notifyChange() {
	counts := map[cache.TargetState]int{}
	r.mu.Lock()
	for _, report := range r.reports {
		counts[report.State]++
	}
	serve.SetTargetCounts(r.targetsGauge, counts)
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// run writes the reports until ctx ends, and then deletes them.
func (r *targetReporter) run(ctx context.Context) {
	defer r.deleteReports(context.WithoutCancel(ctx))
	renewal := time.NewTicker(target.ReportInterval)
	defer renewal.Stop()
	var retry <-chan time.Time // nil: the last write has succeeded
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			if !sleepUnlessDone(ctx, reportDelay) {
				return
			}
		case <-retry:
		case <-renewal.C:
			r.markAllPending()
		}
		retry = nil
		if err := r.writeReports(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("the states of the target clusters are not written, will try again", "error", err)
			retry = time.After(reportRetryDelay)
		}
	}
}

func sleepUnlessDone(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// markAllPending makes the next write contain all reports.
func (r *targetReporter) markAllPending() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for namespace := range r.reports {
		r.pendingNamespaces[namespace] = true
	}
}

// writeReports writes the pending reports, and deletes the reports of workers that no longer write.
func (r *targetReporter) writeReports(ctx context.Context) error {
	now := time.Now()
	r.mu.Lock()
	pending := r.pendingNamespaces
	r.pendingNamespaces = map[string]bool{}
	data := map[string]any{}
	for namespace := range pending {
		report, found := r.reports[namespace]
		if !found {
			data[target.Report{Namespace: namespace, Worker: r.workerIdentity}.Key()] = nil
			continue
		}
		report.WrittenAt = now
		data[report.Key()] = report.Value()
	}
	r.mu.Unlock()
	if len(data) == 0 {
		return nil
	}
	written, err := r.patchConfigMap(ctx, data)
	if err != nil {
		r.mu.Lock()
		maps.Copy(r.pendingNamespaces, pending)
		r.mu.Unlock()
		return err
	}
	expired := map[string]any{}
	for _, key := range target.ExpiredReportKeys(written, now) {
		expired[key] = nil
	}
	if len(expired) > 0 {
		_, err = r.patchConfigMap(ctx, expired)
	}
	return err
}

// patchConfigMap sets the keys of the ConfigMap; a nil value deletes a key. patchConfigMap creates a missing ConfigMap.
func (r *targetReporter) patchConfigMap(ctx context.Context, data map[string]any) (*corev1.ConfigMap, error) {
	text, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return nil, err
	}
	for {
		written, err := r.configMaps.Patch(
			ctx,
			target.ReportsConfigMapName,
			types.MergePatchType,
			text,
			metav1.PatchOptions{},
		)
		if !apierrors.IsNotFound(err) {
			return written, err
		}
		_, err = r.configMaps.Create(
			ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: target.ReportsConfigMapName}},
			metav1.CreateOptions{},
		)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
	}
}

// deleteReports deletes the reports of this worker, because the worker is stopping.
func (r *targetReporter) deleteReports(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportRetryDelay)
	defer cancel()
	data := map[string]any{}
	r.mu.Lock()
	for _, report := range r.reports {
		data[report.Key()] = nil
	}
	r.mu.Unlock()
	if len(data) == 0 {
		return
	}
	if _, err := r.patchConfigMap(ctx, data); err != nil {
		r.log.Warn("the states of the target clusters are not deleted: they expire", "error", err)
	}
}
