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

const rolloutSignal = "signal " + rolloutOfD

// takeDeploymentCalls returns the signals to the deployment's workflow and to its rollout since the last call.
func (w *world) takeDeploymentCalls() []temporalCall {
	return slices.DeleteFunc(
		w.takeCalls(),
		func(c temporalCall) bool { return c.id != workflowIDOf(aDeployment()) && c.id != rolloutOfD },
	)
}

func callLines(calls []temporalCall) (all []string) {
	for _, c := range calls {
		all = append(all, c.verb+" "+c.id)
	}
	return all
}

// The rollout in the deployment's status writes the sets. The bridge signals the rollout instead of the deployment's
// workflow.
func TestRolloutIsSignaledInsteadOfItsDeployment(t *testing.T) {
	inWorld(t, rollingStack(withOpenRollout), func(w *world) {
		w.takeDeploymentCalls()
		version := w.putObject(changedCopy(newMachine(), setJoined))
		w.runDueWork()
		calls := w.takeDeploymentCalls()
		require.Equal(t, []string{rolloutSignal}, callLines(calls))
		assert.Equal(t, version, calls[0].changed.Versions[cache.Machines])
		assert.Equal(t, "uid-d", calls[0].changed.UID)
	})
}

func TestDeploymentIsSignaledIfItsStatusNamesNoRollout(t *testing.T) {
	for name, operation := range map[string]*v1alpha1.Operation{
		"nothing":    nil,
		"its own":    {WorkflowID: workflowIDOf(aDeployment()), Step: "rollout"},
		"one unread": {},
	} {
		t.Run(name, func(t *testing.T) {
			stack := rollingStack(func(d *v1alpha1.MachineDeployment) { d.Status.CurrentOperation = operation })
			inWorld(t, stack, func(w *world) {
				w.takeDeploymentCalls()
				w.putObject(changedCopy(newMachine(), setJoined))
				w.runDueWork()
				assert.Equal(t, []string{startSignalOf(aDeployment())}, callLines(w.takeDeploymentCalls()))
			})
		})
	}
}

// A status may name a rollout that was terminated. The deployment's workflow must then start another rollout.
func TestDeploymentIsSignaledIfItsRolloutIsNotOpen(t *testing.T) {
	inWorld(t, rollingStack(withOpenRollout), func(w *world) {
		w.takeDeploymentCalls()
		w.closeWorkflow(rolloutOfD)
		version := w.putObject(changedCopy(newMachine(), setJoined))
		w.runDueWork()
		calls := w.takeDeploymentCalls()
		require.Equal(t, []string{rolloutSignal, startSignalOf(aDeployment())}, callLines(calls))
		assert.Equal(t, version, calls[1].changed.Versions[cache.Machines])
		assert.Equal(t, calls[1].changed.Versions, calls[1].input.Versions)
		w.advance(20 * time.Second)
		assert.Empty(t, w.takeDeploymentCalls(), "that is no failure")
	})
}

func TestASignalToARolloutThatFailsIsTriedAgain(t *testing.T) {
	inWorld(t, rollingStack(withOpenRollout), func(w *world) {
		w.takeDeploymentCalls()
		w.setAnswer(serviceerror.NewInternal("odd"), 0)
		w.putObject(changedCopy(newMachine(), setJoined))
		w.advance(2 * time.Second)
		calls := w.takeDeploymentCalls()
		assert.Equal(
			t,
			[]string{rolloutSignal, rolloutSignal, rolloutSignal},
			callLines(calls),
			"the rollout may be open: no other workflow is signaled",
		)
		assert.Equal(t, []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond}, callTimes(calls))
		w.setAnswer(nil, 0)
		w.advance(10 * time.Second)
		assert.Equal(t, []string{rolloutSignal}, callLines(w.takeDeploymentCalls()))
	})
}

// A rollout waits for machines. Changes of the machines signal the rollout at once, before the set has written its
// status.
func TestAMachineWakesTheDeploymentBeforeItsSetReports(t *testing.T) {
	running := changedCopy(newMachine(), setJoined)
	for _, row := range []struct {
		name   string
		before *v1alpha1.Machine
		change func(*v1alpha1.Machine)
		wakes  bool
	}{
		{"it runs", newMachine(), setJoined, true},
		{"it runs no more", running, withPhase(v1alpha1.MachineUnknown), true},
		{"it runs, and is being deleted: that may free its place", running, setDeleting[*v1alpha1.Machine], true},
		{"it has failed, and waits to be replaced", newMachine(), withPhase(v1alpha1.MachineFailed), true},
		{"it is updated in place", running, withPhase(v1alpha1.MachineInPlaceUpdating), true},
		{"it was updated in place", changedCopy(running, withPhase(v1alpha1.MachineInPlaceUpdating)), withPhase(v1alpha1.MachineInPlaceUpdateSuccessful), true},
		{"it was handed over after an in-place update", newMachine(), func(m *v1alpha1.Machine) {
			m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
		}, true},
		{"the autoscaler chose it", newMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, "2026-01-01T00:00:00Z"), true},
		{"it has an instance", newMachine(), withPhase(v1alpha1.MachinePending), false},
		{"it is painted", newMachine(), func(m *v1alpha1.Machine) { m.Labels["color"] = "red" }, false},
		{"its priority", newMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationMachinePriority, "1"), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			inWorld(t, append(rollingStack(withOpenRollout), row.before), func(w *world) {
				w.takeCalls()
				version := w.putObject(changedCopy(row.before, row.change))
				w.runDueWork()
				calls := w.takeDeploymentCalls()
				if !row.wakes {
					assert.Empty(t, calls)
					return
				}
				require.Equal(t, []string{rolloutSignal}, callLines(calls))
				assert.Equal(t, version, calls[0].changed.Versions[cache.Machines])
			})
		})
	}
}

// A deployment is signaled at once when a machine is being deleted, because that may allow another machine, and when
// the machine is gone.
func TestDeploymentIsSignaledForADeletedMachine(t *testing.T) {
	running := changedCopy(newMachine(), setJoined)
	inWorld(t, append(rollingStack(withOpenRollout), running), func(w *world) {
		w.takeCalls()
		leaving := changedCopy(running, setDeleting[*v1alpha1.Machine])
		w.putObject(leaving)
		w.runDueWork()
		assert.Equal(t, []string{rolloutSignal}, callLines(w.takeDeploymentCalls()))
		w.advance(time.Second)
		w.takeCalls()
		w.deleteObject(leaving)
		w.runDueWork()
		assert.Equal(t, []string{rolloutSignal}, callLines(w.takeDeploymentCalls()))
	})
}

func TestARolloutHasFourSignalsASecond(t *testing.T) {
	inWorld(t, append(rollingStack(withOpenRollout), newMachine()), func(w *world) {
		w.takeCalls()
		for i := range 20 {
			w.putObject(
				changedCopy(newMachine(), annotated[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, fmt.Sprint(i))),
			)
			w.advance(50 * time.Millisecond)
		}
		var want []time.Duration
		for i := range 4 {
			want = append(want, time.Duration(i)*minSignalInterval)
		}
		assert.Equal(t, want, callTimes(w.takeDeploymentCalls())[:4])
	})
}

func TestASetWithoutADeploymentWakesNoDeployment(t *testing.T) {
	lone := changedCopy(aSet(), func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil })
	inWorld(t, append(rollingStack(withOpenRollout), lone), func(w *world) {
		w.advance(2 * time.Second)
		w.takeCalls()
		w.putObject(changedCopy(aMachine(), withPhase(v1alpha1.MachineFailed)))
		w.runDueWork()
		assert.Empty(t, w.takeDeploymentCalls())
	})
}

func TestLabelsOfASetWakeItsDeployment(t *testing.T) {
	for name, change := range map[string]onSet{
		"frozen": labelledSet(v1alpha1.LabelFreeze, v1alpha1.ValueTrue),
		"closed": labelledSet(v1alpha1.LabelScaleUpDisabled, v1alpha1.ValueLowerTrue),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, rollingStack(withOpenRollout), func(w *world) {
				w.takeCalls()
				w.putObject(changedCopy(newSet(), change))
				w.runDueWork()
				assert.Equal(t, []string{rolloutSignal}, callLines(w.takeDeploymentCalls()))
			})
		})
	}
}

// If a rollout waits for a change, the change signals the rollout before the set's status changes. The set's counts
// signal the rollout debounced.
func TestTheCountsOfASetWakeItsDeploymentDebounced(t *testing.T) {
	inWorld(t, rollingStack(withOpenRollout), func(w *world) {
		w.takeCalls()
		w.putObject(
			changedCopy(newSet(), func(s *v1alpha1.MachineSet) { s.Status.ObservedReplicas, s.Status.Replicas = 7, 7 }),
		)
		w.runDueWork()
		assert.Empty(t, w.takeDeploymentCalls())
		w.runDebouncedWork()
		assert.Equal(t, []string{rolloutSignal}, callLines(w.takeDeploymentCalls()))
	})
}

// Writes of a rollout to its deployment send no signal.
func TestOwnWritesOfARolloutSendNoSignal(t *testing.T) {
	inWorld(t, rollingStack(withOpenRollout), func(w *world) {
		w.takeCalls()
		w.putObject(rollingDeployment(withOpenRollout, func(d *v1alpha1.MachineDeployment) { d.Status.Rollout.Step = 1 }))
		w.advance(time.Second)
		w.putObject(
			rollingDeployment(withOpenRollout, func(d *v1alpha1.MachineDeployment) { d.Status.CurrentOperation.Step = "roll" }),
		)
		w.advance(time.Second)
		assert.Empty(t, w.takeDeploymentCalls())
	})
}

// reportStatus writes the deployment's status like its workflow, including the blockers of the deployment.
func (w *world) reportStatus() {
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
	w.putObject(d)
	w.advance(time.Second)
}

// A rollout with pending work may have missed a signal. A rollout that waits must have an open run; a start does not
// change an open run.
func TestResyncOfARollout(t *testing.T) {
	inWorld(t, rollingStack(withOpenRollout), func(w *world) {
		w.takeCalls()
		w.advance(maxResyncInterval)
		assert.Equal(t, []string{"start " + workflowIDOf(aDeployment())}, callLines(w.takeDeploymentCalls()))
	})
	inWorld(t, append(rollingStack(withOpenRollout), changedCopy(newMachine(), setJoined)), func(w *world) {
		w.advance(5 * time.Second)
		w.takeCalls()
		w.advance(maxResyncInterval)
		assert.Equal(t, []string{rolloutSignal}, callLines(w.takeDeploymentCalls()))
	})
	inWorld(t, rollingStack(withOpenRollout, withHold), func(w *world) {
		w.reportStatus()
		w.takeCalls()
		w.advance(maxResyncInterval)
		assert.Empty(t, w.takeDeploymentCalls())
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
