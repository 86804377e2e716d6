// Tier: test-all. The worker and the bridge of this package have flags that the other packages do not use.

//go:build integration

// Package asmcm shows the effects of the flag --as-mcm, row by row of docs/migration.md, and that a namespace can be
// left to machine-controller-manager. Worker and bridge of the package's stack run with --as-mcm, and with flags that
// exclude namespaces.
package asmcm

import (
	"context"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	flags := []string{
		"--as-mcm",
		"--except-namespaces=" + foreignNamespace,
		"--namespace-selector=!" + excludedNamespaceLabel,
	}
	options := stack.Options{Args: map[string][]string{component.Worker: flags, component.Bridge: flags}}
	os.Exit(rig.Main(m, options, func(up *rig.Rig) { testRig = up }))
}

// A machine is available as soon as it runs, even if minReadySeconds is set. A deployment that is scaled down keeps the
// newest machines if its machines differ only in their age.
func TestMinReadySecondsHasNoEffectAndTheOldestMachineGoesFirst(t *testing.T) {
	t.Parallel()
	const name, size = "ages", 3
	testRig.CreateNamespace(t, name, "")
	p := testRig.CreatePool(t, name, name, 1, func(d *v1alpha1.MachineDeployment) { d.Spec.MinReadySeconds = 500 })
	p.AwaitRunningMachines(t, 1)
	for n := 2; n <= size; n++ {
		newest := p.Machines(t)[0].CreationTimestamp.Time
		for _, m := range p.Machines(t) {
			if m.CreationTimestamp.After(newest) {
				newest = m.CreationTimestamp.Time
			}
		}
		time.Sleep(time.Until(newest.Add(1100 * time.Millisecond))) // creation timestamps have whole seconds
		p.Scale(t, n)
		p.AwaitRunningMachines(t, n) // all machines are available
	}
	require.EqualValues(t, 500, p.Sets(t)[0].Spec.MinReadySeconds, "the set has it all the same")
	byAge := p.Machines(t)
	slices.SortFunc(
		byAge,
		func(a, b v1alpha1.Machine) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) },
	)
	for n := size - 1; n > 0; n-- {
		p.Scale(t, n)
		p.AwaitRunningMachines(t, n)
		byAge = byAge[1:]
		require.ElementsMatch(t, uidsOfMachines(byAge), uidsOfMachines(p.Machines(t)), "the oldest is gone")
	}
	p.Delete(t)
	p.AwaitPoolGone(t)
}

// uidsOfMachines returns the UIDs of machines.
func uidsOfMachines(machines []v1alpha1.Machine) (all []types.UID) {
	for _, m := range machines {
		all = append(all, m.UID)
	}
	return all
}

// A person deletes all Nodes of a deployment, and all Nodes of a set without a deployment. All machines of these Nodes
// are replaced at once. No circuit breaker stops the set, and no budget makes a machine of the deployment wait until
// another machine's replacement has joined.
func TestMachinesOfDeletedNodesAreReplacedTogether(t *testing.T) {
	t.Parallel()
	const name, size = "nodes", 4
	testRig.CreateNamespace(t, name, "")
	alone := newStandaloneSet(t, name, "alone", size)
	p := testRig.CreatePool(t, name, name, size)
	p.AwaitRunningMachines(t, size)
	rig.Eventually(t, "the machines of the set run", func() (bool, any) {
		now := alone()
		return len(now) == size &&
			!slices.ContainsFunc(
				now,
				func(m v1alpha1.Machine) bool { return m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning },
			), now
	})
	before := slices.Concat(p.Machines(t), alone())
	var nodes []string
	rig.Eventually(t, "the nodes carry our finalizer", func() (bool, any) {
		nodes = nodes[:0]
		for _, m := range before {
			n, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
			require.NoError(t, err)
			if slices.Contains(n.Finalizers, v1alpha1.FinalizerNode) {
				nodes = append(nodes, n.Name)
			}
		}
		return len(nodes) == len(before), nodes
	})
	// From now on no replacement joins.
	_, err := testRig.MachineClient.MachineV1alpha1().
		MachineClasses(name).
		Update(t.Context(), newNeverBootingClass(t, name), metav1.UpdateOptions{})
	require.NoError(t, err)
	// The bridge is stopped until all nodes are being deleted. Without the flag --as-mcm, the circuit breaker would
	// then be open.
	require.NoError(t, testRig.Stack.SignalComponent(t.Context(), component.Bridge, syscall.SIGSTOP))
	_, err = testRig.Stack.RunKubectl(t.Context(), slices.Concat([]string{"delete", "node", "--wait=false"}, nodes)...)
	require.NoError(
		t,
		testRig.Stack.SignalComponent(context.WithoutCancel(t.Context()), component.Bridge, syscall.SIGCONT),
	)
	require.NoError(t, err)
	for _, m := range before { // no machine waits for another machine's replacement
		p.AwaitMachineGone(t, m)
	}
	rig.Eventually(t, "each has a substitute", func() (bool, any) {
		now := slices.Concat(p.Machines(t), alone())
		return len(now) == 2*size &&
				!slices.ContainsFunc(
					uidsOfMachines(now),
					func(uid types.UID) bool { return slices.Contains(uidsOfMachines(before), uid) },
				), len(
				now,
			)
	})
	p.Delete(t)
	p.AwaitPoolGone(t)
}

// newNeverBootingClass returns the class of a namespace, changed so that its machines never join.
func newNeverBootingClass(t *testing.T, namespace string) *v1alpha1.MachineClass {
	t.Helper()
	class, err := testRig.MachineClient.MachineV1alpha1().
		MachineClasses(namespace).
		Get(t.Context(), "small", metav1.GetOptions{})
	require.NoError(t, err)
	class.ProviderSpec.Raw = []byte(`{"region":"eu","zone":"eu-1","instanceType":"small","neverBoots":true}`)
	return class
}

// newStandaloneSet makes a MachineSet without a deployment, and returns a function that reads the machines of the set.
func newStandaloneSet(t *testing.T, namespace, name string, replicas int32) (machines func() []v1alpha1.Machine) {
	t.Helper()
	labels := map[string]string{"pool": name}
	_, err := testRig.MachineClient.MachineV1alpha1().MachineSets(namespace).Create(t.Context(), &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1alpha1.MachineSetSpec{
			Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1alpha1.MachineTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: rig.NewMachineSpec()},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return func() []v1alpha1.Machine {
		list, err := testRig.MachineClient.MachineV1alpha1().
			Machines(namespace).
			List(t.Context(), metav1.ListOptions{LabelSelector: "pool=" + name})
		require.NoError(t, err)
		return list.Items
	}
}

// MCM froze a deployment and its set, and was stopped. The set has no more machines than wanted. Millwright unfreezes
// set and deployment, and creates new machines.
func TestAFreezeLeftByMCMEnds(t *testing.T) {
	t.Parallel()
	const name = "frozen"
	testRig.CreateNamespace(t, name, "")
	p := testRig.CreatePool(t, name, name, 1)
	p.AwaitRunningMachines(t, 1)
	const freeze = `{"metadata":{"labels":{"freeze":"True"}}}`
	_, err := testRig.MachineClient.MachineV1alpha1().
		MachineSets(name).
		Patch(t.Context(), p.Sets(t)[0].Name, types.MergePatchType, []byte(freeze), metav1.PatchOptions{})
	require.NoError(t, err)
	p.Patch(t, freeze)
	rig.Eventually(t, "nothing is frozen", func() (bool, any) {
		_, set := p.Sets(t)[0].Labels[v1alpha1.LabelFreeze]
		_, deployment := p.Deployment(t).Labels[v1alpha1.LabelFreeze]
		return !set && !deployment, []bool{set, deployment}
	})
	rig.Eventually(t, "the set froze and thawed", func() (bool, any) {
		reasons := map[string]bool{}
		events, err := testRig.Kube.CoreV1().
			Events(name).
			List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=MachineSet"})
		require.NoError(t, err)
		for _, e := range events.Items {
			reasons[e.Reason] = true
		}
		return reasons["UnfrozeMachineSet"], reasons
	})
	p.Scale(t, 2)
	p.AwaitRunningMachines(t, 2)
	p.Delete(t)
	p.AwaitPoolGone(t)
}
