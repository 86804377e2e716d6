package watch

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"

	"millwright/observe/cache"
	"millwright/workflows/run"
)

// sendSignals delivers queued wakes until the queue shuts down. The queue gives each object to one sender at a time, so
// an object never has two signals in flight.
func (b *Bridge) sendSignals(ctx context.Context) {
	for {
		k, shutdown := b.evaluationQueue.Get()
		if shutdown {
			return
		}
		// the namespace may have been moved to another shard while the object was in the queue
		if w, claimed := b.takeSignalRequest(k); claimed && ctx.Err() == nil && b.endsRunsOfDeletedObjects(k.namespace) {
			b.processSignalRequest(ctx, k, w)
		}
		b.evaluationQueue.Done(k)
	}
}

// processSignalRequest evaluates one object. A failed signal is retried after a back-off, and then includes all wakes
// that have arrived until then.
func (b *Bridge) processSignalRequest(ctx context.Context, k objectKey, w signalRequest) {
	sent, err := b.evaluateObject(ctx, k, w)
	switch {
	case err == nil:
		b.backoff.Forget(k)
		if sent {
			b.recordTemporalAnswer()
		}
	case ctx.Err() == nil:
		b.metrics.signalFailures.WithLabelValues(string(k.kind)).Inc()
		b.log.Warn("signal failed, will try again", "kind", k.kind, "namespace", k.namespace, "name", k.name, "error", err)
		b.recordTemporalFailure(err)
		b.delayNextSignal(k, b.backoff.When(k))
		b.enqueue(k, w, 0)
	}
}

// evaluateObject signals the workflow of an object that has pending work, and the workflows of deleted objects with the
// same name. The result sent reports whether a request was sent to Temporal.
func (b *Bridge) evaluateObject(ctx context.Context, k objectKey, w signalRequest) (sent bool, err error) {
	s, found := b.readSubject(ctx, k)
	if tooEarly := time.Until(w.earliestSignalTime); !found && tooEarly > 0 {
		b.enqueue(k, w, tooEarly)
		return false, nil
	}
	for _, d := range w.deletedObjects {
		if found && s.ref.UID == d.uid {
			continue
		}
		if err := b.signalDeletedObject(ctx, d, w.versions); err != nil {
			return true, err
		}
		sent = true
	}
	if !found || !b.servesNamespace(k.namespace) {
		b.mu.Lock()
		delete(b.nextSignalTimes, k)
		b.mu.Unlock()
		return sent, nil
	}
	if s.decision.NeedsNothing() {
		b.metrics.evaluationsWithoutWork.WithLabelValues(string(k.kind)).Inc()
		return sent, nil
	}
	if err := b.signalLimiter.Wait(ctx); err != nil {
		return sent, err // the bridge shuts down
	}
	b.delayNextSignal(k, minSignalInterval)
	w.mergeSignalRequest(signalRequest{versions: s.versions})
	changed := run.ChangeSignal{
		UID: s.ref.UID, Generation: s.generation, Versions: w.versions, Deleting: s.isBeingDeleted,
		Shard: b.shardNumberForSignals(),
	}
	if err := b.signalWorkflow(ctx, k, s, changed); err != nil {
		return true, err
	}
	b.metrics.signals.WithLabelValues(string(k.kind)).Inc()
	b.log.Debug(
		"signaled",
		"kind",
		k.kind,
		"namespace",
		k.namespace,
		"name",
		k.name,
		"need",
		s.decision.Need,
		"why",
		s.decision.Why,
	)
	return true, nil
}

// signalWorkflow signals an object's workflow, and starts the workflow if it is not open. If a deployment's rollout is
// open, signalWorkflow signals only the rollout, because the rollout writes the deployment's sets.
func (b *Bridge) signalWorkflow(ctx context.Context, k objectKey, s subject, changed run.ChangeSignal) error {
	if s.openRolloutID != "" {
		err := b.workflowClient.SignalWorkflow(ctx, s.openRolloutID, "", run.SignalChanged, changed)
		if _, absent := errors.AsType[*serviceerror.NotFound](err); !absent {
			return err
		}
	}
	_, err := b.workflowClient.SignalWithStartWorkflow(
		ctx,
		b.shard.Installation.ID(k.kind, s.ref),
		run.SignalChanged,
		changed,
		b.startOptions(k, s),
		string(k.kind),
		run.Input{Ref: s.ref, Versions: changed.Versions},
	)
	return err
}

// signalDeletedObject signals the workflows of a deleted object that are still open.
func (b *Bridge) signalDeletedObject(ctx context.Context, d deletedObject, versions cache.MinVersions) error {
	changed := run.ChangeSignal{UID: d.uid, Versions: versions, Deleting: true}
	for _, id := range d.workflowIDs {
		if err := b.signalLimiter.Wait(ctx); err != nil {
			return err
		}
		if err := ignoreNotFound(b.workflowClient.SignalWorkflow(ctx, id, "", run.SignalChanged, changed)); err != nil {
			return err
		}
	}
	return nil
}

// recordTemporalFailure records that Temporal did not answer, or that Millwright's namespace is missing in Temporal. A
// missing namespace means that Temporal has lost its data, and that an operator will bootstrap it again.
func (b *Bridge) recordTemporalFailure(err error) {
	_, unavailable := errors.AsType[*serviceerror.Unavailable](err)
	_, late := errors.AsType[*serviceerror.DeadlineExceeded](err)
	_, empty := errors.AsType[*serviceerror.NamespaceNotFound](err)
	if unavailable || late || empty || errors.Is(err, context.DeadlineExceeded) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.temporalUnreachable = true
	}
}

// recordTemporalAnswer records that Temporal answered. If Temporal did not answer before, all objects are evaluated and
// all schedules are checked.
func (b *Bridge) recordTemporalAnswer() {
	b.mu.Lock()
	again := b.temporalUnreachable
	b.temporalUnreachable = false
	if again {
		clear(b.nextSignalTimes) // Temporal answers: end all back-offs
	}
	b.mu.Unlock()
	if again {
		b.log.Info("Temporal answers again: everything is evaluated")
		b.evaluateAllObjects()
		b.sweepScheduler.enqueueAllChecks() // Temporal may have lost its data
	}
}
