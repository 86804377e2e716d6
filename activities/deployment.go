package activities

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/replace"
	"millwright/decide/rollout"
	"millwright/observe"
)

// DeploymentDecision is what a MachineDeployment needs next.
type DeploymentDecision struct {
	Gone    bool // the object does not exist any more: nothing else is set
	Need    attention.Need
	Why     string
	Version string // resourceVersion of the deployment that was read
	rollout.Decision
	Prepare bool // our finalizer is missing
	Release bool // no set is left of a deployment that is being deleted
	Replace bool // replacements are to be granted, marked or ended
	Held    bool // machines wait to be replaced, and may not be
	// When to look again, because they may be then; zero means that something else changes first.
	HeldUntil time.Time
	Report    bool // the status does not say what was read
	Seen      Gate // what was read; a later decision must not be made of anything older
}

// DecideDeployment reads a deployment and its sets, and says which set to make, resize or delete next.
func (a *Activities) DecideDeployment(ctx context.Context, in Read) (DeploymentDecision, error) {
	deployment, sets, members, err := a.family(ctx, in)
	if err != nil {
		return DeploymentDecision{}, err
	}
	if deployment == nil {
		return DeploymentDecision{Gone: true, Why: "the object is gone"}, nil
	}
	facts := observe.DeploymentFacts(deployment, sets, members)
	need := attention.MachineDeployment(facts)
	d := DeploymentDecision{
		Need:     need.Need,
		Why:      need.Why,
		Version:  deployment.ResourceVersion,
		Decision: rollout.Decide(observe.RolloutObserved(deployment, sets)),
		Prepare:  !facts.Deleting && !facts.Finalizer,
		Release:  facts.Deleting && facts.Finalizer && len(sets) == 0,
		Report: facts.Actual != facts.Reported || facts.Generation != facts.ObservedGeneration ||
			(need.Calm() && deployment.Status.CurrentOperation != nil),
		Seen: versions(deployment, sets, members),
	}
	if facts.Due+facts.Replacing > 0 && !facts.Deleting {
		plan := replace.Decide(a.Cluster.ReplaceObserved(deployment, members, time.Now()))
		d.Replace = plan.Changed || len(plan.Mark) > 0
		d.Held, d.HeldUntil = plan.Hold != "", plan.HoldUntil
		d.Why = plan.Why
		d.Report = d.Report || plan.Hold != holdOf(deployment)
	} else if holdOf(deployment) != "" {
		d.Report = true
	}
	return d, nil
}

// versions returns what was read of a deployment and all below it.
func versions(d *v1alpha1.MachineDeployment, sets []*v1alpha1.MachineSet, members []*v1alpha1.Machine) Gate {
	gate := Gate{observe.Deployments: d.ResourceVersion}
	for _, set := range sets {
		gate.Raise(observe.Sets, set.ResourceVersion)
	}
	for _, m := range members {
		gate.Raise(observe.Machines, m.ResourceVersion)
	}
	return gate
}

// family returns a deployment, its sets and their machines as fresh as asked for; nil when it is gone. Machines are read
// live where the others are: what is granted must not be decided from older ones.
func (a *Activities) family(ctx context.Context, in Read) (*v1alpha1.MachineDeployment, []*v1alpha1.MachineSet, []*v1alpha1.Machine, error) {
	live, err := a.fresh(ctx, in)
	if err != nil {
		return nil, nil, nil, err
	}
	in.Live = live
	d, sets, err := a.deployment(ctx, in)
	if err != nil || d == nil || !live {
		return d, sets, a.Cluster.MembersOf(sets), err
	}
	var members []*v1alpha1.Machine
	for _, set := range sets {
		around, err := a.Cluster.LiveAroundSet(ctx, set)
		if err != nil {
			return nil, nil, nil, err
		}
		members = append(members, around.Members...)
	}
	return d, sets, members, nil
}

// deployment returns a deployment and its sets as fresh as asked for; nil when it is gone.
func (a *Activities) deployment(ctx context.Context, in Read) (*v1alpha1.MachineDeployment, []*v1alpha1.MachineSet, error) {
	live, err := a.fresh(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	if !live {
		d, found := a.Cluster.Deployment(in.Ref.Key())
		if !found || string(d.UID) != in.Ref.UID {
			return nil, nil, nil
		}
		return d, a.Cluster.SetsOf(in.Ref.UID), nil
	}
	d, err := a.Cluster.Client().MachineV1alpha1().MachineDeployments(in.Ref.Namespace).Get(ctx, in.Ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("get deployment %s: %w", in.Ref.Key(), err)
	case string(d.UID) != in.Ref.UID:
		return nil, nil, nil
	}
	sets, err := a.Cluster.LiveSetsOf(ctx, d)
	return d, sets, err
}

// SetCreation asks for the set of a deployment's current template.
type SetCreation struct {
	Deployment Ref
	Version    string // resourceVersion of the deployment that the decision saw
}

// CreateSet makes the set of the deployment's current template, with the deployment's size. Its name follows from the
// template, so that running it twice makes one set. Where the name belongs to something else, or to a set that is on its
// way out, the collision count in the status goes up and the answer is a Conflict: decide again. It returns the versions to
// wait for.
func (a *Activities) CreateSet(ctx context.Context, in SetCreation) (Gate, error) {
	deployments := a.Cluster.Client().MachineV1alpha1().MachineDeployments(in.Deployment.Namespace)
	d, err := deployments.Get(ctx, in.Deployment.Name, metav1.GetOptions{})
	if err != nil {
		return nil, writeError(in.Deployment, err)
	}
	switch {
	case string(d.UID) != in.Deployment.UID:
		return nil, objectGone(in.Deployment)
	case d.ResourceVersion != in.Version:
		return nil, conflict(in.Deployment)
	}
	hash, err := observe.TemplateHash(&d.Spec.Template, d.Status.CollisionCount)
	if err != nil {
		return nil, fmt.Errorf("hash template of %s: %w", d.Name, err)
	}
	sets := a.Cluster.Client().MachineV1alpha1().MachineSets(d.Namespace)
	set, err := sets.Create(ctx, newSet(d, hash), metav1.CreateOptions{})
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
	return gate, nil
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
func newSet(d *v1alpha1.MachineDeployment, hash string) *v1alpha1.MachineSet {
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
	annotations := maps.Clone(d.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return slices.Contains(notCopied(), key) })
	if annotations == nil {
		annotations = map[string]string{}
	}
	surge, _ := surgeAndUnavailable(d)
	annotations[v1alpha1.AnnotationRevision] = "1"
	annotations[v1alpha1.AnnotationDesiredReplicas] = fmt.Sprint(d.Spec.Replicas)
	annotations[v1alpha1.AnnotationMaxReplicas] = fmt.Sprint(int64(d.Spec.Replicas) + int64(surge))
	return &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:            observe.SetName(d.Name, hash),
			Namespace:       d.Namespace,
			Labels:          withHash(d.Spec.Template.Labels),
			Annotations:     annotations,
			Finalizers:      []string{v1alpha1.FinalizerMachine},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))},
		},
		Spec: v1alpha1.MachineSetSpec{
			Replicas:                     d.Spec.Replicas,
			Selector:                     selector,
			Template:                     template,
			MinReadySeconds:              d.Spec.MinReadySeconds,
			AutoPreserveFailedMachineMax: d.Spec.AutoPreserveFailedMachineMax,
		},
	}
}

// notCopied returns the annotations of a deployment that its sets do not get: those that say something about the
// deployment's own object or size. Source: MCM's list.
func notCopied() []string {
	return []string{
		"kubectl.kubernetes.io/last-applied-configuration",
		v1alpha1.AnnotationRevision, v1alpha1.AnnotationRevisionHistory,
		v1alpha1.AnnotationDesiredReplicas, v1alpha1.AnnotationMaxReplicas,
		v1alpha1.AnnotationPreferNoSchedule, v1alpha1.AnnotationUnfreeze, v1alpha1.AnnotationTriggerDeletion,
	}
}

// SetChanges are the sets of a deployment to resize and to delete.
type SetChanges struct {
	Deployment Ref
	Resize     []rollout.Resize
	Delete     []rollout.Target
}

// ChangeSets resizes and deletes sets, each if it still is as the decision saw it; else the answer is a Conflict. It
// returns the versions to wait for.
func (a *Activities) ChangeSets(ctx context.Context, in SetChanges) (Gate, error) {
	gate, sets := Gate{}, a.Cluster.Client().MachineV1alpha1().MachineSets(in.Deployment.Namespace)
	d, known := a.Cluster.Deployment(in.Deployment.Key())
	for _, r := range in.Resize {
		ref := Ref{Namespace: in.Deployment.Namespace, Name: r.Name, UID: r.UID}
		object := &metav1.ObjectMeta{Name: r.Name, UID: types.UID(r.UID), ResourceVersion: r.Version}
		data, err := seen(map[string]any{"spec": map[string]any{"replicas": r.To}}, object)
		if err != nil {
			return nil, err
		}
		set, err := sets.Patch(ctx, r.Name, types.MergePatchType, data, metav1.PatchOptions{})
		if err != nil {
			return nil, writeError(ref, err)
		}
		gate.Raise(observe.Sets, set.ResourceVersion)
		if known {
			direction := map[bool]string{true: "up", false: "down"}[r.To > r.From]
			a.Recorder.Event(d, corev1.EventTypeNormal, "ScalingMachineSet", fmt.Sprintf("Scaled %s machine set %s to %d", direction, r.Name, r.To))
		}
	}
	for _, t := range in.Delete {
		err := sets.Delete(ctx, t.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: ptr(types.UID(t.UID)), ResourceVersion: ptr(t.Version)},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, writeError(Ref{Namespace: in.Deployment.Namespace, Name: t.Name, UID: t.UID}, err)
		}
	}
	return gate, nil
}

// FinalizeDeployment puts our finalizer on a deployment, or takes it off one that is being deleted and has no set left. It
// returns the version to wait for.
func (a *Activities) FinalizeDeployment(ctx context.Context, in Read) (string, error) {
	d, sets, err := a.deployment(ctx, in)
	if err != nil {
		return "", err
	}
	if d == nil {
		return "", objectGone(in.Ref)
	}
	finalizers, change := finalizers(d, len(sets) == 0)
	if !change {
		return d.ResourceVersion, nil
	}
	data, err := seen(map[string]any{"metadata": map[string]any{"finalizers": finalizers}}, d)
	if err != nil {
		return "", err
	}
	d, err = a.Cluster.Client().MachineV1alpha1().MachineDeployments(in.Ref.Namespace).Patch(ctx, in.Ref.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		return "", writeError(in.Ref, err)
	}
	return d.ResourceVersion, nil
}

// overlap says with whose selectors a deployment's machines collide; empty when with nobody's.
func (a *Activities) overlap(d *v1alpha1.MachineDeployment) string {
	others := a.Cluster.OverlappingDeployments(d)
	if len(others) == 0 {
		return ""
	}
	slices.Sort(others)
	return "the selector of " + strings.Join(others, ", ") + " matches the machines of this deployment"
}
