package deployment

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
	"millwright/observe/deployment"
)

// RollbackInput is a request to roll a deployment back to the template of a former set.
type RollbackInput struct {
	Deployment kube.Ref
	// Version is the deployment's resourceVersion that the decision saw, because a later change may revoke the
	// rollback.
	Version  string
	Rollback rollout.Rollback
}

// RollbackFuncs holds the functions for a rollback to the template of a former set. These functions differ between MCM
// and Cluster API.
type RollbackFuncs[D, S setOrDeployment] struct {
	IsRollbackRequested   func(D) bool // a person requests a rollback
	RemoveRollbackRequest func(D)      // removes the request
	// ReadFormerSet returns the set to whose template the deployment rolls back. If the set cannot be used, ReadFormerSet
	// fails with a Conflict.
	ReadFormerSet    func(ctx context.Context, ref kube.Ref) (S, error)
	HaveSameTemplate func(D, S) bool
	RestoreTemplate  func(d D, set S, now time.Time)
}

// RollBackDeployment copies the template and annotations of a former set back to the deployment, and clears
// spec.rollbackTo. A former set that is gone or is being deleted causes a Conflict. See KindAdapter.RollBackDeployment,
// and deployment.RestoreTemplateFromSet in observe.
func (a *Activities) RollBackDeployment(ctx context.Context, in RollbackInput) (kube.MinVersions, error) {
	return a.mcmKindAdapter().RollBackDeployment(ctx, in)
}

// RollBackDeployment copies the template of a former set back to the deployment, and removes the rollback request, in
// one write. If no set is given, RollBackDeployment only removes the request. RollBackDeployment records an event. A
// deployment that changed since the decision causes a Conflict. The activity is idempotent. The result holds the
// deployment's resource version.
func (f KindAdapter[D, S]) RollBackDeployment(ctx context.Context, in RollbackInput) (kube.MinVersions, error) {
	d, err := kube.ReadLiveAtVersion(
		ctx,
		f.DeploymentsClient(in.Deployment.Namespace),
		f.DeploymentKind,
		in.Deployment,
		"",
	)
	if err != nil {
		return nil, err
	}
	var set, none S
	// reads any version of the set, because its status changes often and its template does not change
	if former := in.Rollback.Set; former != nil {
		ref := kube.Ref{Namespace: in.Deployment.Namespace, Name: former.Name, UID: former.UID}
		if set, err = f.ReadFormerSet(ctx, ref); err != nil {
			return nil, err
		}
	}
	done := !f.IsRollbackRequested(d) && (set == none || f.HaveSameTemplate(d, set))
	switch {
	case done:
		return kube.MinVersions{f.Resources[0]: d.GetResourceVersion()}, nil
	case d.GetResourceVersion() != in.Version, d.GetDeletionTimestamp() != nil, !f.IsManaged(d):
		return nil, kube.ConflictError(in.Deployment)
	}
	before, by := d.DeepCopyObject().(D), rollbackRequesterAndReason(d, in.Rollback.Revision)
	if set != none {
		f.RestoreTemplate(d, set, kube.NewServerClock(ctx).Now())
		if by != "" {
			setAnnotation(
				d,
				v1alpha1.AnnotationChangeCause,
				fmt.Sprintf("undo to revision %d%s", in.Rollback.Revision, phrase.ActorText(by)),
			)
		}
	}
	setAnnotation(d, v1alpha1.AnnotationRolloutUndoBy, "")
	f.RemoveRollbackRequest(d)
	if d, err = kube.PatchChanges(ctx, f.DeploymentsClient(in.Deployment.Namespace), before, d); err != nil {
		return nil, kube.ClassifyWriteError(ctx, in.Deployment, err)
	}
	kind := corev1.EventTypeWarning
	if in.Rollback.Reason == vocabulary.ReasonDeploymentRollback {
		kind = corev1.EventTypeNormal
	}
	f.Kube.Recorder.Event(d, kind, in.Rollback.Reason, in.Rollback.Why+phrase.ActorText(by))
	return kube.MinVersions{f.Resources[0]: d.GetResourceVersion()}, nil
}

// rollbackRequesterAndReason returns who requested the return to a revision, and why; empty if no requester is
// recorded.
func rollbackRequesterAndReason(d metav1.Object, revision int64) string {
	to, words, _ := strings.Cut(d.GetAnnotations()[v1alpha1.AnnotationRolloutUndoBy], " ")
	if to != strconv.FormatInt(revision, 10) {
		return ""
	}
	return words
}

// RecordPinWarning records a Warning event if a write of the deployment's status added a pin.
func RecordPinWarning(k *kube.Kube, d runtime.Object, before, after *v1alpha1.RolloutStatus, now time.Time) {
	pin := deployment.RecordedProgress(after).Pin
	if was := deployment.RecordedProgress(before).Pin; pin == nil || was != nil && was.Since.Equal(pin.Since) {
		return
	}
	k.Recorder.Event(d, corev1.EventTypeWarning, vocabulary.ReasonDeploymentRollback, pin.Sentence(after.Revision, now))
}
