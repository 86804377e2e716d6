package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

// recorded is what the provider said of the new instance of a machine: its node is called n.
func recorded(m *v1alpha1.Machine) activities.Recorded {
	return activities.Recorded{Read: read(m), ProviderID: "fake:///n", NodeName: "n"}
}

func TestU60_RecordInstance(t *testing.T) {
	t.Parallel()
	t.Run("U60: names the instance and its node, with the default priority", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, m)
		record := twice[activities.Record](w, w.RecordInstance, recorded(m))
		now := w.machine("m")
		assert.Equal(t, "fake:///n", now.Spec.ProviderID)
		assert.Equal(t, map[string]string{"app": "web", "node": "n"}, now.Labels)
		assert.Equal(t, "3", now.Annotations[v1alpha1.AnnotationMachinePriority])
		assert.Equal(t, activities.Record{Version: now.ResourceVersion}, record)
		assert.Equal(t, []string{"patch machines"}, w.writes())
	})
	t.Run("U60: without a target there is no node to name", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, m)
		in := recorded(m)
		in.NodeName = ""
		twice[activities.Record](w, w.RecordInstance, in)
		assert.Equal(t, "fake:///n", w.machine("m").Spec.ProviderID)
		assert.Equal(t, map[string]string{"app": "web"}, w.machine("m").Labels)
	})
	t.Run("keeps the priority that somebody gave it", func(t *testing.T) {
		m := machine("m")
		m.Annotations = map[string]string{v1alpha1.AnnotationMachinePriority: "1"}
		w := newWorld(t, m)
		twice[activities.Record](w, w.RecordInstance, recorded(m))
		assert.Equal(t, "1", w.machine("m").Annotations[v1alpha1.AnnotationMachinePriority])
	})
	t.Run("also one that the cache has not heard of", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, m)
		release := w.hold()
		w.edit(observe.Machines, "m", annotated(v1alpha1.AnnotationMachinePriority, "1"))
		_, err := run[activities.Record](w, w.RecordInstance, recorded(m))
		require.NoError(t, err)
		release()
		assert.Equal(t, "1", w.machine("m").Annotations[v1alpha1.AnnotationMachinePriority])
		assert.Equal(t, "fake:///n", w.machine("m").Spec.ProviderID)
		assert.Equal(t, []string{"patch machines", "patch machines"}, w.writes(), "the first met another version")
	})
	t.Run("writes nothing to another machine of the same name that the cache has not heard of", func(t *testing.T) {
		m := machine("m", bare)
		w := newWorld(t, m)
		w.hold()
		w.replace(m)
		_, err := run[activities.Record](w, w.RecordInstance, recorded(m))
		machinesGone(t, err)
		assert.Empty(t, w.machine("m").Spec.ProviderID)
	})
	t.Run("U69: an API server that is away is tried again", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, m)
		failing(w.machines, "patch", "machines", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := run[activities.Record](w, w.RecordInstance, recorded(m))
		require.Error(t, err)
		_, retryable := failure(t, err)
		assert.True(t, retryable)
		twice[activities.Record](w, w.RecordInstance, recorded(m))
		assert.Equal(t, "fake:///n", w.machine("m").Spec.ProviderID)
	})
}

// registered makes a node one that joined so long before longAgo.
func registered(before time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(longAgo.Add(-before)) }
}

func TestU66_InstanceWhoseNodesNameIsTaken(t *testing.T) {
	t.Parallel()
	const belongs = "VM using old node obj: node n belongs to instance fake:///old"
	for name, row := range map[string]struct {
		machine string
		nodes   []runtime.Object
		stale   string
	}{
		"U66: there is no such node":                              {"m", nil, ""},
		"U66: it is the node of another instance":                 {"m", []runtime.Object{node(providerID("fake:///old"), registered(-time.Minute))}, belongs},
		"U66: so it is, although it has the machine's name":       {"n", []runtime.Object{node(providerID("fake:///old"), registered(-time.Minute))}, belongs},
		"U66: it does not say whose it is, and is older":          {"m", []runtime.Object{node(registered(time.Hour))}, "VM using old node obj: node n is older than machine m"},
		"U66: it is as old as the machine":                        {"m", []runtime.Object{node(registered(0))}, ""},
		"U66: the machine's own name makes it its own":            {"n", []runtime.Object{node(registered(time.Hour))}, ""},
		"U66: it joined before the cloud had answered":            {"n", []runtime.Object{node(providerID("fake:///n"), registered(-time.Second))}, ""},
		"U66: the same under a name of the cloud's":               {"m", []runtime.Object{node(registered(-time.Second))}, ""},
		"U66: it says that it is the instance: clocks may differ": {"m", []runtime.Object{node(providerID("fake:///n"), registered(time.Minute))}, ""},
		"U66: another node, however old, is nothing to it":        {"m", []runtime.Object{node(func(n *corev1.Node) { n.Name = "x" }, registered(time.Hour))}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(row.machine, func(m *v1alpha1.Machine) { m.CreationTimestamp = longAgo })
			w := newWorld(t, append(row.nodes, m)...)
			record := twice[activities.Record](w, w.RecordInstance, recorded(m))
			now := w.machine(row.machine)
			assert.Equal(t, activities.Record{Version: now.ResourceVersion, Stale: row.stale}, record)
			if row.stale == "" {
				assert.Equal(t, "fake:///n", now.Spec.ProviderID)
				return
			}
			assert.Equal(t, m, now, "nothing is written: the instance is no machine's")
			assert.Empty(t, w.writes())
		})
	}
	t.Run("U66: the node is looked at again when another writer was faster", func(t *testing.T) {
		m := machine("m")
		w := newWorld(t, m)
		failing(w.machines, "patch", "machines", 1, nil, func() {
			w.edit(observe.Machines, "m", annotated("note", "new"))
			w.create(node(providerID("fake:///old")))
			w.settle()
		})
		record, err := run[activities.Record](w, w.RecordInstance, recorded(m))
		require.NoError(t, err)
		assert.Equal(t, belongs, record.Stale)
		assert.Empty(t, w.machine("m").Spec.ProviderID)
	})
}
