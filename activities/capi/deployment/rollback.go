package deployment

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/observe/capi/deployment"
)

// RollBackClusterAPIDeployment puts the template of a former set back into the deployment, and removes the annotation
// that asked for it: see Family.RollBack, and deployment.ReturnTo of observe. A set that is gone or being deleted, or
// whose templates do not exist, is a Conflict.
func (a *Activities) RollBackClusterAPIDeployment(
	ctx context.Context,
	in activities.RollBack,
) (kube.MinVersions, error) {
	return a.table().RollBack(ctx, in)
}

// former reads the set whose template is to return, and its templates.
func (a *Activities) former(ctx context.Context, ref kube.Ref) (*clusterv1.MachineSet, error) {
	set, err := kube.Live(ctx, a.API.Client().Sets(ref.Namespace), "machineset", ref)
	if err != nil {
		return nil, err
	}
	if set == nil || set.DeletionTimestamp != nil {
		return nil, kube.Conflict(ref)
	}
	templates, err := a.API.TemplatesLive(ctx, ref.Namespace, &set.Spec.Template.Spec)
	if err != nil {
		return nil, err
	}
	if deployment.Lacking(ref.Namespace, templates) != "" {
		return nil, kube.Conflict(ref) // the next decision says so
	}
	return set, nil
}
