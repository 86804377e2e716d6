//go:build integration

package drain

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// Whatever dies in whichever stage of a deletion: no stage that was recorded is entered again, no pod is evicted again that
// goes already, and nothing is left behind.
func TestN5_KillsInEachStageOfADeletion(t *testing.T) {
	for _, victim := range []string{component.Worker, component.Temporal, component.APIServer} {
		t.Run("N5, delete side: "+victim, func(t *testing.T) { killInEachStage(t, victim) })
	}
}

func killInEachStage(t *testing.T, victim string) {
	name := "kill-" + strings.ToLower(strings.ReplaceAll(victim, "kube-", ""))
	r.Namespace(t, name, `{"region":"eu","zone":"eu-1","instanceType":"small","deleteLatency":"8s"}`)
	p := r.Pool(t, name, name, 2, rig.Hosting)
	p.AwaitRunning(t, 2, 60*time.Second)
	p.AwaitHosts(t, 2, 30*time.Second)
	p.Deploy(t, "web", 8, func(pod *corev1.PodTemplateSpec) {
		pod.Annotations["pod-delete.stage.kwok.x-k8s.io/delay"] = "8s"
		pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	})
	m, here := p.Host(t, "web")
	hooks := []string{v1alpha1.AnnotationPreDrainHook + "/test", v1alpha1.AnnotationPreTerminateHook + "/test"}
	annotate(t, m, hooks[0]+"=", hooks[1]+"=")
	stages := follow(t, m)
	p.Remove(t, m.Name)

	kill := func(stage v1alpha1.MachineDeletionStage) {
		t.Helper()
		rig.Eventually(t, 90*time.Second, "stage "+string(stage), func() (bool, any) { return slices.Contains(stages(), stage), stages() })
		require.NoError(t, r.Stack.Kill(t.Context(), victim))
		require.NoError(t, r.Stack.Start(t.Context(), victim))
	}
	kill(v1alpha1.MachineDeletionPreDrainHooks)
	annotate(t, m, hooks[0]+"-")
	kill(v1alpha1.MachineDeletionDrain)
	kill(v1alpha1.MachineDeletionPreTerminateHooks)
	annotate(t, m, hooks[1]+"-")
	kill(v1alpha1.MachineDeletionInstance)
	awaitGone(t, m, 2*time.Minute)

	requireOrder(t, stages())
	accepted := map[string]int{}
	for _, q := range asked(t, name) {
		if q.Verb == "evict" && q.Code == 201 {
			accepted[q.Pod]++
		}
	}
	if victim != component.Temporal { // an eviction that was under way when one side died may be in no log, or as an error, although the pod goes
		require.LessOrEqual(t, len(accepted), len(here))
	} else {
		require.Len(t, accepted, len(here))
	}
	for pod, times := range accepted {
		require.Equal(t, 1, times, "pod %s was evicted again", pod)
	}
	require.NotContains(t, p.Instances(t), m.Spec.ProviderID)
	for _, node := range p.Nodes(t) {
		require.NotEqual(t, m.Name, node.Name)
	}
	p.AwaitRunning(t, 2, 90*time.Second)
}

// requireOrder requires that the stages of a deletion followed each other and that none was entered again (D15). Detach is
// among them when the drain ends before the watch of volumes is back: nobody knows then what is attached. A stage that passes
// while the watch of this test is broken is missing.
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
		require.Greater(t, next, place, "D15: no stage is entered again, nor one before another: %v", seen)
		place = next
	}
}

// annotate sets annotations of a machine, as kubectl takes them: "key=value", and "key-" to remove one.
func annotate(t *testing.T, m v1alpha1.Machine, changes ...string) {
	t.Helper()
	rig.Eventually(t, 30*time.Second, "machine "+m.Name+" is annotated", func() (bool, any) {
		args := append([]string{"annotate", "--overwrite", "machine", "-n", m.Namespace, m.Name}, changes...)
		_, err := r.Stack.Kubectl(t.Context(), args...)
		return err == nil, err
	})
}

// follow notes the stages that a machine's status says, each when it changes; also while the API server is away in between.
func follow(t *testing.T, m v1alpha1.Machine) (stages func() []v1alpha1.MachineDeletionStage) {
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	var mu sync.Mutex
	var seen []v1alpha1.MachineDeletionStage
	note := func(now *v1alpha1.Machine) {
		mu.Lock()
		defer mu.Unlock()
		if d := now.Status.Deletion; now.UID == m.UID && d != nil && (len(seen) == 0 || seen[len(seen)-1] != d.Stage) {
			seen = append(seen, d.Stage)
		}
	}
	machines := r.Machines.MachineV1alpha1().Machines(m.Namespace)
	go func() {
		version := "" // of the last event: the next watch goes on there, so that no stage is missed, however short
		for ctx.Err() == nil {
			w, err := machines.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + m.Name, ResourceVersion: version})
			if err != nil {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			for event := range w.ResultChan() {
				now, ok := event.Object.(*v1alpha1.Machine)
				if !ok { // the API server has forgotten that version
					version = ""
					break
				}
				version = now.ResourceVersion
				note(now)
			}
		}
	}()
	return func() []v1alpha1.MachineDeletionStage {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}
