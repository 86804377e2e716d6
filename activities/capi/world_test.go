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

// world holds a set with its machines, and what is around it.
func world(t *testing.T, objects ...runtime.Object) (*activitiestest.World, *capi.Activities) {
	t.Helper()
	w := activitiestest.NewClusterAPI(
		t,
		capitest.Settings,
		append(
			objects,
			capitest.Cluster(),
			capitest.Bootstrap(capitest.Owned),
			capitest.Infrastructure(capitest.Owned),
			capitest.ControlPlane(),
		)...)
	w.Forget()
	return w, activities(w)
}

func activities(w *activitiestest.World) *capi.Activities {
	return &capi.Activities{Kube: w.Kube, API: w.API, Workloads: w.Workloads}
}

// bootstrapOf and machineOf are clones of the templates: what their machine is named.
func bootstrapOf(w *activitiestest.World, name string) *unstructured.Unstructured {
	return w.Foreign(clone(capitest.Bootstrap(), name), name)
}

func machineOf(w *activitiestest.World, name string) *unstructured.Unstructured {
	return w.Foreign(clone(capitest.Infrastructure(), name), name)
}

// clone is a clone of a template, as the set s made it.
func clone(template *unstructured.Unstructured, name string, change ...capitest.OnForeign) *unstructured.Unstructured {
	o := template.DeepCopy()
	kind := o.GetKind()
	o.SetKind(kind[:len(kind)-len("Template")])
	o.SetName(name)
	o.SetUID("uid-" + o.GetUID())
	o.SetLabels(map[string]string{clusterv1.MachineSetNameLabel: "s", clusterv1.ClusterNameLabel: "c"})
	capitest.Field(map[string]any{"format": "cloud-config"}, "spec")(o)
	ownedBySet(o)
	for _, f := range change {
		f(o)
	}
	return o
}

func ownedBySet(o *unstructured.Unstructured) {
	o.SetOwnerReferences(
		[]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "s", UID: "uid-s"}},
	)
}

// ownedByMachine makes an object one that Cluster API's controller of machines has taken over.
func ownedByMachine(m *clusterv1.Machine) capitest.OnForeign {
	return func(o *unstructured.Unstructured) {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))})
	}
}

// refuse makes the API server reject the creation of an object of this resource and name.
func refuse(w *activitiestest.World, resource, name string, err error) {
	for _, fake := range w.Provider.Fakes() {
		fake.PrependReactor("create", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			o, is := action.(clienttesting.CreateActionImpl).GetObject().(metav1.Object)
			return is && o.GetName() == name, nil, err
		})
	}
}

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "anything"}, "x", nil)
}

func batch(s *clusterv1.MachineSet, machines ...*clusterv1.Machine) set.Batch {
	b := set.Batch{Set: activitiestest.Ref(s)}
	for _, m := range machines {
		b.Machines = append(
			b.Machines,
			scale.Target{Name: m.Name, UID: string(m.UID), Version: m.ResourceVersion, Why: "because"},
		)
	}
	return b
}
