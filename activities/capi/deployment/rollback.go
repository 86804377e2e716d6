package deployment

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/observe/capi/deployment"
)

// RollBackClusterAPIDeployment copies the template of a former set back to the deployment, and removes the annotation
// that requested the rollback. A former set that is gone, is being deleted or lacks templates causes a Conflict. See
// KindAdapter.RollBackDeployment, and deployment.RestoreTemplateFromSet in observe/capi.
func (a *Activities) RollBackClusterAPIDeployment(
	ctx context.Context,
	in activities.RollbackInput,
) (kube.MinVersions, error) {
	return a.clusterAPIKindAdapter().RollBackDeployment(ctx, in)
}

// readFormerSet reads the former set of a rollback, and checks that the set's templates exist.
func (a *Activities) readFormerSet(ctx context.Context, ref kube.Ref) (*clusterv1.MachineSet, error) {
	set, err := kube.ReadLive(ctx, a.Cache.Client().MachineSets(ref.Namespace), "machineset", ref)
	if err != nil {
		return nil, err
	}
	if set == nil || set.DeletionTimestamp != nil {
		return nil, kube.ConflictError(ref)
	}
	templates, err := a.Cache.LiveTemplates(ctx, ref.Namespace, &set.Spec.Template.Spec)
	if err != nil {
		return nil, err
	}
	if deployment.MissingTemplateText(ref.Namespace, templates) != "" {
		return nil, kube.ConflictError(ref) // the next decision reports the missing templates
	}
	return set, nil
}
