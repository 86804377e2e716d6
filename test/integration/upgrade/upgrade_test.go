// Tier: none. It needs another version: make upgrade UPGRADE_FROM=commit.

//go:build integration && upgrade

// Package upgrade shows that another version of Millwright and this one can take over each other's work in the middle
// of a rollout, of creations and of a drain that is stuck. UPGRADE_FROM is the commit of the other version.
package upgrade

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/checker"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

var (
	r   *rig.Rig
	old other
)

func TestMain(m *testing.M) { os.Exit(withOther(m)) }

// withOther runs the tests on a stack that has the other version too, and returns the exit code.
func withOther(m *testing.M) int {
	folder, err := os.MkdirTemp("", "millwright-upgrade-")
	if err == nil {
		defer func() { _ = os.RemoveAll(folder) }()
		old, err = checkOut(context.Background(), os.Getenv("UPGRADE_FROM"), folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "UPGRADE_FROM must name a commit:", err)
		return 1
	}
	options := stack.Options{
		Components: append(component.Names(), component.SecondWorker, component.SecondBridge),
		Binaries:   map[string]string{component.SecondWorker: old.worker, component.SecondBridge: old.bridge},
	}
	return rig.Main(m, options, func(up *rig.Rig) { r = up })
}

// version is one of the two versions of Millwright that run on the stack.
type version struct {
	name           string
	worker, bridge string // components
	named          bool   // its queues and workflow IDs begin with the name of the installation
}

func (v version) start(t *testing.T) {
	t.Helper()
	for _, name := range []string{v.worker, v.bridge} {
		require.NoError(t, r.Stack.Start(t.Context(), name))
	}
}

func (v version) stop(t *testing.T) {
	t.Helper()
	for _, name := range []string{v.bridge, v.worker} {
		require.NoError(t, r.Stack.Stop(t.Context(), name))
	}
}

func versions() (before, after version) {
	before = version{"before", component.SecondWorker, component.SecondBridge, old.named}
	after = version{"after", component.Worker, component.Bridge, true}
	return before, after
}

func TestUpgrade(t *testing.T) {
	before, after := versions()
	takeOver(t, "up", before, after)
}

func TestDowngrade(t *testing.T) {
	before, after := versions()
	takeOver(t, "down", after, before)
}

// beside is how long both versions work at the same time: long enough for many decisions of a rollout.
const beside = 10 * time.Second

// takeOver begins work with one version and ends it with the other. If their queues have other names, the first one is
// stopped before the second one begins, and its runs are terminated, as docs/migration.md says.
func takeOver(t *testing.T, namespace string, from, to version) {
	to.stop(t)
	from.start(t)
	w := begin(t, namespace)
	if from.named == to.named {
		to.start(t)
		time.Sleep(beside)
		from.stop(t)
	} else {
		from.stop(t)
		endRuns(t, from.named)
		to.start(t)
	}
	w.finish(t, from.named != to.named)
}

// work has the rollout, the creations and the drain that are in progress when the versions change.
type work struct {
	rolled, made, held *rig.Pool
	watchers           []*checker.Watcher
	stop               context.CancelFunc
}

const (
	slowly = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"2s","deleteLatency":"500ms"}`
	late   = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"25s"}`

	rolled, made = 5, 3 // machines
)

// begin starts a rollout, creations and a drain that a budget holds, and returns when each is in the middle.
func begin(t *testing.T, namespace string) *work {
	w := &work{}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(t.Context())
	for name, spec := range map[string]string{namespace: slowly, namespace + "-late": late} {
		r.Namespace(t, name, spec)
		sources := checker.Sources{Machines: r.Machines, Kube: r.Kube, Cloud: r.Cloud, Temporal: r.Temporal}
		watcher := checker.Watch(sources, name, checker.Bounds{Leaving: true, Nodes: true})
		w.watchers = append(w.watchers, watcher)
		go watcher.Run(ctx)
	}
	w.rolled = r.Pool(t, namespace, namespace+"-rolled", rolled, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
			}},
		}
	})
	w.held = r.Pool(t, namespace, namespace+"-held", 1, rig.LabelNodes)
	w.rolled.AwaitRunning(t, rolled)
	w.held.AwaitRunning(t, 1)
	w.held.AwaitHosts(t, 1)
	w.held.Deploy(t, "web", 1)
	w.held.Budget(t, "web", 1)
	w.held.Scale(t, 0)
	rig.Eventually(t, "the drain is held by the budget", func() (bool, any) {
		machines := w.held.Machines(t)
		if len(machines) != 1 || machines[0].Status.CurrentOperation == nil {
			return false, machines
		}
		operation := machines[0].Status.CurrentOperation
		return len(operation.BlockedBy) > 0, operation
	})
	w.made = r.Pool(t, namespace+"-late", namespace+"-late-made", made)
	w.rolled.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"2"}}}}}`)
	rig.Eventually(t, "rollout and creations are in the middle", func() (bool, any) {
		updated, making := w.updated(t), len(w.made.Machines(t))
		return updated >= 1 && updated < rolled && making == made, []int{updated, making}
	})
	return w
}

// updated counts the machines of the new template.
func (w *work) updated(t *testing.T) (n int) {
	for _, m := range w.rolled.Machines(t) {
		if m.Labels["edition"] == "2" {
			n++
		}
	}
	return n
}

// finish returns when all work is complete and everything is deleted. Nothing may have been violated in between.
func (w *work) finish(t *testing.T, terminated bool) {
	w.made.AwaitRunning(t, made)
	require.Len(t, w.made.Instances(t), made)
	rig.Eventually(t, "the rollout is complete", func() (bool, any) {
		s := w.rolled.Deployment(t).Status
		return w.updated(t) == rolled && len(w.rolled.Machines(t)) == rolled &&
				s.AvailableReplicas == rolled, fmt.Sprintf(
				"%+v",
				s,
			)
	})
	require.Len(t, w.held.Pods(t, "web"), 1)
	require.Nil(t, w.held.Pods(t, "web")[0].DeletionTimestamp, "the budget holds")
	w.held.RelaxBudget(t, "web", 0)
	rig.Eventually(
		t,
		"the drained machine is gone",
		func() (bool, any) { return len(w.held.Machines(t)) == 0, w.held.Machines(t) },
	)
	for _, pool := range []*rig.Pool{w.rolled, w.made, w.held} {
		pool.Delete(t)
	}
	for _, pool := range []*rig.Pool{w.rolled, w.made, w.held} {
		pool.AwaitGone(t)
	}
	r.DeleteClassAndSecret(t, w.rolled.Namespace)
	r.DeleteClassAndSecret(t, w.made.Namespace)
	w.stop()
	for _, watcher := range w.watchers {
		violations, snapshots := watcher.Violations()
		require.NotZero(t, snapshots)
		for _, v := range violations {
			if !terminated || v.Check != checker.CheckRun || v.Saw != enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED.String() {
				t.Error(v)
			}
		}
	}
}

// endRuns terminates the open runs of a version that is stopped, and deletes its schedules.
func endRuns(t *testing.T, named bool) {
	ours := func(id string) bool { return strings.HasPrefix(id, component.ClusterName+"/") == named }
	for _, w := range r.Workflows(t, `ExecutionStatus = "Running"`) {
		id := w.Execution.WorkflowId
		if !ours(id) || w.Type.Name == string(run.KindInstallation) || strings.HasPrefix(id, "temporal-sys-") {
			continue
		}
		require.NoError(t, r.Temporal.TerminateWorkflow(t.Context(), id, w.Execution.RunId, "another version takes over"))
	}
	schedules, err := r.Temporal.ScheduleClient().List(t.Context(), client.ScheduleListOptions{PageSize: 1000})
	require.NoError(t, err)
	for schedules.HasNext() {
		s, err := schedules.Next()
		require.NoError(t, err)
		if ours(s.ID) {
			require.NoError(t, r.Temporal.ScheduleClient().GetHandle(t.Context(), s.ID).Delete(t.Context()))
		}
	}
}
