package run

import (
	"encoding/json"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	activities "millwright/activities/request"
	"millwright/decide/phrase"
	"millwright/decide/request"
)

// RequestMessageName is the name of a signal and of an update. The signal and the update send an operator's request to
// the workflow of a machine, a drain, a deployment or a rollout. A signal has no answer: an event on the object reports
// the outcome.
const RequestMessageName = "request"

// FailureTypeRequestRefused is the failure type of an update if the workflow has refused the request. The failure's
// message is the reason.
const FailureTypeRequestRefused = "RequestRefused"

// unverifiedActor returns the actor of a request that came through Temporal. Temporal does not tell a workflow who sent
// a message, so the actor's name is only a claim.
func unverifiedActor(actor string) string {
	return "somebody in Temporal" + phrase.TextIf(actor != "", " who signs as %s", actor)
}

// RequestInput is the content of RequestMessageName, as people write it:
// {"command":"force","actor":"ann","reason":"the node burns"}.
type RequestInput request.CommandOrder

// UnmarshalJSON never returns an error. If a text cannot be parsed, the workflow refuses the request with an event or a
// response. If UnmarshalJSON returned an error, the SDK would drop the signal.
func (in *RequestInput) UnmarshalJSON(text []byte) error {
	err := json.Unmarshal(text, (*request.CommandOrder)(in))
	in.ParseError = "" // the sender must not be able to set Unread
	if err != nil {
		in.ParseError = err.Error()
	}
	return nil
}

// MarkUndecryptable replaces a request that cannot be decrypted. The workflow refuses the new request, and reports why
// as the reason.
func (in *RequestInput) MarkUndecryptable(why string) { *in = RequestInput{ParseError: why} }

// requestKind returns the kind of object in this workflow's requests.
func (o *WorkflowState) requestKind() request.Kind {
	switch o.kind {
	case KindMachineDeployment, KindRollout, KindClusterAPIDeployment, KindClusterAPIRollout:
		return request.KindMachineDeployment
	default:
		return request.KindMachine
	}
}

// requestDescription returns the description of RequestMessageName in Temporal's UI.
func (o *WorkflowState) requestDescription() string {
	if o.requestKind() == request.KindMachineDeployment {
		return `an operator request, written on the MachineDeployment with who and why, and then acted upon: ` +
			`{"command":"cancel","actor":"ann","reason":"the image is bad","back":true}; ` +
			`start, pause, resume, undo (with "revision") and approve (with "steps") likewise`
	}
	return `an operator request, written on the Machine with who and why, and then acted upon: ` +
		`{"command":"force","actor":"ann","reason":"the node burns"}; ` +
		`extend takes "for" or "until", and "inAdvance" is for machines that are not deleted yet`
}

// acceptRequests makes the workflow accept requests by signal and by update at any time. Sets and classes accept no
// requests. For a machine of Cluster API, a request can only be an annotation.
func (o *WorkflowState) acceptRequests(ctx workflow.Context) error {
	switch o.kind {
	case KindMachineSet, KindClusterAPISet, KindClusterAPIDrain, KindMachineClass:
		return nil
	default:
	}
	text := o.requestDescription()
	o.requestSignals = workflow.GetSignalChannelWithOptions(
		ctx,
		RequestMessageName,
		workflow.SignalChannelOptions{Description: text},
	)
	ctx, _ = workflow.NewDisconnectedContext(ctx) // the context ends only with the run, not when the run is cancelled
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			// A blocking Receive would take the signal out of the channel before this coroutine continues, and
			// areRequestsDone would not count the request in the meantime.
			if err := workflow.Await(ctx, func() bool { return o.requestSignals.Len() > 0 }); err != nil {
				return
			}
			var in RequestInput
			if o.requestSignals.ReceiveAsync(&in) {
				o.isWritingRequest = true
				_, _ = o.ApplyRequest(ctx, request.CommandOrder(in), true) // the history has the failure; a retry would not help
				o.isWritingRequest = false
			}
		}
	})
	options := workflow.UpdateHandlerOptions{Validator: o.validateRequest, Description: text}
	return workflow.SetUpdateHandlerWithOptions(ctx, RequestMessageName, o.handleUpdate, options)
}

// areRequestsDone reports whether no request is waiting and no request is being written.
func (o *WorkflowState) areRequestsDone(ctx workflow.Context) bool {
	return o.requestSignals == nil ||
		(o.requestSignals.Len() == 0 && !o.isWritingRequest && workflow.AllHandlersFinished(ctx))
}

// validateRequest refuses an update whose request is invalid for every object of the kind. Temporal's history does not
// contain a refused update.
func (o *WorkflowState) validateRequest(in RequestInput) error {
	return requestRefusedError(request.CheckOrder(o.requestKind(), o.Ref.UID, request.CommandOrder(in)))
}

// handleUpdate applies a request. The answer says which change was written.
func (o *WorkflowState) handleUpdate(ctx workflow.Context, in RequestInput) (string, error) {
	answer, err := o.ApplyRequest(ctx, request.CommandOrder(in), false)
	if err == nil && !answer.Applied {
		err = requestRefusedError(answer.Message)
	}
	return answer.Message, err
}

// requestRefusedError returns the failure of a refused request, or nil if why is empty.
func requestRefusedError(why string) error {
	if why == "" {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(why, FailureTypeRequestRefused, nil)
}

// ApplyRequest writes a request on the object. The write causes a change event, and the request then takes effect, as
// if a user had written it with kubectl. If noReply is true, no caller reads the answer, and an event reports a
// refusal. ApplyRequest completes even if the run is cancelled.
func (o *WorkflowState) ApplyRequest(
	ctx workflow.Context,
	order request.CommandOrder,
	noReply bool,
) (answer activities.Answer, err error) {
	ctx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	order = order.WithCleanTexts()
	order.Actor, order.RequestedAt = unverifiedActor(order.Actor), workflow.Now(ctx)
	in := activities.Request{Kind: o.requestKind(), Object: o.Ref, Order: order, Unheard: noReply}
	apply := applyRequestActivity
	if o.kind == KindClusterAPIDeployment || o.kind == KindClusterAPIRollout {
		apply = applyClusterAPIRequestActivity
	}
	answer, err = apply.RunLocalFirst(ctx, o, order.Summary(), in)
	if err == nil {
		o.RequireWrittenVersion(answer.Version)
	}
	return answer, err
}
