package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/process/problems"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// processKind is a kind of process that renews a Lease while it is active.
type processKind struct {
	name           string // name of the process in messages
	leaseName      string
	renewInterval  time.Duration // time between two renewals
	overdueAfter   time.Duration // age of the last renewal from which the next renewal is overdue
	downAfter      time.Duration // age of the last renewal after which the process is down
	downMessage    string        // message about a process that is down; %s is the time of the last renewal
	missingMessage string        // message if no Lease was ever renewed
}

// WorkerProcess and BridgeProcess are the values of Heartbeat.Process.
const (
	WorkerProcess = "worker"
	BridgeProcess = "bridge"
)

// LeaseBridges is the name of the Lease of the bridges.
const LeaseBridges = "millwright-bridge"

// processKinds are the kinds of processes of an installation. A bridge renews its Lease every 15 to 17 s; a worker
// renews it every 15 s with a request timeout of 5 s. Therefore, overdueAfter is 20 s. downAfter is two to three
// renewal intervals.
var processKinds = []processKind{
	{
		WorkerProcess, v1alpha1.LeaseWorkers, 15 * time.Second, 20 * time.Second, 45 * time.Second,
		"No worker has been at work since %s: nothing moves until one reaches Temporal and the API server.",
		"No worker has ever been at work: no Lease millwright-worker was ever renewed.",
	},
	{
		BridgeProcess, LeaseBridges, 17 * time.Second, 20 * time.Second, 45 * time.Second,
		"No bridge has been at work since %s: nobody sees changes until one is.",
		"No bridge has ever been at work: no Lease millwright-bridge was ever renewed.",
	},
}

// Heartbeat is the state of the workers or of the bridges according to their Lease.
type Heartbeat struct {
	Process        string            // worker or bridge
	RenewTime      time.Time         // time of the last renewal; zero if unknown or if there was none
	RenewInterval  time.Duration     // time between two renewals of an active process
	DownAfter      time.Duration     // age of the last renewal after which the process is down
	IsOverdue      bool              // whether a renewal is overdue, but the process is not considered down yet
	MissingMessage string            // sentence that no process of this kind is active; empty if a process is active
	Err            error             // error from reading the Lease, or nil
	Reports        []problems.Report // problems of the processes of this kind
}

// DoubtText returns a clause about processes that may be down, or whose state is not known; empty if there is no doubt
// that they are at work, or that they are down.
func (h Heartbeat) DoubtText(now time.Time) string {
	switch {
	case apierrors.IsForbidden(h.Err):
		return fmt.Sprintf("whether a %s is at work is not known: you may not list its Leases", h.Process)
	case h.Err != nil:
		return fmt.Sprintf(
			"whether a %s is at work is not known: %s",
			h.Process,
			kubecli.CollapseSpaces(h.Err.Error()),
		)
	case h.IsOverdue:
		return fmt.Sprintf(
			"the %s may be down: its last heartbeat was at %s, and one is due each %s",
			h.Process,
			kubecli.ClockText(h.RenewTime, now),
			phrase.AgeText(h.RenewInterval),
		)
	default:
		return ""
	}
}

// ProblemSentences returns a sentence for each problem of the processes of an installation, with what a person can do
// about it. ProblemSentences includes only the problems for which concerns returns true. A Report without an
// installation belongs to all installations.
func (h Heartbeat) ProblemSentences(
	of run.Installation,
	now time.Time,
	concerns func(problems.Problem) bool,
) (sentences []string) {
	for _, report := range h.Reports {
		if of != "" && report.Installation != "" && report.Installation != string(of) {
			continue
		}
		for _, p := range list.Filter(report.Problems, concerns) {
			text := p.Text(h.Process)
			text = strings.ToUpper(text[:1]) + text[1:]
			sentences = append(
				sentences,
				fmt.Sprintf("%s (since %s): %s", text, kubecli.TimeWithAgeText(p.FirstFailure, now), p.Remedy(h.Process)),
			)
		}
	}
	slices.Sort(sentences) // several processes may have the same problem
	return slices.Compact(sentences)
}

// ReadHeartbeats reads the Leases of the workers and of the bridges in a namespace, or in all namespaces.
// ReadHeartbeats always returns one Heartbeat for the workers and one Heartbeat for the bridges, even if a Lease cannot
// be read.
func ReadHeartbeats(
	ctx context.Context,
	leases typedcoordinationv1.LeasesGetter,
	namespace string,
	now time.Time,
) []Heartbeat {
	return list.Map(
		processKinds,
		func(p processKind) Heartbeat { return p.readHeartbeat(ctx, leases.Leases(namespace), now) },
	)
}

// DescribeProcessProblems returns one line for each kind of process that is down, and one line for each problem of an
// installation for which concerns returns true. If installation is empty, DescribeProcessProblems includes all
// installations. DescribeProcessProblems ignores Leases that cannot be read, because the user may not have permission
// to read them.
func DescribeProcessProblems(
	ctx context.Context,
	leases typedcoordinationv1.LeasesGetter,
	of run.Installation,
	now time.Time,
	concerns func(problems.Problem) bool,
) (down, troubles []string) {
	if leases == nil {
		return nil, nil
	}
	for _, h := range ReadHeartbeats(ctx, leases, metav1.NamespaceAll, now) {
		down = append(down, phrase.NonEmptyTexts(h.MissingMessage)...)
		troubles = append(troubles, h.ProblemSentences(of, now, concerns)...)
	}
	return down, troubles
}

// CheckProcessesAreActive returns nil if a worker and a bridge with Leases in this namespace are active. Otherwise, the
// error names the process that is not active, or the Lease that cannot be read.
func CheckProcessesAreActive(
	ctx context.Context,
	leases typedcoordinationv1.LeasesGetter,
	namespace string,
	now time.Time,
) error {
	var errs []error
	for _, h := range ReadHeartbeats(ctx, leases, namespace, now) {
		if h.MissingMessage != "" {
			h.Err = errors.New(h.MissingMessage)
		}
		errs = append(errs, h.Err)
	}
	return errors.Join(errs...)
}

// readHeartbeat reads the Leases of one kind of process.
func (p processKind) readHeartbeat(
	ctx context.Context,
	leases typedcoordinationv1.LeaseInterface,
	now time.Time,
) Heartbeat {
	h := Heartbeat{Process: p.name, RenewInterval: p.renewInterval, DownAfter: p.downAfter}
	found, err := leases.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + p.leaseName})
	if err != nil {
		h.Err = fmt.Errorf("read Lease %s: %w", p.leaseName, err)
		return h
	}
	for i := range found.Items {
		if found.Items[i].Name == p.leaseName { // the fake client ignores the field selector
			h.Reports = append(h.Reports, problems.ReadReports(&found.Items[i], now)...)
		}
	}
	at, known := lastRenewal(found.Items, p.leaseName)
	if !known {
		h.MissingMessage = p.missingMessage
		return h
	}
	h.RenewTime = at
	if now.Sub(at) > p.downAfter {
		h.MissingMessage = fmt.Sprintf(p.downMessage, kubecli.TimeWithAgeText(at, now))
	}
	h.IsOverdue = now.Sub(at) > p.overdueAfter && h.MissingMessage == ""
	return h
}

// lastRenewal returns the newest renewal time of the Leases with this name. The result known is false if no Lease was
// renewed.
func lastRenewal(leases []coordinationv1.Lease, name string) (at time.Time, known bool) {
	for _, l := range leases {
		if l.Name == name && l.Spec.RenewTime != nil && l.Spec.RenewTime.After(at) {
			at, known = l.Spec.RenewTime.Time, true
		}
	}
	return at, known
}
