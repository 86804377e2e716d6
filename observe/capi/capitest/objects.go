// Package capitest builds objects of Cluster API, and fake API servers that contain these objects, for tests.
package capitest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
	capidrain "millwright/observe/capi/drain"
	capiset "millwright/observe/capi/set"
)

// Namespace is the namespace of all objects. WatchFilter is the label value of the sets that Millwright reconciles.
const (
	Namespace   = "shop"
	WatchFilter = "millwright"
)

// Noon is the time at which the tests observe the objects.
var Noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// WithSelector sets the selector of a set.
func WithSelector(selector metav1.LabelSelector) SetChange {
	return func(s *clusterv1.MachineSet) { s.Spec.Selector = selector }
}

// WithManagedFields adds a managed-fields entry: the manager has applied one label and one annotation with these keys.
func WithManagedFields(manager string, labels, annotations string) func(*clusterv1.Machine) {
	return WithFieldsOf[*clusterv1.Machine](
		manager,
		`{"f:metadata":{"f:labels":{".":{},"f:`+labels+`":{}},"f:annotations":{"f:`+annotations+`":{}}},"f:spec":{"f:version":{}}}`,
	)
}

// WithFieldsOf adds a managed-fields entry of a manager. The fields are in the format of FieldsV1.
func WithFieldsOf[T metav1.Object](manager, fields string) func(T) {
	return func(o T) {
		o.SetManagedFields(append(o.GetManagedFields(), metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: clusterv1.GroupVersion.String(),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		}))
	}
}

// ownedClusterName is a field of a managed-fields entry that no test of the ownership uses.
const ownedClusterName = `{"f:spec":{"f:clusterName":{}}}`

// WithoutManagedFields removes all managed fields of an object.
func WithoutManagedFields[T metav1.Object](o T) { o.SetManagedFields(nil) }

// MinutesBeforeNoon returns the time that is this many minutes before Noon.
func MinutesBeforeNoon(minutes int) metav1.Time {
	return metav1.NewTime(Noon.Add(-time.Duration(minutes) * time.Minute))
}

// DefaultSettings contains the settings for an installation in a cluster in which Cluster API's own controllers watch
// all objects.
var DefaultSettings = capi.Settings{WatchFilter: WatchFilter}

// NewOfflineCache returns a Cache with these preflight settings, for functions that read only their arguments.
func NewOfflineCache(settings capi.Settings, preflight cache.PreflightConfig) *capi.Cache {
	return &capi.Cache{Settings: settings, Cluster: &cache.Cluster{Preflight: preflight}}
}

// NewMetadata returns the metadata of an object.
func NewMetadata(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         Namespace,
		Name:              name,
		UID:               types.UID("uid-" + name),
		ResourceVersion:   "900",
		Generation:        1,
		CreationTimestamp: MinutesBeforeNoon(60),
	}
}

// SetChange changes a set.
type SetChange = func(*clusterv1.MachineSet)

// MachineChange changes a machine.
type MachineChange = func(*clusterv1.Machine)

// ClusterChange changes a Cluster.
type ClusterChange = func(*clusterv1.Cluster)

// DeploymentChange changes a MachineDeployment.
type DeploymentChange = func(*clusterv1.MachineDeployment)

// ProviderObjectChange changes an object of a provider.
type ProviderObjectChange = func(*unstructured.Unstructured)

func applyChanges[T any](object T, changes []func(T)) T {
	for _, change := range changes {
		change(object)
	}
	return object
}

// NewSet returns a set of Cluster c that Millwright has prepared.
func NewSet(name string, replicas int32, change ...SetChange) *clusterv1.MachineSet {
	s := &clusterv1.MachineSet{ObjectMeta: NewMetadata(name)}
	s.Labels = map[string]string{clusterv1.WatchLabel: WatchFilter, clusterv1.ClusterNameLabel: "c"}
	s.Finalizers = []string{capi.Finalizer}
	s.OwnerReferences = []metav1.OwnerReference{capi.ClusterOwnerReference(NewCluster())}
	s.Spec.ClusterName, s.Spec.Replicas = "c", &replicas
	s.Spec.Selector.MatchLabels = map[string]string{"pool": name, clusterv1.ClusterNameLabel: "c"}
	s.Spec.Template.Labels = map[string]string{"pool": name, clusterv1.ClusterNameLabel: "c"}
	s.Spec.Template.Annotations = map[string]string{"team": "web"}
	s.Spec.Template.Spec.ClusterName, s.Spec.Template.Spec.Version = "c", "v1.31.2"
	s.Spec.Template.Spec.Bootstrap.ConfigRef = ObjectReference(NewBootstrapTemplate())
	s.Spec.Template.Spec.InfrastructureRef = ObjectReference(NewInfrastructureTemplate())
	return applyChanges(s, change)
}

// WithDeploymentOwner makes MachineDeployment d the controller of a set.
func WithDeploymentOwner(s *clusterv1.MachineSet) {
	s.Labels[clusterv1.MachineDeploymentNameLabel] = "d"
	s.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(NewDeployment(), clusterv1.GroupVersion.WithKind("MachineDeployment")),
	}
}

// AsDeletingObject marks an object as being deleted.
func AsDeletingObject[T metav1.Object](o T) { o.SetDeletionTimestamp(new(MinutesBeforeNoon(1))) }

// WithAnnotation sets an annotation of an object.
func WithAnnotation[T metav1.Object](key, value string) func(T) {
	return func(o T) {
		all := o.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
		o.SetAnnotations(all)
	}
}

// NewMachine returns a machine of a set. The machine's node has been ready for an hour. Millwright owns only the field
// spec.clusterName.
func NewMachine(name string, set *clusterv1.MachineSet, change ...MachineChange) *clusterv1.Machine {
	m := capiset.NewMachine(NewOfflineCache(DefaultSettings, cache.PreflightConfig{}), set, name)
	m.TypeMeta = metav1.TypeMeta{}
	labels, annotations, finalizers, owners := m.Labels, m.Annotations, m.Finalizers, m.OwnerReferences
	m.ObjectMeta = NewMetadata(name)
	m.Labels, m.Annotations, m.Finalizers, m.OwnerReferences = labels, annotations, finalizers, owners
	WithFieldsOf[*clusterv1.Machine](capi.MachineSetFieldManager, ownedClusterName)(m)
	clones := func(ref *clusterv1.ContractVersionedObjectReference) {
		if capi.IsTemplate(*ref) {
			*ref = clusterv1.ContractVersionedObjectReference{
				APIGroup: ref.APIGroup,
				Kind:     capi.CloneKind(*ref).Kind,
				Name:     name,
			}
		}
	}
	clones(&m.Spec.Bootstrap.ConfigRef)
	clones(&m.Spec.InfrastructureRef)
	m.Status.NodeRef.Name = "node-" + name
	m.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: m.Spec.Version}
	m.Status.Phase = string(clusterv1.MachinePhaseRunning)
	for _, kind := range []string{clusterv1.MachineReadyCondition, clusterv1.MachineUpToDateCondition, clusterv1.MachineNodeHealthyCondition} {
		WithCondition(kind, metav1.ConditionTrue)(m)
	}
	return applyChanges(m, change)
}

// WithCondition sets a condition of a machine.
func WithCondition(kind string, status metav1.ConditionStatus) MachineChange {
	return WithConditionReason(kind, status, "Because", "")
}

// WithConditionReason sets a condition of a machine, with a reason and a message.
func WithConditionReason(kind string, status metav1.ConditionStatus, reason, message string) MachineChange {
	return func(m *clusterv1.Machine) {
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: MinutesBeforeNoon(60),
		})
	}
}

// WithoutCondition removes a condition of a machine.
func WithoutCondition(kind string) MachineChange {
	return func(m *clusterv1.Machine) { meta.RemoveStatusCondition(&m.Status.Conditions, kind) }
}

// AsUnhealthyMachine makes a machine for which a health check requests a replacement by its set.
func AsUnhealthyMachine(m *clusterv1.Machine) {
	WithCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse)(m)
	WithConditionReason(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "WaitingForRemediation", "")(m)
}

// WithDrainHook gives a machine the annotations for a drain by Millwright.
func WithDrainHook(m *clusterv1.Machine) {
	WithAnnotation[*clusterv1.Machine](capidrain.AnnotationPreDrainHook, "millwright")(m)
	WithAnnotation[*clusterv1.Machine](clusterv1.ExcludeNodeDrainingAnnotation, "millwright")(m)
}

// AsMachineAtDrainHook makes a machine that Cluster API deletes and that waits at Millwright's pre-drain hook.
func AsMachineAtDrainHook(m *clusterv1.Machine) {
	AsDeletingObject(m)
	WithDrainHook(m)
	m.Spec.ProviderID = "example:///" + m.Name
	m.Status.Deletion = &clusterv1.MachineDeletionStatus{WaitForPreDrainHookStartTime: MinutesBeforeNoon(1)}
	WithConditionReason(
		clusterv1.MachineDeletingCondition,
		metav1.ConditionTrue,
		clusterv1.MachineDeletingWaitingForPreDrainHookReason,
		"",
	)(m)
}

// WithoutOwner removes the owner references of an object.
func WithoutOwner[T metav1.Object](o T) { o.SetOwnerReferences(nil) }

// NewCluster returns the Cluster c. The control plane of Cluster c is NewControlPlane.
func NewCluster(change ...ClusterChange) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: NewMetadata("c")}
	c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "controlplane.cluster.x-k8s.io",
		Kind:     "KubeadmControlPlane",
		Name:     "cp",
	}
	return applyChanges(c, change)
}

// NewDeployment returns the MachineDeployment d at revision 1.
func NewDeployment(change ...DeploymentChange) *clusterv1.MachineDeployment {
	d := &clusterv1.MachineDeployment{ObjectMeta: NewMetadata("d")}
	d.Annotations = map[string]string{clusterv1.RevisionAnnotation: "1"}
	d.Spec.ClusterName = "c"
	return applyChanges(d, change)
}

// NewInfrastructureTemplate returns the infrastructure template named small.
func NewInfrastructureTemplate(change ...ProviderObjectChange) *unstructured.Unstructured {
	return newProviderObject(
		"infrastructure.cluster.x-k8s.io/v1beta2",
		"ExampleMachineTemplate",
		"small",
		map[string]any{"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"disk": "ssd"}, "annotations": map[string]any{"price": "low"}},
			"spec":     map[string]any{"cpus": int64(2)},
		}},
		change,
	)
}

// NewBootstrapTemplate returns the bootstrap template named join.
func NewBootstrapTemplate(change ...ProviderObjectChange) *unstructured.Unstructured {
	return newProviderObject(
		"bootstrap.cluster.x-k8s.io/v1beta2",
		"KubeadmConfigTemplate",
		"join",
		map[string]any{"template": map[string]any{
			"spec": map[string]any{"format": "cloud-config"},
		}},
		change,
	)
}

// NewControlPlane returns the control plane cp with three available replicas.
func NewControlPlane(change ...ProviderObjectChange) *unstructured.Unstructured {
	o := newProviderObject(
		"controlplane.cluster.x-k8s.io/v1beta2",
		"KubeadmControlPlane",
		"cp",
		map[string]any{"version": "v1.31.2", "replicas": int64(3)},
		nil,
	)
	o.Object["status"] = map[string]any{
		"availableReplicas": int64(3), "versions": []any{map[string]any{"version": "v1.31.2", "replicas": int64(3)}},
	}
	return applyChanges(o, change)
}

func newProviderObject(
	apiVersion, kind, name string,
	spec map[string]any,
	change []ProviderObjectChange,
) *unstructured.Unstructured {
	return applyChanges(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "spec": spec,
		"metadata": map[string]any{
			"namespace": Namespace, "name": name, "uid": "uid-" + name, "resourceVersion": "900", "generation": int64(1),
		},
	}}, change)
}

// WithClusterOwner gives a template the owner reference and the label that the set's Cluster requires.
func WithClusterOwner(o *unstructured.Unstructured) {
	o.SetOwnerReferences([]metav1.OwnerReference{capi.ClusterOwnerReference(NewCluster())})
	o.SetLabels(map[string]string{clusterv1.ClusterNameLabel: "c"})
}

// WithField sets a field of a provider's object; a nil value removes the field.
func WithField(value any, path ...string) ProviderObjectChange {
	return func(o *unstructured.Unstructured) {
		if value == nil {
			unstructured.RemoveNestedField(o.Object, path...)
			return
		}
		if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
			panic(err)
		}
	}
}

// ObjectReference returns the reference to a provider's object.
func ObjectReference(o *unstructured.Unstructured) clusterv1.ContractVersionedObjectReference {
	kind := o.GroupVersionKind()
	return clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: o.GetName()}
}

// ResourceOfObject returns the resource of a provider's object.
func ResourceOfObject(o *unstructured.Unstructured) schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return resource
}

// FoundObject returns a provider's object that was read.
func FoundObject(o *unstructured.Unstructured) capi.ProviderObject {
	return capi.ProviderObject{Ref: ObjectReference(o), Resource: ResourceOfObject(o), Object: o, WasRead: true}
}

// MissingObject returns a provider's object that does not exist.
func MissingObject(o *unstructured.Unstructured) capi.ProviderObject {
	return capi.ProviderObject{Ref: ObjectReference(o), Resource: ResourceOfObject(o), WasRead: true}
}

// NewRelatedObjects returns the objects related to a set. The templates, the Cluster and the control plane exist and
// are valid.
func NewRelatedObjects(machines ...*clusterv1.Machine) capi.RelatedObjects {
	controlPlane := FoundObject(NewControlPlane())
	return capi.RelatedObjects{
		Members:      machines,
		Cluster:      NewCluster(),
		ControlPlane: &controlPlane,
		Templates: []capi.ProviderObject{
			FoundObject(NewBootstrapTemplate(WithClusterOwner)),
			FoundObject(NewInfrastructureTemplate(WithClusterOwner)),
		},
	}
}

// NewPreparedDeployment returns the MachineDeployment d of Cluster c at revision 1. Millwright has prepared the
// deployment.
func NewPreparedDeployment(replicas int32, change ...DeploymentChange) *clusterv1.MachineDeployment {
	d := NewDeployment()
	d.Labels = map[string]string{clusterv1.WatchLabel: WatchFilter, clusterv1.ClusterNameLabel: "c"}
	d.Finalizers = []string{capi.Finalizer}
	d.OwnerReferences = []metav1.OwnerReference{capi.ClusterOwnerReference(NewCluster())}
	like := NewSet("pool", 0)
	d.Spec.Replicas = &replicas
	d.Spec.Selector = *like.Spec.Selector.DeepCopy()
	d.Spec.Template = *like.Spec.Template.DeepCopy()
	return applyChanges(d, change)
}

// WithVersion changes the Kubernetes version in the template of a deployment.
func WithVersion(version string) DeploymentChange {
	return func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.Version = version }
}

// NewSetOfDeployment returns a set with its deployment's template. The set has already acted on its present size.
// Millwright owns only the field spec.clusterName.
func NewSetOfDeployment(
	d *clusterv1.MachineDeployment,
	name string,
	replicas int32,
	revision int64,
	change ...SetChange,
) *clusterv1.MachineSet {
	wanted := int(capi.ValueOrZero(d.Spec.Replicas))
	s, err := deployment.ObjectTree{
		Cache:      NewOfflineCache(DefaultSettings, cache.PreflightConfig{}),
		Deployment: d,
	}.NewSet(
		rollout.SetCreation{
			Replicas: int(replicas), Revision: revision, Desired: wanted, Max: wanted + 1,
		},
		0,
		Noon,
	)
	if err != nil {
		panic(err)
	}
	labels, annotations, finalizers, owners := s.Labels, s.Annotations, s.Finalizers, s.OwnerReferences
	s.ObjectMeta = NewMetadata(name)
	s.Labels, s.Annotations, s.Finalizers, s.OwnerReferences = labels, annotations, finalizers, owners
	WithFieldsOf[*clusterv1.MachineSet](capi.DeploymentFieldManager, ownedClusterName)(s)
	for _, place := range []map[string]string{s.Labels, s.Spec.Selector.MatchLabels, s.Spec.Template.Labels} {
		place[clusterv1.MachineDeploymentUniqueLabel] = name
	}
	s.Status.ObservedGeneration, s.Status.Replicas = s.Generation, &replicas
	return applyChanges(s, change)
}

// WithFormerTemplate gives a set the former template of its deployment.
func WithFormerTemplate(s *clusterv1.MachineSet) { s.Spec.Template.Spec.Version = "v1.30.0" }

// AsSetReplacedByRevisionTwo gives a set the former template of its deployment, and the annotation that revision 2
// replaces the set's machines.
func AsSetReplacedByRevisionTwo(s *clusterv1.MachineSet) {
	WithFormerTemplate(s)
	s.Spec.Template.Annotations[v1alpha1.AnnotationReplacedByRevision] = "2"
}

// AsUpstreamObject gives a set or a deployment the finalizer of Cluster API's controller for its kind, and not
// Millwright's.
func AsUpstreamObject[O metav1.Object](o O) {
	finalizer := clusterv1.MachineSetFinalizer
	if _, isDeployment := any(o).(*clusterv1.MachineDeployment); isDeployment {
		finalizer = clusterv1.MachineDeploymentFinalizer
	}
	o.SetFinalizers([]string{finalizer})
}

// objectWithConditions is an object of Cluster API with conditions.
type objectWithConditions interface {
	metav1.Object
	GetConditions() []metav1.Condition
	SetConditions([]metav1.Condition)
}

// WithPausedCondition adds the condition Paused, as Cluster API's controller sets it.
func WithPausedCondition[O objectWithConditions](o O) {
	conditions := o.GetConditions()
	meta.SetStatusCondition(&conditions, metav1.Condition{
		Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason,
	})
	o.SetConditions(conditions)
}
