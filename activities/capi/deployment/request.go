package deployment

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/kube"
	activities "millwright/activities/request"
	"millwright/decide/rollout"
	"millwright/observe/capi/deployment"
)

// ApplyClusterAPIRequest writes an operator request to its deployment if the present state of the deployment allows it,
// and records an event with who made it and why. A refusal is an answer and no error. Running it twice writes once and
// records one event.
func (a *Activities) ApplyClusterAPIRequest(ctx context.Context, in activities.Request) (activities.Answer, error) {
	if !a.Kube.Cluster.Acts(in.Object.Namespace) {
		return activities.Foreign(in.Object.Namespace), nil
	}
	return activities.Apply(a.Kube, in, func(decide activities.Decide) (string, error) {
		return kube.PatchSeen(
			ctx,
			in.Object,
			a.deployments(in.Object),
			func() (*clusterv1.MachineDeployment, map[string]any, error) {
				tree, err := a.tree(ctx, kube.Read{Ref: in.Object, Live: true})
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
