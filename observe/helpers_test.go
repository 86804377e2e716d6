package observe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

// start returns running caches over fake API servers that hold these objects. The fakes give no resource versions: tests
// set those that they mean.
func start(t *testing.T, nodes []runtime.Object, objects ...runtime.Object) (*observe.Cluster, *fake.Clientset) {
	t.Helper()
	machines := fake.NewSimpleClientset(objects...)
	cluster, err := observe.NewCluster(machines, kubefake.NewClientset(nodes...), nil)
	require.NoError(t, err)
	require.NoError(t, cluster.Start(t.Context()))
	return cluster, machines
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Generation: 1}
}

func machine(name string, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: meta(name)}
	m.Labels = map[string]string{"app": "web"}
	m.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}
	for _, f := range change {
		f(m)
	}
	return m
}

func set(name string, change ...func(*v1alpha1.MachineSet)) *v1alpha1.MachineSet {
	s := &v1alpha1.MachineSet{ObjectMeta: meta(name)}
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	s.Spec.Template = template()
	for _, f := range change {
		f(s)
	}
	return s
}

func deployment(name string, change ...func(*v1alpha1.MachineDeployment)) *v1alpha1.MachineDeployment {
	d := &v1alpha1.MachineDeployment{ObjectMeta: meta(name)}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d.Spec.Template = template()
	for _, f := range change {
		f(d)
	}
	return d
}

func template() v1alpha1.MachineTemplateSpec {
	t := v1alpha1.MachineTemplateSpec{}
	t.Labels = map[string]string{"app": "web"}
	t.Annotations = map[string]string{"team": "shop"}
	t.Finalizers = []string{"example.com/backup"}
	t.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}
	return t
}

func phase(p v1alpha1.MachinePhase) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = p }
}

func goingMachine(m *v1alpha1.Machine) { m.DeletionTimestamp = now() }
func goingSet(s *v1alpha1.MachineSet)  { s.DeletionTimestamp = now() }
func onNode(name string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelNode] = name }
}

func ownedBy(owner metav1.Object, kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.SchemeGroupVersion.WithKind(kind))}
}

// node returns the node n with these conditions.
func node(conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-n"}, Status: corev1.NodeStatus{Conditions: conditions}}
}

func condition(kind, status string) corev1.NodeCondition {
	return corev1.NodeCondition{Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status), Reason: "Because"}
}

func now() *metav1.Time {
	t := metav1.NewTime(time.Now())
	return &t
}
