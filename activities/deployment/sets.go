package deployment

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"go.temporal.io/sdk/activity"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	observeset "millwright/observe/set"
)

// SetCreation asks for the set of a deployment's current template.
type SetCreation struct {
	Deployment kube.Ref
	Version    string // resourceVersion of the deployment that the decision saw
	rollout.Creation
}

// CreateSet creates the set of the deployment's current template, and writes its revision to the deployment. Its name
// is derived from the template, so that running it twice creates one set. If the name belongs to another object, or to
// a set that is being deleted, it increments the collision count in the status and returns a Conflict. It returns the
// versions to wait for.
func (a *Activities) CreateSet(ctx context.Context, in SetCreation) (kube.MinVersions, error) {
	d, err := kube.LiveAt(ctx, a.Kube.Deployments(in.Deployment.Namespace), "deployment", in.Deployment, in.Version)
	if err != nil {
		return nil, err
	}
	hash, err := observeset.TemplateHash(&d.Spec.Template, d.Status.CollisionCount)
	if err != nil {
		return nil, fmt.Errorf("hash template of %s: %w", d.Name, err)
	}
	sets := a.Kube.Sets(in.Deployment.Namespace)
	set, err := sets.Create(ctx, newSet(d, hash, in.Creation), metav1.CreateOptions{})
	switch {
	case err == nil:
		a.Kube.Recorder.Eventf(
			d,
			corev1.EventTypeNormal,
			vocabulary.ReasonScalingMachineSet,
			"Scaled up machine set %s to %d",
			set.Name,
			set.Spec.Replicas,
		)
	case apierrors.IsAlreadyExists(err):
		set, err = sets.Get(ctx, observeset.Name(d.Name, hash), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, kube.Conflict(in.Deployment)
		}
		switch {
		case err != nil || isSetOf(d, set):
		case deployment.Selects(d, set) && cache.IsFree(set, d, cache.KindDeployment) && set.DeletionTimestamp == nil:
			return nil, kube.Conflict(in.Deployment) // the next decision adopts it
		case cache.IsOrphaning(set):
			return nil, kube.Conflict(in.Deployment) // the next decision waits until it is gone
		default:
			return nil, a.countCollision(ctx, in.Deployment, d)
		}
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		a.Kube.Recorder.Event(
			d,
			corev1.EventTypeWarning,
			v1alpha1.ReasonMachineSetCreateError,
			"Error creating machine set: "+kube.Brief(err.Error()),
		)
	}
	if err != nil {
		return nil, kube.WriteError(ctx, in.Deployment, fmt.Errorf("create set of deployment %s: %w", d.Name, err))
	}
	versions := kube.MinVersions{cache.Sets: set.ResourceVersion}
	return versions, a.writeRevision(ctx, in.Deployment, d, set, versions)
}

// writeRevision writes the revision of a deployment's current set on the deployment, and removes the record of an
// automatic rollback to another set.
func (a *Activities) writeRevision(
	ctx context.Context, ref kube.Ref, d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet, versions kube.MinVersions,
) error {
	annotations := map[string]any{v1alpha1.AnnotationRevision: set.Annotations[v1alpha1.AnnotationRevision]}
	if d.Annotations[v1alpha1.AnnotationRevision] == annotations[v1alpha1.AnnotationRevision] {
		return nil
	}
	if d.Annotations[v1alpha1.AnnotationAutomaticRollbackTo] != string(set.UID) {
		annotations[v1alpha1.AnnotationAutomaticRollbackTo] = nil
	}
	d, err := kube.Patch(
		ctx,
		a.Kube.Deployments(ref.Namespace),
		d,
		map[string]any{"metadata": map[string]any{"annotations": annotations}},
	)
	if err != nil {
		return kube.WriteError(ctx, ref, err)
	}
	versions.Raise(cache.Deployments, d.ResourceVersion)
	return nil
}

// isSetOf reports whether the set that was found under the wanted name is the wanted set. A set that is being deleted
// is not; otherwise it would be asked for again and again until it is gone.
func isSetOf(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) bool {
	return metav1.IsControlledBy(set, d) && set.DeletionTimestamp == nil &&
		observeset.SameTemplate(&set.Spec.Template, &d.Spec.Template)
}

// countCollision counts a name that was taken, so that the next hash differs.
func (a *Activities) countCollision(ctx context.Context, ref kube.Ref, d *v1alpha1.MachineDeployment) error {
	count := int32(1)
	if d.Status.CollisionCount != nil {
		count += *d.Status.CollisionCount
	}
	d.Status.CollisionCount = &count
	if _, err := a.Kube.Deployments(ref.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
		return kube.WriteError(ctx, ref, err)
	}
	return kube.Conflict(ref)
}

// newSet returns the set of a deployment's template. Labels and selector contain the hash, so that no set selects the
// machines of another.
func newSet(d *v1alpha1.MachineDeployment, hash string, as rollout.Creation) *v1alpha1.MachineSet {
	withHash := func(some map[string]string) map[string]string {
		return labels.Merge(some, labels.Set{v1alpha1.LabelMachineTemplateHash: hash})
	}
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels)
	template := *d.Spec.Template.DeepCopy()
	template.Labels = withHash(template.Labels)
	set := &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:       observeset.Name(d.Name, hash),
			Namespace:  d.Namespace,
			Labels:     withHash(d.Spec.Template.Labels),
			Finalizers: []string{v1alpha1.FinalizerMachine},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(d, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment")),
			},
			Annotations: map[string]string{
				v1alpha1.AnnotationRevision:        strconv.FormatInt(as.Revision, 10),
				v1alpha1.AnnotationDesiredReplicas: strconv.Itoa(as.Desired),
				v1alpha1.AnnotationMaxReplicas:     strconv.Itoa(as.Max),
			},
		},
		Spec: v1alpha1.MachineSetSpec{Replicas: int32(as.Replicas), Selector: selector, Template: template},
	}
	deployment.FollowDeployment(set, d)
	return set
}

// SetChanges are the changes of a deployment's sets.
type SetChanges struct {
	Deployment kube.Ref
	Generation int64            `json:",omitzero"` // of the deployment that the decision saw; zero: not known
	Release    []rollout.Target // remove our controller reference
	Adopt      []rollout.Target // make the deployment their controller
	Open       []rollout.Target // allow them to create machines
	Close      []rollout.Target // forbid them to create machines
	Revise     *rollout.Revise
	Sync       []rollout.Target // copy to them what follows the deployment
	Resize     []rollout.Resize
	Delete     []rollout.Target
}

// Questions asks about sets of a deployment of Cluster API whether an extension can update their machines in place.
type Questions struct {
	Deployment kube.Ref
	Sets       []rollout.Target
}

// ChangeSets changes and deletes sets that still are as the decision saw them; a set that is not is a Conflict. Within
// 2 s of the decision a resize also succeeds if only the resourceVersion changed and spec.replicas is still From.
// Running it twice changes once, and is a Conflict then. It returns the versions to wait for.
func (a *Activities) ChangeSets(ctx context.Context, in SetChanges) (kube.MinVersions, error) {
	w := setWriter{Activities: a, clock: kube.ServerClock(ctx), deployment: in.Deployment, versions: kube.MinVersions{}}
	if err := w.changeOwners(ctx, in); err != nil {
		return nil, err
	}
	if err := w.label(ctx, in.Open, nil); err != nil {
		return nil, err
	}
	if err := w.label(ctx, in.Close, v1alpha1.ValueLowerTrue); err != nil {
		return nil, err
	}
	if err := w.syncSets(ctx, in); err != nil {
		return nil, err
	}
	if err := Unchanged(in, func() (*v1alpha1.MachineDeployment, error) {
		return kube.LiveAt(ctx, a.Kube.Deployments(in.Deployment.Namespace), "deployment", in.Deployment, "")
	}); err != nil {
		return nil, err
	}
	for _, r := range in.Resize {
		if err := w.resize(ctx, r); err != nil {
			return nil, err
		}
	}
	for _, t := range in.Delete { // without a propagation policy, so that the finalizer orphan of a set stays
		err := w.Kube.Sets(w.deployment.Namespace).Delete(ctx, t.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: new(types.UID(t.UID)), ResourceVersion: new(t.Version)},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, kube.WriteError(ctx, w.ref(t.Name, t.UID), err)
		}
	}
	return w.versions, nil
}

// setWriter changes sets of one deployment, and collects their new versions.
type setWriter struct {
	*Activities
	clock      kube.Clock
	deployment kube.Ref
	versions   kube.MinVersions
}

func (w setWriter) ref(name, uid string) kube.Ref {
	return kube.Ref{Namespace: w.deployment.Namespace, Name: name, UID: uid}
}

// changeOwners releases and adopts sets. It reads the deployment live first, so that a deployment that is being deleted
// does neither, and its selector is the present one.
func (w setWriter) changeOwners(ctx context.Context, in SetChanges) error {
	if len(in.Release)+len(in.Adopt) == 0 {
		return nil
	}
	d, err := kube.LiveAt(ctx, w.Kube.Deployments(w.deployment.Namespace), "deployment", w.deployment, "")
	if err != nil {
		return err
	}
	if d.DeletionTimestamp != nil {
		return kube.Conflict(w.deployment)
	}
	release := func(set *v1alpha1.MachineSet) bool {
		if !metav1.IsControlledBy(set, d) || deployment.Selects(d, set) {
			return false
		}
		set.OwnerReferences = slices.DeleteFunc(
			set.OwnerReferences,
			func(ref metav1.OwnerReference) bool { return ref.UID == d.UID },
		)
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationReleasedBy, string(d.UID))
		return true
	}
	adopt := func(set *v1alpha1.MachineSet) bool {
		if !cache.IsFree(set, d, cache.KindDeployment) || !deployment.Selects(d, set) || set.DeletionTimestamp != nil {
			return false
		}
		kube.SetController(set, d, cache.KindDeployment)
		delete(set.Annotations, v1alpha1.AnnotationReleasedBy)
		return true
	}
	for _, t := range in.Release {
		if err := w.changeOwner(ctx, d, t, release, "SuccessfulRelease", "Released MachineSet: "); err != nil {
			return err
		}
	}
	for _, t := range in.Adopt {
		if err := w.changeOwner(ctx, d, t, adopt, vocabulary.ReasonSuccessfulAdopt, "Adopted MachineSet: "); err != nil {
			return err
		}
	}
	return nil
}

// changeOwner writes a set that still is as the decision saw it, as change leaves it, and records an event; it writes
// nothing if change returns false.
func (w setWriter) changeOwner(
	ctx context.Context,
	d *v1alpha1.MachineDeployment,
	t rollout.Target,
	change func(*v1alpha1.MachineSet) bool,
	reason, words string,
) error {
	set, err := kube.LiveAt(ctx, w.Kube.Sets(w.deployment.Namespace), "set", w.ref(t.Name, t.UID), t.Version)
	if err != nil || !change(set) {
		return err
	}
	if set, err = w.Kube.Sets(w.deployment.Namespace).Update(ctx, set, metav1.UpdateOptions{}); err != nil {
		return kube.WriteError(ctx, w.ref(t.Name, t.UID), err)
	}
	w.versions.Raise(cache.Sets, set.ResourceVersion)
	w.Kube.Recorder.Event(d, corev1.EventTypeNormal, reason, words+t.Name+": "+t.Why)
	return nil
}

// label writes the label that forbids a set to create machines; nil removes it.
func (w setWriter) label(ctx context.Context, sets []rollout.Target, value any) error {
	for _, t := range sets {
		labels := map[string]any{v1alpha1.LabelScaleUpDisabled: value}
		if err := w.patch(
			ctx,
			t.Name,
			t.UID,
			t.Version,
			map[string]any{"metadata": map[string]any{"labels": labels}},
		); err != nil {
			return kube.WriteError(ctx, w.ref(t.Name, t.UID), err)
		}
	}
	return nil
}

// patch changes a set that still is as the decision saw it. Its error is the API server's own.
func (w setWriter) patch(ctx context.Context, name, uid, version string, change map[string]any) error {
	seen := &metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version}
	set, err := kube.Patch(ctx, w.Kube.Sets(w.deployment.Namespace), seen, change)
	if err == nil {
		w.versions.Raise(cache.Sets, set.ResourceVersion)
	}
	return err
}

// Unchanged returns a Conflict if a set would grow although the deployment has another spec than the decision saw. After
// a restore of the API server, one cache may show the restored sets, and another cache the deployment before the restore:
// the sets would make machines that nobody wants. It reads the deployment once, with live, and only if a set grows.
func Unchanged[O metav1.Object](in SetChanges, live func() (O, error)) error {
	grows := slices.ContainsFunc(in.Resize, func(r rollout.Resize) bool { return r.To > r.From })
	if !grows || in.Generation == 0 {
		return nil
	}
	d, err := live()
	if err == nil && d.GetGeneration() != in.Generation {
		err = kube.Conflict(in.Deployment)
	}
	return err
}

// resize gives a set its size, and records an event.
func (w setWriter) resize(ctx context.Context, r rollout.Resize) error {
	change := map[string]any{
		"spec": map[string]any{"replicas": r.To},
		"metadata": map[string]any{"annotations": map[string]any{
			v1alpha1.AnnotationDesiredReplicas: strconv.Itoa(r.Desired), v1alpha1.AnnotationMaxReplicas: strconv.Itoa(r.Max),
		}},
	}
	err := w.patch(ctx, r.Name, r.UID, r.Version, change)
	if apierrors.IsConflict(err) && r.From != r.To &&
		w.clock.Now().Sub(activity.GetInfo(ctx).ScheduledTime) < resizeWithin {
		if version := w.sameSize(ctx, r); version != "" {
			err = w.patch(ctx, r.Name, r.UID, version, change)
		}
	}
	d, known := w.Kube.Cluster.Deployment(w.deployment.Key())
	if err != nil || !known || r.From == r.To {
		return kube.WriteError(ctx, w.ref(r.Name, r.UID), err)
	}
	direction := map[bool]string{true: "up", false: "down"}[r.To > r.From]
	w.Kube.Recorder.Eventf(
		d,
		corev1.EventTypeNormal,
		vocabulary.ReasonScalingMachineSet,
		"Scaled %s machine set %s to %d",
		direction,
		r.Name,
		r.To,
	)
	return nil
}

// sameSize returns the present version of a set whose size is still the one that the decision saw; empty when it is
// not. During a rollout the status of a set changes several times a second, which does not affect the decision.
func (w setWriter) sameSize(ctx context.Context, r rollout.Resize) (version string) {
	set, err := w.Kube.Sets(w.deployment.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	same := err == nil && string(set.UID) == r.UID && set.DeletionTimestamp == nil && int(set.Spec.Replicas) == r.From
	if same && controls(w.deployment, set) {
		return set.ResourceVersion
	}
	return ""
}

// syncSets writes the revision of the current set, or copies to it what follows the deployment, and writes its revision
// to the deployment.
func (w setWriter) syncSets(ctx context.Context, in SetChanges) error {
	targets, revise := in.Sync, func(*v1alpha1.MachineSet) {}
	if in.Revise != nil {
		targets = append(targets, in.Revise.Target)
		revise = func(set *v1alpha1.MachineSet) {
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationRevision, strconv.FormatInt(in.Revise.Revision, 10))
			if in.Revise.History != "" {
				metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationRevisionHistory, in.Revise.History)
			}
		}
	}
	for _, t := range targets {
		d, err := kube.LiveAt(ctx, w.Kube.Deployments(w.deployment.Namespace), "deployment", w.deployment, "")
		if err != nil {
			return err
		}
		set, err := w.Kube.Sets(w.deployment.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return kube.WriteError(ctx, w.ref(t.Name, t.UID), err)
		}
		if string(set.UID) != t.UID || set.ResourceVersion != t.Version {
			return kube.Conflict(w.ref(t.Name, t.UID))
		}
		if !observeset.SameTemplate(&set.Spec.Template, &d.Spec.Template) { // it is not the current set any more
			return kube.Conflict(w.deployment)
		}
		deployment.FollowDeployment(set, d)
		revise(set)
		if set, err = w.Kube.Sets(w.deployment.Namespace).Update(ctx, set, metav1.UpdateOptions{}); err != nil {
			return kube.WriteError(ctx, w.ref(t.Name, t.UID), err)
		}
		w.versions.Raise(cache.Sets, set.ResourceVersion)
		if err := w.writeRevision(ctx, w.deployment, d, set, w.versions); err != nil {
			return err
		}
	}
	return nil
}
