package activities

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/steer"
	"millwright/observe"
)

// SteerOrder is a verb that somebody gives the rollout of a deployment in Temporal.
type SteerOrder struct {
	Deployment Ref
	Order      steer.Order
	At         time.Time // when it was given: all times that it writes count from here
	Unheard    bool      // nobody hears the answer: a refusal is told by an event of the deployment
}

// GiveSteer writes a verb on a deployment, if the deployment as it is now has use for it, and tells people who wants it and why. A
// refusal is an answer and no error. Running it twice writes once and tells once.
func (a *Activities) GiveSteer(ctx context.Context, in SteerOrder) (VerbAnswer, error) {
	order := in.Order
	order.Asked = in.At
	var found *v1alpha1.MachineDeployment
	var d steer.Decision
	version, err := a.changeDeployment(ctx, in.Deployment, func(family observe.Family) map[string]any {
		found, d = family.Deployment, steer.Decide(order, observe.SteerFacts(family, in.At))
		return observe.SteerPatch(d)
	})
	if err != nil {
		if d.Refused = refusal(err); d.Refused == "" {
			return VerbAnswer{}, err
		}
	}
	if d.Refused != "" {
		if in.Unheard && found != nil {
			a.tell(found, &Event{Warning: true, Reason: reasonVerbRefused, Message: brief(order.Wish() + "; refused: " + d.Refused)})
		}
		return VerbAnswer{Message: d.Refused}, nil
	}
	if !d.Same {
		a.tell(found, &Event{Reason: reasonVerbGiven, Message: brief(order.Wish() + "; " + d.Says)})
	}
	return VerbAnswer{Given: true, Message: d.Says, Version: version}, nil
}

// changeDeployment patches a deployment with what change returns; nil means that there is nothing to do. Each patch carries the
// UID and the version of the object that change saw, with all below it, live; when another writer was faster, change is asked
// again. It returns the version that the deployment has now, or ObjectGone.
func (a *Activities) changeDeployment(ctx context.Context, ref Ref, change func(observe.Family) map[string]any) (string, error) {
	for range maxConflicts {
		family, err := a.family(ctx, Read{Ref: ref, Live: true})
		if err != nil {
			return "", err
		}
		d := family.Deployment
		if d == nil {
			return "", objectGone(ref)
		}
		patch := change(family)
		if patch == nil {
			return d.ResourceVersion, nil
		}
		data, err := seen(patch, d)
		if err != nil {
			return "", err
		}
		d, err = a.Cluster.Client().MachineV1alpha1().MachineDeployments(ref.Namespace).Patch(ctx, ref.Name, types.MergePatchType, data, metav1.PatchOptions{})
		switch {
		case err == nil:
			return d.ResourceVersion, nil
		case !apierrors.IsConflict(err):
			return "", writeError(ref, err)
		}
	}
	return "", contended(ref)
}
