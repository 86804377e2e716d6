package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/observe"
)

// An owned machine is its owner's business, an orphan that of the sets that match it, and others nobody's.
func TestMS05_WhoHearsOfAMachine(t *testing.T) {
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
		{"D40: not the one that selects everything", replace(anOrphan(inOtherPool)), []string{awake(apart)}},
		{"an orphan that nobody matches", replace(anOrphan(func(m *v1alpha1.Machine) { m.Labels["pool"] = "c" })), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			inWorld(t, append(calmStack(), twin, apart, everything), func(w *world) {
				w.pass(2 * time.Second)
				w.took()
				row.event(w)
				w.flush()
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

// What an orphan's own workflow does is no news to the sets.
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

// Whoever is told to adopt must see the orphan.
func TestASetReadsTheOrphansThatTheBridgeRead(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		orphan := w.put(anOrphan())
		w.pass(5 * time.Second)
		w.took()
		w.pass(aResync) // it was not adopted
		for _, c := range w.took() {
			if c.id == idOf(aSet()) {
				assert.Equal(t, orphan, c.changed.Versions[observe.Machines])
				return
			}
		}
		assert.Fail(t, "nobody was told")
	})
}

// The size of a deployment is no news to its sets: it comes to them by their own.
func TestTheSizeOfADeploymentIsNoNewsToItsSets(t *testing.T) {
	inWorld(t, []runtime.Object{aDeployment(), aSet()}, func(w *world) {
		w.took()
		w.scale(5)
		w.pass(5 * time.Second)
		assert.Equal(t, []string{awake(aDeployment())}, w.asked())
	})
}
