package activities_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities"
)

func TestU127_AwaitEmpty(t *testing.T) {
	t.Parallel()
	t.Run("U127: at once, with every pod that may stay", func(t *testing.T) {
		stay := []*corev1.Pod{
			pod("mirror", mirror), pod("agent", controlledBy("DaemonSet", true)), pod("done", inPhase(corev1.PodSucceeded)),
			pod("broken", inPhase(corev1.PodFailed)), pod("elsewhere", elsewhere),
		}
		holding(t, stay, func(t *testing.T, w *world, in activities.Read) {
			assert.Equal(t, activities.Emptied{}, twice[activities.Emptied](w, w.AwaitEmpty, in))
			assert.Equal(t, []string{"get nodes", "list pods", "get nodes", "list pods"}, w.requests(), "live, and no watch")
		})
	})
	for name, change := range map[string]func(*corev1.Pod){
		"a bare one":                 func(*corev1.Pod) {},
		"one of a ReplicaSet":        controlledBy("ReplicaSet", true),
		"one that a DaemonSet owns":  controlledBy("DaemonSet", false), // and does not control
		"one that is pending":        inPhase(corev1.PodPending),
		"one in no known phase":      inPhase(corev1.PodUnknown),
		"one that is on its way out": going[*corev1.Pod],
	} {
		t.Run("U127: when a pod has gone: "+name, func(t *testing.T) {
			holding(t, []*corev1.Pod{pod("left", change), pod("agent", controlledBy("DaemonSet", true))}, func(t *testing.T, w *world, in activities.Read) {
				a := w.wait(in)
				assert.Equal(t, activities.Emptied{Left: 1, Names: []string{"web/left"}}, <-a.beats)
				synctest.Wait()
				assert.Empty(t, a.ended)
				w.remove("left")
				require.NoError(t, <-a.ended)
				assert.Equal(t, []string{"get nodes", "list pods", "watch pods", "delete pods"}, w.requests())
			})
		})
	}
	t.Run("when the last pod has finished", func(t *testing.T) {
		holding(t, append(one(), pod("job")), func(t *testing.T, w *world, in activities.Read) {
			a := w.wait(in)
			w.remove("left")
			synctest.Wait()
			assert.Empty(t, a.ended)
			_, err := w.target.CoreV1().Pods("web").UpdateStatus(t.Context(), pod("job", inPhase(corev1.PodSucceeded)), metav1.UpdateOptions{})
			require.NoError(t, err)
			require.NoError(t, <-a.ended)
		})
	})
	t.Run("when a pod has gone, too, that came meanwhile", func(t *testing.T) {
		holding(t, one(), func(t *testing.T, w *world, in activities.Read) {
			a := w.wait(in)
			for _, p := range []*corev1.Pod{pod("new"), pod("far", elsewhere), pod("agent", controlledBy("DaemonSet", true))} {
				_, err := w.target.CoreV1().Pods("web").Create(t.Context(), p, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			w.remove("left")
			synctest.Wait()
			assert.Empty(t, a.ended)
			w.remove("new")
			require.NoError(t, <-a.ended)
		})
	})
	t.Run("when a pod has gone, too, with the name of another", func(t *testing.T) {
		holding(t, one(), func(t *testing.T, w *world, in activities.Read) {
			pods := w.watchBy()
			a := w.wait(in)
			again := pod("left", func(p *corev1.Pod) { p.UID = "uid-again" })
			pods.Add(again)
			pods.Delete(pod("left"))
			synctest.Wait()
			assert.Empty(t, a.ended)
			pods.Delete(again)
			require.NoError(t, <-a.ended)
		})
	})
}

func TestAwaitEmptyTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	var many []*corev1.Pod
	for i := range 25 {
		many = append(many, pod(fmt.Sprintf("p%02d", 24-i)))
	}
	holding(t, many, func(t *testing.T, w *world, in activities.Read) {
		a := w.wait(in)
		first := <-a.beats
		assert.Equal(t, 25, first.Left)
		require.Len(t, first.Names, 20, "as many as a status can show")
		assert.Equal(t, "web/p00", first.Names[0])
		assert.Equal(t, "web/p19", first.Names[19])
		for i := range 22 {
			w.remove(fmt.Sprintf("p%02d", i))
		}
		want := activities.Emptied{Left: 3, Names: []string{"web/p22", "web/p23", "web/p24"}}
		assert.Equal(t, want, <-a.beats)
		select {
		case again := <-a.beats:
			assert.Equal(t, want, again, "also when nothing happens")
		case <-time.After(5 * time.Minute): // in the bubble; the SDK holds heartbeats back for a while
			t.Error("no heartbeat when nothing happens")
		}
		assert.Empty(t, a.ended)
	})
}
