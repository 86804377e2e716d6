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

// SameTemplate reports whether two templates make the same machines. As in MCM it ignores what is changed in place and
// never rolls machines: the hash label, the node template, the timeouts and other configuration, and the kind of the
// class.
func SameTemplate(a, b *v1alpha1.MachineTemplateSpec) bool {
	return equality.Semantic.DeepEqual(rolling(a), rolling(b))
}

// rolling returns the part of a template whose change rolls machines.
func rolling(t *v1alpha1.MachineTemplateSpec) *v1alpha1.MachineTemplateSpec {
	c := t.DeepCopy()
	delete(c.Labels, v1alpha1.LabelMachineTemplateHash)
	c.Spec.NodeTemplateSpec = v1alpha1.NodeTemplateSpec{}
	c.Spec.MachineConfiguration = nil
	c.Spec.Class = v1alpha1.ClassSpec{APIGroup: groupOf(c.Spec.Class), Name: c.Spec.Class.Name}
	c.CreationTimestamp.Reset()
	return c
}

// groupOf returns the API group of a class, also of one whose group is left out.
func groupOf(class v1alpha1.ClassSpec) string { return cmp.Or(class.APIGroup, v1alpha1.GroupName) }

// TemplateHash returns the label value that distinguishes the sets of a deployment, in MCM's form: the decimal 32-bit
// FNV hash of the whole template and, after a name collision, of the collision count.
func TemplateHash(t *v1alpha1.MachineTemplateSpec, collisions *int32) (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	h := fnv.New32a()
	_, _ = h.Write(text) // never fails
	if collisions != nil {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(*collisions)))
	}
	return strconv.FormatUint(uint64(h.Sum32()), 10), nil
}

// Name returns the name of a deployment's set with this template hash: the deployment's name and the first five
// characters of the hash in an alphabet without vowels, as in MCM.
func Name(deployment, hash string) string {
	encoded := rand.SafeEncodeString(hash)
	return deployment + "-" + encoded[:min(5, len(encoded))]
}

// drift names the parts in which a machine differs from its set's template and that are changed in place; empty when
// there are none.
func drift(m *v1alpha1.Machine, set *v1alpha1.MachineSet) string {
	shallow := *m // enough, because FollowTemplate replaces what it changes
	return strings.Join(FollowTemplate(&shallow, set), ", ")
}

// holds reports whether the first map contains all entries of the second.
func holds(all, some map[string]string) bool {
	for key, value := range some {
		if was, there := all[key]; !there || was != value {
			return false
		}
	}
	return true
}

// FollowTemplate copies from its set's template to a machine what is changed in place, and returns the names of the
// parts that changed. It replaces maps and pointers and changes none that it finds. Labels and annotations from others
// stay. A failed machine does not change. A machine that is being deleted takes only its timeouts, with which people
// hasten its deletion.
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

// follow copies the entries of one map to another, and reports whether any was missing. Annotations by which operators
// make requests about one machine, such as its priority, are not overwritten.
func follow(to *map[string]string, from map[string]string) (changed bool) {
	for key, value := range from {
		was, there := (*to)[key]
		if there && (was == value || isRequest(key)) {
			continue
		}
		if !changed {
			*to, changed = labels.Merge(*to, nil), true // a copy
		}
		(*to)[key] = value
	}
	return changed
}

func isRequest(key string) bool {
	return key == v1alpha1.AnnotationMachinePriority || key == v1alpha1.AnnotationPreserve ||
		v1alpha1.IsOwnMetadataKey(key)
}
