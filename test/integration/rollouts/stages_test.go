//go:build integration

package rollouts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
	"millwright/workflows/deployment"
	"millwright/workflows/run"
)

// A rollout in stages: after a tenth of the machines, the rollout waits for a person's approval, and after half of the
// machines for 3 s. A rollout whose machines fail is rolled back automatically.
func TestStagesAndAutomaticRollback(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "staged", 10, rollingUpdate(2, 0), func(d *v1alpha1.MachineDeployment) {
		d.Spec.ProgressDeadlineSeconds = new(int32(600))
	})
	r.CreatePolicy(t, f.Namespace, f.Name, v1alpha1.RolloutPolicySpec{
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
		func() (bool, any) { n := f.countUpdatedMachines(t, "2"); return n == 1, n },
	)
	require.Contains(t, f.sendRequest(t, run.RequestInput{Command: "approve", Reason: "looks well"}), "1")
	f.awaitEdition(t, "2", 10)
	require.Equal(t, int32(2), f.Deployment(t).Status.Rollout.Step)

	_, err := r.Machines.MachineV1alpha1().
		RolloutPolicies(f.Namespace).
		Patch(t.Context(), f.Name, types.MergePatchType, []byte(`{"spec":{"steps":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	f.Patch(t, `{"spec":{"template":{"spec":{"creationTimeout":"3s","class":{"name":"broken"}}}}}`)
	f.createBrokenClass(t)
	rig.Eventually(t, "it goes back by itself", func() (bool, any) {
		d := f.Deployment(t)
		return d.Spec.Template.Spec.Class.Name == "small", d.Status.Rollout
	})
	f.Patch(t, `{"spec":{"template":{"spec":{"creationTimeout":null}}}}`)
	f.awaitEdition(t, "2", 10)
	require.NotEmpty(t, f.Deployment(t).Annotations[v1alpha1.AnnotationAutomaticRollbackTo])
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// A rollout that makes no progress before its progress deadline is rolled back automatically, although no machine has
// failed.
func TestAutomaticRollbackAfterTheProgressDeadline(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "late", 3, rollingUpdate(1, 0), func(d *v1alpha1.MachineDeployment) {
		d.Spec.ProgressDeadlineSeconds = new(int32(15))
	})
	r.CreatePolicy(
		t,
		f.Namespace,
		f.Name,
		v1alpha1.RolloutPolicySpec{AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true}},
	)
	f.createBrokenClass(t)
	former := f.machineNames(t)
	watch := f.startSampler(t)
	f.Patch(t, `{"spec":{"template":{"spec":{"class":{"name":"broken"}}}}}`)
	rig.Eventually(t, "a machine of the new template", func() (bool, any) { n := len(f.Machines(t)); return n == 4, n })
	rig.Eventually(t, "it goes back by itself", func() (bool, any) {
		for _, m := range f.Machines(t) {
			require.NotEqual(t, v1alpha1.MachineFailed, m.Status.CurrentStatus.Phase, "nothing but time has passed")
		}
		d := f.Deployment(t)
		return d.Spec.Template.Spec.Class.Name == "small", d.Status.Rollout
	})
	f.awaitEdition(t, "", 3)
	watch.requireNoViolations(t)
	f.awaitRolloutOutcomes(t, deployment.OutcomeRolledBack, deployment.OutcomeCompleted)
	require.Contains(t, f.rolloutResults(t)[0].Why, "no progress for 15s")
	require.NotEmpty(t, f.Deployment(t).Annotations[v1alpha1.AnnotationAutomaticRollbackTo])
	require.Equal(t, former, f.machineNames(t), "no machine was given up for one that never came")
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// createBrokenClass creates a class "broken" whose instances never boot.
func (f fleet) createBrokenClass(t *testing.T) {
	t.Helper()
	broken := rig.NewClass(f.Namespace, `{"region":"eu","zone":"eu-1","instanceType":"small","neverBoots":true}`)
	broken.Name = "broken"
	_, err := r.Machines.MachineV1alpha1().MachineClasses(f.Namespace).Create(t.Context(), broken, metav1.CreateOptions{})
	require.NoError(t, err)
}
