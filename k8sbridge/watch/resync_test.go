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

// maxResyncInterval is the longest time until the next resync.
const maxResyncInterval = resyncInterval + resyncInterval/10

func TestResyncSignalsObjectsWithPendingWork(t *testing.T) {
	creating := changedCopy(machineWithName("creating"), setNotCreated)
	joining := changedCopy(machineWithName("joining"), withPhase(v1alpha1.MachinePending))
	going := changedCopy(machineWithName("going"), setDeleting[*v1alpha1.Machine])
	unhealthy := machineWithName("sick") // a Running machine without a node
	failed := changedCopy(machineWithName("failed"), withPhase(v1alpha1.MachineFailed))
	lost := machineWithName("lost")
	objects := []runtime.Object{
		creating,
		joining,
		going,
		unhealthy,
		failed,
		nodeWithName("n-lost"),
		lost,
		testClass(),
		testMachineSet(),
	}
	runBridgeTest(t, objects, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.advanceClock(maxResyncInterval)
		assert.Equal(t, []string{
			signalWithStartLine(
				unhealthy,
			),
			signalWithStartLine(
				testMachineSet(),
			), // this work should have been done at once, so an open run may have missed the signal
			// a run must be open; a start does not change an open run
			"start " + workflowIDOf(creating),
			"start " + workflowIDOf(going),
			"start " + workflowIDOf(joining),
		}, w.takeRequests())
	})
}

// A provider call that has been open for two minutes is reported within ten seconds. A call that has ended, or that
// the status already names, needs no signal.
func TestMachineWithALongProviderCallIsSignaled(t *testing.T) {
	runBridgeTest(t, nil, func(w *bridgeTestEnv) {
		calling := func(since time.Duration, by ...string) func(*v1alpha1.Machine) {
			return func(m *v1alpha1.Machine) {
				setNotCreated(m)
				m.Status.CurrentOperation = &v1alpha1.Operation{
					Step:      vocabulary.StepCreateInstance,
					Since:     metav1.NewTime(time.Now().Add(-since)),
					BlockedBy: by,
				}
			}
		}
		w.advanceClock(20 * time.Second) // the two minutes of the calls must not end at a resync
		hangs, quick := changedCopy(machineWithName("hangs"), calling(0)), changedCopy(machineWithName("quick"), calling(0))
		w.putObject(hangs)
		w.putObject(quick)
		w.putObject(changedCopy(machineWithName("named"), calling(time.Hour, vocabulary.BlockedByProviderCall)))
		signals := func() []string {
			return slices.DeleteFunc(
				slices.Compact(w.takeRequests()),
				func(asked string) bool { return !strings.HasPrefix(asked, "signal") },
			)
		}
		w.advanceClock(115 * time.Second)
		signals()
		w.putObject(changedCopy(machineWithName("quick"), withPhase(v1alpha1.MachinePending)))
		w.advanceClock(4 * time.Second)
		signals()
		w.advanceClock(12 * time.Second)
		assert.Equal(t, []string{signalWithStartLine(hangs)}, signals())
		w.putObject(changedCopy(machineWithName("hangs"), calling(131*time.Second, vocabulary.BlockedByProviderCall)))
		w.runDebouncedWork()
		signals()
		w.advanceClock(time.Minute)
		assert.Empty(t, signals(), "its status names the call")
	})
}

func TestResyncStartsRunsWithTheVersionsTheBridgeRead(t *testing.T) {
	runBridgeTest(t, []runtime.Object{testClass()}, func(w *bridgeTestEnv) {
		class := w.putObject(testClass())
		machine := w.putObject(changedCopy(testMachine(), setNotCreated))
		w.advanceClock(5 * time.Second)
		w.takeCalls()
		w.advanceClock(maxResyncInterval)
		calls := w.takeCalls()
		require.Len(t, calls, 1)
		c := calls[0]
		assert.Equal(t, "start garden/machine/ns/m/uid-m", c.verb+" "+c.workflowID)
		assert.Equal(t, "Machine", c.workflow)
		assert.Equal(t, run.Input{
			Ref:      cache.ObjectRef{Namespace: "ns", Name: "m", UID: "uid-m"},
			Versions: cache.MinVersions{cache.MachinesResource: machine, cache.ClassesResource: class},
		}, c.input)
		assert.Equal(t, enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING, c.options.WorkflowIDConflictPolicy)
		assert.False(t, c.options.WorkflowExecutionErrorWhenAlreadyStarted)
	})
}

// The workflow of a set or deployment reads at least the machine versions that the bridge's decision read.
func TestSetAndDeploymentSignalsHaveTheVersionsTheBridgeRead(t *testing.T) {
	runBridgeTest(t, nil, func(w *bridgeTestEnv) {
		w.putObject(testMachine())
		machine := w.putObject(machineWithName("second"))
		set := w.putObject(testMachineSet())
		deployment := w.putObject(
			changedCopy(testDeployment(), func(d *v1alpha1.MachineDeployment) { d.Status.ReadyReplicas = 0 }),
		)
		w.advanceClock(5 * time.Second)
		w.takeCalls()
		w.advanceClock(maxResyncInterval)
		gates := map[string]cache.MinVersions{}
		for _, c := range w.takeCalls() {
			gates[c.workflowID] = c.signalContent.Versions
		}
		assert.Equal(
			t,
			cache.MinVersions{cache.SetsResource: set, cache.MachinesResource: machine, cache.DeploymentsResource: deployment},
			gates[workflowIDOf(testMachineSet())],
		)
		assert.Equal(
			t,
			cache.MinVersions{cache.DeploymentsResource: deployment, cache.SetsResource: set, cache.MachinesResource: machine},
			gates[workflowIDOf(testDeployment())],
		)
	})
}

func TestFailedResyncIsRepeated(t *testing.T) {
	waiting := changedCopy(testMachine(), setNotCreated)
	runBridgeTest(t, []runtime.Object{waiting}, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.setCallResult(serviceerror.NewUnavailable("away"), 0)
		w.advanceClock(maxResyncInterval)
		assert.Equal(t, []string{"start " + workflowIDOf(waiting)}, w.takeRequests())
		w.setCallResult(nil, 0)
		w.advanceClock(maxResyncInterval)
		asked := w.takeRequests()
		assert.Contains(t, asked, "start "+workflowIDOf(waiting), "the next minute")
		assert.Contains(t, asked, signalWithStartLine(waiting), "Temporal was away: everything is looked at")
	})
}

// If Temporal has lost its data, Millwright's namespace is missing until somebody bootstraps Temporal again.
func TestATemporalWithoutItsNamespaceCountsAsUnreachable(t *testing.T) {
	waiting := changedCopy(testMachine(), setNotCreated)
	f := newFakeScheduleClient()
	runSweepScheduleTest(t, f, []runtime.Object{waiting, testClass()}, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.setCallResult(serviceerror.NewNamespaceNotFound("millwright"), 0)
		w.advanceClock(maxResyncInterval)
		w.setCallResult(nil, 0)
		f.changeSchedules(func(there map[string]client.Schedule) { delete(there, smallClassScheduleID) })
		w.takeCalls()
		f.takeRequests()
		w.advanceClock(maxResyncInterval)
		assert.Contains(t, w.takeRequests(), signalWithStartLine(waiting), "everything is looked at")
		assert.Contains(t, f.takeRequests(), "create "+smallClassScheduleID)
	})
}

func TestANewLeaderEvaluatesEveryObject(t *testing.T) {
	waiting := changedCopy(machineWithName("waiting"), setNotCreated)
	unhealthy := machineWithName("sick")
	runBridgeTest(t, append(objectsWithoutPendingWork(), waiting, unhealthy), func(w *bridgeTestEnv) {
		// a set is signaled for its own event, and for the events of its machines
		first := slices.Compact(w.takeRequests())
		assert.Equal(
			t,
			[]string{
				signalWithStartLine(unhealthy),
				signalWithStartLine(waiting),
				signalWithStartLine(testDeployment()),
				signalWithStartLine(testMachineSet()),
			},
			first,
		)
		w.startLeader()
		w.advanceClock(3 * time.Second)
		assert.Equal(t, first, slices.Compact(w.takeRequests()), "whatever the leader before has signaled")
		w.putObject(changedCopy(testMachine(), setDeleting[*v1alpha1.Machine]))
		w.runDebouncedWork()
		assert.Equal(
			t,
			[]string{
				signalWithStartLine(testMachine()),
				signalWithStartLine(testDeployment()),
				signalWithStartLine(testMachineSet()),
			},
			w.takeRequests(),
			"and the former leader signals no more",
		)
	})
}

func TestShutdownDoesNotWaitForTemporal(t *testing.T) {
	var objects []runtime.Object
	for _, name := range []string{"a", "b", "c"} {
		objects = append(objects, changedCopy(machineWithName(name), setNotCreated))
	}
	runBridgeTest(t, objects, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.setCallResult(nil, time.Hour) // Temporal does not answer
		w.putObject(changedCopy(machineWithName("d"), setNotCreated))
		for i := range 10 {
			w.putObject(
				changedCopy(
					machineWithName("a"),
					setNotCreated,
					func(m *v1alpha1.Machine) { m.Spec.Class.Name = string(rune('a' + i)) },
				),
			)
		}
		w.runDueWork()
		start := time.Now()
		w.stopBridge()
		assert.Equal(t, start, time.Now(), "it does not wait")
		w.setCallResult(nil, 0)
		w.takeCalls()
		w.advanceClock(time.Hour)
		assert.Empty(t, w.takeRequests(), "and is quiet from then on")
		w.startLeader()
		w.advanceClock(3 * time.Second)
		assert.Len(t, w.takeRequests(), 4, "the next leader sends the lost signals")
	})
}

// If an object was deleted while no bridge was the leader, its run stays open until the bridge signals it.
func TestRunsWhoseObjectsAreGoneAreSignaled(t *testing.T) {
	ref := refOfMissingObject
	strays := []string{
		testInstallation.ID(run.KindMachine, ref("m")), // a machine with this name exists, with another UID
		testInstallation.ID(
			run.KindMachineClass,
			ref("x"),
		),
		testInstallation.ID(run.KindMachineSet, ref("x")),
		testInstallation.ID(run.KindRollout, ref("d"), 3),
	}
	others := []string{
		workflowIDOf(testMachine()),
		run.Installation("shoot").ID(run.KindMachine, ref("x")),
		testInstallation.ReservationWorkflowID(),
		"somebody-elses",
	}
	assertStrayRunsSignaled(t, []runtime.Object{testMachine(), nodeWithName("n"), testDeployment()}, strays, others)
}

// refOfMissingObject returns a reference to an object that does not exist.
func refOfMissingObject(name string) cache.ObjectRef {
	return cache.ObjectRef{Namespace: "ns", Name: name, UID: "uid-gone"}
}

// assertStrayRunsSignaled opens the runs of strays and others, and checks that the bridge signals only strays.
func assertStrayRunsSignaled(t *testing.T, objects []runtime.Object, strays, others []string) {
	t.Helper()
	runBridgeTest(t, objects, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.openRunIDs = slices.Concat(others, strays)
		for _, way := range []string{"a new leader", "after an error"} {
			if way == "after an error" {
				w.setCallResult(serviceerror.NewUnavailable("away"), 0)
			}
			w.startLeader()
			w.advanceClock(time.Second)
			if way == "after an error" {
				w.setCallResult(nil, 0)
				w.takeCalls()
				w.advanceClock(2 * maxResyncInterval)
			}
			var signaled []string
			for _, c := range w.takeCalls() {
				if c.verb == "signal" {
					signaled = append(signaled, c.workflowID)
					assert.Equal(
						t,
						run.ChangeSignal{UID: "uid-gone", Deleting: true},
						run.ChangeSignal{UID: c.signalContent.UID, Deleting: c.signalContent.Deleting},
					)
				}
			}
			slices.Sort(signaled)
			slices.Sort(strays)
			assert.Equal(t, strays, signaled, way)
		}
	})
}
