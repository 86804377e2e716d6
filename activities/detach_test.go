package activities_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities"
	"millwright/decide/drain"
)

func detaching(a *storagev1.VolumeAttachment) {
	going(a)
	a.Finalizers = []string{"external-attacher/csi-example-com"}
}

func attachingStill(a *storagev1.VolumeAttachment) { a.Status.Attached = false }

// awaitDetach runs AwaitDetach.
func (w *world) awaitDetach(in activities.Detaching) *attempt[activities.Detached] {
	return attemptTo[activities.Detached](w, w.AwaitDetach, in, func(*testsuite.TestActivityEnvironment) {})
}

// detachingFrom runs a test in a bubble with a node to which things are attached.
func detachingFrom(t *testing.T, objects []runtime.Object, test func(*testing.T, *desk, activities.Detaching)) {
	t.Helper()
	emptying(t, objects, func(t *testing.T, d *desk, in activities.Eviction) {
		test(t, d, activities.Detaching{Machine: in.Machine, NodeName: "n", Since: time.Now()})
	})
}

func TestAwaitDetach(t *testing.T) {
	t.Parallel()
	agent := pod("agent", ofDaemonSet, mounting("a"))
	web := pod("web", mounting("a"))
	for name, row := range map[string]struct {
		objects []runtime.Object
		left    []string // for ever
	}{
		"VD-18: no volumes":                           {nil, nil},
		"those of another node":                       {[]runtime.Object{attached("a", "other")}, nil},
		"VD-12: one of a pod of a DaemonSet":          {[]runtime.Object{agent, claim("a"), attached("a", "n")}, nil},
		"one of a static pod":                         {[]runtime.Object{pod("x", mirror, mounting("a")), claim("a"), attached("a", "n")}, nil},
		"VD-13: one with a claim":                     {[]runtime.Object{claim("a"), attached("a", "n")}, []string{"pv-a"}},
		"VD-14: one that nobody claims":               {[]runtime.Object{attached("a", "n")}, []string{"pv-a"}},
		"VD-15: one that the cluster does not know":   {[]runtime.Object{attached("", "n")}, []string{"-on-n"}},
		"D16: one that is being detached":             {[]runtime.Object{attached("a", "n", detaching)}, []string{"pv-a"}},
		"one that is being attached":                  {[]runtime.Object{attached("a", "n", attachingStill)}, []string{"pv-a"}},
		"VD-17: one whose pod is being deleted":       {[]runtime.Object{pod("x", mounting("a"), going[*corev1.Pod]), claim("a"), attached("a", "n")}, []string{"pv-a"}},
		"VD-12: but the others, sorted":               {[]runtime.Object{agent, claim("a"), attached("c", "n"), attached("a", "n"), attached("b", "n")}, []string{"pv-b", "pv-c"}},
		"one of a pod that has to go":                 {[]runtime.Object{web, claim("a"), attached("a", "n")}, []string{"pv-a"}},
		"a pod of a DaemonSet whose claim is missing": {[]runtime.Object{agent, attached("a", "n")}, []string{"pv-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			detachingFrom(t, row.objects, func(t *testing.T, d *desk, in activities.Detaching) {
				got, took := d.awaitDetach(in).ends(t)
				if row.left == nil {
					assert.Empty(t, got.Left)
					assert.Zero(t, took, "at once")
				} else {
					assert.Equal(t, row.left, got.Left)
					assert.Equal(t, activities.DefaultDetachTimeout, took, "D16: not without an end")
				}
				assert.Empty(t, d.writes())
			})
		})
	}
}

func TestAwaitDetachIsWokenByTheLastOne(t *testing.T) {
	t.Parallel()
	detachingFrom(t, []runtime.Object{attached("a", "n"), attached("b", "n")}, func(t *testing.T, d *desk, in activities.Detaching) {
		a := d.awaitDetach(in)
		after(time.Minute)
		d.detach("a")
		a.goesOn(t)
		d.detach("b")
		got, took := a.ends(t)
		assert.Zero(t, took)
		assert.Empty(t, got.Left)
	})
}

func TestTheTimeOfAwaitDetach(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		since  time.Duration
		detach time.Duration
		took   time.Duration
	}{
		"VD-06: it is over":                 {-time.Hour, 2 * time.Minute, 0},
		"VD-07: it is not over":             {-time.Minute, 2 * time.Minute, time.Minute},
		"VD-07: it has just begun":          {0, 100 * time.Second, 100 * time.Second},
		"VD-08: of 0: nobody waits":         {0, 0, 0},
		"it began by a clock that is ahead": {time.Minute, time.Minute, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			detachingFrom(t, []runtime.Object{attached("a", "n")}, func(t *testing.T, d *desk, in activities.Detaching) {
				d.Draining.Detach, in.Since = row.detach, in.Since.Add(row.since)
				got, took := d.awaitDetach(in).ends(t)
				assert.Equal(t, row.took, took)
				assert.Equal(t, []string{"pv-a"}, got.Left)
			})
		})
	}
	t.Run("what is left is told, as far as a status holds it", func(t *testing.T) {
		var many []runtime.Object
		for i := range 30 {
			many = append(many, attached(fmt.Sprintf("%02d", i), "n"))
		}
		detachingFrom(t, many, func(t *testing.T, d *desk, in activities.Detaching) {
			d.Draining.Detach = 0
			got, _ := d.awaitDetach(in).ends(t)
			require.Len(t, got.Left, drain.MaxRows)
			assert.Equal(t, []string{"pv-00", "pv-19"}, []string{got.Left[0], got.Left[19]})
		})
	})
}

func TestAwaitDetachEnds(t *testing.T) {
	t.Parallel()
	one := []runtime.Object{attached("a", "n"), pod("agent", ofDaemonSet, mounting("x"))}
	t.Run("with its context", func(t *testing.T) {
		detachingFrom(t, one, func(t *testing.T, d *desk, in activities.Detaching) {
			a := d.awaitDetach(in)
			a.goesOn(t)
			assertCanceled(t, a.quit())
		})
	})
	t.Run("with the worker, and another attempt is to look again", func(t *testing.T) {
		detachingFrom(t, one, func(t *testing.T, d *desk, in activities.Detaching) {
			a := d.awaitDetach(in)
			a.goesOn(t)
			close(a.stop)
			var application *temporal.ApplicationError
			require.ErrorAs(t, (<-a.ended).err, &application)
			assert.Equal(t, "the worker stops while it waits for the volumes of node n", application.Message())
			assert.False(t, application.NonRetryable())
		})
	})
	for _, row := range []struct{ verb, resource, message string }{
		{"list", "pods", "list pods of node n: no answer"}, {"get", "persistentvolumeclaims", "get claim web/c-x: no answer"},
	} {
		t.Run("it cannot see the volumes of the pods that stay: "+row.resource, func(t *testing.T) {
			detachingFrom(t, one, func(t *testing.T, d *desk, in activities.Detaching) {
				failing(d.target, row.verb, row.resource, 1, errors.New("no answer"), nil)
				_, err := run[activities.Detached](d.world, d.AwaitDetach, in)
				require.ErrorContains(t, err, row.message)
				_, retryable := failure(t, err)
				assert.True(t, retryable)
			})
		})
	}
}

func (w *world) attachment(name, node string) *storagev1.VolumeAttachment {
	w.t.Helper()
	object, err := w.target.Tracker().Get(storagev1.SchemeGroupVersion.WithResource("volumeattachments"), "", name+"-on-"+node)
	if err != nil {
		return nil
	}
	return object.(*storagev1.VolumeAttachment)
}

func assertCanceled(t *testing.T, err error) {
	t.Helper()
	var application *temporal.ApplicationError // what the SDK's test environment makes of it
	require.ErrorAs(t, err, &application)
	assert.Equal(t, context.Canceled.Error(), application.Message())
}
