// Package request has the activity that writes an operator's request to its object.
package request

import (
	"context"
	"errors"

	"go.temporal.io/sdk/temporal"
	"k8s.io/apimachinery/pkg/runtime"

	activitiesdeployment "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/deployment"
	"millwright/observe/machine"
)

// Activities are the activities of this package. Workflows call the methods of Activities by name.
type Activities struct{ Kube *kube.Kube }

// Reasons of the events that record an operator's request on its object.
const (
	reasonRequestApplied = "RequestApplied"
	reasonRequestRefused = "RequestRefused"
)

// Request is an operator's request that was sent through Temporal.
type Request struct {
	Kind    request.Kind // kind of the object
	Object  kube.Ref
	Order   request.CommandOrder // timestamps in the written object are computed from Order.Asked
	Unheard bool                 // no caller receives the answer, so an event on the object reports a refusal
}

// Answer is the result of a request.
type Answer struct {
	Applied bool
	Message string // what was written, or the reason of the refusal
	Version string // resourceVersion of the object; empty: the request was refused
}

// ApplyRequest writes a request to its object if the state of the object allows the request, and records an event with
// the operator's name and reason. If the request is refused, ApplyRequest returns an Answer and no error. The activity
// is idempotent: a repeated request writes nothing, and records no second event.
func (a *Activities) ApplyRequest(ctx context.Context, in Request) (Answer, error) {
	if !a.Kube.Cluster.ActsOnMachines(in.Object.Namespace) {
		return ForeignNamespaceRefusal(in.Object.Namespace), nil
	}
	return AnswerAndRecord(a.Kube, in, func(decide DecideFunc) (string, error) {
		return a.patchRequestedObject(ctx, in, func(object runtime.Object, facts request.Facts) map[string]any {
			return machine.RequestPatch(in.Kind, in.Order.Command, decide(object, facts))
		})
	})
}

// ForeignNamespaceRefusal refuses a request for an object in a namespace that Millwright does not reconcile.
func ForeignNamespaceRefusal(namespace string) Answer {
	return Answer{Message: "Millwright does not act on namespace " + namespace +
		`: its flags leave it out, or another controller is at work there; "millwright doctor" says which`}
}

// patchRequestedObject calls decide for the object of a request, writes the returned patch, and returns the resource
// version of the object.
func (a *Activities) patchRequestedObject(
	ctx context.Context,
	in Request,
	decide func(runtime.Object, request.Facts) map[string]any,
) (version string, err error) {
	if in.Kind == request.KindMachineDeployment {
		client := a.Kube.Deployments(in.Object.Namespace)
		return kube.PatchAfterRead(ctx, in.Object, client, func() (*v1alpha1.MachineDeployment, map[string]any, error) {
			tree, err := activitiesdeployment.ReadObjectTree(ctx, a.Kube, kube.ReadInput{Ref: in.Object, Live: true})
			if err != nil || tree.Deployment == nil {
				return nil, nil, err
			}
			observed := deployment.RolloutFacts(tree, in.Order.RequestedAt)
			return tree.Deployment, decide(
				tree.Deployment,
				deployment.RequestFacts(tree.Deployment, observed, rollout.Decide(observed)),
			), nil
		})
	}
	client := a.Kube.Machines(in.Object.Namespace)
	return kube.PatchAfterRead(ctx, in.Object, client, func() (*v1alpha1.Machine, map[string]any, error) {
		m, err := kube.ReadLive(ctx, client, "machine", in.Object)
		if err != nil || m == nil {
			return nil, nil, err
		}
		return m, decide(m, machine.RequestFacts(m, in.Order.Command, in.Order.RequestedAt)), nil
	})
}

// DecideFunc decides a request for an object with the given facts.
type DecideFunc func(runtime.Object, request.Facts) request.Decision

// AnswerAndRecord answers a request, and records an event with the operator's name and reason. The function write calls
// the given DecideFunc each time it has read the object, and writes the decision. The function write returns the
// resource version of the object after the write. If the request is refused, AnswerAndRecord returns an Answer and no
// error.
func AnswerAndRecord(k *kube.Kube, in Request, write func(DecideFunc) (version string, err error)) (Answer, error) {
	var found runtime.Object
	var d request.Decision
	version, err := write(func(object runtime.Object, facts request.Facts) request.Decision {
		found, d = object, request.Decide(in.Order, facts)
		return d
	})
	if lasting := new(temporal.ApplicationError); errors.As(err, &lasting) && lasting.NonRetryable() {
		d.RefusalReason = lasting.Message()
	} else if err != nil {
		return Answer{}, err
	}
	if d.RefusalReason != "" {
		if in.Unheard && found != nil {
			message := kube.ShortenMessage(in.Order.Summary() + "; refused: " + d.RefusalReason)
			k.RecordEvent(found, &kube.Event{Warning: true, Reason: reasonRequestRefused, Message: message})
		}
		return Answer{Message: d.RefusalReason}, nil
	}
	if !d.Repeated {
		k.RecordEvent(
			found,
			&kube.Event{Reason: reasonRequestApplied, Message: kube.ShortenMessage(in.Order.Summary() + "; " + d.Message)},
		)
	}
	return Answer{Applied: true, Message: d.Message, Version: version}, nil
}
