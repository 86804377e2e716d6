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
	"millwright/starter/kubecli"
)

// heartbeat is a Lease that processes renew while they are at work.
type heartbeat struct {
	lease  string
	silent time.Duration // after which nobody is at work
	says   string        // with the time of the last renewal
	never  string
}

// heartbeatsOf are the Leases of an installation. Sources of the times: several renewals, which are 10 s apart for workers and 1 s for
// bridges.
var heartbeatsOf = []heartbeat{
	{
		v1alpha1.LeaseWorkers, 45 * time.Second,
		"No worker has been at work since %s: nothing moves until one reaches Temporal and the API server.",
		"No worker has ever been at work: there is no Lease millwright-worker.",
	},
	{
		"millwright-bridge", 30 * time.Second,
		"No bridge has been at work since %s: nobody sees changes until one is.",
		"No bridge has ever been at work: there is no Lease millwright-bridge.",
	},
}

// Heartbeats says which processes are not at work, one line each. Leases that cannot be read are left out: not everybody may.
func Heartbeats(ctx context.Context, leases typedcoordinationv1.LeasesGetter, now time.Time) (lines []string) {
	if leases == nil {
		return nil
	}
	for _, h := range heartbeatsOf {
		if line, err := h.silence(ctx, leases.Leases(metav1.NamespaceAll), now); err == nil && line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// AtWork returns nil if a worker and a bridge of the installation whose Leases are in this namespace are at work, and an error that says what
// is not, or what cannot be read.
func AtWork(ctx context.Context, leases typedcoordinationv1.LeasesGetter, namespace string, now time.Time) error {
	var errs []error
	for _, h := range heartbeatsOf {
		line, err := h.silence(ctx, leases.Leases(namespace), now)
		if err == nil && line != "" {
			err = errors.New(line)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// silence says that nobody renews the Lease; empty: somebody does.
func (h heartbeat) silence(ctx context.Context, leases typedcoordinationv1.LeaseInterface, now time.Time) (string, error) {
	found, err := leases.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + h.lease})
	if err != nil {
		return "", fmt.Errorf("read Lease %s: %w", h.lease, err)
	}
	switch at, known := lastRenewal(found.Items, h.lease); {
	case !known:
		return h.never, nil
	case now.Sub(at) > h.silent:
		return fmt.Sprintf(h.says, kubecli.Since(at, now)), nil
	default:
		return "", nil
	}
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
