//go:build integration

package drain

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// TestBudgetThatAllowsEvictionAgainResumesTheDrain of activities/drain proves that a change of the budget's status
// wakes the drain before its next poll.
func TestRelaxedBudgetEndsTheDrain(t *testing.T) {
	t.Parallel()
	p := newPool(t, "loosens", 2, "")
	p.DeployPods(t, "web", 3)
	p.CreateBudget(t, "web", 3)
	m, here := p.MachineWithPods(t, "web")
	p.DeleteMachine(t, m.Name)
	rig.Eventually(t, "the machine says what blocks it", func() (bool, any) {
		c := drainedCondition(readMachine(t, m))
		return c.Reason == "Blocked" && c.Status == corev1.ConditionFalse, c
	})
	require.Contains(
		t,
		drainedCondition(readMachine(t, m)).Message,
		"PodDisruptionBudget loosens/web allows none of its 3 healthy pods to go",
	)
	// Temporal updates its visibility store with a delay
	rig.Eventually(t, "the list of stuck workflows has it", func() (bool, any) {
		stuck := testRig.WorkflowRuns(t, `Stuck = true AND WorkflowType = "Drain" AND MachineNamespace = "loosens"`)
		return len(stuck) == 1, stuck
	})
	testRig.ForceReconcile(t, run.KindMachine, m.Namespace, m.Name)
	require.NotNil(t, readMachine(t, m))
	// TestOneProbePerBudgetAndMinute of decide/drain proves the rate of eviction requests.
	require.LessOrEqual(t, len(listPodRequests(t, p.Namespace)), 3, "a budget that cannot allow any is not hammered")
	allowed := p.RelaxBudgetAndAwaitEffect(t, "web", 1)
	rig.Eventually(t, "drained", func() (bool, any) {
		now := readMachine(t, m)
		return now == nil || drainedCondition(now).Status == corev1.ConditionTrue, nil
	})
	requests := listPodRequests(t, p.Namespace)
	t.Logf(
		"the budget allowed evictions from %s on; %d pods, requests: %v",
		allowed.Format("15:04:05"),
		len(here),
		requests,
	)
	first := slices.IndexFunc(requests, func(q podRequest) bool { return q.Verb == "evict" && q.Code == 201 })
	require.GreaterOrEqual(t, first, 0, "no eviction was accepted")
	require.False(t, requests[first].Time.Before(allowed), "the API server accepts no eviction before")
	awaitMachineGone(t, m)
}

func TestPermanentlyBlockingBudgetEscalatesTheDrain(t *testing.T) {
	t.Parallel()
	const timeout, grace = 20 * time.Second, 2 * time.Second
	p := newPool(t, "ladder", 2, `{"drainTimeout":"20s"}`)
	stuck := func(pod *corev1.PodTemplateSpec) { pod.Labels["stuck-terminating"] = "true" }
	p.DeployPods(t, "web", 2)
	p.DeployPods(t, "held", 2, stuck)
	p.CreateBudget(t, "web", 2)
	p.CreateBudget(t, "held", 2)
	m, _ := p.MachineWithPods(t, "held")
	p.DeleteMachine(t, m.Name)
	var began *v1alpha1.Machine
	rig.Eventually(t, "the drain has begun", func() (bool, any) {
		began = readMachine(t, m)
		return began.Status.Deletion != nil && began.Status.Deletion.Drain != nil, began.Status.Deletion
	})
	awaitMachineGone(t, m)

	var evicted, deleted []podRequest
	for _, q := range listPodRequests(t, p.Namespace) {
		t.Logf("%s %s %s %d", q.Time.Format("15:04:05.000"), q.Verb, q.Pod, q.Code)
		if q.Verb == "delete" {
			deleted = append(deleted, q)
		} else {
			evicted = append(evicted, q)
		}
	}
	drain := began.Status.Deletion.Drain
	require.NotNil(t, drain)
	deadline := drain.StartedAt.Add(timeout)
	require.Len(t, deleted, 3, "web and held with their own grace, then held without")
	for _, q := range evicted {
		require.True(t, q.Time.Before(deleted[0].Time), "no eviction after the deadline")
	}
	// TestRemovalMeansChangeAtTheirDeadlines of workflows/drain proves that no step of the drain comes too late.
	after := func(begin time.Time, q podRequest) {
		t.Helper()
		t.Logf("%s of %s comes %s after its time", q.Verb, q.Pod, q.Time.Sub(begin).Round(10*time.Millisecond))
		require.False(t, q.Time.Before(begin), "%s: %v comes too early", begin, q)
	}
	after(deadline, deleted[0])
	after(deadline, deleted[1])
	// a pod that does not terminate is killed, and the drain waits until it is gone. The time for the deletion begins
	// at the deadline, even if a slow worker sends the request later.
	after(deadline.Add(grace+30*time.Second), deleted[2])
	after(deleted[1].Time.Add(grace), deleted[2])
	require.Contains(t, deleted[2].Pod, "held-")
}
