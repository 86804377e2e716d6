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

func goingClass() *v1alpha1.MachineClass {
	return changed(aClass(), toBeDeleted[*v1alpha1.MachineClass])
}

// refersTo makes a class refer to one Secret, with its credentials.
func refersTo(secret string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) {
		c.Generation++
		c.SecretRef, c.CredentialsSecretRef = nil, &corev1.SecretReference{Namespace: "ns", Name: secret}
	}
}

func ofClass(name string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: name} }
}

func TestClassFingerprints(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*v1alpha1.MachineClass)
		want   []string
	}{
		{"what is in it", func(c *v1alpha1.MachineClass) { c.Generation = 2 }, []string{"spec"}},
		{"deletion", toBeDeleted[*v1alpha1.MachineClass], []string{"spec"}},
		{"another class of that name", func(c *v1alpha1.MachineClass) { c.UID = "other" }, []string{"spec"}},
		{"finalizer", bare[*v1alpha1.MachineClass], []string{"spec"}},
		{"a foreign finalizer", func(c *v1alpha1.MachineClass) { c.Finalizers = append(c.Finalizers, "foreign") }, nil},
		{"a label", func(c *v1alpha1.MachineClass) { c.Labels["color"] = "red" }, nil},
		{"its status", func(c *v1alpha1.MachineClass) { c.Status.ObservedGeneration = 7 }, nil},
		{"nobody serves its provider", unserved, []string{"children"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, which(classFingerprints(aClass()), classFingerprints(changed(aClass(), row.change))))
		})
	}
}

func TestEveryFactOfAClassWakesIt(t *testing.T) {
	read := func(w *world) any {
		class, found := w.cluster.Class("ns/small")
		require.True(t, found)
		return observeclass.Facts(class, observeclass.Read(w.cluster, "ns"))
	}
	going := []runtime.Object{goingClass()}
	other := secretNamed("other")
	proveFacts(t, reflect.TypeFor[attention.ClassFacts](), aClass(), read, []factRow{
		{fact: "Deleting", change: replace(goingClass())},
		{fact: "Finalizer", change: replace(aClass(), bare[*v1alpha1.MachineClass])},
		{fact: "Machines", before: going, change: func(w *world) { w.remove(aMachine()) }},
		{fact: "Machines", before: going, change: replace(machineNamed("second"))},
		{fact: "Machines", before: going, change: replace(aMachine(), ofClass("large"))},
		{fact: "Machines", before: append(going, changed(aMachine(), ofClass("large"))), change: replace(aMachine())},
		{fact: "Unguarded", change: replace(aSecret(), bare[aSecretsMetadata])},
		{fact: "Unguarded", before: []runtime.Object{other}, change: replace(aClass(), func(c *v1alpha1.MachineClass) {
			c.Generation, c.CredentialsSecretRef = 2, &corev1.SecretReference{Name: "other"}
		})},
		{
			fact:   "Unguarded",
			before: []runtime.Object{changed(aSecret(), bare[aSecretsMetadata]), changed(aClass(), refersTo("other"))},
			change: replace(other),
		},
		{fact: "Unused", change: replace(aClass(), func(c *v1alpha1.MachineClass) { c.Generation, c.SecretRef = 2, nil })},
	}, map[string]string{"Checked": "the bridge asks itself", "Unserved": "the bridge asks itself", "Reported": "written by the class's own workflow", "ReportedUnserved": "written by the class's own workflow"})
}

// The bridge asks Temporal who serves the providers. A class is woken when its status says something else; its machines
// that are at work are woken when the status has changed.
func TestAProviderWithoutAWorkerWakesItsClasses(t *testing.T) {
	var workers atomic.Int32
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aClass(), aSecret(), changed(aMachine(), uncreated, func(m *v1alpha1.Machine) {
			m.OwnerReferences, m.Status.CurrentOperation = nil, &v1alpha1.Operation{Step: "create-instance"}
		}))
		w.prepare = func(b *Bridge) {
			b.AskPollers(func(context.Context, string) (int, error) { return int(workers.Load()), nil })
		}
		w.lead()
		w.pass(3 * time.Second)
		w.took()
		w.pass(25 * time.Second)
		assert.Equal(t, []string{awake(aClass())}, w.asked(), "no worker, and the status does not say so")
		w.put(changed(aClass(), unserved))
		w.pass(25 * time.Second)
		assert.Equal(t, []string{awake(aMachine())}, w.asked(), "the machine at work has to say so; the class has said it")
		workers.Store(1)
		w.pass(25 * time.Second)
		assert.Contains(t, w.asked(), awake(aClass()), "there is a worker, and the status says that there is none")
	})
}

// A class that was never without a worker says so, too: the bridge wakes it until it does, and its machines have
// nothing to do with it.
func TestAProviderWithAWorkerWakesAClassThatDoesNotSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, aClass(), aSecret())
		w.prepare = func(b *Bridge) {
			b.AskPollers(func(context.Context, string) (int, error) { return 1, nil })
		}
		w.lead()
		w.pass(3 * time.Second)
		w.took()
		w.pass(25 * time.Second)
		assert.Equal(t, []string{awake(aClass())}, w.asked(), "its status does not say that it is served")
		w.put(changed(aClass(), func(c *v1alpha1.MachineClass) {
			c.Status.Conditions = []metav1.Condition{
				{Type: v1alpha1.ClassServed, Status: metav1.ConditionTrue, Reason: "WorkerPolls"},
			}
		}))
		w.pass(65 * time.Second)
		assert.Empty(t, w.asked(), "the status says it")
	})
}

func unserved(c *v1alpha1.MachineClass) {
	c.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ClassServed, Status: metav1.ConditionFalse, Reason: "NoWorker", Message: "no worker"},
	}
}

// A new class is signaled once. What its workflow then writes to the class and its Secret signals neither the class nor
// the machines that are being created.
func TestANewClassIsOneSignal(t *testing.T) {
	class := changed(aClass(), bare[*v1alpha1.MachineClass])
	waiting := changed(aMachine(), uncreated, func(m *v1alpha1.Machine) { m.OwnerReferences = nil })
	inWorld(t, []runtime.Object{changed(aSecret(), bare[aSecretsMetadata]), waiting}, func(w *world) {
		w.took()
		version := w.put(class)
		w.flush()
		calls := w.took()
		require.Len(t, calls, 2, "the machine may have waited for its class")
		c := calls[0]
		if c.workflow != "MachineClass" {
			c = calls[1]
		}
		assert.Equal(t, "garden/machineclass/ns/small/uid-small", c.id)
		assert.Equal(t, version, c.changed.Versions[cache.Classes])
		assert.NotEmpty(t, c.changed.Versions[cache.Secrets], "the worker may not have seen its Secret yet")
		assert.Equal(t, run.StartAttributes("ns", run.Owner{Provider: "virtual"}), c.options.TypedSearchAttributes)
		w.pass(2 * time.Second)

		w.put(aClass())
		w.pass(2 * time.Second)
		w.put(aSecret())
		w.pass(2 * time.Second)
		assert.Empty(t, w.asked(), "its own writes")
	})
}

func TestAMachineThatChangesIsNoNewsToItsClass(t *testing.T) {
	inWorld(t, append(calmStack(), goingClass()), func(w *world) {
		w.pass(time.Second)
		w.took()
		w.put(changed(aMachine(), inPhase(v1alpha1.MachineUnknown), toBeDeleted[*v1alpha1.Machine]))
		w.pass(5 * time.Second)
		assert.NotContains(t, w.asked(), awake(aClass()), "it still refers to the class")
		version := w.put(changed(aMachine(), func(m *v1alpha1.Machine) { m.Labels["color"] = "red" }))
		w.remove(aMachine())
		w.flush()
		for _, c := range w.took() {
			if c.id == idOf(aClass()) {
				assert.Equal(t, version, c.changed.Versions[cache.Machines], "a cache that is older still has the machine")
				return
			}
		}
		assert.Fail(t, "the class was not signaled when its last machine was gone")
	})
}

// While a hundred machines are deleted, the class is signaled four times a second.
func TestAClassThatWaitsHearsFourTimesASecond(t *testing.T) {
	objects := append(calmStack(), goingClass())
	var machines []*v1alpha1.Machine
	for i := range 100 {
		m := machineNamed("m-" + string(rune('a'+i/26)) + string(rune('a'+i%26)))
		machines, objects = append(machines, m), append(objects, m)
	}
	inWorld(t, objects, func(w *world) {
		w.pass(time.Second)
		w.took()
		for _, m := range machines {
			w.remove(m)
			w.pass(20 * time.Millisecond)
		}
		w.pass(2 * time.Second)
		signaled := 0
		for _, c := range w.took() {
			if c.id == idOf(aClass()) {
				signaled++
			}
		}
		assert.Equal(t, 9, signaled, "at once, and each quarter of a second")
	})
}

func TestDeletedClass(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		w.put(goingClass())
		w.flush()
		assert.Equal(t, []string{awake(aClass())}, w.asked())
		w.remove(aClass())
		w.pass(goneAfter)
		assert.Contains(t, w.asked(), "signal "+idOf(aClass()))
	})
}

func TestResyncOfClasses(t *testing.T) {
	named := func(name string, changes ...func(*v1alpha1.MachineClass)) *v1alpha1.MachineClass {
		class := changed(aClass(), changes...)
		class.Name, class.UID, class.SecretRef = name, types.UID("uid-"+name), nil
		return class
	}
	fresh, waiting := named("fresh", bare[*v1alpha1.MachineClass]), named("waiting", toBeDeleted[*v1alpha1.MachineClass])
	m := changed(aMachine(), ofClass("waiting"))
	inWorld(t, []runtime.Object{named("calm"), fresh, waiting, m, aNode()}, func(w *world) {
		w.took()
		w.pass(aResync)
		assert.Equal(t, []string{
			awake(fresh),             // prompt: must have been done at once
			"start " + idOf(waiting), // waits for its machine
		}, w.asked())
		w.put(secretNamedGuarded("left-behind")) // by a class whose finalizer was removed by hand
		w.pass(time.Second)
		assert.Empty(t, w.asked(), "no class names it")
		w.pass(aResync)
		assert.Equal(t, []string{awake(named("calm")), awake(fresh), awake(waiting)}, w.asked(), "each would release it")
	})
}
