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

// WatchClusterAPI makes the bridge also signal the workflows of Cluster API's MachineDeployments and MachineSets. Call
// WatchClusterAPI before Run. With api == nil WatchClusterAPI changes nothing.
func (b *Bridge) WatchClusterAPI(api *capi.Cache) { b.clusterAPICache = api }

// watchTemplatesAndControlPlanes adds handlers to the caches of templates and control planes. The cache of a template
// kind starts when a set refers to an object of that kind. When the cache is filled, all sets and deployments of
// Cluster API are evaluated, because no event reports that an object is missing.
func (b *Bridge) watchTemplatesAndControlPlanes(ctx context.Context) {
	b.clusterAPICache.OnProviderInformer(func(resource observecache.Resource, informer cache.SharedIndexInformer) {
		if ctx.Err() != nil {
			return // the term of this bridge as the leader has ended
		}
		registration, err := informer.AddEventHandler(b.eventHandler(resource, informer, nil))
		if err != nil {
			b.log.Warn("cannot watch", "resource", resource, "error", err)
			return
		}
		go func() {
			if cache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
				b.enqueueClusterAPISets(func(*clusterv1.MachineSet) bool { return true }, signalRequest{})
				b.enqueueClusterAPIDeployments(func(*clusterv1.MachineDeployment) bool { return true }, signalRequest{})
			}
			<-ctx.Done()
			_ = informer.RemoveEventHandler(registration)
		}()
	})
}

// handleClusterAPIEvent enqueues the sets and deployments affected by a change of a Cluster API object or of a
// provider's object.
func (b *Bridge) handleClusterAPIEvent(e event) {
	switch object := e.object.(type) {
	case *clusterv1.MachineSet:
		b.handleClusterAPISet(e, object)
	case *clusterv1.Machine:
		b.handleClusterAPIMachine(e, object)
	case *clusterv1.MachineDeployment:
		b.handleClusterAPIDeployment(e, object)
	case *clusterv1.Cluster:
		if b.compareAndStoreFingerprints(
			e,
			fingerprints{specHash: hashParts(object.UID, object.Generation, isDeleting(object), foreignMetadata(object))},
		).specChanged {
			enqueueObjects(
				b,
				run.KindClusterAPIDrain,
				capidrain.MachinesWithDrainHook(b.clusterAPICache, func(m *clusterv1.Machine) bool {
					return isDeleting(m) && m.Namespace == object.Namespace && m.Spec.ClusterName == object.Name
				}),
				e.toSignalRequest(),
				0,
			)
			b.enqueueClusterAPISets(func(s *clusterv1.MachineSet) bool {
				return s.Namespace == object.Namespace && s.Spec.ClusterName == object.Name
			}, e.toSignalRequest())
			b.enqueueClusterAPIDeployments(func(d *clusterv1.MachineDeployment) bool {
				return d.Namespace == object.Namespace && d.Spec.ClusterName == object.Name
			}, e.toSignalRequest())
		}
	case *unstructured.Unstructured:
		c := b.compareAndStoreFingerprints(
			e,
			fingerprints{
				specHash: hashParts(
					object.GetUID(),
					object.GetGeneration(),
					foreignMetadata(object),
					object.GetOwnerReferences(),
					object.Object["status"],
				),
			},
		)
		if c.specChanged {
			b.enqueueClusterAPISets(
				func(s *clusterv1.MachineSet) bool { return b.clusterAPICache.SetRefersToObject(s, object) },
				e.toSignalRequest(),
			)
			b.enqueueClusterAPIDeployments(func(d *clusterv1.MachineDeployment) bool {
				return d.Namespace == object.GetNamespace() && (capi.SpecNamesTemplate(&d.Spec.Template.Spec, object) ||
					slices.ContainsFunc(b.clusterAPICache.SetsOfDeployment(d), func(s *clusterv1.MachineSet) bool {
						return capi.SpecNamesTemplate(&s.Spec.Template.Spec, object)
					}))
			}, e.toSignalRequest())
		}
	}
}

// handleClusterAPIMachine enqueues the set of a machine and the set's deployment. For a machine without a set
// handleClusterAPIMachine enqueues the sets that may adopt the machine, and the set that released the machine. If
// Millwright drains the machine's node, handleClusterAPIMachine also enqueues the drain.
func (b *Bridge) handleClusterAPIMachine(e event, m *clusterv1.Machine) {
	c := b.compareAndStoreFingerprints(e, clusterAPIMachineFingerprints(m))
	b.enqueueClusterAPIDrain(e, m, c)
	delay := debounceDelay
	if c.enqueuesParentsNow {
		delay = 0
	}
	for _, parent := range c.parentNames {
		b.enqueue(objectKey{run.KindClusterAPISet, m.Namespace, parent}, e.toSignalRequest(), delay)
		if name := b.clusterAPIDeploymentOfSet(m.Namespace + "/" + parent); name != "" {
			soon := delay
			if c.deploymentChanged { // the deployment may continue its rollout
				soon = 0
			}
			b.enqueue(objectKey{run.KindClusterAPIDeployment, m.Namespace, name}, e.toSignalRequest(), soon)
		}
	}
	if c.orphanChanged {
		b.enqueueClusterAPISets(func(s *clusterv1.MachineSet) bool {
			return s.Namespace == m.Namespace && (capi.SelectsMachine(s, m) || capi.IsReleasedBySet(m, s))
		}, e.toSignalRequest())
	}
}

// clusterAPIMachineFingerprints returns the fingerprints of a Cluster API machine. The fingerprints include the
// transition time of the condition Ready, because the set computes from it which machines are available. They include
// no other transition time.
func clusterAPIMachineFingerprints(m *clusterv1.Machine) fingerprints {
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
		immediateParentHash: hashParts(m.UID, metav1.GetControllerOf(m)),
		debouncedParentHash: hashParts(
			said,
			isDeleting(m),
			m.Labels,
			annotations,
			m.Spec,
			m.Finalizers,
			m.Status.Phase,
			m.Status.NodeRef,
			m.Status.NodeInfo,
			m.Status.Deletion,
		),
		fieldsForDeployment: fmt.Sprint(
			meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineReadyCondition),
			isDeleting(m),
		),
	}
	if capidrain.HasDrainHook(m) && isDeleting(m) {
		v := capidrain.ToMillwrightMachine(m)
		f.isDraining, f.isQueuedForDrain = observedrain.IsInDrainQueue(
			v,
		), v.Status.Deletion != nil &&
			v.Status.Deletion.Queued
		f.specHash = hashParts(
			m.UID,
			foreignMetadata(m),
			m.Spec.Deletion,
			m.Spec.InfrastructureRef,
			m.Status.NodeRef,
			capidrain.UpstreamStatusTexts(m),
		)
	}
	if ref := metav1.GetControllerOf(m); ref != nil {
		f.parentName = controllerNameIfMatches(*ref, capi.IsSetReference)
	}
	return f
}

// enqueueClusterAPISets enqueues the sets for which affected returns true.
func (b *Bridge) enqueueClusterAPISets(affected func(*clusterv1.MachineSet) bool, w signalRequest) {
	sets := slices.DeleteFunc(b.clusterAPICache.MachineSets(), func(s *clusterv1.MachineSet) bool { return !affected(s) })
	enqueueObjects(b, run.KindClusterAPISet, sets, w, 0)
}

// enqueueClusterAPIDrain enqueues the drain of a machine's node. If the drain has ended or may start now,
// enqueueClusterAPIDrain also enqueues the next drains in the queue.
func (b *Bridge) enqueueClusterAPIDrain(e event, m *clusterv1.Machine, c fingerprintChange) {
	k, w := objectKey{run.KindClusterAPIDrain, m.Namespace, m.Name}, e.toSignalRequest()
	switch {
	case e.isDeleted && capidrain.HasDrainHook(m):
		w.deletedObjects = []deletedObject{
			{uid: string(m.UID), workflowIDs: []string{b.shard.Installation.ID(k.kind, objectRef(m))}},
		}
		b.enqueue(k, w, 0)
	case c.specChanged && capidrain.HasDrainHook(m) && isDeleting(m):
		b.enqueue(k, w, 0)
	}
	if c.drainChanged {
		b.enqueueNextClusterAPIDrains(m.Namespace, m.Spec.ClusterName, e.toSignalRequest())
	}
}

// enqueueNextClusterAPIDrains enqueues the machines of a Cluster that are next to be drained; see enqueueNextDrains.
func (b *Bridge) enqueueNextClusterAPIDrains(namespace, cluster string, w signalRequest) {
	for _, next := range drain.NextQueuedMachines(capidrain.QueueEntries(b.clusterAPICache, namespace, cluster), machinesPerDrainEvent) {
		b.enqueue(objectKey{run.KindClusterAPIDrain, next.Namespace, next.Name}, w, 0)
	}
}

// enqueueNextDrainsOfAllClusters calls enqueueNextClusterAPIDrains for all Clusters.
func (b *Bridge) enqueueNextDrainsOfAllClusters() {
	if b.clusterAPICache == nil {
		return
	}
	woken := map[string]bool{}
	for _, m := range capidrain.MachinesWithDrainHook(b.clusterAPICache, isClusterAPIMachineDeleting) {
		if of := m.Namespace + "/" + m.Spec.ClusterName; !woken[of] {
			woken[of] = true
			b.enqueueNextClusterAPIDrains(m.Namespace, m.Spec.ClusterName, signalRequest{})
		}
	}
}

func isClusterAPIMachineDeleting(m *clusterv1.Machine) bool { return isDeleting(m) }

// clusterAPIDrainSubject returns the subject for the drain of a machine's node.
func (b *Bridge) clusterAPIDrainSubject(m *clusterv1.Machine) subject {
	var pending attention.Decision
	switch {
	case !capidrain.HasDrainHook(m):
		pending.Why = "the machine has no hook of Millwright"
	case !isDeleting(m):
		pending.Why = "the machine is not being deleted"
	default:
		pending = attention.Decision{
			Need: attention.NeedDrain,
			Why:  "the machine is being deleted, and has Millwright's hook",
		}
	}
	s := newSubject(capi.MachinesResource, m, pending)
	s.parentNames = run.ParentNames{
		Cluster:           m.Spec.ClusterName,
		Machine:           m.Name,
		MachineSet:        controllerName(m),
		MachineDeployment: m.Labels[clusterv1.MachineDeploymentNameLabel],
	}
	return s
}

// clusterAPISetSubject returns the subject for a set of Cluster API. The subject's versions include the versions of the
// machines and of all other objects that the decision reads. If one of these objects cannot be read, the set counts as
// having pending work, and the set's workflow reports the reason.
func (b *Bridge) clusterAPISetSubject(ctx context.Context, set *clusterv1.MachineSet) subject {
	if !b.clusterAPICache.IsReconciledByMillwright(set) {
		return newSubject(
			capi.SetsResource,
			set,
			attention.Decision{Need: attention.NeedScaling, Why: capi.HandedOverMessage},
		)
	}
	if capiset.MayBeChangedByUpstream(set) {
		return newSubject(
			capi.SetsResource,
			set,
			attention.Decision{Need: attention.NeedScaling, Why: capi.UpstreamMessage},
		)
	}
	related, err := b.clusterAPICache.ReadRelatedObjects(ctx, set)
	if err != nil {
		return newSubject(
			capi.SetsResource,
			set,
			attention.Decision{Need: attention.NeedScaling, Why: fmt.Sprintf("what it refers to cannot be read: %v", err)},
		)
	}
	observed := capiset.ScaleFacts(b.clusterAPICache, set, related, time.Now(), 0)
	plan := capiset.ExplainPlan(set, related, observed, scale.PlanSet(observed))
	s := newSubject(capi.SetsResource, set, pendingWorkOrStatusWrite(plan.PendingWork, plan.IsShownInStatus))
	for resource, version := range related.ResourceVersions() {
		s.versions.RaiseVersion(resource, version)
	}
	s.parentNames = run.ParentNames{
		Cluster:           set.Spec.ClusterName,
		MachineSet:        set.Name,
		MachineDeployment: controllerName(set),
	}
	return s
}
