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

// putDeploymentWithReplicas writes a deployment with n replicas. Each change of the replicas needs a signal.
func (w *bridgeTestEnv) putDeploymentWithReplicas(n int) string {
	return w.putObject(changedCopy(testDeployment(), func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = int32(n) }))
}

// callTimes returns the times of calls, relative to the first call.
func callTimes(calls []temporalCall) []time.Duration {
	var result []time.Duration
	for _, c := range calls {
		result = append(result, c.callTime.Sub(calls[0].callTime))
	}
	return result
}

func TestBurstOfChangesSendsTwoSignals(t *testing.T) {
	for _, delay := range []time.Duration{0, 200 * time.Millisecond} { // delay of Temporal's answer
		t.Run(delay.String(), func(t *testing.T) {
			runBridgeTest(t, []runtime.Object{testDeployment(), testMachineSet()}, func(w *bridgeTestEnv) {
				w.takeCalls()
				w.setCallResult(nil, delay)
				start, last := time.Now(), ""
				for i := range 100 {
					last = w.putDeploymentWithReplicas(2 + i)
					w.advanceClock(time.Millisecond)
				}
				w.advanceClock(5 * time.Second)
				calls := w.takeCalls()
				require.Len(t, calls, 2)
				assert.Equal(t, start, calls[0].callTime, "the first at once")
				assert.Equal(t, []time.Duration{0, 250 * time.Millisecond}, callTimes(calls))
				assert.Equal(
					t,
					last,
					calls[1].signalContent.Versions[cache.DeploymentsResource],
					"the second carries the last version",
				)
			})
		})
	}
}

// An object gets at most four signals a second.
func TestObjectThatKeepsChangingGetsAtMostFourSignalsASecond(t *testing.T) {
	machine := changedCopy(testMachine(), setNotCreated)
	for _, row := range []struct {
		object metav1.Object
		change func(w *bridgeTestEnv, i int)
		pause  time.Duration
	}{
		{testDeployment(), func(w *bridgeTestEnv, i int) { w.putDeploymentWithReplicas(2 + i) }, 250 * time.Millisecond},
		{testMachineSet(), func(w *bridgeTestEnv, i int) { w.putObject(newSizedSet(int32(2+i), nil)) }, 250 * time.Millisecond},
		{machine, func(w *bridgeTestEnv, i int) {
			w.putObject(changedCopy(machine, func(m *v1alpha1.Machine) { m.Labels["color"] = strconv.Itoa(i) }))
		}, 250 * time.Millisecond},
		{testClass(), func(w *bridgeTestEnv, i int) {
			w.putObject(changedCopy(testClass(), removeFinalizers[*v1alpha1.MachineClass], func(c *v1alpha1.MachineClass) { c.Generation = int64(2 + i) }))
		}, 250 * time.Millisecond},
	} {
		t.Run(workflowIDOf(row.object), func(t *testing.T) {
			runBridgeTest(t, []runtime.Object{testDeployment(), testMachineSet(), machine, testClass()}, func(w *bridgeTestEnv) {
				w.takeCalls()
				for i := range 95 {
					row.change(w, i)
					w.advanceClock(100 * time.Millisecond)
				}
				calls := slices.DeleteFunc(
					w.takeCalls(),
					func(c temporalCall) bool { return c.workflowID != workflowIDOf(row.object) },
				)
				require.Len(t, calls, int(9500*time.Millisecond/row.pause)+1)
				for i, at := range callTimes(calls) {
					assert.Equal(t, time.Duration(i)*row.pause, at)
				}
			})
		})
	}
}

// Changes of a set's machines signal the set debounced. The deletion of a machine signals the set at once, because the
// set may create a replacement.
func TestMachineEventsAreDebounced(t *testing.T) {
	second := machineWithName("second")
	runBridgeTest(
		t,
		append(objectsWithoutPendingWork(), second, newSizedSet(2, nil, testMachine(), second)),
		func(w *bridgeTestEnv) {
			w.takeCalls()
			ofSet := func() []temporalCall {
				return slices.DeleteFunc(
					w.takeCalls(),
					func(c temporalCall) bool { return c.workflowID != workflowIDOf(testMachineSet()) },
				)
			}
			start, last := time.Now(), ""
			for i := range 10 {
				last = w.putObject(
					changedCopy(
						testMachine(),
						withPhase([]v1alpha1.MachinePhase{v1alpha1.MachineUnknown, v1alpha1.MachineFailed}[i%2]),
					),
				)
				w.advanceClock(20 * time.Millisecond)
			}
			w.advanceClock(5 * time.Second)
			calls := ofSet()
			require.Len(t, calls, 1)
			assert.Equal(t, start.Add(debounceDelay), calls[0].callTime)
			assert.Equal(t, last, calls[0].signalContent.Versions[cache.MachinesResource])

			last = w.putObject(changedCopy(testMachine(), withPhase(v1alpha1.MachineUnknown)))
			w.deleteObject(second)
			w.runDueWork()
			calls = ofSet()
			require.Len(t, calls, 1, "the debounced event comes with it")
			assert.Equal(t, last, calls[0].signalContent.Versions[cache.MachinesResource])
			w.advanceClock(5 * time.Second)
			assert.Empty(t, ofSet())
		},
	)
}

func TestSignalVersionsNeverDecrease(t *testing.T) {
	w := signalRequest{}
	for _, versions := range []cache.MinVersions{
		{cache.MachinesResource: "9"}, {cache.MachinesResource: "10", cache.NodesResource: "5"}, {cache.MachinesResource: "2"}, nil, {cache.NodesResource: "4"},
	} {
		w.mergeSignalRequest(signalRequest{versions: versions})
	}
	assert.Equal(t, cache.MinVersions{cache.MachinesResource: "10", cache.NodesResource: "5"}, w.versions)
}

func TestOnlyOneSignalPerObjectIsInFlight(t *testing.T) {
	runBridgeTest(t, []runtime.Object{testDeployment(), testMachineSet()}, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.setCallResult(nil, 3*time.Second)
		last := ""
		for i := range 20 {
			last = w.putDeploymentWithReplicas(2 + i)
			w.advanceClock(300 * time.Millisecond)
		}
		w.advanceClock(10 * time.Second)
		assert.Equal(t, 1, w.maxConcurrentCalls)
		calls := w.takeCalls()
		assert.Equal(
			t,
			last,
			calls[len(calls)-1].signalContent.Versions[cache.DeploymentsResource],
			"nothing is lost meanwhile",
		)
	})
}

// In a large fleet only objects with pending work cause requests, and the rate of these requests is limited.
func TestTotalSignalRateIsLimited(t *testing.T) {
	var objects []runtime.Object
	for i := range 1000 {
		objects = append(
			objects,
			changedCopy(machineWithName(strconv.Itoa(i)), setNotCreated, func(m *v1alpha1.Machine) { m.OwnerReferences = nil }),
		)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newBridgeTestEnv(t, objects...)
		start := time.Now()
		w.startLeader()
		w.advanceClock(10 * time.Second)
		calls := w.takeCalls()
		require.Len(t, calls, 1000)
		perSecond := map[int]int{}
		for _, c := range calls {
			perSecond[int(c.callTime.Sub(start)/time.Second)]++
		}
		assert.LessOrEqual(t, perSecond[0], 2*maxSignalsPerSecond, "the limiter starts full")
		for second := 1; second < 10; second++ {
			assert.LessOrEqual(t, perSecond[second], maxSignalsPerSecond+1)
		}
	})
}

// Objects without pending work do not use up the rate limit: a machine that is queued behind a thousand of them is
// signaled at once.
func TestObjectsWithoutPendingWorkDoNotUseTheSignalLimit(t *testing.T) {
	objects := []runtime.Object{testClass()}
	for i := range 1000 {
		objects = append(
			objects,
			changedCopy(
				machineWithName(strconv.Itoa(i)),
				withPhase(v1alpha1.MachineFailed),
				func(m *v1alpha1.Machine) { m.OwnerReferences = nil },
			),
		)
	}
	runBridgeTest(t, objects, func(w *bridgeTestEnv) {
		assert.Empty(t, w.takeRequests())
		w.putObject(changedCopy(testMachine(), setNotCreated))
		w.putObject(
			changedCopy(testClass(), func(c *v1alpha1.MachineClass) { c.Generation = 2 }),
		) // after this change, the bridge evaluates all machines of the class
		w.runDueWork()
		assert.Equal(t, []string{signalWithStartLine(testMachine())}, w.takeRequests())
	})
}

func TestAFailedSignalIsTriedAgain(t *testing.T) {
	busy := serviceerror.NewResourceExhausted(enumspb.RESOURCE_EXHAUSTED_CAUSE_BUSY_WORKFLOW, "closing")
	runBridgeTest(t, []runtime.Object{testDeployment(), testMachineSet(), testClass()}, func(w *bridgeTestEnv) {
		w.takeCalls()
		w.setCallResult(busy, 0)
		w.putDeploymentWithReplicas(2)
		w.advanceClock(200 * time.Millisecond)
		last := w.putDeploymentWithReplicas(3)
		w.advanceClock(16*time.Second - 200*time.Millisecond)
		calls := w.takeCalls()
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
			callTimes(calls),
			"less and less often, also while the object changes",
		)
		assert.Equal(t, last, calls[1].signalContent.Versions[cache.DeploymentsResource], "with what happened meanwhile")
		w.setCallResult(nil, 0)
		w.advanceClock(20 * time.Second)
		require.Len(t, w.takeCalls(), 1)
		w.setCallResult(busy, 0)
		w.putDeploymentWithReplicas(4)
		w.advanceClock(time.Second)
		assert.Equal(t, []time.Duration{0, 500 * time.Millisecond}, callTimes(w.takeCalls()), "a success ends the back-off")
	})
}

func TestAFailedSignalAboutANodeIsTriedAgain(t *testing.T) {
	for name, start := range map[string]*v1alpha1.Machine{
		"running": testMachine(), "pending": changedCopy(testMachine(), withPhase(v1alpha1.MachinePending)),
	} {
		t.Run(name, func(t *testing.T) {
			runBridgeTest(t, []runtime.Object{start, changedCopy(testNode(), setNodeUnready)}, func(w *bridgeTestEnv) {
				w.takeCalls()
				w.setCallResult(serviceerror.NewInternal("odd"), 0)
				w.putObject(changedCopy(testNode(), setNodeUnready, updateHeartbeat))
				n := changedCopy(testNode(), setNodeUnready)
				n.Status.Conditions[0].Reason = "Other"
				w.putObject(n)
				w.runDebouncedWork()
				require.Len(t, w.takeCalls(), 1)
				w.setCallResult(nil, 0)
				w.advanceClock(2 * time.Second)
				assert.Equal(t, []string{signalWithStartLine(start)}, w.takeRequests())
			})
		})
	}
}

func TestSignalsResumeWhenTemporalAnswersAgain(t *testing.T) {
	// the selector of no set matches the machine
	alone := func(m *v1alpha1.Machine) { m.OwnerReferences, m.Labels["pool"] = nil, "b" }
	waiting := changedCopy(machineWithName("waiting"), setNotCreated, alone)
	runBridgeTest(t, append(objectsWithoutPendingWork(), waiting), func(w *bridgeTestEnv) {
		w.takeCalls()
		w.setCallResult(serviceerror.NewUnavailable("away"), 0)
		w.putDeploymentWithReplicas(2)
		w.advanceClock(20 * time.Second) // the back-off is long by now
		w.takeCalls()
		for i := range 5 { // an evaluation of an object without pending work sends no request
			w.putObject(changedCopy(testMachine(), func(m *v1alpha1.Machine) { m.Labels["color"] = fmt.Sprint(i) }))
			w.runDueWork()
		}
		assert.Empty(t, w.takeRequests())
		w.setCallResult(nil, 0)
		w.putObject(changedCopy(machineWithName("new"), setNotCreated, alone))
		w.runDueWork()
		asked := w.takeRequests()
		assert.Contains(t, asked, signalWithStartLine(machineWithName("new")), "it answers again")
		assert.Contains(t, asked, signalWithStartLine(testDeployment()), "what was backed off from does not wait any longer")
		assert.Contains(t, asked, signalWithStartLine(waiting), "its run may be lost")
		assert.NotContains(t, asked, signalWithStartLine(testMachine()), "calm")
		w.advanceClock(2 * time.Second)
		w.takeCalls()
		w.advanceClock(20 * time.Second)
		assert.Empty(t, w.takeRequests(), "once")
	})
}
