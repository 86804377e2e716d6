//go:build integration

package rollouts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
)

// withProgressDeadline sets a progress deadline.
func withProgressDeadline(seconds int32) func(*v1alpha1.MachineDeployment) {
	return func(d *v1alpha1.MachineDeployment) { d.Spec.ProgressDeadlineSeconds = &seconds }
}

// createStrictRollbackPolicy creates the strictest policy: a rollout rolls back when one machine fails, or at the
// progress deadline.
func (f fleet) createStrictRollbackPolicy(t *testing.T) {
	t.Helper()
	testRig.CreatePolicy(t, f.Namespace, f.Name, v1alpha1.RolloutPolicySpec{
		AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true, MaxFailedMachines: new(int32)},
	})
}

// requireNoRollback makes Millwright reconcile the deployment, and requires that no automatic rollback has begun.
func (f fleet) requireNoRollback(t *testing.T) {
	t.Helper()
	f.ForceReconcile(t)
	d := f.Deployment(t)
	require.NotNil(t, d.Status.Rollout)
	require.Nil(t, d.Status.Rollout.Pin)
}

// A rollout completes. Then two instances vanish, as in two power cuts, and Millwright replaces their machines. Later,
// the deployment grows in a cloud that refuses the new machine for longer than the progress deadline.
func TestCompletedRolloutIsNotRolledBack(t *testing.T) {
	t.Parallel()
	const deadline = 5
	f := newFleet(t, "keptsets", 3, withRollingUpdate(2, 0), withProgressDeadline(deadline))
	f.createStrictRollbackPolicy(t)
	f.changeTemplate(t, "2")
	f.awaitMachinesOfEdition(t, "2", 3)
	rig.Eventually(t, "the rollout is recorded as complete", func() (bool, any) {
		rollout := f.Deployment(t).Status.Rollout
		return rollout != nil && rollout.CompletedAt != nil, rollout
	})
	for range 2 {
		victim := f.Machines(t)[0]
		require.NoError(
			t,
			testRig.Cloud.MakeInstanceVanish(t.Context(), admin.VanishRequest{Machine: victim.Name, DeleteNode: true}),
		)
		f.AwaitMachineGone(t, victim)
		f.AwaitRunningMachines(t, 3)
		f.requireNoRollback(t)
	}
	require.NoError(t, testRig.Cloud.AddFault(t.Context(), admin.Fault{
		Operation: admin.OperationCreate, Code: "ResourceExhausted", Message: "no capacity", Class: f.Namespace + "/small",
	}))
	f.Scale(t, 4)
	var refused v1alpha1.Machine
	rig.Eventually(t, "the cloud refuses the new machine", func() (bool, any) {
		for _, m := range f.Machines(t) {
			if refused = m; m.Status.LastOperation.ErrorCode == "ResourceExhausted" {
				return true, nil
			}
		}
		return false, f.Machines(t)
	})
	// wait until the progress deadline has passed
	time.Sleep(time.Until(refused.CreationTimestamp.Add((deadline + 1) * time.Second)))
	f.requireNoRollback(t)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// While only the deletion of an old machine blocks a rollout, the progress deadline does not roll the rollout back.
func TestBlockedDeletionCausesNoRollback(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "blocked", 2, withRollingUpdate(1, 0), withProgressDeadline(5))
	f.createStrictRollbackPolicy(t)
	release := f.blockMachineDeletions(t)
	f.changeTemplate(t, "2")
	f.awaitProgressingReason(t, v1alpha1.ReasonProgressDeadlineExceeded)
	f.requireNoRollback(t)
	release()
	f.awaitMachinesOfEdition(t, "2", 2)
	f.requireNoRollback(t)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// A tool such as Argo CD applies a template again and again, although its machines fail. No machine of the bad template
// is created after the rollback. The command retry starts the rollout of the template once more, and this rollout also
// fails.
func TestReappliedBadTemplateCreatesNoMachine(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "reapplied", 3, withRollingUpdate(1, 0), withProgressDeadline(10))
	f.createStrictRollbackPolicy(t)
	f.createNeverBootingClass(t)
	good := f.machineNames(t)
	apply := func() { f.Patch(t, `{"spec":{"template":{"spec":{"class":{"name":"broken"}}}}}`) }
	apply()
	f.awaitRollbackPin(t)
	f.awaitMachinesOfEdition(t, "", 3)
	require.Equal(t, good, f.machineNames(t))
	for range 20 {
		apply()
		f.ForceReconcile(t)
		require.Equal(t, good, f.machineNames(t), "no machine of the bad template")
	}
	f.Scale(t, 4)
	f.awaitMachinesOfEdition(t, "", 4)
	for _, m := range f.Machines(t) {
		require.Equal(t, "small", m.Spec.Class.Name, "a larger deployment gets machines of the good template")
	}
	since := f.Deployment(t).Status.Rollout.Pin.Since
	testRig.RunMillwright(t, "rollout", "retry", f.Namespace+"/"+f.Name, "--reason", "once more")
	rig.Eventually(t, "the retry fails, too", func() (bool, any) {
		pin := f.Deployment(t).Status.Rollout.Pin
		return pin != nil && pin.Since != since, pin
	})
	f.awaitMachinesOfEdition(t, "", 4)
	f.Delete(t)
	f.AwaitPoolGone(t)
}
