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

func TestStackWithoutPendingWorkSendsNoSignal(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		assert.Empty(t, w.takeRequests(), "when the leader begins")
		for range 12 {
			w.putObject(changedCopy(testNode(), updateHeartbeat))
			w.advanceClock(10 * time.Second)
		}
		assert.Empty(t, w.takeRequests(), "for two minutes of heartbeats and resyncs")
	})
}

func TestOwnStatusWritesSendNoSignal(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		w.putObject(changedCopy(testMachine(), func(m *v1alpha1.Machine) {
			m.Status.LastOperation.Description, m.Status.LastOperation.LastUpdateTime = "again", creationTime
			m.Status.Conditions = testNode().Status.Conditions
			m.Status.JoinedAt = &creationTime
		}))
		w.putObject(changedCopy(testMachineSet(), func(s *v1alpha1.MachineSet) {
			s.Status.CurrentOperation, s.Status.Selector = &v1alpha1.Operation{Step: "x"}, "pool=a"
		}, withAnnotation[*v1alpha1.MachineSet](v1alpha1.AnnotationRevisionHistory, "1")))
		w.putObject(changedCopy(testDeployment(), func(d *v1alpha1.MachineDeployment) {
			d.Status.CurrentOperation, d.Status.Selector = &v1alpha1.Operation{Step: "x"}, "pool=a"
			d.Status.Conditions[0].LastUpdateTime = metav1.Now()
		}, withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationLastRequest, "ann paused it")))
		w.advanceClock(time.Minute + 10*time.Second)
		assert.Empty(t, w.takeRequests())
	})
}

func TestNewMachineSignalsItselfAndItsSet(t *testing.T) {
	runBridgeTest(t, []runtime.Object{testDeployment(), testMachineSet(), testClass()}, func(w *bridgeTestEnv) {
		w.takeCalls()
		class := w.putObject(testClass())
		w.runDueWork()
		version := w.putObject(changedCopy(testMachine(), setNotCreated))
		w.runDebouncedWork()
		calls := w.takeCalls()
		require.Len(t, calls, 2, "the machine and its set")
		c := calls[0]
		if c.workflow != "Machine" {
			c = calls[1]
		}
		assert.Equal(t, "garden/machine/ns/m/uid-m", c.workflowID)
		assert.Equal(t, "uid-m", c.signalContent.UID)
		assert.Equal(t, cache.ObjectRef{Namespace: "ns", Name: "m", UID: "uid-m"}, c.input.Ref)
		assert.Equal(t, version, c.signalContent.Versions[cache.MachinesResource])
		assert.Equal(t, class, c.signalContent.Versions[cache.ClassesResource], "the worker may not have the class yet")
		assert.Equal(t, c.signalContent.Versions, c.input.Versions, "the first decision of a new run reads no less")
		assert.Equal(t, testInstallation.Shard(0).TaskQueue(run.QueueMachines), c.options.TaskQueue)
		assert.Equal(t, "Machine ns/m", c.options.StaticSummary)
		assert.Equal(
			t,
			run.StartSearchAttributes(
				"ns",
				run.ParentNames{Machine: "m", MachineSet: "s", MachineDeployment: "d", Provider: "virtual"},
			),
			c.options.TypedSearchAttributes,
		)
	})
}

// The test makes the writes of a machine's workflow, in their order. Only the new object and its node signal the
// machine.
func TestOwnWritesOfACreationSendNoSignal(t *testing.T) {
	runBridgeTest(t, []runtime.Object{testClass()}, func(w *bridgeTestEnv) {
		m := changedCopy(testMachine(), setNotCreated, func(m *v1alpha1.Machine) { m.Finalizers, m.Annotations = nil, nil })
		w.putObject(m)
		w.runDueWork()
		assert.Contains(t, w.takeRequests(), signalWithStartLine(m))
		write := func(change func()) {
			change()
			w.putObject(m)
			w.advanceClock(2 * time.Second)
		}
		write(func() { m.Finalizers = testMachine().Finalizers })
		write(func() { m.Status.LastOperation.State = v1alpha1.MachineStateProcessing })
		write(func() {
			m.Labels, m.Annotations, m.Spec.ProviderID = testMachine().Labels, testMachine().Annotations, testMachine().Spec.ProviderID
		})
		write(func() { m.Status.CurrentStatus.Phase = v1alpha1.MachinePending })
		assert.Empty(t, w.takeRequests(), "its own writes")
		w.putObject(changedCopy(testNode(), setNodeUnready))
		w.advanceClock(2 * time.Second)
		assert.Equal(t, []string{signalWithStartLine(m)}, w.takeRequests(), "it shows that the node is there")
		write(func() { m.Status.Conditions = machine.CopiedConditions(changedCopy(testNode(), setNodeUnready)) })
		assert.Empty(t, w.takeRequests(), "its own write")
		for _, taint := range []string{"x", "y"} {
			w.putObject(
				changedCopy(testNode(), setNodeUnready, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: taint}} }),
			)
			w.advanceClock(100 * time.Millisecond)
		}
		w.advanceClock(2 * time.Second)
		assert.Equal(t, []string{signalWithStartLine(m)}, w.takeRequests(), "once for all changes of the node")
		version := w.putObject(testNode())
		w.runDebouncedWork()
		calls := w.takeCalls()
		require.Len(t, calls, 1, "the node is ready")
		assert.Equal(t, version, calls[0].signalContent.Versions[cache.NodesResource])
		write(func() {
			m.Status.CurrentStatus.Phase, m.Status.Conditions = v1alpha1.MachineRunning, testMachine().Status.Conditions
		})
		w.putObject(changedCopy(testNode(), updateHeartbeat))
		w.advanceClock(2 * time.Minute)
		assert.Empty(t, w.takeRequests())
	})
}

// If a node is ready before its machine's creation is recorded, the record of the creation signals the machine.
func TestRecordedCreationSignalsAMachineWhoseNodeIsReady(t *testing.T) {
	m := changedCopy(testMachine(), setNotCreated)
	runBridgeTest(t, []runtime.Object{testClass(), m}, func(w *bridgeTestEnv) {
		w.takeCalls()
		node := w.putObject(testNode())
		w.advanceClock(2 * time.Second)
		assert.Empty(t, w.takeRequests(), "no machine has the node yet")
		w.putObject(changedCopy(testMachine(), withPhase("")))
		w.advanceClock(2 * time.Second)
		assert.Empty(t, w.takeRequests(), "the creation is still under way")
		w.putObject(changedCopy(testMachine(), withPhase(v1alpha1.MachinePending)))
		w.runDebouncedWork()
		calls := w.takeCalls()
		require.Len(t, calls, 1)
		assert.Equal(t, workflowIDOf(m), calls[0].workflowID)
		assert.Equal(
			t,
			node,
			calls[0].signalContent.Versions[cache.NodesResource],
			"else a worker whose nodes are late would wait for this one",
		)
	})
}

// A run that was signaled for an unhealthy node may have read the node when it was healthy again.
func TestFlappingNodeSignalsItsMachine(t *testing.T) {
	for _, pause := range []time.Duration{time.Millisecond, 5 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
				for range 3 {
					w.putObject(changedCopy(testNode(), setNodeUnready))
					w.advanceClock(pause)
					w.putObject(testNode())
					w.advanceClock(pause)
				}
				w.advanceClock(5 * time.Second)
				w.takeCalls()
				w.putObject(changedCopy(testNode(), setNodeUnready))
				w.runDebouncedWork()
				assert.Equal(t, []string{signalWithStartLine(testMachine())}, w.takeRequests())
				w.putObject(testNode())
				w.runDueWork()
				w.putObject(changedCopy(testNode(), setNodeUnready))
				w.advanceClock(2 * time.Second)
				assert.Equal(
					t,
					[]string{signalWithStartLine(testMachine())},
					w.takeRequests(),
					"bad for the same reason as at the last signal",
				)
			})
		})
	}
}

// While a machine is being deleted, only the health of its node signals the machine. After the drain, no change of the
// node signals the machine.
func TestOnlyNodeHealthSignalsADeletingMachine(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		going := changedCopy(testMachine(), setDeleting[*v1alpha1.Machine])
		w.putObject(going)
		w.runDueWork()
		assert.Contains(t, w.takeRequests(), signalWithStartLine(going))
		w.putObject(changedCopy(testNode(), func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Status.Conditions = append(
				n.Status.Conditions,
				corev1.NodeCondition{Type: v1alpha1.NodeTerminating, Status: corev1.ConditionTrue},
			)
		}))
		w.advanceClock(2 * time.Second)
		assert.NotContains(t, w.takeRequests(), signalWithStartLine(going), "our own writes")
		w.putObject(changedCopy(testNode(), setNodeUnready))
		w.advanceClock(2 * time.Second)
		assert.Contains(t, w.takeRequests(), signalWithStartLine(going), "its drain may be cut short")
		w.putObject(testNode())
		w.advanceClock(2 * time.Second)
		w.takeCalls()
		w.putObject(changedCopy(going, func(m *v1alpha1.Machine) {
			m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: v1alpha1.MachineDeletionInstance}
		}))
		w.putObject(changedCopy(testNode(), func(n *corev1.Node) { n.Spec.Unschedulable = true }))
		w.advanceClock(5 * time.Second)
		assert.NotContains(t, w.takeRequests(), signalWithStartLine(going))
		w.putObject(changedCopy(testNode(), setNodeUnready))
		w.advanceClock(5 * time.Second)
		assert.NotContains(t, w.takeRequests(), signalWithStartLine(going))
	})
}

func TestClassAndSecretSignalObjectsWithPendingWork(t *testing.T) {
	waiting := changedCopy(machineWithName("waiting"), setNotCreated)
	gone := changedCopy(machineWithName("going"), setDeleting[*v1alpha1.Machine])
	elsewhere := changedCopy(
		machineWithName("elsewhere"),
		setNotCreated,
		func(m *v1alpha1.Machine) { m.Spec.Class.Name = "large" },
	)
	runBridgeTest(t, append(objectsWithoutPendingWork(), waiting, gone, elsewhere), func(w *bridgeTestEnv) {
		w.takeCalls()
		class := changedCopy(testClass(), func(c *v1alpha1.MachineClass) { c.Generation = 2 })
		version := w.putObject(class)
		w.runDueWork()
		calls := w.takeCalls()
		for _, c := range calls {
			assert.Equal(t, version, c.signalContent.Versions[cache.ClassesResource])
		}
		assert.ElementsMatch(
			t,
			[]string{workflowIDOf(waiting), workflowIDOf(gone)},
			[]string{calls[0].workflowID, calls[1].workflowID},
		)
		assert.Len(t, calls, 2)
		w.advanceClock(2 * time.Second)

		w.putObject(testSecret())
		w.runDueWork()
		assert.Equal(
			t,
			[]string{signalWithStartLine(gone), signalWithStartLine(waiting)},
			w.takeRequests(),
			"the class's Secret",
		)
		w.deleteObject(testSecret())
		w.advanceClock(2 * time.Second)
		assert.Equal(
			t,
			[]string{signalWithStartLine(gone), signalWithStartLine(waiting)},
			w.takeRequests(),
			"the class's Secret is gone",
		)
		other := changedCopy(testSecret(), removeFinalizers[*metav1.PartialObjectMetadata])
		other.Name, other.UID = "other", "uid-other"
		w.putObject(other)
		class.Labels = map[string]string{"color": "red"}
		w.putObject(class)
		w.advanceClock(2 * time.Second)
		assert.Empty(t, w.takeRequests(), "a Secret without a class, and a class of the same generation")
		w.deleteObject(class)
		w.runDueWork()
		assert.Equal(
			t,
			[]string{signalWithStartLine(gone), signalWithStartLine(waiting), signalWithStartLine(testMachineSet())},
			w.takeRequests(),
			"the class is gone: the set can make no machine",
		)
	})
}

// The bridge may receive a set's status later than the machines from which the status was computed, and may then find
// no pending work. At the next resync, the bridge evaluates the set with its current status.
func TestResyncCorrectsALateSetStatus(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		w.putObject(changedCopy(testMachine(), withPhase(v1alpha1.MachineUnknown)))
		w.runDebouncedWork()
		assert.Contains(t, w.takeRequests(), signalWithStartLine(testMachineSet()))
		w.advanceClock(2 * time.Second) // the set's workflow writes that no machine is ready
		w.putObject(testMachine())
		w.advanceClock(2 * time.Second)
		assert.NotContains(
			t,
			w.takeRequests(),
			signalWithStartLine(testMachineSet()),
			"its status here still says that one is",
		)
		w.putObject(changedCopy(testMachineSet(), func(s *v1alpha1.MachineSet) { s.Status.ReadyReplicas = 0 }))
		w.advanceClock(maxResyncInterval)
		assert.Contains(t, w.takeRequests(), signalWithStartLine(testMachineSet()))
	})
}

func TestMachineThatChangesItsOwnerSignalsBothSets(t *testing.T) {
	other := testMachineSet()
	other.Name, other.UID = "other", "uid-other"
	runBridgeTest(t, append(objectsWithoutPendingWork(), other), func(w *bridgeTestEnv) {
		w.advanceClock(time.Second)
		w.takeCalls()
		w.putObject(
			changedCopy(
				testMachine(),
				func(m *v1alpha1.Machine) { m.OwnerReferences = newOwnerReferences(other, "MachineSet") },
			),
		)
		w.runDueWork()
		asked := strings.Join(w.takeRequests(), "\n")
		assert.Contains(t, asked, signalWithStartLine(testMachineSet()), "who has lost it")
		w.advanceClock(time.Minute)
		assert.NotContains(t, asked, signalWithStartLine(testMachine()), "it concerns its owners only")
	})
}

func TestIrrelevantTaintsSendNoSignal(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		w.putObject(changedCopy(testNode(), func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }))
		w.advanceClock(2 * time.Second)
		assert.Empty(t, w.takeRequests(), "the machine is still calm")
	})
}

func TestUnknownNodeConditionSignalsTheMachine(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		n := changedCopy(testNode(), func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Odd", Status: corev1.ConditionTrue})
		})
		w.putObject(n)
		w.advanceClock(2 * time.Second)
		assert.Equal(t, []string{signalWithStartLine(testMachine())}, w.takeRequests())
		w.putObject(
			changedCopy(testMachine(), func(m *v1alpha1.Machine) { m.Status.Conditions = machine.CopiedConditions(n) }),
		)
		w.advanceClock(2 * time.Second)
		assert.Empty(t, w.takeRequests(), "its own write")
	})
}
