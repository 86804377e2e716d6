package watch

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/set"
)

// A machine with a controller signals that set, an orphan the sets that select it, and no others.
func TestWhoHearsOfAMachine(t *testing.T) {
	another := func(name, pool string) *v1alpha1.MachineSet {
		s := bareSet()
		s.Name, s.UID, s.OwnerReferences, s.Spec.Replicas = name, types.UID("uid-"+name), nil, 0
		s.Spec.Template.Labels = map[string]string{"pool": pool}
		s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}}
		return reportingBelow(nil, s)
	}
	twin, apart, everything := another("twin", "a"), another("apart", "b"), another("everything", "b")
	everything.Spec.Selector = &metav1.LabelSelector{}
	for _, row := range []struct {
		name  string
		event func(w *world)
		want  []string
	}{
		{"owned: its owner", replace(machineNamed("second")), []string{awake(aSet())}},
		{"an orphan: the sets that match it", replace(anOrphan()), []string{awake(aSet()), awake(twin)}},
		{"not the one that selects everything", replace(anOrphan(inOtherPool)), []string{awake(apart)}},
		{"an orphan that nobody matches", replace(anOrphan(func(m *v1alpha1.Machine) { m.Labels["pool"] = "c" })), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			inWorld(t, append(calmStack(), twin, apart, everything), func(w *world) {
				w.pass(2 * time.Second)
				w.took()
				row.event(w)
				w.settle()
				var sets []string
				for _, line := range w.asked() {
					for _, s := range []*v1alpha1.MachineSet{aSet(), twin, apart, everything} {
						if line == awake(s) {
							sets = append(sets, line)
						}
					}
				}
				assert.Equal(t, row.want, sets)
			})
		})
	}
}

// Writes of an orphan's own workflow signal no set.
func TestAnOrphanThatOnlyWorksWakesNoSet(t *testing.T) {
	inWorld(t, append(calmStack(), anOrphan(inOtherPool)), func(w *world) {
		w.took()
		for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineUnknown, v1alpha1.MachineRunning} {
			w.put(anOrphan(inOtherPool, inPhase(phase)))
			w.pass(2 * time.Second)
		}
		assert.NotContains(t, w.asked(), awake(aSet()))
	})
}

// The set that is to adopt an orphan must see it.
func TestASetReadsTheOrphansThatTheBridgeRead(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		orphan := w.put(anOrphan())
		w.pass(5 * time.Second)
		w.took()
		w.pass(aResync) // it was not adopted
		for _, c := range w.took() {
			if c.id == idOf(aSet()) {
				assert.Equal(t, orphan, c.changed.Versions[cache.Machines])
				return
			}
		}
		assert.Fail(t, "no signal was sent")
	})
}

// The workflow must see the class and the node of a failed machine as the bridge saw them.
func TestASetReadsTheClassAndTheNodesThatTheBridgeRead(t *testing.T) {
	lone := changed(aSet(), func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil })
	inWorld(t, append(calmStack(), lone), func(w *world) {
		class := w.put(changed(aClass(), func(c *v1alpha1.MachineClass) { c.Generation = 2 }))
		node := w.put(changed(aNode(), heartbeat))
		w.pass(5 * time.Second)
		w.took()
		w.put(changed(aMachine(), inPhase(v1alpha1.MachineFailed)))
		w.settle()
		for _, c := range w.took() {
			if c.id == idOf(lone) {
				assert.Equal(t, []string{class, node}, []string{c.changed.Versions[cache.Classes], c.changed.Versions[cache.Nodes]})
				return
			}
		}
		assert.Fail(t, "no signal was sent")
	})
}

// A class signals the sets that refer to it when it is created or deleted, and not when it changes.
func TestWhichSetsHearOfAClass(t *testing.T) {
	waiting := bareSet()
	waiting.Name, waiting.UID, waiting.Spec.Template.Spec.Class.Name = "waiting", "uid-waiting", "large"
	reportingOf(waiting, set.Related{Deployment: aDeployment(), Missing: []string{"MachineClass"}})
	inWorld(t, append(calmStack(), waiting), func(w *world) {
		signaled := func() []call {
			return slices.DeleteFunc(w.took(), func(c call) bool { return c.id != idOf(aSet()) && c.id != idOf(waiting) })
		}
		signaled()
		version := w.put(classNamed("large"))
		w.flush()
		calls := signaled()
		require.Len(t, calls, 1)
		assert.Equal(t, idOf(waiting), calls[0].id)
		assert.Equal(t, version, calls[0].changed.Versions[cache.Classes])
		w.pass(2 * time.Second)
		w.put(changed(classNamed("large"), func(c *v1alpha1.MachineClass) { c.Generation = 2 }))
		w.pass(2 * time.Second)
		assert.Empty(t, signaled())
	})
}

// The size of a deployment does not signal its sets: it reaches them as their own size.
func TestTheSizeOfADeploymentIsNoNewsToItsSets(t *testing.T) {
	inWorld(t, []runtime.Object{aDeployment(), aSet()}, func(w *world) {
		w.took()
		w.scale(5)
		w.pass(5 * time.Second)
		assert.Equal(t, []string{awake(aDeployment())}, w.asked())
	})
}
