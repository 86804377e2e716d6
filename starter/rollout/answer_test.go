package rollout

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/starter/kubecli"
)

func withOperation(blockedBy ...string) poolDeploymentEdit {
	return func(d *v1alpha1.MachineDeployment) {
		d.Status.CurrentOperation = &v1alpha1.Operation{
			Since: metav1.NewTime(
				now.Add(-5 * time.Minute),
			),
			BlockedBy: blockedBy,
			WaitsFor:  "budget shop/web; `millwright explain`",
		}
	}
}

func TestStateOfARollout(t *testing.T) {
	reached := metav1.NewTime(now.Add(-4 * time.Minute))
	atStep := func(p *pool) *pool {
		p.deployment.Status.Rollout.ReachedAt = &reached
		return p
	}
	for name, row := range map[string]struct {
		pool  *pool
		state stateWord
		since time.Time
	}{
		"in motion":                 {waitingPool(), stateProgressing, beginTime},
		"in motion, with its work":  {waitingPool(withOperation()), stateProgressing, now.Add(-5 * time.Minute)},
		"blocked":                   {waitingPool(withOperation("PodDisruptionBudget shop/web")), stateBlocked, now.Add(-5 * time.Minute)},
		"complete":                  {completedPool(), stateComplete, time.Time{}},
		"complete though paused":    {completedPool(setPaused), stateComplete, time.Time{}},
		"paused":                    {waitingPool(setPaused), statePaused, time.Time{}},
		"held":                      {waitingPool(withAnnotation(v1alpha1.AnnotationRolloutHold, "7 ann: lunch")), stateHeld, time.Time{}},
		"late":                      {waitingPool(withProgressDeadline(600)), stateLate, now},
		"invalid":                   {waitingPool(removeClass), stateInvalid, time.Time{}},
		"being deleted":             {waitingPool(markDeleted), stateDeleting, now},
		"undone":                    {waitingPool(withRollbackRequest(6)), stateUndoing, time.Time{}},
		"a step waits for a person": {atStep(stepPool(approvalStep(1))), stateWaitsForApproval, reached.Time},
		"a step waits for a time":   {atStep(stepPool(timedStep(intstr.FromInt32(1), 30*time.Minute))), stateWaitsForTime, reached.Time},
	} {
		word, since := row.pool.newSnapshot().state()
		assert.Equal(t, row.state, word, name)
		if name != "being deleted" {
			assert.Equal(t, row.since, since, name)
		}
	}
}

// stepPool returns a rollout with one updated machine and this step.
func stepPool(step v1alpha1.RolloutStep) *pool {
	return webPool().
		addSet("web-a", 6, "small", 2).addRunningMachines("a-1", "a-2").
		addSet("web-b", 7, "large", 1).addRunningMachines("b-1").
		addPolicy(policyWithSteps(step))
}

func TestStatusAsJSON(t *testing.T) {
	out, err := waitingPool(
		withOperation("PodDisruptionBudget shop/web"),
	).runCommand(t, "status", "mcd", "web", "-n", "shop", "-o", "json")
	require.NoError(t, err)
	var got statusAnswer
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, stateBlocked, got.State)
	assert.Equal(t, []int{3, 2, 2, 2}, []int{got.Desired, got.Updated, got.Ready, got.Available})
	assert.False(t, got.Complete)
	assert.EqualValues(t, 7, got.Revision)
	assert.Equal(t, "budget shop/web; `millwright explain`", got.WaitsFor)
	assert.Contains(t, got.Sentence, "revision 7")
	require.Len(t, got.Sets, 2)
	assert.Equal(t, setAnswer{
		Name: "web-b", Revision: 7, Template: "large", Current: true, Replicas: 2, Machines: 2, Ready: 1, Available: 1,
	}, got.Sets[0])
	assert.Equal(t, 1, got.Sets[1].Terminating)
	require.Len(t, got.Machines, 2)
	assert.Equal(t, machineAnswer{
		Name: "b-2", Node: "n-b-2", Phase: "Pending", Since: beginTime, LastOperation: "Creating the instance: no capacity",
	}, got.Machines[0])
	assert.True(t, got.Machines[1].Deleting)
	assert.Contains(
		t,
		got.Commands,
		kubecli.NextStep{Purpose: "To follow it", Command: "millwright rollout watch shop/web"},
	)

	out, err = stepPool(approvalStep(1)).runCommand(t, "status", "shop/web", "-o", "yaml")
	require.NoError(t, err)
	assert.Contains(t, out, "state: WaitsForApproval\nstep:\n  needsApproval: true\n  number: 1\n  of: 1\n  reached: ")
	assert.Contains(t, out, "policy: careful\n")
	out, err = completedPool().runCommand(t, "status", "shop/web", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"complete": true`)
	assert.NotContains(t, out, `"commands"`)
}

func TestHistoryAsJSONAndNames(t *testing.T) {
	out, err := poolWithHistory().runCommand(t, "history", "shop/web", "-o", "json")
	require.NoError(t, err)
	var got struct{ Items []revisionAnswer }
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.Items, 3)
	assert.Equal(t, revisionAnswer{
		Revision: 6, Formerly: []string{"3", "4"}, Set: "web-a", CreatedAt: beginTime.Add(-time.Hour), Template: "small",
	}, got.Items[1])
	assert.Equal(t, "image v2, says ann", got.Items[2].ChangeCause)
	assert.True(t, got.Items[2].Current)
	out, err = poolWithHistory().runCommand(t, "history", "shop/web", "-o", "name")
	require.NoError(t, err)
	assert.Equal(t, "machineset/shop/web-0\nmachineset/shop/web-a\nmachineset/shop/web-b\n", out)
	out, err = webPool().runCommand(t, "history", "shop/web", "-o", "json")
	require.NoError(t, err)
	assert.JSONEq(t, `{"items":[]}`, out)
	out, err = poolWithHistory().runCommand(t, "history", "shop/web", "--revision=3", "-o", "json")
	require.NoError(t, err)
	var template templateAnswer
	require.NoError(t, json.Unmarshal([]byte(out), &template))
	assert.EqualValues(t, 6, template.Revision, "revision 3 is revision 6 now")
	assert.Equal(t, "web-a", template.Set)
	assert.NotNil(t, template.Template)
}

func TestPlanAsJSON(t *testing.T) {
	out, err := waitingPool().runCommand(t, "plan", "shop/web", "-o", "json", "--create", "2m", "--delete", "30s")
	require.NoError(t, err)
	var got planAnswer
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.True(t, got.Complete)
	assert.Positive(t, got.MinimumSeconds)
	assert.Equal(t, []sizeItem{{"web-a", 1}, {"web-b", 2}}, got.Now)
	require.NotEmpty(t, got.Steps)
	assert.Contains(t, got.Steps[len(got.Steps)-1].Sizes, sizeItem{"web-b", 3})
	out, err = waitingPool(setPaused).runCommand(t, "plan", "shop/web", "-o", "json")
	require.NoError(t, err)
	got = planAnswer{}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, []string{"It is paused: these steps follow when it resumes."}, got.Notes)
	assert.Zero(t, got.MinimumSeconds)
	out, err = waitingPool(removeClass).runCommand(t, "plan", "shop/web", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"steps": []`)
	assert.Contains(t, out, "nothing can be done with it")
	out, err = waitingPool(
		withStrategy(v1alpha1.OnDeleteMachineDeploymentStrategyType),
	).runCommand(t, "plan", "shop/web", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"complete": false`)
	assert.Contains(t, out, `"end": "The plan ends here: old machines stay until somebody deletes them."`)
}
