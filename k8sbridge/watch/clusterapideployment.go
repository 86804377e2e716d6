package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	observecache "millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
	"millwright/workflows/run"
)

// handleClusterAPIDeployment enqueues a deployment of Cluster API, and its sets if a field changed that they read.
func (b *Bridge) handleClusterAPIDeployment(e event, d *clusterv1.MachineDeployment) {
	if b.handleOwned(e, run.KindClusterAPIDeployment, "", deploymentOfClusterAPI(d)).children {
		b.enqueueClusterAPISets(func(s *clusterv1.MachineSet) bool {
			return s.Namespace == d.Namespace && s.Labels[clusterv1.MachineDeploymentNameLabel] == d.Name
		}, e.wake())
	}
}

// handleClusterAPISet enqueues a set of Cluster API, and the deployments that its change affects.
func (b *Bridge) handleClusterAPISet(e event, s *clusterv1.MachineSet) {
	c := b.handleOwned(e, run.KindClusterAPISet, run.KindClusterAPIDeployment, setOfClusterAPI(s))
	if c.orphan && (c.added || c.parentNow) { // deployments that may adopt it, and the deployment that released it
		b.enqueueClusterAPIDeployments(func(d *clusterv1.MachineDeployment) bool {
			return d.Namespace == s.Namespace &&
				(deployment.Selects(d, s) || s.Annotations[v1alpha1.AnnotationReleasedBy] == string(d.UID))
		}, e.wake())
	}
}

// deploymentOfClusterAPI returns the fingerprints of a deployment of Cluster API. Its sets read its size, its budget
// for remediations, its revision, and whether Millwright drains.
func deploymentOfClusterAPI(d *clusterv1.MachineDeployment) fingerprints {
	return fingerprints{
		spec: hash(
			d.UID,
			d.Generation,
			deleting(d),
			observecache.IsOrphaning(d),
			notOfDeployment(d),
			metav1.GetControllerOf(d),
			has(d, clusterv1.MachineDeploymentFinalizer),
		),
		children: hash(
			d.UID,
			d.Spec.Remediation,
			d.Spec.Replicas,
			d.Annotations[clusterv1.RevisionAnnotation],
			d.Annotations[v1alpha1.AnnotationClusterAPIDrain],
		),
		guarded: has(d, capi.Finalizer),
	}
}

// setOfClusterAPI returns the fingerprints of a set of Cluster API. A condition that changes nothing but its time does
// not signal the set's deployment.
func setOfClusterAPI(s *clusterv1.MachineSet) fingerprints {
	status, spec := s.Status, s.Spec.DeepCopy()
	spec.Replicas = nil // its deployment wrote the size, or sees it in the status that follows
	var said []any
	for _, c := range status.Conditions {
		said = append(said, c.Type, c.Status, c.Reason, c.Message)
	}
	f := fingerprints{
		spec: hash(
			s.UID,
			s.Generation,
			deleting(s),
			observecache.IsOrphaning(s),
			foreign(s),
			metav1.GetControllerOf(s),
			has(s, clusterv1.MachineSetFinalizer),
		),
		guarded: has(s, capi.Finalizer),

		parentNow: hash(s.UID, spec, deleting(s), notOfDeployment(s), metav1.GetControllerOf(s), s.Finalizers),
		parentDebounced: hash(
			said,
			status.ObservedGeneration,
			status.Replicas,
			status.ReadyReplicas,
			status.AvailableReplicas,
			status.UpToDateReplicas,
		),
	}
	if ref := metav1.GetControllerOf(s); ref != nil {
		f.parent = controllerOf(*ref, capi.IsDeployment)
	}
	return f
}

// controllerOf returns the controller's name if is(ref) is true. Otherwise it returns a name that no object can have:
// an empty name would make the object an orphan.
func controllerOf(ref metav1.OwnerReference, is func(metav1.OwnerReference) bool) string {
	if is(ref) {
		return ref.Name
	}
	return "another controller" // no name of an object has a space
}

// has reports whether an object has a finalizer.
func has(o metav1.Object, finalizer string) bool {
	return slices.Contains(o.GetFinalizers(), finalizer)
}

// clusterAPIDeploymentOf returns the name of the deployment that controls the set with this key; empty: none. The
// deployment need not be one that Millwright reconciles.
func (b *Bridge) clusterAPIDeploymentOf(set string) string {
	item, found, err := b.cluster.Informer(capi.SetsResource).GetStore().GetByKey(set)
	if err != nil || !found {
		return ""
	}
	ref := metav1.GetControllerOf(item.(*clusterv1.MachineSet))
	if ref == nil || !capi.IsDeployment(*ref) {
		return ""
	}
	return ref.Name
}

// notOfDeployment returns the labels and annotations that neither Millwright nor a deployment's controller writes.
func notOfDeployment(o metav1.Object) [2]map[string]string {
	all := foreign(o)
	maps.DeleteFunc(all[1], func(key, _ string) bool {
		return strings.HasPrefix(key, ofDeployment) || strings.HasPrefix(key, ofTransfers)
	})
	return all
}

// Prefixes of the annotations that the controller of a deployment of Cluster API writes on the deployment and its sets.
var (
	ofDeployment = strings.TrimSuffix(clusterv1.RevisionAnnotation, "revision")
	ofTransfers  = strings.TrimSuffix(clusterv1.AcknowledgedMoveAnnotation, "acknowledged-move")
)

// enqueueClusterAPIDeployments enqueues the deployments for which affected returns true.
func (b *Bridge) enqueueClusterAPIDeployments(affected func(*clusterv1.MachineDeployment) bool, w wake) {
	deployments := slices.DeleteFunc(
		b.api.Deployments(),
		func(d *clusterv1.MachineDeployment) bool { return !affected(d) },
	)
	enqueueAll(b, run.KindClusterAPIDeployment, deployments, w, 0)
}

// clusterAPIDeployment returns the subject of a deployment of Cluster API. Its versions include those of its sets,
// machines and templates. If a template cannot be read, the deployment counts as not calm, and its workflow reports
// why.
func (b *Bridge) clusterAPIDeployment(ctx context.Context, d *clusterv1.MachineDeployment) subject {
	if !b.api.Ours(d) {
		return describe(capi.DeploymentsResource, d, attention.Decision{Need: attention.Scale, Why: capi.HandedOver})
	}
	now := time.Now()
	tree, err := deployment.Read(ctx, b.api, d)
	if err != nil {
		return describe(
			capi.DeploymentsResource,
			d,
			attention.Decision{Need: attention.Scale, Why: fmt.Sprintf("what it refers to cannot be read: %v", err)},
		)
	}
	observed := deployment.Observed(tree, now)
	plan := rollout.Plan(observed)
	said := deployment.Said(tree, deployment.Explained(tree, plan, now).Blocked(now))
	pending := unlessSaid(plan.Pending, said)
	if pending.Calm() && deployment.Unprepared(tree, observed) {
		pending = attention.Decision{Need: attention.Scale, Why: deployment.NotPrepared}
	}
	s := describe(capi.DeploymentsResource, d, pending)
	for resource, version := range tree.Versions() {
		s.versions.Raise(resource, version)
	}
	s.owner = run.Owner{MachineDeployment: d.Name}
	s.rollout = deployment.Named(d)
	return s
}
