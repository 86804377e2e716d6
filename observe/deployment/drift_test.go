package deployment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/api/v1alpha1"
	"millwright/observe/deployment"
	"millwright/observe/observetest"
)

// CopyDeploymentFields copies some fields of a deployment to a set. CopyDeploymentFields does not change other fields
// of the set.
func TestCopyDeploymentFields(t *testing.T) {
	stays := func(*v1alpha1.MachineSet) {}
	for _, row := range []struct {
		name       string
		deployment observetest.DeploymentChange
		set        observetest.SetChange // change of the set before CopyDeploymentFields
		becomes    observetest.SetChange // expected change of the set afterwards
		same       bool
	}{
		{"nothing differs", func(*v1alpha1.MachineDeployment) {}, stays, stays, true},
		{"an annotation is copied", withDeploymentAnnotation("note", "x"), stays, observetest.WithSetAnnotation("note", "x"), false},
		{"one has another value", withDeploymentAnnotation("note", "x"), observetest.WithSetAnnotation("note", "y"), observetest.WithSetAnnotation("note", "x"), false},
		{"one is there", withDeploymentAnnotation("note", "x"), observetest.WithSetAnnotation("note", "x"), stays, true},
		{"one is empty and missing", withDeploymentAnnotation("note", ""), stays, observetest.WithSetAnnotation("note", ""), false},
		{"those of others stay", func(*v1alpha1.MachineDeployment) {}, observetest.WithSetAnnotation("mine", "y"), stays, true},
		{"one that the deployment has no more stays: somebody else may have set it", withDeploymentAnnotation("note", "x"), observetest.WithSetAnnotation("once", "y"), observetest.WithSetAnnotation("note", "x"), false},
		{"when the autoscaler changed the size", withDeploymentAnnotation(v1alpha1.AnnotationLastScalerChange, "t"), stays, observetest.WithSetAnnotation(v1alpha1.AnnotationLastScalerChange, "t"), false},
		{"what the dependency-watchdog measured", withDeploymentAnnotation(v1alpha1.AnnotationEffectiveCreationTimeout, "7m"), stays, observetest.WithSetAnnotation(v1alpha1.AnnotationEffectiveCreationTimeout, "7m"), false},
		{"why a revision was made", withDeploymentAnnotation(v1alpha1.AnnotationChangeCause, "x"), stays, observetest.WithSetAnnotation(v1alpha1.AnnotationChangeCause, "x"), false},
		{"minReadySeconds", func(d *v1alpha1.MachineDeployment) { d.Spec.MinReadySeconds = 5 }, stays, func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 5 }, false},
		{"back to the default", func(*v1alpha1.MachineDeployment) {}, func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 5 }, func(s *v1alpha1.MachineSet) { s.Spec.MinReadySeconds = 0 }, false},
		{"how many failed ones are kept", func(d *v1alpha1.MachineDeployment) { d.Spec.AutoPreserveFailedMachineMax = 2 }, stays, func(s *v1alpha1.MachineSet) { s.Spec.AutoPreserveFailedMachineMax = 2 }, false},
		{"timeouts", func(d *v1alpha1.MachineDeployment) {
			d.Spec.Template.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		}, stays, func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		}, false},
		{"the node template", func(d *v1alpha1.MachineDeployment) {
			d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"a": "b"}
		}, stays, func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"a": "b"}
		}, false},
		{"the kind of the class", func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Kind = "Other" }, stays, func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Kind = "Other" }, false},
		{"its name rolls machines, and makes another set", observetest.WithNewClass, stays, stays, true},
		{"labels of the template do, too", func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Labels["tier"] = "front" }, stays, stays, true},
		{"the size is a decision's", func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 9 }, stays, stays, true},
		{"labels of the deployment are its own", func(d *v1alpha1.MachineDeployment) { d.Labels = map[string]string{"name": "d"} }, stays, stays, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, s := observetest.NewDeployment("d", row.deployment), observetest.NewSet("s", row.set)
			want, before := s.DeepCopy(), d.DeepCopy()
			row.becomes(want)
			assert.Equal(t, !row.same, deployment.CopyDeploymentFields(s, d))
			assert.Equal(t, want, s)
			assert.False(t, deployment.CopyDeploymentFields(s, d), "once is enough")
			assert.Equal(t, before, d)
		})
	}
}

// A set never gets annotations that describe the deployment itself, its size or its rollout.
func TestCopyDeploymentFieldsSkipsOwnAnnotations(t *testing.T) {
	for _, key := range []string{
		"kubectl.kubernetes.io/last-applied-configuration", v1alpha1.AnnotationRevision, v1alpha1.AnnotationRevisionHistory,
		v1alpha1.AnnotationDesiredReplicas, v1alpha1.AnnotationMaxReplicas, v1alpha1.AnnotationPreferNoSchedule, v1alpha1.AnnotationUnfreeze,
		v1alpha1.AnnotationTriggerDeletion, v1alpha1.AnnotationPaused, v1alpha1.AnnotationRolloutHold, v1alpha1.AnnotationRolloutApprove,
		v1alpha1.AnnotationLastRequest, v1alpha1.AnnotationRolloutPausedBy, v1alpha1.AnnotationRolloutRetry,
		v1alpha1.AnnotationRolloutPin, v1alpha1.AnnotationRolloutUndoBy,
	} {
		t.Run(key, func(t *testing.T) {
			d := observetest.NewDeployment("d", withDeploymentAnnotation(key, "the deployment's"))
			without, with := observetest.NewSet("s"), observetest.NewSet("s", observetest.WithSetAnnotation(key, "its own"))
			assert.False(t, deployment.CopyDeploymentFields(without, d))
			assert.NotContains(t, without.Annotations, key)
			assert.False(t, deployment.CopyDeploymentFields(with, d))
			assert.Equal(t, "its own", with.Annotations[key])
		})
	}
}

// A later change of the set must not change the deployment.
func TestCopyDeploymentFieldsMakesDeepCopies(t *testing.T) {
	d := observetest.NewDeployment("d", withDeploymentAnnotation("note", "x"), func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = observetest.ConfigurationWithDrainTimeout(time.Minute)
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"a": "b"}
	})
	before, s := d.DeepCopy(), observetest.NewSet("s")
	assert.True(t, deployment.CopyDeploymentFields(s, d))
	s.Annotations["note"], s.Spec.Template.Spec.NodeTemplateSpec.Labels["a"] = "y", "y"
	s.Spec.Template.Spec.MachineDrainTimeout.Duration = 0
	assert.Equal(t, before, d)
}
