package watch

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"

	"millwright/observe/cache"
	"millwright/workflows/run"
)

// send delivers queued wakes until the queue shuts down. The queue hands an object to one sender at a time, so that no
// object has two signals in flight.
func (b *Bridge) send(ctx context.Context) {
	for {
		k, shutdown := b.queue.Get()
		if shutdown {
			return
		}
		if w, claimed := b.take(k); claimed && ctx.Err() == nil {
			b.deliver(ctx, k, w)
		}
		b.queue.Done(k)
	}
}

// deliver evaluates one object. A failed signal is retried after a back-off, together with all wakes that have arrived
// by then.
func (b *Bridge) deliver(ctx context.Context, k key, w wake) {
	sent, err := b.evaluate(ctx, k, w)
	switch {
	case err == nil:
		b.backoff.Forget(k)
		if sent {
			b.answered()
		}
	case ctx.Err() == nil:
		b.metrics.failures.WithLabelValues(string(k.kind)).Inc()
		b.log.Warn("signal failed, will try again", "kind", k.kind, "namespace", k.namespace, "name", k.name, "error", err)
		b.failed(err)
		b.allowAfter(k, b.backoff.When(k))
		b.enqueue(k, w, 0)
	}
}

// evaluate signals the workflow of an object that is not calm, and those of deleted objects with its name. It reports
// whether a request was sent to Temporal.
func (b *Bridge) evaluate(ctx context.Context, k key, w wake) (sent bool, err error) {
	s, found := b.subject(ctx, k)
	if tooEarly := time.Until(w.notBefore); !found && tooEarly > 0 {
		b.enqueue(k, w, tooEarly)
		return false, nil
	}
	for _, d := range w.deleted {
		if found && s.ref.UID == d.uid {
			continue
		}
		if err := b.signalDeleted(ctx, d, w.versions); err != nil {
			return true, err
		}
		sent = true
	}
	if !found {
		b.mu.Lock()
		delete(b.notBefore, k)
		b.mu.Unlock()
		return sent, nil
	}
	if s.decision.Calm() {
		b.metrics.calm.WithLabelValues(string(k.kind)).Inc()
		return sent, nil
	}
	if err := b.limiter.Wait(ctx); err != nil {
		return sent, err // shutting down
	}
	b.allowAfter(k, signalPause)
	w.merge(wake{versions: s.versions})
	changed := run.Changed{UID: s.ref.UID, Generation: s.generation, Versions: w.versions, Deleting: s.deleting}
	if err := b.signal(ctx, k, s, changed); err != nil {
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

// signal signals an object's workflow and starts it if it is not open. If a deployment's rollout is open, the rollout
// is signaled instead: it writes the deployment's sets.
func (b *Bridge) signal(ctx context.Context, k key, s subject, changed run.Changed) error {
	if s.rollout != "" {
		err := b.starter.SignalWorkflow(ctx, s.rollout, "", run.SignalChanged, changed)
		if _, absent := errors.AsType[*serviceerror.NotFound](err); !absent {
			return err
		}
	}
	_, err := b.starter.SignalWithStartWorkflow(ctx, b.installation.ID(k.kind, s.ref), run.SignalChanged, changed,
		b.options(k, s), string(k.kind), run.Input{Ref: s.ref, Versions: changed.Versions})
	return err
}

// signalDeleted signals the workflows of a deleted object that are still open.
func (b *Bridge) signalDeleted(ctx context.Context, d deleted, versions cache.MinVersions) error {
	changed := run.Changed{UID: d.uid, Versions: versions, Deleting: true}
	for _, id := range d.workflows {
		if err := b.limiter.Wait(ctx); err != nil {
			return err
		}
		if err := unlessAbsent(b.starter.SignalWorkflow(ctx, id, "", run.SignalChanged, changed)); err != nil {
			return err
		}
	}
	return nil
}

// failed records that Temporal did not answer, or that it has no namespace: its data are lost, and somebody is about to
// bootstrap it.
func (b *Bridge) failed(err error) {
	_, unavailable := errors.AsType[*serviceerror.Unavailable](err)
	_, late := errors.AsType[*serviceerror.DeadlineExceeded](err)
	_, empty := errors.AsType[*serviceerror.NamespaceNotFound](err)
	if unavailable || late || empty || errors.Is(err, context.DeadlineExceeded) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.unreachable = true
	}
}

// answered records that Temporal answered. If it had not answered before, every object is evaluated and every schedule
// checked.
func (b *Bridge) answered() {
	b.mu.Lock()
	again := b.unreachable
	b.unreachable = false
	if again {
		clear(b.notBefore) // Temporal answers: end all back-offs
	}
	b.mu.Unlock()
	if again {
		b.log.Info("Temporal answers again: everything is evaluated")
		b.sweep()
		b.orphans.checkAll() // Temporal may have lost its data
	}
}
