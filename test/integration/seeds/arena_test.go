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

// calmWithin is how long after the last load and the last fault something may still move, and how long after the
// deletion of everything something may be left.
const calmWithin = 2 * time.Minute

// auditDelay is how late the API server's audit log may be: its batches wait for 30 s at the most.
const auditDelay = 35 * time.Second

// slowly is a class whose instances take a second to make and half of one to delete.
const slowly = `{"region":"eu","zone":"eu-1","instanceType":"small","createLatency":"1s","deleteLatency":"500ms"}`

// arena has what the run of one seed needs: its plan, its namespace, its pools and the checker.
type arena struct {
	t         *testing.T
	plan      plan
	namespace string
	pools     []*rig.Pool
	watcher   *checker.Watcher

	changing sync.Mutex  // held while a deployment is changed or handed over
	ending   atomic.Bool // the namespace is being deleted in the middle of the work
}

// runs counts the seeds of this process, for names of namespaces.
var runs int

// runSeed runs one plan in a namespace of its own, with everything checked.
func runSeed(t *testing.T, p plan) {
	runs++
	a := &arena{plan: p, namespace: fmt.Sprintf("s%d-%d", p.seed, runs)}
	t.Run(fmt.Sprintf("seed %d", p.seed), func(t *testing.T) {
		a.t = t
		begun := time.Now()
		violations := a.run()
		_, snapshots := a.watcher.Violations()
		t.Logf("seed %d: %s; %.0f s, %d snapshots, %d pods drained; %d violations",
			p.seed, p, time.Since(begun).Seconds(), snapshots, len(a.watcher.Departures()), len(violations))
		a.report(begun, snapshots, violations)
		if len(violations) > 0 {
			a.keep()
		}
		for _, v := range violations {
			t.Errorf("seed %d: %s", p.seed, v)
		}
	})
}

// run returns what was violated.
func (a *arena) run() (violations []checker.Violation) {
	ctx, t := a.t.Context(), a.t
	b := admin.DefaultBehaviour()
	b.ClientTokens = a.plan.tokens
	b.Staleness = virtual.Duration(a.plan.staleness)
	b.AcceptLatency = virtual.Duration(a.plan.accept)
	if b.Tokens = []string{rig.Canary}; a.plan.faultyCloud {
		rig.FaultyCloud(&b)
	}
	require.NoError(t, r.Cloud.SetBehaviour(ctx, b))
	r.Namespace(t, a.namespace, slowly)
	a.watcher = checker.Watch(
		checker.Sources{Machines: r.Machines, Kube: r.Kube, Cloud: r.Cloud, Temporal: r.Temporal},
		a.namespace,
		checker.Bounds{
			Leaving: a.plan.judgesLeaving(),
			Nodes:   a.plan.judgesNodes(),
			Forced:  a.plan.drainsForced,
			Alone:   a.plan.judgesAlone(),
		},
	)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go a.watcher.Run(watching)
	a.makePools()
	if len(a.plan.loads)%2 == 0 { // otherwise the first steps come while the first machines are made
		for i, p := range a.pools {
			p.AwaitRunning(t, int(a.plan.pools[i].replicas))
		}
	}

	a.steps(ctx)
	if a.plan.deletedEarly == 0 {
		violations = append(violations, a.calm(ctx)...)
		violations = append(violations, a.collectOrphans()...)
		a.watcher.AllIsDeleted()
	}
	violations = append(violations, a.unevicted()...)
	if a.plan.deletedEarly == 0 {
		a.persist("delete everything", func(ctx context.Context) error { return a.deleteAll(ctx) })
	}
	remains, err := a.watcher.Await(ctx, calmWithin, func(s checker.Snapshot, d checker.Durable) []checker.Finding {
		return checker.Remains(s, d, a.watcher.Excused())
	})
	require.NoError(t, err)
	violations = append(violations, remains...)
	violations = append(violations, a.visitors(ctx)...)
	durable, err := a.watcher.Durable(ctx)
	require.NoError(t, err)
	a.watcher.AddRuns(durable)
	stop()
	seen, snapshots := a.watcher.Violations()
	require.NotZero(t, snapshots)
	return append(violations, seen...)
}

// makePools makes the deployments of the plan, and pods with a disruption budget on the first one.
func (a *arena) makePools() {
	for i, wanted := range a.plan.pools {
		a.pools = append(
			a.pools,
			r.Pool(
				a.t,
				a.namespace,
				fmt.Sprintf("%s-%c", a.namespace, 'a'+i),
				wanted.replicas,
				func(d *v1alpha1.MachineDeployment) {
					rig.LabelNodes(d)
					configuration := &v1alpha1.MachineConfiguration{}
					if a.plan.shortTimeouts {
						configuration.MachineCreationTimeout = &metav1.Duration{Duration: 30 * time.Second}
						configuration.MachineHealthTimeout = &metav1.Duration{Duration: 15 * time.Second}
					}
					if a.plan.drainsForced {
						configuration.MachineDrainTimeout = &metav1.Duration{Duration: 15 * time.Second}
					}
					d.Spec.Template.Spec.MachineConfiguration = configuration
					d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
						Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
						RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
							MaxSurge: new(intstr.FromInt32(wanted.surge)), MaxUnavailable: new(intstr.FromInt32(wanted.unavailable)),
						}},
					}
				},
			),
		)
	}
	if a.plan.pods != "" {
		const pods = 4
		a.pools[0].Deploy(a.t, "held", pods)
		a.pools[0].Budget(a.t, "held", 0, func(spec *policyv1.PodDisruptionBudgetSpec) {
			field, value, _ := strings.Cut(a.plan.pods, " ")
			limit := new(intstr.Parse(value))
			if spec.MinAvailable = limit; field == "maxUnavailable" {
				spec.MinAvailable, spec.MaxUnavailable = nil, limit
			}
		})
	}
}

// calm returns what still moves or is incomplete long after the last load and the last fault.
func (a *arena) calm(ctx context.Context) []checker.Violation {
	restless, err := a.watcher.Await(ctx, calmWithin, func(s checker.Snapshot, d checker.Durable) []checker.Finding {
		return checker.Restless(s, d, a.watcher.Excused())
	})
	require.NoError(a.t, err)
	if len(restless) > 0 {
		a.keep()
	}
	return restless
}

// steps does all loads and faults of the plan, each at its time, and returns when the last one is taken back.
func (a *arena) steps(ctx context.Context) {
	var all sync.WaitGroup
	begun := time.Now()
	for _, s := range a.plan.loads {
		all.Go(func() {
			time.Sleep(time.Until(begun.Add(s.At)))
			a.load(s)
		})
	}
	if s := a.plan.strangers; s != nil {
		all.Go(func() {
			time.Sleep(time.Until(begun.Add(s.At)))
			a.visit(*s)
		})
	}
	for _, s := range a.plan.faults {
		all.Go(func() {
			time.Sleep(time.Until(begun.Add(s.At)))
			a.fault(ctx, s)
		})
	}
	if a.plan.deletedEarly > 0 {
		all.Go(func() {
			time.Sleep(time.Until(begun.Add(a.plan.deletedEarly)))
			a.watcher.AllIsDeleted()
			a.ending.Store(true)
			a.persist("delete the namespace", func(ctx context.Context) error { return a.deleteAll(ctx) })
		})
	}
	all.Wait()
	a.persist("end the cloud's faults", func(ctx context.Context) error { return r.Cloud.ClearFaults(ctx) })
}

// deleteAll deletes all objects of the seed, each or with their namespace.
func (a *arena) deleteAll(ctx context.Context) error {
	policy := metav1.DeleteOptions{}
	if !a.plan.byNamespace {
		if err := r.Kube.PolicyV1().
			PodDisruptionBudgets(a.namespace).
			DeleteCollection(ctx, policy, metav1.ListOptions{}); err != nil {
			return err // else the last drain waits for it for ever
		}
		for _, p := range a.pools {
			if err := r.Machines.MachineV1alpha1().
				MachineDeployments(a.namespace).
				Delete(ctx, p.Name, policy); err != nil &&
				!apierrors.IsNotFound(err) {
				return err
			}
		}
		if err := r.Machines.MachineV1alpha1().
			MachineClasses(a.namespace).
			Delete(ctx, "small", policy); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
		if err := r.Kube.CoreV1().
			Secrets(a.namespace).
			Delete(ctx, "small", policy); err != nil &&
			!apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}
	return r.Kube.CoreV1().Namespaces().Delete(ctx, a.namespace, policy)
}

// collectOrphans sweeps twice for the instances that people orphaned, and returns those that are still there.
func (a *arena) collectOrphans() []checker.Violation {
	excused := a.watcher.Excused()
	if len(excused) == 0 {
		return nil
	}
	collect := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"25 until %s"}}}`,
		v1alpha1.AnnotationCollectOrphans, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	a.persist("let sweeps collect many orphans", func(ctx context.Context) error {
		_, err := r.Machines.MachineV1alpha1().
			MachineClasses(a.namespace).
			Patch(ctx, "small", types.MergePatchType, collect, metav1.PatchOptions{})
		return err
	})
	sweeps := r.Sweeps(a.t, a.namespace, time.Second)
	last := time.Time{}
	left, err := a.watcher.Await(
		a.t.Context(),
		time.Minute,
		func(s checker.Snapshot, _ checker.Durable) []checker.Finding {
			found := checker.Orphans(s, nil)
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

// unevicted returns the pods that left nodes of deleted machines without an eviction.
func (a *arena) unevicted() (violations []checker.Violation) {
	left := a.watcher.Departures()
	if len(left) == 0 || a.plan.hurtsNodes() {
		return nil
	}
	var found []checker.Finding
	for begun := time.Now(); time.Since(begun) < auditDelay; time.Sleep(time.Second) {
		file, err := os.Open(r.Stack.AuditLog())
		require.NoError(a.t, err)
		found = checker.Unevicted(left, checker.Evicted(file, a.namespace))
		_ = file.Close()
		if len(found) == 0 {
			return nil
		}
	}
	for _, f := range found {
		violations = append(violations, checker.Violation{Finding: f, At: time.Now()})
	}
	return violations
}

// persist calls do again until it succeeds, because the API server may be away. A failure is a failure of the suite.
func (a *arena) persist(what string, do func(context.Context) error) {
	begun := time.Now()
	for {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.t.Context()), 10*time.Second)
		err := do(ctx)
		cancel()
		gone := apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
		if err == nil || gone && a.ending.Load() {
			return
		}
		if time.Since(begun) > 3*time.Minute {
			a.t.Errorf("%s: %v", what, err)
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// held has the components that a fault keeps down, and the locks of components that only one fault at a time may touch.
var held = struct {
	sync.Mutex
	names map[string]*sync.Mutex
}{names: map[string]*sync.Mutex{}}

// hold waits until no other fault holds a component.
func hold(name string) *sync.Mutex {
	held.Lock()
	defer held.Unlock()
	if held.names[name] == nil {
		held.names[name] = &sync.Mutex{}
	}
	return held.names[name]
}

// keepAlive starts each component of ours that has ended by itself, as a kubelet would.
func keepAlive(t *testing.T) {
	ours := []string{component.Worker, component.SecondWorker, component.Bridge, component.SecondBridge}
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Second)
			status, err := r.Stack.Status(ctx)
			if err != nil {
				continue
			}
			for _, s := range status {
				ended := s.State == stack.StateExited || s.State == stack.StateFailed
				if mutex := hold(s.Name); ended && slices.Contains(ours, s.Name) && mutex.TryLock() {
					fmt.Fprintf(
						os.Stderr,
						"%s %s has ended by itself (%s), and is started\n",
						time.Now().Format(time.TimeOnly),
						s.Name,
						s.Error,
					)
					_ = r.Stack.Start(ctx, s.Name)
					mutex.Unlock()
				}
			}
		}
	})
	t.Cleanup(func() { cancel(); over.Wait() })
}

// keep copies logs and objects to the folder CHAOS_LOGS.
func (a *arena) keep() {
	root := os.Getenv("CHAOS_LOGS")
	if root == "" {
		return
	}
	folder := filepath.Join(root, fmt.Sprintf("%s-%s", a.namespace, time.Now().Format("150405")))
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(r.Stack.Dir(), "logs"))); err != nil {
		a.t.Log(err)
	}
	for _, kind := range []string{"machines", "machinesets", "machinedeployments", "machineclasses", "nodes", "events"} {
		text, err := r.Stack.Kubectl(a.t.Context(), "get", kind, "-n", a.namespace, "-o", "yaml")
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, kind+".yaml"), text, 0o600)
		}
		if err != nil {
			a.t.Log(err)
		}
	}
}

// report appends what this seed did and found to report.jsonl in the folder CHAOS_LOGS.
func (a *arena) report(begun time.Time, snapshots int, violations []checker.Violation) {
	root := os.Getenv("CHAOS_LOGS")
	if root == "" {
		return
	}
	line := Report{
		Seed: a.plan.seed, Loads: stepKinds(a.plan.loads), Faults: stepKinds(a.plan.faults), Early: a.plan.deletedEarly > 0,
		Seconds: int(time.Since(begun).Seconds()), Snapshots: snapshots, Violations: []string{},
	}
	if clock != 0 {
		line.Clock = clock.String()
	}
	for _, v := range violations {
		line.Violations = append(line.Violations, v.String())
	}
	if err := line.Append(filepath.Join(root, "report.jsonl")); err != nil {
		a.t.Log(err)
	}
}
