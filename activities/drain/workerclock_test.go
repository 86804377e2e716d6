package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/decide/drain"
)

// forEachWorkerClock runs a test in a bubble for each clock of the worker: ahead, right, behind. The parameter server
// is the servers' time.
func forEachWorkerClock(
	t *testing.T,
	objects []runtime.Object,
	test func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction, server time.Time),
) {
	t.Helper()
	for name, ahead := range map[string]time.Duration{"ahead": 10 * time.Minute, "right": 0, "behind": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			runEvictionTest(t, objects, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				d.ClockAhead = ahead
				test(t, d, in, time.Now().Add(-ahead))
			})
		})
	}
}

// If the wait for volumes ends too early, the cloud detaches volumes that are still in use.
func TestWorkerClockDoesNotMoveDetachDeadline(t *testing.T) {
	t.Parallel()
	forEachWorkerClock(
		t,
		[]runtime.Object{activitiestest.NewVolumeAttachment("a", "n")},
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction, server time.Time) {
			got, took := d.StartDetachWait(activities.DetachWait{Machine: in.Machine, NodeName: "n", Since: server}).
				AwaitResult(t)
			assert.Equal(t, []string{"pv-a"}, got.Left)
			assert.Equal(t, d.Draining.Detach, took)
		},
	)
}

// A worker clock that is ahead does not make a drain delete pods earlier, and a clock that is behind does not delay the
// deletion. The annotation do-not-disrupt protects a pod for a time since its start.
func TestWorkerClockDoesNotEndEvictions(t *testing.T) {
	t.Parallel()
	young := activitiestest.NewPod("a", withDoNotDisrupt("1h"))
	forEachWorkerClock(
		t,
		[]runtime.Object{young},
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction, server time.Time) {
			pod := young.DeepCopy()
			pod.Status.StartTime = new(metav1.NewTime(server.Add(-55 * time.Minute)))
			_, err := d.TargetClient.CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
			require.NoError(t, err)
			in.Until = server.Add(4 * time.Minute)
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByProtection}}
			seen, took := d.StartEviction(in).AwaitResult(t)
			assert.Equal(t, activities.OutcomeDeadline, seen.Outcome)
			assert.Equal(t, 4*time.Minute, took)
			assert.Zero(t, seen.Accepted)
		},
	)
}
