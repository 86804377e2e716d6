// Tier: none. The package needs another version of Millwright: make upgrade UPGRADE_FROM=commit.

//go:build integration && upgrade

// Package upgrade tests two versions of Millwright. Each version can take over the work of the other version in the
// middle of a rollout, of creations and of a blocked drain. UPGRADE_FROM is the commit of the other version.
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
	testRig      *rig.Rig
	otherVersion versionBuild
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests runs the tests on a stack that also has the other version, and returns the exit code.
func runTests(m *testing.M) int {
	folder, err := os.MkdirTemp("", "millwright-upgrade-")
	if err == nil {
		defer func() { _ = os.RemoveAll(folder) }()
		otherVersion, err = buildVersion(context.Background(), os.Getenv("UPGRADE_FROM"), folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "UPGRADE_FROM must name a commit:", err)
		return 1
	}
	options := stack.Options{
		Components: append(component.Names(), component.SecondWorker, component.SecondBridge),
		BinaryPaths: map[string]string{
			component.SecondWorker: otherVersion.workerScript,
			component.SecondBridge: otherVersion.bridgeScript,
		},
	}
	return rig.Main(m, options, func(up *rig.Rig) { testRig = up })
}

// version describes one of the two versions of Millwright on the stack.
type version struct {
	name                             string
	workerComponent, bridgeComponent string // names of the version's components on the stack
	hasInstallationPrefix            bool   // the version's task queues and workflow IDs begin with the name of the installation
}

func (v version) startProcesses(t *testing.T) {
	t.Helper()
	for _, name := range []string{v.workerComponent, v.bridgeComponent} {
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), name))
	}
}

func (v version) stopProcesses(t *testing.T) {
	t.Helper()
	for _, name := range []string{v.bridgeComponent, v.workerComponent} {
		require.NoError(t, testRig.Stack.StopComponent(t.Context(), name))
	}
}

func upgradeVersions() (before, after version) {
	before = version{"before", component.SecondWorker, component.SecondBridge, otherVersion.hasInstallationPrefix}
	after = version{"after", component.Worker, component.Bridge, true}
	return before, after
}

func TestUpgradeCompletesRunningWork(t *testing.T) {
	before, after := upgradeVersions()
	testVersionChange(t, "up", before, after)
}

func TestDowngradeCompletesRunningWork(t *testing.T) {
	before, after := upgradeVersions()
	testVersionChange(t, "down", after, before)
}

// overlapTime is how long both versions run at the same time. In this time, a rollout makes many decisions.
const overlapTime = 10 * time.Second

// testVersionChange starts work with one version, and completes the work with the other version. If the versions have
// different task queues, the test first stops the old version and terminates its runs, as docs/migration.md describes.
// Then the test starts the new version.
func testVersionChange(t *testing.T, namespace string, from, to version) {
	to.stopProcesses(t)
	from.startProcesses(t)
	w := startRunningWork(t, namespace)
	if from.hasInstallationPrefix == to.hasInstallationPrefix {
		to.startProcesses(t)
		time.Sleep(overlapTime)
		from.stopProcesses(t)
	} else {
		from.stopProcesses(t)
		terminateRuns(t, from.hasInstallationPrefix)
		to.startProcesses(t)
	}
	w.awaitEndAndDeleteObjects(t, from.hasInstallationPrefix != to.hasInstallationPrefix)
}

// runningWork has the rollout, the creations and the drain that are in progress while the versions change.
type runningWork struct {
	rollingPool, creatingPool, drainingPool *rig.Pool
	watchers                                []*checker.Watcher
	stopWatchers                            context.CancelFunc
}

const (
	slowProviderSpec     = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"2s","deleteLatency":"500ms"}`
	verySlowProviderSpec = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"25s"}`

	rollingPoolSize, creatingPoolSize = 5, 3 // numbers of machines
)

// startRunningWork starts a rollout, creations and a drain that a budget blocks. startRunningWork waits until all of
// them are in progress.
func startRunningWork(t *testing.T, namespace string) *runningWork {
	w := &runningWork{}
	var ctx context.Context
	ctx, w.stopWatchers = context.WithCancel(t.Context())
	for name, spec := range map[string]string{namespace: slowProviderSpec, namespace + "-late": verySlowProviderSpec} {
		testRig.CreateNamespace(t, name, spec)
		sources := checker.Clients{
			MachineClient: testRig.MachineClient,
			Kube:          testRig.Kube,
			Cloud:         testRig.Cloud,
			Temporal:      testRig.Temporal,
		}
		watcher := checker.NewWatcher(sources, name, checker.SizeBounds{ChecksDeletingMachines: true, ChecksNodes: true})
		w.watchers = append(w.watchers, watcher)
		go watcher.Run(ctx)
	}
	w.rollingPool = testRig.CreatePool(
		t,
		namespace,
		namespace+"-rolled",
		rollingPoolSize,
		func(d *v1alpha1.MachineDeployment) {
			d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
				Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
				RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
					MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
				}},
			}
		},
	)
	w.drainingPool = testRig.CreatePool(t, namespace, namespace+"-held", 1, rig.WithNodeLabel)
	w.rollingPool.AwaitRunningMachines(t, rollingPoolSize)
	w.drainingPool.AwaitRunningMachines(t, 1)
	w.drainingPool.AwaitLabelledNodes(t, 1)
	w.drainingPool.DeployPods(t, "web", 1)
	w.drainingPool.CreateBudget(t, "web", 1)
	w.drainingPool.Scale(t, 0)
	rig.Eventually(t, "the drain is held by the budget", func() (bool, any) {
		machines := w.drainingPool.Machines(t)
		if len(machines) != 1 || machines[0].Status.CurrentOperation == nil {
			return false, machines
		}
		operation := machines[0].Status.CurrentOperation
		return len(operation.BlockedBy) > 0, operation
	})
	w.creatingPool = testRig.CreatePool(t, namespace+"-late", namespace+"-late-made", creatingPoolSize)
	w.rollingPool.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"2"}}}}}`)
	rig.Eventually(t, "rollout and creations are in the middle", func() (bool, any) {
		updated, making := w.countUpdatedMachines(t), len(w.creatingPool.Machines(t))
		return updated >= 1 && updated < rollingPoolSize && making == creatingPoolSize, []int{updated, making}
	})
	return w
}

// countUpdatedMachines counts the machines of the new template.
func (w *runningWork) countUpdatedMachines(t *testing.T) (n int) {
	for _, m := range w.rollingPool.Machines(t) {
		if m.Labels["edition"] == "2" {
			n++
		}
	}
	return n
}

// awaitEndAndDeleteObjects waits until all work is complete, and deletes all objects. awaitEndAndDeleteObjects requires
// that the checker found no violation.
func (w *runningWork) awaitEndAndDeleteObjects(t *testing.T, terminated bool) {
	w.creatingPool.AwaitRunningMachines(t, creatingPoolSize)
	require.Len(t, w.creatingPool.ProviderIDs(t), creatingPoolSize)
	rig.Eventually(t, "the rollout is complete", func() (bool, any) {
		s := w.rollingPool.Deployment(t).Status
		return w.countUpdatedMachines(t) == rollingPoolSize && len(w.rollingPool.Machines(t)) == rollingPoolSize &&
				s.AvailableReplicas == rollingPoolSize, fmt.Sprintf(
				"%+v",
				s,
			)
	})
	require.Len(t, w.drainingPool.Pods(t, "web"), 1)
	require.Nil(t, w.drainingPool.Pods(t, "web")[0].DeletionTimestamp, "the budget holds")
	w.drainingPool.RelaxBudget(t, "web", 0)
	rig.Eventually(
		t,
		"the drained machine is gone",
		func() (bool, any) { return len(w.drainingPool.Machines(t)) == 0, w.drainingPool.Machines(t) },
	)
	for _, pool := range []*rig.Pool{w.rollingPool, w.creatingPool, w.drainingPool} {
		pool.Delete(t)
	}
	for _, pool := range []*rig.Pool{w.rollingPool, w.creatingPool, w.drainingPool} {
		pool.AwaitPoolGone(t)
	}
	testRig.DeleteClassAndSecret(t, w.rollingPool.Namespace)
	testRig.DeleteClassAndSecret(t, w.creatingPool.Namespace)
	w.stopWatchers()
	for _, watcher := range w.watchers {
		violations, snapshots := watcher.Violations()
		require.NotZero(t, snapshots)
		for _, v := range violations {
			if !terminated || v.Check != checker.CheckFailedRun ||
				v.Observation != enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED.String() {
				t.Error(v)
			}
		}
	}
}

// terminateRuns terminates the open runs of a version that is stopped, and deletes the version's schedules.
func terminateRuns(t *testing.T, named bool) {
	ours := func(id string) bool { return strings.HasPrefix(id, component.ClusterName+"/") == named }
	for _, w := range testRig.WorkflowRuns(t, `ExecutionStatus = "Running"`) {
		id := w.Execution.WorkflowId
		if !ours(id) || w.Type.Name == string(run.KindInstallation) || strings.HasPrefix(id, "temporal-sys-") {
			continue
		}
		require.NoError(
			t,
			testRig.Temporal.TerminateWorkflow(t.Context(), id, w.Execution.RunId, "another version takes over"),
		)
	}
	schedules, err := testRig.Temporal.ScheduleClient().List(t.Context(), client.ScheduleListOptions{PageSize: 1000})
	require.NoError(t, err)
	for schedules.HasNext() {
		s, err := schedules.Next()
		require.NoError(t, err)
		if ours(s.ID) {
			require.NoError(t, testRig.Temporal.ScheduleClient().GetHandle(t.Context(), s.ID).Delete(t.Context()))
		}
	}
}
