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

// object is an object of a family: *v1alpha1.MachineSet, for example.
type object interface {
	comparable
	metav1.Object
	runtime.Object
}

// Client reads and writes the objects of one kind in one namespace.
type Client[O any] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (O, error)
	Update(ctx context.Context, with O, o metav1.UpdateOptions) (O, error)
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

// Family is a table for one family of kinds: how its deployments D and its sets S are read and written. MCM's kinds
// have one table, the kinds of Cluster API another (activities/capi/deployment); the methods in this file serve both.
type Family[D, S object] struct {
	Kube        *kube.Kube
	Deployments func(namespace string) Client[D]
	Sets        func(namespace string) Client[S]
	Kind        string            // kind of a deployment, as errors name it
	Resources   [2]cache.Resource // of deployments and of sets, as MinVersions names them

	Cached     func(key string) (D, bool) // a deployment from the cache, for events
	Ours       func(D) bool               // Millwright reconciles the deployment
	Selects    func(D, S) bool            // the selector of the deployment matches the labels of the set
	Free       func(S, D) bool            // no object that exists controls the set
	Take       func(S, D)                 // makes the deployment the controller of the set
	Replicas   func(S) int                // spec.replicas
	AllowScale func(allow bool) map[string]any
	// Resized returns the annotations of a set that gets a size. actedOn is the size that the set has acted on.
	Resized func(r rollout.Resize, actedOn int) map[string]any
	ActedOn func(S) int // the size that the set has acted on
	// Follow copies to a set the fields that follow the deployment. It reports whether that changed the set, and whether
	// the set is the current one.
	Follow func(ctx context.Context, d D, set S, now time.Time) (changed, current bool, err error)

	Revision, History string // keys of the annotations with the revision of a set, and with its former revisions
	Rollbacks[D, S]
}

// Rollbacks is how a family returns to the template of a former set.
type Rollbacks[D, S object] struct {
	Asked        func(D) bool                                       // a person asks for a rollback
	Forget       func(D)                                            // removes that request
	Former       func(ctx context.Context, ref kube.Ref) (S, error) // the set to return to; it is a Conflict if that is not possible
	SameTemplate func(D, S) bool
	ReturnTo     func(d D, set S, automatic bool, now time.Time)
}

// At reads a deployment. If Millwright does not reconcile it any more, or it does not have the version that the
// decision saw (empty: any), that is a Conflict.
func (f Family[D, S]) At(ctx context.Context, ref kube.Ref, version string) (D, error) {
	d, err := kube.LiveAt(ctx, f.Deployments(ref.Namespace), f.Kind, ref, version)
	if err == nil && !f.Ours(d) {
		return *new(D), kube.Conflict(ref)
	}
	return d, err
}

// WriteRevision writes the revision of a deployment's current set on the deployment, and removes the record of an
// automatic rollback to another set.
func (f Family[D, S]) WriteRevision(ctx context.Context, ref kube.Ref, d D, set S, versions kube.MinVersions) error {
	annotations := map[string]any{f.Revision: set.GetAnnotations()[f.Revision]}
	if d.GetAnnotations()[f.Revision] == annotations[f.Revision] {
		return nil
	}
	if d.GetAnnotations()[v1alpha1.AnnotationAutomaticRollbackTo] != string(set.GetUID()) {
		annotations[v1alpha1.AnnotationAutomaticRollbackTo] = nil
	}
	d, err := kube.Patch(
		ctx,
		f.Deployments(ref.Namespace),
		d,
		map[string]any{"metadata": map[string]any{"annotations": annotations}},
	)
	if err != nil {
		return kube.WriteError(ctx, ref, err)
	}
	versions.Raise(f.Resources[0], d.GetResourceVersion())
	return nil
}

// Change changes and deletes sets that still are as the decision saw them; a set that is not is a Conflict. Within 2 s
// of the decision a resize also succeeds for a set that changed, if its spec.replicas is still From. Running it twice
// changes once, and is a Conflict then. It returns the versions to wait for.
func (f Family[D, S]) Change(ctx context.Context, in SetChanges) (kube.MinVersions, error) {
	w := setWriter[D, S]{f, kube.ServerClock(ctx), in.Deployment, kube.MinVersions{}}
	follow := func(ctx context.Context, t rollout.Target) error { return w.follow(ctx, t, nil) }
	steps := []struct {
		sets []rollout.Target
		do   func(context.Context, rollout.Target) error
	}{
		{in.Release, w.release},
		{in.Adopt, w.adopt},
		{in.AllowScaleUp, func(ctx context.Context, t rollout.Target) error { return w.allowScale(ctx, t, true) }},
		{in.ForbidScaleUp, func(ctx context.Context, t rollout.Target) error { return w.allowScale(ctx, t, false) }},
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
		if err := w.follow(ctx, in.Revise.Target, in.Revise); err != nil {
			return nil, err
		}
	}
	if err := w.unchanged(ctx, in); err != nil {
		return nil, err
	}
	for _, r := range in.Resize {
		if err := w.resize(ctx, r); err != nil {
			return nil, err
		}
	}
	for _, t := range in.Delete {
		if err := w.remove(ctx, t); err != nil {
			return nil, err
		}
	}
	return w.versions, nil
}

// setWriter changes sets of one deployment, and collects their new versions.
type setWriter[D, S object] struct {
	Family[D, S]
	clock      kube.Clock
	deployment kube.Ref
	versions   kube.MinVersions
}

func (w setWriter[D, S]) ref(name, uid string) kube.Ref {
	return kube.Ref{Namespace: w.deployment.Namespace, Name: name, UID: uid}
}

func (w setWriter[D, S]) sets() Client[S] { return w.Sets(w.deployment.Namespace) }

// event records an event on the deployment, if the cache knows it.
func (w setWriter[D, S]) event(reason, message string) {
	if d, known := w.Cached(w.deployment.Key()); known {
		w.Kube.Recorder.Event(d, corev1.EventTypeNormal, reason, message)
	}
}

// release gives up the control of a set that the selector no longer matches.
func (w setWriter[D, S]) release(ctx context.Context, t rollout.Target) error {
	return w.changeOwner(ctx, t, "SuccessfulRelease", "Released MachineSet: ", func(set S, d D) bool {
		if !metav1.IsControlledBy(set, d) || w.Selects(d, set) {
			return false
		}
		kube.Disown(set, d.GetUID())
		annotate(set, v1alpha1.AnnotationReleasedBy, string(d.GetUID()))
		return true
	})
}

// adopt makes the deployment the controller of a set without one.
func (w setWriter[D, S]) adopt(ctx context.Context, t rollout.Target) error {
	return w.changeOwner(ctx, t, vocabulary.ReasonSuccessfulAdopt, "Adopted MachineSet: ", func(set S, d D) bool {
		if !w.Free(set, d) || !w.Selects(d, set) || set.GetDeletionTimestamp() != nil {
			return false
		}
		w.Take(set, d)
		annotate(set, v1alpha1.AnnotationReleasedBy, "")
		return true
	})
}

// changeOwner lets change edit a set that still is as the decision saw it, writes the set, and records an event. It
// writes nothing if change returns false. It reads the deployment live first: change needs its present selector, and a
// deployment that is being deleted changes no owner.
func (w setWriter[D, S]) changeOwner(
	ctx context.Context, t rollout.Target, reason, words string, change func(S, D) bool,
) error {
	d, err := w.At(ctx, w.deployment, "")
	if err != nil {
		return err
	}
	if d.GetDeletionTimestamp() != nil {
		return kube.Conflict(w.deployment)
	}
	set, err := w.setAt(ctx, t)
	if err != nil || !change(set, d) {
		return err
	}
	if _, err := w.write(ctx, set); err != nil {
		return err
	}
	w.event(reason, words+t.Name+": "+t.Why)
	return nil
}

// setAt reads a set that still is as the decision saw it; one that is not is a Conflict.
func (w setWriter[D, S]) setAt(ctx context.Context, t rollout.Target) (set S, err error) {
	ref := w.ref(t.Name, t.UID)
	set, err = w.sets().Get(ctx, t.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return set, kube.WriteError(ctx, ref, err)
	case string(set.GetUID()) != t.UID, set.GetResourceVersion() != t.Version:
		return set, kube.Conflict(ref)
	default:
		return set, nil
	}
}

// write updates a set, and returns the set as it was written.
func (w setWriter[D, S]) write(ctx context.Context, set S) (written S, err error) {
	written, err = w.sets().Update(ctx, set, metav1.UpdateOptions{})
	if err != nil {
		return written, kube.WriteError(ctx, w.ref(set.GetName(), string(set.GetUID())), err)
	}
	w.versions.Raise(w.Resources[1], written.GetResourceVersion())
	return written, nil
}

// patch changes a set that still is as the decision saw it. Its error is the API server's own.
func (w setWriter[D, S]) patch(ctx context.Context, name, uid, version string, change map[string]any) error {
	seen := &metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}
	set, err := kube.Patch(ctx, w.sets(), seen, change)
	if err == nil {
		w.versions.Raise(w.Resources[1], set.GetResourceVersion())
	}
	return err
}

// allowScale allows a set to create machines, or forbids it.
func (w setWriter[D, S]) allowScale(ctx context.Context, t rollout.Target, allow bool) error {
	err := w.patch(ctx, t.Name, t.UID, t.Version, map[string]any{"metadata": w.AllowScale(allow)})
	return kube.WriteError(ctx, w.ref(t.Name, t.UID), err)
}

// follow copies to a set what follows the deployment. If revise is not nil, it also writes the revision of the set,
// which must be the current one. The deployment gets the revision of its current set.
func (w setWriter[D, S]) follow(ctx context.Context, t rollout.Target, revise *rollout.Revise) error {
	d, err := w.At(ctx, w.deployment, "")
	if err != nil {
		return err
	}
	set, err := w.setAt(ctx, t)
	if err != nil {
		return err
	}
	changed, current, err := w.Follow(ctx, d, set, w.clock.Now())
	if err != nil {
		return err
	}
	if revise != nil {
		if !current {
			return kube.Conflict(w.deployment)
		}
		annotate(set, w.Revision, strconv.FormatInt(revise.Revision, 10))
		if revise.History != "" {
			annotate(set, w.History, revise.History)
		}
	}
	if changed || revise != nil {
		if set, err = w.write(ctx, set); err != nil {
			return err
		}
	}
	if !current {
		return nil
	}
	return w.WriteRevision(ctx, w.deployment, d, set, w.versions)
}

// unchanged returns a Conflict if a set would grow although the deployment has another spec than the decision saw. After
// a restore of the API server, one cache may show the restored sets, and another cache the deployment before the restore:
// the sets would make machines that nobody wants. It reads the deployment only if a set grows.
func (w setWriter[D, S]) unchanged(ctx context.Context, in SetChanges) error {
	grows := false
	for _, r := range in.Resize {
		grows = grows || r.To > r.From
	}
	if !grows || in.Generation == 0 {
		return nil
	}
	d, err := kube.LiveAt(ctx, w.Deployments(w.deployment.Namespace), w.Kind, w.deployment, "")
	if err == nil && d.GetGeneration() != in.Generation {
		err = kube.Conflict(w.deployment)
	}
	return err
}

// resize gives a set its size, and records an event.
func (w setWriter[D, S]) resize(ctx context.Context, r rollout.Resize) error {
	change := func(actedOn int) map[string]any {
		return map[string]any{
			"spec":     map[string]any{"replicas": r.To},
			"metadata": map[string]any{"annotations": w.Resized(r, actedOn)},
		}
	}
	err := w.patch(ctx, r.Name, r.UID, r.Version, change(r.ActedOn))
	soon := w.clock.Now().Sub(activity.GetInfo(ctx).ScheduledTime) < resizeWithin
	if apierrors.IsConflict(err) && r.From != r.To && soon {
		if set, same := w.ofSameSize(ctx, r); same {
			err = w.patch(ctx, r.Name, r.UID, set.GetResourceVersion(), change(w.ActedOn(set)))
		}
	}
	if err != nil {
		return kube.WriteError(ctx, w.ref(r.Name, r.UID), err)
	}
	if r.From != r.To {
		direction := map[bool]string{true: "up", false: "down"}[r.To > r.From]
		w.event(vocabulary.ReasonScalingMachineSet, "Scaled "+direction+" machine set "+r.Name+" to "+strconv.Itoa(r.To))
	}
	return nil
}

// ofSameSize reads a set, and reports whether its size is still the one that the decision saw. During a rollout the
// status of a set changes several times a second, which does not affect the decision.
func (w setWriter[D, S]) ofSameSize(ctx context.Context, r rollout.Resize) (set S, same bool) {
	set, err := w.sets().Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil || string(set.GetUID()) != r.UID || set.GetDeletionTimestamp() != nil || w.Replicas(set) != r.From {
		return set, false
	}
	owner := metav1.GetControllerOf(set)
	return set, owner != nil && string(owner.UID) == w.deployment.UID
}

// remove deletes a set; a set that is gone counts as deleted. The request has no propagation policy, so that the
// finalizer orphan of a set stays.
func (w setWriter[D, S]) remove(ctx context.Context, t rollout.Target) error {
	err := w.sets().Delete(ctx, t.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: new(types.UID(t.UID)), ResourceVersion: new(t.Version)},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return kube.WriteError(ctx, w.ref(t.Name, t.UID), err)
}

// RollBack puts the template of a former set back into the deployment, and removes the request for that, all in one
// write. Without a set it only removes the request. It records an event. A deployment that changed since the decision is
// a Conflict. It returns the version to wait for. Running it twice writes once.
func (f Family[D, S]) RollBack(ctx context.Context, in RollBack) (kube.MinVersions, error) {
	d, err := kube.LiveAt(ctx, f.Deployments(in.Deployment.Namespace), f.Kind, in.Deployment, "")
	if err != nil {
		return nil, err
	}
	var set, none S
	if former := in.Rollback.Set; former != nil { // in any version: its status changes often, its template does not
		ref := kube.Ref{Namespace: in.Deployment.Namespace, Name: former.Name, UID: former.UID}
		if set, err = f.Former(ctx, ref); err != nil {
			return nil, err
		}
	}
	done := !f.Asked(d) && (set == none && !in.Rollback.Automatic || set != none && f.SameTemplate(d, set))
	switch {
	case done:
		return kube.MinVersions{f.Resources[0]: d.GetResourceVersion()}, nil
	case d.GetResourceVersion() != in.Version, d.GetDeletionTimestamp() != nil, !f.Ours(d):
		return nil, kube.Conflict(in.Deployment)
	}
	if set != none {
		f.ReturnTo(d, set, in.Rollback.Automatic, kube.ServerClock(ctx).Now())
	}
	f.Forget(d)
	if d, err = f.Deployments(in.Deployment.Namespace).Update(ctx, d, metav1.UpdateOptions{}); err != nil {
		return nil, kube.WriteError(ctx, in.Deployment, err)
	}
	kind := corev1.EventTypeWarning
	if in.Rollback.Reason == vocabulary.ReasonDeploymentRollback {
		kind = corev1.EventTypeNormal
	}
	f.Kube.Recorder.Event(d, kind, in.Rollback.Reason, in.Rollback.Why)
	return kube.MinVersions{f.Resources[0]: d.GetResourceVersion()}, nil
}

// Unless returns nil if the condition holds, else the value. In a patch, nil removes the key.
func Unless(condition bool, value any) any {
	if condition {
		return nil
	}
	return value
}

// annotate sets an annotation of an object; an empty value removes it.
func annotate(o metav1.Object, key, value string) {
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
