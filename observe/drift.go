package observe

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"millwright/api/v1alpha1"
)

// drift says in which parts a machine differs from its set's template that change live machines in place; empty when in
// none. A machine that is to go takes nothing but its timeouts, by which people hurry its deletion.
func drift(m *v1alpha1.Machine, set *v1alpha1.MachineSet) string {
	if follows(m, &set.Spec.Template) { // nearly always, and cheaper than to try it on a copy
		return ""
	}
	changed := m.DeepCopy()
	return strings.Join(FollowTemplate(changed, set), ", ")
}

// follows reports whether FollowTemplate would surely change nothing.
func follows(m *v1alpha1.Machine, t *v1alpha1.MachineTemplateSpec) bool {
	return holds(m.Labels, t.Labels) && holds(m.Annotations, t.Annotations) && m.Spec.Class.Kind == t.Spec.Class.Kind &&
		equality.Semantic.DeepEqual(m.Spec.MachineConfiguration, t.Spec.MachineConfiguration) &&
		equality.Semantic.DeepEqual(m.Spec.NodeTemplateSpec, t.Spec.NodeTemplateSpec)
}

// holds reports whether all of some are among all.
func holds(all, some map[string]string) bool {
	for key, value := range some {
		if was, there := all[key]; !there || was != value {
			return false
		}
	}
	return true
}

// FollowTemplate makes a machine follow its set's template in what changes live machines in place, and returns the names of
// the parts that changed. Labels and annotations that others gave the machine stay. One that has failed keeps what it is.
func FollowTemplate(m *v1alpha1.Machine, set *v1alpha1.MachineSet) []string {
	t := &set.Spec.Template
	var parts []string
	if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed {
		return nil
	}
	if !equality.Semantic.DeepEqual(m.Spec.MachineConfiguration, t.Spec.MachineConfiguration) {
		m.Spec.MachineConfiguration = t.Spec.MachineConfiguration.DeepCopy()
		parts = append(parts, "configuration")
	}
	if m.DeletionTimestamp != nil {
		return parts
	}
	if follow(&m.Labels, t.Labels) {
		parts = append(parts, "labels")
	}
	if follow(&m.Annotations, t.Annotations) {
		parts = append(parts, "annotations")
	}
	if !equality.Semantic.DeepEqual(m.Spec.NodeTemplateSpec, t.Spec.NodeTemplateSpec) {
		m.Spec.NodeTemplateSpec = *t.Spec.NodeTemplateSpec.DeepCopy()
		parts = append(parts, "node template")
	}
	if m.Spec.Class.Kind != t.Spec.Class.Kind {
		m.Spec.Class.Kind = t.Spec.Class.Kind
		parts = append(parts, "class kind")
	}
	return parts
}

// follow adds to a map what another one has, and reports whether anything was missing. What people wish of one machine, such
// as its priority, is theirs once it stands there.
func follow(to *map[string]string, from map[string]string) (changed bool) {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		was, there := (*to)[key]
		if there && (was == from[key] || isWish(key)) {
			continue
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key], changed = from[key], true
	}
	return changed
}

func isWish(key string) bool {
	return key == v1alpha1.AnnotationMachinePriority || key == v1alpha1.AnnotationPreserve || v1alpha1.IsOwnMetadataKey(key)
}

// notCopied are the annotations of a deployment that its sets do not get: those that say something about the deployment's own
// object, size or rollout. Source: MCM's list, and ours.
var notCopied = []string{
	"kubectl.kubernetes.io/last-applied-configuration",
	v1alpha1.AnnotationRevision, v1alpha1.AnnotationRevisionHistory,
	v1alpha1.AnnotationDesiredReplicas, v1alpha1.AnnotationMaxReplicas,
	v1alpha1.AnnotationPreferNoSchedule, v1alpha1.AnnotationUnfreeze, v1alpha1.AnnotationTriggerDeletion,
	v1alpha1.AnnotationPaused, v1alpha1.AnnotationRolloutHold, v1alpha1.AnnotationRolloutApprove, v1alpha1.AnnotationRolloutVerb,
}

// FollowDeployment makes a set follow its deployment in what changes live machines in place, or concerns the set alone, and
// reports whether anything differed. Annotations that others gave the set stay.
func FollowDeployment(set *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) (changed bool) {
	for _, key := range slices.Sorted(maps.Keys(d.Annotations)) {
		if value, there := set.Annotations[key]; slices.Contains(notCopied, key) || there && value == d.Annotations[key] {
			continue
		}
		if set.Annotations == nil {
			set.Annotations = map[string]string{}
		}
		set.Annotations[key], changed = d.Annotations[key], true
	}
	before := set.Spec.DeepCopy()
	to, from := &set.Spec, &d.Spec
	to.MinReadySeconds, to.AutoPreserveFailedMachineMax = from.MinReadySeconds, from.AutoPreserveFailedMachineMax
	to.DeletionOrder, to.Remediation = from.DeletionOrder, from.Remediation.DeepCopy()
	to.Template.Spec.NodeTemplateSpec = *from.Template.Spec.NodeTemplateSpec.DeepCopy()
	to.Template.Spec.MachineConfiguration = from.Template.Spec.MachineConfiguration.DeepCopy()
	to.Template.Spec.Class.Kind = from.Template.Spec.Class.Kind
	return changed || !equality.Semantic.DeepEqual(before, to)
}
