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

// Neither an event nor the resync starts a run in a namespace that is not Millwright's. If the namespace was Millwright's
// before, a run may be open. The bridge signals it once, and the run ends.
func TestAnotherNamespaceGetsNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, calmStack()...)
		w.cluster.Scope.Except = []string{aMachine().Namespace}
		w.runs = []string{idOf(aMachine())}
		w.lead()
		w.pass(3 * time.Second)
		assert.Equal(t, []string{"signal " + idOf(aMachine())}, w.asked(), "the open run")
		w.put(changed(aMachine(), toBeDeleted[*v1alpha1.Machine]))
		w.put(changed(aSet(), func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 7 }))
		w.pass(5 * time.Minute)
		assert.Empty(t, w.asked())
	})
}

// A label decides whether a namespace is Millwright's. When it is taken away, the open run is woken at once, and ends. When
// it comes back, what the objects need is begun at once.
func TestANamespaceThatIsLabelledOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := func(fleet string) *corev1.Namespace {
			return &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: aMachine().Namespace, Labels: map[string]string{"fleet": fleet}},
			}
		}
		doomed := changed(aMachine(), toBeDeleted[*v1alpha1.Machine])
		w := newWorld(t, append(calmStack(), named("blue"), doomed)...)
		open := func(runs ...string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.runs = runs
		}
		synctest.Wait() // the caches are filled
		w.cluster.Scope.Selector = labels.SelectorFromSet(labels.Set{"fleet": "blue"})
		w.lead()
		w.pass(3 * time.Second)
		assert.Contains(t, w.asked(), "signal-with-start "+idOf(doomed))
		open(idOf(doomed))
		w.put(named("green"))
		w.pass(3 * time.Second)
		assert.Equal(t, []string{"signal " + idOf(doomed)}, w.asked())
		open()
		w.pass(5 * time.Minute)
		assert.Empty(t, w.asked())
		w.put(named("blue"))
		w.pass(3 * time.Second)
		assert.NotEmpty(t, w.asked())
	})
}
