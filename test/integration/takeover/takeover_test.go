// Tier: test-all. The package needs machine-controller-manager.

//go:build integration

// Package takeover tests that Millwright takes over a live namespace from a released machine-controller-manager (MCM),
// and hands the namespace back. Whatever MCM was doing when it was stopped, the takeover does not replace, drain or
// relabel a machine, node or instance.
package takeover

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// shootNamespace is the only namespace that MCM manages.
const shootNamespace = "shoot"

var (
	testRig    *rig.Rig
	recordFlag = flag.Bool("record", false, "write the objects as MCM left them into starter/migrate/testdata")
)

func TestMain(m *testing.M) {
	flag.Parse()
	mcm, ours := mcmFlags(shootNamespace), []string{"--as-mcm", "--namespaces", shootNamespace}
	os.Exit(rig.Main(m, stack.Options{
		Components: append(component.Names(), component.MCMManager, component.MCMMachineController),
		Args: map[string][]string{
			component.MCMManager: mcm, component.MCMMachineController: mcm, component.Worker: ours, component.Bridge: ours,
		},
	}, func(up *rig.Rig) { testRig = up }))
}

// mcmFlags returns the flags of MCM's processes for a namespace. With these flags, a Lease expires soon after its
// holder has ended.
func mcmFlags(namespace string) []string {
	return []string{
		"--namespace", namespace, "--leader-elect-lease-duration", "6s", "--leader-elect-renew-deadline", "4s",
		"--leader-elect-retry-period", "1s",
	}
}

// The test has one namespace in which MCM has a machine in each phase. Millwright takes the namespace over, and hands
// it back.
func TestNamespaceIsTakenOverAndHandedBack(t *testing.T) {
	stopComponents(t, component.Bridge, component.Worker, component.MCMMachineController, component.MCMManager)
	installCRDsOfMCM(t)
	n := createNamespaceAndClasses(t)
	startComponents(t, component.MCMManager, component.MCMMachineController)
	n.createPools(t)
	n.startUnfinishableWorkOfMCM(t)

	out, err := testRig.TryRunMillwright(t, migrateCheckArguments...)
	require.Error(t, err, "MCM is at work")
	require.Contains(t, out, "first   machine-controller-manager: it is at work: ")
	require.Contains(t, out, "first   CRDs: the API server has no machinedrainrules, rolloutpolicies\n")
	killComponents(t, component.MCMMachineController, component.MCMManager)
	n.freezeCurrentSet(t) // an MCM that dies during an ordinary scale-down leaves a frozen set
	_, err = testRig.Stack.RunKubectl(t.Context(), "apply", "-k", repoFolder(t, "deploy/crds"))
	require.NoError(t, err)
	rig.Eventually(t, "nothing has to be done first", func() (bool, any) {
		out, err = testRig.TryRunMillwright(t, migrateCheckArguments...)
		return err == nil, out
	})
	n.requireReportedUnfinishedWork(t, out)
	before := n.readState(t)
	if *recordFlag {
		n.recordObjects(t)
	}

	startComponents(t, component.Worker, component.Bridge)
	rig.Eventually(t, "worker and bridge are at work", func() (bool, any) {
		_, err := testRig.TryRunMillwright(t, "heartbeats")
		return err == nil, err
	})
	n.requireMillwrightFinishesWork(t, before)
	for _, p := range []*rig.Pool{n.runningPool, n.rolledOutPool, n.failedPool} {
		p.ForceReconcile(t)
		for _, m := range p.Machines(t) {
			testRig.ForceReconcile(t, run.KindMachine, m.Namespace, m.Name)
		}
	}
	n.requireUnchanged(t, before, n.runningPool, n.rolledOutPool, n.failedPool)
	n.requireMillwrightRollsOut(t)

	n.startUnfinishableWorkOfMillwright(t)
	killComponents(t, component.Bridge, component.Worker)
	before = n.readState(t)
	startComponents(t, component.MCMManager, component.MCMMachineController)
	time.Sleep(settleTime)
	n.requireUnchanged(
		t,
		before,
		n.runningPool,
		n.rolledOutPool,
		n.rollingPool,
		n.creatingPool,
		n.pendingPool,
		n.quotaPool,
		n.failedPool,
		n.unknownPool,
	)
	n.requireMCMFinishesWork(t, before)
	n.requireUnchanged(t, before, n.runningPool, n.rolledOutPool, n.rollingPool, n.creatingPool)
	rig.Eventually(t, "the guard of the autoscaler is not ready without Millwright", func() (bool, any) {
		_, err := testRig.TryRunMillwright(t, "heartbeats")
		return err != nil && strings.Contains(err.Error(), "No worker has been at work since "), err
	})
}

// migrateCheckArguments are the arguments of the check that people run before they start Millwright.
var migrateCheckArguments = []string{
	"migrate",
	"check",
	"--namespace",
	shootNamespace,
	"--namespaces",
	shootNamespace,
	"--as-mcm",
}

// requireReportedUnfinishedWork requires that the commands check and plan name MCM's unfinished work.
func (n *takeoverPools) requireReportedUnfinishedWork(t *testing.T, checked string) {
	t.Helper()
	for _, found := range []string{
		"ok      machine-controller-manager: it is not at work in namespace " + shootNamespace + "\n",
		"ok      CRDs: the API server has all kinds of Millwright\n",
		"note    machinedeployment/middle: a rollout is in progress, and goes on: ",
		"being created: Millwright adopts the instance that has the name of the machine, or creates one (",
		"waiting for a node to join: ", "unhealthy: Millwright waits on, and the health timeout runs on (" + n.unknownPool.Name,
		"being deleted: Millwright goes on",
	} {
		assert.Contains(t, checked, found)
	}
	assert.NotContains(t, checked, "\nfirst ", "nothing is in the way")
	assert.NotContains(t, checked, "with a node that is not as", "no node is to be changed")
	assert.NotContains(t, checked, "to relabel", "no machine is to be changed")
	assert.NotContains(t, checked, "calm", "nothing has to be said about it")
	plan := strings.Join(testRig.RunMillwright(t, "migrate", "plan", "--namespace", shootNamespace, "--as-mcm"), "\n")
	assert.Contains(
		t,
		plan,
		"kubectl scale deployment machine-controller-manager --namespace "+shootNamespace+" --replicas=0",
	)
	assert.Contains(t, plan, "It was creating ")
	assert.Contains(t, plan, "\nThe way back:\n")
}

// requireMillwrightFinishesWork requires that Millwright finishes MCM's unfinished work with the existing instances.
func (n *takeoverPools) requireMillwrightFinishesWork(t *testing.T, before poolsState) {
	t.Helper()
	n.removeFaultsAndBudgets(t)
	n.creatingPool.AwaitRunningMachines(t, 2)
	n.pendingPool.AwaitRunningMachines(t, 1)
	n.unknownPool.AwaitRunningMachines(t, 1)
	n.quotaPool.AwaitRunningMachines(t, 1)
	n.drainingPool.AwaitRunningMachines(t, 1)
	rig.Eventually(t, "the deletion that the cloud refused is over", func() (bool, any) {
		left := []int{len(n.deletingPool.Machines(t)), len(n.deletingPool.Nodes(t)), len(n.deletingPool.ProviderIDs(t))}
		return slices.Max(left) == 0, left
	})
	n.rollingPool.AwaitRunningMachines(t, rollingPoolSize)
	after := n.readState(t)
	for _, pool := range []*rig.Pool{n.creatingPool, n.pendingPool, n.unknownPool} {
		for name, was := range before.MachineNamesByProviderID {
			if strings.HasPrefix(was, pool.Name+"-") {
				assert.Equal(t, was, after.MachineNamesByProviderID[name], "pool %s has the instances of MCM", pool.Name)
			}
		}
		assert.Len(t, pool.ProviderIDs(t), len(pool.Machines(t)))
	}
	for _, pool := range []*rig.Pool{n.creatingPool, n.pendingPool, n.unknownPool, n.drainingPool} {
		for _, m := range pool.Machines(t) {
			was, known := before.Machines[m.Name]
			require.True(t, known, "%s is none of MCM's: it was replaced", m.Name)
			assert.Equal(t, was.UID, m.UID, m.Name)
			assert.Contains(t, before.MachineNamesByProviderID, m.Spec.ProviderID, m.Name)
		}
	}
	for _, m := range n.failedPool.Machines(t) {
		assert.NotNil(t, m.Status.CurrentStatus.PreserveExpiryTime, "%s is preserved", m.Name)
	}
	for _, s := range n.rollingPool.Sets(t) {
		assert.Contains(t, before.Sets, s.Name, "no other revision")
		assert.Equal(
			t,
			map[bool]int32{true: rollingPoolSize}[s.Spec.Template.Spec.Class.Name == classSlowCreation],
			s.Status.Replicas,
			s.Name,
		)
	}
	for _, m := range n.rollingPool.Machines(t) {
		if was, known := before.Machines[m.Name]; known {
			assert.Equal(t, was.UID, m.UID)
		}
	}
	assert.NotEmpty(t, before.BootstrapTokens)
	assert.Subset(t, after.BootstrapTokens, before.BootstrapTokens, "the nodes that boot with a token of MCM can join")
	stats, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	assert.Zero(t, stats.LiveDuplicateNames, "no machine has two instances")
	for _, s := range n.rolledOutPool.Sets(t) {
		assert.NotContains(t, s.Labels, v1alpha1.LabelFreeze, "--as-mcm ends a freeze that MCM left")
	}
}

// requireMillwrightRollsOut requires that Millwright can roll out a pool that MCM created, with the next revision.
func (n *takeoverPools) requireMillwrightRollsOut(t *testing.T) {
	t.Helper()
	n.rolledOutPool.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"3"}}}}}`)
	rig.Eventually(t, "the rollout is complete", func() (bool, any) {
		s := n.rolledOutPool.Deployment(t).Status
		machines := n.rolledOutPool.Machines(t)
		for _, m := range machines {
			if m.Labels["version"] != "3" {
				return false, s
			}
		}
		return len(machines) == rolledOutPoolSize && s.AvailableReplicas == rolledOutPoolSize &&
			s.UpdatedReplicas == rolledOutPoolSize, s
	})
	assert.Equal(t, "3", n.rolledOutPool.Deployment(t).Annotations[v1alpha1.AnnotationRevision])
	sets := map[string]bool{}
	for _, s := range n.rolledOutPool.Sets(t) {
		sets[s.Annotations[v1alpha1.AnnotationRevision]] = true
	}
	assert.Equal(t, map[string]bool{"1": true, "2": true, "3": true}, sets, "MCM's revisions, and one more")
}

// requireMCMFinishesWork requires that MCM, after its restart, finishes Millwright's unfinished work and reconciles the
// objects.
func (n *takeoverPools) requireMCMFinishesWork(t *testing.T, before poolsState) {
	t.Helper()
	n.drainingPool.RelaxBudget(t, drainingApp, 0)
	n.unknownPool.Scale(t, 2)
	rig.Eventually(t, "MCM ends the deletion", func() (bool, any) {
		left := []int{len(n.drainingPool.Machines(t)), len(n.drainingPool.Nodes(t)), len(n.drainingPool.ProviderIDs(t))}
		return slices.Max(left) == 0, left
	})
	n.unknownPool.AwaitRunningMachines(t, 2)
	n.millwrightCreatingPool.AwaitRunningMachines(t, 1)
	assert.Contains(
		t,
		before.MachineNamesByProviderID,
		n.millwrightCreatingPool.Machines(t)[0].Spec.ProviderID,
		"it has the instance that Millwright had begun",
	)
	assert.Len(t, n.millwrightCreatingPool.ProviderIDs(t), 1)
}
