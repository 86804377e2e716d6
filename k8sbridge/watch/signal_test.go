package watch

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/machine"
	"millwright/workflows/run"
)

func TestCalmStackSendsNoSignal(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		assert.Empty(t, w.asked(), "when the leader begins")
		for range 12 {
			w.put(changed(aNode(), heartbeat))
			w.pass(10 * time.Second)
		}
		assert.Empty(t, w.asked(), "for two minutes of heartbeats and resyncs")
	})
}

func TestOwnWritesOfACalmStackSendNoSignal(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		w.put(changed(aMachine(), func(m *v1alpha1.Machine) {
			m.Status.LastOperation.Description, m.Status.LastOperation.LastUpdateTime = "again", born
			m.Status.Conditions = aNode().Status.Conditions
			m.Status.JoinedAt = &born
		}))
		w.put(changed(aSet(), func(s *v1alpha1.MachineSet) {
			s.Status.CurrentOperation, s.Status.Selector = &v1alpha1.Operation{Step: "x"}, "pool=a"
		}, annotated[*v1alpha1.MachineSet](v1alpha1.AnnotationRevisionHistory, "1")))
		w.put(changed(aDeployment(), func(d *v1alpha1.MachineDeployment) {
			d.Status.CurrentOperation, d.Status.Selector = &v1alpha1.Operation{Step: "x"}, "pool=a"
			d.Status.Conditions[0].LastUpdateTime = metav1.Now()
		}, annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationLastRequest, "ann paused it")))
		w.pass(time.Minute + 10*time.Second)
		assert.Empty(t, w.asked())
	})
}

func TestNewMachine(t *testing.T) {
	inWorld(t, []runtime.Object{aDeployment(), aSet(), aClass()}, func(w *world) {
		w.took()
		class := w.put(aClass())
		w.flush()
		version := w.put(changed(aMachine(), uncreated))
		w.settle()
		calls := w.took()
		require.Len(t, calls, 2, "the machine and its set")
		c := calls[0]
		if c.workflow != "Machine" {
			c = calls[1]
		}
		assert.Equal(t, "garden/machine/ns/m/uid-m", c.id)
		assert.Equal(t, "uid-m", c.changed.UID)
		assert.Equal(t, cache.Ref{Namespace: "ns", Name: "m", UID: "uid-m"}, c.input.Ref)
		assert.Equal(t, version, c.changed.Versions[cache.Machines])
		assert.Equal(t, class, c.changed.Versions[cache.Classes], "the worker may not have the class yet")
		assert.Equal(t, c.changed.Versions, c.input.Versions, "the first decision of a new run reads no less")
		assert.Equal(t, garden.Queue(run.QueueMachines), c.options.TaskQueue)
		assert.Equal(t, "Machine ns/m", c.options.StaticSummary)
		assert.Equal(
			t,
			run.StartAttributes("ns", run.Owner{Machine: "m", MachineSet: "s", MachineDeployment: "d", Provider: "virtual"}),
			c.options.TypedSearchAttributes,
		)
	})
}

// The writes of a machine's workflow, in their order. It is signaled for the new object and for its node only.
func TestOwnWritesOfACreationSendNoSignal(t *testing.T) {
	inWorld(t, []runtime.Object{aClass()}, func(w *world) {
		m := changed(aMachine(), uncreated, func(m *v1alpha1.Machine) { m.Finalizers, m.Annotations = nil, nil })
		w.put(m)
		w.flush()
		assert.Contains(t, w.asked(), awake(m))
		write := func(change func()) {
			change()
			w.put(m)
			w.pass(2 * time.Second)
		}
		write(func() { m.Finalizers = aMachine().Finalizers })
		write(func() { m.Status.LastOperation.State = v1alpha1.MachineStateProcessing })
		write(func() {
			m.Labels, m.Annotations, m.Spec.ProviderID = aMachine().Labels, aMachine().Annotations, aMachine().Spec.ProviderID
		})
		write(func() { m.Status.CurrentStatus.Phase = v1alpha1.MachinePending })
		assert.Empty(t, w.asked(), "its own writes")
		w.put(changed(aNode(), unready))
		w.pass(2 * time.Second)
		assert.Equal(t, []string{awake(m)}, w.asked(), "it shows that the node is there")
		write(func() { m.Status.Conditions = machine.CopiedConditions(changed(aNode(), unready)) })
		assert.Empty(t, w.asked(), "its own write")
		for _, taint := range []string{"x", "y"} {
			w.put(changed(aNode(), unready, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: taint}} }))
			w.pass(100 * time.Millisecond)
		}
		w.pass(2 * time.Second)
		assert.Equal(t, []string{awake(m)}, w.asked(), "once for all changes of the node")
		version := w.put(aNode())
		w.settle()
		calls := w.took()
		require.Len(t, calls, 1, "the node is ready")
		assert.Equal(t, version, calls[0].changed.Versions[cache.Nodes])
		write(func() {
			m.Status.CurrentStatus.Phase, m.Status.Conditions = v1alpha1.MachineRunning, aMachine().Status.Conditions
		})
		w.put(changed(aNode(), heartbeat))
		w.pass(2 * time.Minute)
		assert.Empty(t, w.asked())
	})
}

// A node that is ready before the creation of its machine is on record is found when it is recorded.
func TestNodeFasterThanOurWrite(t *testing.T) {
	m := changed(aMachine(), uncreated)
	inWorld(t, []runtime.Object{aClass(), m}, func(w *world) {
		w.took()
		node := w.put(aNode())
		w.pass(2 * time.Second)
		assert.Empty(t, w.asked(), "no machine has the node yet")
		w.put(changed(aMachine(), inPhase("")))
		w.pass(2 * time.Second)
		assert.Empty(t, w.asked(), "the creation is still under way")
		w.put(changed(aMachine(), inPhase(v1alpha1.MachinePending)))
		w.settle()
		calls := w.took()
		require.Len(t, calls, 1)
		assert.Equal(t, idOf(m), calls[0].id)
		assert.Equal(
			t,
			node,
			calls[0].changed.Versions[cache.Nodes],
			"else a worker whose nodes are late would wait for this one",
		)
	})
}

// A run that was signaled because the node is unhealthy may have read it when it was healthy again.
func TestFlappingNode(t *testing.T) {
	for _, pause := range []time.Duration{time.Millisecond, 5 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			inWorld(t, calmStack(), func(w *world) {
				for range 3 {
					w.put(changed(aNode(), unready))
					w.pass(pause)
					w.put(aNode())
					w.pass(pause)
				}
				w.pass(5 * time.Second)
				w.took()
				w.put(changed(aNode(), unready))
				w.settle()
				assert.Equal(t, []string{awake(aMachine())}, w.asked())
				w.put(aNode())
				w.flush()
				w.put(changed(aNode(), unready))
				w.pass(2 * time.Second)
				assert.Equal(t, []string{awake(aMachine())}, w.asked(), "bad for the same reason as at the last signal")
			})
		})
	}
}

// A machine that is being deleted is signaled only for the health of its node, and after its drain not for its node at
// all.
func TestANodeWhoseMachineIsBeingDeleted(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		going := changed(aMachine(), toBeDeleted[*v1alpha1.Machine])
		w.put(going)
		w.flush()
		assert.Contains(t, w.asked(), awake(going))
		w.put(changed(aNode(), func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Status.Conditions = append(
				n.Status.Conditions,
				corev1.NodeCondition{Type: v1alpha1.NodeTerminating, Status: corev1.ConditionTrue},
			)
		}))
		w.pass(2 * time.Second)
		assert.NotContains(t, w.asked(), awake(going), "our own writes")
		w.put(changed(aNode(), unready))
		w.pass(2 * time.Second)
		assert.Contains(t, w.asked(), awake(going), "its drain may be cut short")
		w.put(aNode())
		w.pass(2 * time.Second)
		w.took()
		w.put(changed(going, func(m *v1alpha1.Machine) {
			m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionInstance}
		}))
		w.put(changed(aNode(), func(n *corev1.Node) { n.Spec.Unschedulable = true }))
		w.pass(5 * time.Second)
		assert.NotContains(t, w.asked(), awake(going))
		w.put(changed(aNode(), unready))
		w.pass(5 * time.Second)
		assert.NotContains(t, w.asked(), awake(going))
	})
}

func TestClassAndSecretWakeWhoIsNotCalm(t *testing.T) {
	waiting := changed(machineNamed("waiting"), uncreated)
	gone := changed(machineNamed("going"), toBeDeleted[*v1alpha1.Machine])
	elsewhere := changed(machineNamed("elsewhere"), uncreated, func(m *v1alpha1.Machine) { m.Spec.Class.Name = "large" })
	inWorld(t, append(calmStack(), waiting, gone, elsewhere), func(w *world) {
		w.took()
		class := changed(aClass(), func(c *v1alpha1.MachineClass) { c.Generation = 2 })
		version := w.put(class)
		w.flush()
		calls := w.took()
		for _, c := range calls {
			assert.Equal(t, version, c.changed.Versions[cache.Classes])
		}
		assert.ElementsMatch(t, []string{idOf(waiting), idOf(gone)}, []string{calls[0].id, calls[1].id})
		assert.Len(t, calls, 2)
		w.pass(2 * time.Second)

		w.put(aSecret())
		w.flush()
		assert.Equal(t, []string{awake(gone), awake(waiting)}, w.asked(), "the class's Secret")
		w.remove(aSecret())
		w.pass(2 * time.Second)
		assert.Equal(t, []string{awake(gone), awake(waiting)}, w.asked(), "the class's Secret is gone")
		other := changed(aSecret(), bare[*metav1.PartialObjectMetadata])
		other.Name, other.UID = "other", "uid-other"
		w.put(other)
		class.Labels = map[string]string{"color": "red"}
		w.put(class)
		w.pass(2 * time.Second)
		assert.Empty(t, w.asked(), "a Secret without a class, and a class of the same generation")
		w.remove(class)
		w.flush()
		assert.Equal(
			t,
			[]string{awake(gone), awake(waiting), awake(aSet())},
			w.asked(),
			"the class is gone: the set can make no machine",
		)
	})
}

// The bridge may see a set's status later than the machines from which it was computed, and then take the set for calm.
// The resync finds that.
func TestStatusThatComesLate(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		w.put(changed(aMachine(), inPhase(v1alpha1.MachineUnknown)))
		w.settle()
		assert.Contains(t, w.asked(), awake(aSet()))
		w.pass(2 * time.Second) // the set's workflow writes that no machine is ready
		w.put(aMachine())
		w.pass(2 * time.Second)
		assert.NotContains(t, w.asked(), awake(aSet()), "its status here still says that one is")
		w.put(changed(aSet(), func(s *v1alpha1.MachineSet) { s.Status.ReadyReplicas = 0 }))
		w.pass(aResync)
		assert.Contains(t, w.asked(), awake(aSet()))
	})
}

func TestAMachineChangesOwner(t *testing.T) {
	other := aSet()
	other.Name, other.UID = "other", "uid-other"
	inWorld(t, append(calmStack(), other), func(w *world) {
		w.pass(time.Second)
		w.took()
		w.put(changed(aMachine(), func(m *v1alpha1.Machine) { m.OwnerReferences = ownedBy(other, "MachineSet") }))
		w.flush()
		asked := strings.Join(w.asked(), "\n")
		assert.Contains(t, asked, awake(aSet()), "who has lost it")
		w.pass(time.Minute)
		assert.NotContains(t, asked, awake(aMachine()), "it concerns its owners only")
	})
}

func TestTaintsThatNobodyAskedAboutWakeNobody(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		w.put(changed(aNode(), func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }))
		w.pass(2 * time.Second)
		assert.Empty(t, w.asked(), "the machine is still calm")
	})
}

func TestConditionsThatNobodyAskedAboutAreCopied(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		n := changed(aNode(), func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Odd", Status: corev1.ConditionTrue})
		})
		w.put(n)
		w.pass(2 * time.Second)
		assert.Equal(t, []string{awake(aMachine())}, w.asked())
		w.put(changed(aMachine(), func(m *v1alpha1.Machine) { m.Status.Conditions = machine.CopiedConditions(n) }))
		w.pass(2 * time.Second)
		assert.Empty(t, w.asked(), "its own write")
	})
}
