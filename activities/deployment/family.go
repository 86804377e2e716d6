package deployment

import (
	"context"
	"strconv"
	"time"

	"go.temporal.io/sdk/activity"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/cache"
)

// setOrDeployment is a set or a deployment of MCM or of Cluster API, such as *v1alpha1.MachineSet.
type setOrDeployment interface {
	comparable
	metav1.Object
	runtime.Object
}

// Client reads and writes the objects of one kind in one namespace.
type Client[O any] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (O, error)
	Patch(
		ctx context.Context,
		name string,
		kind types.PatchType,
		data []byte,
		o metav1.PatchOptions,
		sub ...string,
	) (O, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// KindAdapter holds the functions that differ between MCM's kinds and the kinds of Cluster API
// (activities/capi/deployment). D is the kind of deployments, S the kind of sets. The methods of KindAdapter work for
// MCM's kinds and for Cluster API's kinds.
type KindAdapter[D, S setOrDeployment] struct {
	Kube              *kube.Kube
	DeploymentsClient func(namespace string) Client[D]
	SetsClient        func(namespace string) Client[S]
	DeploymentKind    string            // kind of a deployment in error messages
	Resources         [2]cache.Resource // resources of deployments and sets, as keys of MinVersions

	CachedDeployment func(key string) (D, bool) // returns a deployment from the cache, for events
	IsManaged        func(D) bool               // Millwright reconciles the deployment
	SelectsSet       func(D, S) bool            // the deployment's selector matches the set's labels
	IsSetAdoptable   func(S, D) bool            // no existing object controls the set
	SetController    func(S, D)                 // makes the deployment the controller of the set
	Replicas         func(S) int                // spec.replicas
	ScaleUpPatch     func(allow bool) map[string]any
	// ResizeAnnotations returns the annotations of a set that gets a new size. actedOn is the size that the set's workflow
	// last handled.
	ResizeAnnotations   func(r rollout.SetResize, actedOn int) map[string]any
	LastHandledReplicas func(S) int // the size that the set's workflow last handled
	ResizeEvent         func(r rollout.SetResize) (reason, message string)
	DeletionEvent       func(name string) (reason, message string) // an empty reason means no event
	// CopyDeploymentFields copies the deployment's fields that change without a rollout to a set. CopyDeploymentFields
	// reports whether the set changed, and whether the set is the current set.
	CopyDeploymentFields func(ctx context.Context, d D, set S, now time.Time) (changed, current bool, err error)

	RevisionKey, RevisionHistoryKey string // keys of the annotations with a set's revision and its former revisions
	RollbackFuncs[D, S]
}

// ReadDeploymentAtVersion reads a deployment live. A deployment that Millwright no longer reconciles causes a Conflict.
// A deployment whose resource version differs from the given version also causes a Conflict, unless the given version
// is empty.
func (f KindAdapter[D, S]) ReadDeploymentAtVersion(ctx context.Context, ref kube.Ref, version string) (D, error) {
	d, err := kube.ReadLiveAtVersion(ctx, f.DeploymentsClient(ref.Namespace), f.DeploymentKind, ref, version)
	if err == nil && !f.IsManaged(d) {
		return *new(D), kube.ConflictError(ref)
	}
	return d, err
}

// WriteRevision annotates a deployment with the revision of its current set.
func (f KindAdapter[D, S]) WriteRevision(
	ctx context.Context,
	ref kube.Ref,
	d D,
	set S,
	versions kube.MinVersions,
) error {
	annotations := map[string]any{f.RevisionKey: set.GetAnnotations()[f.RevisionKey]}
	if d.GetAnnotations()[f.RevisionKey] == annotations[f.RevisionKey] {
		return nil
	}
	d, err := kube.PatchObject(
		ctx,
		f.DeploymentsClient(ref.Namespace),
		d,
		map[string]any{"metadata": map[string]any{"annotations": annotations}},
	)
	if err != nil {
		return kube.ClassifyWriteError(ctx, ref, err)
	}
	versions.RaiseVersion(f.Resources[0], d.GetResourceVersion())
	return nil
}

// ChangeSets changes and deletes sets. A set that changed since the decision causes a Conflict, with one exception:
// within 2 s of the decision, a resize also succeeds if spec.replicas is still From. A second run changes nothing, and
// fails with a Conflict. The result holds the resource versions of the written objects.
func (f KindAdapter[D, S]) ChangeSets(ctx context.Context, in SetChanges) (kube.MinVersions, error) {
	w := setWriter[D, S]{f, kube.NewServerClock(ctx), in.Deployment, kube.MinVersions{}}
	follow := func(ctx context.Context, t rollout.ObjectTarget) error { return w.copyDeploymentFields(ctx, t, nil) }
	steps := []struct {
		sets []rollout.ObjectTarget
		do   func(context.Context, rollout.ObjectTarget) error
	}{
		{in.Release, w.releaseSet},
		{in.Adopt, w.adoptSet},
		{
			in.AllowScaleUp,
			func(ctx context.Context, t rollout.ObjectTarget) error { return w.allowOrForbidScaleUp(ctx, t, true) },
		},
		{
			in.ForbidScaleUp,
			func(ctx context.Context, t rollout.ObjectTarget) error { return w.allowOrForbidScaleUp(ctx, t, false) },
		},
		{in.Sync, follow},
	}
	for _, step := range steps {
		for _, t := range step.sets {
			if err := step.do(ctx, t); err != nil {
				return nil, err
			}
		}
	}
	if in.Revise != nil {
		if err := w.copyDeploymentFields(ctx, in.Revise.ObjectTarget, in.Revise); err != nil {
			return nil, err
		}
	}
	if err := w.checkGeneration(ctx, in); err != nil {
		return nil, err
	}
	for _, r := range in.Resize {
		if err := w.resizeSet(ctx, r); err != nil {
			return nil, err
		}
	}
	for _, t := range in.Delete {
		if err := w.deleteSet(ctx, t); err != nil {
			return nil, err
		}
	}
	return w.versions, nil
}

// setWriter writes the sets of one deployment, and collects the new resource versions.
type setWriter[D, S setOrDeployment] struct {
	KindAdapter[D, S]
	clock      kube.Clock
	deployment kube.Ref
	versions   kube.MinVersions
}

func (w setWriter[D, S]) refOfSet(name, uid string) kube.Ref {
	return kube.Ref{Namespace: w.deployment.Namespace, Name: name, UID: uid}
}

func (w setWriter[D, S]) clientOfSets() Client[S] { return w.SetsClient(w.deployment.Namespace) }

// recordEvent records an event on the deployment, if the deployment is in the cache.
func (w setWriter[D, S]) recordEvent(reason, message string) {
	if d, known := w.CachedDeployment(w.deployment.Key()); known {
		w.Kube.Recorder.Event(d, corev1.EventTypeNormal, reason, message)
	}
}

// releaseSet removes the controller reference from a set that the deployment's selector no longer matches.
func (w setWriter[D, S]) releaseSet(ctx context.Context, t rollout.ObjectTarget) error {
	return w.changeSetOwner(ctx, t, vocabulary.ReasonSuccessfulRelease, "Released MachineSet: ", func(set S, d D) bool {
		if !metav1.IsControlledBy(set, d) || w.SelectsSet(d, set) {
			return false
		}
		kube.RemoveOwner(set, d.GetUID())
		setAnnotation(set, v1alpha1.AnnotationReleasedBy, string(d.GetUID()))
		return true
	})
}

// adoptSet makes the deployment the controller of a set that has no controller.
func (w setWriter[D, S]) adoptSet(ctx context.Context, t rollout.ObjectTarget) error {
	return w.changeSetOwner(ctx, t, vocabulary.ReasonSuccessfulAdopt, "Adopted MachineSet: ", func(set S, d D) bool {
		if !w.IsSetAdoptable(set, d) || !w.SelectsSet(d, set) || set.GetDeletionTimestamp() != nil {
			return false
		}
		w.SetController(set, d)
		setAnnotation(set, v1alpha1.AnnotationReleasedBy, "")
		return true
	})
}

// changeSetOwner calls change to edit a set, writes the set, and records an event. If change returns false, nothing is
// written. A set that changed since the decision causes a Conflict. The deployment is read live first, because change
// needs the current selector. If the deployment is being deleted, changeSetOwner changes nothing.
func (w setWriter[D, S]) changeSetOwner(
	ctx context.Context, t rollout.ObjectTarget, reason, words string, change func(S, D) bool,
) error {
	d, err := w.ReadDeploymentAtVersion(ctx, w.deployment, "")
	if err != nil {
		return err
	}
	if d.GetDeletionTimestamp() != nil {
		return kube.ConflictError(w.deployment)
	}
	set, err := w.readSetAtVersion(ctx, t)
	if err != nil {
		return err
	}
	changed := set.DeepCopyObject().(S)
	if !change(changed, d) {
		return nil
	}
	if _, err := w.patchChanges(ctx, set, changed); err != nil {
		return err
	}
	w.recordEvent(reason, words+t.Name+": "+t.Why)
	return nil
}

// readSetAtVersion reads a set live. A set that changed since the decision causes a Conflict.
func (w setWriter[D, S]) readSetAtVersion(ctx context.Context, t rollout.ObjectTarget) (set S, err error) {
	ref := w.refOfSet(t.Name, t.UID)
	set, err = w.clientOfSets().Get(ctx, t.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return set, kube.ClassifyWriteError(ctx, ref, err)
	case string(set.GetUID()) != t.UID, set.GetResourceVersion() != t.Version:
		return set, kube.ConflictError(ref)
	default:
		return set, nil
	}
}

// patchChanges writes the difference between two states of a set, and returns the written set.
func (w setWriter[D, S]) patchChanges(ctx context.Context, before, after S) (written S, err error) {
	written, err = kube.PatchChanges(ctx, w.clientOfSets(), before, after)
	if err != nil {
		return written, kube.ClassifyWriteError(ctx, w.refOfSet(before.GetName(), string(before.GetUID())), err)
	}
	w.versions.RaiseVersion(w.Resources[1], written.GetResourceVersion())
	return written, nil
}

// patchSet patches a set. If the set changed since the decision, patchSet returns the API server's conflict error
// unchanged.
func (w setWriter[D, S]) patchSet(ctx context.Context, name, uid, version string, change map[string]any) error {
	seen := &metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}
	set, err := kube.PatchObject(ctx, w.clientOfSets(), seen, change)
	if err == nil {
		w.versions.RaiseVersion(w.Resources[1], set.GetResourceVersion())
	}
	return err
}

// allowOrForbidScaleUp allows or forbids a set to create machines.
func (w setWriter[D, S]) allowOrForbidScaleUp(ctx context.Context, t rollout.ObjectTarget, allow bool) error {
	err := w.patchSet(ctx, t.Name, t.UID, t.Version, map[string]any{"metadata": w.ScaleUpPatch(allow)})
	return kube.ClassifyWriteError(ctx, w.refOfSet(t.Name, t.UID), err)
}

// copyDeploymentFields copies the deployment's fields that change without a rollout to a set. If revise is not nil,
// copyDeploymentFields also writes the set's revision. If the set is not the current set, this write of the revision
// causes a Conflict. copyDeploymentFields also annotates the deployment with the revision of its current set.
func (w setWriter[D, S]) copyDeploymentFields(
	ctx context.Context,
	t rollout.ObjectTarget,
	revise *rollout.RevisionChange,
) error {
	d, err := w.ReadDeploymentAtVersion(ctx, w.deployment, "")
	if err != nil {
		return err
	}
	set, err := w.readSetAtVersion(ctx, t)
	if err != nil {
		return err
	}
	next := set.DeepCopyObject().(S)
	changed, current, err := w.CopyDeploymentFields(ctx, d, next, w.clock.Now())
	if err != nil {
		return err
	}
	if revise != nil {
		if !current {
			return kube.ConflictError(w.deployment)
		}
		setAnnotation(next, w.RevisionKey, strconv.FormatInt(revise.Revision, 10))
		if revise.History != "" {
			setAnnotation(next, w.RevisionHistoryKey, revise.History)
		}
	}
	if changed || revise != nil {
		if set, err = w.patchChanges(ctx, set, next); err != nil {
			return err
		}
	}
	if !current {
		return nil
	}
	return w.WriteRevision(ctx, w.deployment, d, set, w.versions)
}

// checkGeneration returns a Conflict if a set would grow, although the deployment's spec has changed since the
// decision. Reason: after a restore of the API server, one cache may contain the restored sets while another cache
// still contains the deployment from before the restore. The sets would then create unwanted machines. The deployment
// is read only if a set grows.
func (w setWriter[D, S]) checkGeneration(ctx context.Context, in SetChanges) error {
	grows := false
	for _, r := range in.Resize {
		grows = grows || r.To > r.From
	}
	if !grows || in.Generation == 0 {
		return nil
	}
	d, err := kube.ReadLiveAtVersion(ctx, w.DeploymentsClient(w.deployment.Namespace), w.DeploymentKind, w.deployment, "")
	if err == nil && d.GetGeneration() != in.Generation {
		err = kube.ConflictError(w.deployment)
	}
	return err
}

// resizeSet writes a set's size, and records an event if the decision requests one.
func (w setWriter[D, S]) resizeSet(ctx context.Context, r rollout.SetResize) error {
	change := func(actedOn int) map[string]any {
		return map[string]any{
			"spec":     map[string]any{"replicas": r.To},
			"metadata": map[string]any{"annotations": w.ResizeAnnotations(r, actedOn)},
		}
	}
	err := w.patchSet(ctx, r.Name, r.UID, r.Version, change(r.ActedOn))
	soon := w.clock.Now().Sub(activity.GetInfo(ctx).ScheduledTime) < maxResizeDecisionAge
	if apierrors.IsConflict(err) && r.From != r.To && soon {
		if set, same := w.readSetAndCompareSize(ctx, r); same {
			err = w.patchSet(ctx, r.Name, r.UID, set.GetResourceVersion(), change(w.LastHandledReplicas(set)))
		}
	}
	if err != nil {
		return kube.ClassifyWriteError(ctx, w.refOfSet(r.Name, r.UID), err)
	}
	if r.HasEvent {
		w.recordEvent(w.ResizeEvent(r))
	}
	return nil
}

// ResizeDirection returns the direction of a resize as a word for an event.
func ResizeDirection(r rollout.SetResize) string {
	return map[bool]string{true: "up", false: "down"}[r.To > r.From]
}

// readSetAndCompareSize reads a set, and reports whether the set still has the size that the decision saw. During a
// rollout, the status of a set changes several times a second; the decision does not depend on these changes.
func (w setWriter[D, S]) readSetAndCompareSize(ctx context.Context, r rollout.SetResize) (set S, same bool) {
	set, err := w.clientOfSets().Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil || string(set.GetUID()) != r.UID || set.GetDeletionTimestamp() != nil || w.Replicas(set) != r.From {
		return set, false
	}
	owner := metav1.GetControllerOf(set)
	return set, owner != nil && string(owner.UID) == w.deployment.UID
}

// deleteSet deletes a set; a set that is gone counts as deleted. The request has no propagation policy, so the set
// keeps its finalizer "orphan".
func (w setWriter[D, S]) deleteSet(ctx context.Context, t rollout.ObjectTarget) error {
	err := w.clientOfSets().Delete(ctx, t.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: new(types.UID(t.UID)), ResourceVersion: new(t.Version)},
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return kube.ClassifyWriteError(ctx, w.refOfSet(t.Name, t.UID), err)
	}
	if reason, message := w.DeletionEvent(t.Name); reason != "" {
		w.recordEvent(reason, message)
	}
	return nil
}

// NilIf returns nil if the condition is true, otherwise the value. In a patch, nil removes the key.
func NilIf(condition bool, value any) any {
	if condition {
		return nil
	}
	return value
}

// setAnnotation sets an annotation of an object; an empty value removes the annotation.
func setAnnotation(o metav1.Object, key, value string) {
	annotations := o.GetAnnotations()
	if value == "" {
		delete(annotations, key)
		return
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	o.SetAnnotations(annotations)
}
