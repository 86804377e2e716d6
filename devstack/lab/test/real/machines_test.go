//go:build integration

package real

import (
	"slices"
	"testing"
	"time"

	"millwright/api/v1alpha1"
	"millwright/devstack/lab/incus/incustest"
	"millwright/devstack/lab/parts"
	"millwright/test/integration/rig"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// The provider's worker is killed while it creates six containers. Each machine still gets exactly one container, and
// no container is left when the machines are deleted. A test that kills the provider's worker must not be parallel,
// because the parallel tests need the worker.
func TestKilledProviderWorkerCreatesNoDuplicateContainers(t *testing.T) {
	incustest.RequireSupport(t)
	p := newPool(t, "killed", 6)
	rig.Eventually(t, "the first container exists", func() (bool, any) { return len(listInstances(t, p)) > 0, nil })
	require.NoError(t, testRig.Stack.KillComponent(t.Context(), parts.IncusWorker))
	known := 0
	for _, m := range p.Machines(t) {
		if m.Spec.ProviderID != "" {
			known++
		}
	}
	t.Logf("killed with %d containers made, of which %d were on record", len(listInstances(t, p)), known)
	require.Less(t, known, 6, "it was killed too late to be in the middle of its calls")
	require.NoError(t, testRig.Stack.StartComponent(t.Context(), parts.IncusWorker))
	p.AwaitRunningMachines(t, 6)
	of, ids := map[string]string{}, map[string]bool{}
	for _, m := range p.Machines(t) {
		of[string(m.UID)] = m.Spec.ProviderID
		ids[m.Spec.ProviderID] = true
	}
	assert.Len(t, ids, 6)
	made := listInstances(t, p)
	assert.Len(t, made, 6)
	for _, i := range made {
		assert.Equal(t, i.Config["user.provider-id"], of[i.Config["user.millwright-uid"]], i.Name)
	}
	p.Delete(t)
	p.AwaitPoolGone(t)
	assert.Empty(t, listInstances(t, p))
}

// While a PodDisruptionBudget blocks the eviction, the deleted machine remains, its condition contains the reason, and
// its pod continues to serve. When the budget allows the eviction, the machine is deleted.
func TestABudgetBlocksTheDrainOfARealMachine(t *testing.T) {
	runParallelIfSupported(t)
	p := newRunningPool(t, "budget", 2)
	p.DeployPods(t, "web", 2, withWorkload(2*time.Second, corev1.DoNotSchedule))
	awaitReadyPods(t, p, 2)
	p.CreateBudget(t, "web", 2)
	m, pods := p.MachineWithPods(t, "web")
	p.DeleteMachine(t, m.Name)
	rig.Eventually(t, "the drain is blocked", func() (bool, any) {
		now, err := testRig.MachineClient.MachineV1alpha1().
			Machines(p.Namespace).
			Get(t.Context(), m.Name, metav1.GetOptions{})
		require.NoError(t, err)
		i := slices.IndexFunc(
			now.Status.Conditions,
			func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.MachineDrained },
		)
		return i >= 0 && now.Status.Conditions[i].Reason == v1alpha1.ReasonBlocked, now.Status
	})
	for _, pod := range pods {
		name, err := getWorkloadPodName(pod.Status.PodIP)
		require.NoError(t, err)
		assert.Equal(t, pod.Name, name)
	}
	p.RelaxBudget(t, "web", 1)
	p.AwaitMachineGone(t, m)
	p.AwaitRunningMachines(t, 2)
	awaitReadyPods(t, p, 2)
}

// The node of a frozen container becomes Unknown. The machine of this node fails after the health timeout and is
// replaced.
func TestAFrozenMachineIsReplaced(t *testing.T) {
	runParallelIfSupported(t)
	p := newRunningPool(t, "frozen", 2, withHealthTimeout(5*time.Second))
	m := p.Machines(t)[0]
	_, err := incusServer(t).RunIncus(t.Context(), "pause", m.Name)
	require.NoError(t, err)
	phases := recordPhasesUntilDeleted(t, p, m)
	t.Logf("phases of the machine: %v", phases)
	for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineUnknown, v1alpha1.MachineFailed, v1alpha1.MachineTerminating} {
		assert.Contains(t, phases, phase)
	}
	p.AwaitRunningMachines(t, 2)
	assert.NotContains(t, instanceNames(listInstances(t, p)), m.Name)
	assert.Len(t, listInstances(t, p), 2)
}

// A container is deleted outside of Millwright. The worker reads the instance's status when the node is no longer
// ready, so the machine is replaced before its health timeout.
func TestAMachineWhoseInstanceVanishedIsReplaced(t *testing.T) {
	runParallelIfSupported(t)
	p := newRunningPool(t, "vanished", 2, withHealthTimeout(24*time.Hour))
	m := p.Machines(t)[0]
	_, err := incusServer(t).RunIncus(t.Context(), "delete", "--force", m.Name)
	require.NoError(t, err)
	began := time.Now()
	phases := recordPhasesUntilDeleted(t, p, m)
	t.Logf("phases of the machine: %v, gone after %s", phases, time.Since(began).Round(time.Second))
	assert.Contains(t, phases, v1alpha1.MachineFailed)
	p.AwaitRunningMachines(t, 2)
	assert.Len(t, listInstances(t, p), 2)
}

func withHealthTimeout(d time.Duration) func(*v1alpha1.MachineDeployment) {
	return func(deployment *v1alpha1.MachineDeployment) {
		deployment.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineHealthTimeout: &metav1.Duration{Duration: d},
		}
	}
}

func instanceNames(all []instance) []string {
	var found []string
	for _, i := range all {
		found = append(found, i.Name)
	}
	return found
}

// recordPhasesUntilDeleted returns the phases of a machine until the machine is gone.
func recordPhasesUntilDeleted(t *testing.T, p *rig.Pool, m v1alpha1.Machine) []v1alpha1.MachinePhase {
	t.Helper()
	w, err := testRig.MachineClient.MachineV1alpha1().Machines(p.Namespace).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + m.Name, ResourceVersion: m.ResourceVersion,
	})
	require.NoError(t, err)
	defer w.Stop()
	var phases []v1alpha1.MachinePhase
	for late := time.After(2 * notReadyTimeout); ; {
		select {
		case event, open := <-w.ResultChan():
			require.True(t, open, "the watch of machine %s has ended", m.Name)
			now, isMachine := event.Object.(*v1alpha1.Machine)
			require.True(t, isMachine, "%v", event.Object)
			if phase := now.Status.CurrentStatus.Phase; !slices.Contains(phases, phase) {
				phases = append(phases, phase)
			}
			if event.Type == watch.Deleted {
				return phases
			}
		case <-late:
			require.Failf(t, "not in time", "machine %s is not gone after %s: phases %v", m.Name, 2*notReadyTimeout, phases)
		}
	}
}
