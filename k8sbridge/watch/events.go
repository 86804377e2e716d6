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

// event is an informer's report about one object.
type event struct {
	resource observecache.Resource
	object   metav1.Object
	deleted  bool   // the object no longer exists
	version  string // a cache with at least this version contains the change
}

func (e event) toWake() wake { return wake{versions: observecache.MinVersions{e.resource: e.version}} }

// handler returns the event handler for an informer.
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
				pass(old, true, after.GetResourceVersion()) // recreated while the watch was broken
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

// handle enqueues the objects affected by an event.
func (b *Bridge) handle(e event) {
	switch object := e.object.(type) {
	case *v1alpha1.Machine:
		b.handleMachine(e, object)
	case *v1alpha1.MachineSet:
		b.handleSet(e, object)
	case *v1alpha1.MachineDeployment:
		if b.handleOwned(e, run.KindMachineDeployment, "", deploymentFingerprints(object)).children {
			enqueueAll(b, run.KindMachineSet, b.cluster.SetsOf(string(object.UID)), e.toWake(), 0)
		}
	case *v1alpha1.MachineClass:
		b.handleClass(e, object)
	case *v1alpha1.RolloutPolicy: // the policy's selector may have changed: enqueue the whole namespace
		if b.compareAndStore(e, fingerprints{spec: hashOf(object.UID, object.Spec)}).spec {
			b.enqueueNamespace(object.Namespace, e.toWake())
		}
	case *corev1.Node:
		if c := b.compareAndStore(e, nodeFingerprints(object)); c.spec {
			b.enqueueMachinesOf(object, e.toWake(), c.health)
		}
	case *unstructured.Unstructured: // sets may wait for the control plane
		if e.resource != observecache.ControlPlanes {
			b.handleClusterAPI(e)
		} else if b.compareAndStore(e, fingerprints{spec: hashOf(object.GetUID(), object.GetGeneration(), object.Object["status"])}).spec {
			for _, item := range b.cluster.Informer(observecache.Sets).GetStore().List() {
				enqueueAll(b, run.KindMachineSet, []*v1alpha1.MachineSet{item.(*v1alpha1.MachineSet)}, e.toWake(), 0)
			}
		}
	case *metav1.PartialObjectMetadata:
		b.handleSecret(e, object)
	default:
		b.handleClusterAPI(e)
	}
}

// handleSet enqueues the set, and the deployments affected by the set's change.
func (b *Bridge) handleSet(e event, s *v1alpha1.MachineSet) {
	c := b.handleOwned(e, run.KindMachineSet, run.KindMachineDeployment, setFingerprints(s))
	if c.orphan && (c.added || c.parentNow) { // possible adopters, and the deployment that released the set
		enqueueAll(b, run.KindMachineDeployment, deployment.DeploymentsSelecting(b.cluster, s), e.toWake(), 0)
	}
}

// handleClass enqueues the class, and the machines and sets that may wait for the class.
func (b *Bridge) handleClass(e event, class *v1alpha1.MachineClass) {
	c := b.handleOwned(e, run.KindMachineClass, "", classFingerprints(class))
	if c.spec {
		enqueueAll(b, run.KindMachine, b.cluster.MachinesOfClass(refOf(class).Key()), e.toWake(), 0)
		b.orphanSchedules.enqueueCheck(refOf(class))
	} else if c.children {
		working := slices.DeleteFunc(
			b.cluster.MachinesOfClass(refOf(class).Key()),
			func(m *v1alpha1.Machine) bool { return m.Status.CurrentOperation == nil },
		)
		enqueueAll(b, run.KindMachine, working, e.toWake(), 0)
	}
	if c.added || e.deleted { // a set without a class creates no machines
		enqueueAll(b, run.KindMachineSet, b.cluster.SetsOfClass(refOf(class).Key()), e.toWake(), 0)
	}
}

// enqueueAll enqueues several objects of one kind.
func enqueueAll[T metav1.Object](b *Bridge, kind run.Kind, objects []T, w wake, delay time.Duration) {
	for _, o := range objects {
		b.enqueue(objectKey{kind, o.GetNamespace(), o.GetName()}, w, delay)
	}
}

// enqueueNamespace enqueues the deployments and sets of a namespace, because a RolloutPolicy may apply to each of
// them.
func (b *Bridge) enqueueNamespace(namespace string, w wake) {
	b.forEachObject(func(k objectKey) bool {
		if k.namespace == namespace &&
			slices.Contains([]run.Kind{run.KindMachineDeployment, run.KindMachineSet, run.KindClusterAPIDeployment}, k.kind) {
			b.enqueue(k, w, 0)
		}
		return true
	})
}

// enqueueMachinesOf enqueues the machines that depend on a node. enqueueMachinesOf also enqueues the sets of the
// failed machines, because a user may request preservation on the node. A machine that is being deleted depends only
// on the node's health.
func (b *Bridge) enqueueMachinesOf(node *corev1.Node, w wake, health bool) {
	machines := slices.Concat(b.cluster.MachinesOfNode(node.Name), b.cluster.MachinesOfInstance(node.Spec.ProviderID))
	machines = slices.DeleteFunc(machines, func(m *v1alpha1.Machine) bool {
		return observecache.NodeNameOf(m) != "" && (dependentNodeName(m) == "" || isDeleting(m) && !health)
	})
	enqueueAll(b, run.KindMachine, machines, w, debounce)
	for _, m := range machines {
		if set := controllerName(m); set != "" && m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed {
			b.enqueue(objectKey{run.KindMachineSet, m.Namespace, set}, w, debounce)
		}
	}
}

// handleMachine enqueues the machine, and the objects affected by the machine's change.
func (b *Bridge) handleMachine(e event, m *v1alpha1.Machine) {
	c := b.handleOwned(e, run.KindMachine, run.KindMachineSet, machineFingerprints(m))
	for _, class := range c.classes {
		b.enqueue(objectKey{run.KindMachineClass, m.Namespace, class}, e.toWake(), 0)
	}
	if c.orphan { // possible adopters, and the set that released the machine
		enqueueAll(b, run.KindMachineSet, set.SetsSelecting(b.cluster, m), e.toWake(), 0)
	}
	if set, found := b.cluster.Set(m.Namespace + "/" + controllerName(m)); c.deployment && found &&
		machine.HasDeployment(set) {
		b.enqueue(objectKey{run.KindMachineDeployment, m.Namespace, controllerName(set)}, e.toWake(), 0)
	}
	if c.node && (dependentNodeName(m) != "" && b.cluster.NodeOf(m) != nil || b.cluster.NodeToName(m) != nil) {
		// earlier events of the node did not enqueue this machine
		b.enqueue(objectKey{run.KindMachine, m.Namespace, m.Name}, e.toWake(), debounce)
	}
	for _, claim := range c.claims {
		b.enqueueRivalMachines(claim, e.toWake())
	}
	if c.drained {
		b.wakeDrainQueue(e.toWake())
	}
	if c.outOfRange {
		b.orphanSchedules.triggerSweep(m.Namespace, m.Spec.Class.Name)
	}
}

// enqueueRivalMachines enqueues the other machines that name the same instance or node as a claim. The change may have
// decided which machine owns the instance or node, or may have put the ownership in doubt.
func (b *Bridge) enqueueRivalMachines(claim observecache.Claim, w wake) {
	rivals := slices.Concat(b.cluster.MachinesOfInstance(claim.ProviderID), b.cluster.MachinesOfNode(claim.Told))
	rivals = slices.DeleteFunc(rivals, func(m *v1alpha1.Machine) bool { return string(m.UID) == claim.UID })
	enqueueAll(b, run.KindMachine, rivals, w, debounce)
}

// wakeDrainQueue enqueues the next machines to be drained. The bridge does not know how many turns are free: each
// machine that gets a turn causes an event that wakes further machines, until all turns are taken.
func (b *Bridge) wakeDrainQueue(w wake) {
	for _, next := range drain.NextTurns(observedrain.Turns(b.cluster), drainsPerWake) {
		b.enqueue(objectKey{run.KindMachine, next.Namespace, next.Name}, w, 0)
	}
}

// handleSecret enqueues the machines that may wait for a Secret's data and the classes that may wait for its
// finalizer. A change of only the finalizer enqueues no machine. The signal to a machine has no minimum version of
// the Secret: a failed cloud call compares its Secret with the Secret at the API server.
func (b *Bridge) handleSecret(e event, secret *metav1.PartialObjectMetadata) {
	c := b.compareAndStore(e, secretFingerprints(secret))
	for _, class := range class.ClassesOfSecret(b.cluster, secret.Namespace, secret.Name) {
		switch {
		case c.added:
			b.enqueue(objectKey{run.KindMachineClass, class.Namespace, class.Name}, e.toWake(), 0)
		case c.parentDebounced && !e.deleted: // a class has no work for a deleted Secret
			b.enqueue(objectKey{run.KindMachineClass, class.Namespace, class.Name}, e.toWake(), debounce)
		}
		if c.added || e.deleted || c.spec && !c.parentDebounced {
			enqueueAll(b, run.KindMachine, b.cluster.MachinesOfClass(refOf(class).Key()), wake{}, 0)
		}
	}
}

// handleOwned enqueues an object that has a workflow, and its controller. handleOwned returns the change.
func (b *Bridge) handleOwned(e event, kind, parentKind run.Kind, now fingerprints) fingerprintChange {
	c := b.compareAndStore(e, now)
	delay := debounce
	if c.parentNow {
		delay = 0
	}
	for _, parent := range c.parents {
		b.enqueue(objectKey{parentKind, e.object.GetNamespace(), parent}, e.toWake(), delay)
	}
	k, w := objectKey{kind, e.object.GetNamespace(), e.object.GetName()}, e.toWake()
	switch {
	case e.deleted:
		gone := deletedObject{uid: string(e.object.GetUID()), workflows: []string{b.installation.ID(kind, refOf(e.object))}}
		if rollout := rolloutInStatus(e.object); rollout != "" {
			gone.workflows = []string{rollout, gone.workflows[0]}
		}
		w.deleted, w.earliestSignal = []deletedObject{gone}, time.Now().Add(deletionGrace)
		b.enqueue(k, w, deletionGrace)
	case c.spec:
		b.enqueue(k, w, 0)
	}
	return c
}

// rolloutInStatus returns the workflow ID of the rollout in a deployment's status. rolloutInStatus returns "" if the
// status names no rollout or the object is no deployment.
func rolloutInStatus(o metav1.Object) string {
	switch o := o.(type) {
	case *v1alpha1.MachineDeployment:
		return deployment.Named(o)
	case *clusterv1.MachineDeployment:
		return capideployment.Named(o)
	default:
		return ""
	}
}

// fingerprintChange says which fingerprints of an object differ from the last stored ones. For a new or deleted
// object nearly all fingerprints count as different; compareAndStore contains the exceptions.
type fingerprintChange struct {
	added      bool // the object is new
	spec       bool
	children   bool
	health     bool
	deployment bool
	node       bool // a machine depends on another node than before
	// the object has (or had, if deleted) no controller, and a parent fingerprint changed
	orphan     bool
	drained    bool // a machine's drain has ended, or has started after a wait in the queue
	outOfRange bool // a machine's provider has started to report OutOfRange
	parentNow  bool // the parents are enqueued at once

	parentDebounced bool
	parents         []string // the present and former controller, if a parent fingerprint changed
	// present and former class of a machine, if the machine is new or deleted or its class changed
	classes []string
	// present and former claim of a machine to an instance and node, if the machine is new or deleted or its claim
	// changed
	claims []observecache.Claim
}

// compareAndStore compares an object's fingerprints with the stored fingerprints, and stores the new ones.
func (b *Bridge) compareAndStore(e event, now fingerprints) fingerprintChange {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := string(e.resource) + "/" + string(e.object.GetUID())
	before, known := b.storedFingerprints[id]
	if e.deleted {
		delete(b.storedFingerprints, id)
	} else {
		b.storedFingerprints[id] = now
	}
	c := diffFingerprints(before, now)
	if !known || e.deleted {
		c.added, c.spec, c.children, c.health, c.deployment = !e.deleted, true, true, true, c.deployment || e.deleted
		c.parentNow, c.parentDebounced = e.deleted, true
		c.node, c.drained, c.outOfRange = false, e.deleted && before.draining, known && c.outOfRange
		c.classes = nonEmptyNames(now.class, before.class)
		c.claims = []observecache.Claim{now.claim}
	}
	if c.parentNow || c.parentDebounced {
		c.orphan, c.parents = now.parent == "", nonEmptyNames(now.parent, before.parent)
	}
	return c
}

// diffFingerprints compares the fingerprints of an object that existed before and still exists.
func diffFingerprints(before, now fingerprints) fingerprintChange {
	c := fingerprintChange{
		spec:            now.spec != before.spec || before.finalizerSet && !now.finalizerSet,
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
		c.classes = nonEmptyNames(now.class, before.class)
	}
	if now.claim != before.claim {
		c.claims = []observecache.Claim{now.claim, before.claim}
	}
	return c
}

// nonEmptyNames returns the non-empty names of the two, without duplicates.
func nonEmptyNames(now, before string) []string {
	return slices.DeleteFunc(slices.Compact([]string{now, before}), func(name string) bool { return name == "" })
}

func refOf(o metav1.Object) observecache.Ref {
	return observecache.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())}
}
