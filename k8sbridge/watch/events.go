package watch

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	observecache "millwright/observe/cache"
	capideployment "millwright/observe/capi/deployment"
	"millwright/observe/class"
	"millwright/observe/deployment"
	observedrain "millwright/observe/drain"
	"millwright/observe/machine"
	"millwright/observe/set"
	"millwright/workflows/run"
)

// event is what an informer reports about one object.
type event struct {
	resource observecache.Resource
	object   metav1.Object
	deleted  bool   // the object does not exist any more
	version  string // a cache with at least this version shows the change
}

func (e event) wake() wake { return wake{versions: observecache.MinVersions{e.resource: e.version}} }

// handler returns the handler of an informer's events.
func (b *Bridge) handler(
	resource observecache.Resource,
	informer cache.SharedIndexInformer,
) cache.ResourceEventHandler {
	pass := func(item any, deleted bool, version string) {
		if object, ok := item.(metav1.Object); ok {
			b.metrics.events.WithLabelValues(string(resource)).Inc()
			if version == "" {
				version = object.GetResourceVersion()
			}
			b.handle(event{resource: resource, object: object, deleted: deleted, version: version})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(item any) { pass(item, false, "") },
		UpdateFunc: func(old, item any) {
			before, ok1 := old.(metav1.Object)
			after, ok2 := item.(metav1.Object)
			if ok1 && ok2 && before.GetUID() != after.GetUID() {
				pass(old, true, after.GetResourceVersion()) // deleted and created again while the watch was broken
			}
			pass(item, false, "")
		},
		DeleteFunc: func(item any) {
			version := ""
			if tombstone, ok := item.(cache.DeletedFinalStateUnknown); ok {
				// The watch missed the deletion: the object's own version is older than the deletion.
				item, version = tombstone.Obj, informer.GetStore().LastStoreSyncResourceVersion()
			}
			pass(item, true, version)
		},
	}
}

// handle enqueues the objects that an event affects.
func (b *Bridge) handle(e event) {
	switch object := e.object.(type) {
	case *v1alpha1.Machine:
		b.handleMachine(e, object)
	case *v1alpha1.MachineSet:
		b.handleSet(e, object)
	case *v1alpha1.MachineDeployment:
		if b.handleOwned(e, run.KindMachineDeployment, "", deploymentFingerprints(object)).children {
			enqueueAll(b, run.KindMachineSet, b.cluster.SetsOf(string(object.UID)), e.wake(), 0)
		}
	case *v1alpha1.MachineClass:
		b.handleClass(e, object)
	case *v1alpha1.RolloutPolicy: // its selector may have changed: all of its namespace
		if b.compare(e, fingerprints{spec: hash(object.UID, object.Spec)}).spec {
			b.enqueueNamespace(object.Namespace, e.wake())
		}
	case *corev1.Node:
		if c := b.compare(e, nodeFingerprints(object)); c.spec {
			b.enqueueMachinesOf(object, e.wake(), c.health)
		}
	case *unstructured.Unstructured: // the control plane: sets may wait for it
		if e.resource != observecache.ControlPlanes {
			b.handleClusterAPI(e)
		} else if b.compare(e, fingerprints{spec: hash(object.GetUID(), object.GetGeneration(), object.Object["status"])}).spec {
			for _, item := range b.cluster.Informer(observecache.Sets).GetStore().List() {
				enqueueAll(b, run.KindMachineSet, []*v1alpha1.MachineSet{item.(*v1alpha1.MachineSet)}, e.wake(), 0)
			}
		}
	case *metav1.PartialObjectMetadata:
		b.handleSecret(e, object)
	default:
		b.handleClusterAPI(e)
	}
}

// handleSet enqueues the set, and the deployments that its change affects.
func (b *Bridge) handleSet(e event, s *v1alpha1.MachineSet) {
	c := b.handleOwned(e, run.KindMachineSet, run.KindMachineDeployment, setFingerprints(s))
	if c.orphan && (c.added || c.parentNow) { // deployments that may adopt it, and the deployment that released it
		enqueueAll(b, run.KindMachineDeployment, deployment.DeploymentsSelecting(b.cluster, s), e.wake(), 0)
	}
}

// handleClass enqueues the class, and the machines and sets that may wait for it.
func (b *Bridge) handleClass(e event, class *v1alpha1.MachineClass) {
	c := b.handleOwned(e, run.KindMachineClass, "", classFingerprints(class))
	if c.spec {
		enqueueAll(b, run.KindMachine, b.cluster.MachinesOfClass(refOf(class).Key()), e.wake(), 0)
		b.orphans.check(refOf(class))
	} else if c.children {
		working := slices.DeleteFunc(
			b.cluster.MachinesOfClass(refOf(class).Key()),
			func(m *v1alpha1.Machine) bool { return m.Status.CurrentOperation == nil },
		)
		enqueueAll(b, run.KindMachine, working, e.wake(), 0)
	}
	if c.added || e.deleted { // a set without a class creates no machines
		enqueueAll(b, run.KindMachineSet, b.cluster.SetsOfClass(refOf(class).Key()), e.wake(), 0)
	}
}

// enqueueAll enqueues several objects of one kind.
func enqueueAll[T metav1.Object](b *Bridge, kind run.Kind, objects []T, w wake, delay time.Duration) {
	for _, o := range objects {
		b.enqueue(key{kind, o.GetNamespace(), o.GetName()}, w, delay)
	}
}

// enqueueNamespace enqueues the deployments and sets of a namespace to which a RolloutPolicy may apply.
func (b *Bridge) enqueueNamespace(namespace string, w wake) {
	b.each(func(k key) bool {
		if k.namespace == namespace &&
			slices.Contains([]run.Kind{run.KindMachineDeployment, run.KindMachineSet, run.KindClusterAPIDeployment}, k.kind) {
			b.enqueue(k, w, 0)
		}
		return true
	})
}

// enqueueMachinesOf enqueues the machines that depend on a node, and the sets of the failed ones: a user may request
// preservation on the node. A machine that is being deleted depends only on the node's health.
func (b *Bridge) enqueueMachinesOf(node *corev1.Node, w wake, health bool) {
	machines := slices.Concat(b.cluster.MachinesOfNode(node.Name), b.cluster.MachinesOfInstance(node.Spec.ProviderID))
	machines = slices.DeleteFunc(machines, func(m *v1alpha1.Machine) bool {
		return observecache.NodeNameOf(m) != "" && (nodeOf(m) == "" || deleting(m) && !health)
	})
	enqueueAll(b, run.KindMachine, machines, w, debounce)
	for _, m := range machines {
		if set := controller(m); set != "" && m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed {
			b.enqueue(key{run.KindMachineSet, m.Namespace, set}, w, debounce)
		}
	}
}

// handleMachine enqueues the machine, and the objects that its change affects.
func (b *Bridge) handleMachine(e event, m *v1alpha1.Machine) {
	c := b.handleOwned(e, run.KindMachine, run.KindMachineSet, machineFingerprints(m))
	for _, class := range c.classes {
		b.enqueue(key{run.KindMachineClass, m.Namespace, class}, e.wake(), 0)
	}
	if c.orphan { // sets that may adopt it, and the set that released it
		enqueueAll(b, run.KindMachineSet, set.SetsSelecting(b.cluster, m), e.wake(), 0)
	}
	if set, found := b.cluster.Set(m.Namespace + "/" + controller(m)); c.deployment && found &&
		machine.HasDeployment(set) {
		b.enqueue(key{run.KindMachineDeployment, m.Namespace, controller(set)}, e.wake(), 0)
	}
	if c.node && (nodeOf(m) != "" && b.cluster.NodeOf(m) != nil || b.cluster.NodeToName(m) != nil) {
		// earlier events of the node did not enqueue this machine
		b.enqueue(key{run.KindMachine, m.Namespace, m.Name}, e.wake(), debounce)
	}
	for _, claim := range c.claims {
		b.enqueueRivals(claim, e.wake())
	}
	if c.drained {
		b.wakeQueue(e.wake())
	}
	if c.outOfRange {
		b.orphans.trigger(m.Namespace, m.Spec.Class.Name)
	}
}

// enqueueRivals enqueues the other machines that name the instance or the node of a claim: the change may have decided
// which machine owns them, or may have put that in doubt.
func (b *Bridge) enqueueRivals(claim observecache.Claim, w wake) {
	rivals := slices.Concat(b.cluster.MachinesOfInstance(claim.ProviderID), b.cluster.MachinesOfNode(claim.Told))
	rivals = slices.DeleteFunc(rivals, func(m *v1alpha1.Machine) bool { return string(m.UID) == claim.UID })
	enqueueAll(b, run.KindMachine, rivals, w, debounce)
}

// wakeQueue enqueues the machines whose turn to be drained comes next. The bridge does not know how many places are
// free: each of these machines that finds one wakes others by its event, until all places are taken.
func (b *Bridge) wakeQueue(w wake) {
	for _, next := range drain.NextTurns(observedrain.Turns(b.cluster), drainsWoken) {
		b.enqueue(key{run.KindMachine, next.Namespace, next.Name}, w, 0)
	}
}

// handleSecret enqueues the machines and classes that may wait for a Secret: machines wait for its data, classes for
// its finalizer. A change of only the finalizer enqueues no machine. The signal to a machine has no minimum version of
// the Secret: a cloud call that fails compares the Secret that it used with the one at the API server.
func (b *Bridge) handleSecret(e event, secret *metav1.PartialObjectMetadata) {
	c := b.compare(e, secretFingerprints(secret))
	for _, class := range class.ClassesOfSecret(b.cluster, secret.Namespace, secret.Name) {
		switch {
		case c.added:
			b.enqueue(key{run.KindMachineClass, class.Namespace, class.Name}, e.wake(), 0)
		case c.parentDebounced && !e.deleted: // a class has nothing to do for a Secret that is gone
			b.enqueue(key{run.KindMachineClass, class.Namespace, class.Name}, e.wake(), debounce)
		}
		if c.added || e.deleted || c.spec && !c.parentDebounced {
			enqueueAll(b, run.KindMachine, b.cluster.MachinesOfClass(refOf(class).Key()), wake{}, 0)
		}
	}
}

// handleOwned enqueues an object that has a workflow, and its controller. It returns what changed.
func (b *Bridge) handleOwned(e event, kind, parentKind run.Kind, now fingerprints) change {
	c := b.compare(e, now)
	delay := debounce
	if c.parentNow {
		delay = 0
	}
	for _, parent := range c.parents {
		b.enqueue(key{parentKind, e.object.GetNamespace(), parent}, e.wake(), delay)
	}
	k, w := key{kind, e.object.GetNamespace(), e.object.GetName()}, e.wake()
	switch {
	case e.deleted:
		gone := deleted{uid: string(e.object.GetUID()), workflows: []string{b.installation.ID(kind, refOf(e.object))}}
		if rollout := rolloutNamed(e.object); rollout != "" {
			gone.workflows = []string{rollout, gone.workflows[0]}
		}
		w.deleted, w.notBefore = []deleted{gone}, time.Now().Add(goneAfter)
		b.enqueue(k, w, goneAfter)
	case c.spec:
		b.enqueue(k, w, 0)
	}
	return c
}

// rolloutNamed returns the workflow ID of the rollout that a deployment names; empty: none, or the object is no
// deployment.
func rolloutNamed(o metav1.Object) string {
	switch o := o.(type) {
	case *v1alpha1.MachineDeployment:
		return deployment.Named(o)
	case *clusterv1.MachineDeployment:
		return capideployment.Named(o)
	default:
		return ""
	}
}

// change says which fingerprints of an object differ from those seen before. For a new or deleted object nearly all of
// them count as different: compare has the exceptions.
type change struct {
	added      bool // the object is new
	spec       bool
	children   bool
	health     bool
	deployment bool
	node       bool // a machine depends on another node than before
	// the object has no controller, or had none when it was deleted, and a fingerprint of its parent changed
	orphan     bool
	drained    bool // the drain of a machine has ended, or has begun after it waited for its turn
	outOfRange bool // a machine's provider has begun to report OutOfRange
	parentNow  bool // the parents are enqueued at once

	parentDebounced bool
	parents         []string // the present and the former controller, if a fingerprint of the parent changed
	// the present and the former class of a machine, if the machine is new or deleted or the class changed
	classes []string
	// what a machine says now and said before of its instance and node, if it is new or deleted or says something else
	claims []observecache.Claim
}

// compare compares an object's fingerprints with those seen last, and stores them.
func (b *Bridge) compare(e event, now fingerprints) change {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := string(e.resource) + "/" + string(e.object.GetUID())
	before, known := b.seen[id]
	if e.deleted {
		delete(b.seen, id)
	} else {
		b.seen[id] = now
	}
	c := differ(before, now)
	if !known || e.deleted {
		c.added, c.spec, c.children, c.health, c.deployment = !e.deleted, true, true, true, c.deployment || e.deleted
		c.parentNow, c.parentDebounced = e.deleted, true
		c.node, c.drained, c.outOfRange = false, e.deleted && before.draining, known && c.outOfRange
		c.classes = named(now.class, before.class)
		c.claims = []observecache.Claim{now.claim}
	}
	if c.parentNow || c.parentDebounced {
		c.orphan, c.parents = now.parent == "", named(now.parent, before.parent)
	}
	return c
}

// differ compares the fingerprints of an object that existed before and still does.
func differ(before, now fingerprints) change {
	c := change{
		spec:            now.spec != before.spec || before.guarded && !now.guarded,
		children:        now.children != before.children,
		health:          now.health != before.health,
		deployment:      now.deployment != before.deployment,
		node:            now.node != before.node,
		drained:         before.draining && !now.draining || before.queued && !now.queued,
		outOfRange:      now.outOfRange && !before.outOfRange,
		parentNow:       now.parentNow != before.parentNow,
		parentDebounced: now.parentDebounced != before.parentDebounced,
	}
	if now.class != before.class {
		c.classes = named(now.class, before.class)
	}
	if now.claim != before.claim {
		c.claims = []observecache.Claim{now.claim, before.claim}
	}
	return c
}

// named returns the two names without duplicates and empty ones.
func named(now, before string) []string {
	return slices.DeleteFunc(slices.Compact([]string{now, before}), func(name string) bool { return name == "" })
}

func refOf(o metav1.Object) observecache.Ref {
	return observecache.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())}
}
