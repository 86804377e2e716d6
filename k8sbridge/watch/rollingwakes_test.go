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

const rolloutSignal = "signal " + testRolloutID

// takeDeploymentCalls returns the signals to the deployment's workflow and to its rollout since the last call.
func (w *bridgeTestEnv) takeDeploymentCalls() []temporalCall {
	return slices.DeleteFunc(
		w.takeCalls(),
		func(c temporalCall) bool {
			return c.workflowID != workflowIDOf(testDeployment()) && c.workflowID != testRolloutID
		},
	)
}

func callDescriptions(calls []temporalCall) (all []string) {
	for _, c := range calls {
		all = append(all, c.verb+" "+c.workflowID)
	}
	return all
}

// If a deployment's status names a rollout, this rollout writes the sets. The bridge signals the rollout instead of the
// deployment's workflow.
func TestRolloutIsSignaledInsteadOfItsDeployment(t *testing.T) {
	runBridgeTest(t, objectsDuringRollout(withOpenRollout), func(w *bridgeTestEnv) {
		w.takeDeploymentCalls()
		version := w.putObject(changedCopy(machineOfNewRevision(), setJoined))
		w.runDueWork()
		calls := w.takeDeploymentCalls()
		require.Equal(t, []string{rolloutSignal}, callDescriptions(calls))
		assert.Equal(t, version, calls[0].signalContent.Versions[cache.MachinesResource])
		assert.Equal(t, "uid-d", calls[0].signalContent.UID)
	})
}

func TestDeploymentIsSignaledIfItsStatusNamesNoRollout(t *testing.T) {
	for name, operation := range map[string]*v1alpha1.Operation{
		"nothing":    nil,
		"its own":    {WorkflowID: workflowIDOf(testDeployment()), Step: "rollout"},
		"one unread": {},
	} {
		t.Run(name, func(t *testing.T) {
			stack := objectsDuringRollout(func(d *v1alpha1.MachineDeployment) { d.Status.CurrentOperation = operation })
			runBridgeTest(t, stack, func(w *bridgeTestEnv) {
				w.takeDeploymentCalls()
				w.putObject(changedCopy(machineOfNewRevision(), setJoined))
				w.runDueWork()
				assert.Equal(t, []string{signalWithStartLine(testDeployment())}, callDescriptions(w.takeDeploymentCalls()))
			})
		})
	}
}

// A status may name a rollout that was terminated. The deployment's workflow must then start another rollout.
func TestDeploymentIsSignaledIfItsRolloutIsNotOpen(t *testing.T) {
	runBridgeTest(t, objectsDuringRollout(withOpenRollout), func(w *bridgeTestEnv) {
		w.takeDeploymentCalls()
		w.closeWorkflow(testRolloutID)
		version := w.putObject(changedCopy(machineOfNewRevision(), setJoined))
		w.runDueWork()
		calls := w.takeDeploymentCalls()
		require.Equal(t, []string{rolloutSignal, signalWithStartLine(testDeployment())}, callDescriptions(calls))
		assert.Equal(t, version, calls[1].signalContent.Versions[cache.MachinesResource])
		assert.Equal(t, calls[1].signalContent.Versions, calls[1].input.Versions)
		w.advanceClock(20 * time.Second)
		assert.Empty(t, w.takeDeploymentCalls(), "that is no failure")
	})
}

func TestAFailedSignalToARolloutIsTriedAgain(t *testing.T) {
	runBridgeTest(t, objectsDuringRollout(withOpenRollout), func(w *bridgeTestEnv) {
		w.takeDeploymentCalls()
		w.setCallResult(serviceerror.NewInternal("odd"), 0)
		w.putObject(changedCopy(machineOfNewRevision(), setJoined))
		w.advanceClock(2 * time.Second)
		calls := w.takeDeploymentCalls()
		assert.Equal(
			t,
			[]string{rolloutSignal, rolloutSignal, rolloutSignal},
			callDescriptions(calls),
			"the rollout may be open: no other workflow is signaled",
		)
		assert.Equal(t, []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond}, callTimes(calls))
		w.setCallResult(nil, 0)
		w.advanceClock(10 * time.Second)
		assert.Equal(t, []string{rolloutSignal}, callDescriptions(w.takeDeploymentCalls()))
	})
}

// A rollout waits for machines. Changes of the machines signal the rollout at once, before the set has written its
// status.
func TestAMachineSignalsTheDeploymentBeforeItsSetReports(t *testing.T) {
	running := changedCopy(machineOfNewRevision(), setJoined)
	for _, row := range []struct {
		name   string
		before *v1alpha1.Machine
		change func(*v1alpha1.Machine)
		wakes  bool
	}{
		{"it runs", machineOfNewRevision(), setJoined, true},
		{"it runs no more", running, withPhase(v1alpha1.MachineUnknown), true},
		{"it runs, and is being deleted: that may free its place", running, setDeleting[*v1alpha1.Machine], true},
		{"it has failed, and waits to be replaced", machineOfNewRevision(), withPhase(v1alpha1.MachineFailed), true},
		{"it is updated in place", running, withPhase(v1alpha1.MachineInPlaceUpdating), true},
		{"it was updated in place", changedCopy(running, withPhase(v1alpha1.MachineInPlaceUpdating)), withPhase(v1alpha1.MachineInPlaceUpdateSuccessful), true},
		{"it was handed over after an in-place update", machineOfNewRevision(), func(m *v1alpha1.Machine) {
			m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
		}, true},
		{"the autoscaler chose it", machineOfNewRevision(), withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, "2026-01-01T00:00:00Z"), true},
		{"it has an instance", machineOfNewRevision(), withPhase(v1alpha1.MachinePending), false},
		{"it is painted", machineOfNewRevision(), func(m *v1alpha1.Machine) { m.Labels["color"] = "red" }, false},
		{"its priority", machineOfNewRevision(), withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationMachinePriority, "1"), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			runBridgeTest(t, append(objectsDuringRollout(withOpenRollout), row.before), func(w *bridgeTestEnv) {
				w.takeCalls()
				version := w.putObject(changedCopy(row.before, row.change))
				w.runDueWork()
				calls := w.takeDeploymentCalls()
				if !row.wakes {
					assert.Empty(t, calls)
					return
				}
				require.Equal(t, []string{rolloutSignal}, callDescriptions(calls))
				assert.Equal(t, version, calls[0].signalContent.Versions[cache.MachinesResource])
			})
		})
	}
}

// A deployment is signaled at once when the deletion of a machine starts, because another machine may then be created,
// and again when the machine is gone.
func TestDeploymentIsSignaledForADeletedMachine(t *testing.T) {
	running := changedCopy(machineOfNewRevision(), setJoined)
	runBridgeTest(t, append(objectsDuringRollout(withOpenRollout), running), func(w *bridgeTestEnv) {
		w.takeCalls()
		leaving := changedCopy(running, setDeleting[*v1alpha1.Machine])
		w.putObject(leaving)
		w.runDueWork()
		assert.Equal(t, []string{rolloutSignal}, callDescriptions(w.takeDeploymentCalls()))
		w.advanceClock(time.Second)
		w.takeCalls()
		w.deleteObject(leaving)
		w.runDueWork()
		assert.Equal(t, []string{rolloutSignal}, callDescriptions(w.takeDeploymentCalls()))
	})
}

func TestARolloutGetsAtMostFourSignalsASecond(t *testing.T) {
	runBridgeTest(t, append(objectsDuringRollout(withOpenRollout), machineOfNewRevision()), func(w *bridgeTestEnv) {
		w.takeCalls()
		for i := range 20 {
			w.putObject(
				changedCopy(
					machineOfNewRevision(),
					withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, fmt.Sprint(i)),
				),
			)
			w.advanceClock(50 * time.Millisecond)
		}
		var want []time.Duration
		for i := range 4 {
			want = append(want, time.Duration(i)*minSignalInterval)
		}
		assert.Equal(t, want, callTimes(w.takeDeploymentCalls())[:4])
	})
}

func TestASetWithoutADeploymentSignalsNoDeployment(t *testing.T) {
	lone := changedCopy(testMachineSet(), func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil })
	runBridgeTest(t, append(objectsDuringRollout(withOpenRollout), lone), func(w *bridgeTestEnv) {
		w.advanceClock(2 * time.Second)
		w.takeCalls()
		w.putObject(changedCopy(testMachine(), withPhase(v1alpha1.MachineFailed)))
		w.runDueWork()
		assert.Empty(t, w.takeDeploymentCalls())
	})
}

func TestALabelChangeOfASetSignalsItsDeployment(t *testing.T) {
	for name, change := range map[string]setChange{
		"frozen": withSetLabel(v1alpha1.LabelFreeze, v1alpha1.ValueTrue),
		"closed": withSetLabel(v1alpha1.LabelScaleUpDisabled, v1alpha1.ValueLowerTrue),
	} {
		t.Run(name, func(t *testing.T) {
			runBridgeTest(t, objectsDuringRollout(withOpenRollout), func(w *bridgeTestEnv) {
				w.takeCalls()
				w.putObject(changedCopy(machineSetOfNewRevision(), change))
				w.runDueWork()
				assert.Equal(t, []string{rolloutSignal}, callDescriptions(w.takeDeploymentCalls()))
			})
		})
	}
}

// A change for which a rollout waits signals the rollout at once, before the set's status changes. A change of the
// counts in the set's status signals the rollout debounced.
func TestACountChangeOfASetSignalsItsDeploymentDebounced(t *testing.T) {
	runBridgeTest(t, objectsDuringRollout(withOpenRollout), func(w *bridgeTestEnv) {
		w.takeCalls()
		w.putObject(
			changedCopy(
				machineSetOfNewRevision(),
				func(s *v1alpha1.MachineSet) { s.Status.ObservedReplicas, s.Status.Replicas = 7, 7 },
			),
		)
		w.runDueWork()
		assert.Empty(t, w.takeDeploymentCalls())
		w.runDebouncedWork()
		assert.Equal(t, []string{rolloutSignal}, callDescriptions(w.takeDeploymentCalls()))
	})
}

// Writes of a rollout to its deployment send no signal.
func TestOwnWritesOfARolloutSendNoSignal(t *testing.T) {
	runBridgeTest(t, objectsDuringRollout(withOpenRollout), func(w *bridgeTestEnv) {
		w.takeCalls()
		w.putObject(
			deploymentDuringRollout(withOpenRollout, func(d *v1alpha1.MachineDeployment) { d.Status.Rollout.Step = 1 }),
		)
		w.advanceClock(time.Second)
		w.putObject(
			deploymentDuringRollout(
				withOpenRollout,
				func(d *v1alpha1.MachineDeployment) { d.Status.CurrentOperation.Step = "roll" },
			),
		)
		w.advanceClock(time.Second)
		assert.Empty(t, w.takeDeploymentCalls())
	})
}

// writeDeploymentStatus writes the deployment's status as the deployment's workflow does, including the blockers.
func (w *bridgeTestEnv) writeDeploymentStatus() {
	d, found := w.cluster.Deployment("ns/d")
	require.True(w.t, found)
	d = d.DeepCopy()
	now := metav1.Now().Rfc3339Copy()
	tree := deployment.ReadTree(w.cluster, d)
	plan := rollout.PlanDeployment(deployment.RolloutFacts(tree, now.Time))
	deployment.ApplyStatus(&d.Status, plan.Status, now)
	d.Status.ObservedGeneration = d.Generation
	tree.Deployment = d
	deployment.ApplyBlockedCondition(
		&d.Status,
		deployment.ExplanationFacts(tree, plan, "", now.Time).BlockedSummary(now.Time),
		now,
	)
	w.putObject(d)
	w.advanceClock(time.Second)
}

// A rollout with pending work may have missed a signal. A rollout that waits must have an open run; a start does not
// change an open run.
func TestResyncStartsOrSignalsRollouts(t *testing.T) {
	runBridgeTest(t, objectsDuringRollout(withOpenRollout), func(w *bridgeTestEnv) {
		w.takeCalls()
		w.advanceClock(maxResyncInterval)
		assert.Equal(t, []string{"start " + workflowIDOf(testDeployment())}, callDescriptions(w.takeDeploymentCalls()))
	})
	runBridgeTest(
		t,
		append(objectsDuringRollout(withOpenRollout), changedCopy(machineOfNewRevision(), setJoined)),
		func(w *bridgeTestEnv) {
			w.advanceClock(5 * time.Second)
			w.takeCalls()
			w.advanceClock(maxResyncInterval)
			assert.Equal(t, []string{rolloutSignal}, callDescriptions(w.takeDeploymentCalls()))
		},
	)
	runBridgeTest(t, objectsDuringRollout(withOpenRollout, withRolloutHold), func(w *bridgeTestEnv) {
		w.writeDeploymentStatus()
		w.takeCalls()
		w.advanceClock(maxResyncInterval)
		assert.Empty(t, w.takeDeploymentCalls())
	})
}

func TestTheRolloutInAStatusIsRecognized(t *testing.T) {
	d := testDeployment()
	names := func(of types.UID) string {
		d.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: testRolloutID, RolloutOf: of}
		return deployment.CurrentRolloutID(d)
	}
	assert.Equal(t, testRolloutID, names(d.UID))
	assert.Empty(t, names(""), "another workflow")
	assert.Empty(t, names("uid-other"), "the status came with the object from elsewhere")
	d.Status.CurrentOperation = nil
	assert.Empty(t, deployment.CurrentRolloutID(d))
}
