// Package deployment has the activities on one MachineDeployment of Cluster API and its MachineSets.
package deployment

import (
	"context"
	"slices"
	"time"

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

// DeploymentsResource is the key of MachineDeployments in the resource versions that activities return.
const DeploymentsResource = capi.DeploymentsResource

// Activities are the activities of this package. Workflows call the methods of Activities by name.
type Activities struct {
	Kube  *kube.Kube
	Cache *capi.Cache
}

// DecideClusterAPIDeployment reads a deployment with its sets and machines, and returns the next step. A deployment
// without Millwright's label must be released: its sets get the deployment's new label, and the deployment loses
// Millwright's finalizer. After this release, the decision treats the deployment as gone.
func (a *Activities) DecideClusterAPIDeployment(
	ctx context.Context,
	in activities.Input,
) (result activities.Decision, err error) {
	began := time.Now()
	defer func() { a.Kube.Metrics.CountReconcile("machinedeployment", time.Since(began), err) }()
	tree, err := a.readObjectTree(ctx, in.ReadInput)
	if err != nil {
		return activities.Decision{}, err
	}
	d := tree.Deployment
	switch {
	case d == nil:
		return activities.Decision{Gone: true, Pending: kube.ObjectGoneDecision}, nil
	case !a.Cache.IsReconciledByMillwright(d):
		return activities.Decision{
			Release: true, Version: d.ResourceVersion, Seen: tree.ResourceVersions(),
			Pending: attention.Decision{Need: attention.NeedScaling, Why: capi.HandedOverMessage},
		}, nil
	}
	now := in.DecisionTime()
	if tree.MayBeChangedByUpstream() {
		return handOverDecision(tree, now), nil
	}
	observed := deployment.RolloutFacts(tree, now)
	if rollout.MustConfirmTurn(observed) {
		if tree, err = tree.WithLiveSiblings(ctx, a.Cache); err != nil {
			return activities.Decision{}, err
		}
		observed = deployment.RolloutFacts(tree, now)
	}
	plan := rollout.PlanDeployment(observed)
	result = activities.NewDecision(d, observed, plan)
	result.Operation, result.Seen = deployment.CurrentRolloutID(d), tree.ResourceVersions()
	result.Prepare = deployment.NeedsPreparation(tree, observed)
	if result.Prepare && result.Pending.NeedsNothing() {
		result.Pending = attention.Decision{Need: attention.NeedScaling, Why: deployment.NotPreparedMessage}
	}
	result.Blocked = deployment.ExplanationFacts(tree, plan, now).BlockedSummary(now)
	said := deployment.StatusShowsBlockers(tree, result.Blocked)
	result.Report = activities.IsReportNeeded(in, plan, result.Blocked, deployment.CurrentOperation(d), said)
	return result, nil
}

// handOverDecision returns the decision for a deployment that Cluster API's controllers may still change. A deployment
// that is being deleted cannot be taken over, because the API server accepts no new finalizer: Cluster API's controller
// gets the deployment back, and deletes it.
func handOverDecision(tree deployment.ObjectTree, now time.Time) activities.Decision {
	d, blocked := tree.Deployment, tree.HandOverSummary(now)
	return activities.Decision{
		Pending: attention.Decision{Need: attention.NeedScaling, Why: capi.UpstreamMessage},
		Version: d.ResourceVersion,
		Rollout: rollout.Decision{HoldBy: rollout.HeldByPause, Hold: capi.UpstreamMessage, Why: capi.UpstreamMessage},
		Release: d.DeletionTimestamp != nil,
		Report:  !capi.ShowsBlocked(d, blocked),
		Blocked: blocked,
		Seen:    tree.ResourceVersions(),
	}
}

// readObjectTree returns a deployment with its sets and machines, from the caches, or live if the input requires a live
// read. Deployment is nil if the deployment is gone or Millwright does not reconcile it. If the deployment was handed
// over, readObjectTree reads only the deployment, without its sets and machines.
func (a *Activities) readObjectTree(ctx context.Context, in kube.ReadInput) (deployment.ObjectTree, error) {
	if !a.Kube.Cluster.ActsInNamespace(in.Ref.Namespace) {
		return deployment.ObjectTree{}, nil
	}
	live, err := a.Kube.NeedsLiveRead(ctx, in)
	if err != nil {
		return deployment.ObjectTree{}, err
	}
	if !live {
		d, found := a.Cache.ReconciledDeployment(in.Ref.Key())
		switch {
		case !found || string(d.UID) != in.Ref.UID:
			return deployment.ObjectTree{}, nil
		case !a.Cache.IsReconciledByMillwright(d):
			return deployment.ObjectTree{Cache: a.Cache, Deployment: d}, nil
		default:
			return deployment.ReadTreeForWrite(ctx, a.Cache, d)
		}
	}
	d, err := kube.ReadLive(ctx, a.deploymentsClient(in.Ref), "machinedeployment", in.Ref)
	switch {
	case err != nil || d == nil || !a.Cache.IsReconciledByMillwright(d) && !capi.IsMarkedByMillwright(d):
		return deployment.ObjectTree{}, err
	case !a.Cache.IsReconciledByMillwright(d):
		return deployment.ObjectTree{Cache: a.Cache, Deployment: d}, nil
	default:
		return deployment.ReadLiveTree(ctx, a.Cache, d)
	}
}

func (a *Activities) deploymentsClient(
	ref kube.Ref,
) capi.TypedClient[*clusterv1.MachineDeployment, *clusterv1.MachineDeploymentList] {
	return a.Cache.Client().Deployments(ref.Namespace)
}

// FinalizeClusterAPIDeployment does one of four things: it takes over a deployment and its sets, and prepares it for its
// first set; removes Millwright's finalizer from a deployment that is being deleted and has no set; releases a deployment
// that was handed over; or returns a deployment to Cluster API that is being deleted before Millwright has taken it over.
// The result is the resource version of the deployment.
func (a *Activities) FinalizeClusterAPIDeployment(ctx context.Context, in kube.ReadInput) (string, error) {
	tree, err := a.readObjectTree(ctx, in)
	d := tree.Deployment
	switch {
	case err != nil:
		return "", err
	case d == nil:
		return "", kube.ObjectGoneError(in.Ref)
	case !a.Cache.IsReconciledByMillwright(d):
		return a.releaseDeployment(ctx, in.Ref, d)
	case tree.MayBeChangedByUpstream():
		if d.DeletionTimestamp == nil {
			return d.ResourceVersion, nil
		}
		next := d.DeepCopy()
		capi.SetWatchFilter(next, a.Cache.UpstreamWatchFilter)
		return a.patchDeployment(ctx, in.Ref, d, next)
	case d.DeletionTimestamp != nil && len(tree.Sets) == 0:
		return a.removeFinalizer(ctx, in.Ref, d)
	case d.DeletionTimestamp != nil:
		return d.ResourceVersion, nil
	}
	if err := a.takeOverSets(ctx, tree); err != nil {
		return "", err
	}
	if err := a.ownTemplates(ctx, in.Ref, tree); err != nil {
		return "", err
	}
	if next := deployment.PreparedDeployment(tree); next != nil {
		return a.patchDeployment(ctx, in.Ref, d, next)
	}
	return d.ResourceVersion, nil
}

// ownTemplates adds the owner reference to the Cluster and the Cluster's label to the templates of a deployment. A
// template that changed since it was read causes a Conflict. ownTemplates is idempotent.
func (a *Activities) ownTemplates(ctx context.Context, ref kube.Ref, tree deployment.ObjectTree) error {
	for _, template := range tree.UnownedTemplates() {
		objects := a.Cache.Client().ProviderObjects.Resource(template.Resource).Namespace(ref.Namespace)
		owned := capi.WithClusterOwner(template.Object, tree.Cluster)
		if _, err := kube.PatchChanges(ctx, objects, template.Object, owned); err != nil {
			return kube.ClassifyWriteError(ctx, ref, err)
		}
	}
	return nil
}

// takeOverSets gives the sets that can be taken over now Millwright's label and finalizer. takeOverSets is idempotent.
func (a *Activities) takeOverSets(ctx context.Context, tree deployment.ObjectTree) error {
	for _, set := range tree.SetsToTakeOver() {
		next := set.DeepCopy()
		tree.TakeOverSet(next)
		sets := machineSetClient{a.Cache.Client().MachineSets(set.Namespace)}
		if _, err := kube.PatchChanges(ctx, sets, set, next); err != nil {
			return kube.ClassifyWriteError(ctx, kube.Ref{Namespace: set.Namespace, Name: set.Name, UID: string(set.UID)}, err)
		}
	}
	return nil
}

// releaseDeployment releases a deployment that was handed over. First, the deployment's sets get the deployment's new
// label, so that the new controller reconciles the sets as well. Last, the deployment loses Millwright's own conditions
// and Millwright's finalizer. releaseDeployment is idempotent.
func (a *Activities) releaseDeployment(
	ctx context.Context,
	ref kube.Ref,
	d *clusterv1.MachineDeployment,
) (string, error) {
	sets := a.Cache.Client().MachineSets(ref.Namespace)
	list, err := sets.List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", kube.ClassifyWriteError(ctx, ref, err)
	}
	var value any
	if label, labelled := d.Labels[clusterv1.WatchLabel]; labelled {
		value = label
	}
	for i := range list.Items {
		set := &list.Items[i]
		if !metav1.IsControlledBy(set, d) || !a.Cache.IsReconciledByMillwright(set) {
			continue
		}
		annotations := deployment.TransferPatch(rollout.MachineTransfer{})
		annotations[v1alpha1.AnnotationFormerReplicas], annotations[v1alpha1.AnnotationInPlaceAnswer] = nil, nil
		patch := map[string]any{
			"metadata": map[string]any{"labels": map[string]any{clusterv1.WatchLabel: value}, "annotations": annotations},
		}
		if _, err := kube.PatchObject(ctx, machineSetClient{sets}, set, patch); err != nil {
			return "", kube.ClassifyWriteError(
				ctx,
				kube.Ref{Namespace: set.Namespace, Name: set.Name, UID: string(set.UID)},
				err,
			)
		}
	}
	if theirs := capi.UpstreamConditions(d.Status.Conditions); len(theirs) < len(d.Status.Conditions) {
		next := d.DeepCopy()
		next.Status.Conditions = theirs
		if d, err = kube.PatchChanges(ctx, a.deploymentsClient(ref), d, next, "status"); err != nil {
			return "", kube.ClassifyWriteError(ctx, ref, err)
		}
	}
	return a.removeFinalizer(ctx, ref, d)
}

// removeFinalizer removes Millwright's finalizer and Millwright's annotations about workflows from a deployment. The
// result is the resource version of the deployment.
func (a *Activities) removeFinalizer(
	ctx context.Context,
	ref kube.Ref,
	d *clusterv1.MachineDeployment,
) (string, error) {
	if !slices.Contains(d.Finalizers, capi.Finalizer) {
		return d.ResourceVersion, nil
	}
	next := d.DeepCopy()
	next.Finalizers = kube.WithoutItem(d.Finalizers, capi.Finalizer)
	deployment.RemoveMillwrightAnnotations(next)
	capi.ReturnForTopology(next, clusterv1.MachineDeploymentTopologyFinalizer, a.Cache.UpstreamWatchFilter)
	return a.patchDeployment(ctx, ref, d, next)
}

// patchDeployment writes the difference between two states of a deployment. The result is the resource version of the
// deployment.
func (a *Activities) patchDeployment(
	ctx context.Context,
	ref kube.Ref,
	d, next *clusterv1.MachineDeployment,
) (string, error) {
	written, err := kube.PatchChanges(ctx, deploymentClient{a.deploymentsClient(ref)}, d, next)
	if err != nil {
		return "", kube.ClassifyWriteError(ctx, ref, err)
	}
	return written.ResourceVersion, nil
}
