package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/api/vocabulary"
	"millwright/decide/drain"
	"millwright/decide/explain"
	"millwright/decide/rollout"
)

func parseClockTime(clock string) time.Time {
	t, err := time.Parse(time.DateTime, "2026-11-25 "+clock)
	if err != nil {
		panic(err)
	}
	return t
}

var now = parseClockTime("10:00:00")

// waitingMachine returns a machine whose step began at 09:00.
func waitingMachine(step, cause string, change ...func(*explain.Machine)) explain.Machine {
	m := explain.Machine{
		Namespace:         "shop",
		Name:              "m-1",
		NodeName:          "n-1",
		ClassName:         "small",
		CredentialsSecret: "shop/creds",
		ReplacedBySet:     true,
		Step:              step,
		Cause:             cause,
		Since:             parseClockTime("09:00:00"),
	}
	for _, f := range change {
		f(&m)
	}
	return m
}

func withBlockers(by ...string) func(*explain.Machine) {
	return func(m *explain.Machine) { m.BlockedBy = by }
}

func withSecretsOfOtherNamespaces(secrets ...string) func(*explain.Machine) {
	return func(m *explain.Machine) { m.OtherNamespaceSecrets = secrets }
}

func withDeadline(clock string) func(*explain.Machine) {
	return func(m *explain.Machine) { m.Deadline = parseClockTime(clock) }
}

func withStoppedCreation(clock string) func(*explain.Machine) {
	return func(m *explain.Machine) { m.CreationStoppedAt = parseClockTime(clock) }
}

func withCurrentTime(m *explain.Machine) { m.Now = now }

func asDeletingMachine(m *explain.Machine) { m.Deleting = true }

func asEvictingMachine(m *explain.Machine) {
	m.Deleting, m.Means, m.NextMeans = true, drain.MeansEvict, drain.MeansDelete
}

// Each situation of a machine has a sentence with the cause, its beginning, the next event with its time, and the
// command.
func TestWaitSentencesOfMachines(t *testing.T) {
	const budget = "PodDisruptionBudget shop/web allows none of its 2 healthy pods to go: it needs 2 of 2"
	for name, row := range map[string]struct {
		machine explain.Machine
		blocked bool
		says    string
	}{
		"it is calm": {explain.Machine{}, false, ""},
		"it waits for its node": {
			waitingMachine(vocabulary.StepAwaitNode, "instance i-1 exists; node n-1 has not joined yet", withDeadline("09:20:00")), false,
			"instance i-1 exists; node n-1 has not joined yet (since 09:00:00 UTC); if its node has not joined, it is replaced at 09:20:00 UTC",
		},
		"nobody replaces it": {
			waitingMachine(vocabulary.StepAwaitNode, "no node", withDeadline("09:20:00"), func(m *explain.Machine) { m.ReplacedBySet = false }), false,
			"no node (since 09:00:00 UTC); if its node has not joined, it counts as failed at 09:20:00 UTC",
		},
		"the API server refuses a write of its node": {
			waitingMachine(vocabulary.StepSyncNode, "node n-1 cannot be written: Invalid value: a b", withBlockers("NodeRefused")), true,
			"node n-1 cannot be written: Invalid value: a b (since 09:00:00 UTC); it is tried again at least every 5m; `kubectl describe node n-1`",
		},
		"1: a budget": {
			waitingMachine(vocabulary.StepEvictPods, budget, asEvictingMachine, withBlockers("PodDisruptionBudget shop/web"), withDeadline("11:00:00")), true,
			budget + " (since 09:00:00 UTC); the pods still on its node are deleted at 11:00:00 UTC; `kubectl edit pdb -n shop web`",
		},
		"2: two budgets": {
			waitingMachine(vocabulary.StepEvictPods, "two budgets", asEvictingMachine, withBlockers("PodDisruptionBudget shop/a and shop/b"), withDeadline("11:00:00")), true,
			"two budgets (since 09:00:00 UTC); the pods still on its node are deleted at 11:00:00 UTC; `kubectl edit pdb -n shop a`",
		},
		"its pods are deleted now": {
			waitingMachine("delete", budget, withBlockers("PodDisruptionBudget shop/web"), withDeadline("11:00:30"), func(m *explain.Machine) { m.Deleting, m.Means, m.NextMeans = true, drain.MeansDelete, drain.MeansKill }), true,
			budget + " (since 09:00:00 UTC); the pods still on its node are killed at 11:00:30 UTC; `kubectl edit pdb -n shop web`",
		},
		"its pods are killed now": {
			waitingMachine("kill", "kills", withDeadline("11:01:00"), func(m *explain.Machine) { m.Deleting, m.Means = true, drain.MeansKill }), false,
			"kills (since 09:00:00 UTC); it goes on without the pods that are left at 11:01:00 UTC",
		},
		"10: most nodes look dead": {
			waitingMachine(vocabulary.StepAwaitReplacement, "Machine m-1 has not been healthy for 10m; held: 5 of 5 nodes look dead at once", withBlockers("ReplacementHeld")), true,
			"Machine m-1 has not been healthy for 10m; held: 5 of 5 nodes look dead at once (since 09:00:00 UTC); `kubectl get nodes`",
		},
		"3: in the stage after the drain": {
			waitingMachine(vocabulary.StepAwaitDetach, "volume pv3 is still attached to the node", asDeletingMachine, withBlockers("Volume pv3"), withDeadline("10:01:30")), true,
			"volume pv3 is still attached to the node (since 09:00:00 UTC); it goes on without the volume at 10:01:30 UTC; `kubectl describe pv pv3`",
		},
		"3: its time is over": {
			waitingMachine(vocabulary.StepEvictPods, "volume pv3 is attached", asEvictingMachine, withBlockers("Volume pv3"), withDeadline("09:59:30"), withCurrentTime), true,
			"volume pv3 is attached (since 09:00:00 UTC); it goes on without the volume now; `kubectl describe pv pv3`",
		},
		"3: a volume that never detaches": {
			waitingMachine(vocabulary.StepEvictPods, "volume pv3 is attached", asEvictingMachine, withBlockers("Volume pv3"), withDeadline("09:01:30")), true,
			"volume pv3 is attached (since 09:00:00 UTC); it goes on without the volume at 09:01:30 UTC; `kubectl describe pv pv3`",
		},
		"4: its node is not reachable": {
			waitingMachine(vocabulary.StepAwaitRecovery, "node n-1: Ready is Unknown (NodeStatusUnknown)", withDeadline("09:10:00")), true,
			"Ready is Unknown (NodeStatusUnknown) (since 09:00:00 UTC); if its node has not recovered, it is replaced at 09:10:00 UTC; `kubectl describe node n-1`",
		},
		"5: no quota": {
			waitingMachine(vocabulary.StepCreateInstance, "create instance of machine m-1: no room", withBlockers("ResourceExhausted"), withDeadline("09:20:00")), true,
			"no room (since 09:00:00 UTC); it is tried again: ask the cloud for more, or scale down; if its instance is not ready, it is replaced at 09:20:00 UTC; `millwright explain machine/m-1 -n shop`",
		},
		"6: wrong credentials": {
			waitingMachine(vocabulary.StepCreateInstance, "the credentials are not valid", withBlockers("Unauthenticated"), withStoppedCreation("09:00:05")), true,
			"the credentials are not valid (since 09:00:00 UTC); it is tried again at 10:00:05 UTC; `kubectl edit secret -n shop creds`",
		},
		"6: wrong credentials, and it is to leave": {
			waitingMachine(vocabulary.StepDeleteInstance, "the credentials are not valid", asDeletingMachine, withBlockers("Unauthenticated")), true,
			"the credentials are not valid (since 09:00:00 UTC); the call is repeated at least every 1h; `kubectl edit secret -n shop creds`",
		},
		"7a: no class": {
			waitingMachine(vocabulary.StepCreateInstance, "MachineClass small does not exist", withBlockers("ClassNotFound")), true,
			"MachineClass small does not exist (since 09:00:00 UTC); `kubectl get machineclasses -n shop`",
		},
		"7b: no Secret": {
			waitingMachine(vocabulary.StepCreateInstance, "Secret shop/creds does not exist", withBlockers("SecretNotFound"), withStoppedCreation("09:00:05")), true,
			"Secret shop/creds does not exist (since 09:00:00 UTC); `kubectl create secret generic -n shop creds --from-file …`",
		},
		"7b: a Secret of another namespace": {
			waitingMachine(vocabulary.StepCreateInstance, "Secret lent/creds does not allow it", withBlockers("SecretNotAllowed"), withSecretsOfOtherNamespaces("lent/creds")), true,
			"Secret lent/creds does not allow it (since 09:00:00 UTC); `kubectl annotate secret -n lent creds machine.sapcloud.io/allowed-class-namespaces=shop`",
		},
		"7b: both Secrets": {
			waitingMachine(vocabulary.StepDeleteInstance, "it does not allow it", asDeletingMachine, withBlockers("SecretNotAllowed"), withSecretsOfOtherNamespaces("lent/data", "lent/creds")), true,
			"it does not allow it (since 09:00:00 UTC); `kubectl annotate secret -n lent data creds machine.sapcloud.io/allowed-class-namespaces=shop`",
		},
		"7b: of two namespaces": {
			waitingMachine(vocabulary.StepCreateInstance, "it does not allow it", withBlockers("SecretNotAllowed"), withSecretsOfOtherNamespaces("lent/data", "other/creds")), true,
			"it does not allow it (since 09:00:00 UTC); `kubectl describe machineclass -n shop small`",
		},
		"9: it is held": {
			waitingMachine(vocabulary.StepHeldByOperator, "held by ann (lunch)", asDeletingMachine, withBlockers("Hold")), true,
			"held by ann (lunch) (since 09:00:00 UTC); nothing more happens until somebody resumes it; `millwright drain resume shop/m-1`",
		},
		"9: a drain is held, and has a deadline": {
			waitingMachine(vocabulary.StepHeldByOperator, "held by ann (lunch)", asDeletingMachine, withBlockers("Hold"), withDeadline("11:00:00")), true,
			"held by ann (lunch) (since 09:00:00 UTC); nothing more happens until somebody resumes it; `millwright drain resume shop/m-1`",
		},
		"a hook": {
			waitingMachine(vocabulary.StepAwaitHooks, "waits until these hooks are removed: x/y", asDeletingMachine, withBlockers("x/y"), func(m *explain.Machine) { m.HookKey = "x/y" }), true,
			"waits until these hooks are removed: x/y (since 09:00:00 UTC); `kubectl annotate machine -n shop m-1 x/y-`",
		},
		"11: no worker serves its provider": {
			waitingMachine(vocabulary.StepCreateInstance, "provider aws is creating the instance", withDeadline("09:20:00"), func(m *explain.Machine) { m.UnservedReason = "no worker serves provider aws" }), true,
			"no worker serves provider aws (since 09:00:00 UTC); if its instance is not ready, it is replaced at 09:20:00 UTC; `millwright provider list -n shop`",
		},
		"11: no worker serves its provider, and it is to leave": {
			waitingMachine(vocabulary.StepDeleteInstance, "provider aws removes instance i-1", asDeletingMachine, withDeadline("09:20:00"), func(m *explain.Machine) { m.UnservedReason = "no worker serves provider aws" }), true,
			"no worker serves provider aws (since 09:00:00 UTC); `millwright provider list -n shop`",
		},
		"12: the provider hangs": {
			waitingMachine(vocabulary.StepCreateInstance, "provider aws is creating the instance", withDeadline("09:20:00"), func(m *explain.Machine) { m.Now = parseClockTime("09:02:00") }), true,
			"the provider has not answered the call create-instance (since 09:00:00 UTC); if its instance is not ready, it is replaced at 09:20:00 UTC; `millwright explain machine/m-1 -n shop`",
		},
		"12: not before long": {
			waitingMachine(vocabulary.StepCreateInstance, "provider aws is creating the instance", withDeadline("09:20:00"), func(m *explain.Machine) { m.Now = parseClockTime("09:01:59") }), false,
			"provider aws is creating the instance (since 09:00:00 UTC); if its instance is not ready, it is replaced at 09:20:00 UTC",
		},
		"12: it does not delete": {
			waitingMachine(vocabulary.StepDeleteInstance, "provider aws removes instance i-1", asDeletingMachine, withBlockers("ProviderCall"), func(m *explain.Machine) { m.Now = parseClockTime("09:05:00") }), true,
			"the provider has not deleted the instance yet (since 09:00:00 UTC); the call is repeated; `millwright explain machine/m-1 -n shop`",
		},
		"12: an instance that shuts down takes its time": {
			waitingMachine(vocabulary.StepDeleteInstance, "provider aws removes instance i-1", asDeletingMachine, func(m *explain.Machine) { m.Now = parseClockTime("09:04:59") }), false,
			"provider aws removes instance i-1 (since 09:00:00 UTC)",
		},
		"one has come meanwhile": {
			waitingMachine(vocabulary.StepCreateInstance, "provider aws is creating the instance", withBlockers("NoWorker"), withDeadline("09:20:00")), false,
			"provider aws is creating the instance (since 09:00:00 UTC); if its instance is not ready, it is replaced at 09:20:00 UTC",
		},
		"no worker matters only to a call": {
			waitingMachine(vocabulary.StepAwaitNode, "no node", withDeadline("09:20:00"), func(m *explain.Machine) { m.UnservedReason = "no worker" }), false,
			"no node (since 09:00:00 UTC); if its node has not joined, it is replaced at 09:20:00 UTC",
		},
		"the provider does not delete it": {
			waitingMachine(vocabulary.StepDeleteInstance, "the cloud is down", asDeletingMachine, withBlockers("Unavailable")), true,
			"the cloud is down (since 09:00:00 UTC); the call is repeated; `millwright provider check -n shop small`",
		},
		"evictions without an end": {
			waitingMachine(vocabulary.StepEvictPods, "a budget", asDeletingMachine, withBlockers("PodDisruptionBudget shop/web"), func(m *explain.Machine) { m.Means = drain.MeansEvict }), true,
			"a budget (since 09:00:00 UTC); `kubectl edit pdb -n shop web`",
		},
		"the target cluster does not answer": {
			waitingMachine(vocabulary.StepDrain, "the target cluster does not answer", asDeletingMachine, withBlockers("TargetUnavailable")), true,
			"the target cluster does not answer (since 09:00:00 UTC); `millwright drain skip shop/m-1 --reason …`",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := row.machine.CurrentWait()
			assert.Equal(t, row.blocked, w.IsBlocked())
			assert.Equal(t, row.says, w.Sentence(now))
		})
	}
}

// Machines with the same cause share one sentence, with the earliest beginning and the earliest next event. A cause
// that only a person can remove comes first.
func TestSetSummarizesItsMachines(t *testing.T) {
	budget := func(name, since, until string) explain.Machine {
		m := waitingMachine(
			vocabulary.StepEvictPods,
			"PodDisruptionBudget shop/web needs 20 of 20",
			asEvictingMachine,
			withBlockers("PodDisruptionBudget shop/web"),
		)
		m.Name, m.Since, m.Deadline = name, parseClockTime(since), parseClockTime(until)
		return m
	}
	secret := waitingMachine(
		vocabulary.StepCreateInstance,
		"Secret shop/creds does not exist",
		withBlockers("SecretNotFound"),
	)
	calm := explain.Machine{}
	set := explain.MachineSet{Namespace: "shop", Name: "s", MachineCount: 20, Machines: []explain.Machine{
		calm, budget("a", "09:30:00", "11:30:00"), budget("b", "09:10:00", "11:10:00"), secret,
		waitingMachine(vocabulary.StepAwaitNode, "no node", withDeadline("09:20:00")),
	}}
	said := set.BlockedSummary(now)
	require.Len(t, said.Waits, 2)
	assert.Equal(t, []any{1, "Secret shop/creds does not exist"}, []any{said.Waits[0].MachineCount, said.Waits[0].Cause})
	assert.Equal(
		t,
		[]any{
			2,
			"PodDisruptionBudget shop/web needs 20 of 20",
			"the pods still on their nodes are deleted",
			parseClockTime("11:10:00"),
		},
		[]any{said.Waits[1].MachineCount, said.Waits[1].Cause, said.Waits[1].NextEventText(), said.Waits[1].NextEventTime},
	)
	said.Waits = nil
	assert.Equal(t, explain.Summary{
		Blockers: []string{
			"SecretNotFound",
			"PodDisruptionBudget shop/web",
		},
		Short:  "1/20 Secret does not exist +1",
		Reason: "SecretNotFound",
		Since:  parseClockTime("09:00:00"),
		At:     parseClockTime("11:10:00"),
		Message: "1 of 20 machines waits for its instance (since 09:00:00 UTC): Secret shop/creds does not exist; `kubectl create secret generic -n shop creds --from-file …`. " +
			"2 of 20 machines wait to leave (since 09:10:00 UTC): PodDisruptionBudget shop/web needs 20 of 20; the pods still on their nodes are deleted from 11:10:00 UTC on; `kubectl edit pdb -n shop web`",
	}, said)

	silent := func(name string) explain.Machine {
		m := waitingMachine(vocabulary.StepAwaitRecovery, "Ready is Unknown")
		m.Name, m.NodeName = name, "n-"+name
		return m
	}
	set.Machines = []explain.Machine{silent("a"), silent("b")}
	first := set.BlockedSummary(now)
	set.Machines = []explain.Machine{silent("b"), silent("a")}
	assert.Equal(
		t,
		first,
		set.BlockedSummary(now),
		"machines come in any order: a sentence that depended on it would be written at each look",
	)

	set.Machines = []explain.Machine{calm, waitingMachine(vocabulary.StepAwaitNode, "no node", withDeadline("09:20:00"))}
	assert.Equal(t, explain.Summary{}, set.BlockedSummary(now), "what takes its time blocks nothing")

	refused := func(name, since string) explain.Machine {
		m := waitingMachine(
			vocabulary.StepCreateInstance,
			"the credentials are not valid",
			withBlockers("Unauthenticated"),
			withStoppedCreation(since),
		)
		m.Name = name
		return m
	}
	set.Machines = []explain.Machine{
		budget("a", "09:30:00", "11:30:00"),
		refused("b", "09:40:00"),
		refused("c", "09:30:00"),
	}
	s := set.BlockedSummary(now)
	assert.Equal(
		t,
		"2 of 20 machines wait for their instances (since 09:00:00 UTC): the credentials are not valid; they are tried again from 10:30:00 UTC on; `kubectl edit secret -n shop creds`. "+
			"1 of 20 machines waits to leave (since 09:30:00 UTC): PodDisruptionBudget shop/web needs 20 of 20; the pods still on its node are deleted at 11:30:00 UTC; `kubectl edit pdb -n shop web`",
		s.Message,
		"another try changes nothing: a person must",
	)
	assert.Equal(t, parseClockTime("11:30:00"), s.At, "a try is no end")

	set.Machines = nil
	for _, cause := range []string{"a", "b", "c", "d", "e"} {
		set.Machines = append(set.Machines, waitingMachine(vocabulary.StepCreateInstance, cause, withBlockers("Internal")))
	}
	s = set.BlockedSummary(now)
	assert.True(t, strings.HasSuffix(s.Message, ". And 2 other causes"), s.Message)
	assert.Equal(t, []string{"Internal"}, s.Blockers)
}

func TestOwnWaitsOfSet(t *testing.T) {
	condition := func(kind, status, reason, message string) explain.Condition {
		return explain.Condition{
			Type:    kind,
			Status:  status,
			Reason:  reason,
			Message: message,
			Since:   parseClockTime("09:00:00"),
		}
	}
	uncreated := func(reason, message string) explain.Condition {
		return condition(vocabulary.ConditionMachinesCreated, "False", reason, message)
	}
	for name, row := range map[string]struct {
		set  explain.MachineSet
		says string
	}{
		"7a: its class does not exist": {
			explain.MachineSet{Conditions: []explain.Condition{uncreated("TemplateNotFound", "MachineClass does not exist")}},
			"set s creates no machine: MachineClass shop/small does not exist (since 09:00:00 UTC); `kubectl get machineclasses -n shop`",
		},
		"8: preflight": {
			explain.MachineSet{Conditions: []explain.Condition{uncreated("PreflightCheckFailed", `ControlPlane cp is upgrading ("ControlPlaneIsStable" preflight check failed)`)}},
			"set s creates no machine: ControlPlane cp is upgrading (\"ControlPlaneIsStable\" preflight check failed) (since 09:00:00 UTC); " +
				"it creates its machines by itself once the control plane passes the check; `kubectl annotate machineset -n shop s machineset.cluster.x-k8s.io/skip-preflight-checks=All`",
		},
		"it is frozen": {
			explain.MachineSet{Frozen: true, Conditions: []explain.Condition{uncreated("ScaleUpStopped", "MachineSet is frozen")}},
			"set s creates no machine: MachineSet is frozen (since 09:00:00 UTC); `kubectl label machineset -n shop s freeze-`",
		},
		"its deployment is frozen": {
			explain.MachineSet{Frozen: true, FrozenBy: "d", Conditions: []explain.Condition{uncreated("ScaleUpStopped", "MachineSet is frozen")}},
			"set s creates no machine: MachineSet is frozen (since 09:00:00 UTC); `kubectl label machinedeployment -n shop d freeze-`",
		},
		"16: admission refuses machines": {
			explain.MachineSet{Conditions: []explain.Condition{uncreated("MachineCreationFailed", "quota exceeded")}},
			"set s creates no machine: quota exceeded (since 09:00:00 UTC); it is tried again every 10s; `kubectl describe machineset -n shop s`",
		},
		"it is paused, and has too few machines": {
			explain.MachineSet{HasPendingChanges: true, Conditions: []explain.Condition{condition("Paused", "True", "Paused", "MachineSet has the paused annotation")}},
			"set s is paused: MachineSet has the paused annotation (since 09:00:00 UTC); `kubectl annotate machineset -n shop s cluster.x-k8s.io/paused-`",
		},
		"it is paused, and being deleted": {
			explain.MachineSet{HasPendingChanges: true, Deleting: true, Conditions: []explain.Condition{condition("Paused", "True", "Paused", "MachineSet has the paused annotation")}},
			"set s is being deleted, and waits because it is paused: MachineSet has the paused annotation (since 09:00:00 UTC); `kubectl annotate machineset -n shop s cluster.x-k8s.io/paused-`",
		},
		"it is paused, and complete": {
			explain.MachineSet{Conditions: []explain.Condition{condition("Paused", "True", "Paused", "MachineSet has the paused annotation")}}, "",
		},
		"it is refused a deletion": {
			explain.MachineSet{Conditions: []explain.Condition{condition("ReplicaFailure", "True", "FailedDelete", "forbidden")}},
			"the API server refuses to delete machines: forbidden (since 09:00:00 UTC); it is tried again every 10s",
		},
		"it waits for the next retry": {
			explain.MachineSet{Conditions: []explain.Condition{condition("ReplacementHeld", "True", "RemediationBackoff", "Machine m: Waiting until 09:05:00 UTC")}},
			"set s does not replace machines: Machine m: Waiting until 09:05:00 UTC (since 09:00:00 UTC); `kubectl get machines -n shop`",
		},
		"the last retry of a set of Cluster API has failed": {
			explain.MachineSet{IsClusterAPI: true, Conditions: []explain.Condition{condition("ReplacementHeld", "True", "MaxRetryReached", "Machine m: it failed")}},
			"set s does not replace machines: Machine m: it failed (since 09:00:00 UTC); `kubectl get machines.cluster.x-k8s.io -n shop`",
		},
		"all is well": {explain.MachineSet{Conditions: []explain.Condition{condition(vocabulary.ConditionMachinesCreated, "True", "MachinesCreated", "")}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			row.set.Namespace, row.set.Name, row.set.ClassName = "shop", "s", "small"
			assert.Equal(t, row.says, row.set.BlockedSummary(now).Message)
		})
	}
}

func TestOwnWaitsOfDeployment(t *testing.T) {
	progressing := func(reason, message string) []explain.Condition {
		return []explain.Condition{
			{Type: "Available", Status: "True"},
			{Type: "Progressing", Status: "Unknown", Reason: reason, Message: message, Since: parseClockTime("09:00:00")},
		}
	}
	for name, row := range map[string]struct {
		deployment explain.Deployment
		reason     string
		says       string
	}{
		"9: it is paused":          {explain.Deployment{HasPendingChanges: true, Conditions: progressing("DeploymentPaused", "paused by ann (lunch): 1 of 4 up to date")}, "Paused", "paused by ann (lunch): 1 of 4 up to date (since 09:00:00 UTC); nothing is rolled out until somebody resumes it; `millwright rollout resume shop/d`"},
		"paused, and complete":     {explain.Deployment{Conditions: progressing("DeploymentPaused", "paused: 4 of 4 up to date")}, "", ""},
		"9: it was cancelled":      {explain.Deployment{HasPendingChanges: true, Conditions: progressing("RolloutHeld", "held by ann (bad)")}, "Hold", "held by ann (bad) (since 09:00:00 UTC); nothing is rolled out until somebody resumes it; `millwright rollout resume shop/d`"},
		"9: it waits for approval": {explain.Deployment{Conditions: progressing("RolloutWaiting", "step 1 of 2")}, "Approval", "step 1 of 2 (since 09:00:00 UTC); `millwright rollout approve shop/d --reason …`"},
		"a step lasts":             {explain.Deployment{RolloutStep: "step 1 of 2", RolloutStepEnd: parseClockTime("10:30:00"), Conditions: progressing("RolloutWaiting", "step 1 of 2 until 10:30:00 UTC")}, "Step", "step 1 of 2 (since 09:00:00 UTC); the next step begins at 10:30:00 UTC; `millwright rollout approve shop/d --reason …`"},
		"another one is first": {
			explain.Deployment{Turn: &rollout.TurnWait{Sibling: "a"}, Conditions: progressing("WaitingForTurn", "a is first")},
			"Turn",
			"a is first (since 09:00:00 UTC); `millwright rollout status shop/a`",
		},
		"a pause between rollouts": {
			explain.Deployment{
				Turn:       &rollout.TurnWait{Until: parseClockTime("10:30:00")},
				Conditions: progressing("WaitingForTurn", "RolloutPolicy fleet pauses for 2h after each rollout"),
			},
			"Turn",
			"RolloutPolicy fleet pauses for 2h after each rollout (since 09:00:00 UTC); the next rollout begins at 10:30:00 UTC; `kubectl get rolloutpolicies -n shop -o yaml`",
		},
		"an extension": {
			explain.Deployment{IsClusterAPI: true, Conditions: progressing("ExtensionFailed", "no extension says it")},
			"ExtensionFailed",
			"no extension says it (since 09:00:00 UTC); it is asked again every 30s; `kubectl get extensionconfigs.runtime.cluster.x-k8s.io -o yaml`",
		},
		"no update in place": {
			explain.Deployment{IsClusterAPI: true, Conditions: progressing("NotUpdatedInPlace", "it cannot")},
			"NotUpdatedInPlace",
			"it cannot (since 09:00:00 UTC); correct the template, or let the rollout replace the machines; `kubectl annotate machinedeployments.cluster.x-k8s.io -n shop d --overwrite rollout.machine.sapcloud.io/in-place-updates=true`",
		},
		"no progress": {explain.Deployment{Conditions: progressing("ProgressDeadlineExceeded", "no progress for 10m")}, "ProgressDeadlineExceeded", "no progress for 10m (since 09:00:00 UTC); `millwright rollout status shop/d`"},
		"no way back": {
			explain.Deployment{Conditions: []explain.Condition{{
				Type: "Degraded", Status: "True", Reason: "DeploymentRollbackTemplateNotFound", Message: "X is gone",
				Since: parseClockTime("09:00:00"),
			}}},
			"DeploymentRollbackTemplateNotFound",
			"X is gone (since 09:00:00 UTC); create it again, or change the template; `kubectl edit machinedeployment -n shop d`",
		},
		"it is invalid":      {explain.Deployment{Conditions: progressing("Invalid", "the selector is empty")}, "Invalid", "the selector is empty (since 09:00:00 UTC); `kubectl edit machinedeployment -n shop d`"},
		"its set is refused": {explain.Deployment{Conditions: progressing("MachineSetCreateError", "quota")}, "Refused", "quota (since 09:00:00 UTC); it is tried again at least every 5m; `kubectl edit machinedeployment -n shop d`"},
		"10: the last retry of a set, which the deployment's reason contains": {explain.Deployment{
			ReplacementHoldReason: "1 machine is due; 3 generations failed", ReplacementHoldSince: parseClockTime("09:30:00"),
			Sets: []explain.MachineSet{{Conditions: []explain.Condition{{Type: "ReplacementHeld", Status: "True", Reason: "MaxRetryReached", Message: "Machine m: it failed"}}}},
		}, "ReplacementHeld", "failed machines are not replaced: 1 machine is due; 3 generations failed (since 09:30:00 UTC); `kubectl get machines -n shop`"},
		"10: the breaker holds": {explain.Deployment{ReplacementHoldReason: "3 of 5 nodes look dead", ReplacementHoldSince: parseClockTime("09:30:00")}, "ReplacementHeld", "failed machines are not replaced: 3 of 5 nodes look dead (since 09:30:00 UTC); `kubectl get machines -n shop`"},
		"10: its machines do not repeat it": {
			explain.Deployment{
				ReplacementHoldReason: "3 of 5 nodes look dead", ReplacementHoldSince: parseClockTime("09:30:00"), MachineCount: 5,
				Machines: []explain.Machine{waitingMachine(vocabulary.StepAwaitReplacement, "not granted: 3 of 5 nodes look dead", withBlockers("ReplacementHeld"))},
			}, "ReplacementHeld", "failed machines are not replaced: 3 of 5 nodes look dead (since 09:30:00 UTC); `kubectl get machines -n shop`",
		},
		"a rollout that progresses": {explain.Deployment{Conditions: progressing("MachineSetUpdated", "2 of 4")}, "", ""},
		"7a: the class of its set": {
			explain.Deployment{Sets: []explain.MachineSet{{
				Namespace: "shop", Name: "s", ClassName: "small",
				Conditions: []explain.Condition{{Type: "MachinesCreated", Status: "False", Reason: "TemplateNotFound", Since: parseClockTime("09:00:00")}},
			}}},
			"TemplateNotFound",
			"set s creates no machine: MachineClass shop/small does not exist (since 09:00:00 UTC); `kubectl get machineclasses -n shop`",
		},
	} {
		t.Run(name, func(t *testing.T) {
			row.deployment.Namespace, row.deployment.Name = "shop", "d"
			s := row.deployment.BlockedSummary(now)
			assert.Equal(t, row.says, s.Message)
			assert.Equal(t, row.reason, s.Reason)
		})
	}
}

// The reason of a condition is one word, even if the blocker is the key of an annotation.
func TestConditionReasonsAreSingleWords(t *testing.T) {
	for blocker, want := range map[string]string{
		"PodDisruptionBudget shop/web": "PodDisruptionBudget", "Hold": "Hold", "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup": "Waiting", "": "Waiting",
	} {
		assert.Equal(t, want, explain.ReasonOfBlocker(blocker))
	}
}
