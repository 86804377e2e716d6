package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	activitiesdrain "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/drain"
)

// withUpdateSelectionTime selects a node for an in-place update at the given time.
func withUpdateSelectionTime(at time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		activitiestest.WithSelectedLabels(n)
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type:               v1alpha1.NodeInPlaceUpdate,
			Status:             corev1.ConditionTrue,
			Reason:             v1alpha1.ReasonSelectedForUpdate,
			LastTransitionTime: metav1.NewTime(at).Rfc3339Copy(),
		})
	}
}

// withDrainOfStayingMachine gives a machine the record of a drain of its node.
func withDrainOfStayingMachine(
	purpose v1alpha1.DrainPurpose,
	occasion time.Time,
	drain v1alpha1.MachineDrain,
) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.Drain = &v1alpha1.StayingDrain{
			Purpose:      purpose,
			Occasion:     metav1.NewTime(occasion).Rfc3339Copy(),
			MachineDrain: drain,
		}
	}
}

// withFailureAndPreservation makes a machine that has failed and is preserved until the given time.
func withFailureAndPreservation(until time.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		setFailedLongAgo(m)
		withPreserveAnnotation("now")(m)
		m.Status.CurrentStatus.PreserveExpiryTime = new(metav1.NewTime(until).Rfc3339Copy())
	}
}

func TestDecideDrainOfNodeWhoseMachineStays(t *testing.T) {
	t.Parallel()
	at, later := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	begun := v1alpha1.MachineDrain{
		StartedAt:  metav1.NewTime(time.Now().Add(-3 * time.Hour)),
		Means:      "Delete",
		MeansSince: new(metav1.Now()),
	}
	over := v1alpha1.MachineDrain{StartedAt: metav1.Now(), Result: vocabulary.DrainResultDrained}
	running := activitiestest.WithPhase(v1alpha1.MachineRunning)
	for name, row := range map[string]struct {
		machine []func(*v1alpha1.Machine)
		node    []func(*corev1.Node)
		purpose v1alpha1.DrainPurpose
		means   drain.RemovalMeans
		result  string
	}{
		"its update is to begin":                 {[]func(*v1alpha1.Machine){running}, []func(*corev1.Node){withUpdateSelectionTime(at)}, v1alpha1.DrainForUpdate, drain.MeansEvict, ""},
		"its time is over":                       {[]func(*v1alpha1.Machine){running, withDrainOfStayingMachine(v1alpha1.DrainForUpdate, at, begun)}, []func(*corev1.Node){withUpdateSelectionTime(at)}, v1alpha1.DrainForUpdate, drain.MeansDelete, ""},
		"the time of an earlier update is not":   {[]func(*v1alpha1.Machine){running, withDrainOfStayingMachine(v1alpha1.DrainForUpdate, at.Add(-time.Hour), begun)}, []func(*corev1.Node){withUpdateSelectionTime(at)}, v1alpha1.DrainForUpdate, drain.MeansEvict, ""},
		"the label asks for force":               {[]func(*v1alpha1.Machine){running, activitiestest.WithLabel(v1alpha1.LabelForceDrain, "True")}, []func(*corev1.Node){withUpdateSelectionTime(at)}, v1alpha1.DrainForUpdate, drain.MeansKill, ""},
		"the label of deletions does not":        {[]func(*v1alpha1.Machine){running, activitiestest.WithLabel(v1alpha1.LabelForceDeletion, "True")}, []func(*corev1.Node){withUpdateSelectionTime(at)}, v1alpha1.DrainForUpdate, drain.MeansEvict, ""},
		"not ready for more than 5 minutes":      {[]func(*v1alpha1.Machine){running}, []func(*corev1.Node){withUpdateSelectionTime(at), activitiestest.WithNodeNotReady(6 * time.Minute)}, v1alpha1.DrainForUpdate, drain.MeansKill, ""},
		"it is over":                             {[]func(*v1alpha1.Machine){running, withDrainOfStayingMachine(v1alpha1.DrainForUpdate, at, over)}, []func(*corev1.Node){withUpdateSelectionTime(at)}, v1alpha1.DrainForUpdate, "", vocabulary.DrainResultDrained},
		"the update was called off":              {[]func(*v1alpha1.Machine){running}, nil, v1alpha1.DrainForUpdate, "", activitiesdrain.ResultCancelled},
		"the machine is being deleted":           {[]func(*v1alpha1.Machine){running, activitiestest.WithDeletionTimestamp[*v1alpha1.Machine]}, []func(*corev1.Node){withUpdateSelectionTime(at)}, v1alpha1.DrainForUpdate, "", activitiesdrain.ResultCancelled},
		"it is preserved":                        {[]func(*v1alpha1.Machine){withFailureAndPreservation(later)}, nil, v1alpha1.DrainForPreservation, drain.MeansEvict, ""},
		"an earlier preservation is another one": {[]func(*v1alpha1.Machine){withFailureAndPreservation(later), withDrainOfStayingMachine(v1alpha1.DrainForPreservation, at, over)}, nil, v1alpha1.DrainForPreservation, drain.MeansEvict, ""},
		"its preservation is over":               {[]func(*v1alpha1.Machine){withFailureAndPreservation(at)}, nil, v1alpha1.DrainForPreservation, "", activitiesdrain.ResultCancelled},
		"it has recovered":                       {[]func(*v1alpha1.Machine){withFailureAndPreservation(later), running}, nil, v1alpha1.DrainForPreservation, "", activitiesdrain.ResultCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", append([]func(*v1alpha1.Machine){activitiestest.WithNode}, row.machine...)...)
			w := activitiestest.NewWorld(t, m, activitiestest.NewNode(row.node...))
			d := activitiestest.RunActivityTwice[activitiesdrain.Decision](
				w,
				(&activitiesdrain.Activities{Kube: w.Kube}).DecideDrain,
				activitiesdrain.Input{ReadInput: activitiestest.NewReadInput(m), Purpose: string(row.purpose)},
			)
			assert.Equal(t, row.result, d.Result)
			assert.Equal(t, row.means, d.Step.Means)
			assert.Empty(t, w.MutatingRequests())
		})
	}
}

func TestDrainOfANodeWhoseMachineStaysIsRecorded(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
	w := activitiestest.NewWorld(t, m, activitiestest.NewNode(withUpdateSelectionTime(at)))
	what := attention.DrainPurpose{For: vocabulary.DrainForInPlaceUpdate, Occasion: at}
	report := func(d machine.DrainProgress) *v1alpha1.StayingDrain {
		d.Purpose = what
		in := machine.Report{Read: kube.ReadInput{Ref: activitiestest.NewRef(m), Live: true}, Drain: &d}
		activitiestest.RunActivityTwice[kube.ReportResult](w, newActivities(w.Kube).ReportMachine, in)
		return w.Machine("m").Status.Drain
	}
	got := report(machine.DrainProgress{Means: "Evict"})
	began := got.StartedAt
	assert.Equal(t, "Evict", got.Means)
	assert.False(t, began.IsZero())
	got = report(machine.DrainProgress{Result: vocabulary.DrainResultForced, LeftBehind: []string{"web/a"}})
	assert.Equal(t, began, got.StartedAt)
	assert.Equal(t, []string{"web/a"}, got.LeftBehind)
	assert.Equal(
		t,
		vocabulary.DrainResultForced,
		report(machine.DrainProgress{Means: "Evict"}).Result,
		"what ended stays ended",
	)
	what.Occasion = at.Add(time.Second)
	got = report(machine.DrainProgress{Means: "Evict"})
	assert.Empty(t, got.Result, "another update is another drain")
}

func TestConditionOfAPreservedNodeSaysHowItsDrainEnded(t *testing.T) {
	t.Parallel()
	until := activitiestest.PreservationEnd.Time
	for result, want := range map[string]string{
		"":                            "Preserved node is not drained. ",
		vocabulary.DrainResultDrained: "Preserved node drained successfully. ",
		vocabulary.DrainResultForced:  "Preserved node could not be drained. ",
		vocabulary.DrainResultSkipped: "Preserved node could not be drained. ",
	} {
		m := activitiestest.NewMachine(
			"m",
			activitiestest.WithNode,
			withFailureAndPreservation(until),
			withDrainOfStayingMachine(v1alpha1.DrainForPreservation, until, v1alpha1.MachineDrain{Result: result}),
		)
		w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
		_, err := activitiestest.RunActivity[kube.MinVersions](
			w,
			newActivities(w.Kube).PreserveMachine,
			readInputAfterPreservationStart(m, time.Hour),
		)
		require.NoError(t, err)
		for _, c := range w.Node().Status.Conditions {
			if c.Type == v1alpha1.NodePreserved {
				assert.Equal(t, want+preservedMachineMessage, c.Message)
			}
		}
		assert.Len(t, w.Node().Status.Conditions, 2)
	}
}

func TestCordonNodeSkipsNodeWithHeldDrain(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))
	w := activitiestest.NewWorld(
		t,
		m,
		activitiestest.NewNode(withUpdateSelectionTime(time.Now()), func(n *corev1.Node) { n.Spec.Unschedulable = true }),
	)
	activitiestest.RunActivityTwice[string](
		w,
		(&activitiesdrain.Activities{Kube: w.Kube}).HoldDrain,
		activitiesdrain.HoldInput{Read: activitiestest.NewReadInput(m), Why: "alice"},
	)
	activitiestest.RunActivityTwice[kube.MinVersions](
		w,
		newActivities(w.Kube).UncordonNode,
		kube.ReadInput{Ref: activitiestest.NewRef(m), Live: true},
	)
	assert.False(t, w.Node().Spec.Unschedulable)
	activitiestest.RunActivityTwice[kube.MinVersions](
		w,
		newActivities(w.Kube).CordonNode,
		kube.ReadInput{Ref: activitiestest.NewRef(m), Live: true},
	)
	assert.False(t, w.Node().Spec.Unschedulable)
}
