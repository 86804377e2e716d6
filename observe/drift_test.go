package observe_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/observe"
)

func drained(after time.Duration) *v1alpha1.MachineConfiguration {
	return &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: after}}
}

// moulded is a set whose template says something of each part that live machines follow.
func moulded() *v1alpha1.MachineSet {
	s := set("s")
	t := &s.Spec.Template
	t.Labels["tier"] = "front"
	t.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
	t.Spec.MachineConfiguration = drained(time.Minute)
	t.Spec.Class.Kind = "OtherClass"
	return s
}

// What live machines take over of a template, and what stays theirs.
func TestMS10_LiveMachinesFollowTheTemplate(t *testing.T) {
	label := func(key, value string) onSet {
		return func(s *v1alpha1.MachineSet) { s.Spec.Template.Labels[key] = value }
	}
	annotation := func(key, value string) onSet {
		return func(s *v1alpha1.MachineSet) { s.Spec.Template.Annotations[key] = value }
	}
	has := func(key, value string) func(*v1alpha1.Machine) {
		return func(m *v1alpha1.Machine) { m.Labels[key] = value }
	}
	bare := func(m *v1alpha1.Machine) { m.Labels, m.Annotations = nil, nil }
	configured := func(m *v1alpha1.Machine) { m.Spec.MachineConfiguration = drained(time.Hour) }
	nothing := func(*v1alpha1.Machine) {}
	for _, row := range []struct {
		name   string
		set    *v1alpha1.MachineSet
		is     func(*v1alpha1.Machine)
		parts  string
		change func(*v1alpha1.Machine) // what it makes of the machine
	}{
		{"as the template makes it", set("s"), nothing, "", nothing},
		{"a label is missing", set("s", label("tier", "front")), nothing, "labels", has("tier", "front")},
		{"a label has another value", set("s", label("tier", "front")), has("tier", "back"), "labels", has("tier", "front")},
		{"labels of others stay", set("s"), has("mine", "x"), "", nothing},
		{"a label that the template has no more stays: somebody else may have set it", set("s", func(s *v1alpha1.MachineSet) { s.Spec.Template.Labels = nil }), nothing, "", nothing},
		{"a machine that has none", set("s"), bare, "labels, annotations", func(m *v1alpha1.Machine) {
			m.Labels, m.Annotations = map[string]string{"app": "web"}, map[string]string{"team": "shop"}
		}},
		{"an annotation is missing", set("s", annotation("note", "x")), nothing, "annotations", note("note", "x")},
		{"an annotation has another value", set("s"), note("team", "other"), "annotations", note("team", "shop")},
		{"annotations of others stay", set("s"), note("mine", "x"), "", nothing},
		{"node template", set("s", func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
		}), nothing, "node template", func(m *v1alpha1.Machine) {
			m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
		}},
		{"what the node template says no more goes", set("s"), templated, "node template", func(m *v1alpha1.Machine) { m.Spec.NodeTemplateSpec = v1alpha1.NodeTemplateSpec{} }},
		{"configuration", set("s", func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.MachineConfiguration = drained(time.Minute) }), nothing, "configuration", func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = drained(time.Minute)
		}},
		{"another configuration", set("s", func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.MachineConfiguration = drained(time.Minute) }), configured, "configuration", func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = drained(time.Minute)
		}},
		{"no configuration any more", set("s"), configured, "configuration", func(m *v1alpha1.Machine) { m.Spec.MachineConfiguration = nil }},
		{"the class's kind", set("s", func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Kind = "OtherClass" }), nothing, "class kind", func(m *v1alpha1.Machine) { m.Spec.Class.Kind = "OtherClass" }},
		{"its name rolls machines", set("s", func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "large" }), nothing, "", nothing},
		{"what is the machine's alone", set("s"), func(m *v1alpha1.Machine) { m.Spec.ProviderID = "fake:///i-1" }, "", nothing},
		{"a wish of the template", set("s", annotation(v1alpha1.AnnotationMachinePriority, "5")), nothing, "annotations", note(v1alpha1.AnnotationMachinePriority, "5")},
		{"a person's priority stays", set("s", annotation(v1alpha1.AnnotationMachinePriority, "5")), note(v1alpha1.AnnotationMachinePriority, "1"), "", nothing},
		{"a person's preservation stays", set("s", annotation(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveWhenFailed)), note(v1alpha1.AnnotationPreserve, v1alpha1.ValuePreserveFalse), "", nothing},
		{"what we noted stays", set("s", label(v1alpha1.LabelMachineTemplateHash, "new")), has(v1alpha1.LabelMachineTemplateHash, "old"), "", nothing},
		{"what we noted nowhere yet", set("s", label(v1alpha1.LabelMachineTemplateHash, "new")), nothing, "labels", has(v1alpha1.LabelMachineTemplateHash, "new")},
		{"all at once", moulded(), nothing, "configuration, labels, node template, class kind", func(m *v1alpha1.Machine) {
			m.Labels["tier"] = "front"
			m.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "web"}
			m.Spec.MachineConfiguration, m.Spec.Class.Kind = drained(time.Minute), "OtherClass"
		}},
		{"failed: it keeps what it is", moulded(), phase(v1alpha1.MachineFailed), "", nothing},
		{"failed and going", moulded(), both(phase(v1alpha1.MachineFailed), goingMachine), "", nothing},
		{"going: the timeouts hurry it", moulded(), both(phase(v1alpha1.MachineTerminating), goingMachine), "configuration", func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = drained(time.Minute)
		}},
		{"going, and as hurried as it shall be", moulded(), both(goingMachine, func(m *v1alpha1.Machine) { m.Spec.MachineConfiguration = drained(time.Minute) }), "", nothing},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := follower(row.is)
			want, mould := m.DeepCopy(), row.set.DeepCopy()
			row.change(want)
			assert.Equal(t, row.parts, observedMember(m, row.set, nil).Drift, "and nothing is changed by looking")
			assert.Equal(t, row.parts, strings.Join(observe.FollowTemplate(m, row.set), ", "))
			assert.Equal(t, want, m)
			assert.Empty(t, observe.FollowTemplate(m, row.set), "once is enough")
			assert.Equal(t, mould, row.set)
		})
	}
}

// What a machine took from a template is its own: whoever changes the machine changes no template.
func TestFollowTemplateSharesNothing(t *testing.T) {
	s := moulded()
	m := machine("m", func(m *v1alpha1.Machine) { m.Labels = nil })
	mould := s.DeepCopy()
	assert.Equal(t, []string{"configuration", "labels", "annotations", "node template", "class kind"}, observe.FollowTemplate(m, s))
	m.Labels["tier"], m.Annotations["team"], m.Spec.NodeTemplateSpec.Labels["pool"] = "x", "x", "x"
	m.Spec.MachineDrainTimeout.Duration = 0
	assert.Equal(t, mould, s)
}

func TestMS60_AMachineThatFollowsStaysTheSame(t *testing.T) {
	s := moulded()
	m := machine("m", of(s), templated, version("9"), func(m *v1alpha1.Machine) {
		m.Finalizers = []string{v1alpha1.FinalizerMachine, "example.com/mine"}
		m.Spec.ProviderID, m.Status.CurrentStatus.Phase = "fake:///i-1", v1alpha1.MachineRunning
		m.Labels["topology.kubernetes.io/zone"] = "a"
	})
	before := m.DeepCopy()
	assert.NotEmpty(t, observe.FollowTemplate(m, s))
	assert.Equal(t, before.Finalizers, m.Finalizers, "the template's are for new machines")
	assert.Equal(t, before.OwnerReferences, m.OwnerReferences)
	assert.Equal(t, []any{"m", before.UID, "9", "fake:///i-1", "a"}, []any{m.Name, m.UID, m.ResourceVersion, m.Spec.ProviderID, m.Labels["topology.kubernetes.io/zone"]})
	assert.Equal(t, before.Status, m.Status)
	zoned := &v1alpha1.MachineClass{NodeTemplate: &v1alpha1.NodeTemplate{Zone: "a"}}
	assert.Equal(t, "a", observe.FailureDomain(m, zoned))
}
