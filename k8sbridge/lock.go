package main

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The times of the election. A leader that cannot write its Lease stops at most 29 s (renewEach + retryEach +
// giveUpAfter) after its last write, before another one may begin (leaseLasts).
const (
	// leaseLasts is how long other bridges wait for a leader that does not renew its Lease.
	leaseLasts = 30 * time.Second
	// giveUpAfter is how long a leader tries to renew its Lease.
	giveUpAfter = 12 * time.Second
	// retryEach is client-go's RetryPeriod: the leader tries to renew the Lease this often. The others try to acquire it
	// after one to 2.2 times this time (jitter). Source: the default of Kubernetes' own controllers.
	retryEach = 2 * time.Second
	// renewEach is the time after which a leader writes its Lease again. Source: with the Lease of the workers, 8 requests
	// a minute.
	renewEach = 15 * time.Second
)

// fewRenewals is a lock that writes a renewal only when the last write is renewEach ago. Without it, the leader would
// write the Lease every retryEach. Only the goroutine of the election may use it.
type fewRenewals struct {
	resourcelock.Interface
	last    resourcelock.LeaderElectionRecord // last record that this process wrote; zero: none
	written time.Time
}

// Update writes the record, unless it is a renewal that need not be written yet.
func (l *fewRenewals) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	renewal := record.HolderIdentity == l.last.HolderIdentity && record.LeaderTransitions == l.last.LeaderTransitions
	if renewal && time.Since(l.written) < renewEach {
		return nil
	}
	if err := l.Interface.Update(ctx, record); err != nil {
		return err
	}
	l.last, l.written = record, time.Now()
	return nil
}
