package deployment

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	observeset "millwright/observe/set"
)

// SetCreation is a request to create the set for a deployment's current template.
type SetCreation struct {
	Deployment kube.Ref
	Version    string // resourceVersion of the deployment that the decision saw
	rollout.SetCreation
}

// CreateSet creates the set for the deployment's current template, and writes the set's revision to the deployment. The
// activity is idempotent, because the set's name is derived from the template. If another object or a set that is being
// deleted has the name, CreateSet increments the status's collision count and fails with a Conflict. The result holds
// the resource versions of the written objects.
func (a *Activities) CreateSet(ctx context.Context, in SetCreation) (kube.MinVersions, error) {
	d, err := kube.ReadLiveAtVersion(
		ctx,
		a.Kube.Deployments(in.Deployment.Namespace),
		"deployment",
		in.Deployment,
		in.Version,
	)
	if err != nil {
		return nil, err
	}
	hash, err := observeset.TemplateHash(&d.Spec.Template, d.Status.CollisionCount)
	if err != nil {
		return nil, fmt.Errorf("hash template of %s: %w", d.Name, err)
	}
	sets := a.Kube.Sets(in.Deployment.Namespace)
	set, err := sets.Create(ctx, newSet(d, hash, in.SetCreation), metav1.CreateOptions{})
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
		set, err = sets.Get(ctx, observeset.NameFromHash(d.Name, hash), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, kube.ConflictError(in.Deployment)
		}
		switch {
		case err != nil || isWantedSet(d, set):
		case deployment.SelectsSet(d, set) && cache.CanBeAdopted(set, d, cache.KindDeployment) && set.DeletionTimestamp == nil:
			return nil, kube.ConflictError(in.Deployment) // the next decision adopts the set
		case cache.IsOrphaning(set):
			return nil, kube.ConflictError(in.Deployment) // the next decision waits until the set is gone
		default:
			return nil, a.incrementCollisionCount(ctx, in.Deployment, d)
		}
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		a.Kube.Recorder.Event(
			d,
			corev1.EventTypeWarning,
			v1alpha1.ReasonMachineSetCreateError,
			"Error creating machine set: "+kube.ShortenMessage(err.Error()),
		)
	}
	if err != nil {
		return nil, kube.ClassifyWriteError(ctx, in.Deployment, fmt.Errorf("create set of deployment %s: %w", d.Name, err))
	}
	versions := kube.MinVersions{cache.SetsResource: set.ResourceVersion}
	return versions, a.mcmKindAdapter().WriteRevision(ctx, in.Deployment, d, set, versions)
}

// isWantedSet reports whether the existing set with the wanted name is the wanted set. A set that is being deleted is
// not the wanted set; otherwise, CreateSet would be repeated until the set is gone.
func isWantedSet(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) bool {
	return metav1.IsControlledBy(set, d) && set.DeletionTimestamp == nil &&
		observeset.IsSameTemplate(&set.Spec.Template, &d.Spec.Template)
}

// incrementCollisionCount increments the collision count in the status, so that the next hash differs.
func (a *Activities) incrementCollisionCount(ctx context.Context, ref kube.Ref, d *v1alpha1.MachineDeployment) error {
	count := int32(1)
	if d.Status.CollisionCount != nil {
		count += *d.Status.CollisionCount
	}
	d.Status.CollisionCount = &count
	if _, err := a.Kube.Deployments(ref.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
		return kube.ClassifyWriteError(ctx, ref, err)
	}
	return kube.ConflictError(ref)
}

// newSet returns the set for a deployment's template. Labels and selector contain the hash, so no set selects another
// set's machines.
func newSet(d *v1alpha1.MachineDeployment, hash string, as rollout.SetCreation) *v1alpha1.MachineSet {
	withHash := func(some map[string]string) map[string]string {
		return labels.Merge(some, labels.Set{v1alpha1.LabelMachineTemplateHash: hash})
	}
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels)
	template := *d.Spec.Template.DeepCopy()
	template.Labels = withHash(template.Labels)
	set := &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:       observeset.NameFromHash(d.Name, hash),
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
	deployment.CopyDeploymentFields(set, d)
	return set
}

// SetChanges are the changes of a deployment's sets. Create and Ask are nil here, because CreateSet and AskExtension
// make these changes.
type SetChanges struct {
	Deployment kube.Ref
	Generation int64 `json:",omitzero"` // generation of the deployment that the decision saw; zero: unknown
	rollout.SetChanges
}

// ChangeSets changes and deletes sets. See KindAdapter.ChangeSets.
func (a *Activities) ChangeSets(ctx context.Context, in SetChanges) (kube.MinVersions, error) {
	return a.mcmKindAdapter().ChangeSets(ctx, in)
}

// mcmKindAdapter returns the KindAdapter of MCM's kinds.
func (a *Activities) mcmKindAdapter() KindAdapter[*v1alpha1.MachineDeployment, *v1alpha1.MachineSet] {
	return KindAdapter[*v1alpha1.MachineDeployment, *v1alpha1.MachineSet]{
		Kube: a.Kube,
		DeploymentsClient: func(namespace string) Client[*v1alpha1.MachineDeployment] {
			return a.Kube.Deployments(namespace)
		},
		SetsClient:       func(namespace string) Client[*v1alpha1.MachineSet] { return a.Kube.Sets(namespace) },
		DeploymentKind:   "deployment",
		Resources:        [2]cache.Resource{cache.DeploymentsResource, cache.SetsResource},
		CachedDeployment: a.Kube.Cluster.Deployment,
		IsManaged:        func(*v1alpha1.MachineDeployment) bool { return true },
		SelectsSet:       deployment.SelectsSet,
		IsSetAdoptable: func(set *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) bool {
			return cache.CanBeAdopted(set, d, cache.KindDeployment)
		},
		SetController: func(set *v1alpha1.MachineSet, d *v1alpha1.MachineDeployment) {
			kube.SetController(set, d, cache.KindDeployment)
		},
		Replicas: func(set *v1alpha1.MachineSet) int { return int(set.Spec.Replicas) },
		ScaleUpPatch: func(allow bool) map[string]any {
			return map[string]any{
				"labels": map[string]any{v1alpha1.LabelScaleUpDisabled: NilIf(allow, v1alpha1.ValueLowerTrue)},
			}
		},
		ResizeAnnotations: func(r rollout.SetResize, _ int) map[string]any {
			return map[string]any{
				v1alpha1.AnnotationDesiredReplicas: strconv.Itoa(r.Desired), v1alpha1.AnnotationMaxReplicas: strconv.Itoa(r.Max),
			}
		},
		LastHandledReplicas: func(set *v1alpha1.MachineSet) int { return int(set.Status.ObservedReplicas) },
		ResizeEvent: func(r rollout.SetResize) (reason, message string) {
			return vocabulary.ReasonScalingMachineSet,
				fmt.Sprintf("Scaled %s machine set %s to %d", ResizeDirection(r), r.Name, r.To)
		},
		DeletionEvent: func(string) (reason, message string) { return "", "" },
		CopyDeploymentFields: func(
			_ context.Context, d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet, _ time.Time,
		) (changed, current bool, err error) {
			if !observeset.IsSameTemplate(&set.Spec.Template, &d.Spec.Template) { // the set is no longer current
				return false, false, kube.ConflictError(kube.Ref{Namespace: d.Namespace, Name: d.Name, UID: string(d.UID)})
			}
			return deployment.CopyDeploymentFields(set, d), true, nil
		},
		RevisionKey: v1alpha1.AnnotationRevision, RevisionHistoryKey: v1alpha1.AnnotationRevisionHistory,
		RollbackFuncs: RollbackFuncs[*v1alpha1.MachineDeployment, *v1alpha1.MachineSet]{
			IsRollbackRequested:   func(d *v1alpha1.MachineDeployment) bool { return d.Spec.RollbackTo != nil },
			RemoveRollbackRequest: func(d *v1alpha1.MachineDeployment) { d.Spec.RollbackTo = nil },
			ReadFormerSet:         a.readExistingSet,
			HaveSameTemplate: func(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet) bool {
				return observeset.IsSameTemplate(&set.Spec.Template, &d.Spec.Template)
			},
			RestoreTemplate: func(d *v1alpha1.MachineDeployment, set *v1alpha1.MachineSet, _ time.Time) {
				deployment.RestoreTemplateFromSet(d, set)
			},
		},
	}
}
