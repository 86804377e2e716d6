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
)

// AnnotationRevisionHistory on a MachineSet lists its former revisions, separated by commas. Source: Cluster API, which
// has no constant.
const AnnotationRevisionHistory = "machinedeployment.clusters.x-k8s.io/revision-history"

// SameTemplate reports whether two templates make the same machines. What changes existing machines in place does not
// count: labels, annotations, minReadySeconds, readinessGates, the timeouts of the deletion, and taints.
func SameTemplate(a, b *clusterv1.MachineTemplateSpec) bool {
	return equality.Semantic.DeepEqual(rolled(&a.Spec), rolled(&b.Spec))
}

// rolled returns the part of the spec of a template whose change replaces machines.
func rolled(spec *clusterv1.MachineSpec) clusterv1.MachineSpec {
	s := *spec.DeepCopy()
	inPlace(&s, &clusterv1.MachineSpec{})
	s.ClusterName, s.ProviderID = "", "" // the first never changes, the second is of a machine
	return s
}

// inPlace copies what changes existing machines in place.
func inPlace(to, from *clusterv1.MachineSpec) {
	from = from.DeepCopy()
	to.MinReadySeconds = from.MinReadySeconds
	to.ReadinessGates = from.ReadinessGates
	to.Deletion = from.Deletion
	to.Taints = from.Taints
}

// ownPrefix begins the keys of the annotations about the rollout of a deployment.
const ownPrefix = "rollout.machine.sapcloud.io/"

// notCopied are the annotations of a deployment that its sets do not get, besides those about its rollout. Source:
// Cluster API's list, and what concerns the object itself.
var notCopied = []string{
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

// copied reports whether a set of a deployment gets an annotation of it. Only the current set gets the annotation that
// says why its revision was made.
func copied(key string, current bool) bool {
	return !strings.HasPrefix(key, ownPrefix) && !slices.Contains(notCopied, key) &&
		(current || key != v1alpha1.AnnotationChangeCause)
}

// Follow copies from the deployment to a set, the current one or another, what changes in place, and reports whether
// anything differed. Labels and annotations that others put on the set stay; those that Millwright put there for the
// deployment are removed when the deployment has them no more.
func (f Tree) Follow(set *clusterv1.MachineSet, current bool) (changed bool) {
	before := set.DeepCopy()
	d := f.Deployment
	labels, annotations := maps.Clone(f.labels(set)), map[string]string{}
	for key, value := range d.Annotations {
		if copied(key, current) {
			annotations[key] = value
		}
	}
	ownLabels, ownAnnotations := capi.Applied(set, capi.DeploymentFieldManager)
	replace(&set.Labels, labels, ownLabels)
	replace(
		&set.Annotations,
		annotations,
		slices.DeleteFunc(ownAnnotations, func(key string) bool { return !copied(key, current) }),
	)

	spec := &set.Spec
	spec.Deletion.Order, spec.MachineNaming = d.Spec.Deletion.Order, d.Spec.MachineNaming
	inPlace(&spec.Template.Spec, &d.Spec.Template.Spec)
	spec.Template.Annotations = f.templateAnnotations(set, current)
	spec.Template.Labels = maps.Clone(d.Spec.Template.Labels)
	replace(&spec.Template.Labels, spec.Selector.MatchLabels, nil) // with the hash in the set's selector
	replace(&spec.Template.Labels, map[string]string{clusterv1.ClusterNameLabel: d.Spec.ClusterName}, nil)
	return !equality.Semantic.DeepEqual(before, set)
}

// templateAnnotations returns the annotations that the template of a set must have: those of the deployment's template
// and, in a former set, the revision that replaces its machines. The set copies that annotation to its machines. Core
// drops events of Millwright's sets and deployments, because of its watch filter, but not those of machines: when the
// annotation changes, core writes the machine's condition UpToDate and the taint of its node (ADR 0090). A set without
// machines keeps what it has.
func (f Tree) templateAnnotations(set *clusterv1.MachineSet, current bool) map[string]string {
	annotations := maps.Clone(f.Deployment.Spec.Template.Annotations)
	by := set.Spec.Template.Annotations[v1alpha1.AnnotationReplacedByRevision]
	switch revision := Revision(f.Deployment); {
	case current:
		by = ""
	case Revision(set) < revision && (capi.Value(set.Spec.Replicas) > 0 || capi.Value(set.Status.Replicas) > 0):
		by = strconv.FormatInt(revision, 10)
	}
	if by != "" {
		replace(&annotations, map[string]string{v1alpha1.AnnotationReplacedByRevision: by}, nil)
	}
	return annotations
}

// labels returns the labels that a set of the deployment must have.
func (f Tree) labels(set *clusterv1.MachineSet) map[string]string {
	d := f.Deployment
	labels := maps.Clone(d.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if hash := set.Labels[clusterv1.MachineDeploymentUniqueLabel]; hash != "" {
		labels[clusterv1.MachineDeploymentUniqueLabel] = hash
	}
	labels[clusterv1.MachineDeploymentNameLabel], labels[clusterv1.ClusterNameLabel] = d.Name, d.Spec.ClusterName
	labels[clusterv1.WatchLabel] = f.API.Filter
	return labels
}

// replace sets the entries that are wanted, and removes those of our own that are wanted no more.
func replace(all *map[string]string, wanted map[string]string, own []string) {
	for _, key := range own {
		if _, stays := wanted[key]; !stays {
			delete(*all, key)
		}
	}
	if *all == nil && len(wanted) > 0 {
		*all = map[string]string{}
	}
	maps.Copy(*all, wanted)
}

// NewSet returns the set that a decision creates. Its name and its hash derive from the template, the revision and
// attempt, so that two attempts of the same decision make the same set. A later attempt is for a name that another
// object has.
func (f Tree) NewSet(as rollout.Creation, attempt int, now time.Time) (*clusterv1.MachineSet, error) {
	d := f.Deployment
	text, err := json.Marshal([]any{d.UID, rolled(&d.Spec.Template.Spec), as.Revision, attempt})
	if err != nil {
		return nil, fmt.Errorf("encode the template of deployment %s: %w", d.Name, err)
	}
	h := fnv.New32a()
	_, _ = h.Write(text) // never fails
	hash := rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
	set := &clusterv1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:      setName(d.Name, hash),
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
	if after := DueAfter(d, now); !after.IsZero() {
		set.Annotations[v1alpha1.AnnotationCreatedFor] = after.UTC().Format(time.RFC3339)
	}
	set.Spec.Template.Spec.ClusterName = d.Spec.ClusterName
	replace(
		&set.Spec.Selector.MatchLabels,
		map[string]string{clusterv1.MachineDeploymentUniqueLabel: hash, clusterv1.ClusterNameLabel: d.Spec.ClusterName},
		nil,
	)
	f.Follow(set, true)
	return set, nil
}

// Bounds of the name of a set. Sources: the longest name of a Machine, and of the host of its node, is 63 bytes, and
// the set appends a dash and five characters; MCM's names have five characters of the hash.
const (
	longestName = 63 - len("-12345")
	hashInName  = 5
)

// setName returns the name of a set with this hash.
func setName(deployment, hash string) string {
	end := "-" + hash[:min(hashInName, len(hash))]
	return strings.TrimRight(deployment[:min(len(deployment), longestName-len(end))], "-.") + end
}

// IsSetOf reports whether the set that was found under the name of a wanted one is that: of this deployment, template
// and revision, and not being deleted.
func (f Tree) IsSetOf(found *clusterv1.MachineSet, as rollout.Creation) bool {
	return metav1.IsControlledBy(found, f.Deployment) && found.DeletionTimestamp == nil &&
		Revision(found) == as.Revision &&
		SameTemplate(&found.Spec.Template, &f.Deployment.Spec.Template)
}

// ReturnTo gives a deployment the template of one of its sets, and the set's change cause. What changes machines in
// place stays as it is. A time of spec.rollout.after that is over and later than the set is removed: it would replace
// the machines that return. The annotation that records an automatic rollback is set if automatic is true, and removed
// otherwise.
func ReturnTo(d *clusterv1.MachineDeployment, set *clusterv1.MachineSet, automatic bool, now time.Time) {
	spec := set.Spec.Template.Spec.DeepCopy()
	inPlace(spec, &d.Spec.Template.Spec)
	d.Spec.Template.Spec = *spec
	if set.CreationTimestamp.Time.Before(DueAfter(d, now)) {
		d.Spec.Rollout.After = metav1.Time{}
	}
	delete(d.Annotations, v1alpha1.AnnotationChangeCause)
	if cause := set.Annotations[v1alpha1.AnnotationChangeCause]; cause != "" {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationChangeCause, cause)
	}
	delete(d.Annotations, v1alpha1.AnnotationAutomaticRollbackTo)
	if automatic {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationAutomaticRollbackTo, string(set.UID))
	}
}

// Prepared returns a deployment as it should be before its first set: with Millwright's finalizer, the label of its
// Cluster, and owned by the Cluster, so that the deletion of the Cluster deletes it. Nil if it is so already.
func Prepared(f Tree) *clusterv1.MachineDeployment {
	d := f.Deployment
	p := d.DeepCopy()
	if !slices.Contains(p.Finalizers, capi.Finalizer) {
		// from now on, Cluster API's finalizer shows that another controller is at work
		p.Finalizers = slices.DeleteFunc(
			p.Finalizers,
			func(name string) bool { return name == clusterv1.MachineDeploymentFinalizer },
		)
		p.Finalizers = append(p.Finalizers, capi.Finalizer)
	}
	metav1.SetMetaDataLabel(&p.ObjectMeta, clusterv1.ClusterNameLabel, d.Spec.ClusterName)
	if f.Cluster != nil {
		p.OwnerReferences = capi.WithOwner(p.OwnerReferences, capi.ClusterReference(f.Cluster))
	}
	if equality.Semantic.DeepEqual(d, p) {
		return nil
	}
	return p
}

// NotPrepared says what is pending for a deployment that has to be prepared for its first set.
const NotPrepared = "it is not prepared for its first set"

// Unprepared reports whether a deployment has to be prepared now. One that is paused is not written, nor one that is
// contested or being deleted.
func Unprepared(f Tree, o rollout.Observed) bool {
	contested := capi.Contested(f.Deployment, clusterv1.MachineDeploymentFinalizer)
	return !o.Deleting && !contested && o.ClusterAPI.Suspended == "" && Prepared(f) != nil
}
