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
// request, and records an event with the operator's name and reason. If the activity refuses the request, the result
// contains the refusal, and the activity returns no error. The activity is idempotent: a repeated request writes
// nothing, and records no second event.
func (a *Activities) ApplyClusterAPIRequest(ctx context.Context, in activities.Request) (activities.Answer, error) {
	if !a.Kube.Cluster.ActsInNamespace(in.Object.Namespace) {
		return activities.ForeignNamespaceRefusal(in.Object.Namespace), nil
	}
	return activities.AnswerAndRecord(a.Kube, in, func(decide activities.DecideFunc) (string, error) {
		return kube.PatchAfterRead(
			ctx,
			in.Object,
			a.deploymentsClient(in.Object),
			func() (*clusterv1.MachineDeployment, map[string]any, error) {
				tree, err := a.readObjectTree(ctx, kube.ReadInput{Ref: in.Object, Live: true})
				d := tree.Deployment
				if err != nil || d == nil || !a.Cache.IsReconciledByMillwright(d) {
					return nil, nil, err
				}
				observed := deployment.RolloutFacts(tree, in.Order.RequestedAt)
				answer := decide(d, deployment.RequestFacts(tree, observed, rollout.Decide(observed)))
				return d, deployment.RequestPatch(in.Order.Command, answer), nil
			},
		)
	})
}
