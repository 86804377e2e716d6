// Tier: test for each strategy and each request; test-all for kills and for nodes and clients during a rollout.

//go:build integration

// Package rollouts tests that a MachineDeployment reaches its newest template within its bounds, in spite of requests,
// changes and failures during the rollout.
package rollouts

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
	"millwright/workflows/deployment"
	"millwright/workflows/run"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	os.Exit(rig.MainOnSharedStack(m, func(up *rig.Rig) { testRig = up }))
}

// fastProviderSpec is a provider spec. With it, the cloud needs one second to create an instance and half a second to
// delete an instance.
const fastProviderSpec = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"1s","deleteLatency":"500ms"}`

// withRollingUpdate sets the strategy RollingUpdate with these bounds.
func withRollingUpdate(surge, unavailable int32) func(*v1alpha1.MachineDeployment) {
	return func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt32(surge)), MaxUnavailable: new(intstr.FromInt32(unavailable)),
			}},
		}
	}
}

// fleet is a pool whose rollouts are tested.
type fleet struct{ *rig.Pool }

// newFleet creates a pool in a namespace of its own, and waits until all machines run.
func newFleet(t *testing.T, name string, replicas int32, changes ...func(*v1alpha1.MachineDeployment)) fleet {
	t.Helper()
	return newFleetWithProviderSpec(t, name, fastProviderSpec, replicas, changes...)
}

// newFleetWithProviderSpec is like newFleet, but sets the provider spec.
func newFleetWithProviderSpec(
	t *testing.T,
	name, latencies string,
	replicas int32,
	changes ...func(*v1alpha1.MachineDeployment),
) fleet {
	t.Helper()
	testRig.CreateNamespace(t, name, latencies)
	f := fleet{testRig.CreatePool(t, name, name, replicas, changes...)}
	f.AwaitRunningMachines(t, int(replicas))
	return f
}

// changeTemplate sets the label edition of the template. Each value of the label results in a different template.
func (f fleet) changeTemplate(t *testing.T, value string) {
	t.Helper()
	f.Patch(t, fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"edition":%q}}}}}`, value))
}

// awaitMachinesOfEdition waits until exactly n machines exist, all of them run, and all of them have this value of the
// label edition. The deployment's condition Progressing must have the reason NewMachineSetAvailable.
func (f fleet) awaitMachinesOfEdition(t *testing.T, value string, n int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("%d machines of edition %q", n, value), func() (bool, any) {
		counts := map[string]int{}
		machines := f.Machines(t)
		for _, m := range machines {
			counts[m.Labels["edition"]+" "+string(m.Status.CurrentStatus.Phase)]++
		}
		c := f.readCondition(t, v1alpha1.MachineDeploymentProgressing)
		done := len(machines) == n && counts[value+" Running"] == n && c.Reason == v1alpha1.ReasonNewMachineSetAvailable
		return done, fmt.Sprintf("%v, %s: %s", counts, c.Reason, c.Message)
	})
}

func (f fleet) readCondition(
	t *testing.T,
	kind v1alpha1.MachineDeploymentConditionType,
) v1alpha1.MachineDeploymentCondition {
	t.Helper()
	d, err := testRig.MachineClient.MachineV1alpha1().
		MachineDeployments(f.Namespace).
		Get(t.Context(), f.Name, metav1.GetOptions{})
	if err != nil { // the API server may be down
		return v1alpha1.MachineDeploymentCondition{Message: err.Error()}
	}
	for _, c := range d.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1alpha1.MachineDeploymentCondition{}
}

// countMachinesOfEdition counts the machines of an edition.
func (f fleet) countMachinesOfEdition(t *testing.T, value string) int {
	t.Helper()
	n := 0
	for _, m := range f.Machines(t) {
		if m.Labels["edition"] == value {
			n++
		}
	}
	return n
}

// blockMachineDeletions keeps the current machines of the fleet until release is called. Their instances are not
// deleted, because a pre-terminate hook blocks the deletion.
func (f fleet) blockMachineDeletions(t *testing.T) (release func()) {
	t.Helper()
	const hook = v1alpha1.AnnotationPreTerminateHook + "/test"
	names := f.machineNames(t)
	annotate := func(change string) {
		t.Helper()
		_, err := testRig.Stack.RunKubectl(
			t.Context(),
			slices.Concat(
				[]string{"annotate", "machines.machine.sapcloud.io", "--namespace", f.Namespace},
				names,
				[]string{change},
			)...)
		require.NoError(t, err)
	}
	annotate(hook + "=")
	return func() { annotate(hook + "-") }
}

// awaitSettledSets waits until the status of the deployment and of its sets is current, and each set has as many
// machines as replicas. No workflow of a machine may be open. After a pause, a set still scales to the replicas that
// were set before the pause.
func (f fleet) awaitSettledSets(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "the sets have the machines of their sizes", func() (bool, any) {
		d := f.Deployment(t)
		settled := d.Status.ObservedGeneration == d.Generation
		var want int32
		for _, s := range f.Sets(t) {
			want += s.Spec.Replicas
			settled = settled && s.Status.ObservedGeneration == s.Generation && s.Status.Replicas == s.Spec.Replicas
		}
		machines, open := f.machineNames(t), testRig.CountOpenRuns(t, f.Namespace)["Machine"]
		return settled && len(machines) == int(want) && open == 0, []any{settled, want, machines, open}
	})
}

// machineNames returns the names of the fleet's machines, sorted.
func (f fleet) machineNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, m := range f.Machines(t) {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// rolloutResults returns the results of the fleet's rollouts that have ended, the oldest rollout first.
func (f fleet) rolloutResults(t *testing.T) []deployment.RolloutResult {
	t.Helper()
	var list []deployment.RolloutResult
	runs := testRig.WorkflowRuns(
		t,
		fmt.Sprintf(
			"WorkflowType = %q AND MachineNamespace = %q AND ExecutionStatus != 'Running'",
			run.KindRollout,
			f.Namespace,
		),
	)
	slices.Reverse(runs)
	for _, w := range runs {
		var result deployment.RolloutResult
		require.NoError(
			t,
			testRig.Temporal.GetWorkflow(t.Context(), w.Execution.WorkflowId, w.Execution.RunId).Get(t.Context(), &result),
		)
		list = append(list, result)
	}
	return list
}

// awaitProgressingReason waits until the condition Progressing has this reason.
func (f fleet) awaitProgressingReason(t *testing.T, reason string) {
	t.Helper()
	rig.Eventually(t, "Progressing: "+reason, func() (bool, any) {
		c := f.readCondition(t, v1alpha1.MachineDeploymentProgressing)
		return c.Reason == reason, c
	})
}

// awaitRolloutOutcomes waits until len(want) rollouts of the fleet have ended, and requires that their outcomes are
// want, in this order.
func (f fleet) awaitRolloutOutcomes(t *testing.T, want ...string) {
	t.Helper()
	rig.Eventually(
		t,
		"the rollouts have their results",
		func() (bool, any) { n := len(f.rolloutResults(t)); return n == len(want), n },
	)
	var got []string
	for _, o := range f.rolloutResults(t) {
		got = append(got, o.Outcome)
	}
	require.Equal(t, want, got)
}
