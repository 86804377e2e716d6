package set

import (
	"maps"
	"slices"
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

// Member returns the facts about a machine of a set.
func Member(c *capi.Cache, m *clusterv1.Machine, set *clusterv1.MachineSet, selector labels.Selector) scale.Member {
	f := scale.Member{
		Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, Created: m.CreationTimestamp.Time,
		Matches:  selector.Matches(labels.Set(m.Labels)) || selector.Empty(),
		Deleting: m.DeletionTimestamp != nil, DeletingSince: observecache.TimeOf(m.DeletionTimestamp),
		Template: scale.Template{Drift: Drift(c, m, set)},
		Phase:    m.Status.Phase,
		Node:     node(m),
		Priority: vocabulary.PriorityDefault,
	}
	// Cluster API writes the conditions of a machine before the name of its node.
	f.Joined = m.Status.NodeRef.IsDefined() ||
		meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineNodeHealthyCondition)
	f.Updating = updating(m)
	_, f.Updated = m.Annotations[clusterv1.PendingAcknowledgeMoveAnnotation]
	f.ClusterAPI.UpdateDue = UpdateDue(m, set)
	_, f.DeleteFirst = m.Annotations[clusterv1.DeleteMachineAnnotation]
	f.Ready, f.ReadyWhy, f.ReadyFrom = answer(m, clusterv1.MachineReadyCondition)
	f.UpToDate, f.UpToDateWhy, _ = answer(m, clusterv1.MachineUpToDateCondition)
	f.Healthy, _, _ = answer(m, clusterv1.MachineHealthCheckSucceededCondition)
	f.Marked = meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	_, f.ClusterAPI.MarkedWhy = Remark(m)
	_, urgent := m.Annotations[clusterv1.RemediateMachineAnnotation]
	f.Urgent = urgent && f.Marked
	return f
}

// answer returns the status of a condition of a machine; empty if it is not reported.
func answer(m *clusterv1.Machine, kind string) (status scale.Answer, why string, since time.Time) {
	c := meta.FindStatusCondition(m.Status.Conditions, kind)
	if c == nil {
		return "", "", since
	}
	if c.Status != metav1.ConditionTrue {
		why = c.Message
	}
	return scale.Answer(c.Status), why, c.LastTransitionTime.Time
}

// node returns the state of a machine's node. A node whose health is unknown is not unhealthy.
func node(m *clusterv1.Machine) scale.Node {
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

// Remark returns the reason and the message of the condition OwnerRemediated of a machine; empty if it has none that is
// False.
func Remark(m *clusterv1.Machine) (reason, message string) {
	c := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	if c == nil || c.Status != metav1.ConditionFalse {
		return "", ""
	}
	return c.Reason, c.Message
}

// MachineLabels returns the labels of the machines of a set.
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
	if c.Upstream != "" {
		result[clusterv1.WatchLabel] = c.Upstream
	} else if result[clusterv1.WatchLabel] == c.Filter {
		delete(result, clusterv1.WatchLabel) // Millwright reconciles no Machines of Cluster API
	}
	return result
}

// Desired returns a machine as it should be. existing is the live machine, of which everything stays that does not
// change in place; nil for a new machine without references to its clones.
func Desired(c *capi.Cache, set *clusterv1.MachineSet, name string, existing *clusterv1.Machine) *clusterv1.Machine {
	template := set.Spec.Template.DeepCopy()
	m := &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Namespace:   set.Namespace,
			Labels:      MachineLabels(c, set),
			Annotations: capidrain.MachineAnnotations(c, set, existing),
			Finalizers:  []string{clusterv1.MachineFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet")),
			},
		},
		Spec: template.Spec,
	}
	m.Spec.ClusterName = set.Spec.ClusterName
	if existing != nil {
		m.Name, m.UID, m.Finalizers = existing.Name, existing.UID, existing.Finalizers
		m.Spec.Bootstrap.ConfigRef = existing.Spec.Bootstrap.ConfigRef
		m.Spec.InfrastructureRef = existing.Spec.InfrastructureRef
		m.Spec.Version, m.Spec.FailureDomain = existing.Spec.Version, existing.Spec.FailureDomain
	}
	return m
}

// Drift says what of a machine differs from its set's template and may be changed in place; empty: nothing. Of a
// machine that is being deleted only what its deletion needs is compared.
func Drift(c *capi.Cache, m *clusterv1.Machine, set *clusterv1.MachineSet) string {
	have, want := &m.Spec, &set.Spec.Template.Spec
	alive := m.DeletionTimestamp == nil
	labels, annotations := capi.Applied(m, capi.FieldManager)
	return strings.Join(phrase.Parts(
		phrase.If(alive && differs(m.Labels, MachineLabels(c, set), labels), "labels"),
		phrase.If(alive && differs(m.Annotations, capidrain.MachineAnnotations(c, set, m), annotations), "annotations"),
		phrase.If(!equality.Semantic.DeepEqual(have.ReadinessGates, want.ReadinessGates), "readinessGates"),
		phrase.If(
			!equalOr(have.Deletion.NodeDrainTimeoutSeconds, want.Deletion.NodeDrainTimeoutSeconds, 0),
			"nodeDrainTimeoutSeconds",
		),
		phrase.If(
			!equalOr(have.Deletion.NodeVolumeDetachTimeoutSeconds, want.Deletion.NodeVolumeDetachTimeoutSeconds, 0),
			"nodeVolumeDetachTimeoutSeconds",
		),
		phrase.If(
			!equalOr(have.Deletion.NodeDeletionTimeoutSeconds, want.Deletion.NodeDeletionTimeoutSeconds, defaultNodeDeletion),
			"nodeDeletionTimeoutSeconds",
		),
		phrase.If(!equalOr(have.MinReadySeconds, want.MinReadySeconds, 0), "minReadySeconds"),
		phrase.If(!equality.Semantic.DeepEqual(have.Taints, want.Taints), "taints"),
	), ", ")
}

// defaultNodeDeletion is what Cluster API's webhook sets where spec.deletion.nodeDeletionTimeoutSeconds is absent.
const defaultNodeDeletion = 10

// equalOr compares two numbers of the API, of which nil means the default.
func equalOr(a, b *int32, byDefault int32) bool {
	if a == nil {
		a = &byDefault
	}
	if b == nil {
		b = &byDefault
	}
	return *a == *b
}

// differs reports whether a map lacks something that is wanted, or still has a key that Millwright applied and that is
// wanted no more.
func differs(have, want map[string]string, applied []string) bool {
	for key, value := range want {
		if now, found := have[key]; !found || now != value {
			return true
		}
	}
	return slices.ContainsFunc(applied, func(key string) bool {
		_, wanted := want[key]
		_, there := have[key]
		return there && !wanted
	})
}
