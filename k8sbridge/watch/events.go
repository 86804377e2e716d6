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

// event is an informer's event for one object.
type event struct {
	resource  observecache.Resource
	object    metav1.Object
	isDeleted bool   // the object no longer exists
	version   string // a cache with at least this version contains the change

	nodeWatch *nodeWatch // watch of a node's target; nil for other objects
}

func (e event) toSignalRequest() signalRequest {
	return signalRequest{versions: observecache.MinVersions{e.resource: e.version}}
}

// eventHandler returns the event handler for an informer. The parameter nodes is set only for the informer of a target
// cluster's nodes.
func (b *Bridge) eventHandler(
	resource observecache.Resource,
	informer cache.SharedIndexInformer,
	nodes *nodeWatch,
) cache.ResourceEventHandler {
	pass := func(item any, deleted bool, version string) {
		if object, ok := item.(metav1.Object); ok {
			b.metrics.events.WithLabelValues(string(resource)).Inc()
			if version == "" {
				version = object.GetResourceVersion()
			}
			b.handleEvent(event{resource: resource, object: object, isDeleted: deleted, version: version, nodeWatch: nodes})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(item any) { pass(item, false, "") },
		UpdateFunc: func(old, item any) {
			before, ok1 := old.(metav1.Object)
			after, ok2 := item.(metav1.Object)
			if ok1 && ok2 && before.GetUID() != after.GetUID() {
				pass(old, true, after.GetResourceVersion()) // the object was recreated while the watch was broken
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

// handleEvent enqueues the objects affected by an event.
func (b *Bridge) handleEvent(e event) {
	switch object := e.object.(type) {
	case *v1alpha1.Machine:
		b.handleMachine(e, object)
	case *v1alpha1.MachineSet:
		b.handleSet(e, object)
	case *v1alpha1.MachineDeployment:
		c := b.handleOwnedObject(e, run.KindMachineDeployment, "", deploymentFingerprints(object))
		if c.childrenChanged {
			enqueueObjects(b, run.KindMachineSet, b.cluster.SetsOfOwner(string(object.UID)), e.toSignalRequest(), 0)
		}
		enqueueNextTurns(b, e, c, run.KindMachineDeployment, b.cluster.Deployments(object.Namespace))
	case *v1alpha1.MachineClass:
		b.handleClass(e, object)
	case *v1alpha1.RolloutPolicy: // the policy's selector may have changed: enqueue the whole namespace
		if b.compareAndStoreFingerprints(e, fingerprints{specHash: hashParts(object.UID, object.Spec)}).specChanged {
			b.enqueueDeploymentsAndSets(object.Namespace, e.toSignalRequest())
		}
	case *corev1.Node:
		if c := b.compareAndStoreFingerprints(e, nodeFingerprints(object)); c.specChanged {
			b.enqueueMachinesOfNode(e.nodeWatch.target, object, e.toSignalRequest(), c.healthChanged)
		}
	case *unstructured.Unstructured: // sets may wait for the control plane
		if e.resource != observecache.ControlPlanesResource {
			b.handleClusterAPIEvent(e)
		} else if b.compareAndStoreFingerprints(e, fingerprints{specHash: hashParts(object.GetUID(), object.GetGeneration(), object.Object["status"])}).specChanged {
			for _, item := range b.cluster.Informer(observecache.SetsResource).GetStore().List() {
				enqueueObjects(b, run.KindMachineSet, []*v1alpha1.MachineSet{item.(*v1alpha1.MachineSet)}, e.toSignalRequest(), 0)
			}
		}
	case *metav1.PartialObjectMetadata:
		b.handleSecret(e, object)
	default:
		b.handleClusterAPIEvent(e)
	}
}

// handleSet enqueues the set, and the deployments affected by the set's change.
func (b *Bridge) handleSet(e event, s *v1alpha1.MachineSet) {
	c := b.handleOwnedObject(e, run.KindMachineSet, run.KindMachineDeployment, machineSetFingerprints(s))
	// enqueue the possible adopters, and the deployment that released the set
	if c.orphanChanged && (c.isNew || c.enqueuesParentsNow) {
		enqueueObjects(
			b,
			run.KindMachineDeployment,
			deployment.DeploymentsThatSelectSet(b.cluster, s),
			e.toSignalRequest(),
			0,
		)
	}
}

// handleClass enqueues the class, and the machines, sets and deployments that may wait for the class.
func (b *Bridge) handleClass(e event, class *v1alpha1.MachineClass) {
	c := b.handleOwnedObject(e, run.KindMachineClass, "", classFingerprints(class))
	if c.specChanged {
		enqueueObjects(b, run.KindMachine, b.cluster.MachinesOfClass(objectRef(class).Key()), e.toSignalRequest(), 0)
		b.sweepScheduler.enqueueCheck(objectRef(class))
	} else if c.childrenChanged {
		working := slices.DeleteFunc(
			b.cluster.MachinesOfClass(objectRef(class).Key()),
			func(m *v1alpha1.Machine) bool { return m.Status.CurrentOperation == nil },
		)
		enqueueObjects(b, run.KindMachine, working, e.toSignalRequest(), 0)
	}
	if !c.isNew && !e.isDeleted {
		return
	}
	sets := b.cluster.SetsOfClass(objectRef(class).Key())
	enqueueObjects(b, run.KindMachineSet, sets, e.toSignalRequest(), 0) // a set without a class creates no machines
	for _, s := range sets {
		d, found := b.cluster.Deployment(s.Namespace + "/" + controllerName(s))
		// A rollback cannot return to a set whose class is missing.
		if found && metav1.IsControlledBy(s, d) && !set.IsSameTemplate(&s.Spec.Template, &d.Spec.Template) {
			b.enqueue(objectKey{run.KindMachineDeployment, d.Namespace, d.Name}, e.toSignalRequest(), 0)
		}
	}
}

// enqueueObjects enqueues several objects of one kind.
func enqueueObjects[T metav1.Object](b *Bridge, kind run.Kind, objects []T, w signalRequest, delay time.Duration) {
	for _, o := range objects {
		b.enqueue(objectKey{kind, o.GetNamespace(), o.GetName()}, w, delay)
	}
}

// enqueueDeploymentsAndSets enqueues the deployments and sets of a namespace, because a RolloutPolicy may apply to each
// of them.
func (b *Bridge) enqueueDeploymentsAndSets(namespace string, w signalRequest) {
	b.forEachObject(func(k objectKey) bool {
		if k.namespace == namespace &&
			slices.Contains([]run.Kind{
				run.KindMachineDeployment, run.KindMachineSet, run.KindClusterAPIDeployment, run.KindClusterAPISet,
			}, k.kind) {
			b.enqueue(k, w, 0)
		}
		return true
	})
}

// enqueueNextTurns enqueues the deployments that take turns with the deployment of an event, if the event may let one of
// them begin its rollout. The deployment's former labels may have matched another policy, so all deployments of the
// namespace that take turns are enqueued.
func enqueueNextTurns[D metav1.Object](b *Bridge, e event, c fingerprintChange, kind run.Kind, all []D) {
	if !c.turnChanged && (c.isNew || !c.specChanged) {
		return
	}
	next := slices.DeleteFunc(slices.Clone(all), func(d D) bool {
		return d.GetName() == e.object.GetName() || b.cluster.PolicyOfObject(d).PolicySpec().Turns == nil
	})
	enqueueObjects(b, kind, next, e.toSignalRequest(), 0)
}

// enqueueMachinesOfNode enqueues the machines that depend on a node. enqueueMachinesOfNode also enqueues the sets of
// the failed machines, because a user may request preservation on the node. A machine that is being deleted depends
// only on the node's health.
func (b *Bridge) enqueueMachinesOfNode(target *observecache.Target, node *corev1.Node, w signalRequest, health bool) {
	machines := slices.Concat(
		b.cluster.MachinesOfNode(target, node.Name),
		b.cluster.MachinesOfInstanceInTarget(target, node.Spec.ProviderID),
	)
	machines = slices.DeleteFunc(machines, func(m *v1alpha1.Machine) bool {
		return observecache.NodeNameOfMachine(m) != "" && (requiredNodeName(m) == "" || isDeleting(m) && !health)
	})
	enqueueObjects(b, run.KindMachine, machines, w, debounceDelay)
	for _, m := range machines {
		if set := controllerName(m); set != "" && m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed {
			b.enqueue(objectKey{run.KindMachineSet, m.Namespace, set}, w, debounceDelay)
		}
	}
}

// handleMachine enqueues the machine, and the objects affected by the machine's change.
func (b *Bridge) handleMachine(e event, m *v1alpha1.Machine) {
	c := b.handleOwnedObject(e, run.KindMachine, run.KindMachineSet, machineFingerprints(m))
	for _, class := range c.classNames {
		b.enqueue(objectKey{run.KindMachineClass, m.Namespace, class}, e.toSignalRequest(), 0)
	}
	if c.orphanChanged { // enqueue the possible adopters, and the set that released the machine
		enqueueObjects(b, run.KindMachineSet, set.SetsThatSelectMachine(b.cluster, m), e.toSignalRequest(), 0)
	}
	if set, found := b.cluster.MachineSet(m.Namespace + "/" + controllerName(m)); c.deploymentChanged && found &&
		machine.HasDeployment(set) {
		b.enqueue(objectKey{run.KindMachineDeployment, m.Namespace, controllerName(set)}, e.toSignalRequest(), 0)
	}
	if c.nodeChanged &&
		(requiredNodeName(m) != "" && b.cluster.NodeOfMachine(m) != nil || b.cluster.UnrecordedNodeOfMachine(m) != nil) {
		// earlier events of the node did not enqueue this machine
		b.enqueue(objectKey{run.KindMachine, m.Namespace, m.Name}, e.toSignalRequest(), debounceDelay)
	}
	for _, claim := range c.claims {
		b.enqueueCompetingMachines(claim, e.toSignalRequest())
	}
	if c.drainChanged {
		b.enqueueNextDrains(observedrain.QueueEntries(b.cluster, m.Namespace), e.toSignalRequest())
	}
	if c.becameOutOfRange {
		b.sweepScheduler.triggerSweep(m.Namespace, m.Spec.Class.Name)
	}
}

// enqueueCompetingMachines enqueues the other machines that claim the same instance or node. After the change, another
// machine may own the instance or node, or the owner may be unclear.
func (b *Bridge) enqueueCompetingMachines(claim observecache.MachineClaim, w signalRequest) {
	rivals := slices.Concat(
		b.cluster.MachinesOfInstance(claim.ProviderID),
		b.cluster.MachinesOfNode(b.cluster.Target(claim.Namespace), claim.Told),
	)
	rivals = slices.DeleteFunc(rivals, func(m *v1alpha1.Machine) bool { return string(m.UID) == claim.UID })
	enqueueObjects(b, run.KindMachine, rivals, w, debounceDelay)
}

// enqueueNextDrains enqueues the next machines of the drain queue of one target cluster. The bridge has no information
// about how many drains may start: each machine that starts its drain causes an event that wakes further machines,
// until the limit is reached.
func (b *Bridge) enqueueNextDrains(turns []drain.QueueEntry, w signalRequest) {
	for _, next := range drain.NextQueuedMachines(turns, machinesPerDrainEvent) {
		b.enqueue(objectKey{run.KindMachine, next.Namespace, next.Name}, w, 0)
	}
}

// handleSecret enqueues the machines that may wait for a Secret's data, and the classes that may wait for the Secret's
// finalizer. A change of only the finalizer enqueues no machine. The signal to a machine has no minimum version of the
// Secret: a failed cloud call compares its Secret with the Secret at the API server.
func (b *Bridge) handleSecret(e event, secret *metav1.PartialObjectMetadata) {
	c := b.compareAndStoreFingerprints(e, secretFingerprints(secret))
	for _, class := range class.ClassesOfSecret(b.cluster, secret.Namespace, secret.Name) {
		switch {
		case c.isNew:
			b.enqueue(objectKey{run.KindMachineClass, class.Namespace, class.Name}, e.toSignalRequest(), 0)
		case c.enqueuesParentsDebounced && !e.isDeleted: // a class has no work for a deleted Secret
			b.enqueue(objectKey{run.KindMachineClass, class.Namespace, class.Name}, e.toSignalRequest(), debounceDelay)
		}
		if c.isNew || e.isDeleted || c.specChanged && !c.enqueuesParentsDebounced {
			enqueueObjects(b, run.KindMachine, b.cluster.MachinesOfClass(objectRef(class).Key()), signalRequest{}, 0)
		}
	}
}

// handleOwnedObject enqueues an object that has a workflow, and its controller. handleOwnedObject returns the change.
func (b *Bridge) handleOwnedObject(e event, kind, parentKind run.Kind, now fingerprints) fingerprintChange {
	c := b.compareAndStoreFingerprints(e, now)
	delay := debounceDelay
	if c.enqueuesParentsNow {
		delay = 0
	}
	for _, parent := range c.parentNames {
		b.enqueue(objectKey{parentKind, e.object.GetNamespace(), parent}, e.toSignalRequest(), delay)
	}
	k, w := objectKey{kind, e.object.GetNamespace(), e.object.GetName()}, e.toSignalRequest()
	switch {
	case e.isDeleted:
		gone := deletedObject{
			uid:         string(e.object.GetUID()),
			workflowIDs: []string{b.shard.Installation.ID(kind, objectRef(e.object))},
		}
		if rollout := rolloutIDInStatus(e.object); rollout != "" {
			gone.workflowIDs = []string{rollout, gone.workflowIDs[0]}
		}
		w.deletedObjects, w.earliestSignalTime = []deletedObject{gone}, time.Now().Add(deletionGracePeriod)
		b.enqueue(k, w, deletionGracePeriod)
	case c.specChanged:
		b.enqueue(k, w, 0)
	}
	return c
}

// rolloutIDInStatus returns the workflow ID of the rollout in a deployment's status. rolloutIDInStatus returns "" if
// the status names no rollout or the object is not a deployment.
func rolloutIDInStatus(o metav1.Object) string {
	switch o := o.(type) {
	case *v1alpha1.MachineDeployment:
		return deployment.CurrentRolloutID(o)
	case *clusterv1.MachineDeployment:
		return capideployment.CurrentRolloutID(o)
	default:
		return ""
	}
}

// fingerprintChange lists the fingerprints of an object that differ from the stored fingerprints. For a new or deleted
// object, almost all fingerprints count as different. compareAndStoreFingerprints has the exceptions.
type fingerprintChange struct {
	isNew             bool
	specChanged       bool
	childrenChanged   bool
	healthChanged     bool
	turnChanged       bool // the turn of a deployment, or what other deployments read about it
	deploymentChanged bool
	nodeChanged       bool // a machine depends on another node than before
	// the object has (or had, if deleted) no controller, and a parent fingerprint changed
	orphanChanged      bool
	drainChanged       bool // a machine's drain has ended, or has started after a wait in the queue
	becameOutOfRange   bool // a machine's provider has started to report OutOfRange
	enqueuesParentsNow bool // the parents are enqueued at once

	enqueuesParentsDebounced bool
	parentNames              []string // the present and former controller, if a parent fingerprint changed
	// present and former class of a machine, if the machine is new or deleted or its class changed
	classNames []string
	// present and former claim of a machine to an instance and node, if the machine is new or deleted or its claim
	// changed
	claims []observecache.MachineClaim
}

// compareAndStoreFingerprints compares an object's fingerprints with the stored fingerprints, and then stores the
// object's fingerprints.
func (b *Bridge) compareAndStoreFingerprints(e event, now fingerprints) fingerprintChange {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := string(e.resource) + "/" + string(e.object.GetUID())
	stored := b.storedFingerprints
	if e.nodeWatch != nil {
		stored = e.nodeWatch.fingerprints
	}
	before, known := stored[id]
	if e.isDeleted {
		delete(stored, id)
	} else {
		stored[id] = now
	}
	c := diffFingerprints(before, now)
	if !known || e.isDeleted {
		c.isNew, c.specChanged, c.childrenChanged, c.healthChanged, c.deploymentChanged = !e.isDeleted, true, true, true, c.deploymentChanged ||
			e.isDeleted
		c.enqueuesParentsNow, c.enqueuesParentsDebounced = e.isDeleted, true
		c.turnChanged = e.isDeleted
		c.nodeChanged, c.drainChanged, c.becameOutOfRange = false, e.isDeleted &&
			before.isDraining, known &&
			c.becameOutOfRange
		c.classNames = distinctNames(now.className, before.className)
		c.claims = []observecache.MachineClaim{now.claim}
	}
	if c.enqueuesParentsNow || c.enqueuesParentsDebounced {
		c.orphanChanged, c.parentNames = now.parentName == "", distinctNames(now.parentName, before.parentName)
	}
	return c
}

// diffFingerprints compares the fingerprints of an object that existed before and still exists.
func diffFingerprints(before, now fingerprints) fingerprintChange {
	c := fingerprintChange{
		specChanged:              now.specHash != before.specHash || before.hasFinalizer && !now.hasFinalizer,
		childrenChanged:          now.childrenHash != before.childrenHash,
		healthChanged:            now.healthHash != before.healthHash,
		turnChanged:              now.turnHash != before.turnHash,
		deploymentChanged:        now.fieldsForDeployment != before.fieldsForDeployment,
		nodeChanged:              now.nodeName != before.nodeName,
		drainChanged:             before.isDraining && !now.isDraining || before.isQueuedForDrain && !now.isQueuedForDrain,
		becameOutOfRange:         now.reportsOutOfRange && !before.reportsOutOfRange,
		enqueuesParentsNow:       now.immediateParentHash != before.immediateParentHash,
		enqueuesParentsDebounced: now.debouncedParentHash != before.debouncedParentHash,
	}
	if now.className != before.className {
		c.classNames = distinctNames(now.className, before.className)
	}
	if now.claim != before.claim {
		c.claims = []observecache.MachineClaim{now.claim, before.claim}
	}
	return c
}

// distinctNames returns the non-empty names of the two, without duplicates.
func distinctNames(now, before string) []string {
	return slices.DeleteFunc(slices.Compact([]string{now, before}), func(name string) bool { return name == "" })
}

func objectRef(o metav1.Object) observecache.ObjectRef {
	return observecache.ObjectRef{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())}
}
