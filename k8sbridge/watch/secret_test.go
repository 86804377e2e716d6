package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

type secretMetadata = *metav1.PartialObjectMetadata

// secretWithName returns a Secret without Millwright's finalizer.
func secretWithName(name string) secretMetadata {
	s := changedCopy(testSecret(), removeFinalizers[secretMetadata])
	s.Name, s.UID = name, types.UID("uid-"+name)
	return s
}

func secretWithFinalizer(name string) secretMetadata {
	s := secretWithName(name)
	s.Finalizers = []string{v1alpha1.FinalizerSecret}
	return s
}

func TestRelevantSecretChangesAlterFingerprints(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(secretMetadata)
		want   []string
	}{
		{"what is in it", func(secretMetadata) {}, []string{"spec"}}, // only the resource version changes
		{"finalizer", removeFinalizers[secretMetadata], []string{"spec", "parentDebounced"}},
		{"a foreign finalizer", func(s secretMetadata) { s.Finalizers = append(s.Finalizers, "foreign") }, []string{"spec"}},
		{"deletion", setDeleting[secretMetadata], []string{"spec", "parentDebounced"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			next := changedCopy(testSecret(), row.change)
			next.ResourceVersion = "8"
			assert.Equal(t, row.want, differingFingerprints(secretFingerprints(testSecret()), secretFingerprints(next)))
		})
	}
}

func TestSecretSignalsItsClassesAndWaitingMachines(t *testing.T) {
	t.Run("one that only credentialsSecretRef names wakes its class and who waits for it", func(t *testing.T) {
		waiting := changedCopy(machineWithName("waiting"), setNotCreated)
		runBridgeTest(t, []runtime.Object{changedCopy(testClass(), withSecret("other")), waiting}, func(w *bridgeTestEnv) {
			w.takeCalls()
			version := w.putObject(secretWithName("other"))
			w.runDueWork()
			calls := map[string]temporalCall{}
			for _, c := range w.takeCalls() {
				calls[c.workflowID] = c
			}
			assert.Contains(t, calls, workflowIDOf(waiting))
			require.Contains(t, calls, workflowIDOf(testClass()))
			assert.Equal(t, version, calls[workflowIDOf(testClass())].signalContent.Versions[cache.SecretsResource])
			assert.NotContains(
				t,
				calls[workflowIDOf(waiting)].signalContent.Versions,
				cache.SecretsResource,
				"machines read Secrets live",
			)
		})
	})
	t.Run("one that is missing wakes nobody, and the class when it appears", func(t *testing.T) {
		runBridgeTest(t, []runtime.Object{testClass(), testMachine(), testNode()}, func(w *bridgeTestEnv) {
			w.advanceClock(maxResyncInterval)
			assert.Empty(t, w.takeRequests())
			w.putObject(secretWithName("credentials"))
			w.runDueWork()
			assert.Equal(t, []string{signalWithStartLine(testClass())}, w.takeRequests())
		})
	})
	t.Run("one in another namespace is left alone", func(t *testing.T) {
		elsewhere := secretWithName("credentials")
		elsewhere.Namespace = "keys"
		class := changedCopy(testClass(), func(c *v1alpha1.MachineClass) { c.SecretRef.Namespace = "keys" })
		runBridgeTest(t, []runtime.Object{class}, func(w *bridgeTestEnv) {
			w.putObject(elsewhere)
			w.advanceClock(maxResyncInterval)
			assert.Empty(t, w.takeRequests())
		})
	})
	t.Run("one in another namespace that allows its use wakes who waits for it", func(t *testing.T) {
		elsewhere := secretWithName("credentials")
		elsewhere.Namespace = "keys"
		class := changedCopy(testClass(), func(c *v1alpha1.MachineClass) { c.SecretRef.Namespace = "keys" })
		waiting := changedCopy(machineWithName("waiting"), setNotCreated)
		runBridgeTest(t, []runtime.Object{class, elsewhere, waiting}, func(w *bridgeTestEnv) {
			w.takeCalls()
			elsewhere.Annotations = map[string]string{v1alpha1.AnnotationAllowedClassNamespaces: "ns"}
			w.putObject(elsewhere)
			w.runDueWork()
			assert.Equal(t, []string{signalWithStartLine(waiting)}, w.takeRequests())
		})
	})
	t.Run("one that changes is no news to a class that waits", func(t *testing.T) {
		runBridgeTest(t, append(objectsWithoutPendingWork(), classBeingDeleted()), func(w *bridgeTestEnv) {
			w.advanceClock(time.Second)
			w.takeCalls()
			w.putObject(testSecret())
			w.advanceClock(2 * time.Second)
			assert.Empty(t, w.takeRequests())
		})
	})
	t.Run("one that goes with its class starts no run for what is gone", func(t *testing.T) {
		runBridgeTest(t, append(objectsWithoutPendingWork(), classBeingDeleted()), func(w *bridgeTestEnv) {
			w.deleteObject(testMachine())
			w.advanceClock(5 * time.Second)
			w.takeCalls()
			// now the workflow of the class removes the finalizers of the Secret and the class
			w.putObject(changedCopy(testSecret(), setDeleting[secretMetadata]))
			w.deleteObject(testSecret())
			w.deleteObject(classBeingDeleted())
			w.advanceClock(2 * time.Second)
			assert.NotContains(t, w.takeRequests(), signalWithStartLine(testClass()))
		})
	})
}
