package watch

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/observe"
	"millwright/workflows"
)

// event is what an informer tells of one object.
type event struct {
	resource observe.Resource
	object   metav1.Object
	deleted  bool   // the object is gone for good
	version  string // a cache that has reached it shows what happened
}

func (e event) versions() observe.Gate { return observe.Gate{e.resource: e.version} }

// handler passes the events of an informer on.
func (b *Bridge) handler(resource observe.Resource, informer cache.SharedIndexInformer) cache.ResourceEventHandler {
	pass := func(item any, deleted bool, version string) {
		if object, ok := item.(metav1.Object); ok {
			b.metrics.events.WithLabelValues(string(resource)).Inc()
			if version == "" {
				version = object.GetResourceVersion()
			}
			b.note(event{resource: resource, object: object, deleted: deleted, version: version})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(item any) { pass(item, false, "") },
		UpdateFunc: func(old, item any) {
			before, ok1 := old.(metav1.Object)
			after, ok2 := item.(metav1.Object)
			if ok1 && ok2 && before.GetUID() != after.GetUID() {
				pass(old, true, after.GetResourceVersion()) // deleted and made anew while the watch was broken
			}
			pass(item, false, "")
		},
		DeleteFunc: func(item any) {
			version := ""
			if tombstone, ok := item.(cache.DeletedFinalStateUnknown); ok {
				// The watch missed the deletion: the object's own version is from before it.
				item, version = tombstone.Obj, informer.GetStore().LastStoreSyncResourceVersion()
			}
			pass(item, true, version)
		},
	}
}

// note finds out whom an event concerns.
func (b *Bridge) note(e event) {
	switch object := e.object.(type) {
	case *v1alpha1.Machine:
		b.noteMachine(e, object)
	case *v1alpha1.MachineSet:
		b.noteOwned(e, workflows.KindMachineSet, workflows.KindMachineDeployment, setPrints(object))
	case *v1alpha1.MachineDeployment:
		if b.noteOwned(e, workflows.KindMachineDeployment, "", deploymentPrints(object)).below {
			for _, set := range b.cluster.SetsOf(string(object.UID)) {
				b.enqueue(key{workflows.KindMachineSet, set.Namespace, set.Name}, wake{versions: e.versions(), cause: byObject})
			}
		}
	case *v1alpha1.MachineClass:
		changed := b.noteOwned(e, workflows.KindMachineClass, "", classPrints(object))
		if changed.self {
			b.wakeMachines(object, e.versions())
		}
		if changed.news {
			b.wakeSetsOf(object, e.versions())
		}
		if changed.self {
			b.orphans.look(refOf(object))
		}
	case *corev1.Node:
		if b.changes(e, nodePrints(object)).self {
			b.wakeMachinesOn(object, wake{versions: e.versions(), cause: byNode})
		}
	case *unstructured.Unstructured: // the control plane
		if b.changes(e, prints{self: hash(object.GetUID(), object.GetGeneration(), object.Object["status"])}).self {
			b.wakeSets(e.versions())
		}
	case *metav1.PartialObjectMetadata:
		b.noteSecret(e, object)
	}
}

// wakeMachinesOn wakes the machines of a node, and the sets of those that failed: a node may ask for its machine to be kept.
func (b *Bridge) wakeMachinesOn(node *corev1.Node, w wake) {
	for _, m := range b.cluster.MachinesOfNode(node.Name) {
		b.enqueue(key{workflows.KindMachine, m.Namespace, m.Name}, w)
		if set := controller(m); set != "" && m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed {
			b.enqueue(key{workflows.KindMachineSet, m.Namespace, set}, w)
		}
	}
}

// noteMachine wakes who has to do with a machine.
func (b *Bridge) noteMachine(e event, m *v1alpha1.Machine) {
	changed := b.noteOwned(e, workflows.KindMachine, workflows.KindMachineSet, machinePrints(m))
	for _, class := range changed.classes {
		b.enqueue(key{workflows.KindMachineClass, m.Namespace, class}, wake{versions: e.versions(), cause: byObject})
	}
	if changed.loose {
		b.wakeAdopters(m, e.versions())
	}
	if changed.above {
		b.wakeDeployment(m, e.versions(), changed.leaving)
	}
	if changed.drained {
		b.wakeQueue(e.versions())
	}
	if changed.several {
		b.orphans.hurry(m.Namespace, observe.ClassOf(m))
	}
}

// noteSecret wakes who may wait for a Secret: the machines of its classes for what is in it, the classes for its finalizer.
// A change of the finalizer alone is our own write, and no news to machines. No gate of a machine holds a Secret's version:
// who needs what is in it reads it live.
func (b *Bridge) noteSecret(e event, secret *metav1.PartialObjectMetadata) {
	changed := b.changes(e, secretPrints(secret))
	w := wake{versions: e.versions(), cause: byOwn}
	if changed.news && !e.deleted { // one that is gone gives a class nothing to do
		w.cause = byObject
	}
	for _, class := range b.cluster.ClassesOfSecret(secret.Namespace, secret.Name) {
		if changed.own {
			b.enqueue(key{workflows.KindMachineClass, class.Namespace, class.Name}, w)
		}
		if changed.news || (changed.self && !changed.own) {
			b.wakeMachines(class, nil)
		}
	}
}

// noteOwned wakes an object that has a workflow of its own, and what controls it. It returns what changed.
func (b *Bridge) noteOwned(e event, kind, parentKind workflows.Kind, now prints) difference {
	changed := b.changes(e, now)
	for _, parent := range changed.parents {
		told := wake{versions: e.versions(), cause: byMember}
		if changed.hurry || kind == workflows.KindMachineSet && b.freesEarly(e.object.GetNamespace(), parent) {
			told.cause = byObject
		}
		b.enqueue(key{parentKind, e.object.GetNamespace(), parent}, told)
	}
	w := wake{versions: e.versions(), cause: byOwn}
	if changed.self {
		w.cause = byObject
	}
	if e.deleted {
		gone := departed{ref: refOf(e.object), tell: b.now().Add(goneAfter)}
		if d, ok := e.object.(*v1alpha1.MachineDeployment); ok {
			gone.rollout = observe.RolloutNamed(d)
		}
		w.gone = []departed{gone}
	}
	if changed.self || changed.own {
		b.enqueue(key{kind, e.object.GetNamespace(), e.object.GetName()}, w)
	}
	return changed
}

// wakeDeployment wakes the deployment above a machine's set, past the set, which has nothing to do with it: in a moment where all is that
// the machine leaves, unless that frees its place.
func (b *Bridge) wakeDeployment(m *v1alpha1.Machine, versions observe.Gate, leaving bool) {
	set, found := b.cluster.Set(m.Namespace + "/" + controller(m))
	if !found || !observe.HasDeployment(set) {
		return
	}
	told := wake{versions: versions, cause: byObject}
	if leaving && !b.freesEarly(m.Namespace, controller(set)) {
		told.cause = byMember
	}
	b.enqueue(key{workflows.KindMachineDeployment, m.Namespace, controller(set)}, told)
}

// freesEarly reports whether a machine of a deployment frees its place when its deletion begins: then its rollout waits for that, and for
// its sets to have seen their sizes.
func (b *Bridge) freesEarly(namespace, deployment string) bool {
	d, found := b.cluster.Deployment(namespace + "/" + deployment)
	return found && observe.FreesEarly(d)
}

// wakeAdopters wakes the sets that would take a machine which nothing controls, and the one that let go of it.
func (b *Bridge) wakeAdopters(m *v1alpha1.Machine, versions observe.Gate) {
	for _, set := range b.cluster.SetsSelecting(m) {
		b.enqueue(key{workflows.KindMachineSet, set.Namespace, set.Name}, wake{versions: versions, cause: byObject})
	}
}

// wakeSets wakes all sets: those that are not calm may wait for the control plane.
func (b *Bridge) wakeSets(versions observe.Gate) {
	for _, item := range b.cluster.Informer(observe.Sets).GetStore().List() {
		set := item.(*v1alpha1.MachineSet)
		b.enqueue(key{workflows.KindMachineSet, set.Namespace, set.Name}, wake{versions: versions, cause: byObject})
	}
}

// wakeSetsOf wakes the sets whose template names a class that came or went: without it they make no machine.
func (b *Bridge) wakeSetsOf(class *v1alpha1.MachineClass, versions observe.Gate) {
	for _, set := range b.cluster.SetsOfClass(class.Namespace + "/" + class.Name) {
		b.enqueue(key{workflows.KindMachineSet, set.Namespace, set.Name}, wake{versions: versions, cause: byObject})
	}
}

// wokenAtOnce is how many of the machines that wait for their turn are woken when a place is free. One would do; the others
// make up for those that have gone meanwhile, and each is asked once only.
const wokenAtOnce = 5

// wakeQueue wakes the machines that are next to be drained.
func (b *Bridge) wakeQueue(versions observe.Gate) {
	for _, m := range b.cluster.NextToDrain(wokenAtOnce) {
		b.enqueue(key{workflows.KindMachine, m.Namespace, m.Name}, wake{versions: versions, cause: byObject})
	}
}

// wakeMachines wakes the machines of a class: those that are not calm may wait for it.
func (b *Bridge) wakeMachines(class *v1alpha1.MachineClass, versions observe.Gate) {
	for _, m := range b.cluster.MachinesOfClass(class.Namespace + "/" + class.Name) {
		b.enqueue(key{workflows.KindMachine, m.Namespace, m.Name}, wake{versions: versions, cause: byObject})
	}
}

// difference says which fingerprints of an object changed.
type difference struct {
	loose   bool // nothing controls the object, or did when it went, and what its parent would look at is news
	above   bool // something that only the deployment above a machine's set looks at
	leaving bool // and that is no more than that a machine which runs is to go
	drained bool // a machine that took a place in the order of drains does not any more
	several bool // the provider has come to say OutOfRange of a machine
	news    bool // the object is new, or gone: all of them changed
	self    bool
	own     bool
	below   bool
	hurry   bool     // the parents wait for it
	parents []string // who must hear of it: what controls the object, and what did until now
	classes []string // those that a machine refers to, or did until now: when it came, went or changed to another one
}

// changes compares an object's fingerprints with those seen last, and keeps them.
func (b *Bridge) changes(e event, now prints) difference {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := string(e.resource) + "/" + string(e.object.GetUID())
	before, known := b.seen[id]
	if e.deleted {
		delete(b.seen, id)
	} else {
		b.seen[id] = now
	}
	if !known || e.deleted {
		d := all(before, now)
		d.above = e.deleted || now.above != ""
		d.hurry, d.drained = e.deleted, e.deleted && before.draining
		d.several = known && now.fellOut(before)
		return d
	}
	d := some(before, now)
	d.leaving = d.above && deleting(e.object) && before.above == string(v1alpha1.MachineRunning)
	return d
}

// all is the difference of an object that is new, or gone; before are its fingerprints in the second case.
func all(before, now prints) difference {
	return difference{
		news: true, self: true, own: true, below: true,
		loose: now.parent == "", parents: named(now.parent, before.parent), classes: named(now.class, before.class),
	}
}

// some is the difference of an object that is as it was, but for that.
func some(before, now prints) difference {
	d := difference{
		several: now.fellOut(before), drained: before.draining && !now.draining, above: now.above != before.above,
		self: before.self != now.self, own: before.own != now.own, below: before.below != now.below, hurry: before.owner != now.owner,
	}
	if d.hurry || before.later != now.later {
		d.loose = now.parent == ""
		d.parents = named(now.parent, before.parent)
	}
	if before.class != now.class {
		d.classes = named(now.class, before.class)
	}
	return d
}

// named returns those of two names that are not empty, and each but once.
func named(now, before string) (names []string) {
	if now != "" {
		names = append(names, now)
	}
	if before != "" && before != now {
		names = append(names, before)
	}
	return names
}

func refOf(o metav1.Object) observe.Ref {
	return observe.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())}
}
