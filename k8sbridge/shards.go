package main

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// renewLease renews the Lease of the bridges until ctx ends, as the leader of an installation with one shard does:
// commands, alerts and other installations read it. An error is not logged, because the claims of shards get the same
// error.
func renewLease(ctx context.Context, o options, leases typedcoordinationv1.LeaseInterface) {
	for {
		_ = renewLeaseOnce(ctx, o, leases)
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewInterval):
		}
	}
}

func renewLeaseOnce(ctx context.Context, o options, leases typedcoordinationv1.LeaseInterface) error {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	defer cancel()
	lease, err := leases.Get(ctx, leaseName, metav1.GetOptions{})
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return err
	}
	if isNew {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName}}
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &o.identity, new(metav1.NowMicro())
	lease.Spec.LeaseDurationSeconds = new(int32(leaseDuration / time.Second))
	if isNew {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	return err
}
