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

var forced = request.Order{Command: request.Force, Actor: "somebody in Temporal who signs as ann", Reason: "it burns"}

// waiting is a machine that waits for its node for a while and is calm afterwards.
func waiting(t *testing.T) (*world, *workflowstest.Operator) {
	w := newWorld(t)
	w.decision.Need = attention.Node
	w.after(10*time.Minute, w.joined)
	return w, workflowstest.NewOperator(w.env, w.lock)
}

func TestRequestByUpdateIsWrittenAndAnswered(t *testing.T) {
	w, c := waiting(t)
	start := w.env.Now()
	c.After(time.Minute, func() { c.Ask(workflowstest.Force("ann")) })
	c.After(2*time.Minute, func() {
		require.Equal(t, []any{"written"}, c.Answered, "it waits for nothing else")
	})
	w.run(t)
	require.Len(t, c.Orders, 1)
	require.WithinDuration(t, start.Add(time.Minute), c.Times[0], 0)
	require.Equal(
		t,
		activitiesrequest.Request{Kind: request.Machine, Object: workflowstest.Ref, Order: forced},
		c.Orders[0],
	)
}

func TestRequestOfWhoeverDoesNotSayWhoItIs(t *testing.T) {
	w, c := waiting(t)
	long := strings.Repeat("why ", 100)
	c.After(time.Minute, func() { c.Ask(run.RequestInput{Command: "hold", Reason: " a\nb ", UID: workflowstest.Ref.UID}) })
	c.After(2*time.Minute, func() {
		c.Ask(run.RequestInput{Command: "extend", Reason: long, For: "1h30m", InAdvance: true})
	})
	w.run(t)
	require.Equal(
		t,
		request.Order{Command: request.Hold, Actor: "somebody in Temporal", Reason: "a b", UID: workflowstest.Ref.UID},
		c.Orders[0].Order,
	)
	require.Equal(
		t,
		request.Order{
			Command:   request.Extend,
			Actor:     "somebody in Temporal",
			Reason:    long[:200],
			For:       "1h30m",
			InAdvance: true,
		},
		c.Orders[1].Order,
	)
}

func TestRequestThatMakesNoSenseIsRefusedWithoutAnActivity(t *testing.T) {
	for want, in := range map[string]any{
		`there is no command "burn": the commands are`:                        run.RequestInput{Command: "burn"},
		"force needs a reason: reason TEXT":                                   run.RequestInput{Command: "force", Reason: " "},
		"extend needs either for DURATION or until TIME":                      run.RequestInput{Command: "extend"},
		"for is not a duration such as 1h30m":                                 run.RequestInput{Command: "extend", For: "long"},
		"the request cannot be read: json: cannot unmarshal number":           map[string]any{"command": "extend", "for": 60},
		`force does not take "revision"`:                                      run.RequestInput{Command: "force", Reason: "x", Revision: new(int64)},
		"the request is for a machine with UID other, and this one has UID u": run.RequestInput{Command: "retry", UID: "other"},
	} {
		w, c := waiting(t)
		c.After(time.Minute, func() { c.Ask(in) })
		w.run(t)
		require.Len(t, c.Refused, 1, want)
		require.Contains(t, c.Refused[0], "RequestRefused: "+want)
		require.Empty(t, c.Answered)
		require.Empty(t, c.Orders)
	}
}

func TestRequestThatTheMachineHasNoUseForIsRefused(t *testing.T) {
	w, c := waiting(t)
	c.Answer = activitiesrequest.Answer{Message: "machine default/m-1 is not held"}
	c.After(time.Minute, func() { c.Ask(run.RequestInput{Command: "resume"}) })
	w.run(t)
	require.Equal(t, []any{"RequestRefused: machine default/m-1 is not held"}, c.Answered)
	require.Len(t, c.Orders, 1)
	require.False(t, c.Orders[0].Unheard, "the answer says it")
}

func TestRequestBySignal(t *testing.T) {
	w, c := waiting(t)
	c.After(time.Minute, func() { c.Signal(workflowstest.Force("ann")) })
	c.After(2*time.Minute, func() { c.Signal(map[string]any{"command": "retry", "inAdvance": "yes"}) })
	c.After(3*time.Minute, func() { c.Signal("force!") })
	c.After(4*time.Minute, func() { c.Signal(run.RequestInput{Command: "burn"}) })
	w.run(t)
	require.Len(t, c.Orders, 4, "the activity's answer has the reason of the refusal")
	require.Equal(t, forced, c.Orders[0].Order)
	require.Equal(t, request.Retry, c.Orders[1].Order.Command)
	require.Contains(t, c.Orders[1].Order.Unread, "inAdvance of type bool")
	require.Contains(t, c.Orders[2].Order.Unread, "cannot unmarshal string")
	require.Equal(t, request.Command("burn"), c.Orders[3].Order.Command)
	for _, order := range c.Orders {
		require.True(t, order.Unheard)
	}
}

// poison is a signal or a request that no process can decrypt.
func poison() converter.RawValue {
	return converter.NewRawValue(&commonpb.Payload{
		Metadata: map[string][]byte{"encoding": []byte("binary/encrypted"), "encryption-key-id": []byte("nobodys")},
		Data:     []byte("x"),
	})
}

// Whoever may signal can send what nobody can decrypt. The run goes on: a request is refused with the reason, and a
// change is one, whose versions are not known.
func TestWhatNobodyCanDecryptStopsNoRun(t *testing.T) {
	w, c := waiting(t)
	w.env.SetDataConverter(connection.DataConverter())
	decisions := 0
	c.After(time.Minute, func() { c.Signal(poison()) })
	c.After(2*time.Minute, func() { c.Ask(poison()) })
	c.After(3*time.Minute, func() {
		decisions = len(w.decided)
		w.env.SignalWorkflow(run.SignalChanged, poison())
	})
	c.After(4*time.Minute, func() { c.Signal(workflowstest.Force("ann")) })
	require.Equal(t, run.OutcomeCalm, w.run(t).Outcome)
	const why = `a payload is encrypted with the key "nobodys"`
	require.Len(t, c.Orders, 2)
	require.Contains(t, c.Orders[0].Order.Unread, why)
	require.True(t, c.Orders[0].Unheard)
	require.Equal(t, forced, c.Orders[1].Order, "what can be read is carried out")
	require.Len(t, c.Refused, 1)
	require.Contains(t, c.Refused[0], "RequestRefused: the request cannot be read: "+why)
	require.Greater(t, len(w.decided), decisions)
	require.True(t, w.decided[decisions].Live, "it may have had versions to wait for")
}

func TestRequestBySignalKeepTheirOrder(t *testing.T) {
	w, c := waiting(t)
	c.Fails = 3
	c.After(time.Minute, func() {
		for _, actor := range []string{"ann", "bob", "eve"} {
			c.Unseen(workflowstest.Force(actor))
		}
		workflowstest.Changed(c.Env)
	})
	w.run(t)
	var actors []string
	for _, order := range c.Orders {
		actors = append(actors, strings.TrimPrefix(order.Order.Actor, "somebody in Temporal who signs as "))
	}
	require.Equal(t, []string{"ann", "bob", "eve"}, actors)
}

// The next decision waits for the version that a request wrote.
func TestRequestRaisesTheVersions(t *testing.T) {
	w, c := waiting(t)
	var versions kube.MinVersions
	w.reported = func(in machine.Report) { versions = in.Read.Versions }
	c.After(time.Minute, func() { c.Signal(workflowstest.Force("ann")) })
	w.run(t)
	require.Equal(t, "12", versions[kube.MachinesResource])
}

// A request for a drain is written on its machine, and takes effect when the bridge signals that change, as with
// kubectl.
func TestRequestForADrainIsActedUponAfterItWasWritten(t *testing.T) {
	e := workflowstest.NewDrainWorld(t)
	c := workflowstest.NewOperator(e.Env, e.Lock)
	e.Busy()
	e.Answer(drain.Evicted{Outcome: drain.OutcomeEmpty})
	c.After(time.Minute, func() { c.Ask(workflowstest.Force("ann")) })
	c.After(2*time.Minute, func() {
		require.Equal(t, []any{"written"}, c.Answered)
		require.Len(t, e.Asked, 1, "nothing was done before the machine says so")
		unlock := e.Lock()
		e.Ladder.Force = "ann: it burns"
		unlock()
		workflowstest.Changed(e.Env)
	})
	require.Equal(t, vocabulary.DrainForced, e.Run(t).Outcome)
}
