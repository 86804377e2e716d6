package deployment

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/decide/rollout"
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
		family, err := a.family(ctx, read)
		if d = family.Deployment; err != nil || d == nil || !a.API.Ours(d) {
			return nil, nil, err
		}
		if named := deployment.Named(d); in.WorkflowID == "" && named != "" && named != in.Over {
			return nil, nil, kube.Conflict(in.Ref)
		}
		changed = d.DeepCopy()
		family.Deployment = changed
		if notes := deployment.News(d, applyReport(family, in, stamp)); len(notes) > 0 {
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

// applyReport changes the status of a family's deployment as a report says, and returns the annotations that go with
// it.
func applyReport(family deployment.Family, in activities.Report, now time.Time) (notes map[string]any) {
	d := family.Deployment
	observed := deployment.Observed(family, now)
	observed.NoSet = in.NoSet
	// before the record of a new revision, which restarts the progress deadline
	observed.Reported = rollout.Report(observed)
	want, record := observed.Reported, deployment.Recorded(d)
	if in.Record != nil {
		observed.Progress = observed.Progress.Recorded(*in.Record)
		record = ofmillwright.Record(record, observed.Progress, family.Policy)
	}
	observed.ObservedGeneration = d.Generation
	plan := rollout.Look(observed)
	operation := kube.Operation(in.Step)
	if plan.Pending.Calm() { // often this report was the last work
		operation = nil
	}
	plan.Status = want
	blocked := deployment.Explained(family, plan, now).Blocked(now)
	deployment.ApplyStatus(family, &d.Status, want, blocked, metav1.NewTime(now).Rfc3339Copy())
	return deployment.Notes(record, kube.Explained(operation, blocked))
}
