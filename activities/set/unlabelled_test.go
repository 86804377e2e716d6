package set_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"millwright/activities/activitiestest"
	"millwright/activities/set"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// A set without labels exists only on an API server without the validation rules of Millwright's CRDs. For a set
// without labels, cached and live reads, decisions and reports succeed, and the set neither creates nor adopts a
// machine.
func TestSetWithoutLabelsCreatesNoMachine(t *testing.T) {
	t.Parallel()
	for name, selector := range map[string]*metav1.LabelSelector{"no selector": nil, "an empty one": {}, "one that its template lacks": {MatchLabels: map[string]string{"app": "web"}}} {
		t.Run(name, func(t *testing.T) {
			s := activitiestest.NewMachineSet("s", 2, func(s *v1alpha1.MachineSet) {
				s.Labels, s.Annotations, s.Spec.Selector = nil, nil, selector
				s.Spec.Template.Labels, s.Spec.Template.Annotations = nil, nil
			})
			bare := activitiestest.NewMachine("bare", func(m *v1alpha1.Machine) { m.Labels, m.Annotations = nil, nil })
			own := activitiestest.NewMachine(
				"own",
				activitiestest.WithOwner[*v1alpha1.Machine](s),
				func(m *v1alpha1.Machine) { m.Labels, m.Annotations = nil, nil },
			)
			w := activitiestest.NewWorld(t, s, bare, own)
			read := activitiestest.NewReadInput(s)
			for _, live := range []bool{false, true} {
				read.Live = live
				d := decideSet(w, read)
				assert.Empty(t, d.Scale.Adopt, "a set that selects everything adopts nothing")
				assert.Empty(t, d.Scale.Release, "and loses nothing")
				assert.Empty(t, d.Scale.Delete)
				if selector == nil || len(selector.MatchLabels) > 0 {
					assert.Empty(t, d.Scale.Create)
				}
			}
			assert.Equal(t, int32(1), reportSet(w, set.Report{Input: activitiestest.NewSetInput(s)}).Replicas)
		})
	}
}

// If the API server refuses a deletion, the machine stays unchanged: its phase is not Terminating, and its resource
// version is the same. The next decision deletes the machine again.
func TestARefusedDeletionLeavesTheMachineUnchanged(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 0)
	m := activitiestest.NewMachine(
		"m",
		activitiestest.WithOwner[*v1alpha1.Machine](s),
		activitiestest.WithPhase(v1alpha1.MachineRunning),
	)
	w := activitiestest.NewWorld(t, s, m)
	activitiestest.FailRequests(
		w.MachineClient,
		"delete",
		"machines",
		1,
		apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m", assert.AnError),
		nil,
	)
	done, err := activitiestest.RunActivity[set.WriteResult](
		w,
		newActivities(w.Kube).DeleteMachines,
		newMachineBatch(s, m),
	)
	require.NoError(t, err)
	assert.Contains(t, done.Failure.Message, "forbidden")
	assert.Equal(t, []string{"delete " + string(cache.MachinesResource)}, w.MutatingRequests())
	now := w.Machine("m")
	assert.Nil(t, now.DeletionTimestamp)
	assert.Equal(t, m.ResourceVersion, now.ResourceVersion)
	assert.Equal(t, m.Status, now.Status)
	again := decideSet(w, activitiestest.NewReadInput(s)).Scale.Delete
	require.Len(t, again, 1)
	assert.Equal(t, "m", again[0].Name)

	_, err = activitiestest.RunActivity[set.WriteResult](
		w,
		newActivities(w.Kube).DeleteMachines,
		set.MachineBatch{Set: activitiestest.NewRef(s), Machines: again},
	)
	require.NoError(t, err)
	assert.True(t, isBeingDeleted(w.Machine("m")))
}
