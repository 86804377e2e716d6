package set

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"

	"millwright/api/v1alpha1"
)

// IsSameTemplate reports whether two templates make the same machines. As in MCM, IsSameTemplate ignores parts that
// change machines in place and never cause a rollout: the hash label, the node template, the timeouts and other
// configuration, and the kind of the class.
func IsSameTemplate(a, b *v1alpha1.MachineTemplateSpec) bool {
	return equality.Semantic.DeepEqual(rolloutRelevantTemplate(a), rolloutRelevantTemplate(b))
}

// rolloutRelevantTemplate returns the part of a template that causes a rollout when it changes.
func rolloutRelevantTemplate(t *v1alpha1.MachineTemplateSpec) *v1alpha1.MachineTemplateSpec {
	c := t.DeepCopy()
	delete(c.Labels, v1alpha1.LabelMachineTemplateHash)
	c.Spec.NodeTemplateSpec = v1alpha1.NodeTemplateSpec{}
	c.Spec.MachineConfiguration = nil
	c.Spec.Class = v1alpha1.ClassSpec{APIGroup: groupOfClass(c.Spec.Class), Name: c.Spec.Class.Name}
	c.CreationTimestamp.Reset()
	return c
}

// groupOfClass returns the API group of a class; the default group if the class names no group.
func groupOfClass(class v1alpha1.ClassSpec) string { return cmp.Or(class.APIGroup, v1alpha1.GroupName) }

// TemplateHash returns the value of the hash label, which distinguishes the sets of a deployment. As in MCM, the value
// is a decimal 32-bit FNV hash of the whole template. After a name collision, the hash also covers the collision count.
func TemplateHash(t *v1alpha1.MachineTemplateSpec, collisions *int32) (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	h := fnv.New32a()
	_, _ = h.Write(text) // Write of a hash never fails
	if collisions != nil {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(*collisions)))
	}
	return strconv.FormatUint(uint64(h.Sum32()), 10), nil
}

// NameFromHash returns the name of a deployment's set with this template hash. As in MCM, the name consists of the
// deployment's name and the first five characters of the hash, in an alphabet without vowels.
func NameFromHash(deployment, hash string) string {
	encoded := rand.SafeEncodeString(hash)
	return deployment + "-" + encoded[:min(5, len(encoded))]
}

// driftText returns the parts that can change in place and that differ between a machine and its set's template;
// empty if there are none.
func driftText(m *v1alpha1.Machine, set *v1alpha1.MachineSet) string {
	shallow := *m // a shallow copy is enough, because CopyTemplateFields replaces maps and pointers
	return strings.Join(CopyTemplateFields(&shallow, set), ", ")
}

// containsAllEntries reports whether the map all contains all entries of the map some.
func containsAllEntries(all, some map[string]string) bool {
	for key, value := range some {
		if was, there := all[key]; !there || was != value {
			return false
		}
	}
	return true
}

// CopyTemplateFields copies to a machine the parts of its set's template that change in place, and returns the names of
// the changed parts. CopyTemplateFields replaces maps and pointers instead of modifying them. CopyTemplateFields keeps
// the labels and annotations of other writers. CopyTemplateFields does not change a failed machine. A machine that is
// being deleted gets only the timeouts, because people shorten timeouts to speed up a deletion.
func CopyTemplateFields(m *v1alpha1.Machine, set *v1alpha1.MachineSet) []string {
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
	if copyEntries(&m.Labels, t.Labels) {
		parts = append(parts, "labels")
	}
	if copyEntries(&m.Annotations, t.Annotations) {
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

// copyEntries copies the entries of one map to another, and reports whether an entry was missing or different.
// copyEntries does not overwrite annotations with which an operator makes a request for one machine, for example its
// priority.
func copyEntries(to *map[string]string, from map[string]string) (changed bool) {
	for key, value := range from {
		was, there := (*to)[key]
		if there && (was == value || isRequestAnnotation(key)) {
			continue
		}
		if !changed {
			*to, changed = labels.Merge(*to, nil), true // Merge returns a copy
		}
		(*to)[key] = value
	}
	return changed
}

func isRequestAnnotation(key string) bool {
	return key == v1alpha1.AnnotationMachinePriority || key == v1alpha1.AnnotationPreserve ||
		v1alpha1.IsOwnMetadataKey(key)
}
