package watch

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	observecache "millwright/observe/cache"
)

func TestDeletedMachine(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		w.put(changed(aMachine(), toBeDeleted[*v1alpha1.Machine]))
		w.flush()
		assert.Contains(t, w.asked(), awake(aMachine()), "when it is being deleted")
		w.pass(2 * time.Second)
		w.took()
		w.reply(serviceerror.NewNotFound("closed"), 0) // its workflow has ended with the object
		w.remove(aMachine())
		w.flush()
		for _, c := range w.took() {
			assert.NotEqual(t, idOf(aMachine()), c.id, "its workflow may be about to end by itself")
		}
		w.pass(goneAfter)
		calls := w.took()
		require.NotEmpty(t, calls)
		c := calls[len(calls)-1]
		assert.Equal(
			t,
			"signal "+idOf(aMachine()),
			c.verb+" "+c.id,
			"a signal does not start a run for an object that is gone",
		)
		assert.True(t, c.changed.Deleting)
		assert.Equal(t, "uid-m", c.changed.UID)
		w.pass(20 * time.Second)
		for _, c := range w.took() {
			assert.NotEqual(t, idOf(aMachine()), c.id, "that there was no run is fine")
		}
	})
}

// The node is deleted shortly before its machine: the bridge must not signal a run that is about to end by itself.
func TestDeletedMachineWhoseNodeWentJustBefore(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		going := changed(aMachine(), toBeDeleted[*v1alpha1.Machine])
		w.put(going)
		w.pass(2 * time.Second)
		w.took()
		w.remove(aNode())
		w.pass(50 * time.Millisecond)
		w.remove(going)
		w.pass(goneAfter - time.Millisecond)
		for _, c := range w.took() {
			assert.NotEqual(t, idOf(going), c.id)
		}
		w.pass(time.Millisecond)
		assert.Contains(t, w.asked(), "signal "+idOf(going))
	})
}

// An event that arrives while a signal is in flight is not lost when that signal fails.
func TestDeletedWhileASignalFails(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.reply(serviceerror.NewInternal("odd"), 2*time.Second)
		w.put(again("m", "uid-1"))
		w.flush()
		w.remove(again("m", "uid-1"))
		w.pass(2 * time.Second)
		w.reply(nil, 0)
		w.took()
		w.pass(goneAfter)
		assert.Contains(t, w.asked(), "signal "+idOf(again("m", "uid-1")))
	})
}

func again(name, uid string) *v1alpha1.Machine {
	return changed(machineNamed(name), uncreated, func(m *v1alpha1.Machine) { m.UID = types.UID(uid) })
}

func TestRecreatedUnderTheSameName(t *testing.T) {
	first, second, third := again("m", "uid-1"), again("m", "uid-2"), again("m", "uid-3")
	inWorld(t, []runtime.Object{first}, func(w *world) {
		w.took()
		w.remove(first)
		w.put(second)
		w.flush()
		assert.Subset(
			t,
			w.asked(),
			[]string{"signal " + idOf(first), awake(second)},
			"the new object does not wait for the old one",
		)
	})
	inWorld(t, []runtime.Object{first}, func(w *world) {
		w.took()
		w.reply(serviceerror.NewUnavailable("away"), 0)
		w.remove(first)
		w.put(second)
		w.pass(time.Second)
		w.remove(second)
		w.put(third)
		w.pass(time.Second)
		w.reply(nil, 0)
		w.took()
		w.pass(10 * time.Second)
		assert.Subset(
			t,
			w.asked(),
			[]string{"signal " + idOf(first), "signal " + idOf(second), awake(third)},
			"no workflow waits for a deleted object",
		)
	})
}

// After a broken watch, an object that was deleted and created again meanwhile appears as one that changed.
func TestRecreatedWhileTheWatchWasBroken(t *testing.T) {
	first, second := again("m", "uid-1"), again("m", "uid-2")
	inWorld(t, []runtime.Object{first}, func(w *world) {
		w.took()
		version := w.put(second)
		w.pass(goneAfter)
		calls := map[string]call{}
		for _, c := range w.took() {
			calls[c.verb+" "+c.id] = c
		}
		require.Contains(t, calls, "signal "+idOf(first))
		assert.Equal(
			t,
			version,
			calls["signal "+idOf(first)].changed.Versions[observecache.Machines],
			"a cache that old still has the first",
		)
		assert.Contains(t, calls, awake(second))
		assert.Equal(t, 1, w.seen(), "the first is forgotten")
	})
}

// A deletion that the watch missed is reported with the object as it was before. A cache with that version does not
// show the deletion.
func TestTombstoneCarriesTheVersionOfTheCache(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		version := w.put(changed(aMachine(), inPhase(v1alpha1.MachineRunning)))
		w.flush()
		informer := w.cluster.Informer(observecache.Machines)
		require.Equal(t, version, informer.GetStore().LastStoreSyncResourceVersion())
		old := changed(machineNamed("old"), func(m *v1alpha1.Machine) { m.ResourceVersion = "1" })
		w.bridge.handler(observecache.Machines, informer).OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/old", Obj: old})
		w.pass(goneAfter + time.Second)
		for _, c := range w.took() {
			if c.id == idOf(old) {
				assert.Equal(t, version, c.changed.Versions[observecache.Machines])
				return
			}
		}
		assert.Fail(t, "no signal was sent")
	})
}

func TestDeletedSetAndDeployment(t *testing.T) {
	inWorld(t, calmStack(), func(w *world) {
		w.remove(aSet())
		w.remove(aDeployment())
		w.pass(goneAfter)
		assert.Subset(t, w.asked(), []string{"signal " + idOf(aSet()), "signal " + idOf(aDeployment())})
	})
}

// A rollout may be open although its deployment's workflow is not: only the bridge can signal it that the deployment is
// gone.
func TestDeletedDeploymentWithARolloutThatIsOpen(t *testing.T) {
	for name, row := range map[string]struct {
		closed string
		wanted []string
	}{
		"both are open":                         {"", []string{toRollout, "signal " + idOf(aDeployment())}},
		"the deployment's workflow is not open": {idOf(aDeployment()), []string{toRollout, "signal " + idOf(aDeployment())}},
		"the rollout is not open":               {rolloutOfD, []string{toRollout, "signal " + idOf(aDeployment())}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, rollingStack(open), func(w *world) {
				w.close(row.closed)
				w.ofDeployment()
				w.remove(rollingDeployment(open))
				w.pass(goneAfter)
				calls := w.ofDeployment()
				require.Equal(t, row.wanted, lines(calls))
				for _, c := range calls {
					assert.Equal(t, []any{"uid-d", true}, []any{c.changed.UID, c.changed.Deleting})
					assert.NotEmpty(t, c.changed.Versions[observecache.Deployments], "a cache that old still has it")
				}
				w.pass(20 * time.Second)
				assert.Empty(t, w.ofDeployment(), "that one is not open is no failure")
			})
		})
	}
}

func TestDeletedDeploymentIsToldAgainWhenASignalFails(t *testing.T) {
	inWorld(t, rollingStack(open), func(w *world) {
		w.ofDeployment()
		w.remove(rollingDeployment(open))
		w.flush()
		w.reply(serviceerror.NewInternal("odd"), 0)
		w.pass(goneAfter)
		assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
		w.reply(nil, 0)
		w.pass(10 * time.Second)
		assert.Equal(t, []string{toRollout, "signal " + idOf(aDeployment())}, lines(w.ofDeployment()))
	})
}

// The bridge's memory is bounded by the number of existing objects.
func TestNothingIsRememberedOfWhatIsGone(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		for round := range 3 {
			var made []runtime.Object
			for i := range 20 {
				m := again(fmt.Sprintf("m-%d", i), fmt.Sprintf("uid-%d-%d", round, i))
				n := nodeNamed(fmt.Sprintf("n-%d", i))
				n.UID = types.UID(fmt.Sprintf("uid-n-%d-%d", round, i))
				made = append(made, m, n)
				w.put(m)
				w.put(n)
				w.pass(100 * time.Millisecond)
			}
			w.put(aSet())
			w.put(aDeployment())
			w.pass(5 * time.Second)
			if round == 1 {
				w.reply(serviceerror.NewUnavailable("away"), 0) // back-offs are stored, too
			}
			for _, o := range append(made, aSet(), aDeployment()) {
				w.remove(o)
			}
			w.pass(10 * time.Second)
			w.reply(nil, 0)
			w.pass(2 * time.Minute)
			assert.Zero(t, w.remembered(), "round %d", round)
			assert.Zero(t, w.seen(), "round %d", round)
			for _, o := range made {
				if m, ok := o.(*v1alpha1.Machine); ok {
					assert.Zero(t, w.bridge.backoff.NumRequeues(key{"Machine", "ns", m.Name}))
				}
			}
		}
	})
}
