package machine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/inplace"
	"millwright/observe/cache"
)

func TestInPlaceUpdateFromStartToEnd(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) *activitiestest.World {
		w := activitiestest.NewWorld(
			t,
			activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning)),
			activitiestest.NewNode(activitiestest.WithForeignMetadata),
		)
		w.ServePods()
		w.AssertInPlaceSteps()
		w.SetNodeLabel(v1alpha1.LabelCandidateForUpdate, "true")
		w.AssertInPlaceSteps(inplace.StepWriteCondition)
		assert.Equal(t, v1alpha1.ReasonCandidateForUpdate, w.UpdateConditionReason())
		w.SetNodeLabel(v1alpha1.LabelSelectedForUpdate, "true")
		require.Equal(t, inplace.StepWriteCondition, activitiestest.RunInPlaceStep(w).Step)
		assert.Equal(t, v1alpha1.ReasonSelectedForUpdate, w.UpdateConditionReason())
		assert.False(t, w.Node().Spec.Unschedulable)
		return w
	}
	t.Run("to the end, and a second time", func(t *testing.T) {
		w := begin(t)
		w.AssertInPlaceSteps(inplace.StepDrain, inplace.StepSetUpdatingPhase, inplace.StepStartAgent)
		assert.Equal(t, v1alpha1.ReasonReadyForUpdate, w.UpdateConditionReason())
		assert.True(t, w.Node().Spec.Unschedulable)
		w.SetNodeLabel(v1alpha1.LabelUpdateResult, v1alpha1.ValueUpdateSuccessful)
		w.AssertInPlaceSteps(inplace.StepWriteCondition)
		assert.Equal(t, v1alpha1.ReasonUpdateSuccessful, w.UpdateConditionReason())

		for _, key := range []string{v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult} {
			w.SetNodeLabel(key, nil)
		}
		w.AssertInPlaceSteps()
		w.SetNodeLabel(v1alpha1.LabelCandidateForUpdate, "true")
		w.AssertInPlaceSteps(inplace.StepWriteCondition)
		assert.Equal(t, v1alpha1.ReasonCandidateForUpdate, w.UpdateConditionReason())
	})
	t.Run("a failure, which is told, and a late success", func(t *testing.T) {
		w := begin(t)
		w.AssertInPlaceSteps(inplace.StepDrain, inplace.StepSetUpdatingPhase, inplace.StepStartAgent)
		w.EditObject(
			cache.NodesResource,
			"n",
			activitiestest.NewAnnotationPatch(v1alpha1.AnnotationUpdateFailedReason, "disk full"),
		)
		w.SetNodeLabel(v1alpha1.LabelUpdateResult, v1alpha1.ValueUpdateFailed)
		w.AssertInPlaceSteps(inplace.StepWriteCondition)
		assert.Equal(t, v1alpha1.ReasonUpdateFailed, w.UpdateConditionReason())
		assert.Equal(t, "disk full", activitiestest.FindUpdateCondition(w.Node()).Message)
		w.SetNodeLabel(v1alpha1.LabelUpdateResult, v1alpha1.ValueUpdateSuccessful)
		w.AssertInPlaceSteps(inplace.StepWriteCondition)
		assert.Equal(t, v1alpha1.ReasonUpdateSuccessful, w.UpdateConditionReason())
	})
	t.Run("called off, uncordoned, and selected again", func(t *testing.T) {
		w := begin(t)
		m := w.Machine("m")
		activitiestest.RunActivityTwice[kube.MinVersions](w, newActivities(w.Kube).CordonNode, activitiestest.NewReadInput(m))
		w.SetNodeLabel(v1alpha1.LabelSelectedForUpdate, nil)
		w.AssertInPlaceSteps()
		w.EditObject(cache.NodesResource, "n", map[string]any{"spec": map[string]any{"unschedulable": nil}})
		activitiestest.RunActivityTwice[kube.MinVersions](w, newActivities(w.Kube).CordonNode, activitiestest.NewReadInput(m))
		w.AssertInPlaceSteps()
		assert.False(t, w.Node().Spec.Unschedulable)
		assert.Equal(t, v1alpha1.ReasonSelectedForUpdate, w.UpdateConditionReason())
		w.SetNodeLabel(v1alpha1.LabelSelectedForUpdate, "true")
		w.AssertInPlaceSteps(inplace.StepDrain, inplace.StepSetUpdatingPhase, inplace.StepStartAgent)
	})
	t.Run("uncordoned when it was empty", func(t *testing.T) {
		w := begin(t)
		require.Equal(t, inplace.StepDrain, activitiestest.RunInPlaceStep(w).Step)
		assert.Equal(t, v1alpha1.ReasonDrainSuccessful, w.UpdateConditionReason())
		w.EditObject(cache.NodesResource, "n", map[string]any{"spec": map[string]any{"unschedulable": nil}})
		w.AssertInPlaceSteps(inplace.StepDrain, inplace.StepSetUpdatingPhase, inplace.StepStartAgent)
	})
	t.Run("the node goes", func(t *testing.T) {
		w := begin(t)
		require.NoError(t, w.TargetClient.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n"))
		assert.Equal(t, inplace.Decision{}, activitiestest.RunInPlaceStep(w))
	})
}
