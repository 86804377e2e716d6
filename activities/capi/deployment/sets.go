package deployment

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.temporal.io/sdk/activity"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	activities "millwright/activities/deployment"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
)

// namesTried is how many names a new set is tried with. Source: a name has five digits of a hash, so the second one is
// free.
const namesTried = 5

// CreateClusterAPISet creates the set of the deployment's template, and writes its revision to the deployment. It first
// reads whether the templates and the Cluster exist; if not, that is a Conflict. The name of the set is derived from
// the template and the revision, so that running it twice creates one set. It returns the versions to wait for.
func (a *Activities) CreateClusterAPISet(ctx context.Context, in activities.SetCreation) (kube.MinVersions, error) {
	d, err := a.deploymentAt(ctx, in.Deployment, in.Version)
	if err != nil {
		return nil, err
	}
	family, err := deployment.ReadLive(ctx, a.API, d)
	if err != nil {
		return nil, err
	}
	now := kube.ServerClock(ctx).Now()
	if deployment.Observed(family, now).NoCreate.Reason != "" || d.DeletionTimestamp != nil {
		return nil, kube.Conflict(in.Deployment) // it went away since the decision
	}
	set, created, err := a.createSet(ctx, family, in.Creation, now)
	switch {
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		a.Kube.Recorder.Event(
			d,
			corev1.EventTypeWarning,
			v1alpha1.ReasonMachineSetCreateError,
			"Error creating machine set: "+kube.Brief(err.Error()),
		)
	case created:
		a.Kube.Recorder.Eventf(
			d,
			corev1.EventTypeNormal,
			vocabulary.ReasonScalingMachineSet,
			"Scaled up machine set %s to %d",
			set.Name,
			capi.Value(set.Spec.Replicas),
		)
	}
	if err != nil {
		return nil, kube.WriteError(ctx, in.Deployment, fmt.Errorf("create machineset of deployment %s: %w", d.Name, err))
	}
	versions := kube.MinVersions{capi.SetsResource: set.ResourceVersion}
	return versions, a.writeRevision(ctx, in.Deployment, d, set, versions)
}

// createSet creates the set under the first name that no other object has. One that an earlier attempt created is
// returned.
func (a *Activities) createSet(
	ctx context.Context,
	f deployment.Family,
	as rollout.Creation,
	now time.Time,
) (set *clusterv1.MachineSet, created bool, err error) {
	sets := a.API.Client().Sets(f.Deployment.Namespace)
	for attempt := range namesTried {
		wanted, err := f.NewSet(as, attempt, now)
		if err != nil {
			return nil, false, err
		}
		set, err = sets.Create(ctx, wanted, metav1.CreateOptions{FieldManager: capi.DeploymentFieldManager})
		if !apierrors.IsAlreadyExists(err) {
			return set, err == nil, err
		}
		set, err = sets.Get(ctx, wanted.Name, metav1.GetOptions{})
		if err != nil || f.IsSetOf(set, as) {
			return set, false, err
		}
	}
	return nil, false, fmt.Errorf("%d names are taken by other objects", namesTried)
}

// writeRevision writes the revision of a deployment's current set on the deployment, and removes the record of an
// automatic rollback to another set.
func (a *Activities) writeRevision(
	ctx context.Context,
	ref kube.Ref,
	d *clusterv1.MachineDeployment,
	set *clusterv1.MachineSet,
	versions kube.MinVersions,
) error {
	annotations := map[string]any{clusterv1.RevisionAnnotation: set.Annotations[clusterv1.RevisionAnnotation]}
	if d.Annotations[clusterv1.RevisionAnnotation] == annotations[clusterv1.RevisionAnnotation] {
		return nil
	}
	if d.Annotations[v1alpha1.AnnotationAutomaticRollbackTo] != string(set.UID) {
		annotations[v1alpha1.AnnotationAutomaticRollbackTo] = nil
	}
	d, err := a.annotate(ctx, d, annotations)
	if err != nil {
		return kube.WriteError(ctx, ref, err)
	}
	versions.Raise(capi.DeploymentsResource, d.ResourceVersion)
	return nil
}

// annotate changes annotations of a deployment that still is as it was read; nil removes one. Its error is the API
// server's own.
func (a *Activities) annotate(
	ctx context.Context,
	d *clusterv1.MachineDeployment,
	annotations map[string]any,
) (*clusterv1.MachineDeployment, error) {
	client := asMillwright[*clusterv1.MachineDeployment, *clusterv1.MachineDeploymentList]{
		a.API.Client().Deployments(d.Namespace),
	}
	return kube.Patch(ctx, client, d, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// asMillwright patches as the field manager of deployments.
type asMillwright[T, L any] struct{ capi.Typed[T, L] }

// Patch patches an object.
func (m asMillwright[T, L]) Patch(
	ctx context.Context,
	name string,
	kind types.PatchType,
	data []byte,
	o metav1.PatchOptions,
	subresources ...string,
) (T, error) {
	o.FieldManager = capi.DeploymentFieldManager
	return m.Typed.Patch(ctx, name, kind, data, o, subresources...)
}

// ChangeClusterAPISets changes and deletes sets that still are as the decision saw them; a set that is not is a
// Conflict. Within 2 s of the decision a resize also succeeds if only the resourceVersion changed and spec.replicas is
// still From. Running it twice changes once, and is a Conflict then. It returns the versions to wait for.
func (a *Activities) ChangeClusterAPISets(ctx context.Context, in activities.SetChanges) (kube.MinVersions, error) {
	w := setWriter{Activities: a, clock: kube.ServerClock(ctx), deployment: in.Deployment, versions: kube.MinVersions{}}
	steps := []struct {
		sets []rollout.Target
		do   func(context.Context, rollout.Target) error
	}{
		{in.Adopt, w.adopt},
		{in.Open, w.open},
		{in.Close, w.close},
		{in.Sync, func(ctx context.Context, t rollout.Target) error { return w.follow(ctx, t, nil) }},
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
	err := activities.Unchanged(in, func() (*clusterv1.MachineDeployment, error) {
		return kube.LiveAt(ctx, a.deployments(in.Deployment), "deployment", in.Deployment, "")
	})
	if err != nil {
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
type setWriter struct {
	*Activities
	clock      kube.Clock
	deployment kube.Ref
	versions   kube.MinVersions
}

func (w setWriter) sets() asMillwright[*clusterv1.MachineSet, *clusterv1.MachineSetList] {
	return asMillwright[*clusterv1.MachineSet, *clusterv1.MachineSetList]{w.API.Client().Sets(w.deployment.Namespace)}
}

func (w setWriter) ref(name, uid string) kube.Ref {
	return kube.Ref{Namespace: w.deployment.Namespace, Name: name, UID: uid}
}

// event records an event on the deployment, if the cache knows it.
func (w setWriter) event(reason, message string) {
	if d, known := w.API.Deployment(w.deployment.Key()); known {
		w.Kube.Recorder.Event(d, corev1.EventTypeNormal, reason, message)
	}
}

// write updates a set.
func (w setWriter) write(ctx context.Context, t rollout.Target, set *clusterv1.MachineSet) error {
	set, err := w.sets().Update(ctx, set, metav1.UpdateOptions{FieldManager: capi.DeploymentFieldManager})
	if err != nil {
		return kube.WriteError(ctx, w.ref(t.Name, t.UID), err)
	}
	w.versions.Raise(capi.SetsResource, set.ResourceVersion)
	return nil
}

// adopt makes the deployment the controller of a set without one. It reads the deployment live first, so that one that
// is being deleted adopts nothing, and its selector is the present one.
func (w setWriter) adopt(ctx context.Context, t rollout.Target) error {
	d, err := w.deploymentAt(ctx, w.deployment, "")
	if err != nil {
		return err
	}
	if d.DeletionTimestamp != nil {
		return kube.Conflict(w.deployment)
	}
	set, err := kube.LiveAt(ctx, w.sets(), "machineset", w.ref(t.Name, t.UID), t.Version)
	if err != nil || metav1.GetControllerOf(set) != nil || set.DeletionTimestamp != nil || !deployment.Selects(d, set) {
		return err
	}
	set.OwnerReferences = capi.WithOwner(
		set.OwnerReferences,
		*metav1.NewControllerRef(d, clusterv1.GroupVersion.WithKind("MachineDeployment")),
	)
	if err := w.write(ctx, t, set); err != nil {
		return err
	}
	w.event(vocabulary.ReasonSuccessfulAdopt, "Adopted MachineSet: "+t.Name+": "+t.Why)
	return nil
}

// open allows a set to create machines.
func (w setWriter) open(ctx context.Context, t rollout.Target) error {
	return w.disableCreate(ctx, t, nil)
}

// close forbids a set to create machines.
func (w setWriter) close(ctx context.Context, t rollout.Target) error {
	return w.disableCreate(ctx, t, v1alpha1.ValueLowerTrue)
}

func (w setWriter) disableCreate(ctx context.Context, t rollout.Target, value any) error {
	seen := &metav1.ObjectMeta{Name: t.Name, UID: types.UID(t.UID), ResourceVersion: t.Version}
	annotations := map[string]any{clusterv1.DisableMachineCreateAnnotation: value}
	set, err := kube.Patch(ctx, w.sets(), seen, map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return kube.WriteError(ctx, w.ref(t.Name, t.UID), err)
	}
	w.versions.Raise(capi.SetsResource, set.ResourceVersion)
	return nil
}

// follow copies to a set what follows the deployment. If revise is not nil, it also writes the revision of the set,
// which must still have the deployment's template, and the revision of the deployment.
func (w setWriter) follow(ctx context.Context, t rollout.Target, revise *rollout.Revise) error {
	d, err := w.deploymentAt(ctx, w.deployment, "")
	if err != nil {
		return err
	}
	family, err := deployment.ReadSets(ctx, w.API, d)
	if err != nil {
		return err
	}
	set, err := kube.LiveAt(ctx, w.sets(), "machineset", w.ref(t.Name, t.UID), t.Version)
	if err != nil {
		return err
	}
	current := family.Current(w.clock.Now())
	isCurrent := current != nil && current.UID == set.UID
	if revise != nil && !isCurrent {
		return kube.Conflict(w.deployment)
	}
	changed := family.Follow(set, isCurrent)
	if revise != nil {
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, clusterv1.RevisionAnnotation, strconv.FormatInt(revise.Revision, 10))
		if revise.History != "" {
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, deployment.AnnotationRevisionHistory, revise.History)
		}
	}
	if changed || revise != nil {
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationFormerReplicas, deployment.FormerReplicas(set))
		if err := w.write(ctx, t, set); err != nil {
			return err
		}
	}
	if !isCurrent {
		return nil
	}
	return w.writeRevision(ctx, w.deployment, d, set, w.versions)
}

// resizeWithin is how long after a decision a resize may ignore changes of a set other than its size. Source: as for
// sets of Millwright.
const resizeWithin = 2 * time.Second

// resize gives a set its size, and records an event.
func (w setWriter) resize(ctx context.Context, r rollout.Resize) error {
	ref := w.ref(r.Name, r.UID)
	set, err := kube.LiveAt(ctx, w.sets(), "machineset", ref, "")
	if err != nil {
		return err
	}
	same := int(capi.Value(set.Spec.Replicas)) == r.From && set.DeletionTimestamp == nil &&
		capi.Owned(set, w.deployment.UID)
	soon := r.From != r.To && w.clock.Now().Sub(activity.GetInfo(ctx).ScheduledTime) < resizeWithin
	if set.ResourceVersion != r.Version && (!same || !soon) {
		return kube.Conflict(ref)
	}
	annotations := deployment.TransferPatch(r.Transfer)
	annotations[clusterv1.DesiredReplicasAnnotation] = strconv.Itoa(r.Desired)
	annotations[clusterv1.MaxReplicasAnnotation] = strconv.Itoa(r.Max)
	annotations[v1alpha1.AnnotationFormerReplicas] = deployment.FormerReplicas(set)
	written, err := kube.Patch(ctx, w.sets(), set, map[string]any{
		"spec": map[string]any{"replicas": r.To}, "metadata": map[string]any{"annotations": annotations},
	})
	if err != nil {
		return kube.WriteError(ctx, ref, err)
	}
	w.versions.Raise(capi.SetsResource, written.ResourceVersion)
	if r.From != r.To {
		direction := map[bool]string{true: "up", false: "down"}[r.To > r.From]
		w.event(vocabulary.ReasonScalingMachineSet, fmt.Sprintf("Scaled %s machine set %s to %d", direction, r.Name, r.To))
	}
	return nil
}

// remove deletes a set; one that is gone counts as deleted. Without a propagation policy, so that the finalizer orphan
// of a set stays.
func (w setWriter) remove(ctx context.Context, t rollout.Target) error {
	err := w.sets().Delete(ctx, t.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: new(types.UID(t.UID)), ResourceVersion: new(t.Version)},
	})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return kube.WriteError(ctx, w.ref(t.Name, t.UID), err)
}
