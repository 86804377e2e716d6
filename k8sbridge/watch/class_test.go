package watch

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/observe/cache"
	observeclass "millwright/observe/class"
	"millwright/workflows/run"
)

func classBeingDeleted() *v1alpha1.MachineClass {
	return changedCopy(testClass(), setDeleting[*v1alpha1.MachineClass])
}

// withSecret makes a class refer only to this Secret, for the credentials.
func withSecret(secret string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) {
		c.Generation++
		c.SecretRef, c.CredentialsSecretRef = nil, &corev1.SecretReference{Namespace: "ns", Name: secret}
	}
}

func withClass(name string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: name} }
}

func TestRelevantClassChangesAlterFingerprints(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*v1alpha1.MachineClass)
		want   []string
	}{
		{"what is in it", func(c *v1alpha1.MachineClass) { c.Generation = 2 }, []string{"spec"}},
		{"deletion", setDeleting[*v1alpha1.MachineClass], []string{"spec"}},
		{"another class of that name", func(c *v1alpha1.MachineClass) { c.UID = "other" }, []string{"spec"}},
		{"finalizer", removeFinalizers[*v1alpha1.MachineClass], []string{"spec"}},
		{"a foreign finalizer", func(c *v1alpha1.MachineClass) { c.Finalizers = append(c.Finalizers, "foreign") }, nil},
		{"a label", func(c *v1alpha1.MachineClass) { c.Labels["color"] = "red" }, nil},
		{"its status", func(c *v1alpha1.MachineClass) { c.Status.ObservedGeneration = 7 }, nil},
		{"nobody serves its provider", withoutWorker, []string{"children"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(
				t,
				row.want,
				differingFingerprints(classFingerprints(testClass()), classFingerprints(changedCopy(testClass(), row.change))),
			)
		})
	}
}

func TestEveryClassFactSignalsTheClass(t *testing.T) {
	read := func(w *bridgeTestEnv) any {
		class, found := w.cluster.Class("ns/small")
		require.True(t, found)
		return observeclass.Facts(class, observeclass.ReadNamespaceObjects(w.cluster, "ns"))
	}
	going := []runtime.Object{classBeingDeleted()}
	other := secretWithName("other")
	assertFactsSendSignals(t, reflect.TypeFor[attention.ClassFacts](), testClass(), read, []factTestCase{
		{fact: "Deleting", change: putChangedObject(classBeingDeleted())},
		{fact: "HasFinalizer", change: putChangedObject(testClass(), removeFinalizers[*v1alpha1.MachineClass])},
		{fact: "MachineCount", initialObjects: going, change: func(w *bridgeTestEnv) { w.deleteObject(testMachine()) }},
		{fact: "MachineCount", initialObjects: going, change: putChangedObject(machineWithName("second"))},
		{fact: "MachineCount", initialObjects: going, change: putChangedObject(testMachine(), withClass("large"))},
		{
			fact:           "MachineCount",
			initialObjects: append(going, changedCopy(testMachine(), withClass("large"))),
			change:         putChangedObject(testMachine()),
		},
		{fact: "UnguardedSecretCount", change: putChangedObject(testSecret(), removeFinalizers[secretMetadata])},
		{
			fact:           "UnguardedSecretCount",
			initialObjects: []runtime.Object{other},
			change: putChangedObject(testClass(), func(c *v1alpha1.MachineClass) {
				c.Generation, c.CredentialsSecretRef = 2, &corev1.SecretReference{Name: "other"}
			}),
		},
		{
			fact: "UnguardedSecretCount",
			initialObjects: []runtime.Object{
				changedCopy(testSecret(), removeFinalizers[secretMetadata]),
				changedCopy(testClass(), withSecret("other")),
			},
			change: putChangedObject(other),
		},
		{
			fact:   "UnusedSecretCount",
			change: putChangedObject(testClass(), func(c *v1alpha1.MachineClass) { c.Generation, c.SecretRef = 2, nil }),
		},
	}, map[string]string{"ServingKnown": "the bridge asks itself", "Unserved": "the bridge asks itself", "ServingReported": "written by the class's own workflow", "ReportedUnserved": "written by the class's own workflow"})
}

// The bridge asks Temporal for the workers of each provider. The bridge wakes a class if the class's status differs
// from Temporal's answer. The class's machines with a current operation are woken when the status has changed.
func TestClassesAreSignaledWhenTheirProviderLosesItsWorker(t *testing.T) {
	var workers atomic.Int32
	synctest.Test(t, func(t *testing.T) {
		w := newBridgeTestEnv(
			t,
			testClass(),
			testSecret(),
			changedCopy(testMachine(), setNotCreated, func(m *v1alpha1.Machine) {
				m.OwnerReferences, m.Status.CurrentOperation = nil, &v1alpha1.Operation{Step: "create-instance"}
			}),
		)
		w.prepareBridge = func(b *Bridge) {
			b.EnablePollerChecks(func(context.Context, string) (int, error) { return int(workers.Load()), nil })
		}
		w.startLeader()
		w.advanceClock(3 * time.Second)
		w.takeCalls()
		w.advanceClock(25 * time.Second)
		assert.Equal(
			t,
			[]string{signalWithStartLine(testClass())},
			w.takeRequests(),
			"no worker, and the status does not say so",
		)
		w.putObject(changedCopy(testClass(), withoutWorker))
		w.advanceClock(25 * time.Second)
		assert.Equal(
			t,
			[]string{signalWithStartLine(testMachine())},
			w.takeRequests(),
			"the machine at work has to say so; the class has said it",
		)
		workers.Store(1)
		w.advanceClock(25 * time.Second)
		assert.Contains(
			t,
			w.takeRequests(),
			signalWithStartLine(testClass()),
			"there is a worker, and the status says that there is none",
		)
	})
}

// The status of a class must report that the provider has a worker, even if the provider always had one. The bridge
// wakes the class until the class's status names the worker, and does not wake the class's machines.
func TestClassIsSignaledUntilItsStatusNamesTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBridgeTestEnv(t, testClass(), testSecret())
		w.prepareBridge = func(b *Bridge) {
			b.EnablePollerChecks(func(context.Context, string) (int, error) { return 1, nil })
		}
		w.startLeader()
		w.advanceClock(3 * time.Second)
		w.takeCalls()
		w.advanceClock(25 * time.Second)
		assert.Equal(
			t,
			[]string{signalWithStartLine(testClass())},
			w.takeRequests(),
			"its status does not say that it is served",
		)
		w.putObject(changedCopy(testClass(), func(c *v1alpha1.MachineClass) {
			c.Status.Conditions = []metav1.Condition{
				{Type: v1alpha1.ClassServed, Status: metav1.ConditionTrue, Reason: "WorkerPolls"},
			}
		}))
		w.advanceClock(65 * time.Second)
		assert.Empty(t, w.takeRequests(), "the status says it")
	})
}

func withoutWorker(c *v1alpha1.MachineClass) {
	c.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ClassServed, Status: metav1.ConditionFalse, Reason: "NoWorker", Message: "no worker"},
	}
}

// A new class is signaled once. When the class's workflow later writes the class or its Secret, neither the class nor
// the machines that are being created are signaled.
func TestNewClassIsSignaledOnce(t *testing.T) {
	class := changedCopy(testClass(), removeFinalizers[*v1alpha1.MachineClass])
	waiting := changedCopy(testMachine(), setNotCreated, func(m *v1alpha1.Machine) { m.OwnerReferences = nil })
	runBridgeTest(
		t,
		[]runtime.Object{changedCopy(testSecret(), removeFinalizers[secretMetadata]), waiting},
		func(w *bridgeTestEnv) {
			w.takeCalls()
			version := w.putObject(class)
			w.runDueWork()
			calls := w.takeCalls()
			require.Len(t, calls, 2, "the machine may have waited for its class")
			c := calls[0]
			if c.workflow != "MachineClass" {
				c = calls[1]
			}
			assert.Equal(t, "garden/machineclass/ns/small/uid-small", c.workflowID)
			assert.Equal(t, version, c.signalContent.Versions[cache.ClassesResource])
			assert.NotEmpty(t, c.signalContent.Versions[cache.SecretsResource], "the worker may not have seen its Secret yet")
			assert.Equal(
				t,
				run.StartSearchAttributes("ns", run.ParentNames{Provider: "virtual"}),
				c.options.TypedSearchAttributes,
			)
			w.advanceClock(2 * time.Second)

			w.putObject(testClass())
			w.advanceClock(2 * time.Second)
			w.putObject(testSecret())
			w.advanceClock(2 * time.Second)
			assert.Empty(t, w.takeRequests(), "its own writes")
		},
	)
}

func TestAChangedMachineDoesNotSignalItsClass(t *testing.T) {
	runBridgeTest(t, append(objectsWithoutPendingWork(), classBeingDeleted()), func(w *bridgeTestEnv) {
		w.advanceClock(time.Second)
		w.takeCalls()
		w.putObject(changedCopy(testMachine(), withPhase(v1alpha1.MachineUnknown), setDeleting[*v1alpha1.Machine]))
		w.advanceClock(5 * time.Second)
		assert.NotContains(t, w.takeRequests(), signalWithStartLine(testClass()), "it still refers to the class")
		version := w.putObject(changedCopy(testMachine(), func(m *v1alpha1.Machine) { m.Labels["color"] = "red" }))
		w.deleteObject(testMachine())
		w.runDueWork()
		for _, c := range w.takeCalls() {
			if c.workflowID == workflowIDOf(testClass()) {
				assert.Equal(
					t,
					version,
					c.signalContent.Versions[cache.MachinesResource],
					"a cache that is older still has the machine",
				)
				return
			}
		}
		assert.Fail(t, "the class was not signaled when its last machine was gone")
	})
}

// While a hundred machines are deleted, the class is signaled four times a second.
func TestClassGetsFourSignalsASecondWhileItsMachinesAreDeleted(t *testing.T) {
	objects := append(objectsWithoutPendingWork(), classBeingDeleted())
	var machines []*v1alpha1.Machine
	for i := range 100 {
		m := machineWithName("m-" + string(rune('a'+i/26)) + string(rune('a'+i%26)))
		machines, objects = append(machines, m), append(objects, m)
	}
	runBridgeTest(t, objects, func(w *bridgeTestEnv) {
		w.advanceClock(time.Second)
		w.takeCalls()
		for _, m := range machines {
			w.deleteObject(m)
			w.advanceClock(20 * time.Millisecond)
		}
		w.advanceClock(2 * time.Second)
		signaled := 0
		for _, c := range w.takeCalls() {
			if c.workflowID == workflowIDOf(testClass()) {
				signaled++
			}
		}
		assert.Equal(t, 9, signaled, "at once, and each quarter of a second")
	})
}

func TestWorkflowOfADeletedClassIsSignaled(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		w.putObject(classBeingDeleted())
		w.runDueWork()
		assert.Equal(t, []string{signalWithStartLine(testClass())}, w.takeRequests())
		w.deleteObject(testClass())
		w.advanceClock(deletionGracePeriod)
		assert.Contains(t, w.takeRequests(), "signal "+workflowIDOf(testClass()))
	})
}

func TestResyncSignalsClassesWithPendingWork(t *testing.T) {
	named := func(name string, changes ...func(*v1alpha1.MachineClass)) *v1alpha1.MachineClass {
		class := changedCopy(testClass(), changes...)
		class.Name, class.UID, class.SecretRef = name, types.UID("uid-"+name), nil
		return class
	}
	fresh, waiting := named(
		"fresh",
		removeFinalizers[*v1alpha1.MachineClass],
	), named(
		"waiting",
		setDeleting[*v1alpha1.MachineClass],
	)
	m := changedCopy(testMachine(), withClass("waiting"))
	runBridgeTest(t, []runtime.Object{named("calm"), fresh, waiting, m, testNode()}, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.advanceClock(maxResyncInterval)
		assert.Equal(t, []string{
			// signal, not only start: the class should have got its finalizer at once, so a signal may be lost
			signalWithStartLine(fresh),
			"start " + workflowIDOf(waiting), // the class waits for its machine
		}, w.takeRequests())
		w.putObject(secretWithFinalizer("left-behind")) // a Secret of a class that was removed by hand
		w.advanceClock(time.Second)
		assert.Empty(t, w.takeRequests(), "no class names it")
		w.advanceClock(maxResyncInterval)
		assert.Equal(
			t,
			[]string{signalWithStartLine(named("calm")), signalWithStartLine(fresh), signalWithStartLine(waiting)},
			w.takeRequests(),
			"each would release it",
		)
	})
}
