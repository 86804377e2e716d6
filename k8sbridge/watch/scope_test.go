package watch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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
