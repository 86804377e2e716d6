package workflows

import (
	"cmp"
	"encoding/json"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"millwright/activities"
	"millwright/decide/steer"
	"millwright/decide/verb"
)

// MessageVerb is the name of the signal and of the update by which people give an object a verb: a machine or its drain, a
// deployment or its rollout. The signal has no answer: what becomes of it is told by an event of the object.
const MessageVerb = "verb"

// TypeVerbRefused is the type of the failure of an update whose verb was refused. Its message says why.
const TypeVerbRefused = "VerbRefused"

// VerbInput is what MessageVerb carries, as people write it: {"verb":"force","actor":"ann","reason":"the node burns"}. It stands in
// histories: fields may be added, never renamed or retyped.
type VerbInput struct {
	Verb      string `json:"verb"`
	Actor     string `json:"actor,omitempty"`  // who wants it; Temporal does not tell a workflow who sent it
	Reason    string `json:"reason,omitempty"` // no secrets: people read it everywhere
	For       string `json:"for,omitempty"`    // extend: a Go duration
	Until     string `json:"until,omitempty"`  // extend: an RFC 3339 time
	InAdvance bool   `json:"inAdvance,omitempty"`
	UID       string `json:"uid,omitempty"`      // of the object that is meant; empty: that of the workflow
	Revision  *int64 `json:"revision,omitempty"` // undo: to which; cancel and approve: that is meant
	Back      bool   `json:"back,omitempty"`     // cancel: and return to the revision before
	Stages    int    `json:"stages,omitempty"`   // approve: how many stages are passed in all
	unread    string // why it could not be read
}

// UnmarshalJSON never fails: what cannot be read is an order, too, and is refused where people see it. Else the SDK would drop
// such a signal.
func (in *VerbInput) UnmarshalJSON(text []byte) error {
	type fields VerbInput
	if err := json.Unmarshal(text, (*fields)(in)); err != nil {
		in.unread = err.Error()
	}
	return nil
}

const describesSteering = `a person's wish, written on the MachineDeployment with who and why, and then acted upon: ` +
	`{"verb":"cancel","actor":"ann","reason":"the image is bad","back":true}; start, pause, resume, undo (with "revision") and approve (with "stages") likewise`

const describesVerb = `a person's wish, written on the Machine with who and why, and then acted upon: ` +
	`{"verb":"force","actor":"ann","reason":"the node burns"}; extend takes "for" or "until", and "inAdvance" is for machines that are not deleted yet`

func (in VerbInput) order() verb.Order {
	return verb.Order{
		Verb: verb.Verb(in.Verb), Actor: cmp.Or(in.Actor, "somebody, in Temporal"), Reason: in.Reason, For: in.For, Until: in.Until, InAdvance: in.InAdvance, UID: in.UID,
		Unread: in.unread,
	}.Cleaned()
}

func (in VerbInput) steering() steer.Order {
	return steer.Order{
		Verb: steer.Verb(in.Verb), Actor: cmp.Or(in.Actor, "somebody, in Temporal"), Reason: in.Reason, Revision: in.Revision, Back: in.Back, Stages: in.Stages,
		UID: in.UID, Unread: in.unread,
	}.Cleaned()
}

// steers reports whether the object is a deployment, whose verbs are others than a machine's.
func (o *object) steers() bool { return o.kind == KindMachineDeployment || o.kind == KindRollout }

// describes tells people what MessageVerb carries.
func (o *object) describes() string {
	if o.steers() {
		return describesSteering
	}
	return describesVerb
}

// provisional is a result after which a run may as well go on.
type provisional interface{ goesOn() bool }

func (r Result) goesOn() bool      { return r.Outcome == OutcomeCalm }
func (r DrainResult) goesOn() bool { return false }

// answering runs a workflow that hears verbs. It ends when every verb that came was written or refused; a run that only found
// nothing to do, or continues as new, is taken up again after one.
func answering[R provisional](ctx workflow.Context, o *object, run func() (R, error)) (result R, err error) {
	if err := o.hear(ctx); err != nil {
		return result, err
	}
	ctx, done := workflow.NewDisconnectedContext(ctx) // a verb that has come is carried out, also when the run was cancelled
	defer done()
	for {
		result, err = run()
		if o.answered(ctx) { // without yielding since run looked for signals: nothing can have come
			return result, o.close(ctx, err)
		}
		if waited := workflow.Await(ctx, func() bool { return o.answered(ctx) }); waited != nil {
			return result, waited
		}
		if again := workflow.IsContinueAsNewError(err) || (err == nil && result.goesOn()); !again {
			return result, o.close(ctx, err)
		}
	}
}

// hear makes the workflow take verbs, whatever it does meanwhile.
func (o *object) hear(ctx workflow.Context) error {
	o.verbs = workflow.GetSignalChannelWithOptions(ctx, MessageVerb, workflow.SignalChannelOptions{Description: o.describes()})
	ctx, _ = workflow.NewDisconnectedContext(ctx) // it ends with the run
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			// Receive would take a signal out of the channel before this goes on, and nobody would know of it until then.
			if err := workflow.Await(ctx, func() bool { return o.verbs.Len() > 0 }); err != nil {
				return
			}
			var in VerbInput
			if o.verbs.ReceiveAsync(&in) {
				o.giving = true
				_, _ = o.give(ctx, in, true) // a failure that nobody can mend by waiting; it is in the history
				o.giving = false
			}
		}
	})
	return workflow.SetUpdateHandlerWithOptions(ctx, MessageVerb, o.update, workflow.UpdateHandlerOptions{Validator: o.validate, Description: o.describes()})
}

// answered reports whether no verb waits, nor is being written.
func (o *object) answered(ctx workflow.Context) bool {
	return o.verbs.Len() == 0 && !o.giving && workflow.AllHandlersFinished(ctx)
}

// validate refuses what makes no sense whatever the machine is. An update that it refuses is in no history.
func (o *object) validate(in VerbInput) error {
	if o.steers() {
		order := in.steering()
		if refused := cmp.Or(steer.Check(order), steer.Meant(order, o.ref.UID)); refused != "" {
			return verbRefused(refused)
		}
		return nil
	}
	order := in.order()
	if refused := cmp.Or(verb.Check(order), verb.Meant(order, o.ref.UID)); refused != "" {
		return verbRefused(refused)
	}
	return nil
}

// update writes a verb, and answers what was written.
func (o *object) update(ctx workflow.Context, in VerbInput) (string, error) {
	answer, err := o.give(ctx, in, false)
	switch {
	case err != nil:
		return "", err
	case !answer.Given:
		return "", verbRefused(answer.Message)
	default:
		return answer.Message, nil
	}
}

func verbRefused(why string) error {
	return temporal.NewNonRetryableApplicationError(why, TypeVerbRefused, nil)
}

// give writes a verb on the object, and does no more: what it brings about comes back as a change, as if kubectl had written
// it. It is not given up when the run is cancelled.
func (o *object) give(ctx workflow.Context, in VerbInput, unheard bool) (answer activities.VerbAnswer, err error) {
	if o.steers() {
		return o.steer(ctx, in.steering(), unheard)
	}
	order := in.order()
	return o.written(ctx, order.Wish(), core().GiveVerb, activities.VerbOrder{Machine: o.ref, Order: order, At: workflow.Now(ctx), Unheard: unheard})
}

// steer is give for a deployment.
func (o *object) steer(ctx workflow.Context, order steer.Order, unheard bool) (activities.VerbAnswer, error) {
	return o.written(ctx, order.Wish(), core().GiveSteer, activities.SteerOrder{Deployment: o.ref, Order: order, At: workflow.Now(ctx), Unheard: unheard})
}

func (o *object) written(ctx workflow.Context, wish string, activity, order any) (answer activities.VerbAnswer, err error) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := o.quick(ctx, wish, activity, order, &answer); err != nil {
		return answer, err
	}
	o.wrote(answer.Version)
	return answer, nil
}
