// Package drain reads the Machines of Cluster API whose nodes Millwright drains: their pre-drain hook, the drain rules,
// the order of drains, and the workload clusters that contain the nodes.
package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/decide/phrase"
	"millwright/observe/capi"
	observedrain "millwright/observe/drain"
)

// The annotations on a Machine whose node Millwright drains. AnnotationPreDrainHook makes Cluster API wait before it
// drains the node itself. With annotationExcludeNodeDraining, Cluster API does not drain the node.
// AnnotationPreDrainHook and annotationExcludeNodeDraining have the value hookValue.
const (
	AnnotationPreDrainHook        = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/millwright"
	annotationExcludeNodeDraining = clusterv1.ExcludeNodeDrainingAnnotation
	drainHookValue                = "millwright"
)

// DrainsNodesOfSet reports whether Millwright drains the nodes of a set's machines.
func DrainsNodesOfSet(c *capi.Cache, set *clusterv1.MachineSet) bool {
	if value, says := set.Annotations[v1alpha1.AnnotationClusterAPIDrain]; says {
		return value == "true"
	}
	if name := set.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		if d, found := c.Deployment(set.Namespace + "/" + name); found {
			if value, says := d.Annotations[v1alpha1.AnnotationClusterAPIDrain]; says {
				return value == "true"
			}
		}
	}
	cluster, found := c.ClusterOfSet(set)
	return found && cluster.Annotations[v1alpha1.AnnotationClusterAPIDrain] == "true"
}

// MachineAnnotations returns the annotations that Millwright applies to a machine of a set: the template's annotations,
// and the hook if Millwright drains the node. A machine that a person excluded from draining gets no hook. The
// parameter existing is nil for a new machine.
func MachineAnnotations(c *capi.Cache, set *clusterv1.MachineSet, existing *clusterv1.Machine) map[string]string {
	template := maps.Clone(set.Spec.Template.Annotations)
	if !DrainsNodesOfSet(c, set) || isExcludedByOthers(template) ||
		existing != nil && isExcludedByOthers(existing.Annotations) {
		return template
	}
	result := map[string]string{AnnotationPreDrainHook: drainHookValue, annotationExcludeNodeDraining: drainHookValue}
	maps.Copy(result, template)
	return result
}

// isExcludedByOthers reports whether another writer than Millwright excludes a machine from draining.
func isExcludedByOthers(annotations map[string]string) bool {
	value, set := annotations[annotationExcludeNodeDraining]
	return set && value != drainHookValue
}

// HasDrainHook reports whether a machine has Millwright's hook.
func HasDrainHook(m *clusterv1.Machine) bool {
	_, hooked := m.Annotations[AnnotationPreDrainHook]
	return hooked
}

// IsDrainedByMillwright reports whether Millwright drains the node of a machine, or has drained it.
func IsDrainedByMillwright(m *clusterv1.Machine) bool {
	return HasDrainHook(m) || m.Annotations[v1alpha1.AnnotationDrainStatus] != ""
}

// HookRemovalPatch returns the merge patch that removes Millwright's hook from a machine. Unless Millwright has drained
// the node, the patch also removes the annotation that excludes the node from Cluster API's drain.
func HookRemovalPatch(m *clusterv1.Machine, drained bool) map[string]any {
	gone := map[string]any{}
	if HasDrainHook(m) {
		gone[AnnotationPreDrainHook] = nil
	}
	if m.Annotations[annotationExcludeNodeDraining] == drainHookValue && !drained {
		gone[annotationExcludeNodeDraining] = nil
	}
	if len(gone) == 0 {
		return nil
	}
	return map[string]any{"metadata": map[string]any{"annotations": gone}}
}

// hasReachedPreDrainHooks reports whether the deletion by Cluster API has reached the pre-drain hooks of a machine.
// While Millwright's hook is present, Cluster API waits, unless Cluster API would not drain the node.
func hasReachedPreDrainHooks(m *clusterv1.Machine) bool {
	at := reachedPreDrainHooksAt(m)
	return !at.IsZero()
}

// reachedPreDrainHooksAt returns when the deletion by Cluster API has reached the pre-drain hooks of a machine; zero: it
// has not. Before v1.14, only the reason of the condition Deleting shows this, and its time is the begin of the
// deletion. From v1.14 on, the status has the time, also after an error has changed the condition.
func reachedPreDrainHooksAt(m *clusterv1.Machine) metav1.Time {
	if d := m.Status.Deletion; d != nil && !d.WaitForPreDrainHookStartTime.IsZero() {
		return d.WaitForPreDrainHookStartTime
	}
	c := capi.ConditionOfType(m.Status.Conditions, clusterv1.MachineDeletingCondition)
	if c.Status == metav1.ConditionTrue && c.Reason == clusterv1.MachineDeletingWaitingForPreDrainHookReason {
		return c.LastTransitionTime
	}
	return metav1.Time{}
}

// hasReachedPreTerminateHooks reports whether the deletion by Cluster API has reached the pre-terminate hooks of a
// machine. Before v1.14, only the reason of the condition Deleting shows this, also by a later stage.
func hasReachedPreTerminateHooks(m *clusterv1.Machine) bool {
	if d := m.Status.Deletion; d != nil && !d.WaitForPreTerminateHookStartTime.IsZero() {
		return true
	}
	switch capi.ConditionOfType(m.Status.Conditions, clusterv1.MachineDeletingCondition).Reason {
	case clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
		clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason,
		clusterv1.MachineDeletingWaitingForBootstrapDeletionReason,
		clusterv1.MachineDeletingDeletingNodeReason:
		return true
	default:
		return false
	}
}

// pauseReason returns why Cluster API, and therefore Millwright, does not act on a machine; empty if the machine is not
// paused.
func pauseReason(m *clusterv1.Machine, cluster *clusterv1.Cluster) string {
	if _, itself := m.Annotations[clusterv1.PausedAnnotation]; itself {
		return "the machine has the annotation " + clusterv1.PausedAnnotation
	}
	return phrase.TextIf(
		cluster != nil && capi.ValueOrZero(cluster.Spec.Paused),
		"Cluster %s is paused",
		m.Spec.ClusterName,
	)
}

// clusterOfMachine returns the Cluster of a machine; nil if the Cluster does not exist.
func clusterOfMachine(c *capi.Cache, m *clusterv1.Machine) *clusterv1.Cluster {
	cluster, _ := c.ClusterByKey(m.Namespace + "/" + m.Spec.ClusterName)
	return cluster
}

// UpstreamStatusTexts returns the parts of a Machine's status that affect its drain: the progress of the deletion, and
// the health of the node. Cluster API writes these parts.
func UpstreamStatusTexts(m *clusterv1.Machine) []string {
	says := []string{fmt.Sprint(hasReachedPreDrainHooks(m))}
	if c := meta.FindStatusCondition(m.Status.Conditions, clusterv1.MachineNodeReadyCondition); c != nil {
		says = append(says, string(c.Status))
	}
	if hasReachedPreTerminateHooks(m) {
		says = append(says, "past")
	}
	return says
}

// HookFacts returns the facts that determine the hook of a machine, without the facts about its node.
func HookFacts(ctx context.Context, c *capi.Cache, m *clusterv1.Machine, v *v1alpha1.Machine) (drain.HookFacts, error) {
	h := drain.HookFacts{
		HasHook: HasDrainHook(
			m,
		),
		Deleting:        m.DeletionTimestamp != nil,
		ClusterAPIWaits: hasReachedPreDrainHooks(m),
		NodeName:        m.Status.NodeRef.Name,
		SkipDrainReason: observedrain.FirstAnnotationText(
			v,
			v1alpha1.AnnotationSkipDrain,
			v1alpha1.AnnotationExcludeDraining,
		),
	}
	if d := v.Status.Deletion; d != nil && d.Drain != nil {
		h.DrainResult = d.Drain.Result
	}
	if !h.HasHook || !h.Deleting {
		return h, nil
	}
	cluster := clusterOfMachine(c, m)
	if h.PauseReason = pauseReason(m, cluster); h.PauseReason != "" {
		return h, nil
	}
	related, err := relatedObjectsOfDrain(ctx, c, m, cluster)
	h.NoDrainReason = related.NoDrainReason()
	return h, err
}

// relatedObjectsOfDrain reads the objects related to a machine that determine whether Cluster API would drain the
// machine's node. The parameter cluster may be nil.
func relatedObjectsOfDrain(
	ctx context.Context,
	c *capi.Cache,
	m *clusterv1.Machine,
	cluster *clusterv1.Cluster,
) (drain.RelatedObjects, error) {
	a := drain.RelatedObjects{
		ClusterName: m.Spec.ClusterName, ClusterGone: cluster == nil || cluster.DeletionTimestamp != nil,
		ReachedPreTerminateHooks: hasReachedPreTerminateHooks(m),
	}
	if a.ClusterGone || a.ReachedPreTerminateHooks {
		return a, nil
	}
	if ref := cluster.Spec.ControlPlaneRef; ref.IsDefined() {
		o, _, _, err := c.ProviderObject(ctx, m.Namespace, ref)
		if err != nil && !errors.Is(err, capi.ErrKindNotInstalled) {
			return a, err
		}
		if o != nil && o.GetDeletionTimestamp() != nil {
			a.DeletingControlPlane = ref.Kind + " " + ref.Name
		}
	}
	ref := m.Spec.InfrastructureRef
	resource, err := c.ResourceOfKind(ctx, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if errors.Is(err, capi.ErrKindNotInstalled) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	o, err := c.Client().ProviderObjects.Resource(resource).Namespace(m.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && o.GetDeletionTimestamp() != nil:
		a.GoneInfrastructure = ref.Kind + " " + ref.Name
	case err != nil:
		return a, fmt.Errorf("get %s %s/%s: %w", ref.Kind, m.Namespace, ref.Name, err)
	}
	return a, nil
}
