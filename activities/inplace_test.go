package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

// updateLabels makes a node carry labels of an in-place update, and nothing else.
func updateLabels(names ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Labels = map[string]string{}
		for _, name := range names {
			n.Labels[name] = v1alpha1.ValueLowerTrue
		}
	}
}

var (
	isCandidate = updateLabels(v1alpha1.LabelCandidateForUpdate)
	isChosen    = updateLabels(v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate)
)

func updated(value string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		isChosen(n)
		n.Labels[v1alpha1.LabelUpdateResult] = value
		n.Annotations = map[string]string{v1alpha1.AnnotationUpdateFailedReason: "disk full"}
	}
}

func withCordon(n *corev1.Node) { n.Spec.Unschedulable = true }

// saysUpdate makes a node say since long how far its update is.
func saysUpdate(reason string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append([]corev1.NodeCondition{{
			Type: v1alpha1.NodeInPlaceUpdate, Status: "True", Reason: reason, Message: "so be it", LastTransitionTime: longAgo,
		}}, n.Status.Conditions...)
	}
}

// updateCondition returns the condition of a node's in-place update; nil when there is none.
func updateCondition(n *corev1.Node) *corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodeInPlaceUpdate {
			return &c
		}
	}
	return nil
}

func mark(in activities.Read, reason string) activities.InPlaceMark {
	return activities.InPlaceMark{Read: in, Reason: reason, Message: "told by " + reason}
}

// current is the gate that a step on the node returns, whether it wrote or not.
func (w *world) current() activities.Gate {
	return activities.Gate{observe.Nodes: w.node().ResourceVersion}
}

func TestU126_MarkInPlace(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		node   []func(*corev1.Node)
		phase  v1alpha1.MachinePhase
		reason string
		writes bool
	}{
		"U126: a candidate for the first time":  {[]func(*corev1.Node){isCandidate}, v1alpha1.MachineRunning, v1alpha1.ReasonCandidateForUpdate, true},
		"U126: a candidate again":               {[]func(*corev1.Node){isCandidate, saysUpdate("UpdateSuccessful")}, v1alpha1.MachineRunning, v1alpha1.ReasonCandidateForUpdate, true},
		"U126: selected":                        {[]func(*corev1.Node){isChosen, saysUpdate("CandidateForUpdate")}, v1alpha1.MachineRunning, v1alpha1.ReasonSelectedForUpdate, true},
		"U126: updated":                         {[]func(*corev1.Node){updated("successful"), saysUpdate("ReadyForUpdate")}, v1alpha1.MachineInPlaceUpdating, v1alpha1.ReasonUpdateSuccessful, true},
		"U126: not updated":                     {[]func(*corev1.Node){updated("failed"), saysUpdate("ReadyForUpdate")}, v1alpha1.MachineInPlaceUpdating, v1alpha1.ReasonUpdateFailed, true},
		"U126: updated after all":               {[]func(*corev1.Node){updated("successful"), saysUpdate("UpdateFailed")}, v1alpha1.MachineInPlaceUpdateFailed, v1alpha1.ReasonUpdateSuccessful, true},
		"U127: empty":                           {[]func(*corev1.Node){isChosen, withCordon, saysUpdate("SelectedForUpdate")}, v1alpha1.MachineRunning, v1alpha1.ReasonDrainSuccessful, true},
		"U127: ready":                           {[]func(*corev1.Node){isChosen, withCordon, saysUpdate("DrainSuccessful")}, v1alpha1.MachineInPlaceUpdating, v1alpha1.ReasonReadyForUpdate, true},
		"another reason of a failure":           {[]func(*corev1.Node){updated("failed"), saysUpdate("UpdateFailed")}, v1alpha1.MachineInPlaceUpdateFailed, v1alpha1.ReasonUpdateFailed, true},
		"U126: no labels":                       {nil, v1alpha1.MachineRunning, v1alpha1.ReasonCandidateForUpdate, false},
		"no reason":                             {nil, v1alpha1.MachineRunning, "", false},
		"U126: said already":                    {[]func(*corev1.Node){isCandidate, saysUpdate("CandidateForUpdate")}, v1alpha1.MachineRunning, v1alpha1.ReasonCandidateForUpdate, false},
		"U126: further already":                 {[]func(*corev1.Node){isChosen, withCordon, saysUpdate("DrainSuccessful")}, v1alpha1.MachineRunning, v1alpha1.ReasonSelectedForUpdate, false},
		"empty, and somebody has uncordoned it": {[]func(*corev1.Node){isChosen, saysUpdate("SelectedForUpdate")}, v1alpha1.MachineRunning, v1alpha1.ReasonDrainSuccessful, false},
		"empty, and it was called off":          {[]func(*corev1.Node){isCandidate, withCordon, saysUpdate("SelectedForUpdate")}, v1alpha1.MachineRunning, v1alpha1.ReasonDrainSuccessful, false},
		"ready, and its machine does not say":   {[]func(*corev1.Node){isChosen, withCordon, saysUpdate("DrainSuccessful")}, v1alpha1.MachineRunning, v1alpha1.ReasonReadyForUpdate, false},
		"ready, and the agent was faster":       {[]func(*corev1.Node){updated("successful"), withCordon, saysUpdate("DrainSuccessful")}, v1alpha1.MachineInPlaceUpdating, v1alpha1.ReasonReadyForUpdate, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("m", onNode, phase(row.phase))
			w := newWorld(t, m, node(row.node...))
			before := w.node()
			gate := twice[activities.Gate](w, w.MarkInPlace, mark(read(m), row.reason))
			n := w.node()
			assert.Equal(t, w.current(), gate)
			if !row.writes {
				assert.Empty(t, w.writes())
				assert.Equal(t, before, n)
				return
			}
			assert.Equal(t, []string{"patch nodes/status"}, w.writes())
			c := updateCondition(n)
			require.NotNil(t, c)
			assert.Equal(t, corev1.ConditionTrue, c.Status)
			assert.Equal(t, row.reason, c.Reason)
			assert.Equal(t, "told by "+row.reason, c.Message)
			assert.Contains(t, n.Status.Conditions, before.Status.Conditions[len(before.Status.Conditions)-1], "those of others stay")
			assert.Len(t, n.Status.Conditions, 2)
			assert.Equal(t, before.Labels, n.Labels)
			assert.Equal(t, encode(before)["spec"], encode(n)["spec"])
			if was := updateCondition(before); was != nil && was.Reason == row.reason {
				assert.Equal(t, longAgo.Unix(), c.LastTransitionTime.Unix(), "still the same step")
			} else {
				assert.WithinDuration(t, time.Now(), c.LastTransitionTime.Time, time.Minute, "when the step began")
			}
		})
	}
}

func TestCordonNode(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		machine []func(*v1alpha1.Machine)
		node    []func(*corev1.Node)
		writes  bool
		after   bool // it is cordoned
	}{
		"U127: selected":                       {nil, []func(*corev1.Node){isChosen, saysUpdate("SelectedForUpdate")}, true, true},
		"U127: with the cordon of a user":      {nil, []func(*corev1.Node){isChosen, withCordon, saysUpdate("SelectedForUpdate")}, false, true},
		"for another purpose":                  {nil, nil, true, true},
		"called off":                           {nil, []func(*corev1.Node){isCandidate, saysUpdate("SelectedForUpdate")}, false, false},
		"called off with the cordon of a user": {nil, []func(*corev1.Node){withCordon, saysUpdate("SelectedForUpdate")}, false, true},
		"called off, and the machine is to go": {[]func(*v1alpha1.Machine){going[*v1alpha1.Machine]}, []func(*corev1.Node){saysUpdate("SelectedForUpdate")}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("m", append(row.machine, onNode, phase(v1alpha1.MachineRunning))...)
			w := newWorld(t, m, node(append([]func(*corev1.Node){lived}, row.node...)...))
			before := w.node()
			gate := twice[activities.Gate](w, w.CordonNode, read(m))
			assert.Equal(t, w.current(), gate)
			n := w.node()
			assert.Equal(t, row.after, n.Spec.Unschedulable)
			if !row.writes {
				assert.Empty(t, w.writes())
				return
			}
			assert.Equal(t, []string{"patch nodes"}, w.writes())
			before.Spec.Unschedulable = true
			before.ResourceVersion, before.Generation = n.ResourceVersion, n.Generation
			assert.Equal(t, encode(before), encode(n), "and nothing else")
		})
	}
}
