package drain_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/decide/drain"
)

// newBoundClaim returns the claim c-<name>, which is bound to the volume pv-<name>.
func newBoundClaim(name string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "web",
			Name:            "c-" + name,
			UID:             types.UID("uid-c-" + name),
			ResourceVersion: "900",
		},
	}
	c.Spec.VolumeName = "pv-" + name
	return c
}

// withClaims makes a pod use the claims with these names.
func withClaims(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range names {
			v := corev1.Volume{Name: name}
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c-" + name}
			p.Spec.Volumes = append(p.Spec.Volumes, v)
		}
	}
}

// podsWithVolumes returns two pods, each with one attached volume.
func podsWithVolumes(more ...runtime.Object) []runtime.Object {
	return append(
		more,
		activitiestest.NewPod("a", withClaims("a")),
		activitiestest.NewPod("b", withClaims("b")),
		newBoundClaim("a"),
		newBoundClaim("b"),
		activitiestest.NewVolumeAttachment("a", "n"),
		activitiestest.NewVolumeAttachment("b", "n"),
	)
}

func TestPodsWithVolumesAreEvictedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		podsWithVolumes(activitiestest.NewPod("c")),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			e := d.StartEviction(in)
			e.AssertRunning(t)
			assert.Equal(
				t,
				[]activitiestest.PodRequest{newEvictRequest("a"), newEvictRequest("c")},
				d.TakeNewRequests(),
				"those without volumes do not wait",
			)
			d.RemovePods("a", "c")
			e.AssertRunning(t)
			assert.Empty(t, d.TakeNewRequests(), "its volume is attached here")
			d.DetachVolume("a")
			e.AssertRunning(t)
			assert.Empty(t, d.TakeNewRequests(), "its volume is attached nowhere")
			d.AttachVolumeToOtherNode("a")
			e.AssertRunning(t)
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("b")}, d.TakeNewRequests())
			d.RemovePods("b")
			e.AssertRunning(t)
			d.DetachVolume("b")
			e.AssertRunning(t)
			d.AttachVolumeToOtherNode("b")
			seen, took := e.AwaitResult(t)
			assert.Zero(t, took)
			assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
			assert.Equal(t, 3, seen.Accepted)
			assert.Empty(t, seen.Departed)
		},
	)
}

func TestPodsWithVolumesAreDeletedInOrderIfEvictionIsUnsupported(t *testing.T) {
	t.Parallel()
	runEvictionTest(
		t,
		podsWithVolumes(activitiestest.NewPod("c"), activitiestest.NewPod("kept", withDoNotDisrupt("true"))),
		func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			in.Means = drain.MeansDeleteInOrder
			e := d.StartEviction(in)
			e.AssertRunning(t)
			assert.Equal(
				t,
				[]activitiestest.PodRequest{newDeleteRequest("a"), newDeleteRequest("c")},
				d.TakeNewRequests(),
				"those without volumes do not wait",
			)
			d.RemovePods("a", "c")
			d.DetachVolume("a")
			e.AssertRunning(t)
			assert.Empty(t, d.TakeNewRequests(), "its volume is attached nowhere")
			d.AttachVolumeToOtherNode("a")
			e.AssertRunning(t)
			assert.Equal(t, []activitiestest.PodRequest{newDeleteRequest("b")}, d.TakeNewRequests())
			d.RemovePods("b")
			d.DetachVolume("b")
			d.AttachVolumeToOtherNode("b")
			seen, _ := e.AwaitResult(t)
			assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
			assert.Equal(t, []string{"web/kept"}, seen.Left, "its protection ends with the deadline")
			assert.Empty(t, d.TakeNewRequests())
		},
	)
}

func TestWaitForVolumesHasTimeout(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		free bool
		wait time.Duration
	}{
		"still attached here":     {false, kube.DefaultDetachTimeout},
		"attached nowhere by now": {true, kube.DefaultAttachTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			runEvictionTest(t, podsWithVolumes(), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				e := d.StartEviction(in)
				e.AssertRunning(t)
				d.RemovePods("a")
				if e.AssertRunning(t); row.free {
					d.DetachVolume("a")
				}
				d.TakeNewRequests()
				seen, took := e.AwaitResult(t)
				assert.Equal(t, 31*time.Second, took, "people hear of it")
				assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
				require.Len(t, seen.Blockers, 1)
				assert.Equal(t, drain.BlockedByVolume, seen.Blockers[0].Kind)
				assert.Equal(t, "pv-a", seen.Blockers[0].Name)
				require.Len(t, seen.Departed, 1)

				in.Shown, in.Departed, in.Gone = seen.Blockers, seen.Departed, seen.Picture.Counts.Gone
				e = d.StartEviction(in)
				activitiestest.AdvanceTime(row.wait - 31*time.Second - time.Millisecond)
				assert.Empty(t, d.TakeNewRequests(), "the next run knows what it waits for, and since when")
				activitiestest.AdvanceTime(2 * time.Millisecond)
				assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("b")}, d.TakeNewRequests())
				seen, took = e.AwaitResult(t)
				assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
				assert.Equal(t, 999*time.Millisecond, took, "people hear a second after that it goes on")
				assert.Empty(t, seen.Blockers)
			})
		})
	}
	t.Run("a heartbeat tells the next attempt", func(t *testing.T) {
		runEvictionTest(t, podsWithVolumes(), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			e := d.StartEviction(in)
			e.AssertRunning(t)
			d.RemovePods("a")
			var last activities.Progress
			for last = range e.Heartbeats {
				if len(last.Departed) > 0 {
					break
				}
			}
			_ = e.CancelAndWait()
			d.TakeNewRequests()
			e = d.StartEviction(in, last)
			e.AssertRunning(t)
			assert.Empty(t, d.TakeNewRequests(), "the volume of a pod that it has never seen")
			d.DetachVolume("a")
			d.AttachVolumeToOtherNode("a")
			e.AssertRunning(t)
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("b")}, d.TakeNewRequests())
			_ = e.CancelAndWait()
		})
	})
}

func TestPodsWhoseVolumesNeedNoWaitAreEvictedAtOnce(t *testing.T) {
	t.Parallel()
	ephemeral := activitiestest.NewPod("b", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		}
	})
	local := activitiestest.NewPod("b", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
	})
	unbound := newBoundClaim("b")
	unbound.Spec.VolumeName = ""
	for name, objects := range map[string][]runtime.Object{
		"they share them":                  {activitiestest.NewPod("a", withClaims("x")), activitiestest.NewPod("b", withClaims("x")), newBoundClaim("x"), activitiestest.NewVolumeAttachment("x", "n")},
		"a claim that is not there":        {activitiestest.NewPod("a", withClaims("a")), activitiestest.NewPod("b", withClaims("b")), newBoundClaim("a"), activitiestest.NewVolumeAttachment("a", "n"), activitiestest.NewVolumeAttachment("b", "n")},
		"a claim that is not bound":        {activitiestest.NewPod("a", withClaims("a")), activitiestest.NewPod("b", withClaims("b")), newBoundClaim("a"), unbound, activitiestest.NewVolumeAttachment("a", "n"), activitiestest.NewVolumeAttachment("b", "n")},
		"a volume that is not attached":    {activitiestest.NewPod("a", withClaims("a")), activitiestest.NewPod("b", withClaims("b")), newBoundClaim("a"), newBoundClaim("b"), activitiestest.NewVolumeAttachment("a", "n")},
		"attached to another node":         {activitiestest.NewPod("a", withClaims("a")), activitiestest.NewPod("b", withClaims("b")), newBoundClaim("a"), newBoundClaim("b"), activitiestest.NewVolumeAttachment("a", "n"), activitiestest.NewVolumeAttachment("b", "other")},
		"no volumes":                       {activitiestest.NewPod("a", withClaims("a")), activitiestest.NewPod("b"), newBoundClaim("a"), activitiestest.NewVolumeAttachment("a", "n")},
		"a folder of the node":             {activitiestest.NewPod("a", withClaims("a")), local, newBoundClaim("a"), activitiestest.NewVolumeAttachment("a", "n")},
		"an ephemeral one that is nowhere": {activitiestest.NewPod("a", withClaims("a")), ephemeral, newBoundClaim("a"), activitiestest.NewVolumeAttachment("a", "n")},
	} {
		t.Run(name, func(t *testing.T) {
			runEvictionTest(t, objects, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				e := d.StartEviction(in)
				e.AssertRunning(t)
				assert.Equal(
					t,
					[]activitiestest.PodRequest{newEvictRequest("a"), newEvictRequest("b")},
					d.TakeNewRequests(),
					"at once",
				)
				_ = e.CancelAndWait()
			})
		})
	}
	t.Run("two volumes in one pod, of which one is shared: the other one counts", func(t *testing.T) {
		objects := []runtime.Object{
			activitiestest.NewPod(
				"a",
				withClaims("a", "x"),
			),
			activitiestest.NewPod("b", withClaims("b", "x")),
			newBoundClaim("a"),
			newBoundClaim("b"),
			newBoundClaim("x"),
			activitiestest.NewVolumeAttachment("a", "n"),
			activitiestest.NewVolumeAttachment("b", "n"),
			activitiestest.NewVolumeAttachment("x", "n"),
		}
		runEvictionTest(t, objects, func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			e := d.StartEviction(in)
			e.AssertRunning(t)
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests())
			d.RemovePods("a")
			synctest.Wait()
			d.DetachVolume("a")
			d.AttachVolumeToOtherNode("a")
			e.AssertRunning(t)
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("b")}, d.TakeNewRequests(), "x is still here")
			_ = e.CancelAndWait()
		})
	})
}

func TestFailedVolumeLookupIsRetriedBeforeEviction(t *testing.T) {
	t.Parallel()
	t.Run("waits, and is looked up again", func(t *testing.T) {
		runEvictionTest(t, podsWithVolumes(), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			// The claim lookup of each of the two pods fails once.
			activitiestest.FailRequests(d.TargetClient, "get", "persistentvolumeclaims", 2, errors.New("no answer"), nil)
			e := d.StartEviction(in)
			e.AssertRunning(t)
			assert.Empty(t, d.TakeNewRequests())
			seen, _ := e.AwaitResult(t)
			require.Len(t, seen.Blockers, 1)
			assert.Equal(t, drain.BlockedByError, seen.Blockers[0].Kind)
			assert.Contains(t, seen.Blockers[0].Why, "get claim web/c-a: no answer")

			e = d.StartEviction(in)
			e.AssertRunning(t)
			assert.Equal(t, []activitiestest.PodRequest{newEvictRequest("a")}, d.TakeNewRequests())
			_ = e.CancelAndWait()
		})
	})
	t.Run("for good, goes like one without", func(t *testing.T) {
		runEvictionTest(t, podsWithVolumes(), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
			activitiestest.FailRequests(d.TargetClient, "get", "persistentvolumeclaims", 1000, errors.New("no answer"), nil)
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByError}}
			e := d.StartEviction(in)
			activitiestest.AdvanceTime(30 * time.Second)
			assert.Empty(t, d.TakeNewRequests())
			activitiestest.AdvanceTime(20 * time.Second)
			assert.ElementsMatch(t, []activitiestest.PodRequest{newEvictRequest("a"), newEvictRequest("b")}, d.TakeNewRequests())
			_ = e.CancelAndWait()
		})
	})
	for _, means := range []drain.RemovalMeans{drain.MeansDelete, drain.MeansKill} {
		t.Run("does not outlast its deadline: "+string(means), func(t *testing.T) {
			runEvictionTest(t, podsWithVolumes(), func(t *testing.T, d *activitiestest.EvictionWorld, in activities.Eviction) {
				activitiestest.FailRequests(d.TargetClient, "get", "persistentvolumeclaims", 1000, errors.New("no answer"), nil)
				in.Means, in.Until = means, time.Now()
				seen, _ := d.StartEviction(in).AwaitResult(t)
				assert.Equal(t, activities.OutcomeDeadline, seen.Outcome)
				assert.Len(t, d.TakeNewRequests(), 2, "asked once all the same")
			})
		})
	}
}
