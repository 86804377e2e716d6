// Tier: test-all. The package needs many machines.

//go:build integration

// Package fairness shows that many machines of one deployment do not delay a few machines of another deployment,
// whatever they wait for.
package fairness

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
	"millwright/test/integration/rig"
)

var testRig *rig.Rig

// The stack has at most eight calls to the cloud in progress, and drains at most two nodes at the same time. Each
// client of the worker sends at most 20 requests per second. All these limits are lower than the defaults, so that a
// hundred machines exceed the limits.
func TestMain(m *testing.M) {
	options := stack.Options{
		Args: map[string][]string{
			component.Worker: {"--max-cloud-calls=8", "--max-drains=2", "--kube-api-qps=20", "--kube-api-burst=20"},
		},
	}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { testRig = up }))
}

// 120 machines of one deployment wait for a cloud that creates each instance in four seconds. Then a user creates
// another deployment with one machine. The single machine is created before most of the 120 machines.
func TestHugeScaleUpDoesNotBlockOtherDeployments(t *testing.T) {
	const slowly = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"4s"}`
	// three batches of eight calls: the calls in progress, the next calls, which are already in the queue, and the
	// batch of the machine's own call
	const many, passed = 120, 24
	testRig.CreateNamespace(t, "huge", slowly)
	testRig.CreateNamespace(t, "lone", slowly)
	hang := func(hangs map[admin.Operation]admin.HangPoint) {
		t.Helper()
		require.NoError(t, testRig.Cloud.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) { b.HangPoints = hangs }))
	}
	// all create calls hang before they take effect
	hang(map[admin.Operation]admin.HangPoint{admin.OperationCreate: admin.HangBeforeEffect})
	huge := testRig.CreatePool(t, "huge", "huge", many)
	rig.Eventually(t, "all of them wait for the cloud, or are made", func() (bool, any) {
		n := 0
		for _, m := range huge.Machines(t) {
			if s := m.Status.CurrentOperation; m.Spec.ProviderID != "" || s != nil && s.Step == "create-instance" {
				n++
			}
		}
		return n == many, n
	})
	lone := testRig.CreatePool(t, "lone", "lone", 1)
	rig.Eventually(t, "it waits for the cloud, too", func() (bool, any) {
		list := lone.Machines(t)
		return len(list) == 1 && list[0].Status.CurrentOperation != nil &&
				list[0].Status.CurrentOperation.Step == "create-instance", len(
				list,
			)
	})
	hang(nil)
	lone.AwaitRunningMachines(t, 1)
	huge.AwaitRunningMachines(t, many)
	own := listCreateCalls(t, "lone")
	require.Len(t, own, 1)
	before := 0 // number of calls for the huge deployment that began while the call of the lone machine waited
	for _, c := range listCreateCalls(t, "huge") {
		if c.StartedAt.After(own[0].ScheduledAt) && c.StartedAt.Before(own[0].StartedAt) {
			before++
		}
	}
	t.Logf("it has waited for %d calls", before)
	require.LessOrEqual(
		t,
		before,
		passed,
		"it waits for those before it that do not yield, a few that are under way, and for no other",
	)
	huge.Delete(t)
	lone.Delete(t)
	huge.AwaitPoolGone(t)
	lone.AwaitPoolGone(t)
}

// listCreateCalls returns the create calls of the cloud for the machines of a namespace.
func listCreateCalls(t *testing.T, namespace string) (calls []rig.EndedActivity) {
	t.Helper()
	for _, history := range testRig.MachineHistories(t, namespace) {
		for _, a := range rig.EndedActivities(history) {
			if a.Type == "CreateInstance" {
				calls = append(calls, a)
			}
		}
	}
	return calls
}

// Sixteen nodes wait for their drains. At most two nodes are drained at a time. Then a machine of another deployment is
// deleted: the node of this machine is drained next.
func TestHugeScaleDownDoesNotBlockOtherDeployments(t *testing.T) {
	const many = 16
	pools := map[string]*rig.Pool{}
	for name, replicas := range map[string]int32{"drained": many, "other": 1} {
		testRig.CreateNamespace(t, name, "")
		p := testRig.CreatePool(t, name, name, replicas, rig.WithNodeLabel)
		p.AwaitRunningMachines(t, int(replicas))
		p.AwaitLabelledNodes(t, int(replicas))
		p.DeployPods(t, "web", replicas, func(pod *corev1.PodTemplateSpec) {
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}} // one pod per node
		})
		pools[name] = p
	}
	huge, other := pools["drained"], pools["other"]
	huge.CreateBudget(t, "web", many) // the budget blocks all drains until the test relaxes it
	huge.Scale(t, 0)
	rig.Eventually(t, "most of them wait for their turn", func() (bool, any) {
		queued := 0
		for _, m := range huge.Machines(t) {
			if d := m.Status.Deletion; d != nil && d.Queued {
				queued++
			}
		}
		// Other machines started their drains early, because they read slightly old facts about the drain queue (doc
		// comment of drain.MayDrainNow).
		return queued >= many/2, queued
	})
	other.Scale(t, 0)
	rig.Eventually(t, "the other one waits for its turn, too", func() (bool, any) {
		list := other.Machines(t)
		return len(list) == 1 && list[0].Status.Deletion != nil && list[0].Status.Deletion.Queued, len(list)
	})
	seen, err := testRig.MachineClient.MachineV1alpha1().
		Machines(metav1.NamespaceAll).
		Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer seen.Stop()
	huge.RelaxBudget(t, "web", 0)
	left := many
	for gone := false; !gone; {
		event, open := <-seen.ResultChan()
		require.True(t, open, "the watch has ended; %d left", left)
		if m, isMachine := event.Object.(*v1alpha1.Machine); isMachine && event.Type == watch.Deleted {
			if gone = m.Namespace == other.Namespace; !gone {
				left--
			}
		}
	}
	t.Logf("%d of %d were still there when it went", left, many)
	require.Greater(t, left, many/3, "it waits for the few whose drain had begun, not for all")
	for _, p := range pools {
		_, err := testRig.Stack.RunKubectl(t.Context(), "delete", "deployment", "-n", p.Namespace, "web", "--wait=false")
		require.NoError(t, err)
		p.Delete(t)
		p.AwaitPoolGone(t)
	}
}
