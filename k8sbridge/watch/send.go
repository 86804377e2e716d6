package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/observe"
	"millwright/workflows"
)

// subject is an object as its workflow is told about it.
type subject struct {
	ref        observe.Ref
	generation int64
	deleting   bool
	owner      workflows.Owner
	decision   attention.Decision
}

// send delivers what is queued until the queue shuts down.
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
	b.mu.Lock()
	w, waiting := b.pending[k]
	delete(b.pending, k)
	b.mu.Unlock()
	if !waiting {
		return
	}
	if err := b.limiter.Wait(ctx); err != nil {
		return // shutting down
	}
	err := b.tell(ctx, k, w)
	if err == nil {
		b.queue.Forget(k)
		b.returned()
		return
	}
	if ctx.Err() != nil {
		return
	}
	b.metrics.failures.WithLabelValues(string(k.kind)).Inc()
	b.log.Warn("signal failed, will try again", "kind", k.kind, "namespace", k.namespace, "name", k.name, "error", err)
	b.failed(err)
	b.mu.Lock()
	if merged, newer := b.pending[k]; newer {
		for resource, version := range merged.versions {
			w.versions.Raise(resource, version)
		}
		if merged.gone != nil {
			w.gone = merged.gone
		}
		w.cause = max(w.cause, merged.cause)
	}
	b.pending[k] = w
	b.mu.Unlock()
	b.queue.AddRateLimited(k)
}

// tell signals a workflow, starting it when it is not open.
func (b *Bridge) tell(ctx context.Context, k key, w wake) error {
	s, found := b.subject(k)
	if w.gone != nil && (!found || s.ref.UID != w.gone.UID) {
		changed := workflows.Changed{UID: w.gone.UID, Versions: w.versions, Deleting: true}
		err := b.starter.SignalWorkflow(ctx, workflows.ID(k.kind, *w.gone), "", workflows.SignalChanged, changed)
		if absent := new(serviceerror.NotFound); err != nil && !errors.As(err, &absent) {
			return err
		}
	}
	if !found {
		b.forget(k)
		return nil
	}
	said := string(s.decision.Need) + ": " + s.decision.Why
	if s.decision.Calm() || !b.worthIt(k, w.cause, s.decision, said) {
		b.metrics.calm.WithLabelValues(string(k.kind)).Inc()
		return nil
	}
	changed := workflows.Changed{UID: s.ref.UID, Generation: s.generation, Versions: w.versions, Deleting: s.deleting}
	b.mark(k, said)
	_, err := b.starter.SignalWithStartWorkflow(ctx, workflows.ID(k.kind, s.ref), workflows.SignalChanged, changed,
		b.options(k, s), string(k.kind), workflows.Input{Ref: s.ref, Gate: w.versions})
	if err == nil {
		b.metrics.signals.WithLabelValues(string(k.kind)).Inc()
		b.log.Debug("signaled", "kind", k.kind, "namespace", k.namespace, "name", k.name, "why", said)
	}
	return err
}

// worthIt reports whether a change deserves a signal. A workflow need not hear of its own writes, unless its node was
// faster than they; nor of a change of its node that leaves it waiting for the same.
func (b *Bridge) worthIt(k key, c cause, d attention.Decision, said string) bool {
	switch c {
	case byPlace:
		return d.Need == attention.Health
	case byNode:
		return b.lastTold(k) != said
	default:
		return true
	}
}

// mark notes that a signal goes out now.
func (b *Bridge) mark(k key, said string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.signaled[k], b.told[k] = b.now(), said
}

func (b *Bridge) lastTold(k key) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told[k]
}

func (b *Bridge) forget(k key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.signaled, k)
	delete(b.told, k)
}

// options are those of a run that has yet to be started.
func (b *Bridge) options(k key, s subject) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       workflows.ID(k.kind, s.ref),
		TaskQueue:                workflows.QueueMachines,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		TypedSearchAttributes:    workflows.StartAttributes(k.namespace, s.owner),
		StaticSummary:            fmt.Sprintf("%s %s/%s", k.kind, k.namespace, k.name),
		StaticDetails:            s.decision.Why,
	}
}

// subject reads an object from the caches and asks whether it is calm.
func (b *Bridge) subject(k key) (subject, bool) {
	id := k.namespace + "/" + k.name
	switch k.kind {
	case workflows.KindMachine:
		m, found := b.cluster.Machine(id)
		if !found {
			return subject{}, false
		}
		s := describe(m, attention.Machine(observe.MachineFacts(m, b.cluster.NodeOf(m))))
		s.owner = b.ownerOf(m)
		return s, true
	case workflows.KindMachineSet:
		set, found := b.cluster.Set(id)
		if !found {
			return subject{}, false
		}
		s := describe(set, attention.MachineSet(observe.SetFacts(set, b.cluster.MachinesOf(string(set.UID)))))
		s.owner = workflows.Owner{MachineSet: set.Name, MachineDeployment: controller(set)}
		return s, true
	default:
		d, found := b.cluster.Deployment(id)
		if !found {
			return subject{}, false
		}
		s := describe(d, attention.MachineDeployment(observe.DeploymentFacts(d, b.cluster.SetsOf(string(d.UID)))))
		s.owner = workflows.Owner{MachineDeployment: d.Name}
		return s, true
	}
}

func describe(o metav1.Object, d attention.Decision) subject {
	return subject{ref: *refOf(o), generation: o.GetGeneration(), deleting: deleting(o), decision: d}
}

// ownerOf names a machine's parents and provider.
func (b *Bridge) ownerOf(m *v1alpha1.Machine) workflows.Owner {
	owner := workflows.Owner{Machine: m.Name, MachineSet: controller(m)}
	if set, found := b.cluster.Set(m.Namespace + "/" + owner.MachineSet); found {
		owner.MachineDeployment = controller(set)
	}
	if class, found := b.cluster.Class(m.Namespace + "/" + m.Spec.Class.Name); found {
		owner.Provider = class.Provider
	}
	return owner
}

func controller(o metav1.Object) string {
	if ref := metav1.GetControllerOf(o); ref != nil {
		return ref.Name
	}
	return ""
}

// failed notes that Temporal did not answer; returned, that it does again: then everything is looked at once more.
func (b *Bridge) failed(err error) {
	unavailable, late := new(serviceerror.Unavailable), new(serviceerror.DeadlineExceeded)
	if !errors.As(err, &unavailable) && !errors.As(err, &late) {
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
	b.mu.Unlock()
	if away {
		b.log.Info("Temporal answers again: looking at everything")
		b.sweep()
	}
}

// sweep queues every object, whatever its fingerprint.
func (b *Bridge) sweep() {
	for kind, resource := range map[workflows.Kind]observe.Resource{
		workflows.KindMachine: observe.Machines, workflows.KindMachineSet: observe.Sets, workflows.KindMachineDeployment: observe.Deployments,
	} {
		for _, id := range b.cluster.Informer(resource).GetStore().ListKeys() {
			if namespace, name, err := cache.SplitMetaNamespaceKey(id); err == nil {
				b.enqueue(key{kind, namespace, name}, wake{cause: byObject})
			}
		}
	}
}

// resync makes sure, each minute, that every object that is not calm has an open run: by a plain start, which leaves no
// event in a run that is open. What should have been done within a second is signaled: an open run may have missed it.
func (b *Bridge) resync(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(resyncEach + rand.N(resyncEach/10)):
			b.startAll(ctx)
		}
	}
}

func (b *Bridge) startAll(ctx context.Context) {
	for kind, resource := range map[workflows.Kind]observe.Resource{
		workflows.KindMachine: observe.Machines, workflows.KindMachineSet: observe.Sets, workflows.KindMachineDeployment: observe.Deployments,
	} {
		for _, id := range b.cluster.Informer(resource).GetStore().ListKeys() {
			namespace, name, err := cache.SplitMetaNamespaceKey(id)
			if err != nil {
				continue
			}
			k := key{kind, namespace, name}
			s, found := b.subject(k)
			if !found || s.decision.Calm() {
				continue
			}
			if s.decision.Need == attention.Scale || s.decision.Need == attention.Health {
				b.enqueue(k, wake{cause: byObject})
				continue
			}
			if err := b.limiter.Wait(ctx); err != nil {
				return
			}
			if _, err := b.starter.ExecuteWorkflow(ctx, b.options(k, s), string(kind), workflows.Input{Ref: s.ref}); err != nil {
				b.failed(err)
				b.log.Warn("resync: start failed, will try again", "kind", kind, "object", id, "error", err)
			}
		}
	}
}
