//go:build integration

package capi

import (
	"fmt"
	"strconv"
	"strings"
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

// A RolloutPolicy makes a rollout wait for a person after the first machine. Requests pause, resume, approve and roll
// back the rollout.
func TestStagedRolloutIsPausedApprovedAndRolledBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "staged", 2)
	testRig.CreatePolicy(
		t,
		f.name,
		f.poolName,
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}},
	)
	f.awaitMachinesOfTemplate(t, f.name, 2)
	f.newInfrastructureTemplate(t, "staged-2")
	f.setInfrastructureTemplate(t, "staged-2")
	half := func(what string) {
		t.Helper()
		rig.Eventually(t, what, func() (bool, any) {
			made, page := f.countMachinesByTemplate(t), f.workflowDetails(t)
			return made["staged-2"] == 1 && made[f.name] == 1, fmt.Sprint(made, page, f.conditionLines(t))
		})
	}
	half("the first step is reached")
	rig.Eventually(t, "it waits for a person", func() (bool, any) {
		list := testRig.WorkflowRuns(
			t,
			fmt.Sprintf(
				"WorkflowType = 'ClusterAPIRollout' AND MachineDeployment = %q AND Stuck = true AND Step = 'await-approval'",
				f.poolName,
			),
		)
		return len(list) == 1, f.workflowDetails(t)
	})
	require.Contains(t, f.sendRequestByUpdate(t, run.RequestInput{Command: "pause", Reason: "lunch"}), "paused")
	require.Contains(
		t,
		f.sendRequestByUpdate(t, run.RequestInput{Command: "approve", Reason: "looks well"}),
		"passes step 1 of 1",
	)
	f.forceReconcile(t)
	assert.Equal(t, map[string]int{"staged-2": 1, f.name: 1}, f.countMachinesByTemplate(t), "it is paused")
	paused, _, _ := unstructured.NestedBool(f.getObject(t, machineDeploymentResource, f.poolName).Object, "spec", "paused")
	assert.True(t, paused)
	require.Contains(t, f.sendRequestByUpdate(t, run.RequestInput{Command: "resume", Reason: "back"}), "no longer paused")
	f.awaitMachinesOfTemplate(t, "staged-2", 2)

	require.NoError(
		t,
		testRig.MachineClient.MachineV1alpha1().
			RolloutPolicies(f.name).
			Delete(t.Context(), f.poolName, metav1.DeleteOptions{}),
	)
	require.Contains(
		t,
		f.sendRequestByUpdate(t, run.RequestInput{Command: "undo", Reason: "slower"}),
		"returns from revision 2 to revision 1",
	)
	f.awaitMachinesOfTemplate(t, f.name, 2)
	assert.Equal(t, "3", f.revision(t))
	name, _, _ := unstructured.NestedString(
		f.getObject(t, machineDeploymentResource, f.poolName).Object,
		"spec",
		"template",
		"spec",
		"infrastructureRef",
		"name",
	)
	assert.Equal(t, f.name, name)
	f.sendRequestByUpdate(t, run.RequestInput{Command: "start", Reason: "once more"})
	rig.Eventually(
		t,
		"start makes another revision",
		func() (bool, any) { return f.revision(t) == "4", f.conditionLines(t) },
	)
	require.NoError(t, f.resourceClient(machineDeploymentResource).Delete(t.Context(), f.poolName, metav1.DeleteOptions{}))
	f.awaitPoolGone(t) // the deployment is deleted in the middle of its rollout
	assert.Empty(t, f.listMachines(t))
	f.awaitObjectCounts(t, 0)
}

// workflowDetails returns the details of the deployment's workflow in Temporal.
func (f fleet) workflowDetails(t *testing.T) string {
	t.Helper()
	return testRig.WorkflowDetails(t, rig.Installation.ID(run.KindClusterAPIDeployment, f.kubeRef(t)))
}

// progressDeadlineAnnotation is the annotation with the number of seconds for which a rollout may make no progress.
const progressDeadlineAnnotation = "rollout.machine.sapcloud.io/progress-deadline-seconds"

// A rollout that makes no progress rolls back automatically if its policy requires a rollback. No machine has failed:
// the new machines take an hour to start.
func TestADeploymentRollsBackAutomatically(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "late", 2)
	testRig.CreatePolicy(
		t,
		f.name,
		f.poolName,
		v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true}},
	)
	f.awaitMachinesOfTemplate(t, f.name, 2)
	former := f.machineUIDs(t)
	verdict := f.watchBounds(t, rolloutBounds{maxMachines: 3, minAvailable: 2})
	f.newInfrastructureTemplate(t, "late-2", "1h", "backend", "inMemory", "vm", "provisioning", "startupDuration")
	f.patchPool(
		t,
		fmt.Sprintf(
			`{"metadata":{"annotations":{%q:"10"}},"spec":{"template":{"spec":{"infrastructureRef":{"name":"late-2"}}}}}`,
			progressDeadlineAnnotation,
		),
	)
	rig.Eventually(
		t,
		"a machine of the new template",
		func() (bool, any) { made := f.countMachinesByTemplate(t); return made["late-2"] == 1, made },
	)
	rig.Eventually(t, "it goes back by itself", func() (bool, any) {
		progress := f.getObject(t, machineDeploymentResource, f.poolName).GetAnnotations()[v1alpha1.AnnotationRolloutProgress]
		return strings.Contains(progress, `"pin":`), f.conditionLines(t)
	})
	// no machine is up to date, because the deployment still has the template that failed
	f.awaitUpToDateMachines(t, f.name, 2, 0)
	f.reapplyInfrastructureTemplate(t, "late-2")
	verdict()
	assert.ElementsMatch(t, former, f.machineUIDs(t), "no machine was given up for one that never came")
	rig.Eventually(t, "the rollout has its result", func() (bool, any) {
		runs := testRig.WorkflowRuns(
			t,
			fmt.Sprintf(
				"WorkflowType = 'ClusterAPIRollout' AND MachineDeployment = %q AND ExecutionStatus != 'Running'",
				f.poolName,
			),
		)
		if len(runs) == 0 {
			return false, "no rollout has ended"
		}
		var result deployment.RolloutResult
		first := runs[len(runs)-1].Execution
		err := testRig.Temporal.GetWorkflow(t.Context(), first.WorkflowId, first.RunId).Get(t.Context(), &result)
		return err == nil && result.Outcome == deployment.OutcomeRolledBack, fmt.Sprint(result, err)
	})
}

// A person pins the former revision with the annotation that `millwright rollout undo --pin` writes.
func TestAPersonPinsADeploymentAgainstAReconciler(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "pinned", 2)
	f.awaitMachinesOfTemplate(t, f.name, 2)
	f.newInfrastructureTemplate(t, "pinned-2")
	f.setInfrastructureTemplate(t, "pinned-2")
	f.awaitMachinesOfTemplate(t, "pinned-2", 2)
	f.patchPool(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:"2/1 ann: slow disks"}}}`, v1alpha1.AnnotationRolloutPin))
	f.awaitUpToDateMachines(t, f.name, 2, 0)
	f.reapplyInfrastructureTemplate(t, "pinned-2")
	f.awaitUpToDateMachines(t, f.name, 2, 0)
}

// reapplyInfrastructureTemplate applies the deployment with this infrastructure template by server-side apply many
// times, each time with another annotation, as a GitOps tool does for each commit. The set of the template must get no
// machine: each change of its size would be a new generation.
func (f fleet) reapplyInfrastructureTemplate(t *testing.T, template string) {
	t.Helper()
	const commits, commitAnnotation = 20, "example.com/commit"
	setOfTemplate := func() unstructured.Unstructured {
		for _, set := range f.listSets(t) {
			name, _, _ := unstructured.NestedString(
				set.Object, "spec", "template", "spec", "infrastructureRef", "name",
			)
			if name == template {
				return set
			}
		}
		require.Fail(t, "no set has the template", template)
		return unstructured.Unstructured{}
	}
	before := setOfTemplate()
	d := f.getObject(t, machineDeploymentResource, f.poolName)
	for commit := range commits {
		manifest := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": d.GetAPIVersion(), "kind": d.GetKind(),
			"metadata": map[string]any{
				"name":        f.poolName,
				"annotations": map[string]any{commitAnnotation: strconv.Itoa(commit + 1)},
			},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"infrastructureRef": map[string]any{"name": template},
			}}},
		}}
		_, err := f.resourceClient(machineDeploymentResource).Apply(
			t.Context(), f.poolName, manifest, metav1.ApplyOptions{FieldManager: "gitops", Force: true},
		)
		require.NoError(t, err)
	}
	rig.Eventually(t, "the set has the annotation of the last commit", func() (bool, any) {
		seen := setOfTemplate()
		return seen.GetAnnotations()[commitAnnotation] == strconv.Itoa(commits), seen.GetAnnotations()
	})
	after := setOfTemplate()
	assert.Equal(t, before.GetUID(), after.GetUID())
	assert.Equal(t, before.GetGeneration(), after.GetGeneration(), "the set of the template got another size")
	assert.Zero(t, f.countMachinesByTemplate(t)[template])
}
