package drain_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/decide/drain"
)

func setNotYetAttached(a *storagev1.VolumeAttachment) { a.Status.Attached = false }

// runDetachTest runs a test in a synctest bubble with a node that has attached volumes.
func runDetachTest(
	t *testing.T,
	objects []runtime.Object,
	test func(*testing.T, *activitiestest.EvictionWorld, activities.DetachWait),
) {
	t.Helper()
	runEvictionTest(t, objects, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
		test(t, d, activities.DetachWait{Machine: in.Machine, NodeName: "n", Since: time.Now()})
	})
}

func TestAwaitDetach(t *testing.T) {
	t.Parallel()
	agent := activitiestest.NewPod("agent", activitiestest.WithDaemonSetOwner, withClaims("a"))
	web := activitiestest.NewPod("web", withClaims("a"))
	for name, row := range map[string]struct {
		objects []runtime.Object
		left    []string // volumes that stay attached forever
	}{
		"no volumes":                                  {nil, nil},
		"those of another node":                       {[]runtime.Object{activitiestest.NewVolumeAttachment("a", "other")}, nil},
		"one of a pod of a DaemonSet":                 {[]runtime.Object{agent, newBoundClaim("a"), activitiestest.NewVolumeAttachment("a", "n")}, nil},
		"one of a static pod":                         {[]runtime.Object{activitiestest.NewPod("x", activitiestest.WithMirrorAnnotation, withClaims("a")), newBoundClaim("a"), activitiestest.NewVolumeAttachment("a", "n")}, nil},
		"one with a claim":                            {[]runtime.Object{newBoundClaim("a"), activitiestest.NewVolumeAttachment("a", "n")}, []string{"pv-a"}},
		"one that nobody claims":                      {[]runtime.Object{activitiestest.NewVolumeAttachment("a", "n")}, []string{"pv-a"}},
		"one that the cluster does not know":          {[]runtime.Object{activitiestest.NewVolumeAttachment("", "n")}, []string{"-on-n"}},
		"one that is being detached":                  {[]runtime.Object{activitiestest.NewVolumeAttachment("a", "n", activitiestest.WithDetachRequest)}, []string{"pv-a"}},
		"one that is being attached":                  {[]runtime.Object{activitiestest.NewVolumeAttachment("a", "n", setNotYetAttached)}, []string{"pv-a"}},
		"one whose pod is being deleted":              {[]runtime.Object{activitiestest.NewPod("x", withClaims("a"), activitiestest.WithDeletionTimestamp[*corev1.Pod]), newBoundClaim("a"), activitiestest.NewVolumeAttachment("a", "n")}, []string{"pv-a"}},
		"but the others, sorted":                      {[]runtime.Object{agent, newBoundClaim("a"), activitiestest.NewVolumeAttachment("c", "n"), activitiestest.NewVolumeAttachment("a", "n"), activitiestest.NewVolumeAttachment("b", "n")}, []string{"pv-b", "pv-c"}},
		"one of a pod that has to go":                 {[]runtime.Object{web, newBoundClaim("a"), activitiestest.NewVolumeAttachment("a", "n")}, []string{"pv-a"}},
		"a pod of a DaemonSet whose claim is missing": {[]runtime.Object{agent, activitiestest.NewVolumeAttachment("a", "n")}, []string{"pv-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			runDetachTest(t, row.objects, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait) {
				got, took := d.StartDetachWait(in).AwaitResult(t)
				if row.left == nil {
					assert.Empty(t, got.Left)
					assert.Zero(t, took, "at once")
				} else {
					assert.Equal(t, row.left, got.Left)
					assert.Equal(t, kube.DefaultDetachTimeout, took, "not without an end")
				}
				assert.Empty(t, d.MutatingRequests())
			})
		})
	}
}

func TestAwaitDetachReturnsWhenLastVolumeDetaches(t *testing.T) {
	t.Parallel()
	runDetachTest(
		t,
		[]runtime.Object{activitiestest.NewVolumeAttachment("a", "n"), activitiestest.NewVolumeAttachment("b", "n")},
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait) {
			a := d.StartDetachWait(in)
			activitiestest.AdvanceTime(time.Minute)
			d.DetachVolume("a")
			a.AssertRunning(t)
			d.DetachVolume("b")
			got, took := a.AwaitResult(t)
			assert.Zero(t, took)
			assert.Empty(t, got.Left)
		},
	)
}

func TestAwaitDetachEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		since  time.Duration
		detach time.Duration
		took   time.Duration
	}{
		"it is over":                        {-time.Hour, 2 * time.Minute, 0},
		"it is not over":                    {-time.Minute, 2 * time.Minute, time.Minute},
		"it has just begun":                 {0, 100 * time.Second, 100 * time.Second},
		"of 0: nobody waits":                {0, 0, 0},
		"it began by a clock that is ahead": {time.Minute, time.Minute, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			runDetachTest(
				t,
				[]runtime.Object{activitiestest.NewVolumeAttachment("a", "n")},
				func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait) {
					d.Draining.Detach, in.Since = row.detach, in.Since.Add(row.since)
					got, took := d.StartDetachWait(in).AwaitResult(t)
					assert.Equal(t, row.took, took)
					assert.Equal(t, []string{"pv-a"}, got.Left)
				},
			)
		})
	}
	t.Run("what is left is told, as far as a status holds it", func(t *testing.T) {
		var many []runtime.Object
		for i := range 30 {
			many = append(many, activitiestest.NewVolumeAttachment(fmt.Sprintf("%02d", i), "n"))
		}
		runDetachTest(t, many, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait) {
			d.Draining.Detach = 0
			got, _ := d.StartDetachWait(in).AwaitResult(t)
			require.Len(t, got.Left, drain.MaxOverviewRows)
			assert.Equal(t, 30-drain.MaxOverviewRows, got.More)
			assert.Equal(t, []string{"pv-00", "pv-19"}, []string{got.Left[0], got.Left[19]})
		})
	})
}

func TestAwaitDetachReportsRemainingVolumes(t *testing.T) {
	t.Parallel()
	runDetachTest(
		t,
		[]runtime.Object{activitiestest.NewVolumeAttachment("a", "n"), activitiestest.NewVolumeAttachment("b", "n")},
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait) {
			in.Tells = true
			until := in.Since.Add(kube.DefaultDetachTimeout)
			for _, row := range []struct {
				detached string
				want     activities.DetachResult
				took     time.Duration
			}{
				{"", activities.DetachResult{GoesOn: true, Until: until, Left: []string{"pv-a", "pv-b"}}, 5 * time.Second},
				{"a", activities.DetachResult{GoesOn: true, Until: until, Left: []string{"pv-b"}}, 0},
				{"", activities.DetachResult{Left: []string{"pv-b"}}, kube.DefaultDetachTimeout - 5*time.Second},
			} {
				a := d.StartDetachWait(in)
				if row.detached != "" {
					a.AssertRunning(t)
					d.DetachVolume(row.detached)
				}
				got, took := a.AwaitResult(t)
				assert.Equal(t, row.took, took)
				assert.True(t, row.want.Until.Equal(got.Until))
				got.Until = row.want.Until
				assert.Equal(t, row.want, got)
				in.Shown = got.Left
			}
		},
	)
}

func TestAwaitDetachEndsWhenInterrupted(t *testing.T) {
	t.Parallel()
	one := []runtime.Object{
		activitiestest.NewVolumeAttachment("a", "n"),
		activitiestest.NewPod("agent", activitiestest.WithDaemonSetOwner, withClaims("x")),
	}
	t.Run("with its context", func(t *testing.T) {
		runDetachTest(t, one, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait) {
			a := d.StartDetachWait(in)
			a.AssertRunning(t)
			assertCancelledError(t, a.CancelAndWait())
		})
	})
	t.Run("with the worker, and another attempt is to look again", func(t *testing.T) {
		runDetachTest(t, one, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait) {
			a := d.StartDetachWait(in)
			a.AssertRunning(t)
			close(a.WorkerStopChannel)
			var application *temporal.ApplicationError
			require.ErrorAs(t, (<-a.Outcome).Err, &application)
			assert.Equal(t, "the worker stops while it waits for the volumes of node n", application.Message())
			assert.False(t, application.NonRetryable())
		})
	})
	for _, row := range []struct{ verb, resource, message string }{
		{"list", "pods", "list pods of node n: no answer"}, {"get", "persistentvolumeclaims", "get claim web/c-x: no answer"},
	} {
		t.Run("it cannot see the volumes of the pods that stay: "+row.resource, func(t *testing.T) {
			runDetachTest(t, one, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.DetachWait) {
				activitiestest.FailRequests(d.TargetClient, row.verb, row.resource, 1, errors.New("no answer"), nil)
				_, err := activitiestest.RunActivity[activities.DetachResult](d.World, newActivities(d.Kube).AwaitDetach, in)
				require.ErrorContains(t, err, row.message)
				_, retryable := activitiestest.FailureTypeOf(t, err)
				assert.True(t, retryable)
			})
		})
	}
}

func assertCancelledError(t *testing.T, err error) {
	t.Helper()
	var application *temporal.ApplicationError // error type that the SDK's test environment returns
	require.ErrorAs(t, err, &application)
	assert.Equal(t, context.Canceled.Error(), application.Message())
}
