package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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
	"millwright/workflows/run"
)

const (
	// renewEach is the time between two renewals. Sources: with the Lease of the bridge, 8 requests a minute; starter
	// reports an absence after three missed renewals.
	renewEach = 15 * time.Second
	// absentAfter is the shortest absence that counts. Source: four missed renewals, and far below the shortest timeout
	// that is of use.
	absentAfter = time.Minute
	// mostAbsences is how many absences are kept, the newest. Source: 4 KiB of an annotation.
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
	answers  func(context.Context) error // nil if Temporal answers
	identity string
	known    func(cache.Absences)
	log      *slog.Logger

	heartbeat prometheus.Gauge
	renewed   time.Time // when this process last renewed the Lease, by its own clock; zero: never
	// as this process wrote it last: a single worker need not read it; nil: it has to be read
	kept    *coordinationv1.Lease
	failing bool
}

// newPresence returns the presence of this worker.
func newPresence(
	leases typedcoordinationv1.LeaseInterface,
	of run.Installation,
	temporal client.Client,
	namespace, identity string,
	cluster *cache.Cluster,
	heartbeat prometheus.Gauge,
	log *slog.Logger,
) *presence {
	answers := func(ctx context.Context) error { // a request that Temporal answers from its database
		_, err := temporal.WorkflowService().
			DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
		return err
	}
	return &presence{
		leases:    leases,
		of:        of,
		answers:   answers,
		identity:  identity,
		known:     cluster.SetAbsences,
		heartbeat: heartbeat,
		log:       log,
	}
}

// begin renews the Lease for the first time, so that the first decision knows of the absence before. It tries again
// until ctx ends.
func (p *presence) begin(ctx context.Context) error {
	for {
		err := p.renew(ctx)
		if err == nil {
			return nil
		}
		p.log.Warn(
			"the presence of this worker cannot be recorded yet, will try again",
			"lease",
			v1alpha1.LeaseWorkers,
			"error",
			err,
		)
		select {
		case <-ctx.Done():
			return fmt.Errorf("record the presence of this worker: %w", err)
		case <-time.After(time.Second):
		}
	}
}

// keep renews the Lease until ctx ends.
func (p *presence) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewEach):
		}
		err := p.renew(ctx)
		if apierrors.IsConflict(err) { // another worker is at work
			continue
		}
		if failing := err != nil; failing != p.failing && ctx.Err() == nil {
			p.failing = failing
			p.log.Warn("presence", "recorded", !failing, "error", err)
		}
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
		// after a pause, others may have renewed it
		p.kept = nil
		err := p.stretch(ctx, lease.DeepCopy())
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
	return p.stretch(ctx, lease)
}

// stretch renews a Lease as it was read, and records the absence before it if there was one.
func (p *presence) stretch(ctx context.Context, lease *coordinationv1.Lease) (err error) {
	// The time of the API server is known only after a write. So the begin of a possible absence is written first, and its
	// end is computed from the answer; if this process dies in between, the next one goes on from there.
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

// stamp sets the holder, the time of a renewal, and the name of the installation.
func (p *presence) stamp(lease *coordinationv1.Lease) {
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

// setAbsences writes the absences into the Lease, and removes the begin of a possible one.
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
