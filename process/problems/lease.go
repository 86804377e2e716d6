package problems

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"millwright/api/v1alpha1"
	"millwright/process/commandline"
)

// Report has the problems of one process. A Lease has a Report for each process with problems.
type Report struct {
	Identity     string    `json:"by"`                     // identity of the process
	Installation string    `json:"installation,omitempty"` // of the process
	WrittenAt    time.Time `json:"at"`                     // when the process wrote the Report
	Problems     []Problem `json:"problems"`
}

const (
	// maxReportAge is how long a Report is valid after its process wrote it. The duration covers four renewals of a Lease.
	maxReportAge = time.Minute
	// maxClockSkew is the largest difference between the clocks of a process and of a reader at which the reader still
	// shows every valid Report. The difference is as long as maxReportAge, and much shorter than the time that a person
	// needs for a repair.
	maxClockSkew = time.Minute
	// maxReports and maxReportedProblems are the maximum numbers of Reports on a Lease, and of problems in a Report.
	// maxReports, maxReportedProblems and maxMessageBytes together limit the annotation to 20 KiB.
	maxReports          = 4
	maxReportedProblems = 10
	// writeInterval is how often a process that does not renew its Lease writes its problems. A problem must be visible
	// within 20 s.
	writeInterval = 10 * time.Second
)

// ReadReports returns the valid Reports on a Lease that contain at least one problem; nil if the annotation does not
// parse. ReadReports drops Reports of processes that no longer update them. The argument now is the time of the
// reader's clock.
func ReadReports(lease *coordinationv1.Lease, now time.Time) []Report {
	return readReportsSince(lease, now.Add(-maxReportAge-maxClockSkew))
}

func readReportsSince(lease *coordinationv1.Lease, oldest time.Time) (reports []Report) {
	if json.Unmarshal([]byte(lease.Annotations[v1alpha1.AnnotationProblems]), &reports) != nil {
		return nil
	}
	return slices.DeleteFunc(reports, func(r Report) bool { return len(r.Problems) == 0 || r.WrittenAt.Before(oldest) })
}

// annotateLease writes the build of the process on a Lease, replaces the Report of the process, and drops the Reports
// that their processes no longer update. The result has is true if the process has a Report on the Lease.
func (r *Recorder) annotateLease(lease *coordinationv1.Lease, by string) (has bool) {
	now := time.Now()
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationVersion, commandline.Version())
	reports := slices.DeleteFunc(
		readReportsSince(lease, now.Add(-maxReportAge)),
		func(other Report) bool { return other.Identity == by },
	)
	own := r.List()
	if len(own) > 0 {
		own = own[:min(len(own), maxReportedProblems)]
		reports = append([]Report{{by, r.installation, now.UTC().Truncate(time.Second), own}}, reports...)
	}
	text, err := json.Marshal(reports[:min(len(reports), maxReports)])
	if len(reports) == 0 || err != nil {
		delete(lease.Annotations, v1alpha1.AnnotationProblems)
		return false
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationProblems, string(text))
	return len(own) > 0
}

// WrapLeaseClient returns a client of Leases that writes the build and the problems of the process with each write of a
// Lease.
func (r *Recorder) WrapLeaseClient(
	of typedcoordinationv1.LeaseInterface,
	by string,
) typedcoordinationv1.LeaseInterface {
	return reportingLeaseClient{of, r, by}
}

// reportingLeaseClient writes the problems of a process with each write of a Lease.
type reportingLeaseClient struct {
	typedcoordinationv1.LeaseInterface

	recorder *Recorder
	identity string
}

// Create implements LeaseInterface.
func (w reportingLeaseClient) Create(
	ctx context.Context,
	lease *coordinationv1.Lease,
	options metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	has := w.recorder.annotateLease(lease, w.identity)
	written, err := w.LeaseInterface.Create(ctx, lease, options)
	return written, w.recordLeaseWrite(has, err)
}

// Update implements LeaseInterface.
func (w reportingLeaseClient) Update(
	ctx context.Context,
	lease *coordinationv1.Lease,
	options metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	has := w.recorder.annotateLease(lease, w.identity)
	written, err := w.LeaseInterface.Update(ctx, lease, options)
	return written, w.recordLeaseWrite(has, err)
}

// recordLeaseWrite notes whether the Lease has a Report of the process, unless the write has failed. recordLeaseWrite
// returns err.
func (w reportingLeaseClient) recordLeaseWrite(has bool, err error) error {
	if err == nil {
		w.recorder.hasProblemOnLease.Store(has)
	}
	return err
}

// WriteToLease writes the problems of a process to its Lease without renewing the Lease, because the process is not
// active. WriteToLease creates the Lease if necessary. WriteToLease writes nothing if the process has no problems and
// the Lease shows none of the process. The function prepare changes an existing Lease before the update. The client
// leases must come from the method WrapLeaseClient.
func (r *Recorder) WriteToLease(
	ctx context.Context,
	leases typedcoordinationv1.LeaseInterface,
	name string,
	prepare func(*coordinationv1.Lease),
) error {
	if len(r.List()) == 0 && !r.hasProblemOnLease.Load() {
		return nil
	}
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	case err == nil:
		prepare(lease)
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("show problems on Lease %s: %w", name, err)
	}
	return nil
}

// CallPeriodically calls show every 10 s until ctx is done. A process calls CallPeriodically until it renews its
// Lease.
func CallPeriodically(ctx context.Context, show func(context.Context)) {
	ticks := time.NewTicker(writeInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			show(ctx)
		}
	}
}
