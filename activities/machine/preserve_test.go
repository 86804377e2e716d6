package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	observemachine "millwright/observe/machine"
)

const (
	preservedMachineMessage       = "Machine preserved until 2100-03-05T12:00:00Z."
	preservedFailedMachineMessage = "Preserved node is not drained. " + preservedMachineMessage
	preservationStoppedPrefix     = "Machine is no longer preserved: "
)

// readInputAfterPreservationStart returns a ReadInput of a machine at PreservationStart plus the given duration.
func readInputAfterPreservationStart(m metav1.Object, since time.Duration) kube.ReadInput {
	return kube.ReadInput{Ref: activitiestest.NewRef(m), At: activitiestest.PreservationStart.Add(since)}
}

func withPreserveAnnotation(value string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Annotations = map[string]string{v1alpha1.AnnotationPreserve: value} }
}

func withNodePreserveAnnotation(value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.AnnotationPreserve: value} }
}

// setFailedLongAgo changes a machine so that it failed long ago. The activity must not change the timestamps in its
// status.
func setFailedLongAgo(m *v1alpha1.Machine) {
	since := metav1.Unix(1_700_000_000, 0)
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineFailed, LastUpdateTime: since}
	m.Status.LastOperation = v1alpha1.LastOperation{
		Type:           "HealthCheck",
		State:          "Failed",
		Description:    "ill",
		LastUpdateTime: since,
	}
	m.Status.Health = &v1alpha1.MachineHealth{UnhealthySince: since}
	m.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "False", LastTransitionTime: since}}
}

// addChangesOfOtherControllers gives a node a cordon, taints, annotations and conditions of other controllers.
func addChangesOfOtherControllers(n *corev1.Node) {
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
	n.Status.Conditions = append(
		n.Status.Conditions,
		corev1.NodeCondition{Type: "DiskPressure", Status: "False", LastTransitionTime: since, LastHeartbeatTime: since},
	)
}

// preserveMachine runs PreserveMachine twice, and checks that it returns the versions of the written objects.
func preserveMachine(w *activitiestest.World, in kube.ReadInput) {
	w.T.Helper()
	w.AwaitCaches()
	w.ForgetRequests()
	machineBefore, nodeBefore := w.Machine("m"), w.Node()
	want := kube.MinVersions{}
	versions := activitiestest.RunActivityTwice[kube.MinVersions](w, newActivities(w.Kube).PreserveMachine, in)
	if m := w.Machine("m"); m != nil && m.ResourceVersion != machineBefore.ResourceVersion {
		want[cache.MachinesResource] = m.ResourceVersion
	}
	if n := w.Node(); n != nil && n.ResourceVersion != nodeBefore.ResourceVersion {
		want[cache.NodesResource] = n.ResourceVersion
	}
	assert.Equal(w.T, want, versions, "the versions to wait for")
}

// preservedCondition returns the condition Preserved of the node; empty if the node has none.
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
		if observemachine.IsPreservationTaint(t) {
			return &t
		}
	}
	return nil
}

func TestPreserveMachine(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		activitiestest.WithPhase(v1alpha1.MachineRunning),
		withPreserveAnnotation("now"),
	)
	w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
	preserveMachine(w, readInputAfterPreservationStart(m, 0))
	assert.Equal(t, []string{"update machines/status", "update nodes", "patch nodes/status"}, w.MutatingRequests())
	assert.Equal(t, &activitiestest.PreservationEnd, w.Machine("m").Status.CurrentStatus.PreserveExpiryTime)
	assert.Equal(
		t,
		map[string]string{v1alpha1.AnnotationScaleDownDisabled: "true", v1alpha1.AnnotationScaleDownDisabledByMCM: "true"},
		w.Node().Annotations,
	)
	assert.Nil(t, preservedTaint(w.Node()))
	began := metav1.NewTime(activitiestest.PreservationStart)
	assert.Equal(t, corev1.NodeCondition{
		Type:               v1alpha1.NodePreserved,
		Status:             "True",
		Reason:             v1alpha1.ReasonPreservedByUser,
		Message:            preservedMachineMessage,
		LastTransitionTime: began,
	}, preservedCondition(w.Node()))
	assert.Equal(t, []string{"Normal Preserved " + preservedMachineMessage}, w.TakeNewEvents())

	t.Run("it fails: the end stays, the node is tainted, and nobody is told again", func(t *testing.T) {
		w.UpdateStatusAsWorkflow(func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed })
		preserveMachine(w, readInputAfterPreservationStart(m, time.Hour))
		assert.Equal(t, []string{"update nodes", "patch nodes/status"}, w.MutatingRequests())
		assert.Equal(t, &activitiestest.PreservationEnd, w.Machine("m").Status.CurrentStatus.PreserveExpiryTime)
		assert.NotNil(t, preservedTaint(w.Node()))
		assert.Equal(t, preservedFailedMachineMessage, preservedCondition(w.Node()).Message)
		assert.Equal(t, began, preservedCondition(w.Node()).LastTransitionTime, "it was True before")
		assert.Empty(t, w.TakeNewEvents())
	})
	t.Run("it recovers: the taint goes, the rest stays", func(t *testing.T) {
		w.UpdateStatusAsWorkflow(func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning })
		preserveMachine(w, readInputAfterPreservationStart(m, 2*time.Hour))
		assert.Nil(t, preservedTaint(w.Node()))
		assert.Equal(t, preservedMachineMessage, preservedCondition(w.Node()).Message)
		assert.Contains(t, w.Node().Annotations, v1alpha1.AnnotationScaleDownDisabled)
	})
	t.Run("its time is over: all of it goes", func(t *testing.T) {
		preserveMachine(w, readInputAfterPreservationStart(m, v1alpha1.DefaultPreserveTimeout))
		assert.Nil(t, w.Machine("m").Status.CurrentStatus.PreserveExpiryTime)
		assert.Empty(t, w.Machine("m").Annotations)
		assert.Empty(t, w.Node().Annotations)
		assert.Equal(t, corev1.NodeCondition{
			Type:               v1alpha1.NodePreserved,
			Status:             "False",
			Reason:             v1alpha1.ReasonPreservationStopped,
			Message:            preservationStoppedPrefix + "its time is over.",
			LastTransitionTime: activitiestest.PreservationEnd,
		}, preservedCondition(w.Node()))
		assert.Equal(
			t,
			[]string{"Normal PreservationStopped " + preservationStoppedPrefix + "its time is over."},
			w.TakeNewEvents(),
		)
	})
	t.Run("it is asked for again: it begins anew", func(t *testing.T) {
		w.EditObject(cache.MachinesResource, "m", activitiestest.NewAnnotationPatch(v1alpha1.AnnotationPreserve, "now"))
		preserveMachine(w, readInputAfterPreservationStart(m, 2*v1alpha1.DefaultPreserveTimeout))
		again := "Machine preserved until 2100-03-13T12:00:00Z."
		assert.Equal(t, again, preservedCondition(w.Node()).Message)
		assert.Equal(t, []string{"Normal Preserved " + again}, w.TakeNewEvents())
	})
}

func TestPreserveAFailedMachine(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now"))
	w := activitiestest.NewWorld(
		t,
		m,
		activitiestest.NewNode(withNodePreserveAnnotation("when-failed"), addChangesOfOtherControllers),
	)
	before := w.Node()
	preserveMachine(w, readInputAfterPreservationStart(m, 0))
	n := w.Node()
	assert.Equal(
		t,
		[]string{"update machines/status", "patch machines", "update nodes", "patch nodes/status"},
		w.MutatingRequests(),
	)
	assert.True(t, n.Spec.Unschedulable, "a cordon by somebody else is left alone")
	assert.Equal(t, before.Spec.Taints, n.Spec.Taints[:2], "as are his taints")
	added := metav1.NewTime(activitiestest.PreservationStart)
	assert.Equal(t, &added, preservedTaint(n).TimeAdded)
	assert.Equal(t, before.Status.Conditions, n.Status.Conditions[:2], "and the kubelet's conditions")
	assert.Equal(t, preservedFailedMachineMessage, preservedCondition(n).Message)
	assert.Equal(t, map[string]string{
		"mine":                                    "1",
		v1alpha1.AnnotationPreserve:               "when-failed",
		v1alpha1.AnnotationScaleDownDisabled:      "true",
		v1alpha1.AnnotationScaleDownDisabledByMCM: "true",
	}, n.Annotations)
	assert.Equal(t, map[string]string{v1alpha1.AnnotationLastAppliedPreserve: "when-failed"}, w.Machine("m").Annotations)
	assert.Equal(t, []string{"Normal Preserved " + preservedFailedMachineMessage}, w.TakeNewEvents())

	t.Run("and stop", func(t *testing.T) {
		w.EditObject(
			cache.NodesResource,
			"n",
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationPreserve: nil}}},
		)
		preserveMachine(w, readInputAfterPreservationStart(m, time.Hour))
		after := w.Node()
		assert.True(t, after.Spec.Unschedulable)
		assert.Equal(t, before.Spec.Taints, after.Spec.Taints)
		assert.Equal(t, before.Status.Conditions, after.Status.Conditions[:2])
		assert.Equal(t, map[string]string{"mine": "1"}, after.Annotations)
		assert.Empty(t, w.Machine("m").Annotations)
		assert.Nil(t, w.Machine("m").Status.CurrentStatus.PreserveExpiryTime)
		assert.Equal(
			t,
			[]string{"Normal PreservationStopped " + preservationStoppedPrefix + "nobody requests it."},
			w.TakeNewEvents(),
		)
	})
}

func TestScaleDownThatAUserDisabledStaysDisabled(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, withPreserveAnnotation("now"))
	w := activitiestest.NewWorld(
		t,
		m,
		activitiestest.NewNode(
			func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.AnnotationScaleDownDisabled: "true"} },
		),
	)
	for since, writes := range [][]string{
		{"update machines/status", "patch nodes/status"},
		{"patch machines", "update machines/status", "patch nodes/status"},
	} {
		preserveMachine(w, readInputAfterPreservationStart(m, time.Duration(since)*v1alpha1.DefaultPreserveTimeout))
		assert.Equal(t, writes, w.MutatingRequests())
		assert.Equal(t, map[string]string{v1alpha1.AnnotationScaleDownDisabled: "true"}, w.Node().Annotations)
	}
}

func TestPreservationKeepsStatusTimestamps(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, setFailedLongAgo, withPreserveAnnotation("now"))
	w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
	want := w.Machine("m").Status
	preserveMachine(w, readInputAfterPreservationStart(m, 0))
	kept := w.Machine("m").Status
	require.NotNil(t, kept.CurrentStatus.PreserveExpiryTime)
	kept.CurrentStatus.PreserveExpiryTime = nil
	assert.Equal(t, want, kept, "lastUpdateTime, the health clock and all else of the status")

	preserveMachine(w, readInputAfterPreservationStart(m, v1alpha1.DefaultPreserveTimeout))
	assert.Equal(t, want, w.Machine("m").Status)
}

func TestRecordedPreserveExpiryTimeIsKept(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		setFailedLongAgo,
		withPreserveAnnotation("when-failed"),
		func(m *v1alpha1.Machine) {
			// the end of the preservation was written together with the phase
			m.Status.CurrentStatus.PreserveExpiryTime = &activitiestest.PreservationEnd
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
				MachinePreserveTimeout: activitiestest.NewDuration(time.Minute),
			}
		},
	)
	w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
	preserveMachine(w, readInputAfterPreservationStart(m, time.Hour))
	assert.Equal(t, []string{"update nodes", "patch nodes/status"}, w.MutatingRequests())
	assert.Equal(
		t,
		[]string{"Normal Preserved " + preservedFailedMachineMessage},
		w.TakeNewEvents(),
		"told when the node says so, whoever wrote the end",
	)
}
