package deployment

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
)

// maxNameAttempts is the largest number of names that are tried for a new set. Source: a name ends in a hash of five
// digits, so the second name is nearly always free.
const maxNameAttempts = 5

// CreateClusterAPISet creates the set for the deployment's current template, and writes the set's revision to the
// deployment. If the templates or the Cluster do not exist, the activity fails with a Conflict. The activity is
// idempotent: the set's name is derived from the template and the revision. The result contains the resource versions
// of the written objects.
func (a *Activities) CreateClusterAPISet(ctx context.Context, in activities.SetCreation) (kube.MinVersions, error) {
	d, err := a.clusterAPIKindAdapter().ReadDeploymentAtVersion(ctx, in.Deployment, in.Version)
	if err != nil {
		return nil, err
	}
	tree, err := deployment.ReadLiveTree(ctx, a.Cache, d)
	if err != nil {
		return nil, err
	}
	now := kube.NewServerClock(ctx).Now()
	if deployment.RolloutFacts(tree, now).CreationProblem.Reason != "" || d.DeletionTimestamp != nil {
		return nil, kube.ConflictError(in.Deployment) // a template or the Cluster was deleted since the decision
	}
	set, created, err := a.createSet(ctx, tree, in.SetCreation, now)
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		a.Kube.Recorder.Event(
			d,
			corev1.EventTypeWarning,
			v1alpha1.ReasonFailedCreate,
			"Failed to create MachineSet: "+kube.ShortenMessage(err.Error()),
		)
	case created:
		a.Kube.Recorder.Eventf(
			d,
			corev1.EventTypeNormal,
			vocabulary.ReasonSuccessfulCreate,
			"Created MachineSet %s with %d replicas",
			set.Name,
			capi.ValueOrZero(set.Spec.Replicas),
		)
	}
	if err != nil {
		return nil, kube.ClassifyWriteError(
			ctx,
			in.Deployment,
			fmt.Errorf("create machineset of deployment %s: %w", d.Name, err),
		)
	}
	versions := kube.MinVersions{capi.SetsResource: set.ResourceVersion}
	return versions, a.clusterAPIKindAdapter().WriteRevision(ctx, in.Deployment, d, set, versions)
}

// createSet creates the set under the first name that no other object has. If an earlier attempt created the set,
// createSet returns the existing set.
func (a *Activities) createSet(
	ctx context.Context,
	f deployment.ObjectTree,
	as rollout.SetCreation,
	now time.Time,
) (set *clusterv1.MachineSet, created bool, err error) {
	sets := a.Cache.Client().MachineSets(f.Deployment.Namespace)
	for attempt := range maxNameAttempts {
		wanted, err := f.NewSet(as, attempt, now)
		if err != nil {
			return nil, false, err
		}
		set, err = sets.Create(ctx, wanted, metav1.CreateOptions{FieldManager: capi.DeploymentFieldManager})
		if !apierrors.IsAlreadyExists(err) {
			return set, err == nil, err
		}
		set, err = sets.Get(ctx, wanted.Name, metav1.GetOptions{})
		if err != nil || f.IsWantedSet(set, as) {
			return set, false, err
		}
	}
	return nil, false, fmt.Errorf("%d names are taken by other objects", maxNameAttempts)
}

// patchAnnotations patches the annotations of a deployment; the value nil removes an annotation. A deployment that
// changed since it was read causes a conflict. patchAnnotations returns the API server's error unchanged.
func (a *Activities) patchAnnotations(
	ctx context.Context,
	d *clusterv1.MachineDeployment,
	annotations map[string]any,
) (*clusterv1.MachineDeployment, error) {
	client := deploymentClient{a.Cache.Client().Deployments(d.Namespace)}
	return kube.PatchObject(ctx, client, d, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// fieldManagerClient writes with the field manager of deployments.
type fieldManagerClient[T, L any] struct{ capi.TypedClient[T, L] }

// Patch patches an object.
func (m fieldManagerClient[T, L]) Patch(
	ctx context.Context,
	name string,
	kind types.PatchType,
	data []byte,
	o metav1.PatchOptions,
	subresources ...string,
) (T, error) {
	client := kube.WithFieldManager(m.TypedClient, capi.DeploymentFieldManager)
	return client.Patch(ctx, name, kind, data, o, subresources...)
}

// ChangeClusterAPISets changes and deletes sets. See KindAdapter.ChangeSets.
func (a *Activities) ChangeClusterAPISets(ctx context.Context, in activities.SetChanges) (kube.MinVersions, error) {
	return a.clusterAPIKindAdapter().ChangeSets(ctx, in)
}

type (
	deploymentClient = fieldManagerClient[*clusterv1.MachineDeployment, *clusterv1.MachineDeploymentList]
	machineSetClient = fieldManagerClient[*clusterv1.MachineSet, *clusterv1.MachineSetList]
)

// clusterAPIKindAdapter returns the KindAdapter of Cluster API: the functions that differ between MCM's kinds and the
// kinds of Cluster API.
func (a *Activities) clusterAPIKindAdapter() activities.KindAdapter[*clusterv1.MachineDeployment, *clusterv1.MachineSet] {
	return activities.KindAdapter[*clusterv1.MachineDeployment, *clusterv1.MachineSet]{
		Kube: a.Kube,
		DeploymentsClient: func(namespace string) activities.Client[*clusterv1.MachineDeployment] {
			return deploymentClient{a.Cache.Client().Deployments(namespace)}
		},
		SetsClient: func(namespace string) activities.Client[*clusterv1.MachineSet] {
			return machineSetClient{a.Cache.Client().MachineSets(namespace)}
		},
		DeploymentKind:   "machinedeployment",
		Resources:        [2]kube.Resource{capi.DeploymentsResource, capi.SetsResource},
		CachedDeployment: a.Cache.Deployment,
		IsManaged:        func(d *clusterv1.MachineDeployment) bool { return a.Cache.IsReconciledByMillwright(d) },
		SelectsSet:       deployment.SelectsSet,
		IsSetAdoptable: func(set *clusterv1.MachineSet, _ *clusterv1.MachineDeployment) bool {
			return metav1.GetControllerOf(set) == nil
		},
		SetController: func(set *clusterv1.MachineSet, d *clusterv1.MachineDeployment) {
			owner := *metav1.NewControllerRef(d, clusterv1.GroupVersion.WithKind("MachineDeployment"))
			set.OwnerReferences = capi.WithOwner(set.OwnerReferences, owner)
		},
		Replicas: func(set *clusterv1.MachineSet) int { return int(capi.ValueOrZero(set.Spec.Replicas)) },
		ScaleUpPatch: func(allow bool) map[string]any {
			forbidden := activities.NilIf(allow, v1alpha1.ValueLowerTrue)
			return map[string]any{"annotations": map[string]any{clusterv1.DisableMachineCreateAnnotation: forbidden}}
		},
		ResizeAnnotations: func(r rollout.SetResize, actedOn int) map[string]any {
			annotations := deployment.TransferPatch(r.Transfer)
			annotations[clusterv1.DesiredReplicasAnnotation] = strconv.Itoa(r.Desired)
			annotations[clusterv1.MaxReplicasAnnotation] = strconv.Itoa(r.Max)
			annotations[v1alpha1.AnnotationFormerReplicas] = strconv.Itoa(actedOn)
			return annotations
		},
		LastHandledReplicas: deployment.LastHandledReplicas,
		ResizeEvent: func(r rollout.SetResize) (reason, message string) {
			return vocabulary.ReasonSuccessfulScale,
				fmt.Sprintf("Scaled %s MachineSet %s: %d -> %d", activities.ResizeDirection(r), r.Name, r.From, r.To)
		},
		DeletionEvent: func(name string) (reason, message string) {
			return vocabulary.ReasonSuccessfulDelete, fmt.Sprintf("Deleted MachineSet %q", name)
		},
		CopyDeploymentFields: a.copyDeploymentFieldsToSet,
		RevisionKey:          clusterv1.RevisionAnnotation, RevisionHistoryKey: deployment.AnnotationRevisionHistory,
		RollbackFuncs: activities.RollbackFuncs[*clusterv1.MachineDeployment, *clusterv1.MachineSet]{
			IsRollbackRequested: func(d *clusterv1.MachineDeployment) bool {
				_, asked := d.Annotations[v1alpha1.AnnotationRollbackTo]
				return asked
			},
			RemoveRollbackRequest: func(d *clusterv1.MachineDeployment) { delete(d.Annotations, v1alpha1.AnnotationRollbackTo) },
			ReadFormerSet:         a.readFormerSet,
			HaveSameTemplate: func(d *clusterv1.MachineDeployment, set *clusterv1.MachineSet) bool {
				return deployment.IsSameTemplate(&set.Spec.Template, &d.Spec.Template)
			},
			RestoreTemplate: deployment.RestoreTemplateFromSet,
		},
	}
}

// copyDeploymentFieldsToSet copies the deployment's fields that change without a rollout to a current or former set.
func (a *Activities) copyDeploymentFieldsToSet(
	ctx context.Context, d *clusterv1.MachineDeployment, set *clusterv1.MachineSet, now time.Time,
) (changed, isCurrent bool, err error) {
	tree, err := deployment.ReadLiveTreeWithoutMachines(ctx, a.Cache, d)
	if err != nil {
		return false, false, err
	}
	current, actedOn := tree.CurrentSet(now), deployment.LastHandledReplicas(set)
	isCurrent = current != nil && current.UID == set.UID
	changed = tree.CopyDeploymentFields(set, isCurrent)
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationFormerReplicas, strconv.Itoa(actedOn))
	return changed, isCurrent, nil
}
