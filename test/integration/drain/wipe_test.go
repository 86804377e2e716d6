//go:build integration

package drain

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/test/integration/rig"
	workflows "millwright/workflows/drain"
	"millwright/workflows/run"
)

// Temporal loses all its data while some pods of a node are terminating and a budget blocks the other pods. The records
// in the API server suffice: the drain continues in the same stage with the same start time, and evicts no terminating
// pod again.
func TestTemporalLosesAllItsDataInTheMiddleOfADrain(t *testing.T) {
	const name = "wiped"
	p := newPool(t, name, 2, "")
	p.DeployPods(t, "held", 4)
	p.CreateBudget(t, "held", 4)
	// the label keeps the pods terminating until the new run has seen the pods
	p.DeployPods(t, "slow", 6, func(pod *corev1.PodTemplateSpec) {
		pod.Labels["stuck-terminating"] = "true"
		pod.Spec.TerminationGracePeriodSeconds = new(int64(300))
	})
	m, held := p.MachineWithPods(t, "held")
	node := m.Labels[v1alpha1.LabelNode]
	slow := slices.DeleteFunc(p.Pods(t, "slow"), func(pod corev1.Pod) bool { return pod.Spec.NodeName != node })
	require.NotEmpty(t, slow)
	stages := recordStages(t, m)
	p.DeleteMachine(t, m.Name)
	rig.Eventually(t, "the slow ones go, the others are blocked", func() (bool, any) {
		c := drainedCondition(readMachine(t, m))
		return c.Reason == "Blocked" && requireOneEvictionPerPod(t, name) == len(slow), []any{c, listPodRequests(t, name)}
	})
	before := readMachine(t, m).Status.Deletion
	run := listOpenDrainRuns(t, name)
	require.Len(t, run, 1)

	testRig.ResetTemporal(t)
	rig.Eventually(t, "another run drains the node", func() (bool, any) {
		now := listOpenDrainRuns(t, name)
		return len(now) == 1 && now[0] != run[0], now
	})
	rig.Eventually(t, "the new run says what it sees", func() (bool, any) {
		p := queryDrainOverview(t, m)
		return p.Counts.Terminating == len(slow) && p.Counts.Blocked == len(held), p
	})
	_, err := testRig.Stack.RunKubectl(t.Context(), "label", "pods", "-n", name, "-l", "app=slow", "stuck-terminating-")
	require.NoError(t, err)
	rig.Eventually(t, "of all pods only those are left that are blocked", func() (bool, any) {
		left := slices.DeleteFunc(p.Pods(t, "slow"), func(pod corev1.Pod) bool { return pod.Spec.NodeName != node })
		return len(left) == 0, len(left)
	})
	after := readMachine(t, m).Status.Deletion
	require.Equal(t, before.Stage, after.Stage)
	require.True(t, before.Since.Equal(&after.Since))
	require.True(
		t,
		before.Drain.StartedAt.Equal(&after.Drain.StartedAt),
		"its clock goes on: a wiped Temporal gives no second drainTimeout",
	)
	require.Equal(t, "Blocked", drainedCondition(readMachine(t, m)).Reason)

	p.RelaxBudget(t, "held", 1)
	awaitMachineGone(t, m)
	require.Equal(t, len(slow)+len(held), requireOneEvictionPerPod(t, name))
	seen := stages()
	order := []v1alpha1.MachineDeletionStage{
		v1alpha1.MachineDeletionDrain,
		v1alpha1.MachineDeletionInstance,
		v1alpha1.MachineDeletionNode,
	}
	require.GreaterOrEqual(t, len(seen), 2) // the watch may miss the last stage, which may be very short
	require.Equal(t, order[:len(seen)], seen, "no stage is entered again")
	require.NotContains(t, p.ProviderIDs(t), m.Spec.ProviderID)
	_, err = testRig.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	p.AwaitRunningMachines(t, 2)
}

// listOpenDrainRuns returns the run IDs of the open drains of a namespace.
func listOpenDrainRuns(t *testing.T, namespace string) (runs []string) {
	t.Helper()
	for _, w := range testRig.WorkflowRuns(t, `ExecutionStatus = "Running" AND WorkflowType = "Drain" AND MachineNamespace = "`+namespace+`"`) {
		runs = append(runs, w.Execution.RunId)
	}
	return runs
}

// drainWorkflowID returns the ID of the workflow that drains the node of a machine.
func drainWorkflowID(m v1alpha1.Machine) string {
	return rig.Installation.ID(run.KindDrain, kube.Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)})
}

// queryDrainOverview queries the drain workflow of a machine for its pods. The result is empty if the workflow cannot
// answer yet.
func queryDrainOverview(t *testing.T, m v1alpha1.Machine) (seen drain.Overview) {
	t.Helper()
	answer, err := testRig.Temporal.QueryWorkflow(t.Context(), drainWorkflowID(m), "", workflows.QueryPods)
	if err == nil {
		require.NoError(t, answer.Get(&seen))
	}
	return seen
}
