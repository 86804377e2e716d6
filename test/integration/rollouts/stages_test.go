//go:build integration

package rollouts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/test/integration/rig"
	"millwright/workflows/deployment"
	"millwright/workflows/run"
)

// A rollout has stages. After a tenth of the machines, it waits for a person's approval, and after half of the
// machines, it waits for 3 s. A rollout whose machines fail is rolled back automatically.
func TestStagedRolloutWaitsAndRollsBackAutomatically(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "staged", 10, withRollingUpdate(2, 0), func(d *v1alpha1.MachineDeployment) {
		d.Spec.ProgressDeadlineSeconds = new(int32(600))
	})
	testRig.CreatePolicy(t, f.Namespace, f.Name, v1alpha1.RolloutPolicySpec{
		Steps: []v1alpha1.RolloutStep{
			{
				Replicas: intstr.FromString("10%"),
				Approve:  true,
			},
			{Replicas: intstr.FromInt32(5), Wait: &metav1.Duration{Duration: 3 * time.Second}},
		},
		AutomaticRollback: &v1alpha1.AutomaticRollback{MaxFailedMachines: new(int32)},
	})
	f.changeTemplate(t, "2")
	f.awaitProgressingReason(t, v1alpha1.ReasonRolloutWaiting)
	rig.Eventually(
		t,
		"one machine in all is of the new template",
		func() (bool, any) { n := f.countMachinesOfEdition(t, "2"); return n == 1, n },
	)
	require.Contains(t, f.sendRequest(t, run.RequestInput{Command: "approve", Reason: "looks well"}), "1")
	f.awaitMachinesOfEdition(t, "2", 10)
	require.Equal(t, int32(2), f.Deployment(t).Status.Rollout.Step)

	_, err := testRig.MachineClient.MachineV1alpha1().
		RolloutPolicies(f.Namespace).
		Patch(t.Context(), f.Name, types.MergePatchType, []byte(`{"spec":{"steps":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	f.Patch(t, `{"spec":{"template":{"spec":{"creationTimeout":"3s","class":{"name":"broken"}}}}}`)
	f.createNeverBootingClass(t)
	f.awaitRollbackPin(t)
	f.awaitMachinesOfEdition(t, "2", 10)
	f.requireReportedRollback(t, "broken", "revision 3 failed (1 machine of it failed, 0 allowed): back on revision 2")
	f.Patch(t, `{"spec":{"template":{"spec":{"creationTimeout":null,"class":{"name":"small"}}}}}`)
	rig.Eventually(t, "a changed template ends the pin", func() (bool, any) {
		d := f.Deployment(t)
		return d.Status.Rollout.Pin == nil, d.Status
	})
	f.awaitMachinesOfEdition(t, "2", 10)
	require.Empty(t, f.readCondition(t, v1alpha1.MachineDeploymentDegraded).Reason)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// A rollout that makes no progress before its progress deadline is rolled back automatically, although no machine has
// failed.
func TestRolloutIsRolledBackAfterItsProgressDeadline(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "late", 3, withRollingUpdate(1, 0), func(d *v1alpha1.MachineDeployment) {
		d.Spec.ProgressDeadlineSeconds = new(int32(15))
	})
	testRig.CreatePolicy(
		t,
		f.Namespace,
		f.Name,
		v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true}},
	)
	f.createNeverBootingClass(t)
	former := f.machineNames(t)
	watch := f.startBoundsSampler(t)
	f.Patch(t, `{"spec":{"template":{"spec":{"class":{"name":"broken"}}}}}`)
	rig.Eventually(t, "a machine of the new template", func() (bool, any) { n := len(f.Machines(t)); return n == 4, n })
	f.awaitRollbackPin(t)
	for _, m := range f.Machines(t) {
		require.NotEqual(t, v1alpha1.MachineFailed, m.Status.CurrentStatus.Phase, "nothing but time has passed")
	}
	f.awaitMachinesOfEdition(t, "", 3)
	watch.requireNoViolations(t)
	f.awaitRolloutOutcomes(t, deployment.OutcomeRolledBack, deployment.OutcomeCompleted)
	f.requireReportedRollback(
		t, "broken", "revision 2 failed (no progress for 15s: 1 machine of it is not available): back on revision 1",
	)
	query := fmt.Sprintf("MachineNamespace = %q AND Outcome = %q", f.Namespace, deployment.OutcomeRolledBack)
	require.Len(t, testRig.WorkflowRuns(t, query), 1, "the list of workflows shows the rollback")
	require.Equal(t, former, f.machineNames(t), "no machine was given up for one that never came")
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// awaitRollbackPin waits until the machines are pinned to an earlier revision.
func (f fleet) awaitRollbackPin(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "pinned to an earlier revision", func() (bool, any) {
		d := f.Deployment(t)
		return d.Status.Rollout != nil && d.Status.Rollout.Pin != nil, d.Status
	})
}

// requireReportedRollback requires that the template still has its class. The conditions, WAITS-FOR, the events and the
// command line must report why the machines do not follow the template.
func (f fleet) requireReportedRollback(t *testing.T, class, cause string) {
	t.Helper()
	d := f.Deployment(t)
	require.Equal(t, class, d.Spec.Template.Spec.Class.Name, "the template stays as the user wrote it")
	degraded := f.readCondition(t, v1alpha1.MachineDeploymentDegraded)
	require.Equal(t, vocabulary.ReasonRolledBack, degraded.Reason)
	require.Contains(t, degraded.Message, cause)
	require.Equal(t, v1alpha1.ConditionTrue, f.readCondition(t, v1alpha1.MachineDeploymentStalled).Status)
	rig.Eventually(t, "WAITS-FOR says it", func() (bool, any) {
		operation := f.Deployment(t).Status.CurrentOperation
		return operation != nil && strings.Contains(operation.WaitsFor, cause) &&
			strings.Contains(operation.WaitsFor, "millwright rollout retry"), operation
	})
	f.awaitEvent(t, cause)
	name := f.Namespace + "/" + f.Name
	require.Contains(t, strings.Join(testRig.RunMillwright(t, "rollout", "status", name), "\n"), cause)
	require.Contains(t, strings.Join(testRig.RunMillwright(t, "rollout", "history", name), "\n"), cause)
}

// createNeverBootingClass creates a class "broken" whose instances never boot.
func (f fleet) createNeverBootingClass(t *testing.T) {
	t.Helper()
	broken := rig.NewClass(f.Namespace, `{"region":"eu","zone":"eu-1","instanceType":"small","neverBoots":true}`)
	broken.Name = "broken"
	_, err := testRig.MachineClient.MachineV1alpha1().
		MachineClasses(f.Namespace).
		Create(t.Context(), broken, metav1.CreateOptions{})
	require.NoError(t, err)
}
