package deployment

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	observeset "millwright/observe/set"
)

// RollBack asks for the template of a former set.
type RollBack struct {
	Deployment kube.Ref
	// resourceVersion of the deployment that the decision saw: a later change of it may want something else
	Version  string
	Rollback rollout.Rollback
}

// RollBackDeployment puts the template of a former set back into the deployment, with its annotations, and clears
// spec.rollbackTo, all in one write; see deployment.ReturnTo of observe. Without a set it only clears. It records an
// event. A deployment that changed since the decision is a Conflict, and so is a set that is gone or being deleted. It
// returns the version to wait for. Running it twice writes once.
func (a *Activities) RollBackDeployment(ctx context.Context, in RollBack) (kube.MinVersions, error) {
	d, err := kube.LiveAt(ctx, a.Kube.Deployments(in.Deployment.Namespace), "deployment", in.Deployment, "")
	if err != nil {
		return nil, err
	}
	var set *v1alpha1.MachineSet
	if former := in.Rollback.Set; former != nil { // in any version: its status changes often, its template does not
		if set, err = a.setThatStays(ctx, kube.Ref{Namespace: d.Namespace, Name: former.Name, UID: former.UID}); err != nil {
			return nil, err
		}
	}
	switch {
	case returned(d, set, in.Rollback):
		return kube.MinVersions{cache.Deployments: d.ResourceVersion}, nil
	case d.ResourceVersion != in.Version, d.DeletionTimestamp != nil:
		return nil, kube.Conflict(in.Deployment)
	}
	if set != nil {
		deployment.ReturnTo(d, set, in.Rollback.Automatic)
	}
	d.Spec.RollbackTo = nil
	d, err = a.Kube.Deployments(in.Deployment.Namespace).Update(ctx, d, metav1.UpdateOptions{})
	if err != nil {
		return nil, kube.WriteError(ctx, in.Deployment, err)
	}
	kind := corev1.EventTypeWarning
	if in.Rollback.Reason == vocabulary.ReasonDeploymentRollback {
		kind = corev1.EventTypeNormal
	}
	a.Kube.Recorder.Event(d, kind, in.Rollback.Reason, in.Rollback.Why)
	return kube.MinVersions{cache.Deployments: d.ResourceVersion}, nil
}

// returned reports whether a rollback is done already: spec.rollbackTo is empty, and the template is that of the set.
func returned(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet, back rollout.Rollback) bool {
	same := set == nil && !back.Automatic || set != nil && observeset.SameTemplate(&set.Spec.Template, &d.Spec.Template)
	return same && d.Spec.RollbackTo == nil
}
