//go:build integration && endurance

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/checker"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// The timeouts of the machines are much shorter than the clock's error of ten minutes. If a drain's end depended on a
// clock that is behind, the drain would last longer than the test waits.
const (
	creationTimeout = 5 * time.Minute
	healthTimeout   = 5 * time.Minute
	drainTimeout    = 60 * time.Second
)

// One of two workers has a clock that is wrong by ten minutes. No timeout may depend on this clock.
func TestEnduranceWrongWorkerClockChangesNoTimeout(t *testing.T) {
	worker, err := rig.BuildClockSkewedWorker(t.TempDir())
	require.NoError(t, err)
	for _, by := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		name := map[bool]string{true: "ahead", false: "behind"}[by > 0]
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			skewed, err := rig.StartRig(t.Context(), t.TempDir(), stack.Options{
				Components:  append(component.Names(), component.SecondWorker),
				BinaryPaths: map[string]string{component.SecondWorker: worker},
				Env:         map[string][]string{component.SecondWorker: rig.ClockEnvironment(by)},
			})
			require.NoError(t, err)
			t.Cleanup(func() {
				if logs := os.Getenv("CHAOS_LOGS"); logs != "" && t.Failed() {
					assert.NoError(
						t,
						os.CopyFS(filepath.Join(logs, "clock-"+name), os.DirFS(filepath.Join(skewed.Stack.Dir(), "logs"))),
					)
				}
				if err := skewed.Stack.Down(context.Background()); err != nil {
					t.Error(err)
				}
			})
			told := wrongClockStack{skewed, name}.lastLogTime(t).Add(-by)
			// the log's timestamps have whole seconds
			require.True(
				t,
				told.After(began.Add(-time.Second)) && told.Before(time.Now()),
				"the clock of the second worker: %s",
				told,
			)
			wrongClockStack{skewed, name}.testAllTimeouts(t)
		})
	}
}

// wrongClockStack is a stack whose second worker has a wrong clock.
type wrongClockStack struct {
	*rig.Rig
	namespace string
}

func (w wrongClockStack) testAllTimeouts(t *testing.T) {
	const size = 12
	w.CreateNamespace(t, w.namespace, slowProviderSpec)
	watcher := checker.NewWatcher(
		checker.Clients{MachineClient: w.MachineClient, Kube: w.Kube, Cloud: w.Cloud, Temporal: w.Temporal},
		w.namespace,
		checker.SizeBounds{},
	)
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	go watcher.Run(watching)
	pool := w.CreatePool(t, w.namespace, w.namespace, size, rig.WithNodeLabel, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineCreationTimeout: &metav1.Duration{Duration: creationTimeout},
			MachineHealthTimeout:   &metav1.Duration{Duration: healthTimeout},
			MachineDrainTimeout:    &metav1.Duration{Duration: drainTimeout},
		}
		d.Spec.ProgressDeadlineSeconds = new(int32(300))
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt32(4)), MaxUnavailable: new(intstr.FromInt32(0)),
			}},
		}
	})
	pool.AwaitRunningMachines(t, size)
	w.requireCreateCount(t, size)

	w.testUnhealthyNodes(t, pool, size)
	w.requireCreateCount(t, size)

	drained := w.testDrainTimeouts(t, pool, size)
	w.requireCreateCount(t, size+drained)

	pool.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"2"}}}}}`)
	rig.Eventually(t, "the rollout has ended", func() (bool, any) {
		for _, c := range pool.Deployment(t).Status.Conditions {
			require.NotEqual(t, "ProgressDeadlineExceeded", c.Reason, "%s: %s", c.Type, c.Message)
		}
		fresh := slices.DeleteFunc(pool.Machines(t), func(m v1alpha1.Machine) bool { return m.Labels["edition"] != "2" })
		return len(fresh) == size && len(pool.Machines(t)) == size, len(fresh)
	})
	pool.AwaitRunningMachines(t, size)
	w.requireCreateCount(t, 2*size+drained)

	const more = 40 // size of one batch of machines; a local activity creates fewer machines than this
	require.NoError(t, w.Stack.StopComponent(t.Context(), component.Worker))
	pool.Scale(t, size+more)
	pool.AwaitRunningMachines(t, size+more)
	w.requireCreateCount(t, 2*size+drained+more)

	watcher.BeginTeardown()
	pool.Delete(t)
	pool.AwaitPoolGone(t)
	durable, err := watcher.ReadWorkflowState(t.Context())
	require.NoError(t, err)
	watcher.AddRunViolations(durable)
	violations, snapshots := watcher.Violations()
	require.NotZero(t, snapshots)
	require.Empty(t, violations)
}

// testUnhealthyNodes makes half of the nodes unhealthy twice, in total for less than the health timeout. No machine may
// fail.
func (w wrongClockStack) testUnhealthyNodes(t *testing.T, pool *rig.Pool, size int) {
	t.Helper()
	running := func() (uids []types.UID) {
		for _, m := range pool.Machines(t) {
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
				uids = append(uids, m.UID)
			}
		}
		slices.Sort(uids)
		return uids
	}
	first := running()
	ill, nodes := pool.Machines(t)[:size/2], []string{}
	for _, m := range ill {
		nodes = append(nodes, m.Labels[v1alpha1.LabelNode])
	}
	for range 2 {
		label := func(change string) {
			_, err := w.Stack.RunKubectl(
				t.Context(),
				slices.Concat([]string{"label", "--overwrite", "node"}, nodes, []string{change})...)
			require.NoError(t, err)
		}
		label("node-not-ready.stage.kwok.x-k8s.io=true")
		rig.Eventually(t, "machines are Unknown", func() (bool, any) { return len(running()) == size/2, len(running()) })
		for range 3 { // three times, so that each worker has some of these machines
			for _, m := range ill {
				w.ForceReconcile(t, run.KindMachine, m.Namespace, m.Name)
			}
		}
		label("node-not-ready.stage.kwok.x-k8s.io-")
		pool.AwaitRunningMachines(t, size)
		require.Equal(t, first, running(), "Failed is final, and no machine was replaced")
	}
}

// testDrainTimeouts deletes half of the machines while a budget allows no eviction, and returns how many machines it
// deleted. Millwright must delete the pods of these machines at the drain timeout, not earlier.
func (w wrongClockStack) testDrainTimeouts(t *testing.T, pool *rig.Pool, size int) int {
	t.Helper()
	const app = "held"
	pool.AwaitLabelledNodes(t, size)
	pool.DeployPods(t, app, int32(2*size))
	pool.CreateBudget(t, app, int32(2*size))
	leaving := pool.Machines(t)[:size/2]
	hosts, began := map[string]string{}, map[string]time.Time{}
	for _, pod := range pool.Pods(t, app) {
		hosts[pod.Name] = pod.Spec.NodeName
	}
	for _, m := range leaving {
		began[m.Labels[v1alpha1.LabelNode]] = time.Now()
		pool.DeleteMachine(t, m.Name)
	}
	rig.Eventually(t, "the machines are gone", func() (bool, any) {
		left := slices.DeleteFunc(pool.Machines(t), func(m v1alpha1.Machine) bool {
			return !slices.ContainsFunc(leaving, func(l v1alpha1.Machine) bool { return l.UID == m.UID })
		})
		return len(left) == 0, len(left)
	})
	var held []string
	for pod, node := range hosts {
		if !began[node].IsZero() {
			held = append(held, pod)
		}
	}
	require.NotEmpty(t, held)
	deleted := w.firstPodDeletionTimes(t)
	for _, pod := range held {
		require.Contains(t, deleted, pod)
		took := deleted[pod].Sub(began[hosts[pod]])
		t.Logf("pod %s of node %s is deleted after %.1f s", pod, hosts[pod], took.Seconds())
		assert.Greater(t, took, drainTimeout-time.Second, "pod %s: its drain was cut short; a status has whole seconds", pod)
	}
	pool.RelaxBudget(t, app, 0)
	pool.AwaitRunningMachines(t, size)
	return len(leaving)
}

// firstPodDeletionTimes returns when the workers first deleted each pod without an eviction.
func (w wrongClockStack) firstPodDeletionTimes(t *testing.T) map[string]time.Time {
	t.Helper()
	first := map[string]time.Time{}
	for _, a := range w.AuditedRequests(t, func(a rig.AuditedRequest) bool {
		return a.Verb == "delete" && a.ObjectRef.Resource == "pods" && a.User.Username == component.WorkerIdentity
	}) {
		if _, known := first[a.ObjectRef.Name]; !known {
			first[a.ObjectRef.Name] = a.RequestReceivedTimestamp
		}
	}
	return first
}

// lastLogTime returns the time of the last line in the log of the second worker.
func (w wrongClockStack) lastLogTime(t *testing.T) (at time.Time) {
	t.Helper()
	file, err := os.Open(w.Stack.LogPath(component.SecondWorker))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var line struct{ Time time.Time }
		if json.Unmarshal(lines.Bytes(), &line) == nil && !line.Time.IsZero() {
			at = line.Time
		}
	}
	return at
}

// requireCreateCount checks that the cloud has created n instances in total, and no instance twice.
func (w wrongClockStack) requireCreateCount(t *testing.T, n int) {
	t.Helper()
	s := cloudStats(t, w.Rig)
	require.Equal(t, n, s.CreatedInstances, "instances made")
	require.Zero(t, s.DuplicateInstances, "instances made twice: %+v", s)
}
