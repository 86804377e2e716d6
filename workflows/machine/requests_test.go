package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/activities/machine"
	activitiesrequest "millwright/activities/request"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/request"
	"millwright/process/connection"
	"millwright/workflows/run"
	"millwright/workflows/workflowstest"
)

var forceOrder = request.CommandOrder{
	Command: request.Force,
	Actor:   "somebody in Temporal who signs as ann",
	Reason:  "it burns",
}

// newWaitingTestEnv returns a world in which the node of the machine joins after 10 minutes, and then nothing is left
// to do.
func newWaitingTestEnv(t *testing.T) (*machineTestEnv, *workflowstest.Operator) {
	w := newMachineTestEnv(t)
	w.decision.Need = attention.NeedNodeJoin
	w.changeAfterDelay(10*time.Minute, w.setNodeJoined)
	return w, workflowstest.NewOperator(w.env, w.lock)
}

func TestRequestByUpdateIsWrittenAndAnswered(t *testing.T) {
	w, c := newWaitingTestEnv(t)
	start := w.env.Now()
	c.RunAfterDelay(time.Minute, func() { c.SendUpdate(workflowstest.NewForceRequest("ann")) })
	c.RunAfterDelay(2*time.Minute, func() {
		require.Equal(t, []any{"written"}, c.UpdateAnswers, "it waits for nothing else")
	})
	w.runMachine(t)
	require.Len(t, c.AppliedRequests, 1)
	require.WithinDuration(t, start.Add(time.Minute), c.RequestTimes[0], 0)
	require.Equal(
		t,
		activitiesrequest.Request{Kind: request.KindMachine, Object: workflowstest.ObjectRef, Order: forceOrder},
		c.AppliedRequests[0],
	)
}

func TestRequestWithoutAnActorNamesSomebodyInTemporal(t *testing.T) {
	w, c := newWaitingTestEnv(t)
	long := strings.Repeat("why ", 100)
	c.RunAfterDelay(time.Minute, func() {
		c.SendUpdate(run.RequestInput{Command: "hold", Reason: " a\nb ", UID: workflowstest.ObjectRef.UID})
	})
	c.RunAfterDelay(2*time.Minute, func() {
		c.SendUpdate(run.RequestInput{Command: "extend", Reason: long, ExtendFor: "1h30m", ValidInAdvance: true})
	})
	w.runMachine(t)
	require.Equal(
		t,
		request.CommandOrder{
			Command: request.Hold,
			Actor:   "somebody in Temporal",
			Reason:  "a b",
			UID:     workflowstest.ObjectRef.UID,
		},
		c.AppliedRequests[0].Order,
	)
	require.Equal(
		t,
		request.CommandOrder{
			Command:        request.Extend,
			Actor:          "somebody in Temporal",
			Reason:         long[:200],
			ExtendFor:      "1h30m",
			ValidInAdvance: true,
		},
		c.AppliedRequests[1].Order,
	)
}

func TestInvalidRequestIsRefusedWithoutAnActivity(t *testing.T) {
	for want, in := range map[string]any{
		`there is no command "burn": the commands are`:                        run.RequestInput{Command: "burn"},
		"force needs a reason: reason TEXT":                                   run.RequestInput{Command: "force", Reason: " "},
		"extend needs either for DURATION or until TIME":                      run.RequestInput{Command: "extend"},
		"for is not a duration such as 1h30m":                                 run.RequestInput{Command: "extend", ExtendFor: "long"},
		"the request cannot be read: json: cannot unmarshal number":           map[string]any{"command": "extend", "for": 60},
		`force does not take "revision"`:                                      run.RequestInput{Command: "force", Reason: "x", Revision: new(int64)},
		"the request is for a machine with UID other, and this one has UID u": run.RequestInput{Command: "retry", UID: "other"},
	} {
		w, c := newWaitingTestEnv(t)
		c.RunAfterDelay(time.Minute, func() { c.SendUpdate(in) })
		w.runMachine(t)
		require.Len(t, c.UpdateRefusals, 1, want)
		require.Contains(t, c.UpdateRefusals[0], "RequestRefused: "+want)
		require.Empty(t, c.UpdateAnswers)
		require.Empty(t, c.AppliedRequests)
	}
}

func TestInapplicableRequestIsRefused(t *testing.T) {
	w, c := newWaitingTestEnv(t)
	c.Answer = activitiesrequest.Answer{Message: "machine default/m-1 is not held"}
	c.RunAfterDelay(time.Minute, func() { c.SendUpdate(run.RequestInput{Command: "resume"}) })
	w.runMachine(t)
	require.Equal(t, []any{"RequestRefused: machine default/m-1 is not held"}, c.UpdateAnswers)
	require.Len(t, c.AppliedRequests, 1)
	require.False(t, c.AppliedRequests[0].Unheard, "the answer says it")
}

func TestRequestBySignalIsWritten(t *testing.T) {
	w, c := newWaitingTestEnv(t)
	c.RunAfterDelay(time.Minute, func() { c.SendSignal(workflowstest.NewForceRequest("ann")) })
	c.RunAfterDelay(2*time.Minute, func() { c.SendSignal(map[string]any{"command": "retry", "inAdvance": "yes"}) })
	c.RunAfterDelay(3*time.Minute, func() { c.SendSignal("force!") })
	c.RunAfterDelay(4*time.Minute, func() { c.SendSignal(run.RequestInput{Command: "burn"}) })
	w.runMachine(t)
	require.Len(t, c.AppliedRequests, 4, "the activity's answer has the reason of the refusal")
	require.Equal(t, forceOrder, c.AppliedRequests[0].Order)
	require.Equal(t, request.Retry, c.AppliedRequests[1].Order.Command)
	require.Contains(t, c.AppliedRequests[1].Order.ParseError, "inAdvance of type bool")
	require.Contains(t, c.AppliedRequests[2].Order.ParseError, "cannot unmarshal string")
	require.Equal(t, request.Command("burn"), c.AppliedRequests[3].Order.Command)
	for _, order := range c.AppliedRequests {
		require.True(t, order.Unheard)
	}
}

// undecryptablePayload returns the payload of a signal or request that no process can decrypt.
func undecryptablePayload() converter.RawValue {
	return converter.NewRawValue(&commonpb.Payload{
		Metadata: map[string][]byte{"encoding": []byte("binary/encrypted"), "encryption-key-id": []byte("nobodys")},
		Data:     []byte("x"),
	})
}

// Any client with the right to signal can send a payload that no process can decrypt. The run continues: the workflow
// refuses a request that cannot be decrypted, and treats a signal that cannot be decrypted as a change with unknown
// versions.
func TestUndecryptablePayloadsDoNotStopTheRun(t *testing.T) {
	w, c := newWaitingTestEnv(t)
	w.env.SetDataConverter(connection.DataConverter())
	decisions := 0
	c.RunAfterDelay(time.Minute, func() { c.SendSignal(undecryptablePayload()) })
	c.RunAfterDelay(2*time.Minute, func() { c.SendUpdate(undecryptablePayload()) })
	c.RunAfterDelay(3*time.Minute, func() {
		decisions = len(w.decisionInputs)
		w.env.SignalWorkflow(run.SignalChanged, undecryptablePayload())
	})
	c.RunAfterDelay(4*time.Minute, func() { c.SendSignal(workflowstest.NewForceRequest("ann")) })
	require.Equal(t, run.OutcomeCalm, w.runMachine(t).Outcome)
	const why = `a payload is encrypted with the key "nobodys"`
	require.Len(t, c.AppliedRequests, 2)
	require.Contains(t, c.AppliedRequests[0].Order.ParseError, why)
	require.True(t, c.AppliedRequests[0].Unheard)
	require.Equal(t, forceOrder, c.AppliedRequests[1].Order, "what can be read is carried out")
	require.Len(t, c.UpdateRefusals, 1)
	require.Contains(t, c.UpdateRefusals[0], "RequestRefused: the request cannot be read: "+why)
	require.Greater(t, len(w.decisionInputs), decisions)
	require.True(t, w.decisionInputs[decisions].Live, "it may have had versions to wait for")
}

func TestRequestsBySignalKeepTheirOrder(t *testing.T) {
	w, c := newWaitingTestEnv(t)
	c.FailingAttemptCount = 3
	c.RunAfterDelay(time.Minute, func() {
		for _, actor := range []string{"ann", "bob", "eve"} {
			c.SendSignalWithoutTask(workflowstest.NewForceRequest(actor))
		}
		workflowstest.SignalChange(c.Env)
	})
	w.runMachine(t)
	var actors []string
	for _, order := range c.AppliedRequests {
		actors = append(actors, strings.TrimPrefix(order.Order.Actor, "somebody in Temporal who signs as "))
	}
	require.Equal(t, []string{"ann", "bob", "eve"}, actors)
}

// After a request was written, the next decision waits for the written resource version.
func TestRequestRaisesTheVersions(t *testing.T) {
	w, c := newWaitingTestEnv(t)
	var versions kube.MinVersions
	w.onReport = func(in machine.Report) { versions = in.Read.Versions }
	c.RunAfterDelay(time.Minute, func() { c.SendSignal(workflowstest.NewForceRequest("ann")) })
	w.runMachine(t)
	require.Equal(t, "12", versions[kube.MachinesResource])
}

// A request for a drain is written on the drain's machine. The request takes effect when the bridge signals this
// change, as after a change with kubectl.
func TestRequestForADrainIsActedUponAfterItWasWritten(t *testing.T) {
	e := workflowstest.NewDrainTestEnv(t)
	c := workflowstest.NewOperator(e.Env, e.Lock)
	e.AddLongEviction()
	e.AddEvictionAnswers(drain.EvictionResult{Outcome: drain.OutcomeEmpty})
	c.RunAfterDelay(time.Minute, func() { c.SendUpdate(workflowstest.NewForceRequest("ann")) })
	c.RunAfterDelay(2*time.Minute, func() {
		require.Equal(t, []any{"written"}, c.UpdateAnswers)
		require.Len(t, e.RequestedEvictions, 1, "nothing was done before the machine says so")
		unlock := e.Lock()
		e.Escalation.Force = "ann: it burns"
		unlock()
		workflowstest.SignalChange(e.Env)
	})
	require.Equal(t, vocabulary.DrainResultForced, e.RunDrain(t).Outcome)
}
