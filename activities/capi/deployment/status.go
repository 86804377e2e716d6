package deployment

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/observe/capi/deployment"
	ofmillwright "millwright/observe/deployment"
)

// ReportClusterAPIDeployment counts the machines of a deployment's sets and writes its status, unless it says so
// already. The record of the rollout and the current operation, for which the status has no fields, are written into
// annotations first. If the deployment names a rollout that is not known to be over, only a rollout may write; for
// others it is a Conflict. It returns the version to wait for, or ObjectGone.
func (a *Activities) ReportClusterAPIDeployment(ctx context.Context, in activities.Report) (string, error) {
	stamp := in.Stamp(ctx)
	look := func(read kube.Read) (d, changed *clusterv1.MachineDeployment, err error) {
		tree, err := a.tree(ctx, read)
		if d = tree.Deployment; err != nil || d == nil || !a.API.Ours(d) {
			return nil, nil, err
		}
		if named := deployment.Named(d); in.WorkflowID == "" && named != "" && named != in.Over {
			return nil, nil, kube.Conflict(in.Ref)
		}
		changed = d.DeepCopy()
		tree.Deployment = changed
		if notes := deployment.News(d, applyReport(tree, in, stamp)); len(notes) > 0 {
			if d, err = a.annotate(ctx, d, notes); err != nil {
				return nil, nil, kube.WriteError(ctx, in.Ref, err)
			}
			changed.ObjectMeta = *d.ObjectMeta.DeepCopy()
		}
		if equality.Semantic.DeepEqual(deployment.Timeless(changed.Status), deployment.Timeless(d.Status)) {
			return d, d, nil
		}
		return d, changed, nil
	}
	_, after, err := kube.WriteStatus(ctx, in.Read, a.deployments(in.Ref), look)
	if err != nil {
		return "", err
	}
	return after.ResourceVersion, nil
}

// applyReport changes the status of a tree's deployment as a report says, and returns the annotations that go with
// it.
func applyReport(tree deployment.Tree, in activities.Report, now time.Time) (notes map[string]any) {
	d := tree.Deployment
	said, record := in.Say(deployment.Observed(tree, now), d), deployment.Recorded(d)
	if in.Record != nil {
		record = ofmillwright.Record(record, said.Progress, tree.Policy)
	}
	blocked := deployment.Explained(tree, said.Plan, now).Blocked(now)
	deployment.ApplyStatus(tree, &d.Status, said.Status, blocked, metav1.NewTime(now).Rfc3339Copy())
	return deployment.Notes(record, kube.Explained(said.Operation, blocked))
}
