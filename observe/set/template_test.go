package set_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

func TestIsSameTemplate(t *testing.T) {
	type change = func(*v1alpha1.MachineTemplateSpec)
	for _, row := range []struct {
		name   string
		rolls  bool
		change change
	}{
		{"nothing", false, func(*v1alpha1.MachineTemplateSpec) {}},
		{"the hash label", false, func(t *v1alpha1.MachineTemplateSpec) { t.Labels[v1alpha1.LabelMachineTemplateHash] = "1" }},
		{"labels of the node", false, func(t *v1alpha1.MachineTemplateSpec) { t.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "a"} }},
		{"annotations of the node", false, func(t *v1alpha1.MachineTemplateSpec) {
			t.Spec.NodeTemplateSpec.Annotations = map[string]string{"pool": "a"}
		}},
		{"taints of the node", false, func(t *v1alpha1.MachineTemplateSpec) {
			t.Spec.NodeTemplateSpec.Spec.Taints = []corev1.Taint{{Key: "k"}}
		}},
		{"a timeout", false, func(t *v1alpha1.MachineTemplateSpec) {
			t.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: time.Hour}}
		}},
		{"the conditions that are watched", false, func(t *v1alpha1.MachineTemplateSpec) {
			t.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{NodeConditions: new("DiskPressure")}
		}},
		{"the kind of the class", false, func(t *v1alpha1.MachineTemplateSpec) { t.Spec.Class.Kind = "OldMachineClass" }},
		{"the group of the class, written out", false, func(t *v1alpha1.MachineTemplateSpec) { t.Spec.Class.APIGroup = v1alpha1.GroupName }},
		{"an empty map for none", false, func(t *v1alpha1.MachineTemplateSpec) { t.Spec.NodeTemplateSpec.Labels = map[string]string{} }},
		{"the time that some tools write", false, func(t *v1alpha1.MachineTemplateSpec) { t.CreationTimestamp = *observetest.Now() }},
		{"the class", true, func(t *v1alpha1.MachineTemplateSpec) { t.Spec.Class.Name = "large" }},
		{"the group of the class", true, func(t *v1alpha1.MachineTemplateSpec) { t.Spec.Class.APIGroup = "example.com" }},
		{"the provider ID", true, func(t *v1alpha1.MachineTemplateSpec) { t.Spec.ProviderID = "fake:///i-1" }},
		{"the value of a label", true, func(t *v1alpha1.MachineTemplateSpec) { t.Labels["app"] = "api" }},
		{"one label more", true, func(t *v1alpha1.MachineTemplateSpec) { t.Labels["tier"] = "gold" }},
		{"an annotation", true, func(t *v1alpha1.MachineTemplateSpec) { t.Annotations["team"] = "other" }},
		{"a finalizer", true, func(t *v1alpha1.MachineTemplateSpec) { t.Finalizers = nil }},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, b, untouched := observetest.NewTemplate(), observetest.NewTemplate(), observetest.NewTemplate()
			row.change(&b)
			assert.Equal(t, !row.rolls, set.IsSameTemplate(&a, &b))
			assert.Equal(t, !row.rolls, set.IsSameTemplate(&b, &a))
			assert.Equal(t, untouched, a, "a comparison changes nothing: what it is given may belong to a cache")
		})
	}
}

func TestTemplateHash(t *testing.T) {
	hash := func(t *testing.T, template v1alpha1.MachineTemplateSpec, collisions *int32) string {
		t.Helper()
		h, err := set.TemplateHash(&template, collisions)
		require.NoError(t, err)
		return h
	}
	wide := observetest.NewTemplate()
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		wide.Labels[key] = "x"
	}
	t.Run("is the same each time", func(t *testing.T) {
		first := hash(t, wide, nil)
		for range 20 { // the iteration order of maps is random
			assert.Equal(t, first, hash(t, *wide.DeepCopy(), nil))
		}
	})
	t.Run("is a decimal number of 32 bits, which a label can hold", func(t *testing.T) {
		assert.Regexp(t, `^[0-9]{1,10}$`, hash(t, wide, nil))
	})
	t.Run("covers all of the template, also what never rolls", func(t *testing.T) {
		changed := observetest.NewTemplate()
		changed.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "a"}
		assert.NotEqual(t, hash(t, observetest.NewTemplate(), nil), hash(t, changed, nil))
	})
	t.Run("each collision gives another", func(t *testing.T) {
		seen := map[string]bool{hash(t, wide, nil): true}
		for _, count := range []int32{0, 1, 2, math.MaxInt32} {
			h := hash(t, wide, &count)
			assert.False(t, seen[h], "collision count %d", count)
			seen[h] = true
		}
	})
}

func TestNameFromHash(t *testing.T) {
	for _, hash := range []string{"3735928559", "0", "12", "4294967295"} {
		name := set.NameFromHash("web", hash)
		assert.Regexp(t, `^web-[bcdfghjklmnpqrstvwxz2456789]{1,5}$`, name, "no vowels: no words by accident")
		assert.Equal(t, name, set.NameFromHash("web", hash))
	}
	assert.NotEqual(t, set.NameFromHash("web", "3735928559"), set.NameFromHash("web", "1735928559"))
}
