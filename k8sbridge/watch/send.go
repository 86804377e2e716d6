package watch

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"

	"millwright/observe"
	"millwright/workflows"
)

// send delivers what is queued until the queue shuts down. The queue hands an object to one sender at a time, so that no
// object has two signals under way.
func (b *Bridge) send(ctx context.Context) {
	for {
		k, shutdown := b.queue.Get()
		if shutdown {
			return
		}
		b.deliver(ctx, k)
		b.queue.Done(k)
	}
}

// deliver signals one object's workflow, if the object is not calm. A failed signal is tried again later, with all that has
// happened by then.
func (b *Bridge) deliver(ctx context.Context, k key) {
	w, claimed, wait := b.take(k)
	if wait > 0 {
		b.queue.AddAfter(k, wait)
	}
	if !claimed || ctx.Err() != nil {
		return
	}
	sent, err := b.tell(ctx, k, w)
	switch {
	case err == nil:
		b.backoff.Forget(k)
		if sent {
			b.returned()
		}
	case ctx.Err() == nil:
		b.metrics.failures.WithLabelValues(string(k.kind)).Inc()
		b.log.Warn("signal failed, will try again", "kind", k.kind, "namespace", k.namespace, "name", k.name, "error", err)
		b.failed(err)
		b.retry(k, w)
	}
}

// retry puts back what could not be told.
func (b *Bridge) retry(k key, w wake) {
	wait := b.backoff.When(k)
	b.hush(k, wait)
	b.putBack(k, w, wait)
}

// putBack makes an object be looked at again after a while, with all that has happened by then.
func (b *Bridge) putBack(k key, w wake, wait time.Duration) {
	b.mu.Lock()
	w.merge(b.pending[k])
	b.pending[k] = w
	b.mu.Unlock()
	b.queue.AddAfter(k, wait)
}

// tell signals a workflow, starting it when it is not open, and reports whether Temporal was asked for anything.
func (b *Bridge) tell(ctx context.Context, k key, w wake) (sent bool, err error) {
	s, found := b.subject(k)
	if !found && b.early(k, w) {
		return false, nil
	}
	for _, gone := range w.gone {
		if found && s.ref.UID == gone.ref.UID {
			continue
		}
		if err := b.tellGone(ctx, k, gone, w.versions); err != nil {
			return true, err
		}
		sent = true
	}
	if sent || !found {
		b.forget(k)
	}
	if !found {
		return sent, nil
	}
	said := s.said()
	if said == "" {
		b.remember(k, said)
	}
	if said == "" || !b.worthIt(k, w.cause, s) {
		b.metrics.calm.WithLabelValues(string(k.kind)).Inc()
		return sent, nil
	}
	if err := b.limiter.Wait(ctx); err != nil {
		return sent, err // shutting down
	}
	b.hush(k, s.pause())
	w.merge(wake{versions: s.versions})
	changed := workflows.Changed{UID: s.ref.UID, Generation: s.generation, Versions: w.versions, Deleting: s.deleting}
	if err := b.signal(ctx, k, s, changed); err != nil {
		return true, err
	}
	b.remember(k, said) // not before: a signal that failed has told nothing
	b.metrics.signals.WithLabelValues(string(k.kind)).Inc()
	b.log.Debug("signaled", "kind", k.kind, "namespace", k.namespace, "name", k.name, "why", said)
	return true, nil
}

// early puts back what is too early to be told of an object that is gone, and reports whether it did.
func (b *Bridge) early(k key, w wake) bool {
	var wait time.Duration
	for _, gone := range w.gone {
		wait = max(wait, gone.tell.Sub(b.now()))
	}
	if wait <= 0 {
		return false
	}
	b.putBack(k, w, wait)
	return true
}

// signal tells an object's workflow, and starts it when it is not open. Where a rollout is open, that is the one to be told: it
// writes the deployment's sets.
func (b *Bridge) signal(ctx context.Context, k key, s subject, changed workflows.Changed) error {
	if s.rollout != "" {
		err := b.starter.SignalWorkflow(ctx, s.rollout, "", workflows.SignalChanged, changed)
		if absent := new(serviceerror.NotFound); !errors.As(err, &absent) {
			return err
		}
	}
	_, err := b.starter.SignalWithStartWorkflow(ctx, workflows.ID(k.kind, s.ref), workflows.SignalChanged, changed,
		s.options(k), string(k.kind), workflows.Input{Ref: s.ref, Gate: changed.Versions})
	return err
}

// tellGone signals the workflow of an object that is gone, if it is still open. So it does with the rollout of a deployment: that may be
// open though the deployment's workflow is not.
func (b *Bridge) tellGone(ctx context.Context, k key, gone departed, versions observe.Gate) error {
	changed := workflows.Changed{UID: gone.ref.UID, Versions: versions, Deleting: true}
	for _, id := range []string{gone.rollout, workflows.ID(k.kind, gone.ref)} {
		if id == "" {
			continue
		}
		if err := b.limiter.Wait(ctx); err != nil {
			return err
		}
		err := b.starter.SignalWorkflow(ctx, id, "", workflows.SignalChanged, changed)
		if absent := new(serviceerror.NotFound); err != nil && !errors.As(err, &absent) {
			return err
		}
	}
	return nil
}

// worthIt reports whether an object that is not calm needs a signal for a change. Its workflow need not hear of what it
// wrote itself, nor of a change of its node that leaves it waiting for the same. It must hear when the object was calm
// until now: then no run may be open, whoever wrote. And it must hear each time of what is done within a moment: a run which
// has not done it may have looked while the node was another.
func (b *Bridge) worthIt(k key, c cause, s subject) bool {
	told, waiting := b.lastTold(k)
	switch {
	case !waiting, s.decision.Need.Prompt():
		return true
	case c == byOwn:
		return false
	case c == byNode:
		return told != s.said() && !s.nodeless
	default:
		return true
	}
}

// failed notes that Temporal did not answer; returned, that it does again: then everything is looked at once more.
func (b *Bridge) failed(err error) {
	unavailable, late := new(serviceerror.Unavailable), new(serviceerror.DeadlineExceeded)
	if !errors.As(err, &unavailable) && !errors.As(err, &late) && !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	b.mu.Lock()
	b.away = true
	b.mu.Unlock()
}

func (b *Bridge) returned() {
	b.mu.Lock()
	away := b.away
	b.away = false
	if away {
		clear(b.quiet) // those that were backed off from need not wait any longer
	}
	b.mu.Unlock()
	if away {
		b.log.Info("Temporal answers again: looking at everything")
		b.sweep()
		b.orphans.lookAtAll() // it may have lost its data
	}
}
