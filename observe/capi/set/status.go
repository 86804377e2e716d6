package set

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/vocabulary"
	"millwright/decide/explain"
	"millwright/decide/scale"
	observecache "millwright/observe/cache"
	"millwright/observe/capi"
)

// millwrightConditionTypes lists the condition types that Millwright writes on a MachineSet, in the order of
// scale.PlanSet, and Blocked. Millwright does not change other conditions.
var millwrightConditionTypes = []string{
	vocabulary.ConditionMachinesCreated,
	vocabulary.ConditionMachinesReady,
	vocabulary.ConditionMachinesUpToDate,
	vocabulary.ConditionScalingUp,
	vocabulary.ConditionScalingDown,
	vocabulary.ConditionRemediating,
	vocabulary.ConditionDeleting,
	vocabulary.ConditionPaused,
	vocabulary.ConditionReplicaFailure,
	vocabulary.ConditionReplacementHeld,
	vocabulary.ConditionReconciling,
	vocabulary.ConditionStalled,
	vocabulary.ConditionBlocked,
}

// reportedStatus returns the part of a set's status that scale.PlanSet computes. Cluster API's status has no fields for
// the largest size that was ever wanted and for the last size on which the set acted. reportedStatus therefore assumes
// that the status already shows both sizes, so that no overshoot is reported.
func reportedStatus(set *clusterv1.MachineSet, o scale.Facts) scale.Status {
	active := 0
	for _, m := range o.Members {
		if !m.Deleting && !m.MovedForUpdate {
			active++
		}
	}
	s := scale.Status{PeakReplicas: max(o.Replicas, active, 0), ObservedReplicas: max(o.Replicas, 0)}
	if set.Status.Replicas != nil {
		s.Counts = &scale.MachineCounts{
			Replicas: int(capi.ValueOrZero(set.Status.Replicas)),
			Ready:    int(capi.ValueOrZero(set.Status.ReadyReplicas)),
			Available: int(
				capi.ValueOrZero(set.Status.AvailableReplicas),
			),
			UpToDate: int(capi.ValueOrZero(set.Status.UpToDateReplicas)),
		}
	}
	for _, kind := range millwrightConditionTypes {
		c := capi.ConditionOfType(set.Status.Conditions, kind)
		if c.Type != "" && kind != vocabulary.ConditionBlocked {
			s.Conditions = append(
				s.Conditions,
				scale.Condition{Type: c.Type, Status: scale.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message},
			)
		}
	}
	return s
}

// ApplyStatus writes the status that scale.PlanSet computed, and the condition Blocked. The transition time of a
// condition changes only with the condition's status. The transition time of Blocked is the start of the oldest
// blocking cause.
func ApplyStatus(
	set *clusterv1.MachineSet,
	related capi.RelatedObjects,
	want scale.Status,
	blocked explain.Summary,
	now metav1.Time,
) {
	s, before := &set.Status, set.Status.DeepCopy()
	if c := want.Counts; c != nil {
		s.Replicas, s.ReadyReplicas = new(int32(c.Replicas)), new(int32(c.Ready))
		s.AvailableReplicas, s.UpToDateReplicas = new(int32(c.Available)), new(int32(c.UpToDate))
	}
	var conditions []capi.Condition
	for _, c := range want.Conditions {
		conditions = append(conditions, capi.Condition{Condition: c})
	}
	s.Conditions = capi.ReplaceOwnedConditions(
		s.Conditions,
		millwrightConditionTypes,
		append(conditions, capi.BlockedConditions(blocked)...),
		set.Generation,
		now,
	)
	s.ObservedGeneration = set.Generation
	s.Selector = capi.SelectorText(&set.Spec.Selector)
	s.Deprecated = v1Beta1Status(s, now)
	if want.Counts != nil && (len(s.Versions) > 0 || !equality.Semantic.DeepEqual(before, s)) {
		s.Versions = CountMachinesByVersion(related.Members)
	}
}

// ShowsVersions reports whether a status shows the versions of machines. A status without versions shows them, too: the
// CustomResourceDefinitions of Cluster API before v1.14 have no such field, so a write of the field alone would be
// repeated without end. The next write of another field also writes the versions.
func ShowsVersions(reported []clusterv1.StatusVersion, machines []*clusterv1.Machine) bool {
	return len(reported) == 0 || equality.Semantic.DeepEqual(reported, CountMachinesByVersion(machines))
}

// StatusShowsBlockers reports whether the status of a set shows the set's blockers, the versions of its machines, and
// the same facts to readers of version v1beta1.
func StatusShowsBlockers(set *clusterv1.MachineSet, related capi.RelatedObjects, blocked explain.Summary) bool {
	return capi.ShowsBlocked(set, blocked) &&
		ShowsVersions(set.Status.Versions, related.Members) &&
		equality.Semantic.DeepEqual(set.Status.Deprecated, v1Beta1Status(&set.Status, metav1.Time{}))
}

// CountMachinesByVersion counts the machines of each version: the version of the kubelet, or, before the node has
// joined, the version in the machine's spec. CountMachinesByVersion does not count machines without a version. The
// oldest version comes first.
func CountMachinesByVersion(machines []*clusterv1.Machine) (result []clusterv1.StatusVersion) {
	counts := map[string]int32{}
	for _, m := range machines {
		version := m.Spec.Version
		if m.Status.NodeInfo != nil {
			version = cmp.Or(m.Status.NodeInfo.KubeletVersion, version)
		}
		if version != "" {
			counts[version]++
		}
	}
	for version, n := range counts {
		result = append(result, clusterv1.StatusVersion{Version: version, Replicas: n})
	}
	slices.SortFunc(
		result,
		func(a, b clusterv1.StatusVersion) int { return observecache.CompareVersions(a.Version, b.Version) },
	)
	return result
}

// ExplanationFacts returns the facts that explain what blocks a set. The parameter conditions contains the conditions
// that the set's status should have.
func ExplanationFacts(
	set *clusterv1.MachineSet,
	related capi.RelatedObjects,
	conditions []scale.Condition,
	now time.Time,
) explain.MachineSet {
	s := explain.MachineSet{
		Namespace: set.Namespace, Name: set.Name, IsClusterAPI: true,
		Deleting:          set.DeletionTimestamp != nil,
		HasPendingChanges: set.DeletionTimestamp != nil || len(related.Members) != int(capi.ValueOrZero(set.Spec.Replicas)),
		MachineCount:      max(len(related.Members), int(capi.ValueOrZero(set.Spec.Replicas))),
	}
	if isContestedSet(set) { // even a complete set is blocked: the other controller changes its machines
		since := now
		if was := capi.ConditionOfType(
			set.Status.Conditions,
			vocabulary.ConditionBlocked,
		); was.Reason == vocabulary.ReasonMachineSetInvalid {
			since = was.LastTransitionTime.Time
		}
		s.Conditions = append(s.Conditions, explain.Condition{
			Type:    vocabulary.ConditionMachinesCreated,
			Status:  vocabulary.StatusFalse,
			Reason:  vocabulary.ReasonMachineSetInvalid,
			Message: contestedMessage,
			Since:   since,
		})
		return s
	}
	if related.Cluster == nil ||
		!capi.ValueOrZero(related.Cluster.Spec.Paused) { // a paused Cluster's set reports the pause
		for _, m := range related.Members {
			s.ClusterAPIMachines = append(s.ClusterAPIMachines, MachineWaitFacts(m, now))
		}
	}
	for _, c := range conditions {
		since := now
		if was := capi.ConditionOfType(set.Status.Conditions, c.Type); string(was.Status) == string(c.Status) {
			since = was.LastTransitionTime.Time
		}
		s.Conditions = append(s.Conditions, explain.Condition{
			Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: strings.TrimSpace(c.Message), Since: since,
		})
	}
	return s
}
