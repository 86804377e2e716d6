// Package request has the activity that writes an operator request to its object.
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

// Activities are the activities of this package. Workflows call its methods by name.
type Activities struct{ Kube *kube.Kube }

// Reasons of the events on an object about an operator request.
const (
	reasonRequestApplied = "RequestApplied"
	reasonRequestRefused = "RequestRefused"
)

// Request is an operator request that came through Temporal.
type Request struct {
	Kind    request.Kind // of the object
	Object  kube.Ref
	Order   request.Order // all times that it writes count from Asked
	Unheard bool          // nobody receives the answer: a refusal is reported by an event of the object
}

// Answer is the result of a request.
type Answer struct {
	Applied bool
	Message string // what was written, or why it was refused
	Version string // resourceVersion to wait for; empty when it was refused
}

// ApplyRequest writes a request to its object if the present state of the object allows it, and records an event with
// who made it and why. A refusal is an answer and no error. Running it twice writes once and records one event.
func (a *Activities) ApplyRequest(ctx context.Context, in Request) (Answer, error) {
	if !a.Kube.Cluster.Ours(in.Object.Namespace) {
		return Foreign(in.Object.Namespace), nil
	}
	return Apply(a.Kube, in, func(decide Decide) (string, error) {
		return a.write(ctx, in, func(object runtime.Object, facts request.Facts) map[string]any {
			return machine.RequestPatch(in.Kind, in.Order.Command, decide(object, facts))
		})
	})
}

// Foreign refuses a request for an object of a namespace that is not Millwright's.
func Foreign(namespace string) Answer {
	return Answer{Message: "Millwright does not act on namespace " + namespace +
		`: its flags leave it out, or another controller is at work there; "millwright doctor" says which`}
}

// write writes what decide returns for the object of a request. It returns the version of the object.
func (a *Activities) write(
	ctx context.Context,
	in Request,
	decide func(runtime.Object, request.Facts) map[string]any,
) (version string, err error) {
	if in.Kind == request.MachineDeployment {
		client := a.Kube.Deployments(in.Object.Namespace)
		return kube.PatchSeen(ctx, in.Object, client, func() (*v1alpha1.MachineDeployment, map[string]any, error) {
			tree, err := activitiesdeployment.ReadTree(ctx, a.Kube, kube.Read{Ref: in.Object, Live: true})
			if err != nil || tree.Deployment == nil {
				return nil, nil, err
			}
			observed := deployment.Observed(tree, in.Order.Asked)
			return tree.Deployment, decide(
				tree.Deployment,
				deployment.Request(tree.Deployment, observed, rollout.Decide(observed)),
			), nil
		})
	}
	client := a.Kube.Machines(in.Object.Namespace)
	return kube.PatchSeen(ctx, in.Object, client, func() (*v1alpha1.Machine, map[string]any, error) {
		m, err := kube.Live(ctx, client, "machine", in.Object)
		if err != nil || m == nil {
			return nil, nil, err
		}
		return m, decide(m, machine.Request(m, in.Order.Command, in.Order.Asked)), nil
	})
}

// Decide decides a request for an object that has these facts.
type Decide func(runtime.Object, request.Facts) request.Decision

// Apply answers a request, and records an event with who made it and why. write has to write the request: for each
// state of the object that it reads, it calls its argument to learn what to write. It returns the version of the object
// after the write. A refusal is an answer and no error.
func Apply(k *kube.Kube, in Request, write func(Decide) (version string, err error)) (Answer, error) {
	var found runtime.Object
	var d request.Decision
	version, err := write(func(object runtime.Object, facts request.Facts) request.Decision {
		found, d = object, request.Decide(in.Order, facts)
		return d
	})
	if lasting := new(temporal.ApplicationError); errors.As(err, &lasting) && lasting.NonRetryable() {
		d.Refused = lasting.Message()
	} else if err != nil {
		return Answer{}, err
	}
	if d.Refused != "" {
		if in.Unheard && found != nil {
			message := kube.Brief(in.Order.Summary() + "; refused: " + d.Refused)
			k.RecordEvent(found, &kube.Event{Warning: true, Reason: reasonRequestRefused, Message: message})
		}
		return Answer{Message: d.Refused}, nil
	}
	if !d.Same {
		k.RecordEvent(
			found,
			&kube.Event{Reason: reasonRequestApplied, Message: kube.Brief(in.Order.Summary() + "; " + d.Says)},
		)
	}
	return Answer{Applied: true, Message: d.Says, Version: version}, nil
}
