package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
)

// policyWithSteps returns a policy with these steps.
func policyWithSteps(list ...v1alpha1.RolloutStep) v1alpha1.RolloutPolicySpec {
	return v1alpha1.RolloutPolicySpec{Steps: list}
}

// policyWithRollbackAtDeadline is a policy that rolls back when the progress deadline passes.
var policyWithRollbackAtDeadline = v1alpha1.RolloutPolicySpec{
	AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true},
}

func timedStep(size intstr.IntOrString, wait time.Duration) v1alpha1.RolloutStep {
	return v1alpha1.RolloutStep{Replicas: size, Wait: &metav1.Duration{Duration: wait}}
}

func approvalStep(size int32) v1alpha1.RolloutStep {
	return v1alpha1.RolloutStep{Replicas: intstr.FromInt32(size), Approve: true}
}

func setPaused(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true }

func withAnnotation(key, value string) poolDeploymentEdit {
	return func(d *v1alpha1.MachineDeployment) { d.Annotations[key] = value }
}

// withProgressDeadline sets the progress deadline of a rollout. The status already contains the current counts, so the
// rollout has made no progress since the status was written.
func withProgressDeadline(seconds int32) poolDeploymentEdit {
	return func(d *v1alpha1.MachineDeployment) { d.Spec.ProgressDeadlineSeconds = &seconds }
}

func withSurgeAndUnavailable(surge, unavailable intstr.IntOrString) poolDeploymentEdit {
	return func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{}
		d.Spec.Strategy.RollingUpdate.MaxSurge, d.Spec.Strategy.RollingUpdate.MaxUnavailable = &surge, &unavailable
	}
}

func withStrategy(kind v1alpha1.MachineDeploymentStrategyType) poolDeploymentEdit {
	return func(d *v1alpha1.MachineDeployment) { d.Spec.Strategy.Type = kind }
}

func TestStatusOfAWaitingRollout(t *testing.T) {
	out, err := waitingPool(withProgressDeadline(1200)).runCommand(t, "status", "shop/web")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
shop/web: revision 7 waits: 1 new machine is not available yet: 2 are available, 3 are needed.
[======>   ] 2/3 up to date, 2 available

machines   3 wanted, 2 up to date, 2 ready, 2 available
revision   7, set web-b of class large, created at 13:51:07 UTC (15m)
strategy   RollingUpdate, maxSurge 1, maxUnavailable 0
deadline   20m without progress: it passes at 14:11:07 UTC (in 5m)

REVISION   SET     REPLICAS   MACHINES   READY   AVAILABLE   TERMINATING   CLASS   CURRENT
7          web-b   2          2          1       1           0             large   yes
6          web-a   1          2          1       1           1             small   -

MACHINE   PHASE         SINCE   LAST OPERATION
b-2       Pending       15m     Creating the instance: no capacity
a-2       Terminating   15m     Drain: 2 pods left

To see why machine a-2 is still there: millwright drain explain shop/a-2
To stop it where it is: millwright rollout pause shop/web
To go back: millwright rollout undo shop/web --reason …
To follow it: millwright rollout watch shop/web
`, "\n"), out)
}

// The first line of status is the sentence of `millwright explain`.
func TestStatusBeginsWithTheSentenceOfExplain(t *testing.T) {
	out, err := waitingPool(func(d *v1alpha1.MachineDeployment) {
		d.Status.CurrentOperation = &v1alpha1.Operation{WaitsFor: "1 of 3 machines waits to leave"}
	}).runCommand(t, "status", "shop/web")
	require.NoError(t, err)
	assert.True(
		t,
		strings.HasPrefix(out, "machinedeployment shop/web: 1 of 3 machines waits to leave\nshop/web: revision 7 waits: "),
		out,
	)
}

func TestStatusEndsWithThePageIfTheUIIsKnown(t *testing.T) {
	p := waitingPool(func(d *v1alpha1.MachineDeployment) {
		d.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: "garden/rollout/shop/web/u/7"}
	})
	out, err := p.runCommand(t, "status", "shop/web", "--ui-address", "https://ui")
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(
		out, "\n\npage: https://ui/namespaces/millwright/workflows/garden%2Frollout%2Fshop%2Fweb%2Fu%2F7\n",
	), out)
	out, err = p.runCommand(t, "status", "shop/web")
	require.NoError(t, err)
	assert.NotContains(t, out, "page: ")
}

func TestStatusOfACompleteRollout(t *testing.T) {
	out, err := completedPool().runCommand(t, "status", "shop/web")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
shop/web: revision 7 is complete.
[==========] 3/3 up to date, 3 available

machines   3 wanted, 3 up to date, 3 ready, 3 available
revision   7, set web-b of class large, created at 13:51:07 UTC (15m)
strategy   RollingUpdate, maxSurge 1, maxUnavailable 0
deadline   none: progressDeadlineSeconds is not set

REVISION   SET     REPLICAS   MACHINES   READY   AVAILABLE   TERMINATING   CLASS   CURRENT
7          web-b   3          3          3       3           0             large   yes
and 2 without machines: millwright rollout history shop/web
`, "\n"), out)
}

func TestStatusOfATemplateWithoutASet(t *testing.T) {
	out, err := webPool().runCommand(t, "status", "shop/web")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimPrefix(`
shop/web: next: create a set of 3 machines for revision 1: the template has none.
[>         ] 0/3 up to date, 0 available

machines   3 wanted, 0 up to date, 0 ready, 0 available
revision   none of this template yet
strategy   RollingUpdate, maxSurge 1, maxUnavailable 0
deadline   none: progressDeadlineSeconds is not set

To follow it: millwright rollout watch shop/web
`, "\n"), out)
}

func TestStatusShowsNoMoreThanTenMachines(t *testing.T) {
	p := webPool(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 13 }).addSet("web-b", 7, "large", 13)
	for i := range 13 {
		p.addMachine(fmt.Sprintf("b-%02d", i), "")
	}
	text := p.newSnapshot().statusText(nil)
	assert.Contains(t, text, "\nb-09      new     15m     -\nand 3 more\n")
	assert.NotContains(t, text, "b-10")
}

func TestStatusCountsFailedMachinesThatAreKept(t *testing.T) {
	kept := func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus = v1alpha1.CurrentStatus{
			Phase:              v1alpha1.MachineFailed,
			PreserveExpiryTime: new(metav1.NewTime(now.Add(time.Hour))),
		}
		m.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.ValuePreserveNow
	}
	text := webPool().addSet("web-b", 7, "large", 3).
		addRunningMachines("b-1", "b-2").
		addMachine("b-3", "", kept).
		newSnapshot().
		statusText(nil)
	assert.Contains(t, text, "revision 7 is complete.\n")
	assert.Contains(t, text, "machines   3 wanted, 3 up to date, 2 ready, 2 available, 1 failed and preserved\n")
	assert.Contains(t, text, "\nb-3       Failed   15m     -\n", "since its creation: no later time is known")
}

func TestProgressBar(t *testing.T) {
	for want, c := range map[string]struct{ updated, replicas int }{
		"[>         ] 0/100 up to date, 0 available":   {0, 100},
		"[=====>    ] 54/100 up to date, 0 available":  {54, 100},
		"[=========>] 99/100 up to date, 0 available":  {99, 100},
		"[==========] 100/100 up to date, 0 available": {100, 100},
		"[==========] 12/10 up to date, 0 available":   {12, 10}, // two machines are being deleted
		"[==========] 0/0 up to date, 0 available":     {0, 0},
	} {
		s := snapshot{
			facts:  rollout.Facts{Settings: rollout.Settings{Replicas: c.replicas}},
			status: rollout.Status{Counts: rollout.MachineCounts{Updated: c.updated}},
		}
		assert.Equal(t, want, s.progressBar())
	}
}

func TestStatusLinesOfRolloutSteps(t *testing.T) {
	reached := func(revision int64, step int32) poolDeploymentEdit {
		return func(d *v1alpha1.MachineDeployment) {
			d.Status.Rollout = &v1alpha1.RolloutStatus{
				Revision:       revision,
				Set:            "web-b",
				Step:           step,
				ReachedAt:      new(metav1.NewTime(beginTime)),
				FailedMachines: []string{"b-9"},
			}
		}
	}
	automatic := v1alpha1.RolloutPolicySpec{
		AutomaticRollback: &v1alpha1.AutomaticRollback{OnProgressDeadline: true, MaxFailedMachines: new(int32(2))},
	}
	pinned := func(d *v1alpha1.MachineDeployment) {
		d.Status.Rollout.Pin = &v1alpha1.RolloutPin{
			Set:      "web-a",
			Revision: 6,
			Since:    metav1.NewTime(beginTime),
			Reason:   "1 machine of it failed, 0 allowed",
		}
	}
	frozen := func(d *v1alpha1.MachineDeployment) {
		d.Labels = map[string]string{v1alpha1.LabelFreeze: v1alpha1.ValueTrue}
	}
	half := intstr.FromString("50%")
	for _, c := range []struct {
		name string
		pool *pool
		want string
	}{
		{"bounds in percent", waitingPool(withSurgeAndUnavailable(intstr.FromString("25%"), half)), "strategy   RollingUpdate, maxSurge 25% (1), maxUnavailable 50% (1)\n"},
		{"bounds of zero", waitingPool(withSurgeAndUnavailable(intstr.FromInt32(0), intstr.FromInt32(0))), "strategy   RollingUpdate, maxSurge 0, maxUnavailable 0 (1)\n"},
		{"recreate", waitingPool(withStrategy(v1alpha1.RecreateMachineDeploymentStrategyType)), "strategy   Recreate\n"},
		{"on delete", waitingPool(withStrategy(v1alpha1.OnDeleteMachineDeploymentStrategyType)), "strategy   OnDelete\n"},
		{"in place", inPlacePool(v1alpha1.OrchestrationTypeAuto), "strategy   InPlaceUpdate, Auto, maxSurge 0, maxUnavailable 1\n"},
		{"in place, by hand", inPlacePool(v1alpha1.OrchestrationTypeManual), "strategy   InPlaceUpdate, Manual, maxUnavailable 1\n"},
		{"limits of replacements", waitingPool().addPolicy(v1alpha1.RolloutPolicySpec{Remediation: &v1alpha1.MachineSetRemediation{MaxRetry: new(int32(3)), MaxSurge: new(intstr.FromInt32(1))}}), "policy     RolloutPolicy careful (replacements stop after 3 failed retries; substitutes come first, at most 1 at a time)\n"},
		{"a stage that is not reached", waitingPool().addPolicy(policyWithSteps(timedStep(half, time.Hour))), "step       1 of 1 is to have 2 machines, and 1 available; then it lasts 1h\n"},
		{"one that a person passes", waitingPool().addPolicy(policyWithSteps(approvalStep(2))), "step       1 of 1 is to have 2 machines, and 1 available; then a person must approve it\n"},
		{"a stage by the clock", waitingPool(reached(7, 0)).addPolicy(policyWithSteps(timedStep(intstr.FromInt32(1), time.Hour))), "step       1 of 1 done (1 of 3 machines), waits until 14:51:07 UTC (in 45m)\n"},
		{"a record of another revision", waitingPool(reached(6, 1)).addPolicy(policyWithSteps(approvalStep(1), approvalStep(2))), "step       1 of 2 done (1 of 3 machines), waits for approval\n"},
		{"the second stage", waitingPool(reached(7, 1)).addPolicy(policyWithSteps(approvalStep(1), approvalStep(5))), "step       2 of 2 done (3 of 3 machines), waits for approval\n"},
		{"a stage that was approved", waitingPool(withAnnotation(v1alpha1.AnnotationRolloutApprove, "7/1 ann")).addPolicy(policyWithSteps(approvalStep(1), approvalStep(5))), "step       2 of 2 is to have 3 machines, and 1 available; then a person must approve it\n"},
		{"all stages", waitingPool(reached(7, 1)).addPolicy(policyWithSteps(approvalStep(1))), "step       all 1 are passed\n"},
		{"a deadline that has passed", waitingPool(withProgressDeadline(600)), "deadline   10m without progress: it has passed\n"},
		{"a deadline that stands still", waitingPool(withProgressDeadline(600), setPaused), "deadline   10m without progress; not running: the rollout waits\n"},
		{"a deadline after a rollback", waitingPool(withProgressDeadline(600), reached(7, 0), pinned).addPolicy(automatic), "deadline   10m without progress; not running: the rollout is rolled back\n"},
		{"automatic rollback", waitingPool(reached(7, 0)).addPolicy(automatic), "rollback   by itself when the deadline passes, or when more than 2 new machines have failed, and 1 have\n"},
		{"failures of another revision", waitingPool(reached(6, 0)).addPolicy(automatic), "rollback   by itself when the deadline passes, or when more than 2 new machines have failed, and 0 have\n"},
		{"pinned by a rollback", waitingPool(reached(7, 0), pinned).addPolicy(automatic), "rollback   none while the deployment is pinned to revision 6\n"},
		{"frozen", waitingPool(frozen), "frozen     No machine is created while the label freeze is True\n"},
	} {
		assert.Contains(t, c.pool.newSnapshot().statusText(nil), "\n"+c.want, c.name)
	}
	for _, p := range []*pool{completedPool().addPolicy(policyWithSteps(approvalStep(1))), waitingPool(withStrategy(v1alpha1.RecreateMachineDeploymentStrategyType)).addPolicy(policyWithSteps(approvalStep(1))), waitingPool()} {
		assert.NotContains(t, p.newSnapshot().statusText(nil), "\nstep", "no step is in force")
	}
	assert.NotContains(t, waitingPool().newSnapshot().statusText(nil), "\nrollback")
	failing := waitingPool()
	failing.sets[1].Status.Conditions = []v1alpha1.MachineSetCondition{
		{
			Type:    v1alpha1.MachineSetReplicaFailure,
			Status:  v1alpha1.ConditionTrue,
			Reason:  "ResourceExhausted",
			Message: "no\ncapacity",
		},
	}
	assert.Contains(t, failing.newSnapshot().statusText(nil), "\nfailure    ResourceExhausted: no capacity\n")
}
