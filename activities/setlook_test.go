package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/scale"
	"millwright/observe"
)

// A set makes no machine of a class that does not exist. A class that the caches do not have yet is looked for.
func TestMS08_DecideScaleWithoutAClass(t *testing.T) {
	t.Parallel()
	s := set("s", 1)
	w := newWorld(t, s)
	d := decideScale(w, live(s))
	assert.Empty(t, d.Create)
	assert.Equal(t, "1 wanted, 0 there; none is created: MachineClass does not exist", d.Hold)
	assert.Empty(t, d.Seen[observe.Classes])
	status := reportSet(w, activities.SetReport{SetRead: setRead(s)})
	assert.Equal(t, "TemplateNotFound", status.Conditions[0].Reason)
	assert.Equal(t, int32(1), status.ObservedReplicas, "no machine is about to be made")
	assert.Equal(t, attention.Nothing, decideScale(w, read(s)).Need, "the bridge wakes it when the class comes")

	w.hold()
	w.create(class())
	d, err := local[activities.SetDecision](w, w.DecideScale, activities.SetRead{Read: live(s)})
	require.NoError(t, err)
	assert.Len(t, d.Create, 1)
	assert.NotEmpty(t, d.Seen[observe.Classes], "a cache without it would say otherwise")
}

// The node of a failed machine may ask for it to be kept: who looks again must have seen the same.
func TestU59_DecideScaleAsksTheNodeOfAFailedMachine(t *testing.T) {
	t.Parallel()
	s := set("s", 1)
	all := append(members(s, 1, onNode, phase(v1alpha1.MachineFailed)), class())
	d := decideScale(newWorld(t, append(all, node())...), read(s))
	assert.Len(t, d.Delete, 1)
	assert.Equal(t, "900", d.Seen[observe.Nodes])
	d = decideScale(newWorld(t, append(all, node(func(n *corev1.Node) {
		n.Annotations = map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.ValuePreserveWhenFailed}
	}))...), read(s))
	assert.Empty(t, d.Delete)
}

// What was refused is in the status once, and is no reason to write it again and again.
func TestDecideScaleOfARefusedBatch(t *testing.T) {
	t.Parallel()
	s := set("s", 1)
	w := newWorld(t, s, class())
	refused := activities.SetRead{Read: read(s), Failure: scale.Failure{Message: "quota"}}
	assert.True(t, twice[activities.SetDecision](w, w.DecideScale, refused).Report)
	status := reportSet(w, activities.SetReport{SetRead: refused})
	assert.Equal(t, v1alpha1.MachineSetReplicaFailure, status.Conditions[len(status.Conditions)-1].Type)
	d := twice[activities.SetDecision](w, w.DecideScale, refused)
	assert.False(t, d.Report)
	assert.Len(t, d.Create, 1)
	assert.True(t, decideScale(w, read(s)).Report, "who was refused nothing takes it back")
}
