package activities

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"go.temporal.io/sdk/activity"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	machinev1alpha1 "millwright/api/generated/clientset/versioned/typed/api/v1alpha1"
	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe"
)

// SetCreation asks for the set of a deployment's current template.
type SetCreation struct {
	Deployment Ref
	Version    string // resourceVersion of the deployment that the decision saw
	rollout.Creation
}

// CreateSet makes the set of the deployment's current template, and numbers the deployment like it. Its name follows from the
// template, so that running it twice makes one set. Where the name belongs to something else, or to a set that is on its
// way out, the collision count in the status goes up and the answer is a Conflict: decide again. It returns the versions to
// wait for.
func (a *Activities) CreateSet(ctx context.Context, in SetCreation) (Gate, error) {
	d, err := a.liveDeployment(ctx, in.Deployment)
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		return nil, objectGone(in.Deployment)
	case d.ResourceVersion != in.Version:
		return nil, conflict(in.Deployment)
	}
	hash, err := observe.TemplateHash(&d.Spec.Template, d.Status.CollisionCount)
	if err != nil {
		return nil, fmt.Errorf("hash template of %s: %w", d.Name, err)
	}
	sets := a.Cluster.Client().MachineV1alpha1().MachineSets(d.Namespace)
	set, err := sets.Create(ctx, newSet(d, hash, in.Creation), metav1.CreateOptions{})
	switch {
	case err == nil:
		a.Recorder.Event(d, corev1.EventTypeNormal, "ScalingMachineSet", fmt.Sprintf("Scaled up machine set %s to %d", set.Name, set.Spec.Replicas))
	case apierrors.IsAlreadyExists(err):
		set, err = sets.Get(ctx, observe.SetName(d.Name, hash), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, conflict(in.Deployment)
		}
		if err == nil && !isSetOf(d, set) {
			return nil, a.collide(ctx, d)
		}
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		a.Recorder.Event(d, corev1.EventTypeWarning, v1alpha1.ReasonMachineSetCreateError, "Error creating machine set: "+brief(err.Error()))
	}
	if err != nil {
		return nil, writeError(in.Deployment, fmt.Errorf("create set of deployment %s: %w", d.Name, err))
	}
	gate := Gate{}
	gate.Raise(observe.Sets, set.ResourceVersion)
	return gate, a.number(ctx, d, in.Revision, gate)
}

// number writes the revision of a deployment's current set on the deployment.
func (a *Activities) number(ctx context.Context, d *v1alpha1.MachineDeployment, revision int64, gate Gate) error {
	value := strconv.FormatInt(revision, 10)
	if d.Annotations[v1alpha1.AnnotationRevision] == value {
		return nil
	}
	data, err := seen(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationRevision: value}}}, d)
	if err != nil {
		return err
	}
	d, err = a.Cluster.Client().MachineV1alpha1().MachineDeployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		return writeError(Ref{Namespace: d.Namespace, Name: d.Name}, err)
	}
	gate.Raise(observe.Deployments, d.ResourceVersion)
	return nil
}

// isSetOf reports whether a set that was found under the name of the wanted one is that set. One that is being deleted is
// not: to take it for the wanted one would mean to ask for it again and again until it is gone.
func isSetOf(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) bool {
	return metav1.IsControlledBy(set, d) && set.DeletionTimestamp == nil && observe.SameTemplate(&set.Spec.Template, &d.Spec.Template)
}

// collide counts a name that was taken, so that the next hash differs.
func (a *Activities) collide(ctx context.Context, d *v1alpha1.MachineDeployment) error {
	d = d.DeepCopy()
	count := int32(1)
	if d.Status.CollisionCount != nil {
		count += *d.Status.CollisionCount
	}
	d.Status.CollisionCount = &count
	if _, err := a.Cluster.Client().MachineV1alpha1().MachineDeployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
		return writeError(Ref{Namespace: d.Namespace, Name: d.Name}, err)
	}
	return conflict(Ref{Namespace: d.Namespace, Name: d.Name})
}

// newSet returns the set of a deployment's template. Labels and selector carry the hash, which keeps the machines of two
// sets apart.
func newSet(d *v1alpha1.MachineDeployment, hash string, as rollout.Creation) *v1alpha1.MachineSet {
	withHash := func(labels map[string]string) map[string]string {
		labels = maps.Clone(labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[v1alpha1.LabelMachineTemplateHash] = hash
		return labels
	}
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels)
	template := *d.Spec.Template.DeepCopy()
	template.Labels = withHash(template.Labels)
	set := &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            observe.SetName(d.Name, hash),
			Namespace:       d.Namespace,
			Labels:          withHash(d.Spec.Template.Labels),
			Finalizers:      []string{v1alpha1.FinalizerMachine},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))},
			Annotations: map[string]string{
				v1alpha1.AnnotationRevision:        strconv.FormatInt(as.Revision, 10),
				v1alpha1.AnnotationDesiredReplicas: strconv.Itoa(as.Desired),
				v1alpha1.AnnotationMaxReplicas:     strconv.Itoa(as.Max),
			},
		},
		Spec: v1alpha1.MachineSetSpec{Replicas: int32(as.Replicas), Selector: selector, Template: template},
	}
	observe.FollowDeployment(set, d)
	return set
}

// SetChanges are what is done to sets of a deployment.
type SetChanges struct {
	Deployment Ref
	Open       []rollout.Target // let them make machines
	Close      []rollout.Target // let them make none
	Revise     *rollout.Revise
	Sync       []rollout.Target // copy to them what is the deployment's
	Resize     []rollout.Resize
	Delete     []rollout.Target
}

// ChangeSets changes and deletes sets, each if it still is as the decision saw it; else the answer is a Conflict. Of a set that gets
// another size, and soon after the decision, that is its size. Running it twice changes once, and is a Conflict then. It returns the versions to wait for.
func (a *Activities) ChangeSets(ctx context.Context, in SetChanges) (Gate, error) {
	w := setWriter{Activities: a, deployment: in.Deployment, gate: Gate{}}
	for _, door := range []struct {
		sets  []rollout.Target
		label any
	}{{in.Open, nil}, {in.Close, v1alpha1.ValueLowerTrue}} {
		for _, t := range door.sets {
			labels := map[string]any{v1alpha1.LabelScaleUpDisabled: door.label}
			if err := w.patch(ctx, t.Name, t.UID, t.Version, map[string]any{"metadata": map[string]any{"labels": labels}}); err != nil {
				return nil, err
			}
		}
	}
	if err := w.align(ctx, in); err != nil {
		return nil, err
	}
	for _, r := range in.Resize {
		if err := w.resize(ctx, r); err != nil {
			return nil, err
		}
	}
	for _, t := range in.Delete {
		err := w.sets().Delete(ctx, t.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: ptr(types.UID(t.UID)), ResourceVersion: ptr(t.Version)},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, writeError(w.ref(t.Name, t.UID), err)
		}
	}
	return w.gate, nil
}

// setWriter changes sets of one deployment, and keeps the versions that they have then.
type setWriter struct {
	*Activities
	deployment Ref
	gate       Gate
}

func (w setWriter) sets() machinev1alpha1.MachineSetInterface {
	return w.Cluster.Client().MachineV1alpha1().MachineSets(w.deployment.Namespace)
}

func (w setWriter) ref(name, uid string) Ref {
	return Ref{Namespace: w.deployment.Namespace, Name: name, UID: uid}
}

// patch changes a set that still is as the decision saw it.
func (w setWriter) patch(ctx context.Context, name, uid, version string, change map[string]any) error {
	return writeError(w.ref(name, uid), w.tryPatch(ctx, name, uid, version, change))
}

// tryPatch is patch with the API server's own answer.
func (w setWriter) tryPatch(ctx context.Context, name, uid, version string, change map[string]any) error {
	data, err := seen(change, &metav1.ObjectMeta{Name: name, UID: types.UID(uid), ResourceVersion: version})
	if err != nil {
		return err
	}
	set, err := w.sets().Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{})
	if err == nil {
		w.gate.Raise(observe.Sets, set.ResourceVersion)
	}
	return err
}

// resize gives a set its size, and tells of it.
func (w setWriter) resize(ctx context.Context, r rollout.Resize) error {
	change := map[string]any{
		"spec": map[string]any{"replicas": r.To},
		"metadata": map[string]any{"annotations": map[string]any{
			v1alpha1.AnnotationDesiredReplicas: strconv.Itoa(r.Desired), v1alpha1.AnnotationMaxReplicas: strconv.Itoa(r.Max),
		}},
	}
	err := w.tryPatch(ctx, r.Name, r.UID, r.Version, change)
	if apierrors.IsConflict(err) && r.From != r.To && time.Since(activity.GetInfo(ctx).ScheduledTime) < resizeWithin {
		if version := w.sameSize(ctx, r); version != "" {
			err = w.tryPatch(ctx, r.Name, r.UID, version, change)
		}
	}
	d, known := w.Cluster.Deployment(w.deployment.Key())
	if err != nil || !known || r.From == r.To {
		return writeError(w.ref(r.Name, r.UID), err)
	}
	direction := map[bool]string{true: "up", false: "down"}[r.To > r.From]
	w.Recorder.Event(d, corev1.EventTypeNormal, "ScalingMachineSet", fmt.Sprintf("Scaled %s machine set %s to %d", direction, r.Name, r.To))
	return nil
}

// sameSize returns the version of a set that still is as its resize was decided on; empty where it is not. In the midst of a rollout sets
// write their status several times a second, which changes nothing of what the decision saw a moment ago.
func (w setWriter) sameSize(ctx context.Context, r rollout.Resize) (version string) {
	set, err := w.sets().Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil || string(set.UID) != r.UID || set.DeletionTimestamp != nil || int(set.Spec.Replicas) != r.From {
		return ""
	}
	if owner := metav1.GetControllerOf(set); owner == nil || string(owner.UID) != w.deployment.UID {
		return ""
	}
	return set.ResourceVersion
}

// align numbers the current set, or copies to it what is the deployment's, and numbers the deployment like it.
func (w setWriter) align(ctx context.Context, in SetChanges) error {
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
		d, err := w.liveDeployment(ctx, w.deployment)
		if err != nil {
			return err
		}
		if d == nil {
			return objectGone(w.deployment)
		}
		set, err := w.sets().Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return writeError(w.ref(t.Name, t.UID), err)
		}
		if string(set.UID) != t.UID || set.ResourceVersion != t.Version {
			return conflict(w.ref(t.Name, t.UID))
		}
		if !observe.SameTemplate(&set.Spec.Template, &d.Spec.Template) { // it was the current one when this was decided
			return conflict(w.deployment)
		}
		observe.FollowDeployment(set, d)
		revise(set)
		if set, err = w.sets().Update(ctx, set, metav1.UpdateOptions{}); err != nil {
			return writeError(w.ref(t.Name, t.UID), err)
		}
		w.gate.Raise(observe.Sets, set.ResourceVersion)
		if err := w.number(ctx, d, observe.Revision(set), w.gate); err != nil {
			return err
		}
	}
	return nil
}
