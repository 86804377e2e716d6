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

func TestFlowOfAnInPlaceUpdate(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) *activitiestest.World {
		w := activitiestest.NewWorld(
			t,
			activitiestest.Machine("m", activitiestest.OnNode, activitiestest.Phase(v1alpha1.MachineRunning)),
			activitiestest.Node(activitiestest.Lived),
		)
		w.ServePods()
		w.Advances()
		w.Label(v1alpha1.LabelCandidateForUpdate, "true")
		w.Advances(inplace.Condition)
		assert.Equal(t, v1alpha1.ReasonCandidateForUpdate, w.Reason())
		w.Label(v1alpha1.LabelSelectedForUpdate, "true")
		require.Equal(t, inplace.Condition, activitiestest.Advance(w).Step)
		assert.Equal(t, v1alpha1.ReasonSelectedForUpdate, w.Reason())
		assert.False(t, w.Node().Spec.Unschedulable)
		return w
	}
	t.Run("to the end, and a second time", func(t *testing.T) {
		w := begin(t)
		w.Advances(inplace.Drain, inplace.Update, inplace.Ready)
		assert.Equal(t, v1alpha1.ReasonReadyForUpdate, w.Reason())
		assert.True(t, w.Node().Spec.Unschedulable)
		w.Label(v1alpha1.LabelUpdateResult, v1alpha1.ValueUpdateSuccessful)
		w.Advances(inplace.Condition)
		assert.Equal(t, v1alpha1.ReasonUpdateSuccessful, w.Reason())

		for _, key := range []string{v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult} {
			w.Label(key, nil)
		}
		w.Advances()
		w.Label(v1alpha1.LabelCandidateForUpdate, "true")
		w.Advances(inplace.Condition)
		assert.Equal(t, v1alpha1.ReasonCandidateForUpdate, w.Reason())
	})
	t.Run("a failure, which is told, and a late success", func(t *testing.T) {
		w := begin(t)
		w.Advances(inplace.Drain, inplace.Update, inplace.Ready)
		w.Edit(cache.Nodes, "n", activitiestest.Annotated(v1alpha1.AnnotationUpdateFailedReason, "disk full"))
		w.Label(v1alpha1.LabelUpdateResult, v1alpha1.ValueUpdateFailed)
		w.Advances(inplace.Condition)
		assert.Equal(t, v1alpha1.ReasonUpdateFailed, w.Reason())
		assert.Equal(t, "disk full", activitiestest.UpdateCondition(w.Node()).Message)
		w.Label(v1alpha1.LabelUpdateResult, v1alpha1.ValueUpdateSuccessful)
		w.Advances(inplace.Condition)
		assert.Equal(t, v1alpha1.ReasonUpdateSuccessful, w.Reason())
	})
	t.Run("called off, uncordoned, and selected again", func(t *testing.T) {
		w := begin(t)
		m := w.Machine("m")
		activitiestest.Twice[kube.MinVersions](w, newActivities(w.Kube).CordonNode, activitiestest.Read(m))
		w.Label(v1alpha1.LabelSelectedForUpdate, nil)
		w.Advances()
		w.Edit(cache.Nodes, "n", map[string]any{"spec": map[string]any{"unschedulable": nil}})
		// an in-place update is in progress
		activitiestest.Twice[kube.MinVersions](w, newActivities(w.Kube).CordonNode, activitiestest.Read(m))
		w.Advances()
		assert.False(t, w.Node().Spec.Unschedulable)
		assert.Equal(t, v1alpha1.ReasonSelectedForUpdate, w.Reason())
		w.Label(v1alpha1.LabelSelectedForUpdate, "true")
		w.Advances(inplace.Drain, inplace.Update, inplace.Ready)
	})
	t.Run("uncordoned when it was empty", func(t *testing.T) {
		w := begin(t)
		require.Equal(t, inplace.Drain, activitiestest.Advance(w).Step)
		assert.Equal(t, v1alpha1.ReasonDrainSuccessful, w.Reason())
		w.Edit(cache.Nodes, "n", map[string]any{"spec": map[string]any{"unschedulable": nil}})
		w.Advances(inplace.Drain, inplace.Update, inplace.Ready)
	})
	t.Run("the node goes", func(t *testing.T) {
		w := begin(t)
		require.NoError(t, w.Target.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n"))
		assert.Equal(t, inplace.Decision{}, activitiestest.Advance(w))
	})
}
