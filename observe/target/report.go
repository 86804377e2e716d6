package target

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"millwright/observe/cache"
)

// ReportsConfigMapName is the name of the ConfigMap, in the namespace of the Leases, in which the workers report the
// state of the targets that they serve.
const ReportsConfigMapName = "millwright-targets"

const (
	// ReportInterval is the interval at which a worker writes its reports again, even if nothing has changed. Source:
	// the cost of one request in ten minutes is not measurable.
	ReportInterval = 10 * time.Minute
	// reportLifetime is how long a report is valid after it was written. Source: two missed renewals.
	reportLifetime = 2*ReportInterval + time.Minute
)

// Report is the state of one target, as one worker sees it.
type Report struct {
	Namespace string            `json:"-"` // namespace of the machines
	Worker    string            `json:"-"` // identity of the worker
	State     cache.TargetState `json:"state"`
	Why       string            `json:"why,omitempty"` // why the state is not Ready
	Since     time.Time         `json:"since"`         // start of the state
	WrittenAt time.Time         `json:"at"`            // time at which the worker wrote the report
}

// Key returns the key of a report in the ConfigMap.
func (r Report) Key() string { return r.Namespace + "." + r.Worker }

// Value returns the value of a report in the ConfigMap.
func (r Report) Value() string {
	text, _ := json.Marshal(r) // cannot fail: the fields are strings and times
	return string(text)
}

// ReadReports returns the reports in the ConfigMap, sorted by namespace and worker, without the reports of workers that
// no longer write. The argument now is the time of the reader's clock. A report that does not parse is left out.
func ReadReports(from *corev1.ConfigMap, now time.Time) (reports []Report) {
	for key, text := range from.Data {
		namespace, worker, found := strings.Cut(key, ".")
		r := Report{Namespace: namespace, Worker: worker}
		if found && json.Unmarshal([]byte(text), &r) == nil && now.Sub(r.WrittenAt) < reportLifetime {
			reports = append(reports, r)
		}
	}
	slices.SortFunc(reports, func(a, b Report) int { return strings.Compare(a.Key(), b.Key()) })
	return reports
}

// ExpiredReportKeys returns the keys of the reports that are no longer valid.
func ExpiredReportKeys(from *corev1.ConfigMap, now time.Time) (keys []string) {
	valid := map[string]bool{}
	for _, r := range ReadReports(from, now) {
		valid[r.Key()] = true
	}
	for key := range from.Data {
		if !valid[key] {
			keys = append(keys, key)
		}
	}
	return keys
}
