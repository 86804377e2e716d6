package deployment

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
)

// RollBackClusterAPIDeployment puts the template of a former set back into the deployment, and removes the annotation
// that asked for it, all in one write; see deployment.ReturnTo of observe. Without a set it only removes the
// annotation. It records an event. A deployment that changed since the decision is a Conflict, and so is a set that is
// gone or being deleted, or whose templates do not exist. It returns the version to wait for. Running it twice writes
// once.
func (a *Activities) RollBackClusterAPIDeployment(
	ctx context.Context,
	in activities.RollBack,
) (kube.MinVersions, error) {
	d, err := kube.LiveAt(ctx, a.deployments(in.Deployment), "machinedeployment", in.Deployment, "")
	if err != nil {
		return nil, err
	}
	set, err := a.former(ctx, in)
	if err != nil {
		return nil, err
	}
	switch {
	case returned(d, set, in):
		return kube.MinVersions{capi.DeploymentsResource: d.ResourceVersion}, nil
	case d.ResourceVersion != in.Version, d.DeletionTimestamp != nil, !a.API.Ours(d):
		return nil, kube.Conflict(in.Deployment)
	}
	if set != nil {
		deployment.ReturnTo(d, set, in.Rollback.Automatic, kube.ServerClock(ctx).Now())
	}
	delete(d.Annotations, v1alpha1.AnnotationRollbackTo)
	d, err = a.deployments(in.Deployment).Update(ctx, d, metav1.UpdateOptions{FieldManager: capi.DeploymentFieldManager})
	if err != nil {
		return nil, kube.WriteError(ctx, in.Deployment, err)
	}
	kind := corev1.EventTypeWarning
	if in.Rollback.Reason == vocabulary.ReasonDeploymentRollback {
		kind = corev1.EventTypeNormal
	}
	a.Kube.Recorder.Event(d, kind, in.Rollback.Reason, in.Rollback.Why)
	return kube.MinVersions{capi.DeploymentsResource: d.ResourceVersion}, nil
}

// former reads the set whose template is to return, and its templates; nil if the rollback names none. The set may have
// any version: its status changes often, its template does not.
func (a *Activities) former(ctx context.Context, in activities.RollBack) (*clusterv1.MachineSet, error) {
	former := in.Rollback.Set
	if former == nil {
		return nil, nil
	}
	ref := kube.Ref{Namespace: in.Deployment.Namespace, Name: former.Name, UID: former.UID}
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

// returned reports whether a rollback is done already: nobody asks for one any more, and the template is that of the
// set.
func returned(d *clusterv1.MachineDeployment, set *clusterv1.MachineSet, in activities.RollBack) bool {
	_, asked := d.Annotations[v1alpha1.AnnotationRollbackTo]
	same := set == nil && !in.Rollback.Automatic ||
		set != nil && deployment.SameTemplate(&set.Spec.Template, &d.Spec.Template)
	return same && !asked
}
