//go:build integration

package drain

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// Worker, Temporal or API server is killed in each stage of a deletion. No recorded stage is entered again, no
// terminating pod is evicted again, and no object is left over.
func TestProcessesAreKilledInEachStageOfADeletion(t *testing.T) {
	for _, victim := range []string{component.Worker, component.Temporal, component.APIServer} {
		t.Run("delete side: "+victim, func(t *testing.T) { killProcessInEachStage(t, victim) })
	}
}

func killProcessInEachStage(t *testing.T, victim string) {
	name := "kill-" + strings.ToLower(strings.ReplaceAll(victim, "kube-", ""))
	testRig.CreateNamespace(t, name, `{"region":"eu","zone":"eu-1","instanceType":"small","deleteLatency":"8s"}`)
	p := testRig.CreatePool(t, name, name, 2, rig.WithNodeLabel)
	p.AwaitRunningMachines(t, 2)
	p.AwaitLabelledNodes(t, 2)
	p.DeployPods(t, "web", 8, func(pod *corev1.PodTemplateSpec) {
		pod.Annotations["pod-delete.stage.kwok.x-k8s.io/delay"] = "8s"
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	})
	m, here := p.MachineWithPods(t, "web")
	hooks := []string{v1alpha1.AnnotationPreDrainHook + "/test", v1alpha1.AnnotationPreTerminateHook + "/test"}
	annotateMachine(t, m, hooks[0]+"=", hooks[1]+"=")
	stages, evicted := recordStages(t, m), recordEvictions(t, name)
	p.DeleteMachine(t, m.Name)

	kill := func(stage v1alpha1.MachineDeletionStage) {
		t.Helper()
		rig.Eventually(t, "stage "+string(stage), func() (bool, any) { return slices.Contains(stages(), stage), stages() })
		require.NoError(t, testRig.Stack.KillComponent(t.Context(), victim))
		require.NoError(t, testRig.Stack.StartComponent(t.Context(), victim))
		// the scheduler's watch of nodes may be broken for a while, so that the scheduler does not see the cordon
		if victim == component.APIServer {
			require.NoError(t, testRig.Stack.RestartComponent(t.Context(), component.Scheduler))
		}
	}
	kill(v1alpha1.MachineDeletionPreDrainHooks)
	annotateMachine(t, m, hooks[0]+"-")
	kill(v1alpha1.MachineDeletionDrain)
	kill(v1alpha1.MachineDeletionPreTerminateHooks)
	annotateMachine(t, m, hooks[1]+"-")
	kill(v1alpha1.MachineDeletionInstance)
	awaitMachineGone(t, m)

	requireStageOrder(t, stages())
	for _, pod := range here {
		require.Len(t, evicted()[pod.Name], 1, "when pod %s was told to go, by an eviction", pod.Name)
	}
	require.Len(t, evicted(), len(here), "and no other pod was")
	// evictions by pod, without lines that a killed API server had not yet written to the audit log
	accepted := map[string]int{}
	for _, q := range listPodRequests(t, name) {
		if q.Verb == "evict" && q.Code == 201 {
			accepted[q.Pod]++
		}
	}
	for pod, times := range accepted {
		require.Equal(t, 1, times, "pod %s was evicted again", pod)
	}
	require.NotContains(t, p.ProviderIDs(t), m.Spec.ProviderID)
	for _, node := range p.Nodes(t) {
		require.NotEqual(t, m.Name, node.Name)
	}
	p.AwaitRunningMachines(t, 2)
}

// requireStageOrder requires that the stages of a deletion are in order and that no stage was entered twice. The stage
// Detach occurs if the drain ends before the watch of VolumeAttachments is back, because the worker then does not know
// which volumes are attached. seen does not contain a stage that passes while the test's own watch is broken.
func requireStageOrder(t *testing.T, seen []v1alpha1.MachineDeletionStage) {
	t.Helper()
	t.Logf("stages: %v", seen)
	order := []v1alpha1.MachineDeletionStage{
		v1alpha1.MachineDeletionPreDrainHooks, v1alpha1.MachineDeletionDrain, v1alpha1.MachineDeletionDetach,
		v1alpha1.MachineDeletionPreTerminateHooks, v1alpha1.MachineDeletionInstance, v1alpha1.MachineDeletionNode,
	}
	place := -1
	for _, stage := range seen {
		next := slices.Index(order, stage)
		require.Greater(t, next, place, "no stage is entered again, nor one before another: %v", seen)
		place = next
	}
}

// annotateMachine changes annotations of a machine in kubectl's syntax: "key=value" sets an annotation, and "key-"
// removes it.
func annotateMachine(t *testing.T, m v1alpha1.Machine, changes ...string) {
	t.Helper()
	rig.Eventually(t, "machine "+m.Name+" is annotated", func() (bool, any) {
		args := append([]string{"annotate", "--overwrite", "machine", "-n", m.Namespace, m.Name}, changes...)
		_, err := testRig.Stack.RunKubectl(t.Context(), args...)
		return err == nil, err
	})
}

// recordStages records each change of the deletion stage in a machine's status. recordStages continues after the API
// server was unavailable.
func recordStages(t *testing.T, m v1alpha1.Machine) (stages func() []v1alpha1.MachineDeletionStage) {
	var mu sync.Mutex
	var seen []v1alpha1.MachineDeletionStage
	machines := testRig.MachineClient.MachineV1alpha1().Machines(m.Namespace)
	watchUntilTestEnds(t, func(ctx context.Context, version string) (watch.Interface, error) {
		return machines.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + m.Name, ResourceVersion: version})
	}, func(now *v1alpha1.Machine) {
		mu.Lock()
		defer mu.Unlock()
		if d := now.Status.Deletion; now.UID == m.UID && d != nil && (len(seen) == 0 || seen[len(seen)-1] != d.Stage) {
			seen = append(seen, d.Stage)
		}
	})
	return func() []v1alpha1.MachineDeletionStage {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// recordEvictions records the different deletion timestamps of each evicted pod of a namespace.
func recordEvictions(t *testing.T, namespace string) (evicted func() map[string][]time.Time) {
	var mu sync.Mutex
	seen := map[string][]time.Time{}
	watchUntilTestEnds(t, func(ctx context.Context, version string) (watch.Interface, error) {
		return testRig.Kube.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	}, func(now *corev1.Pod) {
		mu.Lock()
		defer mu.Unlock()
		byEviction := slices.ContainsFunc(now.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
		})
		if !byEviction || now.DeletionTimestamp == nil || *now.DeletionGracePeriodSeconds == 0 {
			// with grace period 0, the kubelet confirms that the pod has terminated
			return
		}
		if at := now.DeletionTimestamp.Time; !slices.ContainsFunc(seen[now.Name], at.Equal) {
			seen[now.Name] = append(seen[now.Name], at)
		}
	})
	return func() map[string][]time.Time {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
}

// watchUntilTestEnds calls note for each object of a watch until the test ends. watchUntilTestEnds opens a new watch
// when a watch breaks.
func watchUntilTestEnds[O metav1.Object](
	t *testing.T, open func(ctx context.Context, version string) (watch.Interface, error), note func(O),
) {
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go func() {
		version := "" // resource version of the last event: the next watch continues there and misses no event
		for ctx.Err() == nil {
			w, err := open(ctx, version)
			if err != nil {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			for event := range w.ResultChan() {
				now, ok := event.Object.(O)
				if !ok { // the API server no longer has this resource version
					version = ""
					break
				}
				version = now.GetResourceVersion()
				note(now)
			}
		}
	}()
}
