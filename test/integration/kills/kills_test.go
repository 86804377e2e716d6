// Tier: test. Each of the most important faults happens once here.

//go:build integration

// Package kills shows each of the most important faults once. A process is killed with SIGKILL while machines are
// created, while a machine is drained and in the middle of a rollout. The creations, the drain and the rollout
// complete. No instance is created twice, no pod is evicted twice, and the rollout keeps its bounds. The packages
// chaos, drain, sets and rollouts (tier: test-all) test kills at all other moments.
package kills

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/checker"
	"millwright/test/integration/rig"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	os.Exit(rig.MainOnSharedStack(m, func(up *rig.Rig) { testRig = up }))
}

// slowProviderSpec is a class whose instances take some seconds to be created and deleted.
const slowProviderSpec = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"3s","deleteLatency":"2s"}`

const (
	createdPoolSize = 12 // number of machines of the pool that is created
	rolledPoolSize  = 6  // number of machines of the pool that is rolled out
)

func TestAProcessIsKilledInACreationADrainAndARollout(t *testing.T) {
	for _, victim := range []string{component.Worker, component.Bridge, component.Temporal, component.APIServer} {
		t.Run(victim, func(t *testing.T) { testKillOfProcess(t, victim) })
	}
}

// A worker is killed just after it has set a machine to Running. In most cases, Temporal does not have the activity's
// result yet. The node of the machine is deleted after the kill. The next worker runs the end of the creation again.
// The next worker must not set the machine back to Pending, because then the machine would wait for the creation
// timeout.
func TestWorkerIsKilledAfterItSetsAMachineRunning(t *testing.T) {
	const name = "reported"
	testRig.CreateNamespace(t, name, "")
	events, err := testRig.MachineClient.MachineV1alpha1().Machines(name).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer events.Stop()
	p := testRig.CreatePool(t, name, name, 1)
	var m *v1alpha1.Machine
	for m == nil || m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
		event, open := <-events.ResultChan()
		require.True(t, open, "the watch of the machines has ended")
		m, _ = event.Object.(*v1alpha1.Machine)
	}
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Worker))
	require.NoError(
		t,
		testRig.Kube.CoreV1().Nodes().Delete(t.Context(), m.Labels[v1alpha1.LabelNode], metav1.DeleteOptions{}),
	)
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), component.Worker))
	p.AwaitMachineGone(t, *m)
	p.AwaitRunningMachines(t, 1)
	p.Delete(t)
	p.AwaitPoolGone(t)
}

func testKillOfProcess(t *testing.T, victim string) {
	name := strings.TrimPrefix(victim, "kube-")
	before, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	draining, gone, pods := prepareDrain(t, "drain-"+name)
	rolling, verdict := startRollout(t, "roll-"+name)
	testRig.CreateNamespace(t, "make-"+name, slowProviderSpec)
	making := testRig.CreatePool(t, "make-"+name, "make-"+name, createdPoolSize)
	draining.DeleteMachine(t, gone.Name)

	rig.Eventually(t, "all three are in the middle", func() (bool, any) {
		instances, updated := len(making.ProviderIDs(t)), countMachinesOfEdition(t, rolling, "2")
		stage := deletionStage(t, draining, gone.Name)
		return instances > 0 && updated > 0 && stage == v1alpha1.MachineDeletionDrain, fmt.Sprint(instances, updated, stage)
	})
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), victim))
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), victim))

	making.AwaitRunningMachines(t, createdPoolSize)
	require.Len(t, making.ProviderIDs(t), createdPoolSize)
	rig.Eventually(t, "all machines are of the new template", func() (bool, any) {
		n, all := countMachinesOfEdition(t, rolling, "2"), len(rolling.Machines(t))
		return n == rolledPoolSize && all == rolledPoolSize, fmt.Sprintf("%d of %d", n, all)
	})
	rolling.AwaitRunningMachines(t, rolledPoolSize)
	verdict()
	rig.Eventually(t, "the drained machine is gone", func() (bool, any) {
		_, err := testRig.MachineClient.MachineV1alpha1().
			Machines(gone.Namespace).
			Get(t.Context(), gone.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	draining.AwaitRunningMachines(t, 2)
	require.NotContains(t, draining.ProviderIDs(t), gone.Spec.ProviderID)
	accepted := map[string]int{} // a killed API server may have lost the last entries of the log
	for _, line := range testRig.AuditedRequests(t, func(line rig.AuditedRequest) bool {
		o := line.ObjectRef
		return o.Namespace == draining.Namespace && o.Subresource == "eviction" && line.ResponseStatus.Code == 201
	}) {
		accepted[line.ObjectRef.Name]++
	}
	for _, pod := range pods {
		require.LessOrEqual(t, accepted[pod.Name], 1, "evictions of pod %s", pod.Name)
	}
	after, err := testRig.Cloud.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.DuplicateInstances, after.DuplicateInstances, "instances that were made twice")
	for _, p := range []*rig.Pool{making, rolling, draining} {
		p.Delete(t)
	}
	for _, p := range []*rig.Pool{making, rolling, draining} {
		p.AwaitPoolGone(t)
	}
}

// prepareDrain makes a pool of two machines with pods that take some seconds to terminate. prepareDrain returns one of
// the machines and its pods.
func prepareDrain(t *testing.T, name string) (p *rig.Pool, m v1alpha1.Machine, pods []corev1.Pod) {
	t.Helper()
	testRig.CreateNamespace(t, name, slowProviderSpec)
	p = testRig.CreatePool(t, name, name, 2, rig.WithNodeLabel)
	p.AwaitRunningMachines(t, 2)
	p.AwaitLabelledNodes(t, 2)
	p.DeployPods(t, "web", 6, func(pod *corev1.PodTemplateSpec) {
		pod.Annotations["pod-delete.stage.kwok.x-k8s.io/delay"] = "8s"
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	})
	m, pods = p.MachineWithPods(t, "web")
	return p, m, pods
}

// startRollout makes a pool, watches the pool, and changes its template. The returned function verdict fails the test
// if a bound was broken.
func startRollout(t *testing.T, name string) (p *rig.Pool, verdict func()) {
	t.Helper()
	testRig.CreateNamespace(t, name, slowProviderSpec)
	p = testRig.CreatePool(t, name, name, rolledPoolSize, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt32(2)), MaxUnavailable: new(intstr.FromInt32(0)),
			}},
		}
	})
	p.AwaitRunningMachines(t, rolledPoolSize)
	ctx, cancel := context.WithCancel(t.Context())
	watcher := checker.NewWatcher(
		checker.Clients{
			MachineClient: testRig.MachineClient,
			Kube:          testRig.Kube,
			Cloud:         testRig.Cloud,
			Temporal:      testRig.Temporal,
		},
		name,
		checker.SizeBounds{ChecksDeletingMachines: true, ChecksNodes: true},
	)
	over := make(chan struct{})
	go func() {
		defer close(over)
		watcher.Run(ctx)
	}()
	rig.Eventually(t, "the bounds are in force", func() (bool, any) { return watcher.BoundsMatchSpecs(), nil })
	p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"2"}}}}}`)
	return p, func() {
		t.Helper()
		cancel()
		<-over
		violations, samples := watcher.Violations()
		t.Logf("%d samples, %d machines at the most", samples, watcher.PeakMachineCount())
		require.Empty(t, violations)
	}
}

// countMachinesOfEdition counts the machines whose label edition has the given value.
func countMachinesOfEdition(t *testing.T, p *rig.Pool, value string) (n int) {
	t.Helper()
	for _, m := range p.Machines(t) {
		if m.Labels["edition"] == value {
			n++
		}
	}
	return n
}

// deletionStage returns the stage of a machine's deletion; empty if the machine is not being deleted.
func deletionStage(t *testing.T, p *rig.Pool, machine string) v1alpha1.MachineDeletionStage {
	t.Helper()
	for _, m := range p.Machines(t) {
		if d := m.Status.Deletion; m.Name == machine && d != nil {
			return d.Stage
		}
	}
	return ""
}
