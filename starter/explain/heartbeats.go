package explain

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/starter/kubecli"
)

// process is a kind of process that renews a Lease while it is at work.
type process struct {
	name   string // for people
	lease  string
	each   time.Duration // time between two renewals
	late   time.Duration // age of the last renewal from which the next one is overdue
	silent time.Duration // age of the last renewal from which the process counts as down
	says   string        // message if it counts as down; %s is the time of the last renewal
	never  string        // message if there is no renewal
}

// Worker is the value of Heartbeat.Process for the workers.
const Worker = "worker"

// processes are the processes of an installation. Sources of the times: a bridge renews its Lease each 15 to 17 s, and
// a worker each 15 s, with a request that it gives up after 5 s: so late is 20 s. Silent is two to three renewals.
var processes = []process{
	{
		Worker, v1alpha1.LeaseWorkers, 15 * time.Second, 20 * time.Second, 45 * time.Second,
		"No worker has been at work since %s: nothing moves until one reaches Temporal and the API server.",
		"No worker has ever been at work: there is no Lease millwright-worker.",
	},
	{
		"bridge", "millwright-bridge", 17 * time.Second, 20 * time.Second, 45 * time.Second,
		"No bridge has been at work since %s: nobody sees changes until one is.",
		"No bridge has ever been at work: there is no Lease millwright-bridge.",
	},
}

// Heartbeat is what the Lease of the workers or of the bridges says.
type Heartbeat struct {
	Process string        // worker or bridge
	At      time.Time     // time of the last renewal; zero: there was none, or it is not known
	Each    time.Duration // time between two renewals of a process that is at work
	Silent  time.Duration // age of the last renewal from which the process counts as down
	Late    bool          // a renewal is overdue, but the process does not count as down yet
	Missing string        // sentence that says that no such process is at work; empty: one is, or that is not known
	Err     error         // why the Lease cannot be read; nil: it was read
}

// ReadHeartbeats reads the Leases of the workers and of the bridges in a namespace, or in all namespaces. It returns
// one Heartbeat for the workers and one for the bridges, also if a Lease cannot be read.
func ReadHeartbeats(
	ctx context.Context,
	leases typedcoordinationv1.LeasesGetter,
	namespace string,
	now time.Time,
) []Heartbeat {
	return list.Map(processes, func(p process) Heartbeat { return p.heartbeat(ctx, leases.Leases(namespace), now) })
}

// Heartbeats says which processes of an installation are not at work, one line each. It leaves out Leases that cannot
// be read, because the user may lack the right.
func Heartbeats(ctx context.Context, leases typedcoordinationv1.LeasesGetter, now time.Time) (lines []string) {
	if leases == nil {
		return nil
	}
	for _, h := range ReadHeartbeats(ctx, leases, metav1.NamespaceAll, now) {
		lines = append(lines, phrase.Parts(h.Missing)...)
	}
	return lines
}

// AtWork returns nil if a worker and a bridge are at work whose Leases are in this namespace. Otherwise the error says
// which of them is not at work, or which Lease cannot be read.
func AtWork(ctx context.Context, leases typedcoordinationv1.LeasesGetter, namespace string, now time.Time) error {
	var errs []error
	for _, h := range ReadHeartbeats(ctx, leases, namespace, now) {
		if h.Missing != "" {
			h.Err = errors.New(h.Missing)
		}
		errs = append(errs, h.Err)
	}
	return errors.Join(errs...)
}

// heartbeat reads the Leases of one kind of process.
func (p process) heartbeat(ctx context.Context, leases typedcoordinationv1.LeaseInterface, now time.Time) Heartbeat {
	h := Heartbeat{Process: p.name, Each: p.each, Silent: p.silent}
	found, err := leases.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + p.lease})
	if err != nil {
		h.Err = fmt.Errorf("read Lease %s: %w", p.lease, err)
		return h
	}
	at, known := lastRenewal(found.Items, p.lease)
	if !known {
		h.Missing = p.never
		return h
	}
	h.At = at
	if now.Sub(at) > p.silent {
		h.Missing = fmt.Sprintf(p.says, kubecli.Since(at, now))
	}
	h.Late = now.Sub(at) > p.late && h.Missing == ""
	return h
}

// lastRenewal returns when the newest of the Leases of this name was renewed.
func lastRenewal(leases []coordinationv1.Lease, name string) (at time.Time, known bool) {
	for _, l := range leases {
		if l.Name == name && l.Spec.RenewTime != nil && l.Spec.RenewTime.After(at) {
			at, known = l.Spec.RenewTime.Time, true
		}
	}
	return at, known
}
