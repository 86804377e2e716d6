package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/api/v1alpha1"
)

// A machine of the current template that is being deleted is not up to date.
func TestMachinesBeingDeletedAreNotUpToDate(t *testing.T) {
	p := webPool().addSet("web-b", 7, "large", 2).
		addRunningMachines("b-1", "b-2").
		addMachine("b-3", v1alpha1.MachineTerminating)
	p.deployment.Spec.Replicas = 2 // the set is scaled down
	s := p.newSnapshot()
	assert.Contains(t, s.machineCountsText(), "2 wanted, 2 up to date")
	assert.Contains(t, s.progressBar(), "2/2 up to date")
	assert.Equal(t, "2 of 2 machines up to date", s.updatedMachinesText())
}
