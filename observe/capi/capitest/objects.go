// Package capitest builds objects of Cluster API, and fake API servers that hold these objects, for tests.
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

// Shop is the namespace of all objects. Filter is the label value of the sets that Millwright reconciles.
const (
	Shop   = "shop"
	Filter = "millwright"
)

// Noon is the time at which the tests observe the objects.
var Noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Selecting sets the selector of a set.
func Selecting(selector metav1.LabelSelector) OnSet {
	return func(s *clusterv1.MachineSet) { s.Spec.Selector = selector }
}

// Applied adds a managed-fields entry: the manager has applied one label and one annotation with these keys.
func Applied(manager string, labels, annotations string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		raw := (`{"f:metadata":{"f:labels":{".":{},"f:` + labels + `":{}},"f:annotations":{"f:` + annotations + `":{}}},"f:spec":{"f:version":{}}}`)
		m.ManagedFields = append(
			m.ManagedFields,
			metav1.ManagedFieldsEntry{
				Manager:    manager,
				Operation:  metav1.ManagedFieldsOperationApply,
				FieldsType: "FieldsV1",
				FieldsV1:   metav1.NewFieldsV1(raw),
			},
		)
	}
}

// Ago returns the time that is this many minutes before Noon.
func Ago(minutes int) metav1.Time {
	return metav1.NewTime(Noon.Add(-time.Duration(minutes) * time.Minute))
}

// Settings holds the settings of a Millwright that runs beside controllers of Cluster API which watch all objects.
var Settings = capi.Settings{Filter: Filter}

// Facts returns a Cache with these preflight settings, for functions that read only their arguments.
func Facts(settings capi.Settings, preflight cache.Preflight) *capi.Cache {
	return &capi.Cache{Settings: settings, Cluster: &cache.Cluster{Preflight: preflight}}
}

// Meta returns the metadata of an object.
func Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         Shop,
		Name:              name,
		UID:               types.UID("uid-" + name),
		ResourceVersion:   "900",
		Generation:        1,
		CreationTimestamp: Ago(60),
	}
}

// OnSet changes a set.
type OnSet = func(*clusterv1.MachineSet)

// OnMachine changes a machine.
type OnMachine = func(*clusterv1.Machine)

// OnCluster changes a Cluster.
type OnCluster = func(*clusterv1.Cluster)

// OnDeployment changes a MachineDeployment.
type OnDeployment = func(*clusterv1.MachineDeployment)

// OnForeign changes an object of a provider.
type OnForeign = func(*unstructured.Unstructured)

func applyChanges[T any](object T, changes []func(T)) T {
	for _, change := range changes {
		change(object)
	}
	return object
}

// Set returns a set of Cluster c that Millwright has prepared.
func Set(name string, replicas int32, change ...OnSet) *clusterv1.MachineSet {
	s := &clusterv1.MachineSet{ObjectMeta: Meta(name)}
	s.Labels = map[string]string{clusterv1.WatchLabel: Filter, clusterv1.ClusterNameLabel: "c"}
	s.Finalizers = []string{capi.Finalizer}
	s.OwnerReferences = []metav1.OwnerReference{capi.ClusterReference(Cluster())}
	s.Spec.ClusterName, s.Spec.Replicas = "c", &replicas
	s.Spec.Selector.MatchLabels = map[string]string{"pool": name, clusterv1.ClusterNameLabel: "c"}
	s.Spec.Template.Labels = map[string]string{"pool": name, clusterv1.ClusterNameLabel: "c"}
	s.Spec.Template.Annotations = map[string]string{"team": "web"}
	s.Spec.Template.Spec.ClusterName, s.Spec.Template.Spec.Version = "c", "v1.31.2"
	s.Spec.Template.Spec.Bootstrap.ConfigRef = Reference(Bootstrap())
	s.Spec.Template.Spec.InfrastructureRef = Reference(Infrastructure())
	return applyChanges(s, change)
}

// OfDeployment makes MachineDeployment d the controller of a set.
func OfDeployment(s *clusterv1.MachineSet) {
	s.Labels[clusterv1.MachineDeploymentNameLabel] = "d"
	s.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(Deployment(), clusterv1.GroupVersion.WithKind("MachineDeployment")),
	}
}

// Going marks an object as being deleted.
func Going[T metav1.Object](o T) { o.SetDeletionTimestamp(new(Ago(1))) }

// Annotated sets an annotation of an object.
func Annotated[T metav1.Object](key, value string) func(T) {
	return func(o T) {
		all := o.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
		o.SetAnnotations(all)
	}
}

// Machine returns a machine of a set. The machine's node has been ready for an hour.
func Machine(name string, set *clusterv1.MachineSet, change ...OnMachine) *clusterv1.Machine {
	m := capiset.Desired(Facts(Settings, cache.Preflight{}), set, name, nil)
	m.TypeMeta = metav1.TypeMeta{}
	labels, annotations, finalizers, owners := m.Labels, m.Annotations, m.Finalizers, m.OwnerReferences
	m.ObjectMeta = Meta(name)
	m.Labels, m.Annotations, m.Finalizers, m.OwnerReferences = labels, annotations, finalizers, owners
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
		Says(kind, metav1.ConditionTrue)(m)
	}
	return applyChanges(m, change)
}

// Says sets a condition of a machine.
func Says(kind string, status metav1.ConditionStatus) OnMachine {
	return SaysWhy(kind, status, "Because", "")
}

// SaysWhy sets a condition of a machine, with a reason and a message.
func SaysWhy(kind string, status metav1.ConditionStatus, reason, message string) OnMachine {
	return func(m *clusterv1.Machine) {
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: Ago(60),
		})
	}
}

// Without removes a condition of a machine.
func Without(kind string) OnMachine {
	return func(m *clusterv1.Machine) { meta.RemoveStatusCondition(&m.Status.Conditions, kind) }
}

// Unhealthy makes a machine for which a health check requests a replacement by its set.
func Unhealthy(m *clusterv1.Machine) {
	Says(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse)(m)
	SaysWhy(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "WaitingForRemediation", "")(m)
}

// Hooked gives a machine the annotations for a drain by Millwright.
func Hooked(m *clusterv1.Machine) {
	Annotated[*clusterv1.Machine](capidrain.AnnotationHook, "millwright")(m)
	Annotated[*clusterv1.Machine](clusterv1.ExcludeNodeDrainingAnnotation, "millwright")(m)
}

// AtTheHook makes a machine that Cluster API deletes and that waits at Millwright's pre-drain hook.
func AtTheHook(m *clusterv1.Machine) {
	Going(m)
	Hooked(m)
	m.Spec.ProviderID = "example:///" + m.Name
	m.Status.Deletion = &clusterv1.MachineDeletionStatus{WaitForPreDrainHookStartTime: Ago(1)}
	SaysWhy(
		clusterv1.MachineDeletingCondition,
		metav1.ConditionTrue,
		clusterv1.MachineDeletingWaitingForPreDrainHookReason,
		"",
	)(m)
}

// Unowned removes the owner references of an object.
func Unowned[T metav1.Object](o T) { o.SetOwnerReferences(nil) }

// Cluster returns the Cluster c. The control plane of Cluster c is ControlPlane.
func Cluster(change ...OnCluster) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: Meta("c")}
	c.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "controlplane.cluster.x-k8s.io",
		Kind:     "KubeadmControlPlane",
		Name:     "cp",
	}
	return applyChanges(c, change)
}

// Deployment returns the MachineDeployment d at revision 1.
func Deployment(change ...OnDeployment) *clusterv1.MachineDeployment {
	d := &clusterv1.MachineDeployment{ObjectMeta: Meta("d")}
	d.Annotations = map[string]string{clusterv1.RevisionAnnotation: "1"}
	d.Spec.ClusterName = "c"
	return applyChanges(d, change)
}

// Infrastructure returns the infrastructure template named small.
func Infrastructure(change ...OnForeign) *unstructured.Unstructured {
	return newForeign(
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

// Bootstrap returns the bootstrap template named join.
func Bootstrap(change ...OnForeign) *unstructured.Unstructured {
	return newForeign(
		"bootstrap.cluster.x-k8s.io/v1beta2",
		"KubeadmConfigTemplate",
		"join",
		map[string]any{"template": map[string]any{
			"spec": map[string]any{"format": "cloud-config"},
		}},
		change,
	)
}

// ControlPlane returns the control plane cp with three available replicas.
func ControlPlane(change ...OnForeign) *unstructured.Unstructured {
	o := newForeign(
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

func newForeign(apiVersion, kind, name string, spec map[string]any, change []OnForeign) *unstructured.Unstructured {
	return applyChanges(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "spec": spec,
		"metadata": map[string]any{
			"namespace": Shop, "name": name, "uid": "uid-" + name, "resourceVersion": "900", "generation": int64(1),
		},
	}}, change)
}

// Owned gives a template the owner reference and the label that the set's Cluster requires.
func Owned(o *unstructured.Unstructured) {
	o.SetOwnerReferences([]metav1.OwnerReference{capi.ClusterReference(Cluster())})
	o.SetLabels(map[string]string{clusterv1.ClusterNameLabel: "c"})
}

// Field sets a field of a provider's object; a nil value removes the field.
func Field(value any, path ...string) OnForeign {
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

// Reference returns the reference to a provider's object.
func Reference(o *unstructured.Unstructured) clusterv1.ContractVersionedObjectReference {
	kind := o.GroupVersionKind()
	return clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: o.GetName()}
}

// ResourceOf returns the resource of a provider's object.
func ResourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return resource
}

// Found returns a provider's object that was read.
func Found(o *unstructured.Unstructured) capi.ProviderObject {
	return capi.ProviderObject{Ref: Reference(o), Resource: ResourceOf(o), Object: o, Read: true}
}

// Gone returns a provider's object that does not exist.
func Gone(o *unstructured.Unstructured) capi.ProviderObject {
	return capi.ProviderObject{Ref: Reference(o), Resource: ResourceOf(o), Read: true}
}

// Related returns the objects related to a set. Templates, Cluster and control plane are in order.
func Related(machines ...*clusterv1.Machine) capi.Related {
	controlPlane := Found(ControlPlane())
	return capi.Related{
		Members: machines, Cluster: Cluster(), ControlPlane: &controlPlane,
		Templates: []capi.ProviderObject{Found(Bootstrap(Owned)), Found(Infrastructure(Owned))},
	}
}

// Pool returns the MachineDeployment d of Cluster c at revision 1. Millwright has prepared the deployment.
func Pool(replicas int32, change ...OnDeployment) *clusterv1.MachineDeployment {
	d := Deployment()
	d.Labels = map[string]string{clusterv1.WatchLabel: Filter, clusterv1.ClusterNameLabel: "c"}
	d.Finalizers = []string{capi.Finalizer}
	d.OwnerReferences = []metav1.OwnerReference{capi.ClusterReference(Cluster())}
	like := Set("pool", 0)
	d.Spec.Replicas = &replicas
	d.Spec.Selector = *like.Spec.Selector.DeepCopy()
	d.Spec.Template = *like.Spec.Template.DeepCopy()
	return applyChanges(d, change)
}

// Version changes the Kubernetes version in the template of a deployment.
func Version(version string) OnDeployment {
	return func(d *clusterv1.MachineDeployment) { d.Spec.Template.Spec.Version = version }
}

// SetOf returns a set with its deployment's template. The set has acted on its size.
func SetOf(
	d *clusterv1.MachineDeployment,
	name string,
	replicas int32,
	revision int64,
	change ...OnSet,
) *clusterv1.MachineSet {
	wanted := int(capi.Value(d.Spec.Replicas))
	s, err := deployment.Tree{API: Facts(Settings, cache.Preflight{}), Deployment: d}.NewSet(rollout.Creation{
		Replicas: int(replicas), Revision: revision, Desired: wanted, Max: wanted + 1,
	}, 0, Noon)
	if err != nil {
		panic(err)
	}
	labels, annotations, finalizers, owners := s.Labels, s.Annotations, s.Finalizers, s.OwnerReferences
	s.ObjectMeta = Meta(name)
	s.Labels, s.Annotations, s.Finalizers, s.OwnerReferences = labels, annotations, finalizers, owners
	for _, place := range []map[string]string{s.Labels, s.Spec.Selector.MatchLabels, s.Spec.Template.Labels} {
		place[clusterv1.MachineDeploymentUniqueLabel] = name
	}
	s.Status.ObservedGeneration, s.Status.Replicas = s.Generation, &replicas
	return applyChanges(s, change)
}

// Former gives a set the former template of its deployment.
func Former(s *clusterv1.MachineSet) { s.Spec.Template.Spec.Version = "v1.30.0" }

// ReplacedBySecond gives a set the former template of its deployment, and the annotation that revision 2 replaces the
// set's machines.
func ReplacedBySecond(s *clusterv1.MachineSet) {
	Former(s)
	s.Spec.Template.Annotations[v1alpha1.AnnotationReplacedByRevision] = "2"
}
