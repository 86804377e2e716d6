package watch

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/observe/deployment"
	"millwright/observe/machine"
	"millwright/observe/set"
)

func changedCopy[T runtime.Object](o T, changes ...func(T)) T {
	o = o.DeepCopyObject().(T)
	for _, change := range changes {
		change(o)
	}
	return o
}

var creationTime = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

func objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Generation: 1, CreationTimestamp: creationTime,
		Labels: map[string]string{"pool": "a"}, Finalizers: []string{v1alpha1.FinalizerMachine},
	}
}

func newOwnerReferences(o metav1.Object, kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(o, v1alpha1.SchemeGroupVersion.WithKind(kind))}
}

func machineTemplate() v1alpha1.MachineTemplateSpec {
	return v1alpha1.MachineTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "a", v1alpha1.LabelMachineTemplateHash: "h"}},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "small"}},
	}
}

// testDeployment returns the deployment of the test stack, which has no pending work: it has one set, with one machine,
// with a healthy node.
func testDeployment() *v1alpha1.MachineDeployment {
	return withDeploymentStatus(deploymentWithoutStatus(), initialObjects(testMachineSet(), testMachine())...)
}

// deploymentWithoutStatus returns the deployment with an empty status.
func deploymentWithoutStatus() *v1alpha1.MachineDeployment {
	d := &v1alpha1.MachineDeployment{ObjectMeta: objectMeta("d")}
	d.Annotations = map[string]string{v1alpha1.AnnotationRevision: "1"}
	d.Spec.Replicas, d.Spec.Template = 1, machineTemplate()
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	d.Status.ObservedGeneration = 1
	d.Status.Rollout = &v1alpha1.RolloutStatus{Revision: 1, CompletedAt: &creationTime, Set: "s", LastGoodSet: "s"}
	return d
}

// withDeploymentStatus writes the status that a deployment with these sets and machines has.
func withDeploymentStatus(d *v1alpha1.MachineDeployment, below ...runtime.Object) *v1alpha1.MachineDeployment {
	tree := deployment.ObjectTree{Deployment: d}
	for _, o := range below {
		switch o := o.(type) {
		case *v1alpha1.MachineSet:
			tree.Sets = append(tree.Sets, o)
		case *v1alpha1.Machine:
			tree.Members = append(tree.Members, o)
		}
	}
	deployment.ApplyStatus(
		&d.Status,
		rollout.PlannedStatus(deployment.RolloutFacts(tree, creationTime.Time)),
		creationTime,
	)
	return d
}

func testMachineSet() *v1alpha1.MachineSet {
	return withSetStatus(machineSetWithoutStatus(), testMachine())
}

// machineSetWithoutStatus returns the set with an empty status.
func machineSetWithoutStatus() *v1alpha1.MachineSet {
	s := &v1alpha1.MachineSet{ObjectMeta: objectMeta("s")}
	s.OwnerReferences = newOwnerReferences(deploymentWithoutStatus(), "MachineDeployment")
	s.Annotations = map[string]string{
		v1alpha1.AnnotationRevision: "1", v1alpha1.AnnotationDesiredReplicas: "1", v1alpha1.AnnotationMaxReplicas: "2",
	}
	s.Spec.Replicas, s.Spec.Template = 1, machineTemplate()
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: machineTemplate().Labels}
	s.Status.ObservedGeneration = 1
	return s
}

// withSetStatus writes the status that a set with these machines has.
func withSetStatus(s *v1alpha1.MachineSet, machines ...*v1alpha1.Machine) *v1alpha1.MachineSet {
	return machineSetWithDeploymentAndStatus(deploymentWithoutStatus(), s, machines...)
}

func machineSetWithDeploymentAndStatus(
	d *v1alpha1.MachineDeployment,
	s *v1alpha1.MachineSet,
	machines ...*v1alpha1.Machine,
) *v1alpha1.MachineSet {
	return withStatusForRelatedObjects(s, set.RelatedObjects{Members: machines, Deployment: d})
}

func withStatusForRelatedObjects(s *v1alpha1.MachineSet, related set.RelatedObjects) *v1alpha1.MachineSet {
	set.ApplyStatus(&s.Status, scale.PlanSet(set.ScaleFacts(s, related, creationTime.Time, 0)).Status, creationTime)
	return s
}

func testMachine() *v1alpha1.Machine { return machineWithName("m") }

func machineWithName(name string) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: objectMeta(name)}
	m.OwnerReferences = newOwnerReferences(machineSetWithoutStatus(), "MachineSet")
	m.Labels = machineTemplate().Labels
	m.Labels[v1alpha1.LabelNode], m.Status.NodeName = "n-"+name, "n-"+name
	m.Annotations = map[string]string{v1alpha1.AnnotationMachinePriority: "3"}
	m.Spec = machineTemplate().Spec
	m.Spec.ProviderID = "virtual:///i-" + name
	m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
	m.Status.LastOperation = v1alpha1.LastOperation{
		Type:  v1alpha1.MachineOperationCreate,
		State: v1alpha1.MachineStateSuccessful,
	}
	m.Status.Conditions = machine.CopiedConditions(nodeWithName("n-" + name))
	return m
}

func testNode() *corev1.Node { return nodeWithName("n-m") }

func nodeWithName(name string) *corev1.Node {
	of := strings.TrimPrefix(name, "n-") // name of the node's machine
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), Finalizers: []string{v1alpha1.FinalizerNode},
			Labels:      map[string]string{v1alpha1.LabelMachineName: of},
			Annotations: map[string]string{v1alpha1.AnnotationMachineUID: "uid-" + of},
		},
		Spec: corev1.NodeSpec{ProviderID: "virtual:///i-" + of},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: creationTime},
			{Type: "KernelDeadlock", Status: corev1.ConditionFalse, Reason: "KernelHasNoDeadlock"},
		}},
	}
}

func testClass() *v1alpha1.MachineClass {
	c := &v1alpha1.MachineClass{ObjectMeta: objectMeta("small"), Provider: "virtual"}
	c.SecretRef = &corev1.SecretReference{Namespace: "ns", Name: "credentials"}
	return c
}

func testSecret() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "credentials", UID: "uid-credentials", Finalizers: []string{v1alpha1.FinalizerSecret},
		},
	}
}

func objectsWithoutPendingWork() []runtime.Object {
	return []runtime.Object{testDeployment(), testMachineSet(), testMachine(), testNode(), testClass(), testSecret()}
}

func withNode(name string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelNode], m.Status.NodeName = name, name }
}

// The functions below change machines and nodes.
func withPhase(p v1alpha1.MachinePhase) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = p }
}

func setNotCreated(m *v1alpha1.Machine) {
	m.Spec.ProviderID, m.Status = "", v1alpha1.MachineStatus{}
	delete(m.Labels, v1alpha1.LabelNode)
}

func setNodeUnready(n *corev1.Node) {
	n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = corev1.ConditionFalse, "KubeletNotReady"
}

func updateHeartbeat(n *corev1.Node) {
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(time.Now())
	}
}

func setDeleting[T metav1.Object](o T) { o.SetDeletionTimestamp(&creationTime) }

func removeFinalizers[T metav1.Object](o T) { o.SetFinalizers(nil) }
