package activities_test

import (
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/testing"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

const shop = "shop" // the namespace of all objects

func metadata(name string) metav1.ObjectMeta {
	created := metav1.NewTime(time.Now().Add(-time.Minute)).Rfc3339Copy()
	return metav1.ObjectMeta{
		Namespace: shop, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "900", Generation: 1, CreationTimestamp: created,
		Finalizers: []string{v1alpha1.FinalizerMachine},
	}
}

func machine(name string, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metadata(name)}
	m.Labels = map[string]string{"app": "web"}
	m.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}
	return with(m, change)
}

func class(change ...func(*v1alpha1.MachineClass)) *v1alpha1.MachineClass {
	c := &v1alpha1.MachineClass{ObjectMeta: metadata("small"), Provider: "fake"}
	c.ProviderSpec = runtime.RawExtension{Raw: []byte(`{"size":"xl"}`)}
	return with(c, change)
}

func set(name string, replicas int32, change ...func(*v1alpha1.MachineSet)) *v1alpha1.MachineSet {
	s := &v1alpha1.MachineSet{ObjectMeta: metadata(name)}
	s.Spec.Replicas = replicas
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	s.Spec.Template = template()
	return with(s, change)
}

func deployment(name string, replicas int32, change ...func(*v1alpha1.MachineDeployment)) *v1alpha1.MachineDeployment {
	d := &v1alpha1.MachineDeployment{ObjectMeta: metadata(name)}
	d.Spec.Replicas = replicas
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d.Spec.Template = template()
	return with(d, change)
}

func template() v1alpha1.MachineTemplateSpec {
	t := v1alpha1.MachineTemplateSpec{}
	t.Labels = map[string]string{"app": "web"}
	t.Annotations = map[string]string{"team": "shop"}
	t.Finalizers = []string{"example.com/backup"}
	t.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}
	return t
}

// node returns the node n, as its kubelet has registered it.
func node(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-n", ResourceVersion: "900"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status"}}
	return with(n, change)
}

func with[T any](object T, changes []func(T)) T {
	for _, change := range changes {
		change(object)
	}
	return object
}

func phase(p v1alpha1.MachinePhase) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = p }
}

// onNode makes a machine one that has an instance and has become the node n.
func onNode(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelNode], m.Spec.ProviderID = "n", "fake:///n" }

// ownedBy makes an object a member of a set or deployment.
func ownedBy[T metav1.Object](owner metav1.Object) func(T) {
	kind := "MachineSet"
	if _, ok := owner.(*v1alpha1.MachineDeployment); ok {
		kind = "MachineDeployment"
	}
	return func(o T) {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.SchemeGroupVersion.WithKind(kind))})
	}
}

func going[T metav1.Object](o T) {
	now := metav1.NewTime(time.Now()).Rfc3339Copy()
	o.SetDeletionTimestamp(&now)
}

func bare[T metav1.Object](o T) { o.SetFinalizers(nil) }

func ref(o metav1.Object) activities.Ref {
	return activities.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())}
}

func read(o metav1.Object) activities.Read { return activities.Read{Ref: ref(o)} }

func live(o metav1.Object) activities.Read { return activities.Read{Ref: ref(o), Live: true} }

// stranger names an object that once had the same name.
func stranger(o metav1.Object) activities.Ref {
	return activities.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: "uid-of-a-former-one"}
}

// stored returns an object as the API server has it now; nil when it is gone.
func stored[T any](tracker testing.ObjectTracker, resource, namespace, name string) *T {
	gv := v1alpha1.SchemeGroupVersion
	if namespace == "" {
		gv = corev1.SchemeGroupVersion
	}
	object, err := tracker.Get(gv.WithResource(resource), namespace, name)
	if err != nil {
		return nil
	}
	return any(object).(*T)
}

func (w *world) machine(name string) *v1alpha1.Machine {
	return stored[v1alpha1.Machine](w.machines.Tracker(), "machines", shop, name)
}

func (w *world) set(name string) *v1alpha1.MachineSet {
	return stored[v1alpha1.MachineSet](w.machines.Tracker(), "machinesets", shop, name)
}

func (w *world) deployment(name string) *v1alpha1.MachineDeployment {
	return stored[v1alpha1.MachineDeployment](w.machines.Tracker(), "machinedeployments", shop, name)
}

func (w *world) node() *corev1.Node {
	return stored[corev1.Node](w.target.Tracker(), "nodes", "", "n")
}

// edit changes an object of ours as a person or another controller does.
func (w *world) edit(resource observe.Resource, name string, patch map[string]any) {
	gvr, namespace, tracker := v1alpha1.SchemeGroupVersion.WithResource(string(resource)), shop, w.machines.Tracker()
	if resource == observe.Nodes {
		gvr, namespace, tracker = corev1.SchemeGroupVersion.WithResource("nodes"), "", w.target.Tracker()
	}
	w.server.change(tracker, gvr, namespace, name, patch)
}

// annotated is a patch that changes nothing but an annotation.
func annotated(key, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

// create adds objects behind the back of what a test runs.
func (w *world) create(objects ...metav1.Object) {
	w.t.Helper()
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *v1alpha1.MachineClass:
			_, err = w.machines.MachineV1alpha1().MachineClasses(shop).Create(w.t.Context(), o, metav1.CreateOptions{})
		case *v1alpha1.Machine:
			_, err = w.machines.MachineV1alpha1().Machines(shop).Create(w.t.Context(), o, metav1.CreateOptions{})
		case *v1alpha1.MachineSet:
			_, err = w.machines.MachineV1alpha1().MachineSets(shop).Create(w.t.Context(), o, metav1.CreateOptions{})
		case *v1alpha1.MachineDeployment:
			_, err = w.machines.MachineV1alpha1().MachineDeployments(shop).Create(w.t.Context(), o, metav1.CreateOptions{})
		case *corev1.Node:
			_, err = w.target.CoreV1().Nodes().Create(w.t.Context(), o, metav1.CreateOptions{})
		}
		require.NoError(w.t, err)
	}
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// replace deletes a machine without finalizers and makes another one of the same name.
func (w *world) replace(m *v1alpha1.Machine) {
	w.t.Helper()
	require.NoError(w.t, w.machines.MachineV1alpha1().Machines(shop).Delete(w.t.Context(), m.Name, metav1.DeleteOptions{}))
	w.create(m)
	w.forget()
}

// rewrite writes the status of an object as it is given, and waits until the caches have it.
func (w *world) rewrite(o metav1.Object) {
	w.t.Helper()
	var err error
	switch o := o.(type) {
	case *corev1.Node:
		_, err = w.target.CoreV1().Nodes().UpdateStatus(w.t.Context(), o, metav1.UpdateOptions{})
	case *v1alpha1.Machine:
		_, err = w.machines.MachineV1alpha1().Machines(shop).UpdateStatus(w.t.Context(), o, metav1.UpdateOptions{})
	case *v1alpha1.MachineSet:
		_, err = w.machines.MachineV1alpha1().MachineSets(shop).UpdateStatus(w.t.Context(), o, metav1.UpdateOptions{})
	case *v1alpha1.MachineDeployment:
		_, err = w.machines.MachineV1alpha1().MachineDeployments(shop).UpdateStatus(w.t.Context(), o, metav1.UpdateOptions{})
	}
	require.NoError(w.t, err)
	w.settle()
}
