package deployment

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/explain"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	capiset "millwright/observe/capi/set"
)

// PreparedDeployment returns a deployment with all that it needs before its first set: Millwright's finalizer, the
// label of its Cluster, and the Cluster as owner. With this owner, the deletion of the Cluster also deletes the
// deployment. A paused deployment gets nothing but the finalizer. PreparedDeployment returns nil if the deployment
// already has this state.
func PreparedDeployment(f ObjectTree) *clusterv1.MachineDeployment {
	d := f.Deployment
	p := d.DeepCopy()
	capi.TakeOver(p, clusterv1.MachineDeploymentFinalizer)
	if len(f.pauseReasons()) == 0 {
		metav1.SetMetaDataLabel(&p.ObjectMeta, clusterv1.ClusterNameLabel, d.Spec.ClusterName)
		if f.Cluster != nil {
			p.OwnerReferences = capi.WithOwner(p.OwnerReferences, capi.ClusterOwnerReference(f.Cluster))
		}
	}
	if equality.Semantic.DeepEqual(d, p) {
		return nil
	}
	return p
}

// NotPreparedMessage describes the pending work of a deployment that must be prepared for its first set.
const NotPreparedMessage = "it is not prepared for its first set"

// NeedsPreparation reports whether a deployment must be prepared now, one of its sets must be taken over now, or one of
// its templates lacks its owner. NeedsPreparation returns false for a deployment that is contested or being deleted.
func NeedsPreparation(f ObjectTree, o rollout.Facts) bool {
	contested := capi.IsReconciledByOtherController(f.Deployment, clusterv1.MachineDeploymentFinalizer)
	return !o.Deleting && !contested &&
		(len(f.SetsToTakeOver()) > 0 || PreparedDeployment(f) != nil || len(f.UnownedTemplates()) > 0)
}

// UnownedTemplates returns the templates of the deployment that lack the owner reference to the Cluster, or the
// Cluster's label. A deployment with spec.paused also owns its templates, although it creates no set for them: without
// the owner, clusterctl move would leave the templates behind. A paused deployment or Cluster owns no template.
func (f ObjectTree) UnownedTemplates() []capi.ProviderObject {
	if len(f.pauseReasons()) > 0 {
		return nil
	}
	return capi.UnownedTemplates(f.Cluster, f.Templates)
}

// SetsToTakeOver returns the sets that Cluster API's controller has reconciled and does not change now.
func (f ObjectTree) SetsToTakeOver() []*clusterv1.MachineSet {
	return slices.DeleteFunc(slices.Clone(f.Sets), func(set *clusterv1.MachineSet) bool {
		return set.DeletionTimestamp != nil || !capi.HasUpstreamFinalizer(set, clusterv1.MachineSetFinalizer) ||
			capiset.MayBeChangedByUpstream(set)
	})
}

// TakeOverSet gives a set of the deployment Millwright's label and finalizer, in one write: with the label alone, the
// set would have to wait for another pause.
func (f ObjectTree) TakeOverSet(set *clusterv1.MachineSet) {
	capi.TakeOver(set, clusterv1.MachineSetFinalizer)
	capi.SetWatchFilter(set, f.Cache.WatchFilter)
}

// MayBeChangedByUpstream reports whether Cluster API's controllers may still change a deployment that has Millwright's
// label, or the machines of one of its sets. A deployment with Millwright's finalizer may have a set of Cluster API's
// controller, for example a set that it has adopted: only the controller creates and deletes the machines of this set.
func (f ObjectTree) MayBeChangedByUpstream() bool {
	d := f.Deployment
	return capi.MayBeChangedByUpstream(d, clusterv1.MachineDeploymentFinalizer) ||
		capi.HasUpstreamFinalizer(d, clusterv1.MachineDeploymentFinalizer) &&
			slices.ContainsFunc(f.Sets, capiset.MayBeChangedByUpstream)
}

// HandOverSummary describes the wait of a deployment that Cluster API's controllers may still change.
func (f ObjectTree) HandOverSummary(now time.Time) explain.Summary {
	return capi.HandOverSummary(f.Deployment, "MachineDeployment", f.Deployment.Spec.ClusterName, now)
}
