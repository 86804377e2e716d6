package capi_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/activities/capi"
	"millwright/activities/set"
	"millwright/decide/scale"
	"millwright/observe/capi/capitest"
)

// newWorld returns a fake API server with a set, its machines and the related objects, and the activities on it.
func newWorld(t *testing.T, objects ...runtime.Object) (*activitiestest.World, *capi.Activities) {
	t.Helper()
	w := activitiestest.NewClusterAPIWorld(
		t,
		capitest.DefaultSettings,
		append(
			objects,
			capitest.NewCluster(),
			capitest.NewBootstrapTemplate(capitest.WithClusterOwner),
			capitest.NewInfrastructureTemplate(capitest.WithClusterOwner),
			capitest.NewControlPlane(),
		)...)
	w.ForgetRequests()
	return w, newActivities(w)
}

func newActivities(w *activitiestest.World) *capi.Activities {
	return &capi.Activities{Kube: w.Kube, Cache: w.ClusterAPICache, WorkloadClusters: w.WorkloadClusters}
}

// bootstrapCloneOf and infrastructureCloneOf return a machine's clones of the templates: each clone has the machine's
// name.
func bootstrapCloneOf(w *activitiestest.World, name string) *unstructured.Unstructured {
	return w.ProviderObject(newClone(capitest.NewBootstrapTemplate(), name), name)
}

func infrastructureCloneOf(w *activitiestest.World, name string) *unstructured.Unstructured {
	return w.ProviderObject(newClone(capitest.NewInfrastructureTemplate(), name), name)
}

// newClone returns a clone of a template, as set s creates it.
func newClone(
	template *unstructured.Unstructured,
	name string,
	change ...capitest.ProviderObjectChange,
) *unstructured.Unstructured {
	o := template.DeepCopy()
	kind := o.GetKind()
	o.SetKind(kind[:len(kind)-len("Template")])
	o.SetName(name)
	o.SetUID("uid-" + o.GetUID())
	o.SetLabels(map[string]string{clusterv1.MachineSetNameLabel: "s", clusterv1.ClusterNameLabel: "c"})
	capitest.WithField(map[string]any{"format": "cloud-config"}, "spec")(o)
	withSetOwner(o)
	for _, f := range change {
		f(o)
	}
	return o
}

func withSetOwner(o *unstructured.Unstructured) {
	o.SetOwnerReferences(
		[]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "s", UID: "uid-s"}},
	)
}

// withMachineOwner gives a clone the owner reference that Cluster API's Machine controller writes.
func withMachineOwner(m *clusterv1.Machine) capitest.ProviderObjectChange {
	return func(o *unstructured.Unstructured) {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))})
	}
}

// refuseCreation makes the API server reject the creation of the object with this resource and name.
func refuseCreation(w *activitiestest.World, resource, name string, err error) {
	for _, fake := range w.ClusterAPIServer.FakeClientsets() {
		fake.PrependReactor("create", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			o, is := action.(clienttesting.CreateActionImpl).GetObject().(metav1.Object)
			return is && o.GetName() == name, nil, err
		})
	}
}

func forbiddenError() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "anything"}, "x", nil)
}

func newMachineBatch(s *clusterv1.MachineSet, machines ...*clusterv1.Machine) set.MachineBatch {
	b := set.MachineBatch{Set: activitiestest.NewRef(s)}
	for _, m := range machines {
		b.Machines = append(
			b.Machines,
			scale.MachineTarget{Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, Why: "because"},
		)
	}
	return b
}

// managedFieldsEntryOf returns a function that makes managed-fields entries of an API version. The fields are in the
// format of FieldsV1.
func managedFieldsEntryOf(
	apiVersion string,
) func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: operation, APIVersion: apiVersion,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		}
	}
}
