// Package problems records what a process may not do or cannot do: requests that an API server or Temporal refuses, and
// requests that fail for a while. A process shows its problems on its Lease, in its log and in a metric. Problems of a
// single object, such as a refusal by an admission policy, are not recorded here: the object itself shows them.
package problems

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millwright/decide/phrase"
)

// System is a server that a process sends requests to.
type System string

// The systems of a process, except the workload clusters of Cluster API
const (
	ControlCluster System = "control" // API server with the machine objects
	TargetCluster  System = "target"  // API server with the nodes, if the nodes are not in the control cluster
	Temporal       System = "temporal"
)

// WorkloadClusterSystem returns the System for the workload cluster of a Cluster of Cluster API.
func WorkloadClusterSystem(namespace, name string) System { return System(namespace + "/" + name) }

// IsWorkloadCluster reports whether the system is a workload cluster of Cluster API.
func (s System) IsWorkloadCluster() bool { return strings.Contains(string(s), "/") }

const (
	// maxProblems is the maximum number of problems that a process keeps. The limit allows two problems per watched
	// resource, and the same number of problems with writes.
	maxProblems = 64
	// maxMessageBytes is the maximum length, in bytes, of the server's message. The limit allows one sentence of an API
	// server that contains a name and a namespace of 63 bytes each.
	maxMessageBytes = 300
	// minFailureDuration is how long a request must fail before the failure is a problem. Source: ADR 0101.
	minFailureDuration = 3 * time.Second
	// forgetAfter is how long a problem is kept after it was last seen. The time is longer than the retry interval of a
	// rejected write (at most five minutes) and of a watch (at most one minute).
	forgetAfter = 6 * time.Minute
)

// FailureKind is how a request fails.
type FailureKind string

// The kinds of problems
const (
	Refused         FailureKind = "refused"         // the process has no permission
	Unauthenticated FailureKind = "unauthenticated" // the API server does not accept the credentials of the process
	Unserved        FailureKind = "unserved"        // the API server does not serve the resource
	Failing         FailureKind = "failing"         // the server answers with an error, or too late
	Unanswered      FailureKind = "unanswered"      // the server does not respond
)

// Problem is something that a process may not do or cannot do. The JSON form is part of a Lease.
type Problem struct {
	System System `json:"system"`
	// namespace of the objects; empty for all namespaces, and for objects without a namespace
	Namespace              string `json:"namespace,omitempty"`
	AffectsOtherNamespaces bool   `json:"others,omitempty"` // other namespaces have the same problem
	// resource as in kubectl, with the subresource; empty if the problem is about no resource
	Resource     string      `json:"resource,omitempty"`
	Verb         string      `json:"verb,omitempty"` // verb of an API server, or a method of Temporal
	Kind         FailureKind `json:"kind"`
	Message      string      `json:"words"` // the server's words
	FirstFailure time.Time   `json:"first"` // first failure since the last success
	LastFailure  time.Time   `json:"last"`
}

// problemKey identifies requests whose failures are recorded as one problem.
type problemKey struct {
	system                    System
	namespace, resource, verb string
}

// Recorder keeps the newest problem for each key. A Recorder is safe for concurrent use. Use New to create it.
type Recorder struct {
	installation      string
	hasProblemOnLease atomic.Bool // the last write of the Lease has shown a problem

	mu       sync.Mutex
	problems map[problemKey]Problem
}

// New returns a Recorder without problems for a process of an installation.
func New(installation string) *Recorder {
	return &Recorder{installation: installation, problems: map[problemKey]Problem{}}
}

// recordFailure records a failed request.
func (r *Recorder) recordFailure(k problemKey, kind FailureKind, words string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	p, known := r.problems[k]
	if !known || now.Sub(p.LastFailure) > forgetAfter {
		p = Problem{System: k.system, Namespace: k.namespace, Resource: k.resource, Verb: k.verb, FirstFailure: now}
	}
	before := known && p.isLasting()
	p.Kind, p.Message, p.LastFailure = kind, phrase.TruncateText(
		strings.Join(strings.Fields(words), " "),
		maxMessageBytes,
	), now
	r.problems[k] = p
	if p.isLasting() && !before {
		slog.Warn("a server refuses requests of this process, or does not answer them",
			"system", p.System, "namespace", p.Namespace, "resource", p.Resource, "verb", p.Verb, "answer", p.Message)
	}
	if len(r.problems) > maxProblems {
		oldest := slices.MinFunc(
			slices.Collect(maps.Values(r.problems)),
			func(a, b Problem) int { return a.LastFailure.Compare(b.LastFailure) },
		)
		delete(r.problems, oldest.key())
	}
}

// recordSuccess deletes the problems with these keys, because their requests succeed again.
func (r *Recorder) recordSuccess(keys ...problemKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		if p, known := r.problems[k]; known {
			delete(r.problems, k)
			if p.isLasting() {
				slog.Info("a server serves requests of this process again",
					"system", p.System, "namespace", p.Namespace, "resource", p.Resource, "verb", p.Verb)
			}
		}
	}
}

// isEmpty reports whether no failure is recorded. For a process without failures, this check is the only cost per
// request.
func (r *Recorder) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.problems) == 0
}

// List returns the current problems, sorted: first the systems that do not respond, then missing permissions, then all
// other problems, each group by name. Equal problems of several namespaces are one problem.
func (r *Recorder) List() []Problem {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.problems, func(_ problemKey, p Problem) bool { return now.Sub(p.LastFailure) > forgetAfter })
	var lasting []Problem
	for _, p := range r.problems {
		if p.isLasting() {
			lasting = append(lasting, p)
		}
	}
	slices.SortFunc(lasting, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(kindRank(a.Kind), kindRank(b.Kind)),
			cmp.Compare(a.System, b.System),
			cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Verb, b.Verb),
			cmp.Compare(a.Namespace, b.Namespace),
		)
	})
	var shown []Problem
	for _, p := range lasting {
		if last := len(shown) - 1; last >= 0 && shown[last].hasSameRemedy(p) {
			shown[last].AffectsOtherNamespaces = shown[last].AffectsOtherNamespaces || shown[last].Namespace != p.Namespace
			continue
		}
		shown = append(shown, p)
	}
	return shown
}

func kindRank(k FailureKind) int {
	return slices.Index([]FailureKind{Unanswered, Unauthenticated, Refused, Unserved, Failing}, k)
}

// hasSameRemedy reports whether the same action of a person solves both problems. For example, an informer needs both
// list and watch, and a server that does not respond fails all requests.
func (p Problem) hasSameRemedy(other Problem) bool {
	if p.System != other.System || p.Kind != other.Kind {
		return false
	}
	isVerbLike := p.Verb == other.Verb || p.Verb == verbList && other.Verb == verbWatch
	return p.Kind == Unanswered || p.Resource == other.Resource && isVerbLike
}

func (p Problem) key() problemKey { return problemKey{p.System, p.Namespace, p.Resource, p.Verb} }

// isLasting reports whether a failure is not only temporary. An API server that has just started rejects allowed
// requests for a moment, and does not serve all resources yet.
func (p Problem) isLasting() bool { return p.LastFailure.Sub(p.FirstFailure) >= minFailureDuration }

// problemsMetricDesc describes the metric of the problems.
func problemsMetricDesc() *prometheus.Desc {
	return prometheus.NewDesc(
		"millwright_process_problems",
		"1 for each kind of request that this process may not send, or that fails: refused, unauthenticated, unserved, failing or unanswered. The system is control, target, temporal, or namespace/name of a Cluster of Cluster API.",
		[]string{"system", "resource", "verb", "kind"},
		nil,
	)
}

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(descs chan<- *prometheus.Desc) { descs <- problemsMetricDesc() }

// Collect implements prometheus.Collector.
func (r *Recorder) Collect(samples chan<- prometheus.Metric) {
	for _, p := range r.List() {
		samples <- prometheus.MustNewConstMetric(
			problemsMetricDesc(), prometheus.GaugeValue, 1, string(p.System), p.Resource, p.Verb, string(p.Kind),
		)
	}
}
