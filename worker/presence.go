package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/process"
	"millwright/process/problems"
	"millwright/worker/serve"
	"millwright/workflows/run"
)

const (
	// renewInterval is the interval between two renewals of the Lease. Sources: together with the Lease of the bridge,
	// the renewals send 8 requests per minute; the command millwright reports an absence after three missed renewals.
	renewInterval = 15 * time.Second
	// minAbsence is the shortest time without workers that is recorded as an absence. Source: the time of four missed
	// renewals, which is far below the shortest useful timeout.
	minAbsence = time.Minute
	// maxAbsences is the maximum number of recorded absences; the oldest absences are dropped. Source: this number of
	// absences needs 4 KiB of an annotation.
	maxAbsences = 50
	// renewTimeout is the timeout of one renewal. Source: a third of renewInterval.
	renewTimeout = 5 * time.Second
)

// workersLeaseRenewer renews the Lease of the workers. A worker renews the Lease while Temporal and the control cluster
// answer. If no worker has renewed the Lease for more than minAbsence, the next renewal records this time as an
// absence. Timeouts of machines and rollouts do not include absences. All times are by the API server's clock, because
// the clocks of workers may differ.
type workersLeaseRenewer struct {
	leases             typedcoordinationv1.LeaseInterface
	installation       run.Installation
	formerInstallation run.Installation            // former installation name; empty if the name was not changed
	scope              cache.NamespaceScope        // namespaces that this installation manages
	shardCount         int                         // number of shards of the installation
	checkTemporal      func(context.Context) error // health check, which returns nil if Temporal answers
	identity           string
	onWorkerAbsences   func(cache.WorkerAbsences)
	log                *slog.Logger

	heartbeat prometheus.Gauge
	recorder  *problems.Recorder
	// time of the last renewal by this process, from the process's own clock; zero before the first renewal
	lastRenewalTime time.Time
	// lastWrittenLease is the Lease after this process last wrote it, so that a single worker need not read the Lease. If
	// lastWrittenLease is nil, the worker must read the Lease.
	lastWrittenLease *coordinationv1.Lease
	isFailing        bool
}

// newWorkersLeaseRenewer returns the Lease renewer of this worker. Call setDependencies before renewForTheFirstTime.
func newWorkersLeaseRenewer(
	leases typedcoordinationv1.LeaseInterface,
	of, before run.Installation,
	shards int,
	heartbeat prometheus.Gauge,
	recorder *problems.Recorder,
	log *slog.Logger,
) *workersLeaseRenewer {
	identity := process.Identity()
	return &workersLeaseRenewer{
		leases:             recorder.WrapLeaseClient(leases, identity),
		installation:       of,
		formerInstallation: before,
		shardCount:         shards,
		identity:           identity,
		heartbeat:          heartbeat,
		recorder:           recorder,
		log:                log,
	}
}

// writeProblems writes the problems of this worker to the Lease while the worker does not renew the Lease.
func (p *workersLeaseRenewer) writeProblems(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	// The error is not logged, because the next renewal of the Lease fails with the same error.
	_ = p.recorder.WriteToLease(ctx, p.leases, v1alpha1.LeaseWorkers, recordPossibleAbsence)
}

// recordPossibleAbsence records the time of a Lease's last write as the start of a possible absence, because the next
// write replaces this time.
func recordPossibleAbsence(lease *coordinationv1.Lease) {
	if lease.Annotations[v1alpha1.AnnotationAbsentSince] == "" {
		metav1.SetMetaDataAnnotation(
			&lease.ObjectMeta,
			v1alpha1.AnnotationAbsentSince,
			lastWriteTime(lease).UTC().Format(time.RFC3339),
		)
	}
}

// setDependencies sets the Temporal client, the cache that gets the absences, and the scope.
func (p *workersLeaseRenewer) setDependencies(temporal client.Client, namespace string, cluster *cache.Cluster) {
	p.checkTemporal = func(ctx context.Context) error { // Temporal answers this request from its database
		_, err := temporal.WorkflowService().
			DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
		return err
	}
	p.onWorkerAbsences, p.scope = cluster.StoreWorkerAbsences, cluster.Scope
}

// installationRenamedError means that the workers of this control cluster used another name of the installation.
type installationRenamedError struct{ LeaseName, RecordedName, ConfiguredName string }

func (e *installationRenamedError) Error() string {
	return fmt.Sprintf(
		"--cluster-name is %[1]s, and the Lease %[2]s says that the workers of this cluster had the name %[3]s: the instances have the tag %[3]s, so Millwright would take them for gone, replace their Machines and leave them running; "+
			"set --cluster-name=%[3]s, or, if all instances have the tag %[1]s by now, start the worker with --accept-new-cluster-name=%[3]s",
		e.ConfiguredName,
		e.LeaseName,
		e.RecordedName,
	)
}

// isPermanentLeaseError reports whether an error about the Lease stays until the flags of this worker are changed.
func isPermanentLeaseError(err error) bool {
	_, renamed := errors.AsType[*installationRenamedError](err)
	_, fewer := errors.AsType[*process.FewerShardsError](err)
	return renamed || fewer
}

// compareInstallationName returns an installationRenamedError if the name in the Lease is neither the installation's
// name nor the name in --accept-new-cluster-name. A Lease without a name was written by an earlier version.
func (p *workersLeaseRenewer) compareInstallationName(lease *coordinationv1.Lease) error {
	switch theirs := run.Installation(lease.Annotations[v1alpha1.AnnotationInstallation]); theirs {
	case "", p.installation, p.formerInstallation:
		return nil
	default:
		return &installationRenamedError{
			LeaseName:      lease.Namespace + "/" + lease.Name,
			RecordedName:   string(theirs),
			ConfiguredName: string(p.installation),
		}
	}
}

// checkInstallation returns an installationRenamedError if the installation had another name, so that the worker does
// nothing under the new name. checkInstallation retries until the API server answers or ctx ends. checkInstallation
// writes nothing.
func (p *workersLeaseRenewer) checkInstallation(ctx context.Context) error {
	return p.retryUntilDone(ctx, "check the name of the installation", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, renewTimeout)
		defer cancel()
		lease, err := p.leases.Get(ctx, v1alpha1.LeaseWorkers, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // no worker has ever run for this control cluster
			return nil
		case err != nil:
			return fmt.Errorf("read the Lease: %w", err)
		case p.formerInstallation != "" && lease.Annotations[v1alpha1.AnnotationInstallation] == string(p.installation):
			p.log.Warn("--accept-new-cluster-name has no effect any more: remove it", "cluster-name", p.installation)
		}
		return cmp.Or(p.compareInstallationName(lease), process.CheckShardCount(lease, p.shardCount))
	})
}

// renewForTheFirstTime renews the Lease for the first time, so that the cache has the last absence before the first
// decision. renewForTheFirstTime retries until ctx ends. renewForTheFirstTime returns an installationRenamedError if
// the installation had another name.
func (p *workersLeaseRenewer) renewForTheFirstTime(ctx context.Context) error {
	return p.retryUntilDone(ctx, "record the presence of this worker", p.readAndRenewLease)
}

// retryUntilDone calls try each second until try succeeds, try returns an installationRenamedError, or ctx ends.
func (p *workersLeaseRenewer) retryUntilDone(ctx context.Context, what string, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil || isPermanentLeaseError(err) {
			return err
		}
		p.log.Warn(
			"the Lease of the workers cannot be used yet, will try again",
			"lease",
			v1alpha1.LeaseWorkers,
			"error",
			err,
		)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(err, ctx.Err()))
		case <-time.After(time.Second):
		}
	}
}

// keepRenewingLease renews the Lease until ctx is done. keepRenewingLease returns an installationRenamedError if a
// worker with another installation name has renewed the Lease. This worker must then stop.
func (p *workersLeaseRenewer) keepRenewingLease(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(renewInterval):
		}
		err := p.readAndRenewLease(ctx)
		if isPermanentLeaseError(err) {
			return err
		}
		if apierrors.IsConflict(err) { // another worker renewed the Lease
			continue
		}
		if err != nil {
			p.writeProblems(ctx)
		}
		if failing := err != nil; failing != p.isFailing && ctx.Err() == nil {
			p.isFailing = failing
			p.log.Warn("presence of the workers", "recorded", !failing, "error", err)
		}
	}
}

// keepRenewingLeaseOrFail calls keepRenewingLease. If keepRenewingLease returns an error, the process ends with this
// error.
func (p *workersLeaseRenewer) keepRenewingLeaseOrFail(ctx context.Context, fatal serve.FatalErrorStore) {
	if err := p.keepRenewingLease(ctx); err != nil {
		fatal.StoreFirstError(err)
	}
}

// readAndRenewLease renews the Lease once, and records the absence before the renewal if there was an absence.
func (p *workersLeaseRenewer) readAndRenewLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	if err := p.checkTemporal(ctx); err != nil {
		return fmt.Errorf("ask Temporal: %w", err)
	}
	if lease := p.lastWrittenLease; lease != nil && time.Since(p.lastRenewalTime) < minAbsence/2 {
		// If the last renewal is too old, read the Lease, because other workers may have renewed it.
		p.lastWrittenLease = nil
		err := p.renewLease(ctx, lease.DeepCopy())
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	lease, err := p.leases.Get(ctx, v1alpha1.LeaseWorkers, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseWorkers}}
		p.setLeaseFields(lease)
		lease, err = p.leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("read the Lease: %w", err)
	}
	return p.renewLease(ctx, lease)
}

// renewLease renews the Lease. The argument lease is the Lease as this process last read or wrote it. renewLease
// records the absence before the renewal if there was an absence.
func (p *workersLeaseRenewer) renewLease(ctx context.Context, lease *coordinationv1.Lease) (err error) {
	if err := p.compareInstallationName(lease); err != nil {
		return err
	}
	// Only the response to a write contains the API server's time. The first write therefore records the start of a
	// possible absence, and the response to this write contains its end. If this process ends between both writes of
	// the Lease, the next worker continues with the recorded start.
	if p.lastRenewalTime.IsZero() || time.Since(p.lastRenewalTime) > minAbsence/2 {
		recordPossibleAbsence(lease)
	}
	if lease, err = p.updateLease(ctx, lease); err != nil {
		return err
	}
	absences := readAbsences(lease)
	if begin := lease.Annotations[v1alpha1.AnnotationAbsentSince]; begin != "" {
		since, err := time.Parse(time.RFC3339, begin)
		if now := lastWriteTime(lease); err == nil && now.Sub(since) > minAbsence {
			absences = append(absences, cache.WorkerAbsence{From: since, To: now})
			absences = absences[max(len(absences)-maxAbsences, 0):]
			p.log.Warn("no worker was at work", "from", since, "to", now)
		}
		if err := writeAbsences(lease, absences); err != nil {
			return err
		}
		if lease, err = p.updateLease(ctx, lease); err != nil {
			return err
		}
	}
	p.lastRenewalTime, p.lastWrittenLease = time.Now(), lease
	p.heartbeat.Set(float64(p.lastRenewalTime.Unix()))
	p.onWorkerAbsences(readAbsences(lease))
	return nil
}

// setLeaseFields sets the holder, the renewal time, the installation's name, and the installation's namespaces.
func (p *workersLeaseRenewer) setLeaseFields(lease *coordinationv1.Lease) {
	scope, _ := json.Marshal(p.scope) // Marshal of a Scope cannot fail
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationScope, string(scope))
	lease.Spec.HolderIdentity = &p.identity
	lease.Spec.RenewTime = new(metav1.NowMicro())
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationInstallation, string(p.installation))
	if p.shardCount > process.RecordedShardCount(lease) {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationShards, strconv.Itoa(p.shardCount))
	}
}

// updateLease renews the Lease. updateLease returns a conflict if another worker renewed the Lease first.
func (p *workersLeaseRenewer) updateLease(
	ctx context.Context,
	lease *coordinationv1.Lease,
) (*coordinationv1.Lease, error) {
	p.setLeaseFields(lease)
	lease, err := p.leases.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("renew the Lease: %w", err)
	}
	return lease, nil
}

// writeAbsences writes the absences to the Lease, and removes the start of a possible absence.
func writeAbsences(lease *coordinationv1.Lease, absences cache.WorkerAbsences) error {
	text, err := json.Marshal(absences)
	if err != nil {
		return fmt.Errorf("encode absences: %w", err)
	}
	delete(lease.Annotations, v1alpha1.AnnotationAbsentSince)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationAbsences, string(text))
	return nil
}

// readAbsences reads the absences from the Lease. readAbsences returns nil if the absences are unreadable.
func readAbsences(lease *coordinationv1.Lease) (absences cache.WorkerAbsences) {
	if json.Unmarshal([]byte(lease.Annotations[v1alpha1.AnnotationAbsences]), &absences) != nil {
		return nil
	}
	return slices.Clip(absences)
}

// lastWriteTime returns the time of an object's last write, by the API server's clock.
func lastWriteTime(o metav1.Object) time.Time {
	last := o.GetCreationTimestamp().Time
	for _, entry := range o.GetManagedFields() {
		if entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}
