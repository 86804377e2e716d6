package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
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
	"millwright/worker/serve"
	"millwright/workflows/run"
)

const (
	// renewEach is the time between two renewals. Sources: with the Lease of the bridge, 8 requests a minute; millwright
	// reports an absence after three missed renewals.
	renewEach = 15 * time.Second
	// absentAfter is the shortest absence that counts. Source: four missed renewals, and far below the shortest timeout
	// that is of use.
	absentAfter = time.Minute
	// mostAbsences is the number of absences that are kept: the newest ones. Source: 4 KiB of an annotation.
	mostAbsences = 50
	// presenceTimeout bounds one renewal. Source: a third of renewEach.
	presenceTimeout = 5 * time.Second
)

// presence keeps the Lease of the workers. A worker renews it while Temporal and the control cluster answer. After a
// gap of more than absentAfter, whoever renews it first adds the gap to the absences: time that does not count as
// slowness of a machine or of a rollout. All times are of the API server: clocks of workers may differ.
type presence struct {
	leases   typedcoordinationv1.LeaseInterface
	of       run.Installation
	before   run.Installation            // former name of the installation; empty: it was not changed
	scope    cache.Scope                 // of this installation
	answers  func(context.Context) error // returns nil if Temporal answers
	identity string
	known    func(cache.Absences)
	log      *slog.Logger

	heartbeat prometheus.Gauge
	renewed   time.Time // when this process last renewed the Lease, by its own clock; zero: never
	// the Lease as this process wrote it last, so that a single worker need not read it; nil: it has to be read
	kept    *coordinationv1.Lease
	failing bool
}

// newPresence returns the presence of this worker. It needs watch before it can begin.
func newPresence(
	leases typedcoordinationv1.LeaseInterface,
	of, before run.Installation,
	heartbeat prometheus.Gauge,
	log *slog.Logger,
) *presence {
	host, _ := os.Hostname() // if it fails, the process ID remains
	return &presence{
		leases:    leases,
		of:        of,
		before:    before,
		identity:  fmt.Sprintf("%s-%d", host, os.Getpid()),
		heartbeat: heartbeat,
		log:       log,
	}
}

// watch sets what the presence depends on, and the cache that gets the absences.
func (p *presence) watch(temporal client.Client, namespace string, cluster *cache.Cluster) {
	p.answers = func(ctx context.Context) error { // a request that Temporal answers from its database
		_, err := temporal.WorkflowService().
			DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
		return err
	}
	p.known, p.scope = cluster.SetAbsences, cluster.Scope
}

// renamedError says that the workers of this control cluster had another name of the installation.
type renamedError struct{ Lease, Theirs, Ours string }

func (e *renamedError) Error() string {
	return fmt.Sprintf(
		"--cluster-name is %[1]s, and the Lease %[2]s says that the workers of this cluster had the name %[3]s: the instances have the tag %[3]s, so Millwright would take them for gone, replace their Machines and leave them running; "+
			"set --cluster-name=%[3]s, or, if all instances have the tag %[1]s by now, start the worker with --accept-new-cluster-name=%[3]s",
		e.Ours,
		e.Lease,
		e.Theirs,
	)
}

// compare returns a renamedError if a Lease has another name than this worker, and --accept-new-cluster-name does not
// say that the name was changed. A Lease without a name is of an earlier version.
func (p *presence) compare(lease *coordinationv1.Lease) error {
	switch theirs := run.Installation(lease.Annotations[v1alpha1.AnnotationInstallation]); theirs {
	case "", p.of, p.before:
		return nil
	default:
		return &renamedError{Lease: lease.Namespace + "/" + lease.Name, Theirs: string(theirs), Ours: string(p.of)}
	}
}

// check returns a renamedError if the installation had another name, before anything is done under the new one. It
// tries again until the API server answers or ctx ends. It changes nothing.
func (p *presence) check(ctx context.Context) error {
	return p.untilDone(ctx, "check the name of the installation", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
		defer cancel()
		lease, err := p.leases.Get(ctx, v1alpha1.LeaseWorkers, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // no worker has ever run here
			return nil
		case err != nil:
			return fmt.Errorf("read the Lease: %w", err)
		case p.before != "" && lease.Annotations[v1alpha1.AnnotationInstallation] == string(p.of):
			p.log.Warn("--accept-new-cluster-name has no effect any more: remove it", "cluster-name", p.of)
		}
		return p.compare(lease)
	})
}

// begin renews the Lease for the first time, so that the first decision knows of the absence before. It tries again
// until ctx ends. It returns a renamedError if the installation had another name.
func (p *presence) begin(ctx context.Context) error {
	return p.untilDone(ctx, "record the presence of this worker", p.renew)
}

// untilDone tries something each second until it succeeds, the installation turns out to be renamed, or ctx ends.
func (p *presence) untilDone(ctx context.Context, what string, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if _, renamed := errors.AsType[*renamedError](err); err == nil || renamed {
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

// keep renews the Lease until ctx ends. It returns a renamedError if a worker with another name of the installation has
// renewed it: this one must not go on.
func (p *presence) keep(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(renewEach):
		}
		err := p.renew(ctx)
		if _, renamed := errors.AsType[*renamedError](err); renamed {
			return err
		}
		if apierrors.IsConflict(err) { // another worker is at work
			continue
		}
		if failing := err != nil; failing != p.failing && ctx.Err() == nil {
			p.failing = failing
			p.log.Warn("presence of the workers", "recorded", !failing, "error", err)
		}
	}
}

// keepOrFail calls keep, and ends the process with its error.
func (p *presence) keepOrFail(ctx context.Context, fatal serve.Fatal) {
	if err := p.keep(ctx); err != nil {
		fatal.Fail(err)
	}
}

// renew renews the Lease once, and records the absence before it if there was one.
func (p *presence) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	if err := p.answers(ctx); err != nil {
		return fmt.Errorf("ask Temporal: %w", err)
	}
	if lease := p.kept; lease != nil && time.Since(p.renewed) < absentAfter/2 {
		// after a longer pause, others may have renewed it: it is read
		p.kept = nil
		err := p.renewLease(ctx, lease.DeepCopy())
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	lease, err := p.leases.Get(ctx, v1alpha1.LeaseWorkers, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseWorkers}}
		p.stamp(lease)
		lease, err = p.leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("read the Lease: %w", err)
	}
	return p.renewLease(ctx, lease)
}

// renewLease renews a Lease that was read or written last in this state, and records the absence before it if there was
// one.
func (p *presence) renewLease(ctx context.Context, lease *coordinationv1.Lease) (err error) {
	if err := p.compare(lease); err != nil {
		return err
	}
	// The time of the API server is known only after a write. So the beginning of a possible absence is written first, and
	// its end is computed from the answer. If this process dies in between, the next one goes on from there.
	if lease.Annotations[v1alpha1.AnnotationAbsentSince] == "" &&
		(p.renewed.IsZero() || time.Since(p.renewed) > absentAfter/2) {
		metav1.SetMetaDataAnnotation(
			&lease.ObjectMeta,
			v1alpha1.AnnotationAbsentSince,
			writtenAt(lease).UTC().Format(time.RFC3339),
		)
	}
	if lease, err = p.write(ctx, lease); err != nil {
		return err
	}
	absences := absencesOf(lease)
	if begin := lease.Annotations[v1alpha1.AnnotationAbsentSince]; begin != "" {
		since, err := time.Parse(time.RFC3339, begin)
		if now := writtenAt(lease); err == nil && now.Sub(since) > absentAfter {
			absences = append(absences, cache.Absence{From: since, To: now})
			absences = absences[max(len(absences)-mostAbsences, 0):]
			p.log.Warn("no worker was at work", "from", since, "to", now)
		}
		if err := setAbsences(lease, absences); err != nil {
			return err
		}
		if lease, err = p.write(ctx, lease); err != nil {
			return err
		}
	}
	p.renewed, p.kept = time.Now(), lease
	p.heartbeat.Set(float64(p.renewed.Unix()))
	p.known(absencesOf(lease))
	return nil
}

// stamp sets the holder, the time of a renewal, the name of the installation, and the namespaces on which it acts.
func (p *presence) stamp(lease *coordinationv1.Lease) {
	scope, _ := json.Marshal(p.scope) // cannot fail
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationScope, string(scope))
	lease.Spec.HolderIdentity = &p.identity
	lease.Spec.RenewTime = new(metav1.NowMicro())
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationInstallation, string(p.of))
}

// write renews the Lease. It returns a conflict if another worker was faster.
func (p *presence) write(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	p.stamp(lease)
	lease, err := p.leases.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("renew the Lease: %w", err)
	}
	return lease, nil
}

// setAbsences writes the absences into the Lease, and removes the beginning of a possible one.
func setAbsences(lease *coordinationv1.Lease, absences cache.Absences) error {
	text, err := json.Marshal(absences)
	if err != nil {
		return fmt.Errorf("encode absences: %w", err)
	}
	delete(lease.Annotations, v1alpha1.AnnotationAbsentSince)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.AnnotationAbsences, string(text))
	return nil
}

// absencesOf reads the absences from the Lease. What cannot be read counts as none.
func absencesOf(lease *coordinationv1.Lease) (absences cache.Absences) {
	if json.Unmarshal([]byte(lease.Annotations[v1alpha1.AnnotationAbsences]), &absences) != nil {
		return nil
	}
	return slices.Clip(absences)
}

// writtenAt returns when an object was last written, by the clock of the API server.
func writtenAt(o metav1.Object) time.Time {
	last := o.GetCreationTimestamp().Time
	for _, entry := range o.GetManagedFields() {
		if entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}
