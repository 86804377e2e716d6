package run

import (
	"encoding/json"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	activities "millwright/activities/request"
	"millwright/decide/phrase"
	"millwright/decide/request"
)

// MessageRequest is the name of the signal and of the update by which people make an operator request: for a machine
// (also through its drain) or a deployment (also through its rollout). The signal has no answer: an event of the object
// reports the outcome.
const MessageRequest = "request"

// TypeRequestRefused is the type of the failure of an update whose request was refused. Its message says why.
const TypeRequestRefused = "RequestRefused"

// claimed is the actor of a request that came through Temporal. Temporal does not say to a workflow who sent a message,
// so that the name in it is only a claim.
func claimed(actor string) string {
	return "somebody in Temporal" + phrase.If(actor != "", " who signs as %s", actor)
}

// RequestInput is the content of MessageRequest, as people write it: {"command":"force","actor":"ann","reason":"the
// node burns"}.
type RequestInput request.Order

// UnmarshalJSON never fails: text that cannot be parsed is also a request, and is refused with an event or an answer.
// If it failed, the SDK would drop such a signal.
func (in *RequestInput) UnmarshalJSON(text []byte) error {
	err := json.Unmarshal(text, (*request.Order)(in))
	in.Unread = "" // not taken from the text
	if err != nil {
		in.Unread = err.Error()
	}
	return nil
}

// Unreadable turns a request that nobody can decrypt into one that is refused, with why.
func (in *RequestInput) Unreadable(why string) { *in = RequestInput{Unread: why} }

// requestKind is the kind of object that the requests of a workflow are for.
func (o *Object) requestKind() request.Kind {
	switch o.kind {
	case KindMachineDeployment, KindRollout, KindClusterAPIDeployment, KindClusterAPIRollout:
		return request.MachineDeployment
	default:
		return request.Machine
	}
}

// describesRequests describes the content of MessageRequest in Temporal's UI.
func (o *Object) describesRequests() string {
	if o.requestKind() == request.MachineDeployment {
		return `an operator request, written on the MachineDeployment with who and why, and then acted upon: ` +
			`{"command":"cancel","actor":"ann","reason":"the image is bad","back":true}; ` +
			`start, pause, resume, undo (with "revision") and approve (with "steps") likewise`
	}
	return `an operator request, written on the Machine with who and why, and then acted upon: ` +
		`{"command":"force","actor":"ann","reason":"the node burns"}; ` +
		`extend takes "for" or "until", and "inAdvance" is for machines that are not deleted yet`
}

// acceptRequests makes the workflow accept requests by signal and update at any time. Sets and classes have no
// requests, and those about a machine of Cluster API are only annotations.
func (o *Object) acceptRequests(ctx workflow.Context) error {
	switch o.kind {
	case KindMachineSet, KindClusterAPISet, KindClusterAPIDrain, KindMachineClass:
		return nil
	default:
	}
	text := o.describesRequests()
	o.orders = workflow.GetSignalChannelWithOptions(ctx, MessageRequest, workflow.SignalChannelOptions{Description: text})
	ctx, _ = workflow.NewDisconnectedContext(ctx) // it ends with the run
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			// A blocking Receive would take the signal out of the channel before this coroutine continues, and until then
			// requestsDone would not count the request.
			if err := workflow.Await(ctx, func() bool { return o.orders.Len() > 0 }); err != nil {
				return
			}
			var in RequestInput
			if o.orders.ReceiveAsync(&in) {
				o.writing = true
				_, _ = o.Apply(ctx, request.Order(in), true) // a failure that waiting cannot change; it is in the history
				o.writing = false
			}
		}
	})
	options := workflow.UpdateHandlerOptions{Validator: o.validate, Description: text}
	return workflow.SetUpdateHandlerWithOptions(ctx, MessageRequest, o.update, options)
}

// requestsDone reports whether no request waits or is being written.
func (o *Object) requestsDone(ctx workflow.Context) bool {
	return o.orders == nil || (o.orders.Len() == 0 && !o.writing && workflow.AllHandlersFinished(ctx))
}

// validate refuses a request that is invalid for every object of the kind. The history does not contain an update that
// it refuses.
func (o *Object) validate(in RequestInput) error {
	return requestRefused(request.Check(o.requestKind(), o.Ref.UID, request.Order(in)))
}

// update applies a request. The answer is what was written.
func (o *Object) update(ctx workflow.Context, in RequestInput) (string, error) {
	answer, err := o.Apply(ctx, request.Order(in), false)
	if err == nil && !answer.Applied {
		err = requestRefused(answer.Message)
	}
	return answer.Message, err
}

// requestRefused returns the failure of a refused request; nil if why is empty.
func requestRefused(why string) error {
	if why == "" {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(why, TypeRequestRefused, nil)
}

// Apply only writes a request on the object; its effect arrives as a change, as if kubectl had written it. With
// noReply, no caller reads the answer, and an event reports a refusal. Apply continues when the run is cancelled.
func (o *Object) Apply(ctx workflow.Context, order request.Order, noReply bool) (answer activities.Answer, err error) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	order = order.Cleaned()
	order.Actor, order.Asked = claimed(order.Actor), workflow.Now(ctx)
	in := activities.Request{Kind: o.requestKind(), Object: o.Ref, Order: order, Unheard: noReply}
	apply := applyRequest
	if o.kind == KindClusterAPIDeployment || o.kind == KindClusterAPIRollout {
		apply = applyClusterAPIRequest
	}
	answer, err = apply.RunLocalFirst(ctx, o, order.Summary(), in)
	if err == nil {
		o.Wrote(answer.Version)
	}
	return answer, err
}
