package watch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/api/v1alpha1"
)

// Neither an event nor the resync starts a run in a namespace that is not Millwright's. If the namespace was
// Millwright's before, a run may be open: the bridge signals the run once, and the run ends.
func TestObjectsOfNamespacesOutOfScopeAreNotSignaled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBridgeTestEnv(t, objectsWithoutPendingWork()...)
		w.cluster.Scope.ExceptNamespaces = []string{testMachine().Namespace}
		w.openRunIDs = []string{workflowIDOf(testMachine())}
		w.startLeader()
		w.advanceClock(3 * time.Second)
		assert.Equal(t, []string{"signal " + workflowIDOf(testMachine())}, w.takeRequests(), "the open run")
		w.putObject(changedCopy(testMachine(), setDeleting[*v1alpha1.Machine]))
		w.putObject(changedCopy(testMachineSet(), func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 7 }))
		w.advanceClock(5 * time.Minute)
		assert.Empty(t, w.takeRequests())
	})
}

// A label decides whether a namespace is Millwright's. When the label is removed, the open run is woken at once and
// ends. When the label is set again, pending work of the namespace's objects starts at once.
func TestNamespaceLabelDecidesWhetherItsObjectsAreSignaled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := func(fleet string) *corev1.Namespace {
			return &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: testMachine().Namespace, Labels: map[string]string{"fleet": fleet}},
			}
		}
		doomed := changedCopy(testMachine(), setDeleting[*v1alpha1.Machine])
		w := newBridgeTestEnv(t, append(objectsWithoutPendingWork(), named("blue"), doomed)...)
		open := func(runs ...string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.openRunIDs = runs
		}
		synctest.Wait() // wait until the caches are filled
		w.cluster.Scope.Selector = labels.SelectorFromSet(labels.Set{"fleet": "blue"})
		w.startLeader()
		w.advanceClock(3 * time.Second)
		assert.Contains(t, w.takeRequests(), "signal-with-start "+workflowIDOf(doomed))
		open(workflowIDOf(doomed))
		w.putObject(named("green"))
		w.advanceClock(3 * time.Second)
		assert.Equal(t, []string{"signal " + workflowIDOf(doomed)}, w.takeRequests())
		open()
		w.advanceClock(5 * time.Minute)
		assert.Empty(t, w.takeRequests())
		w.putObject(named("blue"))
		w.advanceClock(3 * time.Second)
		assert.NotEmpty(t, w.takeRequests())
	})
}
