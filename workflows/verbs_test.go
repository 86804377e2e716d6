package workflows_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/attention"
	"millwright/decide/verb"
	"millwright/workflows"
)

// counter is where verbs are given in a test: what was ordered, and what people heard.
type counter struct {
	env     *testsuite.TestWorkflowEnvironment
	lock    func() (unlock func())
	orders  []activities.VerbOrder
	answer  activities.VerbAnswer
	fails   int // so many attempts fail first
	heard   []any
	refused []string // by the validator
}

func newCounter(env *testsuite.TestWorkflowEnvironment, lock func() func()) *counter {
	c := &counter{env: env, lock: lock, answer: activities.VerbAnswer{Given: true, Message: "written", Version: "12"}}
	env.OnActivity("GiveVerb", mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.VerbOrder) (activities.VerbAnswer, error) {
		defer c.lock()()
		if c.fails--; c.fails >= 0 {
			return activities.VerbAnswer{}, errors.New("the API server is away")
		}
		c.orders = append(c.orders, in)
		return c.answer, nil
	}).Maybe()
	return c
}

// ask sends an update, and keeps what is answered.
func (c *counter) ask(in any) {
	c.env.UpdateWorkflow(workflows.MessageVerb, "", &testsuite.TestUpdateCallback{
		OnAccept: func() {},
		OnReject: func(err error) { c.refused = append(c.refused, refusal(err)) },
		OnComplete: func(answer any, err error) {
			if err != nil {
				answer = refusal(err)
			}
			c.heard = append(c.heard, answer)
		},
	}, in)
}

func (c *counter) after(d time.Duration, do func()) { c.env.RegisterDelayedCallback(do, d) }

func (c *counter) signal(in any) { c.env.SignalWorkflow(workflows.MessageVerb, in) }

// unseen is a signal that wakes nobody: it is there when something else does.
func (c *counter) unseen(in any) {
	c.env.SignalWorkflowSkippingWorkflowTask(workflows.MessageVerb, in)
}

// refusal is an error as people meet it: its type and message.
func refusal(err error) string {
	var failed *temporal.ApplicationError
	if !errors.As(err, &failed) || !failed.NonRetryable() {
		return "not a refusal: " + err.Error()
	}
	return failed.Type() + ": " + failed.Message()
}

func force(actor string) workflows.VerbInput {
	return workflows.VerbInput{Verb: "force", Actor: actor, Reason: "it burns"}
}

var forced = verb.Order{Verb: verb.Force, Actor: "ann", Reason: "it burns"}

// waiting is a machine that waits for its node for a while, and then is calm.
func waiting(t *testing.T) (*world, *counter) {
	w := newWorld(t)
	w.decision.Need = attention.Node
	w.after(10*time.Minute, w.joined)
	return w, newCounter(w.env, w.lock)
}

func TestVerbByUpdateIsWrittenAndAnswered(t *testing.T) {
	w, c := waiting(t)
	start := w.env.Now()
	c.after(time.Minute, func() { c.ask(force("ann")) })
	c.after(2*time.Minute, func() {
		require.Equal(t, []any{"written"}, c.heard, "it waits for nothing else")
	})
	w.run(t)
	require.Len(t, c.orders, 1)
	require.WithinDuration(t, start.Add(time.Minute), c.orders[0].At, 0)
	c.orders[0].At = time.Time{}
	require.Equal(t, activities.VerbOrder{Machine: ref, Order: forced}, c.orders[0])
}

func TestVerbOfWhoeverDoesNotSayWhoItIs(t *testing.T) {
	w, c := waiting(t)
	long := strings.Repeat("why ", 100)
	c.after(time.Minute, func() { c.ask(workflows.VerbInput{Verb: "hold", Reason: " a\nb ", UID: ref.UID}) })
	c.after(2*time.Minute, func() {
		c.ask(workflows.VerbInput{Verb: "extend", Reason: long, For: "1h30m", InAdvance: true})
	})
	w.run(t)
	require.Equal(t, verb.Order{Verb: verb.Hold, Actor: "somebody, in Temporal", Reason: "a b", UID: ref.UID}, c.orders[0].Order)
	require.Equal(t, verb.Order{Verb: verb.Extend, Actor: "somebody, in Temporal", Reason: long[:200], For: "1h30m", InAdvance: true}, c.orders[1].Order)
}

func TestVerbThatMakesNoSenseIsRefusedWithoutAnActivity(t *testing.T) {
	for want, in := range map[string]any{
		`there is no verb "burn": the verbs are`:                            workflows.VerbInput{Verb: "burn"},
		"force needs a reason for those who come after you: reason TEXT":    workflows.VerbInput{Verb: "force", Reason: " "},
		"extend needs either for DURATION or until TIME":                    workflows.VerbInput{Verb: "extend"},
		"for is no duration, such as 1h30m":                                 workflows.VerbInput{Verb: "extend", For: "long"},
		"the order cannot be read: json: cannot unmarshal number":           map[string]any{"verb": "extend", "for": 60},
		"the order is for a machine with UID other, and this one has UID u": workflows.VerbInput{Verb: "retry", UID: "other"},
	} {
		w, c := waiting(t)
		c.after(time.Minute, func() { c.ask(in) })
		w.run(t)
		require.Len(t, c.refused, 1, want)
		require.Contains(t, c.refused[0], "VerbRefused: "+want)
		require.Empty(t, c.heard)
		require.Empty(t, c.orders)
	}
}

func TestVerbThatTheMachineHasNoUseForIsRefused(t *testing.T) {
	w, c := waiting(t)
	c.answer = activities.VerbAnswer{Message: "machine default/m-1 is not held"}
	c.after(time.Minute, func() { c.ask(workflows.VerbInput{Verb: "resume"}) })
	w.run(t)
	require.Equal(t, []any{"VerbRefused: machine default/m-1 is not held"}, c.heard)
	require.Len(t, c.orders, 1)
	require.False(t, c.orders[0].Unheard, "the answer says it")
}

func TestVerbBySignal(t *testing.T) {
	w, c := waiting(t)
	c.after(time.Minute, func() { c.signal(force("ann")) })
	c.after(2*time.Minute, func() { c.signal(map[string]any{"verb": "retry", "inAdvance": "yes"}) })
	c.after(3*time.Minute, func() { c.signal("force!") })
	c.after(4*time.Minute, func() { c.signal(workflows.VerbInput{Verb: "burn"}) })
	w.run(t)
	require.Len(t, c.orders, 4, "the activity tells why it refuses")
	require.Equal(t, forced, c.orders[0].Order)
	require.Equal(t, verb.Retry, c.orders[1].Order.Verb)
	require.Contains(t, c.orders[1].Order.Unread, "inAdvance of type bool")
	require.Contains(t, c.orders[2].Order.Unread, "cannot unmarshal string")
	require.Equal(t, verb.Verb("burn"), c.orders[3].Order.Verb)
	for _, order := range c.orders {
		require.True(t, order.Unheard)
	}
}

func TestVerbsBySignalKeepTheirOrder(t *testing.T) {
	w, c := waiting(t)
	c.fails = 3
	c.after(time.Minute, func() {
		for _, actor := range []string{"ann", "bob", "eve"} {
			c.unseen(force(actor))
		}
		changed(c.env)
	})
	w.run(t)
	var actors []string
	for _, order := range c.orders {
		actors = append(actors, order.Order.Actor)
	}
	require.Equal(t, []string{"ann", "bob", "eve"}, actors)
}

// What a verb wrote is seen by the next decision.
func TestVerbRaisesTheGate(t *testing.T) {
	w, c := waiting(t)
	var gate activities.Gate
	w.reported = func(in activities.MachineReport) { gate = in.Read.Gate }
	c.after(time.Minute, func() { c.signal(force("ann")) })
	w.run(t)
	require.Equal(t, "12", gate[activities.MachinesResource])
}

// lastMoments are ways in which a verb comes just as a run is about to end: the workflow does not look at a signal before it
// looks at whatever ends it.
func lastMoments() map[string]func(*counter) {
	slow := func(c *counter) { c.fails = 4 }
	return map[string]func(*counter){
		"signal":                     func(c *counter) { c.unseen(force("ann")) },
		"signal that takes a while":  func(c *counter) { slow(c); c.signal(force("ann")) },
		"update that takes a while":  func(c *counter) { slow(c); c.ask(force("ann")) },
		"two of them":                func(c *counter) { c.unseen(workflows.VerbInput{Verb: "retry"}); c.unseen(force("ann")) },
		"signal behind a broken one": func(c *counter) { c.unseen(1); c.unseen(force("ann")) },
	}
}

func TestVerbIsNotLostWhenTheMachineIsGone(t *testing.T) {
	for name, send := range lastMoments() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := newCounter(w.env, w.lock)
			w.decision.Need = attention.Node
			w.after(time.Minute, func() {
				w.decision = activities.MachineDecision{Gone: true}
				send(c)
			})
			require.Equal(t, workflows.OutcomeGone, w.run(t).Outcome)
			require.NotEmpty(t, c.orders)
			require.Equal(t, forced, c.orders[len(c.orders)-1].Order)
		})
	}
}

func TestVerbIsNotLostWhenTheMachineIsCalm(t *testing.T) {
	for name, send := range lastMoments() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := newCounter(w.env, w.lock)
			w.decision.Need = attention.Nothing
			c.after(20*time.Second-1, func() { send(c) }) // as the run stops lingering
			require.Equal(t, workflows.OutcomeCalm, w.run(t).Outcome)
			require.NotEmpty(t, c.orders)
			require.Equal(t, forced, c.orders[len(c.orders)-1].Order)
		})
	}
}

// A calm run that ends just as a verb is written must not go away from what the verb brings about.
func TestVerbThatIsBeingWrittenKeepsACalmRunOpen(t *testing.T) {
	w := newWorld(t)
	c := newCounter(w.env, w.lock)
	w.decision.Need = attention.Nothing
	c.fails = 3
	c.after(20*time.Second-1, func() { c.ask(workflows.VerbInput{Verb: "preserve"}) })
	w.after(21*time.Second, func() { w.decision.Need, w.decision.Why = attention.Kept, "preserved" })
	w.after(time.Minute, func() { w.decision.Need = attention.Nothing })
	require.Equal(t, workflows.OutcomeCalm, w.run(t).Outcome)
	require.Equal(t, []any{"written"}, c.heard)
	require.NotEmpty(t, w.reports, "it went on with what was wished")
}

func TestVerbIsNotLostWhenARunContinuesAsNew(t *testing.T) {
	for name, send := range lastMoments() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := newCounter(w.env, w.lock)
			w.decision.Need = attention.Node
			c.after(time.Minute, func() {
				send(c)
				w.env.SetContinueAsNewSuggested(true)
				changed(w.env)
			})
			w.env.ExecuteWorkflow(workflows.Machine, workflows.Input{Ref: ref})
			var next *workflow.ContinueAsNewError
			require.ErrorAs(t, w.env.GetWorkflowError(), &next)
			var in workflows.Input
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
			require.Equal(t, "12", in.Gate[activities.MachinesResource], "the next run sees what was written")
			require.NotEmpty(t, c.orders)
			require.Equal(t, forced, c.orders[len(c.orders)-1].Order)
		})
	}
}

func TestVerbForADrain(t *testing.T) {
	for name, send := range lastMoments() {
		t.Run(name, func(t *testing.T) {
			e := newEmptying(t)
			c := newCounter(e.env, e.lock)
			e.busy()
			c.after(time.Minute, func() {
				unlock := e.lock()
				e.result = activities.Cancelled // the next decision ends it
				unlock()
				send(c)
				changed(e.env)
			})
			require.Equal(t, activities.Cancelled, e.run(t).Outcome)
			require.NotEmpty(t, c.orders)
			require.Equal(t, activities.VerbOrder{Machine: ref, Order: forced, At: c.orders[len(c.orders)-1].At, Unheard: c.orders[len(c.orders)-1].Unheard}, c.orders[len(c.orders)-1])
		})
	}
}

func TestVerbIsNotLostWhenADrainIsCancelled(t *testing.T) {
	for name, send := range lastMoments() {
		t.Run(name, func(t *testing.T) {
			e := newEmptying(t)
			c := newCounter(e.env, e.lock)
			e.busy()
			c.after(time.Minute, func() {
				send(c)
				e.env.CancelWorkflow()
			})
			e.env.ExecuteWorkflow(workflows.Drain, workflows.DrainInput{Ref: ref, NodeName: "n"})
			require.True(t, temporal.IsCanceledError(e.env.GetWorkflowError()))
			require.NotEmpty(t, c.orders)
			require.Equal(t, forced, c.orders[len(c.orders)-1].Order)
		})
	}
}

// A verb that is written to the machine of a drain is acted upon when the bridge tells of it, as by any other door.
func TestVerbForADrainIsActedUponAfterItWasWritten(t *testing.T) {
	e := newEmptying(t)
	c := newCounter(e.env, e.lock)
	e.busy()
	e.answer(activities.Evicted{Outcome: activities.OutcomeEmpty})
	c.after(time.Minute, func() { c.ask(force("ann")) })
	c.after(2*time.Minute, func() {
		require.Equal(t, []any{"written"}, c.heard)
		require.Len(t, e.asked, 1, "nothing was done before the machine says so")
		unlock := e.lock()
		e.ladder.Force = "ann: it burns"
		unlock()
		changed(e.env)
	})
	require.Equal(t, activities.Forced, e.run(t).Outcome)
}
