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

// Whatever dies in whichever stage of a deletion: no stage that was recorded is entered again, no pod is evicted again
// that goes already, and nothing is left behind.
func TestKillsInEachStageOfADeletion(t *testing.T) {
	for _, victim := range []string{component.Worker, component.Temporal, component.APIServer} {
		t.Run("delete side: "+victim, func(t *testing.T) { killInEachStage(t, victim) })
	}
}

func killInEachStage(t *testing.T, victim string) {
	name := "kill-" + strings.ToLower(strings.ReplaceAll(victim, "kube-", ""))
	r.Namespace(t, name, `{"region":"eu","zone":"eu-1","instanceType":"small","deleteLatency":"8s"}`)
	p := r.Pool(t, name, name, 2, rig.LabelNodes)
	p.AwaitRunning(t, 2)
	p.AwaitHosts(t, 2)
	p.Deploy(t, "web", 8, func(pod *corev1.PodTemplateSpec) {
		pod.Annotations["pod-delete.stage.kwok.x-k8s.io/delay"] = "8s"
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	})
	m, here := p.Host(t, "web")
	hooks := []string{v1alpha1.AnnotationPreDrainHook + "/test", v1alpha1.AnnotationPreTerminateHook + "/test"}
	annotate(t, m, hooks[0]+"=", hooks[1]+"=")
	stages, evicted := follow(t, m), evictions(t, name)
	p.Remove(t, m.Name)

	kill := func(stage v1alpha1.MachineDeletionStage) {
		t.Helper()
		rig.Eventually(t, "stage "+string(stage), func() (bool, any) { return slices.Contains(stages(), stage), stages() })
		require.NoError(t, r.Stack.Kill(t.Context(), victim))
		require.NoError(t, r.Stack.Start(t.Context(), victim))
	}
	kill(v1alpha1.MachineDeletionPreDrainHooks)
	annotate(t, m, hooks[0]+"-")
	kill(v1alpha1.MachineDeletionDrain)
	kill(v1alpha1.MachineDeletionPreTerminateHooks)
	annotate(t, m, hooks[1]+"-")
	kill(v1alpha1.MachineDeletionInstance)
	awaitGone(t, m)

	requireOrder(t, stages())
	for _, pod := range here {
		require.Len(t, evicted()[pod.Name], 1, "when pod %s was told to go, by an eviction", pod.Name)
	}
	require.Len(t, evicted(), len(here), "and no other pod was")
	accepted := map[string]int{} // without what a killed API server had not written to the log yet
	for _, q := range asked(t, name) {
		if q.Verb == "evict" && q.Code == 201 {
			accepted[q.Pod]++
		}
	}
	for pod, times := range accepted {
		require.Equal(t, 1, times, "pod %s was evicted again", pod)
	}
	require.NotContains(t, p.Instances(t), m.Spec.ProviderID)
	for _, node := range p.Nodes(t) {
		require.NotEqual(t, m.Name, node.Name)
	}
	p.AwaitRunning(t, 2)
}

// requireOrder requires that the stages of a deletion followed each other and that none was entered again. Detach is
// among them when the drain ends before the watch of volumes is back: nobody knows then what is attached. A stage that
// passes while the watch of this test is broken is missing.
func requireOrder(t *testing.T, seen []v1alpha1.MachineDeletionStage) {
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

// annotate sets annotations of a machine, as kubectl takes them: "key=value", and "key-" to remove one.
func annotate(t *testing.T, m v1alpha1.Machine, changes ...string) {
	t.Helper()
	rig.Eventually(t, "machine "+m.Name+" is annotated", func() (bool, any) {
		args := append([]string{"annotate", "--overwrite", "machine", "-n", m.Namespace, m.Name}, changes...)
		_, err := r.Stack.Kubectl(t.Context(), args...)
		return err == nil, err
	})
}

// follow notes the stages that a machine's status says, each when it changes; also while the API server is away in
// between.
func follow(t *testing.T, m v1alpha1.Machine) (stages func() []v1alpha1.MachineDeletionStage) {
	var mu sync.Mutex
	var seen []v1alpha1.MachineDeletionStage
	machines := r.Machines.MachineV1alpha1().Machines(m.Namespace)
	watchOn(t, func(ctx context.Context, version string) (watch.Interface, error) {
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

// evictions records, for each evicted pod of a namespace, its deletion timestamps, each once.
func evictions(t *testing.T, namespace string) (evicted func() map[string][]time.Time) {
	var mu sync.Mutex
	seen := map[string][]time.Time{}
	watchOn(t, func(ctx context.Context, version string) (watch.Interface, error) {
		return r.Kube.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	}, func(now *corev1.Pod) {
		mu.Lock()
		defer mu.Unlock()
		byEviction := slices.ContainsFunc(now.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
		})
		if !byEviction || now.DeletionTimestamp == nil || *now.DeletionGracePeriodSeconds == 0 {
			// 0: the kubelet confirms the end
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

// watchOn notes each object of a watch until the test ends, and goes on with another watch where one breaks.
func watchOn[O metav1.Object](
	t *testing.T, open func(ctx context.Context, version string) (watch.Interface, error), note func(O),
) {
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go func() {
		version := "" // of the last event: the next watch goes on there, so that nothing is missed, however short
		for ctx.Err() == nil {
			w, err := open(ctx, version)
			if err != nil {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			for event := range w.ResultChan() {
				now, ok := event.Object.(O)
				if !ok { // the API server has forgotten that version
					version = ""
					break
				}
				version = now.GetResourceVersion()
				note(now)
			}
		}
	}()
}
