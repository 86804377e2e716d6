package set_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/api/v1alpha1"
	"millwright/observe/machine"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

// setWithFullTemplate returns a set whose template sets each part that changes machines in place.
func setWithFullTemplate() *v1alpha1.MachineSet {
	s := observetest.NewSet("s")
	t := &s.Spec.Template
	t.Labels["tier"] = "front"
	t.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
	t.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
	t.Spec.Class.Kind = "OtherClass"
	return s
}

// CopyTemplateFields copies some parts of a template to a machine. CopyTemplateFields does not change other parts of
// the machine.
func TestCopyTemplateFields(t *testing.T) {
	label := func(key, value string) observetest.SetChange {
		return func(s *v1alpha1.MachineSet) { s.Spec.Template.Labels[key] = value }
	}
	annotation := func(key, value string) observetest.SetChange {
		return func(s *v1alpha1.MachineSet) { s.Spec.Template.Annotations[key] = value }
	}
	has := func(key, value string) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Labels[key] = value }
	}
	bare := func(m *v1alpha1.Machine) { m.Labels, m.Annotations = nil, nil }
	configured := func(m *v1alpha1.Machine) {
		m.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Hour)
	}
	nothing := func(*v1alpha1.Machine) {}
	for _, row := range []struct {
		name   string
		set    *v1alpha1.MachineSet
		is     func(*v1alpha1.Machine)
		parts  string
		change func(*v1alpha1.Machine) // expected changes of the machine
	}{
		{"as the template makes it", observetest.NewSet("s"), nothing, "", nothing},
		{"a label is missing", observetest.NewSet("s", label("tier", "front")), nothing, "labels", has("tier", "front")},
		{"a label has another value", observetest.NewSet("s", label("tier", "front")), has("tier", "back"), "labels", has("tier", "front")},
		{"labels of others stay", observetest.NewSet("s"), has("mine", "x"), "", nothing},
		{"a label that the template has no more stays: somebody else may have set it", observetest.NewSet("s", func(s *v1alpha1.MachineSet) { s.Spec.Template.Labels = nil }), nothing, "", nothing},
		{"a machine that has none", observetest.NewSet("s"), bare, "labels, annotations", func(m *v1alpha1.Machine) {
			m.Labels, m.Annotations = map[string]string{"app": "web"}, map[string]string{"team": "shop"}
		}},
		{"an annotation is missing", observetest.NewSet("s", annotation("note", "x")), nothing, "annotations", observetest.WithAnnotation("note", "x")},
		{"an annotation has another value", observetest.NewSet("s"), observetest.WithAnnotation("team", "other"), "annotations", observetest.WithAnnotation("team", "shop")},
		{"annotations of others stay", observetest.NewSet("s"), observetest.WithAnnotation("mine", "x"), "", nothing},
		{"node template", observetest.NewSet("s", func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
		}), nothing, "node template", func(m *v1alpha1.Machine) {
			m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
		}},
		{"what the node template says no more goes", observetest.NewSet("s"), observetest.WithNodeTemplate, "node template", func(m *v1alpha1.Machine) { m.Spec.NodeTemplateSpec = v1alpha1.NodeTemplateSpec{} }},
		{"configuration", observetest.NewSet("s", func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		}), nothing, "configuration", func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		}},
		{"another configuration", observetest.NewSet("s", func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		}), configured, "configuration", func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		}},
		{"no configuration any more", observetest.NewSet("s"), configured, "configuration", func(m *v1alpha1.Machine) { m.Spec.MachineConfiguration = nil }},
		{"the class's kind", observetest.NewSet("s", func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Kind = "OtherClass" }), nothing, "class kind", func(m *v1alpha1.Machine) { m.Spec.Class.Kind = "OtherClass" }},
		{"its name rolls machines", observetest.NewSet("s", func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "large" }), nothing, "", nothing},
		{"what is the machine's alone", observetest.NewSet("s"), func(m *v1alpha1.Machine) { m.Spec.ProviderID = "fake:///i-1" }, "", nothing},
		{"a wish of the template", observetest.NewSet("s", annotation(v1alpha1.AnnotationMachinePriority, "5")), nothing, "annotations", observetest.WithAnnotation(v1alpha1.AnnotationMachinePriority, "5")},
		{"a person's priority stays", observetest.NewSet("s", annotation(v1alpha1.AnnotationMachinePriority, "5")), observetest.WithAnnotation(v1alpha1.AnnotationMachinePriority, "1"), "", nothing},
		{"a person's preservation stays", observetest.NewSet("s", annotation(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveWhenFailed)), observetest.WithAnnotation(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveFalse), "", nothing},
		{"what we noted stays", observetest.NewSet("s", label(v1alpha1.LabelMachineTemplateHash, "new")), has(v1alpha1.LabelMachineTemplateHash, "old"), "", nothing},
		{"what we noted nowhere yet", observetest.NewSet("s", label(v1alpha1.LabelMachineTemplateHash, "new")), nothing, "labels", has(v1alpha1.LabelMachineTemplateHash, "new")},
		{"all at once", setWithFullTemplate(), nothing, "configuration, labels, node template, class kind", func(m *v1alpha1.Machine) {
			m.Labels["tier"] = "front"
			m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
			m.Spec.MachineConfiguration, m.Spec.Class.Kind = observetest.ConfigurationWithDrainTimeout(time.Minute), "OtherClass"
		}},
		{"failed: it keeps what it is", setWithFullTemplate(), observetest.WithPhase(v1alpha1.MachineFailed), "", nothing},
		{"failed and going", setWithFullTemplate(), observetest.CombineChanges(observetest.WithPhase(v1alpha1.MachineFailed), observetest.AsDeletingMachine), "", nothing},
		{"going: the timeouts hurry it", setWithFullTemplate(), observetest.CombineChanges(observetest.WithPhase(v1alpha1.MachineTerminating), observetest.AsDeletingMachine), "configuration", func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		}},
		{"going, and as hurried as it shall be", setWithFullTemplate(), observetest.CombineChanges(observetest.AsDeletingMachine, func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		}), "", nothing},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := observetest.MachineFromTemplate(row.is)
			want, mould := m.DeepCopy(), row.set.DeepCopy()
			row.change(want)
			assert.Equal(t, row.parts, observetest.MemberFacts(m, row.set, nil).Drift, "and nothing is changed by looking")
			assert.Equal(t, row.parts, strings.Join(set.CopyTemplateFields(m, row.set), ", "))
			assert.Equal(t, want, m)
			assert.Empty(t, set.CopyTemplateFields(m, row.set), "once is enough")
			assert.Equal(t, mould, row.set)
		})
	}
}

// A later change of the machine must not change the template.
func TestCopyTemplateFieldsMakesDeepCopies(t *testing.T) {
	s := setWithFullTemplate()
	m := observetest.NewMachine("m", func(m *v1alpha1.Machine) { m.Labels = nil })
	mould := s.DeepCopy()
	assert.Equal(
		t,
		[]string{"configuration", "labels", "annotations", "node template", "class kind"},
		set.CopyTemplateFields(m, s),
	)
	m.Labels["tier"], m.Annotations["team"], m.Spec.NodeTemplateSpec.Labels["pool"] = "x", "x", "x"
	m.Spec.MachineDrainTimeout.Duration = 0
	assert.Equal(t, mould, s)
}

func TestCopyTemplateFieldsDoesNotChangeAMatchingMachine(t *testing.T) {
	s := setWithFullTemplate()
	m := observetest.NewMachine(
		"m",
		observetest.WithOwnerSet(s),
		observetest.WithNodeTemplate,
		observetest.WithResourceVersion("9"),
		func(m *v1alpha1.Machine) {
			m.Finalizers = []string{v1alpha1.FinalizerMachine, "example.com/mine"}
			m.Spec.ProviderID, m.Status.CurrentStatus.Phase = "fake:///i-1", v1alpha1.MachineRunning
			m.Labels["topology.kubernetes.io/zone"] = "a"
		},
	)
	before := m.DeepCopy()
	assert.NotEmpty(t, set.CopyTemplateFields(m, s))
	assert.Equal(t, before.Finalizers, m.Finalizers, "the template's are for new machines")
	assert.Equal(t, before.OwnerReferences, m.OwnerReferences)
	assert.Equal(
		t,
		[]any{"m", before.UID, "9", "fake:///i-1", "a"},
		[]any{m.Name, m.UID, m.ResourceVersion, m.Spec.ProviderID, m.Labels["topology.kubernetes.io/zone"]},
	)
	assert.Equal(t, before.Status, m.Status)
	zoned := &v1alpha1.MachineClass{NodeTemplate: &v1alpha1.NodeTemplate{Zone: "a"}}
	assert.Equal(t, "a", machine.FailureDomain(m, zoned))
}
