package set_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/scale"
	"millwright/observe/cache"
)

// A set creates no machine of a class that does not exist. A class that the caches lack is read live.
func TestDecideSetWithoutAClass(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 1)
	w := activitiestest.NewWorld(t, s)
	d := decideSet(w, activitiestest.NewLiveReadInput(s))
	assert.Empty(t, d.Scale.Create)
	assert.Equal(t, "1 wanted, 0 there; none is created: MachineClass does not exist", d.Scale.Hold)
	assert.Empty(t, d.Seen[cache.ClassesResource])
	status := reportSet(w, set.Report{Input: activitiestest.NewSetInput(s)})
	assert.Equal(t, "TemplateNotFound", status.Conditions[0].Reason)
	assert.Equal(t, int32(1), status.ObservedReplicas, "no machine is about to be made")
	assert.Equal(
		t,
		attention.NeedScaling,
		decideSet(w, activitiestest.NewReadInput(s)).Pending.Need,
		"its run stays open, and people find it in the list of what is stuck",
	)

	w.HoldEvents()
	w.CreateObjects(activitiestest.NewClass())
	d, err := activitiestest.RunLocalActivity[set.Decision](
		w,
		newActivities(w.Kube).DecideSet,
		set.Input{ReadInput: activitiestest.NewLiveReadInput(s)},
	)
	require.NoError(t, err)
	assert.Len(t, d.Scale.Create, 1)
	assert.NotEmpty(t, d.Seen[cache.ClassesResource], "a cache without it would say otherwise")
}

// The node of a failed machine may request the machine's preservation, so a later decision must see the same version of
// the node.
func TestDecideSetReadsNodeOfFailedMachine(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 1)
	all := append(
		machineSetWithMachines(s, 1, activitiestest.WithNode, activitiestest.WithPhase(v1alpha1.MachineFailed)),
		activitiestest.NewClass(),
	)
	d := decideSet(activitiestest.NewWorld(t, append(all, activitiestest.NewNode())...), activitiestest.NewReadInput(s))
	assert.Len(t, d.Scale.Delete, 1)
	assert.Equal(t, "900", d.Seen[cache.NodesResource])
	d = decideSet(activitiestest.NewWorld(t, append(all, activitiestest.NewNode(func(n *corev1.Node) {
		n.Annotations = map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.ValuePreserveWhenFailed}
	}))...), activitiestest.NewReadInput(s))
	assert.Empty(t, d.Scale.Delete)
}

// A rejected write is reported once in the status, and causes no further writes.
func TestDecideSetReportsRefusedBatchOnce(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 1)
	w := activitiestest.NewWorld(t, s, activitiestest.NewClass())
	refused := set.Input{ReadInput: activitiestest.NewReadInput(s), Failure: scale.WriteFailure{Message: "quota"}}
	assert.True(t, activitiestest.RunActivityTwice[set.Decision](w, newActivities(w.Kube).DecideSet, refused).Report)
	status := reportSet(w, set.Report{Input: refused})
	last := status.Conditions[len(status.Conditions)-2:]
	assert.Equal(t, v1alpha1.MachineSetReplicaFailure, last[0].Type)
	assert.Equal(t, v1alpha1.MachineSetBlocked, last[1].Type)
	assert.Equal(
		t,
		"MachineCreationFailed: set s creates no machine: quota",
		last[1].Reason+": "+strings.SplitAfter(last[1].Message, "quota")[0],
	)
	require.NotNil(t, status.CurrentOperation)
	assert.Equal(t, last[1].Message, status.CurrentOperation.WaitsFor)
	d := activitiestest.RunActivityTwice[set.Decision](w, newActivities(w.Kube).DecideSet, refused)
	assert.False(t, d.Report)
	assert.Len(t, d.Scale.Create, 1)
	assert.True(t, decideSet(w, activitiestest.NewReadInput(s)).Report, "who was refused nothing takes it back")
}
