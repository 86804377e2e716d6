package activities

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe"
)

// RollBack asks for the template of a former set.
type RollBack struct {
	Deployment Ref
	Version    string // resourceVersion of the deployment that the decision saw: whoever changes it since may want something else
	Rollback   rollout.Rollback
}

// reasonRolledBack is the reason of the event that a rollback was done; with another one there was nothing to return to. Source: MCM.
const reasonRolledBack = "DeploymentRollback"

// RollBackDeployment puts the template of a former set back into the deployment, with the annotations that go with it, and clears
// spec.rollbackTo, all in one write; see observe.ReturnTo. Where there is no set to return to, it only clears. An event tells of
// it. A deployment that is not as the decision saw it is a Conflict, and so is a set that is gone or going. It returns the version to
// wait for. Running it twice writes once.
func (a *Activities) RollBackDeployment(ctx context.Context, in RollBack) (Gate, error) {
	d, err := a.liveDeployment(ctx, in.Deployment)
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		return nil, objectGone(in.Deployment)
	}
	var set *v1alpha1.MachineSet
	if in.Rollback.Set != nil {
		if set, err = a.formerSet(ctx, in); err != nil {
			return nil, err
		}
	}
	switch {
	case returned(d, set, in.Rollback):
		return Gate{observe.Deployments: d.ResourceVersion}, nil
	case d.ResourceVersion != in.Version, d.DeletionTimestamp != nil:
		return nil, conflict(in.Deployment)
	}
	if set != nil {
		observe.ReturnTo(d, set)
	}
	d.Spec.RollbackTo = nil
	d, err = a.Cluster.Client().MachineV1alpha1().MachineDeployments(d.Namespace).Update(ctx, d, metav1.UpdateOptions{})
	if err != nil {
		return nil, writeError(in.Deployment, err)
	}
	kind := corev1.EventTypeWarning
	if in.Rollback.Reason == reasonRolledBack {
		kind = corev1.EventTypeNormal
	}
	a.Recorder.Event(d, kind, in.Rollback.Reason, in.Rollback.Why)
	return Gate{observe.Deployments: d.ResourceVersion}, nil
}

// returned reports whether a rollback has been done already: nobody asks for one, and the template is that of the set.
func returned(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet, back rollout.Rollback) bool {
	if d.Spec.RollbackTo != nil {
		return false
	}
	if set == nil {
		return !back.Automatic
	}
	return observe.SameTemplate(&set.Spec.Template, &d.Spec.Template)
}

// formerSet reads the set whose template returns. Its version may be another one than the decision saw: its status changes often,
// its template does not.
func (a *Activities) formerSet(ctx context.Context, in RollBack) (*v1alpha1.MachineSet, error) {
	ref := Ref{Namespace: in.Deployment.Namespace, Name: in.Rollback.Set.Name, UID: in.Rollback.Set.UID}
	set, err := a.Cluster.Client().MachineV1alpha1().MachineSets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, conflict(ref)
	case err != nil:
		return nil, fmt.Errorf("get set %s: %w", ref.Key(), err)
	case string(set.UID) != ref.UID, set.DeletionTimestamp != nil:
		return nil, conflict(ref)
	}
	return set, nil
}
