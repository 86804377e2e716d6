package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	"millwright/activities/machine"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// newInstanceRecord returns the provider's result for a new instance of a machine, with the node name n.
func newInstanceRecord(m *v1alpha1.Machine) machine.InstanceRecord {
	return machine.InstanceRecord{Read: activitiestest.NewReadInput(m), ProviderID: "fake:///n", NodeName: "n"}
}

func TestRecordInstance(t *testing.T) {
	t.Parallel()
	t.Run("names the instance and its node, with the default priority", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		record := activitiestest.RunActivityTwice[machine.RecordResult](
			w,
			newActivities(w.Kube).RecordInstance,
			newInstanceRecord(m),
		)
		now := w.Machine("m")
		assert.Equal(t, "fake:///n", now.Spec.ProviderID)
		assert.Equal(t, map[string]string{"app": "web", "node": "n"}, now.Labels)
		assert.Equal(t, "3", now.Annotations[v1alpha1.AnnotationMachinePriority])
		assert.Equal(t, machine.RecordResult{Version: now.ResourceVersion}, record)
		assert.Equal(t, []string{"patch machines"}, w.MutatingRequests())
	})
	t.Run("without a target there is no node to name", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		in := newInstanceRecord(m)
		in.NodeName = ""
		activitiestest.RunActivityTwice[machine.RecordResult](w, newActivities(w.Kube).RecordInstance, in)
		assert.Equal(t, "fake:///n", w.Machine("m").Spec.ProviderID)
		assert.Equal(t, map[string]string{"app": "web"}, w.Machine("m").Labels)
	})
	t.Run("a node name that is longer than a label's value is in the status alone", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		in := newInstanceRecord(m)
		in.NodeName = strings.Repeat("a.", 126) + "a" // 253 bytes, the longest name of a Node
		record := activitiestest.RunActivityTwice[machine.RecordResult](w, newActivities(w.Kube).RecordInstance, in)
		now := w.Machine("m")
		assert.Equal(t, "fake:///n", now.Spec.ProviderID)
		assert.NotContains(t, now.Labels, v1alpha1.LabelNode)
		assert.Equal(t, in.NodeName, now.Status.NodeName)
		assert.Equal(t, in.NodeName, cache.NodeNameOfMachine(now))
		assert.Equal(t, machine.RecordResult{Version: now.ResourceVersion}, record)
		assert.Equal(t, []string{"patch machines", "update machines/status"}, w.MutatingRequests())
	})
	t.Run("and takes the place of a shorter one", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithNode)
		m.Status.NodeName = "n"
		w := activitiestest.NewWorld(t, m)
		in := newInstanceRecord(m)
		in.NodeName = strings.Repeat("a", 64)
		activitiestest.RunActivityTwice[machine.RecordResult](w, newActivities(w.Kube).RecordInstance, in)
		assert.Equal(t, in.NodeName, cache.NodeNameOfMachine(w.Machine("m")))
	})
	t.Run("keeps the priority that somebody gave it", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		m.Annotations = map[string]string{v1alpha1.AnnotationMachinePriority: "1"}
		w := activitiestest.NewWorld(t, m)
		activitiestest.RunActivityTwice[machine.RecordResult](w, newActivities(w.Kube).RecordInstance, newInstanceRecord(m))
		assert.Equal(t, "1", w.Machine("m").Annotations[v1alpha1.AnnotationMachinePriority])
	})
	t.Run("also one that the cache has not heard of", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		release := w.HoldEvents()
		w.EditObject(cache.MachinesResource, "m", activitiestest.NewAnnotationPatch(v1alpha1.AnnotationMachinePriority, "1"))
		_, err := activitiestest.RunActivity[machine.RecordResult](
			w,
			newActivities(w.Kube).RecordInstance,
			newInstanceRecord(m),
		)
		require.NoError(t, err)
		release()
		assert.Equal(t, "1", w.Machine("m").Annotations[v1alpha1.AnnotationMachinePriority])
		assert.Equal(t, "fake:///n", w.Machine("m").Spec.ProviderID)
		assert.Equal(t, []string{"patch machines", "patch machines"}, w.MutatingRequests(), "the first met another version")
	})
	t.Run("writes nothing to another machine of the same name that the cache has not heard of", func(t *testing.T) {
		m := activitiestest.NewMachine("m", activitiestest.WithoutFinalizers)
		w := activitiestest.NewWorld(t, m)
		w.HoldEvents()
		w.RecreateMachine(m)
		_, err := activitiestest.RunActivity[machine.RecordResult](
			w,
			newActivities(w.Kube).RecordInstance,
			newInstanceRecord(m),
		)
		assertObjectGoneError(t, err)
		assert.Empty(t, w.Machine("m").Spec.ProviderID)
	})
	t.Run("an API server that is away is tried again", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		activitiestest.FailRequests(w.MachineClient, "patch", "machines", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := activitiestest.RunActivity[machine.RecordResult](
			w,
			newActivities(w.Kube).RecordInstance,
			newInstanceRecord(m),
		)
		require.Error(t, err)
		_, retryable := activitiestest.FailureTypeOf(t, err)
		assert.True(t, retryable)
		activitiestest.RunActivityTwice[machine.RecordResult](w, newActivities(w.Kube).RecordInstance, newInstanceRecord(m))
		assert.Equal(t, "fake:///n", w.Machine("m").Spec.ProviderID)
	})
}

// withEarlierCreationTime gives a node a creation time that is the given duration before OldTime.
func withEarlierCreationTime(before time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(activitiestest.OldTime.Add(-before)) }
}

func TestRecordInstanceDetectsNodeOfOtherInstance(t *testing.T) {
	t.Parallel()
	const belongs = "VM using old node obj: node n is of instance fake:///old, and not of fake:///n"
	for name, row := range map[string]struct {
		machine string
		nodes   []runtime.Object
		stale   string
	}{
		"there is no such node":                              {"m", nil, ""},
		"it is the node of another instance":                 {"m", []runtime.Object{activitiestest.NewNode(activitiestest.WithProviderID("fake:///old"), withEarlierCreationTime(-time.Minute))}, belongs},
		"so it is, although it has the machine's name":       {"n", []runtime.Object{activitiestest.NewNode(activitiestest.WithProviderID("fake:///old"), withEarlierCreationTime(-time.Minute))}, belongs},
		"it does not say whose it is, and is older":          {"m", []runtime.Object{activitiestest.NewNode(withEarlierCreationTime(time.Hour))}, "VM using old node obj: node n is older than machine m"},
		"it is as old as the machine":                        {"m", []runtime.Object{activitiestest.NewNode(withEarlierCreationTime(0))}, ""},
		"the machine's own name makes it its own":            {"n", []runtime.Object{activitiestest.NewNode(withEarlierCreationTime(time.Hour))}, ""},
		"it joined before the cloud had answered":            {"n", []runtime.Object{activitiestest.NewNode(activitiestest.WithProviderID("fake:///n"), withEarlierCreationTime(-time.Second))}, ""},
		"the same under a name of the cloud's":               {"m", []runtime.Object{activitiestest.NewNode(withEarlierCreationTime(-time.Second))}, ""},
		"it says that it is the instance: clocks may differ": {"m", []runtime.Object{activitiestest.NewNode(activitiestest.WithProviderID("fake:///n"), withEarlierCreationTime(time.Minute))}, ""},
		"it says so in another form: where, then which":      {"m", []runtime.Object{activitiestest.NewNode(activitiestest.WithProviderID("fake:///zone-a/n"), withEarlierCreationTime(time.Minute))}, ""},
		"another node, however old, is nothing to it":        {"m", []runtime.Object{activitiestest.NewNode(func(n *corev1.Node) { n.Name = "x" }, withEarlierCreationTime(time.Hour))}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine(
				row.machine,
				func(m *v1alpha1.Machine) { m.CreationTimestamp = activitiestest.OldTime },
			)
			w := activitiestest.NewWorld(t, append(row.nodes, m)...)
			record := activitiestest.RunActivityTwice[machine.RecordResult](
				w,
				newActivities(w.Kube).RecordInstance,
				newInstanceRecord(m),
			)
			now := w.Machine(row.machine)
			assert.Equal(t, machine.RecordResult{Version: now.ResourceVersion, Stale: row.stale}, record)
			if row.stale == "" {
				assert.Equal(t, "fake:///n", now.Spec.ProviderID)
				return
			}
			assert.Equal(t, m, now, "nothing is written: the instance is no machine's")
			assert.Empty(t, w.MutatingRequests())
		})
	}
	t.Run("the node is looked at again when another writer was faster", func(t *testing.T) {
		m := activitiestest.NewMachine("m")
		w := activitiestest.NewWorld(t, m)
		activitiestest.FailRequests(w.MachineClient, "patch", "machines", 1, nil, func() {
			w.EditObject(cache.MachinesResource, "m", activitiestest.NewAnnotationPatch("note", "new"))
			w.CreateObjects(activitiestest.NewNode(activitiestest.WithProviderID("fake:///old")))
			w.AwaitCaches()
		})
		record, err := activitiestest.RunActivity[machine.RecordResult](
			w,
			newActivities(w.Kube).RecordInstance,
			newInstanceRecord(m),
		)
		require.NoError(t, err)
		assert.Equal(t, belongs, record.Stale)
		assert.Empty(t, w.Machine("m").Spec.ProviderID)
	})
}
