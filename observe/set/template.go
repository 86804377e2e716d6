package set

import (
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/rand"

	"millwright/api/v1alpha1"
)

// SameTemplate reports whether two templates make the same machines. As in MCM it ignores what changes live machines in
// place and never rolls them: the hash label, the node template, the timeouts and other configuration, and the class's
// kind.
func SameTemplate(a, b *v1alpha1.MachineTemplateSpec) bool {
	return equality.Semantic.DeepEqual(rolling(a), rolling(b))
}

// rolling returns the part of a template whose change rolls machines.
func rolling(t *v1alpha1.MachineTemplateSpec) *v1alpha1.MachineTemplateSpec {
	c := t.DeepCopy()
	delete(c.Labels, v1alpha1.LabelMachineTemplateHash)
	c.Spec.NodeTemplateSpec = v1alpha1.NodeTemplateSpec{}
	c.Spec.MachineConfiguration = nil
	c.Spec.Class.Kind = ""
	c.CreationTimestamp.Reset()
	return c
}

// TemplateHash returns the label value that tells sets of one deployment apart, in the form that MCM uses: the decimal of
// a 32-bit FNV hash over the whole template and, once a name was taken, the collision count.
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

// drift says in which parts a machine differs from its set's template that change live machines in place; empty when in
// none. A machine that is being deleted takes nothing but its timeouts, by which people hurry its deletion.
func drift(m *v1alpha1.Machine, set *v1alpha1.MachineSet) string {
	if follows(m, &set.Spec.Template) { // nearly always, and cheaper than to try it on a copy
		return ""
	}
	return strings.Join(FollowTemplate(m.DeepCopy(), set), ", ")
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
	for key, value := range from {
		was, there := (*to)[key]
		if there && (was == value || isWish(key)) {
			continue
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key], changed = value, true
	}
	return changed
}

func isWish(key string) bool {
	return key == v1alpha1.AnnotationMachinePriority || key == v1alpha1.AnnotationPreserve || v1alpha1.IsOwnMetadataKey(key)
}
