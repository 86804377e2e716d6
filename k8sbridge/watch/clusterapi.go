package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/drain"
	"millwright/decide/scale"
	observecache "millwright/observe/cache"
	"millwright/observe/capi"
	capidrain "millwright/observe/capi/drain"
	capiset "millwright/observe/capi/set"
	observedrain "millwright/observe/drain"
	"millwright/workflows/run"
)

// WatchClusterAPI makes the bridge also signal the workflows of MachineDeployments and MachineSets of Cluster API. Call
// it before Run; nil changes nothing.
func (b *Bridge) WatchClusterAPI(api *capi.Cache) { b.api = api }

// followTemplates adds handlers to the caches of templates and control planes. Such a cache begins when a set names its
// kind. When the cache is filled, all sets and deployments of Cluster API are evaluated: no event says that an object
// does not exist.
func (b *Bridge) followTemplates(ctx context.Context) {
	b.api.OnTrack(func(resource observecache.Resource, informer cache.SharedIndexInformer) {
		if ctx.Err() != nil {
			return // a former term as the leader
		}
		registration, err := informer.AddEventHandler(b.handler(resource, informer))
		if err != nil {
			b.log.Warn("cannot watch", "resource", resource, "error", err)
			return
		}
		go func() {
			if cache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
				b.enqueueClusterAPISets(func(*clusterv1.MachineSet) bool { return true }, wake{})
				b.enqueueClusterAPIDeployments(func(*clusterv1.MachineDeployment) bool { return true }, wake{})
			}
			<-ctx.Done()
			_ = informer.RemoveEventHandler(registration)
		}()
	})
}

// handleClusterAPI enqueues the sets and deployments that a change of an object of Cluster API, or of a provider,
// affects.
func (b *Bridge) handleClusterAPI(e event) {
	switch object := e.object.(type) {
	case *clusterv1.MachineSet:
		b.handleClusterAPISet(e, object)
	case *clusterv1.Machine:
		b.handleClusterAPIMachine(e, object)
	case *clusterv1.MachineDeployment:
		b.handleClusterAPIDeployment(e, object)
	case *clusterv1.Cluster:
		if b.compare(e, fingerprints{spec: hash(object.UID, object.Generation, deleting(object), foreign(object))}).spec {
			enqueueAll(b, run.KindClusterAPIDrain, capidrain.Hooks(b.api, func(m *clusterv1.Machine) bool {
				return deleting(m) && m.Namespace == object.Namespace && m.Spec.ClusterName == object.Name
			}), e.wake(), 0)
			b.enqueueClusterAPISets(func(s *clusterv1.MachineSet) bool {
				return s.Namespace == object.Namespace && s.Spec.ClusterName == object.Name
			}, e.wake())
			b.enqueueClusterAPIDeployments(func(d *clusterv1.MachineDeployment) bool {
				return d.Namespace == object.Namespace && d.Spec.ClusterName == object.Name
			}, e.wake())
		}
	case *unstructured.Unstructured:
		c := b.compare(
			e,
			fingerprints{
				spec: hash(
					object.GetUID(),
					object.GetGeneration(),
					foreign(object),
					object.GetOwnerReferences(),
					object.Object["status"],
				),
			},
		)
		if c.spec {
			b.enqueueClusterAPISets(func(s *clusterv1.MachineSet) bool { return b.api.Names(s, object) }, e.wake())
			b.enqueueClusterAPIDeployments(func(d *clusterv1.MachineDeployment) bool {
				return d.Namespace == object.GetNamespace() && capi.NamesTemplate(&d.Spec.Template.Spec, object)
			}, e.wake())
		}
	}
}

// handleClusterAPIMachine enqueues the set of a machine and the set's deployment. For a machine without a set it
// enqueues the sets that may adopt the machine, and the set that released it. It also enqueues the drain of the
// machine's node, if Millwright drains it.
func (b *Bridge) handleClusterAPIMachine(e event, m *clusterv1.Machine) {
	c := b.compare(e, machineOfClusterAPI(m))
	b.enqueueClusterAPIDrain(e, m, c)
	delay := debounce
	if c.parentNow {
		delay = 0
	}
	for _, parent := range c.parents {
		b.enqueue(key{run.KindClusterAPISet, m.Namespace, parent}, e.wake(), delay)
		if name := b.clusterAPIDeploymentOf(m.Namespace + "/" + parent); name != "" {
			soon := delay
			if c.deployment { // it may go on with its rollout
				soon = 0
			}
			b.enqueue(key{run.KindClusterAPIDeployment, m.Namespace, name}, e.wake(), soon)
		}
	}
	if c.orphan {
		b.enqueueClusterAPISets(func(s *clusterv1.MachineSet) bool {
			return s.Namespace == m.Namespace && (capi.Selects(s, m) || capi.ReleasedBy(m, s))
		}, e.wake())
	}
}

// machineOfClusterAPI returns the fingerprints of a machine of Cluster API. The times of its conditions do not count,
// except the time of Ready: the set computes from it which machines are available.
func machineOfClusterAPI(m *clusterv1.Machine) fingerprints {
	annotations := maps.Clone(m.Annotations)
	delete(annotations, v1alpha1.AnnotationDrainStatus)
	var said []any
	for _, c := range m.Status.Conditions {
		switch c.Type {
		case clusterv1.MachineReadyCondition:
			said = append(said, c.Type, c.Status, c.Message, c.LastTransitionTime)
		case clusterv1.MachineUpToDateCondition,
			clusterv1.MachineNodeHealthyCondition,
			clusterv1.MachineHealthCheckSucceededCondition,
			clusterv1.MachineOwnerRemediatedCondition,
			clusterv1.MachineBootstrapConfigReadyCondition,
			clusterv1.MachineInfrastructureReadyCondition,
			clusterv1.MachineUpdatingCondition,
			clusterv1.MachineDeletingCondition:
			said = append(said, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	f := fingerprints{
		parentNow: hash(m.UID, metav1.GetControllerOf(m)),
		parentDebounced: hash(
			said,
			deleting(m),
			m.Labels,
			annotations,
			m.Spec,
			m.Finalizers,
			m.Status.Phase,
			m.Status.NodeRef,
			m.Status.NodeInfo,
			m.Status.Deletion,
		),
		deployment: fmt.Sprint(
			meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineReadyCondition),
			deleting(m),
		),
	}
	if capidrain.Hooked(m) && deleting(m) {
		v := capidrain.AsMachine(m)
		f.draining, f.queued = observedrain.InDrain(v), v.Status.Deletion != nil && v.Status.Deletion.Queued
		f.spec = hash(m.UID, foreign(m), m.Spec.Deletion, m.Spec.InfrastructureRef, m.Status.NodeRef, capidrain.Says(m))
	}
	if ref := metav1.GetControllerOf(m); ref != nil {
		f.parent = controllerOf(*ref, capi.IsSet)
	}
	return f
}

// enqueueClusterAPISets enqueues the sets for which affected returns true.
func (b *Bridge) enqueueClusterAPISets(affected func(*clusterv1.MachineSet) bool, w wake) {
	sets := slices.DeleteFunc(b.api.Sets(), func(s *clusterv1.MachineSet) bool { return !affected(s) })
	enqueueAll(b, run.KindClusterAPISet, sets, w, 0)
}

// enqueueClusterAPIDrain enqueues the drain of a machine's node. If this drain has ended or its turn has come, it also
// enqueues the drains whose turn comes next.
func (b *Bridge) enqueueClusterAPIDrain(e event, m *clusterv1.Machine, c change) {
	k, w := key{run.KindClusterAPIDrain, m.Namespace, m.Name}, e.wake()
	switch {
	case e.deleted && capidrain.Hooked(m):
		w.deleted = []deleted{{uid: string(m.UID), workflows: []string{b.installation.ID(k.kind, refOf(m))}}}
		b.enqueue(k, w, 0)
	case c.spec && capidrain.Hooked(m) && deleting(m):
		b.enqueue(k, w, 0)
	}
	if c.drained {
		b.wakeClusterAPIQueue(m.Namespace, m.Spec.ClusterName, e.wake())
	}
}

// wakeClusterAPIQueue enqueues the machines of a Cluster whose turn to be drained comes next; see wakeQueue.
func (b *Bridge) wakeClusterAPIQueue(namespace, cluster string, w wake) {
	for _, next := range drain.NextTurns(capidrain.Turns(b.api, namespace, cluster), drainsWoken) {
		b.enqueue(key{run.KindClusterAPIDrain, next.Namespace, next.Name}, w, 0)
	}
}

// wakeClusterAPIQueues is wakeClusterAPIQueue for all Clusters.
func (b *Bridge) wakeClusterAPIQueues() {
	if b.api == nil {
		return
	}
	woken := map[string]bool{}
	for _, m := range capidrain.Hooks(b.api, deletingMachine) {
		if of := m.Namespace + "/" + m.Spec.ClusterName; !woken[of] {
			woken[of] = true
			b.wakeClusterAPIQueue(m.Namespace, m.Spec.ClusterName, wake{})
		}
	}
}

func deletingMachine(m *clusterv1.Machine) bool { return deleting(m) }

// clusterAPIDrain returns the subject of the drain of a machine's node.
func (b *Bridge) clusterAPIDrain(m *clusterv1.Machine) subject {
	var pending attention.Decision
	switch {
	case !capidrain.Hooked(m):
		pending.Why = "the machine has no hook of Millwright"
	case !deleting(m):
		pending.Why = "the machine is not being deleted"
	default:
		pending = attention.Decision{Need: attention.Drain, Why: "the machine is being deleted, and has Millwright's hook"}
	}
	s := describe(capi.MachinesResource, m, pending)
	s.owner = run.Owner{
		Machine:           m.Name,
		MachineSet:        controller(m),
		MachineDeployment: m.Labels[clusterv1.MachineDeploymentNameLabel],
	}
	return s
}

// clusterAPISet returns the subject of a set of Cluster API. Its versions include those of the machines and of all
// other objects that the decision reads. If one of these cannot be read, the set counts as not calm, and its workflow
// reports why.
func (b *Bridge) clusterAPISet(ctx context.Context, set *clusterv1.MachineSet) subject {
	if !b.api.Ours(set) {
		return describe(capi.SetsResource, set, attention.Decision{Need: attention.Scale, Why: capi.HandedOver})
	}
	related, err := b.api.Read(ctx, set)
	if err != nil {
		return describe(
			capi.SetsResource,
			set,
			attention.Decision{Need: attention.Scale, Why: fmt.Sprintf("what it refers to cannot be read: %v", err)},
		)
	}
	observed := capiset.Observed(b.api, set, related, time.Now(), 0)
	plan := capiset.Explain(set, related, observed, scale.Plan(observed))
	s := describe(capi.SetsResource, set, unlessSaid(plan.Pending, plan.Said))
	for resource, version := range related.Versions() {
		s.versions.Raise(resource, version)
	}
	s.owner = run.Owner{MachineSet: set.Name, MachineDeployment: controller(set)}
	return s
}
