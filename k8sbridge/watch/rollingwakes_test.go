package watch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/deployment"
)

const toRollout = "signal " + rolloutOfD

// ofDeployment returns the signals to the deployment's workflow and its rollout since the last call.
func (w *world) ofDeployment() []call {
	return slices.DeleteFunc(w.took(), func(c call) bool { return c.id != idOf(aDeployment()) && c.id != rolloutOfD })
}

func lines(calls []call) (all []string) {
	for _, c := range calls {
		all = append(all, c.verb+" "+c.id)
	}
	return all
}

// The rollout that the status names writes the sets: it is signaled instead of the deployment's workflow.
func TestARolloutIsToldInsteadOfItsDeployment(t *testing.T) {
	inWorld(t, rollingStack(open), func(w *world) {
		w.ofDeployment()
		version := w.put(changed(newMachine(), joined))
		w.flush()
		calls := w.ofDeployment()
		require.Equal(t, []string{toRollout}, lines(calls))
		assert.Equal(t, version, calls[0].changed.Versions[cache.Machines])
		assert.Equal(t, "uid-d", calls[0].changed.UID)
	})
}

func TestADeploymentIsToldWhenItsStatusNamesNoRollout(t *testing.T) {
	for name, operation := range map[string]*v1alpha1.Operation{
		"nothing":    nil,
		"its own":    {WorkflowID: idOf(aDeployment()), Step: "rollout"},
		"one unread": {},
	} {
		t.Run(name, func(t *testing.T) {
			stack := rollingStack(func(d *v1alpha1.MachineDeployment) { d.Status.CurrentOperation = operation })
			inWorld(t, stack, func(w *world) {
				w.ofDeployment()
				w.put(changed(newMachine(), joined))
				w.flush()
				assert.Equal(t, []string{awake(aDeployment())}, lines(w.ofDeployment()))
			})
		})
	}
}

// A status may name a rollout that was terminated. Then the deployment's workflow has to start another one.
func TestADeploymentIsToldWhenItsRolloutIsNotOpen(t *testing.T) {
	inWorld(t, rollingStack(open), func(w *world) {
		w.ofDeployment()
		w.close(rolloutOfD)
		version := w.put(changed(newMachine(), joined))
		w.flush()
		calls := w.ofDeployment()
		require.Equal(t, []string{toRollout, awake(aDeployment())}, lines(calls))
		assert.Equal(t, version, calls[1].changed.Versions[cache.Machines])
		assert.Equal(t, calls[1].changed.Versions, calls[1].input.Versions)
		w.pass(20 * time.Second)
		assert.Empty(t, w.ofDeployment(), "that is no failure")
	})
}

func TestASignalToARolloutThatFailsIsTriedAgain(t *testing.T) {
	inWorld(t, rollingStack(open), func(w *world) {
		w.ofDeployment()
		w.reply(serviceerror.NewInternal("odd"), 0)
		w.put(changed(newMachine(), joined))
		w.pass(2 * time.Second)
		calls := w.ofDeployment()
		assert.Equal(
			t,
			[]string{toRollout, toRollout, toRollout},
			lines(calls),
			"the rollout may be open: no other workflow is signaled",
		)
		assert.Equal(t, []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond}, times(calls))
		w.reply(nil, 0)
		w.pass(10 * time.Second)
		assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
	})
}

// A rollout waits for machines. Their changes signal it at once, before the set has written its status.
func TestAMachineWakesTheDeploymentPastItsSet(t *testing.T) {
	running := changed(newMachine(), joined)
	for _, row := range []struct {
		name   string
		before *v1alpha1.Machine
		change func(*v1alpha1.Machine)
		wakes  bool
	}{
		{"it runs", newMachine(), joined, true},
		{"it runs no more", running, inPhase(v1alpha1.MachineUnknown), true},
		{"it runs, and is being deleted: that may free its place", running, toBeDeleted[*v1alpha1.Machine], true},
		{"it has failed, and waits to be replaced", newMachine(), inPhase(v1alpha1.MachineFailed), true},
		{"it is updated in place", running, inPhase(v1alpha1.MachineInPlaceUpdating), true},
		{"it was updated in place", changed(running, inPhase(v1alpha1.MachineInPlaceUpdating)), inPhase(v1alpha1.MachineInPlaceUpdateSuccessful), true},
		{"it was handed over after an in-place update", newMachine(), func(m *v1alpha1.Machine) {
			m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
		}, true},
		{"the autoscaler chose it", newMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, "2026-01-01T00:00:00Z"), true},
		{"it has an instance", newMachine(), inPhase(v1alpha1.MachinePending), false},
		{"it is painted", newMachine(), func(m *v1alpha1.Machine) { m.Labels["color"] = "red" }, false},
		{"its priority", newMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationMachinePriority, "1"), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			inWorld(t, append(rollingStack(open), row.before), func(w *world) {
				w.took()
				version := w.put(changed(row.before, row.change))
				w.flush()
				calls := w.ofDeployment()
				if !row.wakes {
					assert.Empty(t, calls)
					return
				}
				require.Equal(t, []string{toRollout}, lines(calls))
				assert.Equal(t, version, calls[0].changed.Versions[cache.Machines])
			})
		})
	}
}

// A deployment is signaled at once when a machine is being deleted, which may free its place, and when it is gone.
func TestADeploymentHearsOfAMachineThatLeaves(t *testing.T) {
	running := changed(newMachine(), joined)
	inWorld(t, append(rollingStack(open), running), func(w *world) {
		w.took()
		leaving := changed(running, toBeDeleted[*v1alpha1.Machine])
		w.put(leaving)
		w.flush()
		assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
		w.pass(time.Second)
		w.took()
		w.remove(leaving)
		w.flush()
		assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
	})
}

func TestARolloutHasFourSignalsASecond(t *testing.T) {
	inWorld(t, append(rollingStack(open), newMachine()), func(w *world) {
		w.took()
		for i := range 20 {
			w.put(changed(newMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, fmt.Sprint(i))))
			w.pass(50 * time.Millisecond)
		}
		var want []time.Duration
		for i := range 4 {
			want = append(want, time.Duration(i)*signalPause)
		}
		assert.Equal(t, want, times(w.ofDeployment())[:4])
	})
}

func TestALoneSetWakesNoDeployment(t *testing.T) {
	lone := changed(aSet(), func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil })
	inWorld(t, append(rollingStack(open), lone), func(w *world) {
		w.pass(2 * time.Second)
		w.took()
		w.put(changed(aMachine(), inPhase(v1alpha1.MachineFailed)))
		w.flush()
		assert.Empty(t, w.ofDeployment())
	})
}

func TestLabelsOfASetWakeItsDeployment(t *testing.T) {
	for name, change := range map[string]onSet{
		"frozen": labelledSet(v1alpha1.LabelFreeze, v1alpha1.ValueTrue),
		"closed": labelledSet(v1alpha1.LabelScaleUpDisabled, v1alpha1.ValueLowerTrue),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, rollingStack(open), func(w *world) {
				w.took()
				w.put(changed(newSet(), change))
				w.flush()
				assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
			})
		})
	}
}

// A change that a rollout waits for signals it before the set's status changes. The set's counts signal it debounced.
func TestTheCountsOfASetWakeItsDeploymentDebounced(t *testing.T) {
	inWorld(t, rollingStack(open), func(w *world) {
		w.took()
		w.put(changed(newSet(), func(s *v1alpha1.MachineSet) { s.Status.ObservedReplicas, s.Status.Replicas = 7, 7 }))
		w.flush()
		assert.Empty(t, w.ofDeployment())
		w.settle()
		assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
	})
}

// Writes of a rollout on its deployment send no signal.
func TestOwnWritesOfARolloutSendNoSignal(t *testing.T) {
	inWorld(t, rollingStack(open), func(w *world) {
		w.took()
		w.put(rollingDeployment(open, func(d *v1alpha1.MachineDeployment) { d.Status.Rollout.Step = 1 }))
		w.pass(time.Second)
		w.put(rollingDeployment(open, func(d *v1alpha1.MachineDeployment) { d.Status.CurrentOperation.Step = "roll" }))
		w.pass(time.Second)
		assert.Empty(t, w.ofDeployment())
	})
}

// report writes what the workflow of the deployment would: its status, and in it what blocks the deployment.
func (w *world) report() {
	d, found := w.cluster.Deployment("ns/d")
	require.True(w.t, found)
	d = d.DeepCopy()
	now := metav1.Now().Rfc3339Copy()
	tree := deployment.Read(w.cluster, d)
	plan := rollout.Plan(deployment.Observed(tree, now.Time))
	deployment.ApplyStatus(&d.Status, plan.Status, now)
	d.Status.ObservedGeneration = d.Generation
	tree.Deployment = d
	deployment.ApplyBlocked(&d.Status, deployment.Explained(tree, plan, "", now.Time).Blocked(now.Time), now)
	w.put(d)
	w.pass(time.Second)
}

// A rollout with pending work may have missed a signal. One that waits must be open; a start changes nothing if it is.
func TestResyncOfARollout(t *testing.T) {
	inWorld(t, rollingStack(open), func(w *world) {
		w.took()
		w.pass(aResync)
		assert.Equal(t, []string{"start " + idOf(aDeployment())}, lines(w.ofDeployment()))
	})
	inWorld(t, append(rollingStack(open), changed(newMachine(), joined)), func(w *world) {
		w.pass(5 * time.Second)
		w.took()
		w.pass(aResync)
		assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
	})
	inWorld(t, rollingStack(open, held), func(w *world) {
		w.report()
		w.took()
		w.pass(aResync)
		assert.Empty(t, w.ofDeployment())
	})
}

func TestTheRolloutThatAStatusNamesIsRecognised(t *testing.T) {
	d := aDeployment()
	names := func(of types.UID) string {
		d.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: rolloutOfD, RolloutOf: of}
		return deployment.Named(d)
	}
	assert.Equal(t, rolloutOfD, names(d.UID))
	assert.Empty(t, names(""), "another workflow")
	assert.Empty(t, names("uid-other"), "the status came with the object from elsewhere")
	d.Status.CurrentOperation = nil
	assert.Empty(t, deployment.Named(d))
}
