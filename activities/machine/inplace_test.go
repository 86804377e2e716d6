package machine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
)

func newInPlaceCondition(in kube.ReadInput, reason string) machine.InPlaceCondition {
	return machine.InPlaceCondition{Read: in, Reason: reason, Message: "told by " + reason}
}

func TestMarkInPlace(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		node   []func(*corev1.Node)
		phase  v1alpha1.MachinePhase
		reason string
		writes bool
	}{
		"a candidate for the first time":        {[]func(*corev1.Node){activitiestest.WithCandidateLabel}, v1alpha1.MachineRunning, v1alpha1.ReasonCandidateForUpdate, true},
		"a candidate again":                     {[]func(*corev1.Node){activitiestest.WithCandidateLabel, activitiestest.WithUpdateCondition("UpdateSuccessful")}, v1alpha1.MachineRunning, v1alpha1.ReasonCandidateForUpdate, true},
		"selected":                              {[]func(*corev1.Node){activitiestest.WithSelectedLabels, activitiestest.WithUpdateCondition("CandidateForUpdate")}, v1alpha1.MachineRunning, v1alpha1.ReasonSelectedForUpdate, true},
		"updated":                               {[]func(*corev1.Node){activitiestest.WithUpdateResult("successful"), activitiestest.WithUpdateCondition("ReadyForUpdate")}, v1alpha1.MachineInPlaceUpdating, v1alpha1.ReasonUpdateSuccessful, true},
		"not updated":                           {[]func(*corev1.Node){activitiestest.WithUpdateResult("failed"), activitiestest.WithUpdateCondition("ReadyForUpdate")}, v1alpha1.MachineInPlaceUpdating, v1alpha1.ReasonUpdateFailed, true},
		"updated after all":                     {[]func(*corev1.Node){activitiestest.WithUpdateResult("successful"), activitiestest.WithUpdateCondition("UpdateFailed")}, v1alpha1.MachineInPlaceUpdateFailed, v1alpha1.ReasonUpdateSuccessful, true},
		"empty":                                 {[]func(*corev1.Node){activitiestest.WithSelectedLabels, activitiestest.WithCordon, activitiestest.WithUpdateCondition("SelectedForUpdate")}, v1alpha1.MachineRunning, v1alpha1.ReasonDrainSuccessful, true},
		"ready":                                 {[]func(*corev1.Node){activitiestest.WithSelectedLabels, activitiestest.WithCordon, activitiestest.WithUpdateCondition("DrainSuccessful")}, v1alpha1.MachineInPlaceUpdating, v1alpha1.ReasonReadyForUpdate, true},
		"another reason of a failure":           {[]func(*corev1.Node){activitiestest.WithUpdateResult("failed"), activitiestest.WithUpdateCondition("UpdateFailed")}, v1alpha1.MachineInPlaceUpdateFailed, v1alpha1.ReasonUpdateFailed, true},
		"no labels":                             {nil, v1alpha1.MachineRunning, v1alpha1.ReasonCandidateForUpdate, false},
		"no reason":                             {nil, v1alpha1.MachineRunning, "", false},
		"said already":                          {[]func(*corev1.Node){activitiestest.WithCandidateLabel, activitiestest.WithUpdateCondition("CandidateForUpdate")}, v1alpha1.MachineRunning, v1alpha1.ReasonCandidateForUpdate, false},
		"further already":                       {[]func(*corev1.Node){activitiestest.WithSelectedLabels, activitiestest.WithCordon, activitiestest.WithUpdateCondition("DrainSuccessful")}, v1alpha1.MachineRunning, v1alpha1.ReasonSelectedForUpdate, false},
		"empty, and somebody has uncordoned it": {[]func(*corev1.Node){activitiestest.WithSelectedLabels, activitiestest.WithUpdateCondition("SelectedForUpdate")}, v1alpha1.MachineRunning, v1alpha1.ReasonDrainSuccessful, false},
		"empty, and it was called off":          {[]func(*corev1.Node){activitiestest.WithCandidateLabel, activitiestest.WithCordon, activitiestest.WithUpdateCondition("SelectedForUpdate")}, v1alpha1.MachineRunning, v1alpha1.ReasonDrainSuccessful, false},
		"ready, and its machine does not say":   {[]func(*corev1.Node){activitiestest.WithSelectedLabels, activitiestest.WithCordon, activitiestest.WithUpdateCondition("DrainSuccessful")}, v1alpha1.MachineRunning, v1alpha1.ReasonReadyForUpdate, false},
		"ready, and the agent was faster":       {[]func(*corev1.Node){activitiestest.WithUpdateResult("successful"), activitiestest.WithCordon, activitiestest.WithUpdateCondition("DrainSuccessful")}, v1alpha1.MachineInPlaceUpdating, v1alpha1.ReasonReadyForUpdate, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithPhase(row.phase))
				w := activitiestest.NewWorld(t, m, activitiestest.NewNode(row.node...))
				before := w.Node()
				versions := activitiestest.RunActivityTwice[kube.MinVersions](
					w,
					newActivities(w.Kube).MarkInPlace,
					newInPlaceCondition(activitiestest.NewReadInput(m), row.reason),
				)
				n := w.Node()
				assert.Equal(t, w.NodeMinVersions(), versions)
				if !row.writes {
					assert.Empty(t, w.MutatingRequests())
					assert.Equal(t, before, n)
					return
				}
				assert.Equal(t, []string{"patch nodes/status"}, w.MutatingRequests())
				c := activitiestest.FindUpdateCondition(n)
				require.NotNil(t, c)
				assert.Equal(t, corev1.ConditionTrue, c.Status)
				assert.Equal(t, row.reason, c.Reason)
				assert.Equal(t, "told by "+row.reason, c.Message)
				assert.Contains(
					t,
					n.Status.Conditions,
					before.Status.Conditions[len(before.Status.Conditions)-1],
					"those of others stay",
				)
				assert.Len(t, n.Status.Conditions, 2)
				assert.Equal(t, before.Labels, n.Labels)
				assert.Equal(t, activitiestest.EncodeObject(before)["spec"], activitiestest.EncodeObject(n)["spec"])
				if was := activitiestest.FindUpdateCondition(before); was != nil && was.Reason == row.reason {
					assert.Equal(t, activitiestest.OldTime.Unix(), c.LastTransitionTime.Unix(), "still the same step")
				} else {
					assert.WithinDuration(
						t,
						time.Now(),
						c.LastTransitionTime.Time,
						activitiestest.TimestampTolerance,
						"when the step began",
					)
				}
			})
		})
	}
}

func TestCordonNode(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		machine []func(*v1alpha1.Machine)
		node    []func(*corev1.Node)
		writes  bool
		after   bool // the node is cordoned after the activity
	}{
		"selected":                                     {nil, []func(*corev1.Node){activitiestest.WithSelectedLabels, activitiestest.WithUpdateCondition("SelectedForUpdate")}, true, true},
		"with the cordon of a user":                    {nil, []func(*corev1.Node){activitiestest.WithSelectedLabels, activitiestest.WithCordon, activitiestest.WithUpdateCondition("SelectedForUpdate")}, false, true},
		"for another purpose":                          {nil, nil, true, true},
		"called off":                                   {nil, []func(*corev1.Node){activitiestest.WithCandidateLabel, activitiestest.WithUpdateCondition("SelectedForUpdate")}, false, false},
		"called off with the cordon of a user":         {nil, []func(*corev1.Node){activitiestest.WithCordon, activitiestest.WithUpdateCondition("SelectedForUpdate")}, false, true},
		"called off, and the machine is being deleted": {[]func(*v1alpha1.Machine){activitiestest.WithDeletionTimestamp[*v1alpha1.Machine]}, []func(*corev1.Node){activitiestest.WithUpdateCondition("SelectedForUpdate")}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine(
				"m",
				append(row.machine, activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineRunning))...)
			w := activitiestest.NewWorld(
				t,
				m,
				activitiestest.NewNode(append([]func(*corev1.Node){activitiestest.WithForeignMetadata}, row.node...)...),
			)
			before := w.Node()
			versions := activitiestest.RunActivityTwice[kube.MinVersions](
				w,
				newActivities(w.Kube).CordonNode,
				activitiestest.NewReadInput(m),
			)
			assert.Equal(t, w.NodeMinVersions(), versions)
			n := w.Node()
			assert.Equal(t, row.after, n.Spec.Unschedulable)
			if !row.writes {
				assert.Empty(t, w.MutatingRequests())
				return
			}
			assert.Equal(t, []string{"patch nodes"}, w.MutatingRequests())
			before.Spec.Unschedulable = true
			before.ResourceVersion, before.Generation = n.ResourceVersion, n.Generation
			assert.Equal(t, activitiestest.EncodeObject(before), activitiestest.EncodeObject(n), "and nothing else")
		})
	}
}
