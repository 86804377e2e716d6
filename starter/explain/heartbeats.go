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
	each   time.Duration // between two renewals
	late   time.Duration // after which a renewal is overdue: nobody may be at work
	silent time.Duration // after which nobody is at work
	says   string        // with the time of the last renewal
	never  string
}

// Worker is the Process of the Heartbeat of the workers.
const Worker = "worker"

// processes are those of an installation. Sources of the times: late is a renewal and the time that it may take: a
// worker gives up a request after 5 s, and a bridge writes its Lease after 15 to 17 s. Silent is two to three renewals.
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
	At      time.Time     // of the last renewal; zero: there was none, or it is not known
	Each    time.Duration // between two renewals of a process that is at work
	Silent  time.Duration // so long after the last renewal, nobody is at work
	Late    bool          // a renewal is overdue, and it is not sure yet that nobody is at work
	Missing string        // the sentence that nobody is at work; empty: somebody is, or that is not known
	Err     error         // why the Lease cannot be read; nil: it was read
}

// ReadHeartbeats reads the Leases of the workers and of the bridges in a namespace, or in all. It returns one Heartbeat
// for each, also if a Lease cannot be read.
func ReadHeartbeats(
	ctx context.Context,
	leases typedcoordinationv1.LeasesGetter,
	namespace string,
	now time.Time,
) []Heartbeat {
	return list.Map(processes, func(p process) Heartbeat { return p.heartbeat(ctx, leases.Leases(namespace), now) })
}

// Heartbeats says which processes of an installation are not at work, one line each. Leases that cannot be read are
// left out: not everybody may.
func Heartbeats(ctx context.Context, leases typedcoordinationv1.LeasesGetter, now time.Time) (lines []string) {
	if leases == nil {
		return nil
	}
	for _, h := range ReadHeartbeats(ctx, leases, metav1.NamespaceAll, now) {
		lines = append(lines, phrase.Parts(h.Missing)...)
	}
	return lines
}

// AtWork returns nil if a worker and a bridge of the installation whose Leases are in this namespace are at work, and
// an error that says what is not, or what cannot be read.
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

// heartbeat reads the Lease of the processes of a kind.
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
