package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/decide/drain"
)

// A pod stays if it came to the cordoned node after the drain began and tolerates the cordon: it would come again after
// each eviction. Pods that were on the node before the drain leave, even if they tolerate the cordon. A late pod that
// does not tolerate the cordon also leaves: somebody placed the pod on the node by name.
func TestOnlyTolerantPodsThatArriveDuringDrainStay(t *testing.T) {
	t.Parallel()
	created := func(after time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Now().Add(after)).Rfc3339Copy() }
	}
	tolerant := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	for _, means := range []drain.RemovalMeans{drain.MeansEvict, drain.MeansDelete, drain.MeansKill} {
		t.Run(string(means), func(t *testing.T) {
			// The pods are created inside the bubble, because their timestamps come from its clock.
			runEvictionTest(t, nil, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				in.Means, in.Started = means, time.Now().Add(-time.Minute)
				for _, pod := range []*corev1.Pod{
					activitiestest.NewPod("before", created(-time.Hour)),
					activitiestest.NewPod("before-tolerant", created(-time.Hour), tolerant),
					activitiestest.NewPod("late", created(0)),
					activitiestest.NewPod("late-tolerant", created(0), tolerant),
				} {
					assert.NoError(t, d.TargetClient.Tracker().Add(pod))
				}
				e := d.StartEviction(in)
				e.AssertRunning(t)
				var asked []string
				for _, request := range d.TakeNewRequests() {
					asked = append(asked, request.Pod)
				}
				assert.Equal(t, []string{"before", "before-tolerant", "late"}, asked)
				d.RemovePods("before", "before-tolerant", "late")
				seen, _ := e.AwaitResult(t)
				assert.Equal(t, activities.OutcomeEmpty, seen.Outcome, "the drain does not wait for a pod that stays")
			})
		})
	}
}
