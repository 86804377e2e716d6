package watch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/observe/cache"
	"millwright/workflows/run"
)

// aResync is the longest time until the next resync.
const aResync = resyncEach + resyncEach/10

func TestResync(t *testing.T) {
	creating := changed(machineNamed("creating"), uncreated)
	joining := changed(machineNamed("joining"), inPhase(v1alpha1.MachinePending))
	going := changed(machineNamed("going"), toBeDeleted[*v1alpha1.Machine])
	unhealthy := machineNamed("sick") // its phase says Running and there is no node
	failed := changed(machineNamed("failed"), inPhase(v1alpha1.MachineFailed))
	lost := machineNamed("lost")
	objects := []runtime.Object{creating, joining, going, unhealthy, failed, nodeNamed("n-lost"), lost, aClass(), aSet()}
	inWorld(t, objects, func(w *world) {
		w.took()
		w.pass(aResync)
		assert.Equal(t, []string{
			awake(unhealthy), awake(aSet()), // must have been done at once: an open run may have missed the signal
			// a run must be open; a start changes nothing if one is
			"start " + idOf(creating), "start " + idOf(going), "start " + idOf(joining),
		}, w.asked())
	})
}

// A call of a provider that has been open for two minutes is named within ten seconds. One that is over, or that the
// status names already, needs no signal.
func TestAnOpenCallIsNamed(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		calling := func(since time.Duration, by ...string) func(*v1alpha1.Machine) {
			return func(m *v1alpha1.Machine) {
				uncreated(m)
				m.Status.CurrentOperation = &v1alpha1.Operation{
					Step:      vocabulary.StepCreateInstance,
					Since:     metav1.NewTime(time.Now().Add(-since)),
					BlockedBy: by,
				}
			}
		}
		w.pass(20 * time.Second) // the second minute of the calls does not end with a resync
		hangs, quick := changed(machineNamed("hangs"), calling(0)), changed(machineNamed("quick"), calling(0))
		w.put(hangs)
		w.put(quick)
		w.put(changed(machineNamed("named"), calling(time.Hour, vocabulary.BlockedCall)))
		signals := func() []string {
			return slices.DeleteFunc(
				slices.Compact(w.asked()),
				func(asked string) bool { return !strings.HasPrefix(asked, "signal") },
			)
		}
		w.pass(115 * time.Second)
		signals()
		w.put(changed(machineNamed("quick"), inPhase(v1alpha1.MachinePending)))
		w.pass(4 * time.Second)
		signals()
		w.pass(12 * time.Second)
		assert.Equal(t, []string{awake(hangs)}, signals())
		w.put(changed(machineNamed("hangs"), calling(131*time.Second, vocabulary.BlockedCall)))
		w.settle()
		signals()
		w.pass(time.Minute)
		assert.Empty(t, signals(), "its status names the call")
	})
}

func TestAStartReadsWhatTheBridgeRead(t *testing.T) {
	inWorld(t, []runtime.Object{aClass()}, func(w *world) {
		class := w.put(aClass())
		machine := w.put(changed(aMachine(), uncreated))
		w.pass(5 * time.Second)
		w.took()
		w.pass(aResync)
		calls := w.took()
		require.Len(t, calls, 1)
		c := calls[0]
		assert.Equal(t, "start garden/machine/ns/m/uid-m", c.verb+" "+c.id)
		assert.Equal(t, "Machine", c.workflow)
		assert.Equal(t, run.Input{
			Ref:      cache.Ref{Namespace: "ns", Name: "m", UID: "uid-m"},
			Versions: cache.MinVersions{cache.Machines: machine, cache.Classes: class},
		}, c.input)
		assert.Equal(t, enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING, c.options.WorkflowIDConflictPolicy)
		assert.False(t, c.options.WorkflowExecutionErrorWhenAlreadyStarted)
	})
}

// A group's workflow reads at least the member versions that the bridge decided from.
func TestGroupsReadWhatTheBridgeRead(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.put(aMachine())
		machine := w.put(machineNamed("second"))
		set := w.put(aSet())
		deployment := w.put(changed(aDeployment(), func(d *v1alpha1.MachineDeployment) { d.Status.ReadyReplicas = 0 }))
		w.pass(5 * time.Second)
		w.took()
		w.pass(aResync)
		gates := map[string]cache.MinVersions{}
		for _, c := range w.took() {
			gates[c.id] = c.changed.Versions
		}
		assert.Equal(
			t,
			cache.MinVersions{cache.Sets: set, cache.Machines: machine, cache.Deployments: deployment},
			gates[idOf(aSet())],
		)
		assert.Equal(
			t,
			cache.MinVersions{cache.Deployments: deployment, cache.Sets: set, cache.Machines: machine},
			gates[idOf(aDeployment())],
		)
	})
}

func TestAResyncThatFails(t *testing.T) {
	waiting := changed(aMachine(), uncreated)
	inWorld(t, []runtime.Object{waiting}, func(w *world) {
		w.took()
		w.reply(serviceerror.NewUnavailable("away"), 0)
		w.pass(aResync)
		assert.Equal(t, []string{"start " + idOf(waiting)}, w.asked())
		w.reply(nil, 0)
		w.pass(aResync)
		asked := w.asked()
		assert.Contains(t, asked, "start "+idOf(waiting), "the next minute")
		assert.Contains(t, asked, awake(waiting), "Temporal was away: everything is looked at")
	})
}

// A Temporal whose data are lost has no namespace until it is bootstrapped again.
func TestATemporalWithoutItsNamespaceWasAway(t *testing.T) {
	waiting := changed(aMachine(), uncreated)
	f := newTimetable()
	sweeping(t, f, []runtime.Object{waiting, aClass()}, func(w *world) {
		w.took()
		w.reply(serviceerror.NewNamespaceNotFound("millwright"), 0)
		w.pass(aResync)
		w.reply(nil, 0)
		f.change(func(there map[string]client.Schedule) { delete(there, smallSweeps) })
		w.took()
		f.did()
		w.pass(aResync)
		assert.Contains(t, w.asked(), awake(waiting), "everything is looked at")
		assert.Contains(t, f.did(), "create "+smallSweeps)
	})
}

func TestANewLeaderLooksAtEverything(t *testing.T) {
	waiting := changed(machineNamed("waiting"), uncreated)
	unhealthy := machineNamed("sick")
	inWorld(t, append(calmStack(), waiting, unhealthy), func(w *world) {
		first := slices.Compact(w.asked()) // a set is signaled for itself and for its machines
		assert.Equal(t, []string{awake(unhealthy), awake(waiting), awake(aDeployment()), awake(aSet())}, first)
		w.lead()
		w.pass(3 * time.Second)
		assert.Equal(t, first, slices.Compact(w.asked()), "whatever the leader before has signaled")
		w.put(changed(aMachine(), toBeDeleted[*v1alpha1.Machine]))
		w.settle()
		assert.Equal(
			t,
			[]string{awake(aMachine()), awake(aDeployment()), awake(aSet())},
			w.asked(),
			"and the former leader signals no more",
		)
	})
}

func TestShutdown(t *testing.T) {
	var objects []runtime.Object
	for _, name := range []string{"a", "b", "c"} {
		objects = append(objects, changed(machineNamed(name), uncreated))
	}
	inWorld(t, objects, func(w *world) {
		w.took()
		w.reply(nil, time.Hour) // Temporal does not answer
		w.put(changed(machineNamed("d"), uncreated))
		for i := range 10 {
			w.put(changed(machineNamed("a"), uncreated, func(m *v1alpha1.Machine) { m.Spec.Class.Name = string(rune('a' + i)) }))
		}
		w.flush()
		start := time.Now()
		w.stop()
		assert.Equal(t, start, time.Now(), "it does not wait")
		w.reply(nil, 0)
		w.took()
		w.pass(time.Hour)
		assert.Empty(t, w.asked(), "and is quiet from then on")
		w.lead()
		w.pass(3 * time.Second)
		assert.Len(t, w.asked(), 4, "the next leader sends the lost signals")
	})
}

// A run whose object vanished while no bridge led is open for ever unless somebody signals it.
func TestRunsWhoseObjectsAreGoneAreSignaled(t *testing.T) {
	ref := goneRef
	strays := []string{
		garden.ID(run.KindMachine, ref("m")), // a machine of that name exists, with another UID
		garden.ID(
			run.KindMachineClass,
			ref("x"),
		),
		garden.ID(run.KindMachineSet, ref("x")),
		garden.ID(run.KindRollout, ref("d"), 3),
	}
	others := []string{
		idOf(aMachine()),
		run.Installation("shoot").ID(run.KindMachine, ref("x")),
		garden.MarkID(),
		"somebody-elses",
	}
	proveStrays(t, []runtime.Object{aMachine(), nodeNamed("n"), aDeployment()}, strays, others)
}

// goneRef names an object that does not exist.
func goneRef(name string) cache.Ref { return cache.Ref{Namespace: "ns", Name: name, UID: "uid-gone"} }

// proveStrays checks that of these open runs the strays are signaled, and the others are not.
func proveStrays(t *testing.T, objects []runtime.Object, strays, others []string) {
	t.Helper()
	inWorld(t, objects, func(w *world) {
		w.took()
		w.runs = slices.Concat(others, strays)
		for _, way := range []string{"a new leader", "after an error"} {
			if way == "after an error" {
				w.reply(serviceerror.NewUnavailable("away"), 0)
			}
			w.lead()
			w.pass(time.Second)
			if way == "after an error" {
				w.reply(nil, 0)
				w.took()
				w.pass(2 * aResync)
			}
			var signaled []string
			for _, c := range w.took() {
				if c.verb == "signal" {
					signaled = append(signaled, c.id)
					assert.Equal(
						t,
						run.Changed{UID: "uid-gone", Deleting: true},
						run.Changed{UID: c.changed.UID, Deleting: c.changed.Deleting},
					)
				}
			}
			slices.Sort(signaled)
			slices.Sort(strays)
			assert.Equal(t, strays, signaled, way)
		}
	})
}
