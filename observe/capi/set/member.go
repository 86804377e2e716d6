package set

import (
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/vocabulary"
	"millwright/decide/phrase"
	"millwright/decide/scale"
	observecache "millwright/observe/cache"
	"millwright/observe/capi"
	capidrain "millwright/observe/capi/drain"
)

// MemberFacts returns the facts about a machine of a set.
func MemberFacts(
	c *capi.Cache,
	m *clusterv1.Machine,
	set *clusterv1.MachineSet,
	selector labels.Selector,
	now time.Time,
) scale.Member {
	f := scale.Member{
		Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, CreatedAt: m.CreationTimestamp.Time,
		MatchesSelector: selector.Matches(labels.Set(m.Labels)) || selector.Empty(),
		Deleting:        m.DeletionTimestamp != nil, DeletingSince: observecache.TimeOrZero(m.DeletionTimestamp),
		TemplateDifferences: scale.TemplateDifferences{Drift: DriftText(c, m, set)},
		Phase:               m.Status.Phase,
		NodeState:           nodeState(m),
		Priority:            vocabulary.PriorityDefault,
	}
	// Cluster API writes the conditions of a machine before the name of the machine's node.
	f.Joined = m.Status.NodeRef.IsDefined() ||
		meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineNodeHealthyCondition)
	f.Updating = isUpdating(m)
	_, f.MovedForUpdate = m.Annotations[clusterv1.PendingAcknowledgeMoveAnnotation]
	f.ClusterAPI.UpdateDue = IsInPlaceUpdateDue(m, set)
	_, f.DeleteFirst = m.Annotations[clusterv1.DeleteMachineAnnotation]
	f.Ready, f.NotReadyReason, f.ReadySince = conditionStatus(m, clusterv1.MachineReadyCondition)
	f.UpToDate, f.OutdatedReason, _ = conditionStatus(m, clusterv1.MachineUpToDateCondition)
	f.Healthy, _, _ = conditionStatus(m, clusterv1.MachineHealthCheckSucceededCondition)
	f.Marked = meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	_, f.ClusterAPI.MarkMessage = RemediationReason(m)
	f.ClusterAPI.DrainBlockers = drainBlockers(m, now)
	_, urgent := m.Annotations[clusterv1.RemediateMachineAnnotation]
	f.Urgent = urgent && f.Marked
	return f
}

// conditionStatus returns the status of a machine's condition; empty if the machine has no such condition.
func conditionStatus(m *clusterv1.Machine, kind string) (status scale.ConditionStatus, why string, since time.Time) {
	c := meta.FindStatusCondition(m.Status.Conditions, kind)
	if c == nil {
		return "", "", since
	}
	if c.Status != metav1.ConditionTrue {
		why = c.Message
	}
	return scale.ConditionStatus(c.Status), why, c.LastTransitionTime.Time
}

// nodeState returns the state of a machine's node. A node with unknown health does not count as unhealthy.
func nodeState(m *clusterv1.Machine) scale.NodeState {
	c := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeHealthyCondition)
	switch {
	case !m.Status.NodeRef.IsDefined():
		return scale.NoNode
	case c != nil && c.Status == metav1.ConditionFalse:
		return scale.NodeUnhealthy
	case c != nil && c.Status == metav1.ConditionUnknown:
		return scale.NodeUnknown
	default:
		return scale.NodeHealthy
	}
}

// RemediationReason returns the reason and the message of a machine's condition OwnerRemediated; empty unless the
// condition is False.
func RemediationReason(m *clusterv1.Machine) (reason, message string) {
	c := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	if c == nil || c.Status != metav1.ConditionFalse {
		return "", ""
	}
	return c.Reason, c.Message
}

// MachineLabels returns the labels of a set's machines.
func MachineLabels(c *capi.Cache, set *clusterv1.MachineSet) map[string]string {
	result := map[string]string{}
	maps.Copy(result, set.Spec.Template.Labels)
	result[clusterv1.MachineSetNameLabel] = labelValue(set.Name)
	result[clusterv1.ClusterNameLabel] = set.Spec.ClusterName
	for _, key := range []string{clusterv1.MachineDeploymentNameLabel, clusterv1.MachineDeploymentUniqueLabel} {
		if value := set.Labels[key]; value != "" {
			result[key] = value
		}
	}
	if c.UpstreamWatchFilter != "" {
		result[clusterv1.WatchLabel] = c.UpstreamWatchFilter
	} else if result[clusterv1.WatchLabel] == c.WatchFilter {
		delete(result, clusterv1.WatchLabel) // Millwright does not reconcile Machines of Cluster API
	}
	return result
}

// NewMachine returns a machine that a set creates. The machine has no references to its clones yet.
func NewMachine(c *capi.Cache, set *clusterv1.MachineSet, name string) *clusterv1.Machine {
	template := set.Spec.Template.DeepCopy()
	m := &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Namespace:   set.Namespace,
			Labels:      MachineLabels(c, set),
			Annotations: capidrain.MachineAnnotations(c, set, nil),
			Finalizers:  []string{clusterv1.MachineFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet")),
			},
		},
		Spec: template.Spec,
	}
	m.Spec.ClusterName = set.Spec.ClusterName
	return m
}

// SyncedMachine returns a machine with the parts of its set's template that change in place. A machine that is being
// deleted gets only the parts that its deletion needs. SyncedMachine keeps what other writers added to the machine, and
// removes what Millwright or Cluster API's controller of MachineSets copied earlier and the template no longer has. The
// machine m stays unchanged.
func SyncedMachine(c *capi.Cache, set *clusterv1.MachineSet, m *clusterv1.Machine) *clusterv1.Machine {
	synced := *m // the fields that change are replaced
	template := &set.Spec.Template
	owned := capi.FieldsOwnedBy(m, capi.MachineFieldManagers())
	capi.CopyInPlaceFields(&synced.Spec, &template.Spec, owned.Within("spec"))
	if m.DeletionTimestamp != nil {
		if c.UpstreamWatchFilter != "" {
			// without its value of the filter, Cluster API's core does not notice that a paused deletion may go on
			coreValue := map[string]string{clusterv1.WatchLabel: c.UpstreamWatchFilter}
			synced.Labels = capi.UpdateEntries(m.Labels, coreValue, nil)
		}
		return &synced
	}
	labels, annotations := MachineLabels(c, set), capidrain.MachineAnnotations(c, set, m)
	ownLabels, ownAnnotations := owned.AppliedKeys()
	synced.Labels = capi.UpdateEntries(m.Labels, labels, ownLabels)
	synced.Annotations = capi.UpdateEntries(m.Annotations, annotations, ownAnnotations)
	if !capi.HasManagedFields(m, capi.MachineFieldManagers()) {
		claimed := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}}
		capi.CopyInPlaceFields(&claimed.Spec, &template.Spec, capi.AllFields())
		capi.ClaimFields(&synced, capi.MachineSetFieldManager, claimed)
	}
	return &synced
}

// DriftText returns which parts of a machine differ from SyncedMachine; empty if there are none.
func DriftText(c *capi.Cache, m *clusterv1.Machine, set *clusterv1.MachineSet) string {
	synced := SyncedMachine(c, set, m)
	have, want := &m.Spec, &synced.Spec
	return strings.Join(phrase.NonEmptyTexts(
		phrase.TextIf(len(m.ManagedFields) != len(synced.ManagedFields), "managedFields"),
		phrase.TextIf(!maps.Equal(m.Labels, synced.Labels), "labels"),
		phrase.TextIf(!maps.Equal(m.Annotations, synced.Annotations), "annotations"),
		phrase.TextIf(!equality.Semantic.DeepEqual(have.ReadinessGates, want.ReadinessGates), "readinessGates"),
		phrase.TextIf(
			!areEqualWithDefault(have.Deletion.NodeDrainTimeoutSeconds, want.Deletion.NodeDrainTimeoutSeconds, 0),
			"nodeDrainTimeoutSeconds",
		),
		phrase.TextIf(
			!areEqualWithDefault(have.Deletion.NodeVolumeDetachTimeoutSeconds, want.Deletion.NodeVolumeDetachTimeoutSeconds, 0),
			"nodeVolumeDetachTimeoutSeconds",
		),
		phrase.TextIf(
			!areEqualWithDefault(
				have.Deletion.NodeDeletionTimeoutSeconds,
				want.Deletion.NodeDeletionTimeoutSeconds,
				defaultNodeDeletionTimeoutSeconds,
			),
			"nodeDeletionTimeoutSeconds",
		),
		phrase.TextIf(!areEqualWithDefault(have.MinReadySeconds, want.MinReadySeconds, 0), "minReadySeconds"),
		phrase.TextIf(!equality.Semantic.DeepEqual(have.Taints, want.Taints), "taints"),
	), ", ")
}

// defaultNodeDeletionTimeoutSeconds is the value, in seconds, that Cluster API's webhook sets if
// spec.deletion.nodeDeletionTimeoutSeconds is absent.
const defaultNodeDeletionTimeoutSeconds = 10

// areEqualWithDefault compares two numbers of the API. A nil number means the default.
func areEqualWithDefault(a, b *int32, byDefault int32) bool {
	if a == nil {
		a = &byDefault
	}
	if b == nil {
		b = &byDefault
	}
	return *a == *b
}
