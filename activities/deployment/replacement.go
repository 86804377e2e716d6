package deployment

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/replace"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	"millwright/observe/machine"
)

// GrantResult is the result of GrantReplacements.
type GrantResult struct {
	Wrote    bool             // whether anything was written
	Versions kube.MinVersions // resource versions of the written objects
	Why      string           // which replacements were granted, ended and held, and why
}

// GrantReplacements grants replacements within the deployment's budget. The grants are first written into the
// deployment's status, with the resource version that the decision saw. So no part of the budget is granted twice.
// After the status, each granted machine is annotated. If the activity is interrupted between the status and the
// annotations, the next run writes the annotations. The activity is idempotent.
func (a *Activities) GrantReplacements(ctx context.Context, in kube.ReadInput) (GrantResult, error) {
	tree, err := ReadObjectTree(ctx, a.Kube, in)
	if err != nil {
		return GrantResult{}, err
	}
	d, members := tree.Deployment, tree.Members
	if d == nil {
		return GrantResult{}, kube.ObjectGoneError(in.Ref)
	}
	// time of the grant, which is later compared with the creation time of the substitute machine
	now := in.TimeToRecord(ctx)
	plan := replace.Decide(deployment.ReplacementFacts(a.Kube.Cluster, d, members, now))
	granted := GrantResult{Versions: kube.MinVersions{}, Why: plan.Why}
	if plan.GrantsChanged {
		d = d.DeepCopy()
		d.Status.Replacements = replacementStatus(plan.Grants)
		if d, err = a.Kube.Deployments(in.Ref.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
			return GrantResult{}, kube.ClassifyWriteError(ctx, in.Ref, err)
		}
		granted.Versions.RaiseVersion(cache.DeploymentsResource, d.ResourceVersion)
		granted.Wrote = true
	}
	reasons := map[string]string{}
	for _, g := range plan.Grants {
		reasons[g.MachineUID] = g.Reason
	}
	for _, m := range members {
		if !slices.Contains(plan.UIDsToAnnotate, string(m.UID)) {
			continue
		}
		version, marked, err := a.annotateGrantedMachine(ctx, m, now)
		if err != nil {
			return GrantResult{}, err
		}
		granted.Versions.RaiseVersion(cache.MachinesResource, version)
		granted.Wrote = granted.Wrote || marked
		if marked {
			a.Kube.Recorder.Eventf(
				d,
				corev1.EventTypeNormal,
				v1alpha1.ReasonReplacementGranted,
				"Machine %s is replaced: %s",
				m.Name,
				reasons[string(m.UID)],
			)
		}
	}
	return granted, nil
}

// annotateGrantedMachine annotates a machine whose replacement was granted, and reports whether the annotation was
// written. A machine that has the annotation, has recovered or is gone is skipped.
func (a *Activities) annotateGrantedMachine(
	ctx context.Context,
	m *v1alpha1.Machine,
	now time.Time,
) (version string, marked bool, err error) {
	in := kube.ReadInput{Ref: kube.Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}}
	version, err = a.Kube.ChangeMachine(ctx, in, func(m *v1alpha1.Machine) {
		if marked = machine.WaitsForReplacementGrant(m); marked {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReplacementGranted, now.UTC().Format(time.RFC3339))
		}
	})
	if _, gone := kube.FailureOfType(err, kube.FailureTypeObjectGone); gone {
		return "", false, nil
	}
	return version, marked, err
}

// WithdrawReplacement removes the annotation from a machine that no longer has to be replaced.
func (a *Activities) WithdrawReplacement(ctx context.Context, in kube.ReadInput) (string, error) {
	return a.Kube.ChangeMachine(ctx, in, func(m *v1alpha1.Machine) {
		delete(m.Annotations, v1alpha1.AnnotationReplacementGranted)
	})
}

func replacementStatus(grants []replace.ReplacementGrant) []v1alpha1.MachineReplacement {
	var list []v1alpha1.MachineReplacement
	for _, g := range grants {
		list = append(list, v1alpha1.MachineReplacement{
			UID: types.UID(
				g.MachineUID,
			),
			Name:          g.MachineName,
			FailureDomain: g.Domain,
			Reason:        g.Reason,
			GrantedAt:     metav1.NewTime(g.GrantedAt),
		})
	}
	return list
}
