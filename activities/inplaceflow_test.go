package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/inplace"
	"millwright/observe"
)

// advance does what one decision about the in-place update of the machine m asks for, each step twice, and returns the
// decision.
func advance(w *world) inplace.Decision {
	w.t.Helper()
	m := w.machine("m")
	d := observe.InPlace(m, w.node())
	told := activities.InPlaceMark{Read: read(m), Reason: d.Reason, Message: d.Message}
	switch d.Step {
	case inplace.Nothing:
	case inplace.Drain:
		twice[activities.Gate](w, w.CordonNode, read(m))
		twice[activities.Gate](w, w.MarkInPlace, told)
	case inplace.Update:
		m.Status.CurrentStatus.Phase = v1alpha1.MachineInPlaceUpdating
		w.rewrite(m)
	case inplace.Condition, inplace.Ready:
		twice[activities.Gate](w, w.MarkInPlace, told)
	}
	return d
}

// advances expects these steps, and then no other.
func (w *world) advances(steps ...inplace.Step) {
	w.t.Helper()
	for _, step := range append(steps, inplace.Nothing) {
		d := advance(w)
		require.Equal(w.t, step, d.Step, d.Why)
	}
}

// label gives the node a label of its update; nil takes it away.
func (w *world) label(key string, value any) {
	w.edit(observe.Nodes, "n", map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
}

func (w *world) reason() string {
	w.t.Helper()
	c := updateCondition(w.node())
	require.NotNil(w.t, c)
	return c.Reason
}

func TestU127_FlowOfAnInPlaceUpdate(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) *world {
		w := newWorld(t, machine("m", onNode, phase(v1alpha1.MachineRunning)), node(lived))
		w.servePods()
		w.advances()
		w.label(v1alpha1.LabelCandidateForUpdate, "true")
		w.advances(inplace.Condition)
		assert.Equal(t, v1alpha1.ReasonCandidateForUpdate, w.reason())
		w.label(v1alpha1.LabelSelectedForUpdate, "true")
		require.Equal(t, inplace.Condition, advance(w).Step)
		assert.Equal(t, v1alpha1.ReasonSelectedForUpdate, w.reason())
		assert.False(t, w.node().Spec.Unschedulable)
		return w
	}
	t.Run("U127: to the end, and a second time", func(t *testing.T) {
		w := begin(t)
		w.advances(inplace.Drain, inplace.Update, inplace.Ready)
		assert.Equal(t, v1alpha1.ReasonReadyForUpdate, w.reason())
		assert.True(t, w.node().Spec.Unschedulable)
		w.label(v1alpha1.LabelUpdateResult, v1alpha1.ValueUpdateSuccessful)
		w.advances(inplace.Condition)
		assert.Equal(t, v1alpha1.ReasonUpdateSuccessful, w.reason())

		for _, key := range []string{v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult} {
			w.label(key, nil)
		}
		w.advances()
		w.label(v1alpha1.LabelCandidateForUpdate, "true")
		w.advances(inplace.Condition)
		assert.Equal(t, v1alpha1.ReasonCandidateForUpdate, w.reason())
	})
	t.Run("U127: a failure, which is told, and a late success", func(t *testing.T) {
		w := begin(t)
		w.advances(inplace.Drain, inplace.Update, inplace.Ready)
		w.edit(observe.Nodes, "n", annotated(v1alpha1.AnnotationUpdateFailedReason, "disk full"))
		w.label(v1alpha1.LabelUpdateResult, v1alpha1.ValueUpdateFailed)
		w.advances(inplace.Condition)
		assert.Equal(t, v1alpha1.ReasonUpdateFailed, w.reason())
		assert.Equal(t, "disk full", updateCondition(w.node()).Message)
		w.label(v1alpha1.LabelUpdateResult, v1alpha1.ValueUpdateSuccessful)
		w.advances(inplace.Condition)
		assert.Equal(t, v1alpha1.ReasonUpdateSuccessful, w.reason())
	})
	t.Run("U127: called off, uncordoned, and selected again", func(t *testing.T) {
		w := begin(t)
		m := w.machine("m")
		twice[activities.Gate](w, w.CordonNode, read(m))
		w.label(v1alpha1.LabelSelectedForUpdate, nil)
		w.advances()
		w.edit(observe.Nodes, "n", map[string]any{"spec": map[string]any{"unschedulable": nil}})
		twice[activities.Gate](w, w.CordonNode, read(m)) // it was on its way
		w.advances()
		assert.False(t, w.node().Spec.Unschedulable)
		assert.Equal(t, v1alpha1.ReasonSelectedForUpdate, w.reason())
		w.label(v1alpha1.LabelSelectedForUpdate, "true")
		w.advances(inplace.Drain, inplace.Update, inplace.Ready)
	})
	t.Run("U127: uncordoned when it was empty", func(t *testing.T) {
		w := begin(t)
		require.Equal(t, inplace.Drain, advance(w).Step)
		assert.Equal(t, v1alpha1.ReasonDrainSuccessful, w.reason())
		w.edit(observe.Nodes, "n", map[string]any{"spec": map[string]any{"unschedulable": nil}})
		w.advances(inplace.Drain, inplace.Update, inplace.Ready)
	})
	t.Run("U127: the node goes", func(t *testing.T) {
		w := begin(t)
		require.NoError(t, w.target.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n"))
		assert.Equal(t, inplace.Decision{}, advance(w))
	})
}
