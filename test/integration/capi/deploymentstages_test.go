//go:build integration

package capi

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
	"millwright/workflows/deployment"
	"millwright/workflows/run"
)

// A RolloutPolicy makes a rollout wait for a person after the first machine. It is paused and resumed, approved, and
// undone, by requests.
func TestAStagedRolloutOfADeployment(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "staged", 2)
	r.Policy(
		t,
		f.name,
		f.set,
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}},
	)
	f.awaitMade(t, f.name, 2)
	f.template(t, "staged-2")
	f.change(t, "staged-2")
	half := func(what string) {
		t.Helper()
		rig.Eventually(t, what, func() (bool, any) {
			made, page := f.made(t), f.page(t)
			return made["staged-2"] == 1 && made[f.name] == 1, fmt.Sprint(made, page, f.says(t))
		})
	}
	half("the first step is reached")
	rig.Eventually(t, "it waits for a person", func() (bool, any) {
		list := r.Workflows(
			t,
			fmt.Sprintf(
				"WorkflowType = 'ClusterAPIRollout' AND MachineDeployment = %q AND Stuck = true AND Step = 'await-approval'",
				f.set,
			),
		)
		return len(list) == 1, f.page(t)
	})
	require.Contains(t, f.request(t, run.RequestInput{Command: "pause", Reason: "lunch"}), "paused")
	require.Contains(t, f.request(t, run.RequestInput{Command: "approve", Reason: "looks well"}), "passes step 1 of 1")
	f.lookAgain(t)
	assert.Equal(t, map[string]int{"staged-2": 1, f.name: 1}, f.made(t), "it is paused")
	paused, _, _ := unstructured.NestedBool(f.get(t, machineDeployments, f.set).Object, "spec", "paused")
	assert.True(t, paused)
	require.Contains(t, f.request(t, run.RequestInput{Command: "resume", Reason: "back"}), "no longer paused")
	f.awaitMade(t, "staged-2", 2)

	require.NoError(
		t,
		r.Machines.MachineV1alpha1().RolloutPolicies(f.name).Delete(t.Context(), f.set, metav1.DeleteOptions{}),
	)
	require.Contains(
		t,
		f.request(t, run.RequestInput{Command: "undo", Reason: "slower"}),
		"returns from revision 2 to revision 1",
	)
	f.awaitMade(t, f.name, 2)
	assert.Equal(t, "3", f.revision(t))
	name, _, _ := unstructured.NestedString(
		f.get(t, machineDeployments, f.set).Object,
		"spec",
		"template",
		"spec",
		"infrastructureRef",
		"name",
	)
	assert.Equal(t, f.name, name)
	f.request(t, run.RequestInput{Command: "start", Reason: "once more"})
	rig.Eventually(t, "start makes another revision", func() (bool, any) { return f.revision(t) == "4", f.says(t) })
	require.NoError(t, f.of(machineDeployments).Delete(t.Context(), f.set, metav1.DeleteOptions{}))
	f.gone(t) // in the middle of its rollout
	assert.Empty(t, f.members(t))
	f.awaitCounts(t, 0)
}

// page returns what the workflow of the deployment shows in Temporal.
func (f fleet) page(t *testing.T) string {
	t.Helper()
	return r.Details(t, rig.Installation.ID(run.KindClusterAPIDeployment, f.ref(t)))
}

// annotationProgressDeadline is how many seconds a rollout may make no progress.
const annotationProgressDeadline = "rollout.machine.sapcloud.io/progress-deadline-seconds"

// A rollout that makes no progress goes back by itself, if its policy says so. No machine has failed: they take an hour
// to start.
func TestADeploymentGoesBackByItself(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "late", 2)
	r.Policy(
		t,
		f.name,
		f.set,
		v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true}},
	)
	f.awaitMade(t, f.name, 2)
	former := f.uids(t)
	verdict := f.guard(t, bounds{most: 3, least: 2})
	f.template(t, "late-2", "1h", "backend", "inMemory", "vm", "provisioning", "startupDuration")
	f.patch(
		t,
		fmt.Sprintf(
			`{"metadata":{"annotations":{%q:"10"}},"spec":{"template":{"spec":{"infrastructureRef":{"name":"late-2"}}}}}`,
			annotationProgressDeadline,
		),
	)
	rig.Eventually(
		t,
		"a machine of the new template",
		func() (bool, any) { made := f.made(t); return made["late-2"] == 1, made },
	)
	rig.Eventually(t, "it goes back by itself", func() (bool, any) {
		return f.get(t, machineDeployments, f.set).GetAnnotations()[v1alpha1.AnnotationAutomaticRollbackTo] != "", f.says(t)
	})
	f.awaitMade(t, f.name, 2)
	verdict()
	assert.ElementsMatch(t, former, f.uids(t), "no machine was given up for one that never came")
	rig.Eventually(t, "the rollout has its result", func() (bool, any) {
		runs := r.Workflows(
			t,
			fmt.Sprintf("WorkflowType = 'ClusterAPIRollout' AND MachineDeployment = %q AND ExecutionStatus != 'Running'", f.set),
		)
		if len(runs) == 0 {
			return false, "no rollout has ended"
		}
		var result deployment.RolloutResult
		first := runs[len(runs)-1].Execution
		err := r.Temporal.GetWorkflow(t.Context(), first.WorkflowId, first.RunId).Get(t.Context(), &result)
		return err == nil && result.Outcome == deployment.OutcomeRolledBack, fmt.Sprint(result, err)
	})
}
