package deployment

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/kube"
	activities "millwright/activities/request"
	"millwright/decide/rollout"
	"millwright/observe/capi/deployment"
)

// ApplyClusterAPIRequest writes an operator's request to the deployment if the state of the deployment allows the
// request, and records an event with the operator's name and reason. A refused request returns an answer, not an error.
// The activity is idempotent: a repeated request writes nothing, and records no second event.
func (a *Activities) ApplyClusterAPIRequest(ctx context.Context, in activities.Request) (activities.Answer, error) {
	if !a.Kube.Cluster.ActsIn(in.Object.Namespace) {
		return activities.RefuseForeign(in.Object.Namespace), nil
	}
	return activities.Apply(a.Kube, in, func(decide activities.Decide) (string, error) {
		return kube.PatchSeen(
			ctx,
			in.Object,
			a.deploymentsClient(in.Object),
			func() (*clusterv1.MachineDeployment, map[string]any, error) {
				tree, err := a.readTree(ctx, kube.Read{Ref: in.Object, Live: true})
				d := tree.Deployment
				if err != nil || d == nil || !a.API.Ours(d) {
					return nil, nil, err
				}
				observed := deployment.Observed(tree, in.Order.Asked)
				answer := decide(d, deployment.Request(tree, observed, rollout.Decide(observed)))
				return d, deployment.RequestPatch(in.Order.Command, answer), nil
			},
		)
	})
}
