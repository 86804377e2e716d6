package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"millwright/api/v1alpha1"
	"millwright/observe"
	"millwright/workflows"
)

const toRollout = "signal " + rolloutOfD

// ofDeployment returns what the deployment's workflow and its rollout were told since the last time.
func (w *world) ofDeployment() []call {
	return slices.DeleteFunc(w.took(), func(c call) bool { return c.id != idOf(aDeployment()) && c.id != rolloutOfD })
}

func lines(calls []call) (all []string) {
	for _, c := range calls {
		all = append(all, c.verb+" "+c.id)
	}
	return all
}

// The rollout that the status names writes the sets: it has to know, and the deployment's workflow has not.
func TestARolloutIsToldInsteadOfItsDeployment(t *testing.T) {
	inWorld(t, rollingStack(open), func(w *world) {
		w.ofDeployment()
		version := w.put(changed(newMachine(), joined))
		w.flush()
		calls := w.ofDeployment()
		require.Equal(t, []string{toRollout}, lines(calls))
		assert.Equal(t, version, calls[0].changed.Versions[observe.Machines])
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

// A status may name a rollout that somebody terminated. Then the deployment's workflow has to start another one.
func TestADeploymentIsToldWhenItsRolloutIsNotOpen(t *testing.T) {
	inWorld(t, rollingStack(open), func(w *world) {
		w.ofDeployment()
		w.close(rolloutOfD)
		version := w.put(changed(newMachine(), joined))
		w.flush()
		calls := w.ofDeployment()
		require.Equal(t, []string{toRollout, awake(aDeployment())}, lines(calls))
		assert.Equal(t, version, calls[1].changed.Versions[observe.Machines])
		assert.Equal(t, calls[1].changed.Versions, calls[1].input.Gate)
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
		assert.Equal(t, []string{toRollout, toRollout, toRollout}, lines(calls), "the rollout may be open: nobody else is told")
		assert.Equal(t, []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond}, times(calls))
		w.reply(nil, 0)
		w.pass(10 * time.Second)
		assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
	})
}

// A rollout waits for machines. What it waits for is told at once, and not when the set has written its status.
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
		{"it runs, and is to go: when it is gone there is more to do", running, toBeDeleted[*v1alpha1.Machine], false},
		{"it has failed, and waits to be replaced", newMachine(), inPhase(v1alpha1.MachineFailed), true},
		{"it is updated in place", running, inPhase(v1alpha1.MachineInPlaceUpdating), true},
		{"it was updated in place", changed(running, inPhase(v1alpha1.MachineInPlaceUpdating)), inPhase(v1alpha1.MachineInPlaceUpdateSuccessful), true},
		{"it was handed over after an in-place update", newMachine(), func(m *v1alpha1.Machine) {
			m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
		}, true},
		{"the autoscaler chose it", newMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, "2026-01-01T00:00:00Z"), true},
		{"it has an instance", newMachine(), inPhase(v1alpha1.MachinePending), false},
		{"it is painted", newMachine(), func(m *v1alpha1.Machine) { m.Labels["color"] = "red" }, false},
		{"it is told what to do first", newMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationMachinePriority, "1"), false},
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
				assert.Equal(t, version, calls[0].changed.Versions[observe.Machines])
			})
		})
	}
}

// A deployment hears in a moment that a machine is on its way out, and at once that it is gone.
func TestADeploymentHearsOfAMachineThatLeaves(t *testing.T) {
	running := changed(newMachine(), joined)
	inWorld(t, append(rollingStack(open), running), func(w *world) {
		w.took()
		leaving := changed(running, toBeDeleted[*v1alpha1.Machine])
		w.put(leaving)
		w.pass(flurry - time.Millisecond)
		assert.Empty(t, w.ofDeployment())
		w.pass(time.Millisecond)
		assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
		w.pass(time.Second)
		w.took()
		w.remove(leaving)
		w.flush()
		assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
	})
}

// Where a machine frees its place when its deletion begins, that is told at once, and that a set has seen its size.
func TestADeploymentHearsAtOnceOfPlacesThatAreFreeEarly(t *testing.T) {
	running := changed(newMachine(), joined)
	early := func(d *v1alpha1.MachineDeployment) {
		d.Spec.Rollout = &v1alpha1.RolloutPolicy{MachineReplacementPolicy: v1alpha1.MachineTerminationStarted}
	}
	for name, change := range map[string]func(w *world){
		"it leaves": func(w *world) { w.put(changed(running, toBeDeleted[*v1alpha1.Machine])) },
		"the size was seen": func(w *world) {
			w.put(changed(newSet(), func(s *v1alpha1.MachineSet) { s.Status.ObservedReplicas = 7 }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, append(rollingStack(open, early), running), func(w *world) {
				w.pass(2 * time.Second)
				w.took()
				change(w)
				w.flush()
				assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
			})
		})
	}
}

// What passes through a deployment twice in each step of a rollout waits less than anything else.
func TestARolloutMayHaveEightSignalsASecond(t *testing.T) {
	inWorld(t, append(rollingStack(open), newMachine()), func(w *world) {
		w.took()
		for i := range 20 {
			w.put(changed(newMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, fmt.Sprint(i))))
			w.pass(50 * time.Millisecond)
		}
		var want []time.Duration
		for i := range 8 {
			want = append(want, time.Duration(i)*perRollout)
		}
		assert.Equal(t, want, times(w.ofDeployment())[:8])
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

// What a rollout waits for it hears of past the set. That the set has counted it, too, comes in a moment.
func TestTheCountsOfASetWakeItsDeploymentInAMoment(t *testing.T) {
	inWorld(t, rollingStack(open), func(w *world) {
		w.took()
		w.put(changed(newSet(), func(s *v1alpha1.MachineSet) { s.Status.ObservedReplicas, s.Status.Replicas = 7, 7 }))
		w.flush()
		assert.Empty(t, w.ofDeployment())
		w.settle()
		assert.Equal(t, []string{toRollout}, lines(w.ofDeployment()))
	})
}

// What a rollout writes on its deployment is no news to it.
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

// A rollout with something to do may have missed a signal. One that waits must be open, and costs nothing if it is.
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
		assert.Empty(t, w.ofDeployment(), "one that was cancelled is over")
		w.pass(aResync)
		assert.Empty(t, w.ofDeployment())
	})
}

func TestTheRolloutThatAStatusNamesIsRecognised(t *testing.T) {
	for _, name := range []string{"d", strings.Repeat("long", 60)} {
		d := changed(aDeployment(), func(d *v1alpha1.MachineDeployment) { d.Name = name })
		names := func(id string) string {
			d.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: id}
			return observe.RolloutNamed(d)
		}
		id := workflows.ID(workflows.KindRollout, refOf(d), 3)
		assert.Equal(t, id, names(id))
		assert.Empty(t, names(idOf(d)))
		other := refOf(d)
		other.UID = "uid-other"
		assert.Empty(t, names(workflows.ID(workflows.KindRollout, other, 3)), "the status came with the object from elsewhere")
	}
}
