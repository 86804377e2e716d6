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
	changed := m.DeepCopy()
	return strings.Join(FollowTemplate(changed, set), ", ")
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
