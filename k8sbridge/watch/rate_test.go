package watch

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// scale puts a deployment that wants n machines: each such event needs a signal.
func (w *world) scale(n int) string {
	return w.put(changed(aDeployment(), func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = int32(n) }))
}

// times returns the times of calls, relative to the first.
func times(calls []call) []time.Duration {
	var result []time.Duration
	for _, c := range calls {
		result = append(result, c.at.Sub(calls[0].at))
	}
	return result
}

func TestABurstIsTwoSignals(t *testing.T) {
	for _, delay := range []time.Duration{0, 200 * time.Millisecond} { // delay of Temporal's answer
		t.Run(delay.String(), func(t *testing.T) {
			inWorld(t, []runtime.Object{aDeployment(), aSet()}, func(w *world) {
				w.took()
				w.reply(nil, delay)
				start, last := time.Now(), ""
				for i := range 100 {
					last = w.scale(2 + i)
					w.pass(time.Millisecond)
				}
				w.pass(5 * time.Second)
				calls := w.took()
				require.Len(t, calls, 2)
				assert.Equal(t, start, calls[0].at, "the first at once")
				assert.Equal(t, []time.Duration{0, 250 * time.Millisecond}, times(calls))
				assert.Equal(t, last, calls[1].changed.Versions[cache.Deployments], "the second carries the last version")
			})
		})
	}
}

// An object gets at most four signals a second.
func TestASteadyStreamIsOneSignalInAWhile(t *testing.T) {
	machine := changed(aMachine(), uncreated)
	for _, row := range []struct {
		object metav1.Object
		change func(w *world, i int)
		pause  time.Duration
	}{
		{aDeployment(), func(w *world, i int) { w.scale(2 + i) }, 250 * time.Millisecond},
		{aSet(), func(w *world, i int) { w.put(sizedSet(int32(2+i), nil)) }, 250 * time.Millisecond},
		{machine, func(w *world, i int) {
			w.put(changed(machine, func(m *v1alpha1.Machine) { m.Labels["color"] = strconv.Itoa(i) }))
		}, 250 * time.Millisecond},
		{aClass(), func(w *world, i int) {
			w.put(changed(aClass(), bare[*v1alpha1.MachineClass], func(c *v1alpha1.MachineClass) { c.Generation = int64(2 + i) }))
		}, 250 * time.Millisecond},
	} {
		t.Run(idOf(row.object), func(t *testing.T) {
			inWorld(t, []runtime.Object{aDeployment(), aSet(), machine, aClass()}, func(w *world) {
				w.took()
				for i := range 95 {
					row.change(w, i)
					w.pass(100 * time.Millisecond)
				}
				calls := slices.DeleteFunc(w.took(), func(c call) bool { return c.id != idOf(row.object) })
				require.Len(t, calls, int(9500*time.Millisecond/row.pause)+1)
				for i, at := range times(calls) {
					assert.Equal(t, time.Duration(i)*row.pause, at)
				}
			})
		})
	}
}

// Changes of its machines signal a set debounced; a deletion signals it at once, because another machine may take the
// place.
func TestNewsOfMachinesAreGathered(t *testing.T) {
	second := machineNamed("second")
	inWorld(t, append(calmStack(), second, sizedSet(2, nil, aMachine(), second)), func(w *world) {
		w.took()
		ofSet := func() []call {
			return slices.DeleteFunc(w.took(), func(c call) bool { return c.id != idOf(aSet()) })
		}
		start, last := time.Now(), ""
		for i := range 10 {
			last = w.put(
				changed(aMachine(), inPhase([]v1alpha1.MachinePhase{v1alpha1.MachineUnknown, v1alpha1.MachineFailed}[i%2])),
			)
			w.pass(20 * time.Millisecond)
		}
		w.pass(5 * time.Second)
		calls := ofSet()
		require.Len(t, calls, 1)
		assert.Equal(t, start.Add(debounce), calls[0].at)
		assert.Equal(t, last, calls[0].changed.Versions[cache.Machines])

		last = w.put(changed(aMachine(), inPhase(v1alpha1.MachineUnknown)))
		w.remove(second)
		w.flush()
		calls = ofSet()
		require.Len(t, calls, 1, "the debounced event comes with it")
		assert.Equal(t, last, calls[0].changed.Versions[cache.Machines])
		w.pass(5 * time.Second)
		assert.Empty(t, ofSet())
	})
}

func TestVersionsNeverGoBack(t *testing.T) {
	w := wake{}
	for _, versions := range []cache.MinVersions{
		{cache.Machines: "9"}, {cache.Machines: "10", cache.Nodes: "5"}, {cache.Machines: "2"}, nil, {cache.Nodes: "4"},
	} {
		w.merge(wake{versions: versions})
	}
	assert.Equal(t, cache.MinVersions{cache.Machines: "10", cache.Nodes: "5"}, w.versions)
}

func TestOneSignalUnderWayPerObject(t *testing.T) {
	inWorld(t, []runtime.Object{aDeployment(), aSet()}, func(w *world) {
		w.took()
		w.reply(nil, 3*time.Second)
		last := ""
		for i := range 20 {
			last = w.scale(2 + i)
			w.pass(300 * time.Millisecond)
		}
		w.pass(10 * time.Second)
		assert.Equal(t, 1, w.most)
		calls := w.took()
		assert.Equal(t, last, calls[len(calls)-1].changed.Versions[cache.Deployments], "nothing is lost meanwhile")
	})
}

// In a large fleet only objects that are not calm cause requests, and their rate is limited.
func TestSignalsInAll(t *testing.T) {
	var objects []runtime.Object
	for i := range 1000 {
		objects = append(
			objects,
			changed(machineNamed(strconv.Itoa(i)), uncreated, func(m *v1alpha1.Machine) { m.OwnerReferences = nil }),
		)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, objects...)
		start := time.Now()
		w.lead()
		w.pass(10 * time.Second)
		calls := w.took()
		require.Len(t, calls, 1000)
		perSecond := map[int]int{}
		for _, c := range calls {
			perSecond[int(c.at.Sub(start)/time.Second)]++
		}
		assert.LessOrEqual(t, perSecond[0], 2*signalRate, "the limiter starts full")
		for second := 1; second < 10; second++ {
			assert.LessOrEqual(t, perSecond[second], signalRate+1)
		}
	})
}

// Calm objects do not use up the rate limit: a machine behind a thousand of them is signaled at once.
func TestCalmObjectsDoNotStandInLine(t *testing.T) {
	objects := []runtime.Object{aClass()}
	for i := range 1000 {
		objects = append(
			objects,
			changed(
				machineNamed(strconv.Itoa(i)),
				inPhase(v1alpha1.MachineFailed),
				func(m *v1alpha1.Machine) { m.OwnerReferences = nil },
			),
		)
	}
	inWorld(t, objects, func(w *world) {
		assert.Empty(t, w.asked())
		w.put(changed(aMachine(), uncreated))
		w.put(changed(aClass(), func(c *v1alpha1.MachineClass) { c.Generation = 2 })) // evaluates all of them
		w.flush()
		assert.Equal(t, []string{awake(aMachine())}, w.asked())
	})
}

func TestAFailedSignalIsTriedAgain(t *testing.T) {
	busy := serviceerror.NewResourceExhausted(enumspb.RESOURCE_EXHAUSTED_CAUSE_BUSY_WORKFLOW, "closing")
	inWorld(t, []runtime.Object{aDeployment(), aSet(), aClass()}, func(w *world) {
		w.took()
		w.reply(busy, 0)
		w.scale(2)
		w.pass(200 * time.Millisecond)
		last := w.scale(3)
		w.pass(16*time.Second - 200*time.Millisecond)
		calls := w.took()
		assert.Equal(
			t,
			[]time.Duration{
				0,
				500 * time.Millisecond,
				1500 * time.Millisecond,
				3500 * time.Millisecond,
				7500 * time.Millisecond,
				15500 * time.Millisecond,
			},
			times(calls),
			"less and less often, also while the object changes",
		)
		assert.Equal(t, last, calls[1].changed.Versions[cache.Deployments], "with what happened meanwhile")
		w.reply(nil, 0)
		w.pass(20 * time.Second)
		require.Len(t, w.took(), 1)
		w.reply(busy, 0)
		w.scale(4)
		w.pass(time.Second)
		assert.Equal(t, []time.Duration{0, 500 * time.Millisecond}, times(w.took()), "a success ends the back-off")
	})
}

func TestAFailedSignalAboutANodeIsTriedAgain(t *testing.T) {
	for name, start := range map[string]*v1alpha1.Machine{
		"running": aMachine(), "pending": changed(aMachine(), inPhase(v1alpha1.MachinePending)),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, []runtime.Object{start, changed(aNode(), unready)}, func(w *world) {
				w.took()
				w.reply(serviceerror.NewInternal("odd"), 0)
				w.put(changed(aNode(), unready, heartbeat))
				n := changed(aNode(), unready)
				n.Status.Conditions[0].Reason = "Other"
				w.put(n)
				w.settle()
				require.Len(t, w.took(), 1)
				w.reply(nil, 0)
				w.pass(2 * time.Second)
				assert.Equal(t, []string{awake(start)}, w.asked())
			})
		})
	}
}

func TestTemporalAwayAndBack(t *testing.T) {
	alone := func(m *v1alpha1.Machine) { m.OwnerReferences, m.Labels["pool"] = nil, "b" } // no set would adopt it
	waiting := changed(machineNamed("waiting"), uncreated, alone)
	inWorld(t, append(calmStack(), waiting), func(w *world) {
		w.took()
		w.reply(serviceerror.NewUnavailable("away"), 0)
		w.scale(2)
		w.pass(20 * time.Second) // the back-off is long by now
		w.took()
		for i := range 5 { // an evaluation of a calm object sends no request
			w.put(changed(aMachine(), func(m *v1alpha1.Machine) { m.Labels["color"] = fmt.Sprint(i) }))
			w.flush()
		}
		assert.Empty(t, w.asked())
		w.reply(nil, 0)
		w.put(changed(machineNamed("new"), uncreated, alone))
		w.flush()
		asked := w.asked()
		assert.Contains(t, asked, awake(machineNamed("new")), "it answers again")
		assert.Contains(t, asked, awake(aDeployment()), "what was backed off from does not wait any longer")
		assert.Contains(t, asked, awake(waiting), "its run may be lost")
		assert.NotContains(t, asked, awake(aMachine()), "calm")
		w.pass(2 * time.Second)
		w.took()
		w.pass(20 * time.Second)
		assert.Empty(t, w.asked(), "once")
	})
}
