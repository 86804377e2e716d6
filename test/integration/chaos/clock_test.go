//go:build integration && endurance

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
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
)

// The timeouts of the machines: far below the error of the clock.
const (
	creationTimeout = 60 * time.Second
	healthTimeout   = 30 * time.Second
	drainTimeout    = 60 * time.Second
)

// auditDelay is how late the API server's audit log may be: its batches wait for 30 s at the most.
const auditDelay = 35 * time.Second

// Of two workers one has a clock that is wrong by ten minutes: no timeout is judged by it.
func TestEndurance_TheClockOfAWorkerIsWrong(t *testing.T) {
	worker, err := rig.SkewedWorker(t.TempDir())
	require.NoError(t, err)
	for _, by := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		name := map[bool]string{true: "ahead", false: "behind"}[by > 0]
		t.Run(name, func(t *testing.T) {
			skewed, err := rig.Up(t.Context(), t.TempDir(), stack.Options{
				Components: append(component.Names(), component.SecondWorker),
				Binaries:   map[string]string{component.SecondWorker: worker},
				Env:        map[string][]string{component.SecondWorker: rig.Clock(by)},
			})
			require.NoError(t, err)
			t.Cleanup(func() {
				if logs := os.Getenv("CHAOS_LOGS"); logs != "" && t.Failed() {
					assert.NoError(t, os.CopyFS(filepath.Join(logs, "clock-"+name), os.DirFS(filepath.Join(skewed.Stack.Dir(), "logs"))))
				}
				if err := skewed.Stack.Down(context.Background()); err != nil {
					t.Error(err)
				}
			})
			wrongClock{skewed, name}.run(t, by)
		})
	}
}

// wrongClock is a stack whose second worker has a wrong clock.
type wrongClock struct {
	*rig.Rig
	namespace string
}

func (w wrongClock) run(t *testing.T, by time.Duration) {
	const size = 12
	require.WithinDuration(t, time.Now().Add(by), w.lastLine(t), time.Minute, "the clock of the second worker")
	w.Namespace(t, w.namespace, slowly)
	watcher := checker.Watch(checker.Sources{Machines: w.Machines, Kube: w.Kube, Cloud: w.Cloud, Temporal: w.Temporal}, w.namespace, checker.Bounds{})
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	go watcher.Run(watching)
	pool := w.Pool(t, w.namespace, w.namespace, size, rig.Hosting, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineCreationTimeout: &metav1.Duration{Duration: creationTimeout},
			MachineHealthTimeout:   &metav1.Duration{Duration: healthTimeout},
			MachineDrainTimeout:    &metav1.Duration{Duration: drainTimeout},
		}
		d.Spec.ProgressDeadlineSeconds = new(int32(120))
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt32(4)), MaxUnavailable: new(intstr.FromInt32(0)),
			}},
		}
	})
	pool.AwaitRunning(t, size)
	w.made(t, size)

	w.illness(t, pool, size)
	w.made(t, size)

	drained := w.drains(t, pool, size)
	w.made(t, size+drained)

	pool.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"2"}}}}}`)
	rig.Eventually(t, "the rollout has ended", func() (bool, any) {
		for _, c := range pool.Deployment(t).Status.Conditions {
			require.NotEqual(t, "ProgressDeadlineExceeded", c.Reason, "%s: %s", c.Type, c.Message)
		}
		fresh := slices.DeleteFunc(pool.Machines(t), func(m v1alpha1.Machine) bool { return m.Labels["edition"] != "2" })
		return len(fresh) == size && len(pool.Machines(t)) == size, len(fresh)
	})
	pool.AwaitRunning(t, size)
	w.made(t, 2*size+drained)

	const more = 40 // machines in one batch: more than a local activity makes
	require.NoError(t, w.Stack.Stop(t.Context(), component.Worker))
	pool.Scale(t, size+more)
	pool.AwaitRunning(t, size+more)
	w.made(t, 2*size+drained+more)

	watcher.Loosen()
	pool.Delete(t)
	pool.AwaitGone(t)
	durable, err := watcher.Durable(t.Context())
	require.NoError(t, err)
	watcher.AddRuns(durable)
	violations, snapshots := watcher.Violations()
	require.NotZero(t, snapshots)
	require.Empty(t, violations)
}

// illness makes half of the nodes ill for less than the health timeout, twice. No machine may fail.
func (w wrongClock) illness(t *testing.T, pool *rig.Pool, size int) {
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
	nodes := []string{}
	for _, m := range pool.Machines(t)[:size/2] {
		nodes = append(nodes, m.Labels[v1alpha1.LabelNode])
	}
	for range 2 {
		label := func(change string) {
			_, err := w.Stack.Kubectl(t.Context(), slices.Concat([]string{"label", "--overwrite", "node"}, nodes, []string{change})...)
			require.NoError(t, err)
		}
		label("node-not-ready.stage.kwok.x-k8s.io=true")
		begun := time.Now()
		rig.Eventually(t, "machines are Unknown", func() (bool, any) { return len(running()) == size/2, len(running()) })
		time.Sleep(time.Until(begun.Add(healthTimeout * 2 / 3))) // the illness lasts this long
		label("node-not-ready.stage.kwok.x-k8s.io-")
		pool.AwaitRunning(t, size)
		require.Equal(t, first, running(), "Failed is final, and no machine was replaced")
		time.Sleep(healthTimeout / 10) // the next illness has a clock of its own
	}
}

// drains deletes half of the machines while a budget allows no eviction, and returns how many. Their pods are deleted when the drain
// timeout is over, not before, and not much later.
func (w wrongClock) drains(t *testing.T, pool *rig.Pool, size int) int {
	t.Helper()
	const (
		app  = "held"
		late = 15 * time.Second // after the deadline; on a machine on which much else runs
	)
	pool.AwaitHosts(t, size)
	pool.Deploy(t, app, int32(2*size))
	pool.Budget(t, app, int32(2*size))
	leaving := pool.Machines(t)[:size/2]
	hosts, began := map[string]string{}, map[string]time.Time{}
	for _, pod := range pool.Pods(t, app) {
		hosts[pod.Name] = pod.Spec.NodeName
	}
	for _, m := range leaving {
		began[m.Labels[v1alpha1.LabelNode]] = time.Now()
		pool.Remove(t, m.Name)
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
	var deleted map[string]time.Time
	rig.Eventually(t, "the audit log has the deletions of all pods of these machines", func() (bool, any) {
		deleted = w.deletions(t)
		missing := slices.DeleteFunc(slices.Clone(held), func(pod string) bool { return !deleted[pod].IsZero() })
		return len(missing) == 0, missing
	})
	for _, pod := range held {
		took := deleted[pod].Sub(began[hosts[pod]])
		t.Logf("pod %s of node %s is deleted after %.1f s", pod, hosts[pod], took.Seconds())
		assert.Greater(t, took, drainTimeout-time.Second, "pod %s: its drain was cut short; a status has whole seconds", pod)
		assert.Less(t, took, drainTimeout+late, "pod %s: its deadline was missed", pod)
	}
	pool.Loosen(t, app, 0)
	pool.AwaitRunning(t, size)
	return len(leaving)
}

// deletions returns when the workers first deleted each pod, without an eviction.
func (w wrongClock) deletions(t *testing.T) map[string]time.Time {
	t.Helper()
	file, err := os.Open(w.Stack.AuditLog())
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	first := map[string]time.Time{}
	for decoder := json.NewDecoder(file); decoder.More(); {
		var event struct {
			Verb                     string
			ObjectRef                struct{ Resource, Namespace, Name string }
			User                     struct{ Username string }
			RequestReceivedTimestamp time.Time
		}
		if decoder.Decode(&event) != nil {
			break // its last line is being written
		}
		o := event.ObjectRef
		if _, known := first[o.Name]; !known && event.Verb == "delete" && o.Resource == "pods" && event.User.Username == component.WorkerIdentity {
			first[o.Name] = event.RequestReceivedTimestamp
		}
	}
	return first
}

// lastLine returns the time of the last line in the log of the second worker.
func (w wrongClock) lastLine(t *testing.T) (at time.Time) {
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

// made checks how many instances were ever made, none of them twice.
func (w wrongClock) made(t *testing.T, n int) {
	t.Helper()
	s := stats(t, w.Rig)
	require.Equal(t, n, s.Creates, "instances made")
	require.Zero(t, s.DuplicateCreates, fmt.Sprintf("instances made twice: %+v", s))
}
