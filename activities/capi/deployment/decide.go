// Package deployment has the activities on one MachineDeployment of Cluster API and its MachineSets.
package deployment

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
)

// DeploymentsResource is the resource of the versions that writes of deployments return.
const DeploymentsResource = capi.DeploymentsResource

// Activities are the activities of this package. Workflows call its methods by name.
type Activities struct {
	Kube *kube.Kube
	API  *capi.Cache
}

// DecideClusterAPIDeployment reads a deployment with its sets and machines, and returns what to do next. A deployment
// that has lost the label of Millwright is to be released: its sets get its new label, it loses Millwright's finalizer,
// and then counts as gone.
func (a *Activities) DecideClusterAPIDeployment(ctx context.Context, in activities.Input) (activities.Decision, error) {
	tree, err := a.tree(ctx, in.Read)
	if err != nil {
		return activities.Decision{}, err
	}
	d := tree.Deployment
	switch {
	case d == nil:
		return activities.Decision{Gone: true, Pending: kube.ObjectIsGone}, nil
	case !a.API.Ours(d):
		return activities.Decision{
			Release: true, Version: d.ResourceVersion, Seen: tree.Versions(),
			Pending: attention.Decision{Need: attention.Scale, Why: capi.HandedOver},
		}, nil
	}
	now := in.Time()
	observed := deployment.Observed(tree, now)
	plan := rollout.Plan(observed)
	result := activities.Planned(d, observed, plan)
	result.Operation, result.Seen = deployment.Named(d), tree.Versions()
	result.Prepare = deployment.Unprepared(tree, observed)
	if result.Prepare && result.Pending.Calm() {
		result.Pending = attention.Decision{Need: attention.Scale, Why: deployment.NotPrepared}
	}
	result.Blocked = deployment.Explained(tree, plan, now).Blocked(now)
	said := deployment.Said(tree, result.Blocked)
	result.Report = activities.Unreported(in, plan, result.Blocked, deployment.Operation(d), said)
	return result, nil
}

// tree returns a deployment with its sets and machines, as fresh as asked for; Deployment is nil when the deployment is
// gone, or is not Millwright's. For a deployment that was handed over, only the deployment is read.
func (a *Activities) tree(ctx context.Context, in kube.Read) (deployment.Tree, error) {
	if !a.Kube.Cluster.Acts(in.Ref.Namespace) {
		return deployment.Tree{}, nil
	}
	live, err := a.Kube.Fresh(ctx, in)
	if err != nil {
		return deployment.Tree{}, err
	}
	if !live {
		d, found := a.API.OwnDeployment(in.Ref.Key())
		switch {
		case !found || string(d.UID) != in.Ref.UID:
			return deployment.Tree{}, nil
		case !a.API.Ours(d):
			return deployment.Tree{API: a.API, Deployment: d}, nil
		default:
			return deployment.ReadToAct(ctx, a.API, d)
		}
	}
	d, err := kube.Live(ctx, a.deployments(in.Ref), "machinedeployment", in.Ref)
	switch {
	case err != nil || d == nil || !a.API.Ours(d) && !capi.Lost(d):
		return deployment.Tree{}, err
	case !a.API.Ours(d):
		return deployment.Tree{API: a.API, Deployment: d}, nil
	default:
		return deployment.ReadLive(ctx, a.API, d)
	}
}

func (a *Activities) deployments(
	ref kube.Ref,
) capi.Typed[*clusterv1.MachineDeployment, *clusterv1.MachineDeploymentList] {
	return a.API.Client().Deployments(ref.Namespace)
}

// FinalizeClusterAPIDeployment prepares a deployment for its first set, removes Millwright's finalizer from one that is
// being deleted and has no set left, or releases one that was handed over. It returns the version to wait for.
func (a *Activities) FinalizeClusterAPIDeployment(ctx context.Context, in kube.Read) (string, error) {
	tree, err := a.tree(ctx, in)
	d := tree.Deployment
	switch {
	case err != nil:
		return "", err
	case d == nil:
		return "", kube.ObjectGone(in.Ref)
	case !a.API.Ours(d):
		return a.release(ctx, in.Ref, d)
	case d.DeletionTimestamp != nil && len(tree.Sets) == 0:
		return a.free(ctx, in.Ref, d)
	}
	next := deployment.Prepared(tree)
	if next == nil || d.DeletionTimestamp != nil {
		return d.ResourceVersion, nil
	}
	return a.update(ctx, in.Ref, next)
}

// release gives the sets of a deployment that was handed over the deployment's new label, so that its new controller
// also gets them, removes the conditions that only Millwright writes, and then Millwright's finalizer. Running it twice
// releases once.
func (a *Activities) release(ctx context.Context, ref kube.Ref, d *clusterv1.MachineDeployment) (string, error) {
	sets := a.API.Client().Sets(ref.Namespace)
	list, err := sets.List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", kube.WriteError(ctx, ref, err)
	}
	var value any
	if label, labelled := d.Labels[clusterv1.WatchLabel]; labelled {
		value = label
	}
	for i := range list.Items {
		set := &list.Items[i]
		if !metav1.IsControlledBy(set, d) || !a.API.Ours(set) {
			continue
		}
		annotations := deployment.TransferPatch(rollout.Transfer{})
		annotations[v1alpha1.AnnotationFormerReplicas], annotations[v1alpha1.AnnotationInPlaceAnswer] = nil, nil
		patch := map[string]any{
			"metadata": map[string]any{"labels": map[string]any{clusterv1.WatchLabel: value}, "annotations": annotations},
		}
		if _, err := kube.Patch(ctx, setClient{sets}, set, patch); err != nil {
			return "", kube.WriteError(ctx, kube.Ref{Namespace: set.Namespace, Name: set.Name, UID: string(set.UID)}, err)
		}
	}
	if theirs := capi.TheirConditions(d.Status.Conditions); len(theirs) < len(d.Status.Conditions) {
		d = d.DeepCopy()
		d.Status.Conditions, d.ManagedFields = theirs, nil
		if d, err = a.deployments(ref).UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
			return "", kube.WriteError(ctx, ref, err)
		}
	}
	return a.free(ctx, ref, d)
}

// free removes Millwright's finalizer from a deployment, and what the deployment says about Millwright's workflows. It
// returns the version to wait for.
func (a *Activities) free(ctx context.Context, ref kube.Ref, d *clusterv1.MachineDeployment) (string, error) {
	if !slices.Contains(d.Finalizers, capi.Finalizer) {
		return d.ResourceVersion, nil
	}
	next := d.DeepCopy()
	next.Finalizers = kube.Without(d.Finalizers, capi.Finalizer)
	deployment.Forget(next)
	return a.update(ctx, ref, next)
}

// update writes a deployment that was read from the caches or live. It returns the version to wait for.
func (a *Activities) update(ctx context.Context, ref kube.Ref, d *clusterv1.MachineDeployment) (string, error) {
	d.ManagedFields = nil // the caches have only Millwright's, and the API server would take these for all
	written, err := a.deployments(ref).Update(ctx, d, metav1.UpdateOptions{FieldManager: capi.DeploymentFieldManager})
	if err != nil {
		return "", kube.WriteError(ctx, ref, err)
	}
	return written.ResourceVersion, nil
}
