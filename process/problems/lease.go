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
)

// Report has the problems of one process. A Lease has a Report for each process with problems.
type Report struct {
	By       string    `json:"by"` // identity of the process
	At       time.Time `json:"at"` // when the process wrote the Report
	Problems []Problem `json:"problems"`
}

const (
	// reportAge is how long a Report counts after it was written. Source: four renewals of a Lease.
	reportAge = time.Minute
	// maxReports is the maximum number of Reports on a Lease. Source: with maxProblems, 16 KiB of an annotation.
	maxReports = 4
	// showInterval is the interval at which a process without a renewal shows its problems. Source: a problem must be
	// visible after 20 s.
	showInterval = 10 * time.Second
)

// ReportsOf returns the Reports on a Lease, each with a problem or more; nil if the Reports are unreadable.
func ReportsOf(lease *coordinationv1.Lease) (reports []Report) {
	if json.Unmarshal([]byte(lease.Annotations[v1alpha1.AnnotationProblems]), &reports) != nil {
		return nil
	}
	return slices.DeleteFunc(reports, func(r Report) bool { return len(r.Problems) == 0 })
}

// annotate replaces the Report of a process on a Lease, and drops the Reports of processes that write no more.
func (r *Recorder) annotate(lease *coordinationv1.Lease, by string) {
	now := time.Now()
	reports := slices.DeleteFunc(ReportsOf(lease), func(other Report) bool {
		return other.By == by || now.Sub(other.At) > reportAge
	})
	if own := r.List(); len(own) > 0 {
		reports = append([]Report{{By: by, At: now.UTC().Truncate(time.Second), Problems: own}}, reports...)
	}
	text, err := json.Marshal(reports[:min(len(reports), maxReports)])
	if len(reports) == 0 || err != nil {
		delete(lease.Annotations, v1alpha1.AnnotationProblems)
		return
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationProblems, string(text))
}

// Leases returns a client of Leases that writes the problems of a process with each write of a Lease.
func (r *Recorder) Leases(of typedcoordinationv1.LeaseInterface, by string) typedcoordinationv1.LeaseInterface {
	return leaseWriter{of, r, by}
}

// leaseWriter writes the problems of a process with each write of a Lease.
type leaseWriter struct {
	typedcoordinationv1.LeaseInterface

	recorder *Recorder
	by       string
}

// Create implements LeaseInterface.
func (w leaseWriter) Create(
	ctx context.Context,
	lease *coordinationv1.Lease,
	options metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	w.recorder.annotate(lease, w.by)
	return w.LeaseInterface.Create(ctx, lease, options)
}

// Update implements LeaseInterface.
func (w leaseWriter) Update(
	ctx context.Context,
	lease *coordinationv1.Lease,
	options metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	w.recorder.annotate(lease, w.by)
	return w.LeaseInterface.Update(ctx, lease, options)
}

// Show writes the problems to a Lease without a renewal: the process is not at work. Show creates the Lease if it does
// not exist, and writes nothing if there are no problems. The function prepare changes the Lease before it is written.
// The client leases is one of Leases().
func (r *Recorder) Show(
	ctx context.Context,
	leases typedcoordinationv1.LeaseInterface,
	name string,
	prepare func(*coordinationv1.Lease),
) error {
	if len(r.List()) == 0 {
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

// KeepShowing calls show every 10 s until ctx ends. A process calls KeepShowing until it renews its Lease.
func KeepShowing(ctx context.Context, show func(context.Context)) {
	ticks := time.NewTicker(showInterval)
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
