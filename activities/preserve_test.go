package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

// keptFrom is the workflow's time when a preservation begins. It is later than any worker's, so that it counts. Times are
// local ones, as those that come out of an API server's answer.
var (
	keptFrom  = time.Date(2100, 3, 1, 12, 0, 0, 0, time.UTC).Local()
	keptUntil = metav1.NewTime(keptFrom.Add(v1alpha1.DefaultPreserveTimeout))
)

const (
	runningSentence = "Machine preserved until 2100-03-05T12:00:00Z."
	failedSentence  = "Preserved node is not drained. " + runningSentence
	stopSentence    = "Machine is no longer preserved: "
)

// keepAt is a read of a machine so long after keptFrom.
func keepAt(m metav1.Object, since time.Duration) activities.Read {
	return activities.Read{Ref: ref(m), At: keptFrom.Add(since)}
}

func asks(value string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Annotations = map[string]string{v1alpha1.AnnotationPreserve: value} }
}

func nodeAsks(value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.AnnotationPreserve: value} }
}

// ill is a machine that failed a while ago; its clocks must not move.
func ill(m *v1alpha1.Machine) {
	since := metav1.Unix(1_700_000_000, 0)
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineFailed, LastUpdateTime: since}
	m.Status.LastOperation = v1alpha1.LastOperation{Type: "HealthCheck", State: "Failed", Description: "ill", LastUpdateTime: since}
	m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: since}
	m.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "False", LastTransitionTime: since}}
}

// cordoned is a node with a cordon, taints, annotations and conditions of others.
func cordoned(n *corev1.Node) {
	since := metav1.Unix(1_700_000_000, 0)
	n.Spec.Unschedulable = true
	n.Spec.Taints = []corev1.Taint{
		{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &since},
		{Key: v1alpha1.TaintPreserved, Effect: corev1.TaintEffectNoExecute, Value: "mine"},
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations["mine"] = "1"
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "DiskPressure", Status: "False", LastTransitionTime: since, LastHeartbeatTime: since})
}

// preserveMachine preserves twice, and checks that the gate names what was written.
func preserveMachine(w *world, in activities.Read) {
	w.t.Helper()
	w.settle()
	w.forget()
	machineBefore, nodeBefore := w.machine("m"), w.node()
	want := activities.Gate{}
	gate := twice[activities.Gate](w, w.PreserveMachine, in)
	if m := w.machine("m"); m != nil && m.ResourceVersion != machineBefore.ResourceVersion {
		want[observe.Machines] = m.ResourceVersion
	}
	if n := w.node(); n != nil && n.ResourceVersion != nodeBefore.ResourceVersion {
		want[observe.Nodes] = n.ResourceVersion
	}
	assert.Equal(w.t, want, gate, "the versions to wait for")
}

// preservedCondition returns the condition Preserved of the node, empty when it has none.
func preservedCondition(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodePreserved {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func preservedTaint(n *corev1.Node) *corev1.Taint {
	for _, t := range n.Spec.Taints {
		if observe.IsPreservedTaint(t) {
			return &t
		}
	}
	return nil
}

func TestU131_PreserveMachine(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, phase(v1alpha1.MachineRunning), asks("now"))
	w := newWorld(t, m, node())
	preserveMachine(w, keepAt(m, 0))
	assert.Equal(t, []string{"update machines/status", "update nodes", "patch nodes/status"}, w.writes())
	assert.Equal(t, &keptUntil, w.machine("m").Status.CurrentStatus.PreserveExpiryTime)
	assert.Equal(t, map[string]string{v1alpha1.AnnotationScaleDownDisabled: "true", v1alpha1.AnnotationScaleDownDisabledByMCM: "true"}, w.node().Annotations)
	assert.Nil(t, preservedTaint(w.node()))
	began := metav1.NewTime(keptFrom)
	assert.Equal(t, corev1.NodeCondition{
		Type: v1alpha1.NodePreserved, Status: "True", Reason: v1alpha1.ReasonPreservedByUser, Message: runningSentence, LastTransitionTime: began,
	}, preservedCondition(w.node()))
	assert.Equal(t, []string{"Normal Preserved " + runningSentence}, w.told())

	t.Run("it fails: the end stays, the node is tainted, and nobody is told again", func(t *testing.T) {
		w.setStatus(func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed })
		preserveMachine(w, keepAt(m, time.Hour))
		assert.Equal(t, []string{"update nodes", "patch nodes/status"}, w.writes())
		assert.Equal(t, &keptUntil, w.machine("m").Status.CurrentStatus.PreserveExpiryTime)
		assert.NotNil(t, preservedTaint(w.node()))
		assert.Equal(t, failedSentence, preservedCondition(w.node()).Message)
		assert.Equal(t, began, preservedCondition(w.node()).LastTransitionTime, "it was True before")
		assert.Empty(t, w.told())
	})
	t.Run("it recovers: the taint goes, the rest stays", func(t *testing.T) {
		w.setStatus(func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning })
		preserveMachine(w, keepAt(m, 2*time.Hour))
		assert.Nil(t, preservedTaint(w.node()))
		assert.Equal(t, runningSentence, preservedCondition(w.node()).Message)
		assert.Contains(t, w.node().Annotations, v1alpha1.AnnotationScaleDownDisabled)
	})
	t.Run("its time is over: all of it goes", func(t *testing.T) {
		preserveMachine(w, keepAt(m, v1alpha1.DefaultPreserveTimeout))
		assert.Nil(t, w.machine("m").Status.CurrentStatus.PreserveExpiryTime)
		assert.Empty(t, w.machine("m").Annotations)
		assert.Empty(t, w.node().Annotations)
		assert.Equal(t, corev1.NodeCondition{
			Type: v1alpha1.NodePreserved, Status: "False", Reason: v1alpha1.ReasonPreservationStopped, Message: stopSentence + "its time is over.",
			LastTransitionTime: keptUntil,
		}, preservedCondition(w.node()))
		assert.Equal(t, []string{"Normal PreservationStopped " + stopSentence + "its time is over."}, w.told())
	})
	t.Run("it is asked for again: it begins anew", func(t *testing.T) {
		w.edit(observe.Machines, "m", annotated(v1alpha1.AnnotationPreserve, "now"))
		preserveMachine(w, keepAt(m, 2*v1alpha1.DefaultPreserveTimeout))
		again := "Machine preserved until 2100-03-13T12:00:00Z."
		assert.Equal(t, again, preservedCondition(w.node()).Message)
		assert.Equal(t, []string{"Normal Preserved " + again}, w.told())
	})
}

// setStatus changes the status of the machine m as its own workflow does.
func (w *world) setStatus(change func(*v1alpha1.Machine)) {
	w.t.Helper()
	m := w.machine("m")
	change(m)
	_, err := w.machines.MachineV1alpha1().Machines(shop).UpdateStatus(w.t.Context(), m, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

func TestU132_PreserveAFailedMachine(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, ill, asks("now"))
	w := newWorld(t, m, node(nodeAsks("when-failed"), cordoned))
	before := w.node()
	preserveMachine(w, keepAt(m, 0))
	n := w.node()
	assert.Equal(t, []string{"update machines/status", "patch machines", "update nodes", "patch nodes/status"}, w.writes())
	assert.True(t, n.Spec.Unschedulable, "a cordon by somebody else is left alone")
	assert.Equal(t, before.Spec.Taints, n.Spec.Taints[:2], "as are his taints")
	added := metav1.NewTime(keptFrom)
	assert.Equal(t, &added, preservedTaint(n).TimeAdded)
	assert.Equal(t, before.Status.Conditions, n.Status.Conditions[:2], "and the kubelet's conditions")
	assert.Equal(t, failedSentence, preservedCondition(n).Message)
	assert.Equal(t, map[string]string{
		"mine": "1", v1alpha1.AnnotationPreserve: "when-failed", v1alpha1.AnnotationScaleDownDisabled: "true", v1alpha1.AnnotationScaleDownDisabledByMCM: "true",
	}, n.Annotations)
	assert.Equal(t, map[string]string{v1alpha1.AnnotationLastAppliedPreserve: "when-failed"}, w.machine("m").Annotations)
	assert.Equal(t, []string{"Normal Preserved " + failedSentence}, w.told())

	t.Run("U133: and stop", func(t *testing.T) {
		w.edit(observe.Nodes, "n", map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationPreserve: nil}}})
		preserveMachine(w, keepAt(m, time.Hour))
		after := w.node()
		assert.True(t, after.Spec.Unschedulable)
		assert.Equal(t, before.Spec.Taints, after.Spec.Taints)
		assert.Equal(t, before.Status.Conditions, after.Status.Conditions[:2])
		assert.Equal(t, map[string]string{"mine": "1"}, after.Annotations)
		assert.Empty(t, w.machine("m").Annotations)
		assert.Nil(t, w.machine("m").Status.CurrentStatus.PreserveExpiryTime)
		assert.Equal(t, []string{"Normal PreservationStopped " + stopSentence + "nobody asks for it."}, w.told())
	})
}

func TestU132_WhatAUserDisabledStays(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, asks("now"))
	w := newWorld(t, m, node(func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.AnnotationScaleDownDisabled: "true"} }))
	for since, writes := range [][]string{
		{"update machines/status", "patch nodes/status"},
		{"patch machines", "update machines/status", "patch nodes/status"},
	} {
		preserveMachine(w, keepAt(m, time.Duration(since)*v1alpha1.DefaultPreserveTimeout))
		assert.Equal(t, writes, w.writes())
		assert.Equal(t, map[string]string{v1alpha1.AnnotationScaleDownDisabled: "true"}, w.node().Annotations)
	}
}

func TestD26_PreservationMovesNoClock(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, ill, asks("now"))
	w := newWorld(t, m, node())
	want := w.machine("m").Status
	preserveMachine(w, keepAt(m, 0))
	kept := w.machine("m").Status
	require.NotNil(t, kept.CurrentStatus.PreserveExpiryTime)
	kept.CurrentStatus.PreserveExpiryTime = nil
	assert.Equal(t, want, kept, "lastUpdateTime, the health clock and all else of the status")

	preserveMachine(w, keepAt(m, v1alpha1.DefaultPreserveTimeout))
	assert.Equal(t, want, w.machine("m").Status)
}

func TestP19_AnEndThatIsOnRecordIsNotMoved(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, ill, asks("when-failed"), func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus.PreserveExpiryTime = &keptUntil // written with the phase
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachinePreserveTimeout: duration(time.Minute)}
	})
	w := newWorld(t, m, node())
	preserveMachine(w, keepAt(m, time.Hour))
	assert.Equal(t, []string{"update nodes", "patch nodes/status"}, w.writes())
	assert.Equal(t, []string{"Normal Preserved " + failedSentence}, w.told(), "told when the node says so, whoever wrote the end")
}
