package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	observecache "millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
	capiset "millwright/observe/capi/set"
	"millwright/workflows/run"
)

// handleClusterAPIDeployment enqueues a deployment of Cluster API. handleClusterAPIDeployment also enqueues the sets
// if a field that they read changed.
func (b *Bridge) handleClusterAPIDeployment(e event, d *clusterv1.MachineDeployment) {
	c := b.handleOwnedObject(e, run.KindClusterAPIDeployment, "", clusterAPIDeploymentFingerprints(d))
	enqueueNextTurns(b, e, c, run.KindClusterAPIDeployment, b.clusterAPICache.DeploymentsOfNamespace(d.Namespace))
	if c.childrenChanged {
		b.enqueueClusterAPISets(func(s *clusterv1.MachineSet) bool {
			return s.Namespace == d.Namespace && s.Labels[clusterv1.MachineDeploymentNameLabel] == d.Name
		}, e.toSignalRequest())
	}
}

// handleClusterAPISet enqueues a set of Cluster API, and the deployments affected by the set's change.
func (b *Bridge) handleClusterAPISet(e event, s *clusterv1.MachineSet) {
	c := b.handleOwnedObject(e, run.KindClusterAPISet, run.KindClusterAPIDeployment, clusterAPISetFingerprints(s))
	// enqueue the possible adopters, and the deployment that released the set
	if c.orphanChanged && (c.isNew || c.enqueuesParentsNow) {
		b.enqueueClusterAPIDeployments(func(d *clusterv1.MachineDeployment) bool {
			return d.Namespace == s.Namespace &&
				(deployment.SelectsSet(d, s) || s.Annotations[v1alpha1.AnnotationReleasedBy] == string(d.UID))
		}, e.toSignalRequest())
	}
}

// clusterAPIDeploymentFingerprints returns the fingerprints of a Cluster API deployment. The deployment's sets read
// its size, its remediation budget, its revision, whether its rollout stands still, and whether Millwright drains. Its
// labels select its RolloutPolicy.
func clusterAPIDeploymentFingerprints(d *clusterv1.MachineDeployment) fingerprints {
	return fingerprints{
		specHash: hashParts(
			d.UID,
			d.Generation,
			isDeleting(d),
			observecache.IsOrphaning(d),
			nonDeploymentMetadata(d),
			metav1.GetControllerOf(d),
			hasFinalizer(d, clusterv1.MachineDeploymentFinalizer),
			capi.MayBeChangedByUpstream(d, clusterv1.MachineDeploymentFinalizer),
		),
		childrenHash: hashParts(
			d.UID,
			d.Spec.Remediation,
			d.Spec.Replicas,
			d.Annotations[clusterv1.RevisionAnnotation],
			d.Annotations[v1alpha1.AnnotationClusterAPIDrain],
			d.Labels,
			capiset.DoesRolloutStandStill(d),
		),
		turnHash: turnHash(
			deployment.RecordedRollout(d),
			meta.IsStatusConditionFalse(d.Status.Conditions, vocabulary.ConditionProgressing),
		),
		hasFinalizer: hasFinalizer(d, capi.Finalizer),
	}
}

// clusterAPISetFingerprints returns the fingerprints of a Cluster API set. If only the time of a condition changes,
// the set's deployment is not signaled.
func clusterAPISetFingerprints(s *clusterv1.MachineSet) fingerprints {
	status, spec := s.Status, s.Spec.DeepCopy()
	spec.Replicas = nil // no signal for a new size: the deployment wrote it, or reads it in the set's next status
	var said []any
	for _, c := range status.Conditions {
		said = append(said, c.Type, c.Status, c.Reason, c.Message)
	}
	f := fingerprints{
		specHash: hashParts(
			s.UID,
			s.Generation,
			isDeleting(s),
			observecache.IsOrphaning(s),
			foreignMetadata(s),
			metav1.GetControllerOf(s),
			hasFinalizer(s, clusterv1.MachineSetFinalizer),
			capiset.MayBeChangedByUpstream(s),
		),
		hasFinalizer: hasFinalizer(s, capi.Finalizer),

		immediateParentHash: hashParts(
			s.UID,
			spec,
			isDeleting(s),
			nonDeploymentMetadata(s),
			metav1.GetControllerOf(s),
			s.Finalizers,
		),
		debouncedParentHash: hashParts(
			said,
			status.ObservedGeneration,
			status.Replicas,
			status.ReadyReplicas,
			status.AvailableReplicas,
			status.UpToDateReplicas,
		),
	}
	if ref := metav1.GetControllerOf(s); ref != nil {
		f.parentName = controllerNameIfMatches(*ref, capi.IsDeploymentReference)
	}
	return f
}

// controllerNameIfMatches returns the controller's name if is(ref) is true. If is(ref) is false,
// controllerNameIfMatches returns an impossible name, because an empty name would make the object an orphan.
func controllerNameIfMatches(ref metav1.OwnerReference, is func(metav1.OwnerReference) bool) string {
	if is(ref) {
		return ref.Name
	}
	return "another controller" // object names contain no spaces
}

func hasFinalizer(o metav1.Object, finalizer string) bool {
	return slices.Contains(o.GetFinalizers(), finalizer)
}

// clusterAPIDeploymentOfSet returns the name of the deployment that controls the set with this key, or "" if there is
// none. The deployment is returned even if Millwright does not reconcile it.
func (b *Bridge) clusterAPIDeploymentOfSet(set string) string {
	item, found, err := b.cluster.Informer(capi.SetsResource).GetStore().GetByKey(set)
	if err != nil || !found {
		return ""
	}
	ref := metav1.GetControllerOf(item.(*clusterv1.MachineSet))
	if ref == nil || !capi.IsDeploymentReference(*ref) {
		return ""
	}
	return ref.Name
}

// nonDeploymentMetadata returns the labels and annotations that neither Millwright nor a deployment's controller
// writes.
func nonDeploymentMetadata(o metav1.Object) [2]map[string]string {
	all := foreignMetadata(o)
	maps.DeleteFunc(all[1], func(key, _ string) bool {
		return strings.HasPrefix(key, deploymentAnnotationPrefix) || strings.HasPrefix(key, moveAnnotationPrefix)
	})
	return all
}

// Prefixes of the annotations that Cluster API's deployment controller writes on a deployment and its sets.
var (
	deploymentAnnotationPrefix = strings.TrimSuffix(clusterv1.RevisionAnnotation, "revision")
	moveAnnotationPrefix       = strings.TrimSuffix(clusterv1.AcknowledgedMoveAnnotation, "acknowledged-move")
)

// enqueueClusterAPIDeployments enqueues the deployments for which affected returns true.
func (b *Bridge) enqueueClusterAPIDeployments(affected func(*clusterv1.MachineDeployment) bool, w signalRequest) {
	deployments := slices.DeleteFunc(
		b.clusterAPICache.Deployments(),
		func(d *clusterv1.MachineDeployment) bool { return !affected(d) },
	)
	enqueueObjects(b, run.KindClusterAPIDeployment, deployments, w, 0)
}

// clusterAPIDeploymentSubject returns the subject for a deployment of Cluster API. The subject's versions include the
// versions of the deployment's sets, machines and templates. If a template cannot be read, the deployment counts as
// having pending work, and the deployment's workflow reports the reason.
func (b *Bridge) clusterAPIDeploymentSubject(ctx context.Context, d *clusterv1.MachineDeployment) subject {
	if !b.clusterAPICache.IsReconciledByMillwright(d) {
		return newSubject(
			capi.DeploymentsResource,
			d,
			attention.Decision{Need: attention.NeedScaling, Why: capi.HandedOverMessage},
		)
	}
	now := time.Now()
	tree, err := deployment.ReadTree(ctx, b.clusterAPICache, d)
	if err != nil {
		return newSubject(
			capi.DeploymentsResource,
			d,
			attention.Decision{Need: attention.NeedScaling, Why: fmt.Sprintf("what it refers to cannot be read: %v", err)},
		)
	}
	if tree.MayBeChangedByUpstream() {
		return newSubject(
			capi.DeploymentsResource,
			d,
			attention.Decision{Need: attention.NeedScaling, Why: capi.UpstreamMessage},
		)
	}
	observed := deployment.RolloutFacts(tree, now)
	plan := rollout.PlanDeployment(observed)
	said := deployment.StatusShowsBlockers(tree, deployment.ExplanationFacts(tree, plan, now).BlockedSummary(now))
	pending := pendingWorkOrStatusWrite(plan.PendingWork, said)
	if pending.NeedsNothing() && deployment.NeedsPreparation(tree, observed) {
		pending = attention.Decision{Need: attention.NeedScaling, Why: deployment.NotPreparedMessage}
	}
	s := newSubject(capi.DeploymentsResource, d, pending)
	for resource, version := range tree.ResourceVersions() {
		s.versions.RaiseVersion(resource, version)
	}
	s.parentNames = run.ParentNames{Cluster: d.Spec.ClusterName, MachineDeployment: d.Name}
	s.openRolloutID = deployment.CurrentRolloutID(d)
	return s
}
