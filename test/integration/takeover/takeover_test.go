// Tier: test-all. It needs machine-controller-manager.

//go:build integration

// Package takeover shows that Millwright takes a live namespace over from a released machine-controller-manager (MCM),
// and hands it back: no machine, node or instance is replaced, drained or relabelled because of that, whatever MCM was
// doing when it was stopped.
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

// namespace is the namespace in which MCM works: an MCM works in one namespace only.
const namespace = "shoot"

var (
	r      *rig.Rig
	record = flag.Bool("record", false, "write the objects as MCM left them into starter/migrate/testdata")
)

func TestMain(m *testing.M) {
	flag.Parse()
	mcm, ours := flagsOfMCM(namespace), []string{"--as-mcm", "--namespaces", namespace}
	os.Exit(rig.Main(m, stack.Options{
		Components: append(component.Names(), component.MCMManager, component.MCMMachines),
		Args: map[string][]string{
			component.MCMManager: mcm, component.MCMMachines: mcm, component.Worker: ours, component.Bridge: ours,
		},
	}, func(up *rig.Rig) { r = up }))
}

// flagsOfMCM returns the flags of MCM's processes for a namespace. With them, a Lease ends soon after its holder is
// gone.
func flagsOfMCM(namespace string) []string {
	return []string{
		"--namespace", namespace, "--leader-elect-lease-duration", "6s", "--leader-elect-renew-deadline", "4s",
		"--leader-elect-retry-period", "1s",
	}
}

// One namespace in which MCM has a machine in each phase: there and back.
func TestATakeoverAndTheWayBack(t *testing.T) {
	stop(t, component.Bridge, component.Worker, component.MCMMachines, component.MCMManager)
	useCRDsOfMCM(t)
	n := newNamespace(t)
	start(t, component.MCMManager, component.MCMMachines)
	n.live(t)
	n.unsettle(t)

	out, err := r.TryMillwright(t, check...)
	require.Error(t, err, "MCM is at work")
	require.Contains(t, out, "first   machine-controller-manager: it is at work: ")
	require.Contains(t, out, "first   CRDs: the API server has no machinedrainrules, rolloutpolicies\n")
	kill(t, component.MCMMachines, component.MCMManager)
	n.freeze(t) // as an MCM that dies in an ordinary scale-down leaves it
	_, err = r.Stack.Kubectl(t.Context(), "apply", "-k", folder(t, "deploy/crds"))
	require.NoError(t, err)
	rig.Eventually(t, "nothing has to be done first", func() (bool, any) {
		out, err = r.TryMillwright(t, check...)
		return err == nil, out
	})
	n.plansWhatItFinds(t, out)
	before := n.look(t)
	if *record {
		n.record(t)
	}

	start(t, component.Worker, component.Bridge)
	rig.Eventually(t, "worker and bridge are at work", func() (bool, any) {
		_, err := r.TryMillwright(t, "heartbeats")
		return err == nil, err
	})
	n.goesOn(t, before)
	for _, p := range []*rig.Pool{n.calm, n.rolled, n.failed} {
		p.LookAgain(t)
		for _, m := range p.Machines(t) {
			r.LookAgain(t, run.KindMachine, m.Namespace, m.Name)
		}
	}
	n.untouched(t, before, n.calm, n.rolled, n.failed)
	n.rollsOut(t)

	n.unsettleAgain(t)
	kill(t, component.Bridge, component.Worker)
	before = n.look(t)
	start(t, component.MCMManager, component.MCMMachines)
	time.Sleep(settles)
	n.untouched(t, before, n.calm, n.rolled, n.middle, n.slow, n.pending, n.full, n.failed, n.sick)
	n.endsWithMCM(t, before)
	n.untouched(t, before, n.calm, n.rolled, n.middle, n.slow)
	rig.Eventually(t, "the guard of the autoscaler is not ready without Millwright", func() (bool, any) {
		_, err := r.TryMillwright(t, "heartbeats")
		return err != nil && strings.Contains(err.Error(), "No worker has been at work since "), err
	})
}

// check are the arguments of the command that people run before they start Millwright.
var check = []string{"migrate", "check", "--namespace", namespace, "--namespaces", namespace, "--as-mcm"}

// plansWhatItFinds shows that check and plan name what MCM was doing.
func (n *fleet) plansWhatItFinds(t *testing.T, checked string) {
	t.Helper()
	for _, found := range []string{
		"ok      machine-controller-manager: it is not at work in namespace " + namespace + "\n",
		"ok      CRDs: the API server has all kinds of Millwright\n",
		"note    machinedeployment/middle: a rollout is in progress, and goes on: ",
		"being created: Millwright adopts the instance that has the name of the machine, or creates one (",
		"waiting for a node to join: ", "unhealthy: Millwright waits on, and the health timeout runs on (" + n.sick.Name,
		"being deleted: Millwright goes on",
	} {
		assert.Contains(t, checked, found)
	}
	assert.NotContains(t, checked, "\nfirst ", "nothing is in the way")
	assert.NotContains(t, checked, "with a node that is not as", "no node is to be changed")
	assert.NotContains(t, checked, "to relabel", "no machine is to be changed")
	assert.NotContains(t, checked, "calm", "nothing has to be said about it")
	plan := strings.Join(r.Millwright(t, "migrate", "plan", "--namespace", namespace, "--as-mcm"), "\n")
	assert.Contains(t, plan, "kubectl scale deployment machine-controller-manager --namespace "+namespace+" --replicas=0")
	assert.Contains(t, plan, "It was creating ")
	assert.Contains(t, plan, "\nThe way back:\n")
}

// goesOn requires that Millwright ends what MCM had begun, with the instances that are there.
func (n *fleet) goesOn(t *testing.T, before state) {
	t.Helper()
	n.heal(t)
	n.slow.AwaitRunning(t, 2)
	n.pending.AwaitRunning(t, 1)
	n.sick.AwaitRunning(t, 1)
	n.full.AwaitRunning(t, 1)
	n.going.AwaitRunning(t, 1)
	rig.Eventually(t, "the deletion that the cloud refused is over", func() (bool, any) {
		left := []int{len(n.gone.Machines(t)), len(n.gone.Nodes(t)), len(n.gone.Instances(t))}
		return slices.Max(left) == 0, left
	})
	n.middle.AwaitRunning(t, middleSize)
	after := n.look(t)
	for _, pool := range []*rig.Pool{n.slow, n.pending, n.sick} {
		for name, was := range before.Instances {
			if strings.HasPrefix(was, pool.Name+"-") {
				assert.Equal(t, was, after.Instances[name], "pool %s has the instances of MCM", pool.Name)
			}
		}
		assert.Len(t, pool.Instances(t), len(pool.Machines(t)))
	}
	for _, pool := range []*rig.Pool{n.slow, n.pending, n.sick, n.going} {
		for _, m := range pool.Machines(t) {
			was, known := before.Machines[m.Name]
			require.True(t, known, "%s is none of MCM's: it was replaced", m.Name)
			assert.Equal(t, was.UID, m.UID, m.Name)
			assert.Contains(t, before.Instances, m.Spec.ProviderID, m.Name)
		}
	}
	for _, m := range n.failed.Machines(t) {
		assert.NotNil(t, m.Status.CurrentStatus.PreserveExpiryTime, "%s is preserved", m.Name)
	}
	for _, s := range n.middle.Sets(t) {
		assert.Contains(t, before.Sets, s.Name, "no other revision")
		assert.Equal(
			t,
			map[bool]int32{true: middleSize}[s.Spec.Template.Spec.Class.Name == classSlow],
			s.Status.Replicas,
			s.Name,
		)
	}
	for _, m := range n.middle.Machines(t) {
		if was, known := before.Machines[m.Name]; known {
			assert.Equal(t, was.UID, m.UID)
		}
	}
	assert.NotEmpty(t, before.Tokens)
	assert.Subset(t, after.Tokens, before.Tokens, "the nodes that boot with a token of MCM can join")
	stats, err := r.Cloud.Stats(t.Context())
	require.NoError(t, err)
	assert.Zero(t, stats.LiveDuplicateNames, "no machine has two instances")
	for _, s := range n.rolled.Sets(t) {
		assert.NotContains(t, s.Labels, v1alpha1.LabelFreeze, "--as-mcm ends a freeze that MCM left")
	}
}

// rollsOut requires that a rollout of a pool that MCM made works, with the next revision, and one step back.
func (n *fleet) rollsOut(t *testing.T) {
	t.Helper()
	n.rolled.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"version":"3"}}}}}`)
	rig.Eventually(t, "the rollout is complete", func() (bool, any) {
		s := n.rolled.Deployment(t).Status
		machines := n.rolled.Machines(t)
		for _, m := range machines {
			if m.Labels["version"] != "3" {
				return false, s
			}
		}
		return len(machines) == rolledSize && s.AvailableReplicas == rolledSize && s.UpdatedReplicas == rolledSize, s
	})
	assert.Equal(t, "3", n.rolled.Deployment(t).Annotations[v1alpha1.AnnotationRevision])
	sets := map[string]bool{}
	for _, s := range n.rolled.Sets(t) {
		sets[s.Annotations[v1alpha1.AnnotationRevision]] = true
	}
	assert.Equal(t, map[string]bool{"1": true, "2": true, "3": true}, sets, "MCM's revisions, and one more")
}

// endsWithMCM requires that MCM, back again, ends what Millwright had begun, and works with the objects.
func (n *fleet) endsWithMCM(t *testing.T, before state) {
	t.Helper()
	n.going.RelaxBudget(t, podsGoing, 0)
	n.sick.Scale(t, 2)
	rig.Eventually(t, "MCM ends the deletion", func() (bool, any) {
		left := []int{len(n.going.Machines(t)), len(n.going.Nodes(t)), len(n.going.Instances(t))}
		return slices.Max(left) == 0, left
	})
	n.sick.AwaitRunning(t, 2)
	n.again.AwaitRunning(t, 1)
	assert.Contains(
		t,
		before.Instances,
		n.again.Machines(t)[0].Spec.ProviderID,
		"it has the instance that Millwright had begun",
	)
	assert.Len(t, n.again.Instances(t), 1)
}
