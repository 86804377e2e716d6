package kube

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/api/v1alpha1"
	"millwright/decide/explain"
)

// A status names the blockers that its decision found, and none of an earlier status that the workflow still shows.
func TestAddBlockersToOperation(t *testing.T) {
	t.Parallel()
	step := func(name string) *v1alpha1.Operation {
		return &v1alpha1.Operation{Step: name, Cause: "2 of 10 done", BlockedBy: []string{"PodDisruptionBudget shop/web"}}
	}
	blocked := explain.Summary{
		Blockers: []string{"Approval"}, Reason: "Approval", Message: "the whole sentence", Short: "waits for approval",
		Since: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC),
		Waits: []explain.GroupedWait{
			{WaitState: explain.WaitState{Blockers: []string{"Approval"}, Cause: "approval is missing", Command: "approve it"}},
			{WaitState: explain.WaitState{Blockers: []string{"NoWorker"}, Cause: "no worker"}, MachineCount: 2},
		},
	}
	o := AddBlockersToOperation(step("roll"), explain.Summary{})
	assert.Empty(t, o.BlockedBy, "nothing blocks the deployment any more")
	assert.Equal(t, "2 of 10 done", o.WaitsFor)
	assert.Equal(t, "2 of 10 done", o.Summary)
	o = AddBlockersToOperation(step("roll"), blocked)
	assert.Equal(t, []string{"Approval"}, o.BlockedBy)
	assert.Equal(t, "the whole sentence", o.WaitsFor)
	assert.Equal(t, "waits for approval", o.Summary)
	assert.Equal(t, []v1alpha1.Wait{
		{BlockedBy: []string{"Approval"}, Cause: "approval is missing", Command: "approve it"},
		{BlockedBy: []string{"NoWorker"}, Cause: "no worker", Machines: 2},
	}, o.Waits)
	assert.NotEmpty(
		t,
		AddBlockersToOperation(step("refused"), explain.Summary{}).BlockedBy,
		"the API server refuses a write",
	)
	assert.Equal(t, "the whole sentence", AddBlockersToOperation(nil, blocked).WaitsFor)
	assert.Nil(t, AddBlockersToOperation(nil, explain.Summary{}))
}
