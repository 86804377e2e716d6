package activitiestest

import (
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/testing"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

const TestNamespace = "shop" // namespace of all machine objects in the tests

func defaultMetadata(name string) metav1.ObjectMeta {
	created := metav1.NewTime(time.Now().Add(-time.Minute)).Rfc3339Copy()
	return metav1.ObjectMeta{
		Namespace:         TestNamespace,
		Name:              name,
		UID:               types.UID("uid-" + name),
		ResourceVersion:   "900",
		Generation:        1,
		CreationTimestamp: created,
		Finalizers:        []string{v1alpha1.FinalizerMachine},
	}
}

func NewMachine(name string, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: defaultMetadata(name)}
	m.Labels = map[string]string{"app": "web"}
	m.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}
	return ApplyChanges(m, change)
}

func NewClass(change ...func(*v1alpha1.MachineClass)) *v1alpha1.MachineClass {
	c := &v1alpha1.MachineClass{ObjectMeta: defaultMetadata("small"), Provider: "fake"}
	c.ProviderSpec = runtime.RawExtension{Raw: []byte(`{"size":"xl"}`)}
	return ApplyChanges(c, change)
}

func NewMachineSet(name string, replicas int32, change ...func(*v1alpha1.MachineSet)) *v1alpha1.MachineSet {
	s := &v1alpha1.MachineSet{ObjectMeta: defaultMetadata(name)}
	s.Labels = map[string]string{"app": "web"}
	s.Spec.Replicas = replicas
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	s.Spec.Template = NewMachineTemplate()
	return ApplyChanges(s, change)
}

func NewDeployment(
	name string,
	replicas int32,
	change ...func(*v1alpha1.MachineDeployment),
) *v1alpha1.MachineDeployment {
	d := &v1alpha1.MachineDeployment{ObjectMeta: defaultMetadata(name)}
	d.Spec.Replicas = replicas
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d.Spec.Template = NewMachineTemplate()
	return ApplyChanges(d, change)
}

func NewMachineTemplate() v1alpha1.MachineTemplateSpec {
	t := v1alpha1.MachineTemplateSpec{}
	t.Labels = map[string]string{"app": "web"}
	t.Annotations = map[string]string{"team": "shop"}
	t.Finalizers = []string{"example.com/backup"}
	t.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}
	return t
}

// NewNode returns the node n as its kubelet registers it.
func NewNode(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-n", ResourceVersion: "900"}}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: "Ready", Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	}
	return ApplyChanges(n, change)
}

// WithMachineUID gives a node the UID annotation of a machine.
func WithMachineUID(m *v1alpha1.Machine) func(*corev1.Node) {
	return func(n *corev1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationMachineUID, string(m.UID))
	}
}

func ApplyChanges[T any](object T, changes []func(T)) T {
	for _, change := range changes {
		change(object)
	}
	return object
}

func WithPhase(p v1alpha1.MachinePhase) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = p }
}

// WithNode gives a machine an instance and the node n.
func WithNode(m *v1alpha1.Machine) {
	m.Labels[v1alpha1.LabelNode], m.Status.NodeName, m.Spec.ProviderID = "n", "n", "fake:///n"
}

// WithOwner makes a set or deployment the controller of an object.
func WithOwner[T metav1.Object](owner metav1.Object) func(T) {
	kind := "MachineSet"
	if _, ok := owner.(*v1alpha1.MachineDeployment); ok {
		kind = "MachineDeployment"
	}
	return func(o T) {
		o.SetOwnerReferences(
			[]metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.SchemeGroupVersion.WithKind(kind))},
		)
	}
}

func WithDeletionTimestamp[T metav1.Object](o T) {
	now := metav1.NewTime(time.Now()).Rfc3339Copy()
	o.SetDeletionTimestamp(&now)
}

func WithoutFinalizers[T metav1.Object](o T) { o.SetFinalizers(nil) }

func NewRef(o metav1.Object) kube.Ref {
	return kube.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())}
}

func NewReadInput(o metav1.Object) kube.ReadInput { return kube.ReadInput{Ref: NewRef(o)} }

func NewLiveReadInput(o metav1.Object) kube.ReadInput {
	return kube.ReadInput{Ref: NewRef(o), Live: true}
}

// NewFormerObjectRef returns a Ref to an earlier object with the same name.
func NewFormerObjectRef(o metav1.Object) kube.Ref {
	return kube.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: "uid-of-a-former-one"}
}

// ReadStoredObject returns the current object from the API server; nil if the object is gone.
func ReadStoredObject[T any](tracker testing.ObjectTracker, resource, namespace, name string) *T {
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

func (w *World) Machine(name string) *v1alpha1.Machine {
	return ReadStoredObject[v1alpha1.Machine](w.MachineClient.Tracker(), "machines", TestNamespace, name)
}

func (w *World) MachineSet(name string) *v1alpha1.MachineSet {
	return ReadStoredObject[v1alpha1.MachineSet](w.MachineClient.Tracker(), "machinesets", TestNamespace, name)
}

func (w *World) Deployment(name string) *v1alpha1.MachineDeployment {
	return ReadStoredObject[v1alpha1.MachineDeployment](
		w.MachineClient.Tracker(),
		"machinedeployments",
		TestNamespace,
		name,
	)
}

func (w *World) Node() *corev1.Node {
	return ReadStoredObject[corev1.Node](w.TargetClient.Tracker(), "nodes", "", "n")
}

// EditObject changes a machine object as a person or another controller does.
func (w *World) EditObject(resource cache.Resource, name string, patch map[string]any) {
	gvr, namespace, tracker := v1alpha1.SchemeGroupVersion.WithResource(
		string(resource),
	), TestNamespace, w.MachineClient.Tracker()
	if resource == cache.NodesResource {
		gvr, namespace, tracker = corev1.SchemeGroupVersion.WithResource("nodes"), "", w.TargetClient.Tracker()
	}
	w.APIServer.patchAsOtherClient(tracker, gvr, namespace, name, patch)
}

// NewAnnotationPatch is a patch of one annotation.
func NewAnnotationPatch(key, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

// CreateObjects adds objects while a test runs.
func (w *World) CreateObjects(objects ...metav1.Object) {
	w.T.Helper()
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *v1alpha1.MachineClass:
			_, err = w.MachineClient.MachineV1alpha1().
				MachineClasses(TestNamespace).
				Create(w.T.Context(), o, metav1.CreateOptions{})
		case *v1alpha1.Machine:
			_, err = w.MachineClient.MachineV1alpha1().Machines(TestNamespace).Create(w.T.Context(), o, metav1.CreateOptions{})
		case *v1alpha1.MachineSet:
			_, err = w.MachineClient.MachineV1alpha1().
				MachineSets(TestNamespace).
				Create(w.T.Context(), o, metav1.CreateOptions{})
		case *v1alpha1.MachineDeployment:
			_, err = w.MachineClient.MachineV1alpha1().
				MachineDeployments(TestNamespace).
				Create(w.T.Context(), o, metav1.CreateOptions{})
		case *v1alpha1.RolloutPolicy:
			_, err = w.MachineClient.MachineV1alpha1().
				RolloutPolicies(TestNamespace).
				Create(w.T.Context(), o, metav1.CreateOptions{})
		case *corev1.Node:
			_, err = w.TargetClient.CoreV1().Nodes().Create(w.T.Context(), o, metav1.CreateOptions{})
		}
		require.NoError(w.T, err)
	}
}

func NewDuration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// RecreateMachine deletes a machine without finalizers and creates another machine of the same name.
func (w *World) RecreateMachine(m *v1alpha1.Machine) {
	w.T.Helper()
	require.NoError(
		w.T,
		w.MachineClient.MachineV1alpha1().Machines(TestNamespace).Delete(w.T.Context(), m.Name, metav1.DeleteOptions{}),
	)
	w.CreateObjects(m)
	w.ForgetRequests()
}

// WriteStatus writes the status of an object, and waits until the caches have the status.
func (w *World) WriteStatus(o metav1.Object) {
	w.T.Helper()
	var err error
	switch o := o.(type) {
	case *corev1.Node:
		_, err = w.TargetClient.CoreV1().Nodes().UpdateStatus(w.T.Context(), o, metav1.UpdateOptions{})
	case *v1alpha1.Machine:
		_, err = w.MachineClient.MachineV1alpha1().
			Machines(TestNamespace).
			UpdateStatus(w.T.Context(), o, metav1.UpdateOptions{})
	case *v1alpha1.MachineSet:
		_, err = w.MachineClient.MachineV1alpha1().
			MachineSets(TestNamespace).
			UpdateStatus(w.T.Context(), o, metav1.UpdateOptions{})
	case *v1alpha1.MachineDeployment:
		_, err = w.MachineClient.MachineV1alpha1().
			MachineDeployments(TestNamespace).
			UpdateStatus(w.T.Context(), o, metav1.UpdateOptions{})
	}
	require.NoError(w.T, err)
	w.AwaitCaches()
}
