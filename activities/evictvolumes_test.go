package activities_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities"
	"millwright/decide/drain"
)

// attached is the attachment of the volume pv-<name> to a node; an empty name is a volume that has no such object.
func attached(name, node string, change ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name + "-on-" + node, UID: types.UID("uid-" + name + "-" + node), ResourceVersion: "900"}}
	a.Spec.Attacher, a.Spec.NodeName, a.Status.Attached = "csi.example.com", node, true
	if name != "" {
		a.Spec.Source.PersistentVolumeName = new("pv-" + name)
	}
	return with(a, change)
}

// claim is the claim c-<name> for the volume pv-<name>.
func claim(name string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c-" + name, UID: types.UID("uid-c-" + name), ResourceVersion: "900"}}
	c.Spec.VolumeName = "pv-" + name
	return c
}

// mounting makes a pod use claims.
func mounting(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range names {
			v := corev1.Volume{Name: name}
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c-" + name}
			p.Spec.Volumes = append(p.Spec.Volumes, v)
		}
	}
}

// withVolumes are two pods with a volume each, that is attached to their node.
func withVolumes(more ...runtime.Object) []runtime.Object {
	return append(more, pod("a", mounting("a")), pod("b", mounting("b")), claim("a"), claim("b"), attached("a", "n"), attached("b", "n"))
}

// detach frees a volume from the node n.
func (w *world) detach(name string) {
	w.t.Helper()
	require.NoError(w.t, w.target.StorageV1().VolumeAttachments().Delete(w.t.Context(), name+"-on-n", metav1.DeleteOptions{}))
}

// attach makes a volume arrive at another node.
func (w *world) attach(name string) {
	w.t.Helper()
	_, err := w.target.StorageV1().VolumeAttachments().Create(w.t.Context(), attached(name, "other"), metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func TestU142_PodsWithVolumesAreEvictedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	emptying(t, withVolumes(pod("c")), func(t *testing.T, d *desk, in activities.Eviction) {
		e := d.empty(in)
		e.goesOn(t)
		assert.Equal(t, []asked{evicted("a"), evicted("c")}, d.since(), "U147: those without volumes do not wait")
		d.end("a", "c")
		e.goesOn(t)
		assert.Empty(t, d.since(), "U143: its volume is attached here")
		d.detach("a")
		e.goesOn(t)
		assert.Empty(t, d.since(), "U143: its volume is attached nowhere")
		d.attach("a")
		e.goesOn(t)
		assert.Equal(t, []asked{evicted("b")}, d.since())
		d.end("b")
		e.goesOn(t)
		d.detach("b")
		e.goesOn(t)
		d.attach("b")
		seen, took := e.ends(t)
		assert.Zero(t, took)
		assert.Equal(t, activities.OutcomeEmpty, seen.Outcome)
		assert.Equal(t, 3, seen.Accepted)
		assert.Empty(t, seen.Departed)
	})
}

func TestU143_VolumesAreNotWaitedForWithoutEnd(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		free bool
		wait time.Duration
	}{
		"U143: still attached here":     {false, activities.DefaultDetachTimeout},
		"U143: attached nowhere by now": {true, activities.DefaultAttachTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			emptying(t, withVolumes(), func(t *testing.T, d *desk, in activities.Eviction) {
				e := d.empty(in)
				e.goesOn(t)
				d.end("a")
				if e.goesOn(t); row.free {
					d.detach("a")
				}
				d.since()
				seen, took := e.ends(t)
				assert.Equal(t, 30*time.Second, took, "people hear of it")
				assert.Equal(t, activities.OutcomeChanged, seen.Outcome)
				require.Len(t, seen.Blockers, 1)
				assert.Equal(t, drain.BlockedByVolume, seen.Blockers[0].Kind)
				assert.Equal(t, "pv-a", seen.Blockers[0].Name)
				require.Len(t, seen.Departed, 1)

				in.Shown, in.Departed, in.Gone = seen.Blockers, seen.Departed, seen.Picture.Counts.Gone
				e = d.empty(in)
				after(row.wait - 30*time.Second - time.Millisecond)
				assert.Empty(t, d.since(), "the next run knows what it waits for, and since when")
				after(2 * time.Millisecond)
				assert.Equal(t, []asked{evicted("b")}, d.since())
				_ = e.quit()
			})
		})
	}
	t.Run("U143: a heartbeat tells the next attempt", func(t *testing.T) {
		emptying(t, withVolumes(), func(t *testing.T, d *desk, in activities.Eviction) {
			e := d.empty(in)
			e.goesOn(t)
			d.end("a")
			var last activities.DrainProgress
			for last = range e.beats {
				if len(last.Departed) > 0 {
					break
				}
			}
			_ = e.quit()
			d.since()
			e = d.empty(in, last)
			e.goesOn(t)
			assert.Empty(t, d.since(), "the volume of a pod that it has never seen")
			d.detach("a")
			d.attach("a")
			e.goesOn(t)
			assert.Equal(t, []asked{evicted("b")}, d.since())
			_ = e.quit()
		})
	})
}

func TestPodsWhoseVolumesNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	ephemeral := pod("b", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	})
	local := pod("b", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	unbound := claim("b")
	unbound.Spec.VolumeName = ""
	for name, objects := range map[string][]runtime.Object{
		"U145: they share them":                  {pod("a", mounting("x")), pod("b", mounting("x")), claim("x"), attached("x", "n")},
		"U150: a claim that is not there":        {pod("a", mounting("a")), pod("b", mounting("b")), claim("a"), attached("a", "n"), attached("b", "n")},
		"U150: a claim that is not bound":        {pod("a", mounting("a")), pod("b", mounting("b")), claim("a"), unbound, attached("a", "n"), attached("b", "n")},
		"U150: a volume that is not attached":    {pod("a", mounting("a")), pod("b", mounting("b")), claim("a"), claim("b"), attached("a", "n")},
		"U150: attached to another node":         {pod("a", mounting("a")), pod("b", mounting("b")), claim("a"), claim("b"), attached("a", "n"), attached("b", "other")},
		"U150: no volumes":                       {pod("a", mounting("a")), pod("b"), claim("a"), attached("a", "n")},
		"DR-06: a folder of the node":            {pod("a", mounting("a")), local, claim("a"), attached("a", "n")},
		"U150: an ephemeral one that is nowhere": {pod("a", mounting("a")), ephemeral, claim("a"), attached("a", "n")},
	} {
		t.Run(name, func(t *testing.T) {
			emptying(t, objects, func(t *testing.T, d *desk, in activities.Eviction) {
				e := d.empty(in)
				e.goesOn(t)
				assert.Equal(t, []asked{evicted("a"), evicted("b")}, d.since(), "at once")
				_ = e.quit()
			})
		})
	}
	t.Run("U144, U146: two volumes in one pod, of which one is shared: the other one counts", func(t *testing.T) {
		objects := []runtime.Object{
			pod("a", mounting("a", "x")), pod("b", mounting("b", "x")), claim("a"), claim("b"), claim("x"), attached("a", "n"), attached("b", "n"), attached("x", "n"),
		}
		emptying(t, objects, func(t *testing.T, d *desk, in activities.Eviction) {
			e := d.empty(in)
			e.goesOn(t)
			assert.Equal(t, []asked{evicted("a")}, d.since())
			d.end("a")
			synctest.Wait()
			d.detach("a")
			d.attach("a")
			e.goesOn(t)
			assert.Equal(t, []asked{evicted("b")}, d.since(), "x is still here")
			_ = e.quit()
		})
	})
}

func TestAPodWhoseVolumesCannotBeLookedUp(t *testing.T) {
	t.Parallel()
	t.Run("waits, and is looked up again", func(t *testing.T) {
		emptying(t, withVolumes(), func(t *testing.T, d *desk, in activities.Eviction) {
			failing(d.target, "get", "persistentvolumeclaims", 2, errors.New("no answer"), nil) // for each of both
			e := d.empty(in)
			e.goesOn(t)
			assert.Empty(t, d.since())
			seen, _ := e.ends(t)
			require.Len(t, seen.Blockers, 1)
			assert.Equal(t, drain.BlockedByError, seen.Blockers[0].Kind)
			assert.Contains(t, seen.Blockers[0].Why, "get claim web/c-a: no answer")

			e = d.empty(in)
			e.goesOn(t)
			assert.Equal(t, []asked{evicted("a")}, d.since())
			_ = e.quit()
		})
	})
	t.Run("for good, goes like one without", func(t *testing.T) {
		emptying(t, withVolumes(), func(t *testing.T, d *desk, in activities.Eviction) {
			failing(d.target, "get", "persistentvolumeclaims", 1000, errors.New("no answer"), nil)
			in.Shown = []drain.Blocker{{Kind: drain.BlockedByError}}
			e := d.empty(in)
			after(30 * time.Second)
			assert.Empty(t, d.since())
			after(20 * time.Second)
			assert.ElementsMatch(t, []asked{evicted("a"), evicted("b")}, d.since())
			_ = e.quit()
		})
	})
	for _, means := range []drain.Means{drain.Delete, drain.Kill} {
		t.Run("U148: does not outlast its deadline: "+string(means), func(t *testing.T) {
			emptying(t, withVolumes(), func(t *testing.T, d *desk, in activities.Eviction) {
				failing(d.target, "get", "persistentvolumeclaims", 1000, errors.New("no answer"), nil)
				in.Means, in.Until = means, time.Now()
				seen, _ := d.empty(in).ends(t)
				assert.Equal(t, activities.OutcomeDeadline, seen.Outcome)
				assert.Len(t, d.since(), 2, "asked once all the same")
			})
		})
	}
}
