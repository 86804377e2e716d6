package deployment_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/api/v1alpha1"
	"millwright/observe/deployment"
	"millwright/observe/observetest"
)

func TestRestoreTemplateFromSet(t *testing.T) {
	former := observetest.NewSet("d-1", func(s *v1alpha1.MachineSet) {
		s.Spec.Template.Labels[v1alpha1.LabelMachineTemplateHash] = "111"
		s.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "old"}
		s.Spec.Template.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		s.Annotations = map[string]string{
			"team": "shop", v1alpha1.AnnotationChangeCause: "the first image",
			v1alpha1.AnnotationRevision: "1", v1alpha1.AnnotationRevisionHistory: "1,3", v1alpha1.AnnotationDesiredReplicas: "3",
			v1alpha1.AnnotationMaxReplicas: "4", v1alpha1.AnnotationPreferNoSchedule: "True", v1alpha1.AnnotationPaused: "",
			v1alpha1.AnnotationLastScalerChange: "2026-01-01T00:00:00Z", v1alpha1.AnnotationEffectiveCreationTimeout: "1h",
		}
	})
	kept := map[string]string{
		v1alpha1.AnnotationRevision:                        "4",
		v1alpha1.AnnotationTriggerDeletion:                 "m",
		v1alpha1.AnnotationRolloutHold:                     "4 ann: bad",
		v1alpha1.AnnotationLastScalerChange:                "2026-03-01T00:00:00Z",
		"kubectl.kubernetes.io/last-applied-configuration": "{}",
	}
	d := observetest.NewDeployment("d", func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Labels = map[string]string{"app": "web", "tier": "front"}
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "new"}
		d.Spec.Template.Spec.Class.Name = "large"
		d.Annotations = map[string]string{"team": "other", "since": "then", v1alpha1.AnnotationChangeCause: "the bad image"}
		maps.Copy(d.Annotations, kept)
	})
	before := former.DeepCopy()
	deployment.RestoreTemplateFromSet(d, former)
	assert.Equal(t, before, former, "nothing that it reads is changed")

	want := observetest.NewTemplate()
	want.Spec.NodeTemplateSpec.Labels = map[string]string{"pool": "old"}
	want.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
	assert.Equal(t, want, d.Spec.Template, "as a whole, without the hash")
	kept["team"], kept[v1alpha1.AnnotationChangeCause] = "shop", "the first image"
	assert.Equal(t, kept, d.Annotations)

	d.Spec.Template.Labels["app"] = "changed"
	assert.Equal(t, before, former, "nor do they share anything")
}
