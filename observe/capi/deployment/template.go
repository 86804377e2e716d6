package deployment

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/deployment"
)

// AnnotationRevisionHistory on a MachineSet lists the set's former revisions, separated by commas. Source: Cluster API,
// which has no constant for this key.
const AnnotationRevisionHistory = "machinedeployment.clusters.x-k8s.io/revision-history"

// IsSameTemplate reports whether two templates make the same machines. IsSameTemplate ignores the parts that change
// existing machines in place: labels, annotations, minReadySeconds, readinessGates, the timeouts of the deletion, and
// taints.
func IsSameTemplate(a, b *clusterv1.MachineTemplateSpec) bool {
	return equality.Semantic.DeepEqual(rolloutRelevantSpec(&a.Spec), rolloutRelevantSpec(&b.Spec))
}

// rolloutRelevantSpec returns the fields of a template's spec that cause a rollout when they change.
func rolloutRelevantSpec(spec *clusterv1.MachineSpec) clusterv1.MachineSpec {
	s := *spec.DeepCopy()
	capi.CopyInPlaceFields(&s, &clusterv1.MachineSpec{}, capi.AllFields())
	s.ClusterName, s.ProviderID = "", "" // the Cluster name never changes, and the provider ID belongs to one machine
	return s
}

// rolloutAnnotationPrefix is the prefix of annotation keys about the rollout of a deployment.
const rolloutAnnotationPrefix = "rollout.machine.sapcloud.io/"

// annotationsNotCopied lists annotations of a deployment that its sets do not get, in addition to the annotations with
// rolloutAnnotationPrefix. The list contains the keys that Cluster API does not copy, and the annotations that describe
// the deployment itself.
var annotationsNotCopied = []string{
	corev1.LastAppliedConfigAnnotation,
	clusterv1.RevisionAnnotation,
	AnnotationRevisionHistory,
	clusterv1.DesiredReplicasAnnotation,
	clusterv1.MaxReplicasAnnotation,
	"cluster.x-k8s.io/conversion-data",
	clusterv1.PausedAnnotation,
	clusterv1.DisableMachineCreateAnnotation,
	clusterv1.MachineSetMoveMachinesToMachineSetAnnotation,
	clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation,
	clusterv1.AcknowledgedMoveAnnotation,
}

// isCopiedAnnotation reports whether a deployment copies an annotation to a set. Only the current set gets the
// change-cause annotation.
func isCopiedAnnotation(key string, current bool) bool {
	return !strings.HasPrefix(key, rolloutAnnotationPrefix) && !slices.Contains(annotationsNotCopied, key) &&
		(current || key != v1alpha1.AnnotationChangeCause)
}

// CopyDeploymentFields copies the parts that change in place from the deployment to a set, and reports whether anything
// differed. The parameter current is true if the set is the current set. CopyDeploymentFields keeps what other writers
// added to the set. CopyDeploymentFields removes what Millwright or Cluster API's controller copied earlier and the
// deployment no longer has.
func (f ObjectTree) CopyDeploymentFields(set *clusterv1.MachineSet, current bool) (changed bool) {
	before := set.DeepCopy()
	d := f.Deployment
	labels, annotations := maps.Clone(f.labelsForSet(set)), map[string]string{}
	for key, value := range d.Annotations {
		if isCopiedAnnotation(key, current) {
			annotations[key] = value
		}
	}
	owned := capi.FieldsOwnedBy(set, capi.SetFieldManagers())
	ownLabels, ownAnnotations := owned.AppliedKeys()
	ownAnnotations = slices.DeleteFunc(ownAnnotations, func(key string) bool { return !isCopiedAnnotation(key, current) })
	set.Labels = capi.UpdateEntries(set.Labels, labels, ownLabels)
	set.Annotations = capi.UpdateEntries(set.Annotations, annotations, ownAnnotations)

	if current {
		deployment.RecordFailedRolloutOnSet(set, RecordedRollout(d))
	}

	copied := clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}}
	copied.Spec.Deletion.Order, copied.Spec.MachineNaming = d.Spec.Deletion.Order, d.Spec.MachineNaming
	copied.Spec.Template = f.templateForSet(set, current)
	copySpec(&set.Spec, &copied.Spec, owned.Within("spec"))
	if set.UID != "" && !capi.HasManagedFields(set, capi.SetFieldManagers()) {
		capi.ClaimFields(set, capi.DeploymentFieldManager, copied)
	}
	return !equality.Semantic.DeepEqual(before, set)
}

// copySpec copies the parts of a set's spec that change in place. The owned fields are relative to the spec.
func copySpec(to, from *clusterv1.MachineSetSpec, owned capi.OwnedFields) {
	capi.CopyOwnedValue(&to.Deletion.Order, from.Deletion.Order, owned.Within("deletion").Has("order"))
	capi.CopyOwnedValue(
		&to.MachineNaming.Template,
		from.MachineNaming.Template,
		owned.Within("machineNaming").Has("template"),
	)
	owned = owned.Within("template")
	capi.CopyInPlaceFields(&to.Template.Spec, &from.Template.Spec, owned.Within("spec"))
	ownLabels, ownAnnotations := owned.AppliedKeys()
	ownAnnotations = append(ownAnnotations, v1alpha1.AnnotationReplacedByRevision)
	to.Template.Labels = capi.UpdateEntries(to.Template.Labels, from.Template.Labels, ownLabels)
	to.Template.Annotations = capi.UpdateEntries(to.Template.Annotations, from.Template.Annotations, ownAnnotations)
}

// templateForSet returns the parts of the deployment's template that change in place, as a set needs them: with the
// labels of the set's selector, which contain the hash of the template, and with the label of the Cluster.
func (f ObjectTree) templateForSet(set *clusterv1.MachineSet, current bool) (t clusterv1.MachineTemplateSpec) {
	from := &f.Deployment.Spec.Template
	capi.CopyInPlaceFields(&t.Spec, &from.Spec, capi.AllFields())
	t.Labels = capi.UpdateEntries(from.Labels, set.Spec.Selector.MatchLabels, nil)
	t.Labels = capi.UpdateEntries(
		t.Labels,
		map[string]string{clusterv1.ClusterNameLabel: f.Deployment.Spec.ClusterName},
		nil,
	)
	t.Annotations = maps.Clone(from.Annotations)
	if by := f.replacedByRevision(set, current); by != "" {
		t.Annotations = capi.UpdateEntries(t.Annotations, map[string]string{v1alpha1.AnnotationReplacedByRevision: by}, nil)
	}
	return t
}

// replacedByRevision returns the revision that replaces the machines of a former set; empty for the current set. The
// template of the set has the revision as an annotation, which the set copies to its machines. Core's watch filter
// drops the events of Millwright's sets and deployments, but not the events of machines. When the annotation changes,
// core writes the machine's condition UpToDate and the taint of its node (ADR 0090). A set without machines keeps its
// revision annotation.
func (f ObjectTree) replacedByRevision(set *clusterv1.MachineSet, current bool) string {
	switch revision := Revision(f.Deployment); {
	case current:
		return ""
	case Revision(set) < revision && (capi.ValueOrZero(set.Spec.Replicas) > 0 || capi.ValueOrZero(set.Status.Replicas) > 0):
		return strconv.FormatInt(revision, 10)
	default:
		return set.Spec.Template.Annotations[v1alpha1.AnnotationReplacedByRevision]
	}
}

// labelsForSet returns the labels that a set of the deployment must have.
func (f ObjectTree) labelsForSet(set *clusterv1.MachineSet) map[string]string {
	d := f.Deployment
	labels := maps.Clone(d.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if hash := set.Labels[clusterv1.MachineDeploymentUniqueLabel]; hash != "" {
		labels[clusterv1.MachineDeploymentUniqueLabel] = hash
	}
	labels[clusterv1.MachineDeploymentNameLabel], labels[clusterv1.ClusterNameLabel] = d.Name, d.Spec.ClusterName
	delete(labels, clusterv1.WatchLabel)
	if !capi.HasUpstreamFinalizer(set, clusterv1.MachineSetFinalizer) { // TakeOverSet labels the other sets
		labels[clusterv1.WatchLabel] = f.Cache.WatchFilter
	}
	return labels
}

// NewSet returns the set that a decision creates. The set's name and hash derive from the template, the revision and
// the attempt, so that a retry with the same attempt makes the same set. If another object already has the name, the
// caller increases the attempt.
func (f ObjectTree) NewSet(as rollout.SetCreation, attempt int, now time.Time) (*clusterv1.MachineSet, error) {
	d := f.Deployment
	text, err := json.Marshal([]any{d.UID, rolloutRelevantSpec(&d.Spec.Template.Spec), as.Revision, attempt})
	if err != nil {
		return nil, fmt.Errorf("encode the template of deployment %s: %w", d.Name, err)
	}
	h := fnv.New32a()
	_, _ = h.Write(text) // Write of a hash never fails
	hash := rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
	set := &clusterv1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:      nameForSet(d.Name, hash),
			Namespace: d.Namespace,
			Labels:    map[string]string{clusterv1.MachineDeploymentUniqueLabel: hash},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(d, clusterv1.GroupVersion.WithKind("MachineDeployment")),
			},
			Finalizers: []string{capi.Finalizer},
			Annotations: map[string]string{
				clusterv1.RevisionAnnotation: strconv.FormatInt(
					as.Revision,
					10,
				),
				clusterv1.DesiredReplicasAnnotation: strconv.Itoa(as.Desired),
				clusterv1.MaxReplicasAnnotation:     strconv.Itoa(as.Max),
				v1alpha1.AnnotationFormerReplicas:   "0",
			},
		},
		Spec: clusterv1.MachineSetSpec{
			ClusterName: d.Spec.ClusterName, Replicas: new(int32(as.Replicas)),
			Selector: *d.Spec.Selector.DeepCopy(), Template: *d.Spec.Template.DeepCopy(),
		},
	}
	if _, isOwned := d.Labels[clusterv1.ClusterTopologyOwnedLabel]; isOwned {
		// with this finalizer, Cluster API deletes the templates that a topology has made for the set
		set.Finalizers = append(set.Finalizers, clusterv1.MachineSetTopologyFinalizer)
	}
	if after := ReachedRolloutAfterTime(d, now); !after.IsZero() {
		set.Annotations[v1alpha1.AnnotationCreatedFor] = after.UTC().Format(time.RFC3339)
	}
	set.Spec.Template.Spec.ClusterName = d.Spec.ClusterName
	set.Spec.Selector.MatchLabels = capi.UpdateEntries(
		set.Spec.Selector.MatchLabels,
		map[string]string{clusterv1.MachineDeploymentUniqueLabel: hash, clusterv1.ClusterNameLabel: d.Spec.ClusterName},
		nil,
	)
	f.CopyDeploymentFields(set, true)
	return set, nil
}

// Limits of a set's name. The name of a Machine and the host name of its node have at most 63 bytes; a machine's name
// is the set's name, a dash and five characters. The names of MCM's sets contain five characters of the hash.
const (
	maxSetNameLength = 63 - len("-12345")
	nameHashLength   = 5
)

// nameForSet returns the name of a set with this hash.
func nameForSet(deployment, hash string) string {
	end := "-" + hash[:min(nameHashLength, len(hash))]
	return strings.TrimRight(deployment[:min(len(deployment), maxSetNameLength-len(end))], "-.") + end
}

// IsWantedSet reports whether an existing set with the wanted name is the set that the deployment wants. The set must
// have the same deployment, template and revision, and no deletion timestamp.
func (f ObjectTree) IsWantedSet(found *clusterv1.MachineSet, as rollout.SetCreation) bool {
	return metav1.IsControlledBy(found, f.Deployment) && found.DeletionTimestamp == nil &&
		Revision(found) == as.Revision &&
		IsSameTemplate(&found.Spec.Template, &f.Deployment.Spec.Template)
}

// RestoreTemplateFromSet gives a deployment the template of one of its sets, and the set's change cause.
// RestoreTemplateFromSet does not change the fields that update machines in place. If spec.rollout.after is in the past
// but later than the creation of the set, RestoreTemplateFromSet removes this time, because it would replace the
// restored machines.
func RestoreTemplateFromSet(d *clusterv1.MachineDeployment, set *clusterv1.MachineSet, now time.Time) {
	spec := set.Spec.Template.Spec.DeepCopy()
	capi.CopyInPlaceFields(spec, &d.Spec.Template.Spec, capi.AllFields())
	d.Spec.Template.Spec = *spec
	if set.CreationTimestamp.Time.Before(ReachedRolloutAfterTime(d, now)) {
		d.Spec.Rollout.After = metav1.Time{}
	}
	delete(d.Annotations, v1alpha1.AnnotationChangeCause)
	if cause := set.Annotations[v1alpha1.AnnotationChangeCause]; cause != "" {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationChangeCause, cause)
	}
}
