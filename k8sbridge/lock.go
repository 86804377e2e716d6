package main

import (
	"context"
	"time"

	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"millwright/process/problems"
)

// Timing of the leader election. A leader that cannot write its Lease stops at most 29 s (leaseWriteInterval +
// retryPeriod + renewDeadline) after its last write. Another bridge can become leader only after 30 s (leaseDuration).
const (
	// leaseDuration is how long other bridges wait for a leader that does not renew its Lease.
	leaseDuration = 30 * time.Second
	// renewDeadline is how long a leader tries to renew its Lease (client-go's RenewDeadline).
	renewDeadline = 12 * time.Second
	// retryPeriod is client-go's RetryPeriod: the leader tries to renew the Lease at this interval. Candidates try to
	// acquire the Lease after 1 to 2.2 times this interval (jitter). Source: the default of Kubernetes' own
	// controllers.
	retryPeriod = 2 * time.Second
	// leaseWriteInterval is the interval at which a leader writes its Lease. With this interval, the Leases of the bridge
	// and the workers together cost 8 requests a minute.
	leaseWriteInterval = 15 * time.Second
)

// leaseName is the name of the Lease of the leader election.
const leaseName = "millwright-bridge"

// annotatingLeaseClient adds the problems of this process to each write of a Lease.
type annotatingLeaseClient struct {
	typedcoordinationv1.LeasesGetter

	recorder *problems.Recorder
	identity string
}

// Leases implements LeasesGetter.
func (l annotatingLeaseClient) Leases(namespace string) typedcoordinationv1.LeaseInterface {
	return l.recorder.WrapLeaseClient(l.LeasesGetter.Leases(namespace), l.identity)
}

// throttledLock is a resource lock that skips a renewal if the last write is less than leaseWriteInterval ago. Without
// throttledLock the leader would write the Lease every retryPeriod. Only the goroutine of the election may use a
// throttledLock.
type throttledLock struct {
	resourcelock.Interface
	lastWrittenRecord resourcelock.LeaderElectionRecord // last record that this process wrote; zero: none
	lastWriteTime     time.Time
}

// Update writes the record, unless the record is a renewal that is not due yet.
func (l *throttledLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	renewal := record.HolderIdentity == l.lastWrittenRecord.HolderIdentity &&
		record.LeaderTransitions == l.lastWrittenRecord.LeaderTransitions
	if renewal && time.Since(l.lastWriteTime) < leaseWriteInterval {
		return nil
	}
	if err := l.Interface.Update(ctx, record); err != nil {
		return err
	}
	l.lastWrittenRecord, l.lastWriteTime = record, time.Now()
	return nil
}
