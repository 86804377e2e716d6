package main

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"millwright/k8sbridge/fleet"
	"millwright/process"
	"millwright/process/claims"
)

// setLeaderGauge sets the gauge of the leader: the leader of an installation with several shards is the bridge of shard
// 0, and the gauge of the namespaces that nobody serves shows the other shards.
func setLeaderGauge(leads prometheus.Gauge, shards []int) {
	leads.Set(0)
	if slices.Contains(shards, 0) {
		leads.Set(1)
	}
}

// servedShardCount returns the number of shards to which namespaces are given. While an upgrade raises the number of
// shards, the bridges may know more shards than the workers. lease is the Lease of the workers; nil if no worker has
// run: servedShardCount then returns 0, because the first worker says within seconds how many shards there are.
func servedShardCount(lease *coordinationv1.Lease, flag int) int {
	if lease == nil {
		return 0
	}
	return min(process.RecordedShardCount(lease), flag)
}

// unservedExportInterval is the interval between two counts of the namespaces that nobody serves. Source: the usual
// interval of a scrape by Prometheus is 15 s or longer; each count sends two requests.
const unservedExportInterval = 15 * time.Second

// exportUnservedNamespaces sets the gauge of the namespaces that nobody serves, until ctx ends. After an error the
// gauge keeps its values; the error is not logged, because the claims of shards get the same error.
func exportUnservedNamespaces(
	ctx context.Context,
	leases typedcoordinationv1.LeaseInterface,
	gauge *prometheus.GaugeVec,
	count func(workers, bridges map[int]string) map[claims.UnservedReason]int,
) {
	for {
		workers, err := readLeaseHolders(ctx, leases, claims.RoleWorker)
		if err == nil {
			var bridges map[int]string
			if bridges, err = readLeaseHolders(ctx, leases, claims.RoleBridge); err == nil {
				fleet.SetUnservedNamespaces(gauge, count(workers, bridges))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(unservedExportInterval):
		}
	}
}

func readLeaseHolders(
	ctx context.Context,
	leases typedcoordinationv1.LeaseInterface,
	role string,
) (map[int]string, error) {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	defer cancel()
	return claims.ReadHolders(ctx, leases, role, time.Now())
}

// renewLease renews the Lease of the bridges until ctx ends, as the leader of an installation with one shard does:
// commands, alerts and other installations read it. An error is not logged, because the claims of shards get the same
// error.
func renewLease(ctx context.Context, o options, leases typedcoordinationv1.LeaseInterface) {
	for {
		_ = renewLeaseOnce(ctx, o, leases)
		select {
		case <-ctx.Done():
			return
		case <-time.After(leaseWriteInterval):
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
