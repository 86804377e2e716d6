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
	"millwright/decide/drain"
	"millwright/observe"
)

// selectedAt makes a node one that is to be empty for its in-place update since then.
func selectedAt(at time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		isChosen(n)
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonSelectedForUpdate, LastTransitionTime: metav1.NewTime(at).Rfc3339Copy(),
		})
	}
}

// emptied makes a machine one whose node was emptied before, or is being emptied.
func emptied(purpose activities.Purpose, occasion time.Time, drain v1alpha1.MachineDrain) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.Drain = &v1alpha1.StayingDrain{Purpose: purpose, Occasion: metav1.NewTime(occasion).Rfc3339Copy(), MachineDrain: drain}
	}
}

// keptUntilLater makes a machine one that has failed and is preserved until then.
func keptUntilLater(until time.Time) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		ill(m)
		asks("now")(m)
		m.Status.CurrentStatus.PreserveExpiryTime = new(metav1.NewTime(until).Rfc3339Copy())
	}
}

func TestU128_DrainOfANodeWhoseMachineStays(t *testing.T) {
	t.Parallel()
	at, later := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	begun := v1alpha1.MachineDrain{StartedAt: metav1.NewTime(time.Now().Add(-3 * time.Hour)), Means: "Delete", MeansSince: new(metav1.Now())}
	over := v1alpha1.MachineDrain{StartedAt: metav1.Now(), Result: activities.Drained}
	running := phase(v1alpha1.MachineRunning)
	for name, row := range map[string]struct {
		machine []func(*v1alpha1.Machine)
		node    []func(*corev1.Node)
		purpose activities.Purpose
		means   drain.Means
		result  string
	}{
		"U128: its update is to begin":               {[]func(*v1alpha1.Machine){running}, []func(*corev1.Node){selectedAt(at)}, activities.ForUpdate, drain.Evict, ""},
		"U128: its time is over":                     {[]func(*v1alpha1.Machine){running, emptied(activities.ForUpdate, at, begun)}, []func(*corev1.Node){selectedAt(at)}, activities.ForUpdate, drain.Delete, ""},
		"U128: the time of an earlier update is not": {[]func(*v1alpha1.Machine){running, emptied(activities.ForUpdate, at.Add(-time.Hour), begun)}, []func(*corev1.Node){selectedAt(at)}, activities.ForUpdate, drain.Evict, ""},
		"U128: the label asks for force":             {[]func(*v1alpha1.Machine){running, marked(v1alpha1.LabelForceDrain, "True")}, []func(*corev1.Node){selectedAt(at)}, activities.ForUpdate, drain.Kill, ""},
		"U128: the label of deletions does not":      {[]func(*v1alpha1.Machine){running, marked(v1alpha1.LabelForceDeletion, "True")}, []func(*corev1.Node){selectedAt(at)}, activities.ForUpdate, drain.Evict, ""},
		"U128: not ready for more than 5 minutes":    {[]func(*v1alpha1.Machine){running}, []func(*corev1.Node){selectedAt(at), notReady(6 * time.Minute)}, activities.ForUpdate, drain.Kill, ""},
		"it is over":                                   {[]func(*v1alpha1.Machine){running, emptied(activities.ForUpdate, at, over)}, []func(*corev1.Node){selectedAt(at)}, activities.ForUpdate, "", activities.Drained},
		"the update was called off":                    {[]func(*v1alpha1.Machine){running}, nil, activities.ForUpdate, "", activities.Cancelled},
		"the machine is to go":                         {[]func(*v1alpha1.Machine){running, going[*v1alpha1.Machine]}, []func(*corev1.Node){selectedAt(at)}, activities.ForUpdate, "", activities.Cancelled},
		"U132: it is preserved":                        {[]func(*v1alpha1.Machine){keptUntilLater(later)}, nil, activities.ForPreservation, drain.Evict, ""},
		"U132: an earlier preservation is another one": {[]func(*v1alpha1.Machine){keptUntilLater(later), emptied(activities.ForPreservation, at, over)}, nil, activities.ForPreservation, drain.Evict, ""},
		"U132: its preservation is over":               {[]func(*v1alpha1.Machine){keptUntilLater(at)}, nil, activities.ForPreservation, "", activities.Cancelled},
		"U132: it has recovered":                       {[]func(*v1alpha1.Machine){keptUntilLater(later), running}, nil, activities.ForPreservation, "", activities.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("m", append([]func(*v1alpha1.Machine){onNode}, row.machine...)...)
			w := newWorld(t, m, node(row.node...))
			d := twice[activities.DrainDecision](w, w.DecideDrain, activities.DrainRead{Read: read(m), Purpose: row.purpose})
			assert.Equal(t, row.result, d.Result)
			assert.Equal(t, row.means, d.Step.Means)
			assert.Empty(t, w.writes())
		})
	}
}

func TestDrainOfANodeWhoseMachineStaysIsRecorded(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	m := machine("m", onNode, phase(v1alpha1.MachineRunning))
	w := newWorld(t, m, node(selectedAt(at)))
	what := observe.Emptying{Purpose: activities.ForUpdate, Occasion: at}
	report := func(d activities.StayingDrain) *v1alpha1.StayingDrain {
		d.Emptying = what
		in := activities.MachineReport{Read: activities.Read{Ref: ref(m), Live: true}, Drain: &d}
		twice[string](w, w.ReportMachine, in)
		return w.machine("m").Status.Drain
	}
	got := report(activities.StayingDrain{Means: "Evict"})
	began := got.StartedAt
	assert.Equal(t, "Evict", got.Means)
	assert.False(t, began.IsZero())
	got = report(activities.StayingDrain{Result: activities.Forced, LeftBehind: []string{"web/a"}})
	assert.Equal(t, began, got.StartedAt)
	assert.Equal(t, []string{"web/a"}, got.LeftBehind)
	assert.Equal(t, activities.Forced, report(activities.StayingDrain{Means: "Evict"}).Result, "D42: what ended stays ended")
	what.Occasion = at.Add(time.Second)
	got = report(activities.StayingDrain{Means: "Evict"})
	assert.Empty(t, got.Result, "another update is another drain")
}

func TestU132_ConditionOfAPreservedNodeSaysHowItsDrainEnded(t *testing.T) {
	t.Parallel()
	until := keptUntil.Time
	for result, want := range map[string]string{
		"":                 "Preserved node is not drained. ",
		activities.Drained: "Preserved node drained successfully. ",
		activities.Forced:  "Preserved node could not be drained. ",
		activities.Skipped: "Preserved node could not be drained. ",
	} {
		m := machine("m", onNode, keptUntilLater(until), emptied(activities.ForPreservation, until, v1alpha1.MachineDrain{Result: result}))
		w := newWorld(t, m, node())
		_, err := run[activities.Gate](w, w.PreserveMachine, keepAt(m, time.Hour))
		require.NoError(t, err)
		for _, c := range w.node().Status.Conditions {
			if c.Type == v1alpha1.NodePreserved {
				assert.Equal(t, want+runningSentence, c.Message)
			}
		}
		assert.Len(t, w.node().Status.Conditions, 2)
	}
}

func TestHeldNodeIsNotCordonedForItsUpdate(t *testing.T) {
	t.Parallel()
	m := machine("m", onNode, phase(v1alpha1.MachineRunning))
	w := newWorld(t, m, node(selectedAt(time.Now()), func(n *corev1.Node) { n.Spec.Unschedulable = true }))
	twice[string](w, w.HoldDrain, activities.Holding{Read: read(m), Why: "alice"})
	twice[activities.Gate](w, w.UncordonNode, activities.Read{Ref: ref(m), Live: true})
	assert.False(t, w.node().Spec.Unschedulable)
	twice[activities.Gate](w, w.CordonNode, activities.Read{Ref: ref(m), Live: true})
	assert.False(t, w.node().Spec.Unschedulable)
}
