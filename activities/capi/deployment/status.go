package deployment

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
	ofmillwright "millwright/observe/deployment"
)

// ReportClusterAPIDeployment counts the machines of a deployment's sets, and writes the deployment's status if it
// differs. Cluster API's status has no fields for the rollout record and the current operation, so the activity first
// writes them into annotations. If the deployment names a rollout that may still be running, only the workflow of this
// rollout may write the status. A report by any other caller fails with a Conflict. If the deployment is gone, the
// activity fails with ObjectGone.
func (a *Activities) ReportClusterAPIDeployment(ctx context.Context, in activities.Report) (string, error) {
	stamp := in.TimeToRecord(ctx)
	look := func(read kube.ReadInput) (d, changed *clusterv1.MachineDeployment, err error) {
		tree, err := a.readObjectTree(ctx, read)
		if d = tree.Deployment; err != nil || d == nil || !a.Cache.IsReconciledByMillwright(d) {
			return nil, nil, err
		}
		if named := deployment.CurrentRolloutID(d); in.WorkflowID == "" && named != "" && named != in.Over {
			return nil, nil, kube.ConflictError(in.Ref)
		}
		changed = d.DeepCopy()
		tree.Deployment = changed
		if notes := deployment.ChangedAnnotations(d, applyReport(tree, in, stamp)); len(notes) > 0 {
			if d, err = a.patchAnnotations(ctx, d, notes); err != nil {
				return nil, nil, kube.ClassifyWriteError(ctx, in.Ref, err)
			}
			activities.RecordPinWarning(a.Kube, d, deployment.RecordedRollout(changed), deployment.RecordedRollout(d), stamp)
			changed.ObjectMeta = *d.ObjectMeta.DeepCopy()
		}
		if equality.Semantic.DeepEqual(
			deployment.StatusWithoutProgressTime(changed.Status),
			deployment.StatusWithoutProgressTime(d.Status),
		) {
			return d, d, nil
		}
		return d, changed, nil
	}
	_, after, err := kube.PatchStatus(ctx, in.ReadInput, a.deploymentsClient(in.Ref), look)
	if err != nil {
		return "", err
	}
	return after.ResourceVersion, nil
}

// applyReport changes the status of the deployment in tree as the report requires, and returns the annotations that
// belong to the status.
func applyReport(tree deployment.ObjectTree, in activities.Report, now time.Time) (notes map[string]any) {
	d := tree.Deployment
	if tree.MayBeChangedByUpstream() {
		at := metav1.NewTime(now).Rfc3339Copy()
		d.Status.Conditions = capi.HandOverConditions(d, tree.HandOverSummary(at.Time), at)
		return nil
	}
	said, record := in.Content(deployment.RolloutFacts(tree, now), d), deployment.RecordedRollout(d)
	if in.Record != nil {
		record = ofmillwright.RolloutRecord(record, said.Progress, tree.Policy)
	}
	blocked := deployment.ExplanationFacts(tree, said.Plan, now).BlockedSummary(now)
	deployment.ApplyStatus(tree, &d.Status, said.Status, blocked, metav1.NewTime(now).Rfc3339Copy())
	return deployment.RolloutAnnotations(record, kube.AddBlockersToOperation(said.Operation, blocked))
}
