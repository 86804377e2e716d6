//go:build integration

package seeds

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
	"millwright/test/checker"
	"millwright/test/integration/rig"
)

// settleTimeout is the maximum time from the last load and the last fault until nothing changes any more. settleTimeout
// is also the maximum time from the deletion of all objects until nothing is left.
const settleTimeout = 2 * time.Minute

// maxAuditLogDelay is the maximum delay of the API server's audit log. The API server buffers a batch of the log for at
// most 30 s.
const maxAuditLogDelay = 35 * time.Second

// slowProviderSpec is a provider spec. With it, the cloud needs one second to create an instance and half a second to
// delete an instance.
const slowProviderSpec = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"1s","deleteLatency":"500ms"}`

// seedRun has the plan, the namespace, the pools and the checker of one seed.
type seedRun struct {
	t         *testing.T
	plan      plan
	namespace string
	pools     []*rig.Pool
	watcher   *checker.Watcher

	deploymentLock          sync.Mutex  // a load locks it while it changes a deployment or hands the deployment over
	isNamespaceDeletedEarly atomic.Bool // true if the plan deletes the namespace before all work is complete
}

// seedCount is the number of seeds that this process has run. seedCount is part of the names of namespaces.
var seedCount int

// runSeed runs one plan in its own namespace, with all checks.
func runSeed(t *testing.T, p plan) {
	seedCount++
	a := &seedRun{plan: p, namespace: fmt.Sprintf("s%d-%d", p.seed, seedCount)}
	t.Run(fmt.Sprintf("seed %d", p.seed), func(t *testing.T) {
		a.t = t
		begun := time.Now()
		violations := a.run()
		_, snapshots := a.watcher.Violations()
		t.Logf("seed %d: %s; %.0f s, %d snapshots, %d pods drained; %d violations",
			p.seed, p, time.Since(begun).Seconds(), snapshots, len(a.watcher.PodDepartures()), len(violations))
		a.appendReport(begun, snapshots, violations)
		if len(violations) > 0 {
			a.copyLogsAndObjects()
		}
		for _, v := range violations {
			t.Errorf("seed %d: %s", p.seed, v)
		}
	})
}

// run runs the plan, and returns all violations.
func (a *seedRun) run() (violations []checker.Violation) {
	ctx, t := a.t.Context(), a.t
	b := admin.DefaultBehaviour()
	b.HonorClientTokens = a.plan.usesClientTokens
	b.ReadStaleness = virtual.Duration(a.plan.readStaleness)
	b.AcceptLatency = virtual.Duration(a.plan.createRecordLatency)
	if b.AcceptedTokens = []string{rig.CanaryToken}; a.plan.hasFaultyCloud {
		rig.MakeCloudFaulty(&b)
	}
	require.NoError(t, testRig.Cloud.SetBehaviour(ctx, b))
	testRig.CreateNamespace(t, a.namespace, slowProviderSpec)
	a.watcher = checker.NewWatcher(
		checker.Clients{
			MachineClient: testRig.MachineClient,
			Kube:          testRig.Kube,
			Cloud:         testRig.Cloud,
			Temporal:      testRig.Temporal,
		},
		a.namespace,
		checker.SizeBounds{
			ChecksDeletingMachines: a.plan.areMachinesDeletedOnlyByRollouts(),
			ChecksNodes:            a.plan.areNodesRemovedOnlyByDeploymentChanges(),
			IgnoresBudgets:         a.plan.forcesDrains,
			ChecksNodeLoss:         a.plan.areNodesRemovedOnlyByMillwright(),
		},
	)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go a.watcher.Run(watching)
	a.createPools()
	if len(a.plan.loads)%2 == 0 { // if the plan has an even number of loads, wait until the first machines are created
		for i, p := range a.pools {
			p.AwaitRunningMachines(t, int(a.plan.pools[i].replicas))
		}
	}

	a.runSteps(ctx)
	if a.plan.earlyDeletionOffset == 0 {
		violations = append(violations, a.findUnsettledObjects(ctx)...)
		violations = append(violations, a.sweepOrphans()...)
		a.watcher.BeginTeardown()
	}
	violations = append(violations, a.findUnevictedPods()...)
	if a.plan.earlyDeletionOffset == 0 {
		a.retryUntilDone("delete everything", func(ctx context.Context) error { return a.deleteSeedObjects(ctx) })
	}
	remains, err := a.watcher.AwaitNoFindings(
		ctx,
		settleTimeout,
		func(s checker.Snapshot, d checker.WorkflowState) []checker.Finding {
			return checker.FindLeftovers(s, d, a.watcher.ExpectedOrphanUIDs())
		},
	)
	require.NoError(t, err)
	violations = append(violations, remains...)
	violations = append(violations, a.findRemainingCopyNamespace(ctx)...)
	durable, err := a.watcher.ReadWorkflowState(ctx)
	require.NoError(t, err)
	a.watcher.AddRunViolations(durable)
	stop()
	seen, snapshots := a.watcher.Violations()
	require.NotZero(t, snapshots)
	return append(violations, seen...)
}

// createPools creates the deployments of the plan. On the machines of the first deployment, createPools creates pods
// with a disruption budget.
func (a *seedRun) createPools() {
	for i, wanted := range a.plan.pools {
		a.pools = append(
			a.pools,
			testRig.CreatePool(
				a.t,
				a.namespace,
				fmt.Sprintf("%s-%c", a.namespace, 'a'+i),
				wanted.replicas,
				func(d *v1alpha1.MachineDeployment) {
					rig.WithNodeLabel(d)
					configuration := &v1alpha1.MachineConfiguration{}
					if a.plan.hasShortTimeouts {
						configuration.MachineCreationTimeout = &metav1.Duration{Duration: 30 * time.Second}
						configuration.MachineHealthTimeout = &metav1.Duration{Duration: 15 * time.Second}
					}
					if a.plan.forcesDrains {
						configuration.MachineDrainTimeout = &metav1.Duration{Duration: 15 * time.Second}
					}
					d.Spec.Template.Spec.MachineConfiguration = configuration
					d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
						Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
						RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
							MaxSurge: new(intstr.FromInt32(wanted.maxSurge)), MaxUnavailable: new(intstr.FromInt32(wanted.maxUnavailable)),
						}},
					}
				},
			),
		)
	}
	if a.plan.podDisruptionBudget != "" {
		const pods = 4
		a.pools[0].DeployPods(a.t, "held", pods)
		a.pools[0].CreateBudget(a.t, "held", 0, func(spec *policyv1.PodDisruptionBudgetSpec) {
			field, value, _ := strings.Cut(a.plan.podDisruptionBudget, " ")
			limit := new(intstr.Parse(value))
			if spec.MinAvailable = limit; field == "maxUnavailable" {
				spec.MinAvailable, spec.MaxUnavailable = nil, limit
			}
		})
	}
}

// findUnsettledObjects returns a violation for each object or run that still changes or is incomplete after
// settleTimeout.
func (a *seedRun) findUnsettledObjects(ctx context.Context) []checker.Violation {
	restless, err := a.watcher.AwaitNoFindings(
		ctx,
		settleTimeout,
		func(s checker.Snapshot, d checker.WorkflowState) []checker.Finding {
			return checker.FindUnsettledObjects(s, d, a.watcher.ExpectedOrphanUIDs())
		},
	)
	require.NoError(a.t, err)
	if len(restless) > 0 {
		a.copyLogsAndObjects()
	}
	return restless
}

// runSteps starts all loads and faults of the plan, each at its time, and returns when all of them have ended.
func (a *seedRun) runSteps(ctx context.Context) {
	var all sync.WaitGroup
	begun := time.Now()
	for _, s := range a.plan.loads {
		all.Go(func() {
			time.Sleep(time.Until(begun.Add(s.BeginOffset)))
			a.applyLoad(s)
		})
	}
	if s := a.plan.copyMachinesLoad; s != nil {
		all.Go(func() {
			time.Sleep(time.Until(begun.Add(s.BeginOffset)))
			a.copyMachines(*s)
		})
	}
	for _, s := range a.plan.faults {
		all.Go(func() {
			time.Sleep(time.Until(begun.Add(s.BeginOffset)))
			a.applyFault(ctx, s)
		})
	}
	if a.plan.earlyDeletionOffset > 0 {
		all.Go(func() {
			time.Sleep(time.Until(begun.Add(a.plan.earlyDeletionOffset)))
			a.watcher.BeginTeardown()
			a.isNamespaceDeletedEarly.Store(true)
			a.retryUntilDone("delete the namespace", func(ctx context.Context) error { return a.deleteSeedObjects(ctx) })
		})
	}
	all.Wait()
	a.retryUntilDone("end the cloud's faults", func(ctx context.Context) error { return testRig.Cloud.ClearFaults(ctx) })
}

// deleteSeedObjects deletes the objects of the seed, either one by one or with their namespace.
func (a *seedRun) deleteSeedObjects(ctx context.Context) error {
	policy := metav1.DeleteOptions{}
	if !a.plan.deletesNamespace {
		if err := testRig.Kube.PolicyV1().
			PodDisruptionBudgets(a.namespace).
			DeleteCollection(ctx, policy, metav1.ListOptions{}); err != nil {
			return err // if the budgets are not deleted, a budget blocks the last drain forever
		}
		for _, p := range a.pools {
			if err := testRig.MachineClient.MachineV1alpha1().
				MachineDeployments(a.namespace).
				Delete(ctx, p.Name, policy); err != nil &&
				!apierrors.IsNotFound(err) {
				return err
			}
		}
		if err := testRig.MachineClient.MachineV1alpha1().
			MachineClasses(a.namespace).
			Delete(ctx, "small", policy); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
		if err := testRig.Kube.CoreV1().
			Secrets(a.namespace).
			Delete(ctx, "small", policy); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}
	return testRig.Kube.CoreV1().Namespaces().Delete(ctx, a.namespace, policy)
}

// sweepOrphans runs two orphan sweeps, which delete the instances that loads have orphaned. It returns a violation
// for each remaining instance.
func (a *seedRun) sweepOrphans() []checker.Violation {
	excused := a.watcher.ExpectedOrphanUIDs()
	if len(excused) == 0 {
		return nil
	}
	collect := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"25 until %s"}}}`,
		v1alpha1.AnnotationCollectOrphans, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	a.retryUntilDone("let sweeps collect many orphans", func(ctx context.Context) error {
		_, err := testRig.MachineClient.MachineV1alpha1().
			MachineClasses(a.namespace).
			Patch(ctx, "small", types.MergePatchType, collect, metav1.PatchOptions{})
		return err
	})
	sweeps := testRig.CreateSweepSchedule(a.t, a.namespace, time.Second)
	last := time.Time{}
	left, err := a.watcher.AwaitNoFindings(
		a.t.Context(),
		time.Minute,
		func(s checker.Snapshot, _ checker.WorkflowState) []checker.Finding {
			found := checker.FindOrphanedInstances(s, nil)
			if len(found) > 0 && time.Since(last) > 5*time.Second {
				last = time.Now()
				_ = sweeps.Trigger(a.t.Context(), client.ScheduleTriggerOptions{})
			}
			return found
		},
	)
	require.NoError(a.t, err)
	return left
}

// findUnevictedPods returns a violation for each pod that left the node of a deleted machine without an eviction.
func (a *seedRun) findUnevictedPods() (violations []checker.Violation) {
	left := a.watcher.PodDepartures()
	if len(left) == 0 || a.plan.disturbsNodes() {
		return nil
	}
	var found []checker.Finding
	for begun := time.Now(); time.Since(begun) < maxAuditLogDelay; time.Sleep(time.Second) {
		file, err := os.Open(testRig.Stack.AuditLogPath())
		require.NoError(a.t, err)
		found = checker.FindPodsGoneWithoutEviction(left, checker.ReadEvictedPods(file, a.namespace))
		_ = file.Close()
		if len(found) == 0 {
			return nil
		}
	}
	for _, f := range found {
		violations = append(violations, checker.Violation{Finding: f, ReportTime: time.Now()})
	}
	return violations
}

// retryUntilDone calls do until it succeeds, because the API server may be unavailable. If do never succeeds, the test
// fails.
func (a *seedRun) retryUntilDone(what string, do func(context.Context) error) {
	begun := time.Now()
	for {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.t.Context()), 10*time.Second)
		err := do(ctx)
		cancel()
		gone := apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
		if err == nil || gone && a.isNamespaceDeletedEarly.Load() {
			return
		}
		if time.Since(begun) > 3*time.Minute {
			a.t.Errorf("%s: %v", what, err)
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// componentLocks has one lock per component, so that only one fault at a time stops a component.
var componentLocks = struct {
	sync.Mutex
	names map[string]*sync.Mutex
}{names: map[string]*sync.Mutex{}}

// componentLock returns the lock of a component.
func componentLock(name string) *sync.Mutex {
	componentLocks.Lock()
	defer componentLocks.Unlock()
	if componentLocks.names[name] == nil {
		componentLocks.names[name] = &sync.Mutex{}
	}
	return componentLocks.names[name]
}

// restartExitedComponents acts as a kubelet: it restarts Millwright's components that have exited.
func restartExitedComponents(t *testing.T) {
	ours := []string{component.Worker, component.SecondWorker, component.Bridge, component.SecondBridge}
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Second)
			status, err := testRig.Stack.Status(ctx)
			if err != nil {
				continue
			}
			for _, s := range status {
				ended := s.State == stack.StateExited || s.State == stack.StateFailed
				if mutex := componentLock(s.Name); ended && slices.Contains(ours, s.Name) && mutex.TryLock() {
					fmt.Fprintf(
						os.Stderr,
						"%s %s has ended by itself (%s), and is started\n",
						time.Now().Format(time.TimeOnly),
						s.Name,
						s.Error,
					)
					_ = testRig.Stack.StartComponent(ctx, s.Name)
					mutex.Unlock()
				}
			}
		}
	})
	t.Cleanup(func() { cancel(); over.Wait() })
}

// copyLogsAndObjects copies logs and objects to the folder CHAOS_LOGS.
func (a *seedRun) copyLogsAndObjects() {
	root := os.Getenv("CHAOS_LOGS")
	if root == "" {
		return
	}
	folder := filepath.Join(root, fmt.Sprintf("%s-%s", a.namespace, time.Now().Format("150405")))
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(testRig.Stack.Dir(), "logs"))); err != nil {
		a.t.Log(err)
	}
	for _, kind := range []string{"machines", "machinesets", "machinedeployments", "machineclasses", "nodes", "events"} {
		text, err := testRig.Stack.RunKubectl(a.t.Context(), "get", kind, "-n", a.namespace, "-o", "yaml")
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, kind+".yaml"), text, 0o600)
		}
		if err != nil {
			a.t.Log(err)
		}
	}
}

// appendReport appends the steps and the violations of this seed to report.jsonl in the folder CHAOS_LOGS.
func (a *seedRun) appendReport(begun time.Time, snapshots int, violations []checker.Violation) {
	root := os.Getenv("CHAOS_LOGS")
	if root == "" {
		return
	}
	line := Report{
		Seed:                    a.plan.seed,
		Loads:                   stepKinds(a.plan.loads),
		Faults:                  stepKinds(a.plan.faults),
		IsNamespaceDeletedEarly: a.plan.earlyDeletionOffset > 0,
		DurationSeconds:         int(time.Since(begun).Seconds()),
		SnapshotCount:           snapshots,
		Violations:              []string{},
	}
	if secondWorkerClockSkew != 0 {
		line.ClockSkew = secondWorkerClockSkew.String()
	}
	for _, v := range violations {
		line.Violations = append(line.Violations, v.String())
	}
	if err := line.AppendToFile(filepath.Join(root, "report.jsonl")); err != nil {
		a.t.Log(err)
	}
}
