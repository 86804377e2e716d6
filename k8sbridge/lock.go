package main

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The times of the election. A leader stops before another one may begin: it cannot write its Lease 29 s (renewEach,
// retryEach, giveUpAfter) after the last write at the latest.
const (
	// leaseLasts is how long others wait for a leader that does not renew its Lease.
	leaseLasts = 30 * time.Second
	// giveUpAfter is how long a leader tries to renew its Lease.
	giveUpAfter = 12 * time.Second
	// retryEach is the time between two looks at the Lease, and up to 2.2 times as much for those who do not lead. Source:
	// the default of Kubernetes' own controllers.
	retryEach = 2 * time.Second
	// renewEach is the time after which a leader writes its Lease again. Source: with the Lease of the workers, 8 requests
	// a minute.
	renewEach = 15 * time.Second
)

// fewRenewals is a lock that writes a renewal only when the last write is renewEach ago. Without it, the leader would
// write each time that it and others look at the Lease. Only the goroutine of the election may use it.
type fewRenewals struct {
	resourcelock.Interface
	last    resourcelock.LeaderElectionRecord // as written by this process; the zero value: nothing was written
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
