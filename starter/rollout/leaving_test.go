package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/api/v1alpha1"
)

// A machine of the current template that is being deleted is not one of those that are up to date.
func TestLeavingMachinesAreNotUpToDate(t *testing.T) {
	p := webPool().set("web-b", 7, "large", 2).running("b-1", "b-2").machine("b-3", v1alpha1.MachineTerminating)
	p.deployment.Spec.Replicas = 2 // the set is scaled down
	s := p.snapshot()
	assert.Contains(t, s.numbers(), "2 wanted, 2 up to date")
	assert.Contains(t, s.bar(), "2/2 up to date")
	assert.Equal(t, "2 of 2 machines up to date", s.reached())
}
