package machine_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	activitiesdrain "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/deletion"
	observe "millwright/observe/machine"
)

// copiedMachine returns a copy of machine m in another namespace, such as a trial restore creates. The copy names the
// same instance and node as m.
func copiedMachine() *v1alpha1.Machine {
	c := activitiestest.NewMachine("m", activitiestest.WithNode, activitiestest.WithCreateAttempt)
	c.Namespace, c.UID = "restored", "uid-copy"
	return c
}

// machineBeingDeleted returns machine m, which runs on node n and is being deleted.
func machineBeingDeleted(change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	return activitiestest.NewMachine("m", append([]func(*v1alpha1.Machine){
		activitiestest.WithNode,
		activitiestest.WithCreateAttempt,
		activitiestest.WithPhase(v1alpha1.MachineRunning),
		activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
	}, change...)...)
}

func TestOnlyTheOwnNodeOfAMachineIsDrained(t *testing.T) {
	t.Parallel()
	label := func(m *v1alpha1.Machine) { m.Namespace, m.Labels[v1alpha1.LabelNode] = "tenant-b", "n" }
	bare := func(m *v1alpha1.Machine) { m.Spec.ProviderID, m.Status.NodeName = "", "" }
	untold := func(m *v1alpha1.Machine) { m.Status.NodeName = "" }
	id := activitiestest.WithProviderID
	for name, row := range map[string]struct {
		m         *v1alpha1.Machine
		node      []func(*corev1.Node)
		others    []runtime.Object
		stage     deletion.Stage
		blockedBy []string
		skipped   string // a substring of the reason
	}{
		"its own": {machineBeingDeleted(), []func(*corev1.Node){id("fake:///n")}, nil, deletion.StageDrain, nil, ""},
		"its own, by its mark, with a copy in another namespace": {
			machineBeingDeleted(),
			[]func(*corev1.Node){id("fake:///n"), activitiestest.WithMachineUID(machineBeingDeleted())},
			[]runtime.Object{copiedMachine()},
			deletion.StageDrain, nil, "",
		},
		"a copy, and no mark": {
			machineBeingDeleted(),
			[]func(*corev1.Node){id("fake:///n")},
			[]runtime.Object{copiedMachine()},
			deletion.StageDrain,
			[]string{vocabulary.BlockedByOwnershipDoubt},
			"",
		},
		"a copy, and a person who wants no drain": {
			machineBeingDeleted(func(m *v1alpha1.Machine) {
				m.Annotations = map[string]string{v1alpha1.AnnotationSkipDrain: "ann: it is empty"}
			}),
			[]func(*corev1.Node){id("fake:///n")},
			[]runtime.Object{copiedMachine()},
			deletion.StageDeleteInstance, nil, "ann: it is empty",
		},
		"as seen from the copy": {
			machineBeingDeleted(),
			[]func(*corev1.Node){id("fake:///n"), activitiestest.WithMachineUID(copiedMachine())},
			[]runtime.Object{copiedMachine()},
			deletion.StageDeleteInstance, nil, "restored/m",
		},
		"another machine's label": {
			machineBeingDeleted(),
			[]func(*corev1.Node){id("fake:///n")},
			[]runtime.Object{activitiestest.NewMachine("evil", label)},
			deletion.StageDrain, nil, "",
		},
		"a provider ID without a scheme": {
			machineBeingDeleted(func(m *v1alpha1.Machine) { m.Spec.ProviderID = "i-0abc" }),
			[]func(*corev1.Node){id("i-0abc")},
			nil,
			deletion.StageDrain, nil, "",
		},
		"a control plane node, by a label alone": {
			machineBeingDeleted(bare), []func(*corev1.Node){id("fake:///control-plane-0")}, nil, deletion.StageDeleteInstance, nil, "names no instance",
		},
		"a node without provider ID, by a label alone": {
			machineBeingDeleted(untold), nil, nil, deletion.StageDrain, []string{vocabulary.BlockedByOwnershipDoubt}, "",
		},
		"a reused name": {
			machineBeingDeleted(), []func(*corev1.Node){id("fake:///new")}, nil, deletion.StageDeleteInstance, nil, "is of instance fake:///new",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := activitiestest.NewWorld(
				t, append(row.others, row.m, activitiestest.NewClass(), activitiestest.NewNode(row.node...))...)
			for _, in := range []kube.ReadInput{activitiestest.NewReadInput(row.m), activitiestest.NewLiveReadInput(row.m)} {
				d := activitiestest.DecideMachine(w, in)
				require.NotNil(t, d.Deletion)
				assert.Equal(t, row.stage, d.Deletion.Stage, d.Deletion.Why)
				assert.Equal(t, row.blockedBy, d.Deletion.BlockedBy)
				assert.Contains(t, d.Deletion.Skipped, row.skipped)
				assert.Equal(t, row.skipped == "", d.Deletion.Skipped == "")
			}
		})
	}
}

// The cloud does not report node names, and the cache lacks a node that has just joined.
func TestNodeOfMachineWithoutNodeNameIsFoundByLiveRead(t *testing.T) {
	t.Parallel()
	m := machineBeingDeleted(func(m *v1alpha1.Machine) {
		delete(m.Labels, v1alpha1.LabelNode)
		m.Status.NodeName = ""
	})
	joined := activitiestest.NewNode(activitiestest.WithProviderID("fake:///n"))
	for _, in := range []kube.ReadInput{activitiestest.NewReadInput(m), activitiestest.NewLiveReadInput(m)} {
		d := activitiestest.DecideMachine(newWorldWithStaleCache(t, m, joined), in)
		assert.Equal(t, attention.NeedNodeName, d.Need, "first of all")
		assert.Equal(t, "n", d.NodeFound)
	}
	d := activitiestest.DecideMachine(
		activitiestest.NewWorld(t, m, activitiestest.NewClass()),
		activitiestest.NewReadInput(m),
	)
	require.NotNil(t, d.Deletion)
	assert.Equal(t, deletion.StageDeleteInstance, d.Deletion.Stage, "there is none")
	w := newWorldWithStaleCache(t, m, joined)
	// DecideMachine runs the activity twice
	activitiestest.FailRequests(w.TargetClient, "list", "nodes", 3, errors.New("no answer"), nil)
	d = activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
	require.NotNil(t, d.Deletion)
	assert.Equal(t, deletion.StageDrain, d.Deletion.Stage, "a node that is unknown is not gone")
	count := func(w *activitiestest.World) error {
		activities := &activitiesdrain.Activities{Kube: w.Kube}
		_, err := activitiestest.RunActivity[activitiesdrain.NodeLoad](
			w, activities.CordonAndCountPods, activitiestest.NewReadInput(m),
		)
		return err
	}
	require.ErrorContains(t, count(w), "no answer", "the drain waits")
	activitiestest.AssertFailure(t, count(w), kube.FailureTypeConflict, false) // the next decision finds the node
	require.NoError(t, count(activitiestest.NewWorld(t, m, activitiestest.NewClass())), "there is none")
}

// A copy of the machine that appears during a drain neither ends the drain nor makes the node look empty.
func TestCopiedMachineDoesNotDisturbDrain(t *testing.T) {
	t.Parallel()
	m := machineBeingDeleted(activitiestest.WithPhase(v1alpha1.MachineTerminating))
	drains := func(w *activitiestest.World) *activitiesdrain.Activities {
		return &activitiesdrain.Activities{Kube: w.Kube}
	}
	w := activitiestest.NewWorld(t, m, copiedMachine(), activitiestest.NewClass(),
		activitiestest.NewNode(activitiestest.WithProviderID("fake:///n")), activitiestest.NewPod("a"))
	_, err := activitiestest.RunActivity[activitiesdrain.NodeLoad](
		w,
		drains(w).CordonAndCountPods,
		activitiestest.NewReadInput(m),
	)
	activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
	d, err := activitiestest.RunActivity[activitiesdrain.Decision](
		w, drains(w).DecideDrain, activitiesdrain.Input{ReadInput: activitiestest.NewReadInput(m)})
	require.NoError(t, err)
	assert.Equal(t, activitiesdrain.ResultCancelled, d.Result, "the machine decides again, and says what is in doubt")
	assert.Empty(t, w.MutatingRequests())
}

// While the ownership of a node is in doubt, nothing is written to the node, and the machine's status reports the
// doubt.
func TestNodeWithUnclearOwnerIsNotWritten(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine(
		"m",
		activitiestest.WithNode,
		activitiestest.WithCreateAttempt,
		activitiestest.WithPhase(v1alpha1.MachineRunning),
		withNodeTemplate,
	)
	node := activitiestest.NewNode(activitiestest.WithProviderID("fake:///n"))
	m.Status.Conditions = observe.CopiedConditions(node)
	w := activitiestest.NewWorld(t, m, copiedMachine(), activitiestest.NewClass(), node)
	d := activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
	assert.Equal(t, attention.NeedNodeSync, d.Need)
	assert.True(t, d.InDoubt)
	assert.Contains(t, d.Why, "restored/m")
	versions, err := activitiestest.RunActivity[kube.MinVersions](
		w,
		newActivities(w.Kube).SyncNode,
		activitiestest.NewReadInput(m),
	)
	require.NoError(t, err)
	assert.Empty(t, versions)
	assert.Empty(t, w.MutatingRequests())
}
