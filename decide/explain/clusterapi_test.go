package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/explain"
)

// newClusterAPIMachine returns a Cluster API machine whose stage began at 09:00, an hour ago.
func newClusterAPIMachine(
	stage explain.Stage,
	message string,
	change ...func(*explain.ClusterAPIMachine),
) explain.ClusterAPIMachine {
	m := explain.ClusterAPIMachine{
		Namespace: "shop",
		Name:      "m-1",
		Stage:     stage,
		Message:   message,
		Since:     parseClockTime("09:00:00"),
		Now:       now,
	}
	for _, f := range change {
		f(&m)
	}
	return m
}

// Each stage has a sentence with the cause, its beginning, the next event with its time, and the command.
func TestWaitSentencesOfClusterAPIMachines(t *testing.T) {
	const describe = "; `kubectl describe machines.cluster.x-k8s.io -n shop m-1`"
	of := func(object string) func(*explain.ClusterAPIMachine) {
		return func(m *explain.ClusterAPIMachine) { m.DescribedObject = object }
	}
	ends := func(m *explain.ClusterAPIMachine) { m.Deadline = parseClockTime("11:00:00") }
	unhandled := func(m *explain.ClusterAPIMachine) { m.Unhandled = true }
	hooks := func(keys ...string) func(*explain.ClusterAPIMachine) {
		return func(m *explain.ClusterAPIMachine) { m.Hooks = keys }
	}
	for _, row := range []struct {
		machine explain.ClusterAPIMachine
		goal    string
		blocked string
		says    string
	}{
		{
			newClusterAPIMachine(explain.StageBootstrap, "no\ndata", of("kubeadmconfig.bootstrap.cluster.x-k8s.io m-1")), "waits for its bootstrap data", "BootstrapNotReady",
			"the bootstrap data are not ready: no data (since 09:00:00 UTC); `kubectl describe kubeadmconfig.bootstrap.cluster.x-k8s.io -n shop m-1`",
		},
		{newClusterAPIMachine(explain.StageInfrastructure, ""), "waits for its instance", "InfrastructureNotReady", "the infrastructure is not ready (since 09:00:00 UTC)" + describe},
		{
			newClusterAPIMachine(explain.StageInfrastructure, "x", unhandled), "waits for its instance", "NotHandled",
			"no controller of Cluster API has looked at it (since 09:00:00 UTC); `kubectl get pods -A -l cluster.x-k8s.io/provider=cluster-api`",
		},
		{newClusterAPIMachine(explain.StageJoin, "x"), "waits for its node to join", "NodeNotJoined", "no node has joined: x (since 09:00:00 UTC)" + describe},
		{newClusterAPIMachine(explain.StageRecover, "x"), "waits for its node to recover", "NodeNotHealthy", "the node is not healthy: x (since 09:00:00 UTC)" + describe},
		{newClusterAPIMachine(explain.StageUpdate, "x"), "waits for its update in place", "InPlaceUpdate", "the update in place does not end: x (since 09:00:00 UTC)" + describe},
		{
			newClusterAPIMachine(explain.StagePaused, ""), "waits to be resumed", "Paused",
			"the Machine is paused (since 09:00:00 UTC); `kubectl annotate machines.cluster.x-k8s.io -n shop m-1 cluster.x-k8s.io/paused-`",
		},
		{newClusterAPIMachine(explain.StageUnknownDeletion, "x"), "waits to leave", "MachineNotDeleted", "the deletion does not end: x (since 09:00:00 UTC)" + describe},
		{
			newClusterAPIMachine(explain.StageUnknownDeletion, "", unhandled), "waits to leave", "NotHandled",
			"no controller of Cluster API has looked at it (since 09:00:00 UTC); `kubectl get pods -A -l cluster.x-k8s.io/provider=cluster-api`",
		},
		{
			newClusterAPIMachine(explain.StageAwaitHooks, "x", hooks("a/one")), "waits to leave", "a/one",
			"the hook a/one keeps it (since 09:00:00 UTC); `kubectl annotate machines.cluster.x-k8s.io -n shop m-1 a/one-`",
		},
		{
			newClusterAPIMachine(explain.StageAwaitHooks, "x", hooks("a/one", "a/two")), "waits to leave", "a/one a/two",
			"the hooks a/one, a/two keep it (since 09:00:00 UTC); `kubectl annotate machines.cluster.x-k8s.io -n shop m-1 a/one-`",
		},
		{newClusterAPIMachine(explain.StageMillwrightDrain, ""), "waits to leave", "NodeDrain", "Millwright drains the node (since 09:00:00 UTC); `millwright drain explain shop/m-1`"},
		{
			newClusterAPIMachine(explain.StageMillwrightDrain, "", func(m *explain.ClusterAPIMachine) {
				m.DrainingMachine = waitingMachine("evict-pods", "a budget", withBlockers("PodDisruptionBudget shop/web"), asEvictingMachine)
			}),
			"waits to leave", "PodDisruptionBudget shop/web", "a budget (since 09:00:00 UTC); the pods still on its node are deleted; `kubectl edit pdb -n shop web`",
		},
		{
			newClusterAPIMachine(explain.StageClusterAPIDrain, "pods", ends), "waits to leave", "NodeDrain",
			"Cluster API drains the node: pods (since 09:00:00 UTC); it goes on without the pods that are left at 11:00:00 UTC" + describe,
		},
		{newClusterAPIMachine(explain.StageClusterAPIDrain, "pods"), "waits to leave", "NodeDrain", "Cluster API drains the node: pods (since 09:00:00 UTC)" + describe},
		{
			newClusterAPIMachine(explain.StageDetachVolumes, "", ends), "waits to leave", "VolumeDetach",
			"volumes are attached to the node (since 09:00:00 UTC); it goes on without the volumes at 11:00:00 UTC" + describe,
		},
		{newClusterAPIMachine(explain.StageDeleteInstance, "x"), "waits to leave", "InfrastructureNotDeleted", "the infrastructure is not deleted: x (since 09:00:00 UTC)" + describe},
		{newClusterAPIMachine(explain.StageDeleteBootstrap, "x"), "waits to leave", "BootstrapNotDeleted", "the bootstrap configuration is not deleted: x (since 09:00:00 UTC)" + describe},
		{newClusterAPIMachine(explain.StageDeleteNode, "x"), "waits to leave", "NodeNotDeleted", "the Node object is not deleted: x (since 09:00:00 UTC)" + describe},
		{explain.ClusterAPIMachine{Now: now}, "", "", ""},
	} {
		w := row.machine.CurrentWait()
		assert.Equal(
			t,
			[]string{row.goal, row.blocked, row.says},
			[]string{w.Goal.Singular, strings.Join(w.Blockers, " "), w.Sentence(now)},
		)
		assert.Equal(
			t,
			row.goal == "",
			row.machine.StepName() == "" && row.machine.Stage != explain.StagePaused,
			"a step for each stage but a pause",
		)
	}
}

// A Cluster API machine counts as blocked after the limit of its stage. A machine with HasFailed counts as blocked at
// once.
func TestBlockerStartOfClusterAPIMachine(t *testing.T) {
	for stage, after := range map[explain.Stage]time.Duration{
		explain.StageBootstrap: 2 * time.Minute, explain.StageInfrastructure: 5 * time.Minute, explain.StageJoin: 10 * time.Minute,
		explain.StageRecover: 2 * time.Minute, explain.StageUpdate: 10 * time.Minute, explain.StagePaused: 0, explain.StageUnknownDeletion: 2 * time.Minute, explain.StageClusterAPIDrain: 2 * time.Minute,
		explain.StageDetachVolumes: 2 * time.Minute, explain.StageDeleteInstance: 5 * time.Minute, explain.StageDeleteBootstrap: 5 * time.Minute, explain.StageDeleteNode: 2 * time.Minute,
	} {
		m := newClusterAPIMachine(stage, "")
		turns := parseClockTime("09:00:00").Add(after)
		if m.Now = turns.Add(-time.Second); after > 0 {
			assert.Equal(t, turns, m.BlockerStart(), "%s", stage)
			assert.False(t, m.CurrentWait().IsBlocked(), "%s", stage)
			assert.Empty(t, m.CurrentWait().Command, "nothing is to be done yet")
			lost := m
			lost.HasFailed = true
			assert.True(t, lost.CurrentWait().IsBlocked(), "%s", stage)
			assert.Zero(t, lost.BlockerStart())
		}
		m.Now = turns
		assert.Zero(t, m.BlockerStart(), "%s", stage)
		assert.True(t, m.CurrentWait().IsBlocked(), "%s", stage)
	}
	assert.Zero(t, explain.ClusterAPIMachine{Now: now}.BlockerStart())
	first := newClusterAPIMachine(explain.StageInfrastructure, "")
	first.Now, first.Unhandled = parseClockTime("09:01:00"), true
	second := newClusterAPIMachine(explain.StageJoin, "")
	second.Now = first.Now
	s := explain.MachineSet{ClusterAPIMachines: []explain.ClusterAPIMachine{second, first, {Now: now}}}
	assert.Equal(t, parseClockTime("09:02:00"), s.NextEvaluationTime(time.Time{}), "the first one")
	assert.Equal(
		t,
		parseClockTime("09:01:30"),
		s.NextEvaluationTime(parseClockTime("09:01:30")),
		"something else comes before",
	)
	assert.True(t, s.HasMachineInStage())
	assert.False(t, explain.MachineSet{ClusterAPIMachines: []explain.ClusterAPIMachine{{Now: now}}}.HasMachineInStage())
}

// The summary of a Cluster API set has the same form as the summary of another set.
func TestClusterAPISetSummarizesItsMachines(t *testing.T) {
	drained := func(name, message string) explain.ClusterAPIMachine {
		m := newClusterAPIMachine(explain.StageClusterAPIDrain, message)
		m.Name = name
		return m
	}
	s := explain.MachineSet{
		Namespace:    "shop",
		Name:         "web-1",
		IsClusterAPI: true,
		MachineCount: 4,
		ClusterAPIMachines: []explain.ClusterAPIMachine{
			drained("c", "pods"), drained("b", "pods"), drained("a", strings.Repeat("pod x ", 100)), {Name: "d"},
		},
	}
	summary := s.BlockedSummary(now)
	assert.Equal(t, "NodeDrain", summary.Reason)
	assert.Contains(
		t,
		summary.Message,
		"2 of 4 machines wait to leave (since 09:00:00 UTC): Cluster API drains the node: pods; `kubectl describe machines.cluster.x-k8s.io -n shop b`. "+
			"1 of 4 machines waits to leave (since 09:00:00 UTC): Cluster API drains the node: pod x pod x",
	)
	assert.Less(t, len(summary.Message), 800)
}
