package set

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/explain"
	"millwright/decide/scale"
	"millwright/observe/capi"
)

// MachinesWithoutRemediationReason returns the machines whose condition OwnerRemediated does not explain yet why their
// set does not replace them. The field Why of each target is the message that the condition should have; the result
// reason is the condition's reason.
func MachinesWithoutRemediationReason(
	related capi.RelatedObjects,
	plan scale.PlanResult,
) (machines []scale.MachineTarget, reason string) {
	if reason = clusterv1.MachineSetMachineRemediationDeferredReason; plan.SetIsOutdated {
		reason = clusterv1.MachineSetMachineCannotBeRemediatedReason
	}
	for _, target := range plan.PostponedMembers {
		for _, m := range related.Members {
			if said, message := RemediationReason(m); m.Name == target.Name && (said != reason || message != target.Why) {
				machines = append(machines, target)
			}
		}
	}
	return machines, reason
}

// PreparedSet returns a set in the state that it needs before its first machine: with Millwright's finalizer and the
// label of its Cluster. If the set has no MachineDeployment, PreparedSet also makes the Cluster an owner of the set, so
// that the deletion of the Cluster deletes the set. A paused set gets nothing but the finalizer. PreparedSet returns nil
// if the set already has this state.
func PreparedSet(s *clusterv1.MachineSet, cluster *clusterv1.Cluster) *clusterv1.MachineSet {
	p := s.DeepCopy()
	capi.TakeOver(p, clusterv1.MachineSetFinalizer)
	if len(pauseReasons(s, cluster)) == 0 {
		addClusterMetadata(p, cluster)
	}
	if capi.AreEqualSets(s, p) {
		return nil
	}
	return p
}

// addClusterMetadata adds the label of the Cluster, and the Cluster as the owner of a set without a deployment.
func addClusterMetadata(p *clusterv1.MachineSet, cluster *clusterv1.Cluster) {
	for _, labels := range []*map[string]string{&p.Labels, &p.Spec.Selector.MatchLabels, &p.Spec.Template.Labels} {
		if labels == &p.Spec.Selector.MatchLabels && len(*labels)+len(p.Spec.Selector.MatchExpressions) == 0 {
			// an empty selector matches no machine; with the label of the Cluster it would match all machines of the
			// Cluster
			continue
		}
		if *labels == nil {
			*labels = map[string]string{}
		}
		(*labels)[clusterv1.ClusterNameLabel] = p.Spec.ClusterName
	}
	if cluster != nil && p.Labels[clusterv1.MachineDeploymentNameLabel] == "" && metav1.GetControllerOf(p) == nil {
		p.OwnerReferences = capi.WithOwner(p.OwnerReferences, capi.ClusterOwnerReference(cluster))
	}
}

// NeedsPreparation reports whether a set must be prepared now. NeedsPreparation returns false for a set that is being
// deleted.
func NeedsPreparation(s *clusterv1.MachineSet, related capi.RelatedObjects) bool {
	return s.DeletionTimestamp == nil && PreparedSet(s, related.Cluster) != nil
}

// MayBeChangedByUpstream reports whether Cluster API's controller may still change a set that has Millwright's label.
func MayBeChangedByUpstream(s *clusterv1.MachineSet) bool {
	return capi.MayBeChangedByUpstream(s, clusterv1.MachineSetFinalizer)
}

// HandOverSummary describes the wait of a set that Cluster API's controller may still change.
func HandOverSummary(s *clusterv1.MachineSet, now time.Time) explain.Summary {
	return capi.HandOverSummary(s, "MachineSet", s.Spec.ClusterName, now)
}

// MayWriteRelatedObjects reports whether the objects related to a set may be written. The objects may not be written
// while the set is paused, contested or otherwise invalid, or while the garbage collector orphans the set's machines.
func MayWriteRelatedObjects(s *clusterv1.MachineSet, observed scale.Facts) bool {
	return len(observed.PauseSentences) == 0 && !observed.Orphaning &&
		(observed.InvalidReason == "" || s.DeletionTimestamp != nil)
}

// OutstandingWritesText returns which writes a set needs in addition to its plan; empty if there are none.
func OutstandingWritesText(
	s *clusterv1.MachineSet,
	related capi.RelatedObjects,
	observed scale.Facts,
	plan scale.PlanResult,
) string {
	if NeedsPreparation(s, related) {
		return "it is not prepared for its first machine"
	}
	if s.DeletionTimestamp != nil || !MayWriteRelatedObjects(s, observed) {
		return ""
	}
	if len(capi.UnownedTemplates(related.Cluster, related.Templates)) > 0 {
		return "a template lacks its owner, or the label of the Cluster"
	}
	if machines, _ := MachinesWithoutRemediationReason(related, plan); len(machines) > 0 {
		return "a machine does not say why it is not replaced yet"
	}
	return ""
}
