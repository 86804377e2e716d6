package watch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// rolloutOfD is the ID of the rollout that a deployment names in its status when one is open.
const rolloutOfD = "rollout/ns/d/uid-d/2"

// rollingStack is the calm stack during the rollout of revision 2: the new set has its machine, which is not ready yet.
// The rollout can only wait for it.
func rollingStack(changes ...func(*v1alpha1.MachineDeployment)) []runtime.Object {
	return []runtime.Object{
		rollingDeployment(changes...),
		aSet(),
		aMachine(),
		newSet(),
		newMachine(),
		guardedNode(),
		aClass(),
		aSecret(),
	}
}

// rollingDeployment has the status of that rollout, after changes of its spec.
func rollingDeployment(changes ...func(*v1alpha1.MachineDeployment)) *v1alpha1.MachineDeployment {
	d := bareDeployment()
	d.Annotations[v1alpha1.AnnotationRevision], d.Spec.Template.Spec.Class.Name = "2", "large"
	d.Status.Rollout.Revision = 2
	for _, change := range changes {
		change(d)
	}
	below := objects(aSet(), aMachine(), newSet(), newMachine())
	return reportingRollout(reportingRollout(d, below...), below...) // the first report is progress
}

func newSet() *v1alpha1.MachineSet {
	s := bareSet()
	s.Name, s.UID = "s-2", "uid-s-2"
	s.Annotations[v1alpha1.AnnotationRevision] = "2"
	s.Spec.Template.Spec.Class.Name = "large"
	s.Spec.Template.Labels[v1alpha1.LabelMachineTemplateHash] = "h-2"
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: s.Spec.Template.Labels}
	return reporting(s, newMachine())
}

func newMachine() *v1alpha1.Machine {
	return changed(machineNamed("m-2"), uncreated, func(m *v1alpha1.Machine) {
		s := bareSet()
		s.Name, s.UID = "s-2", "uid-s-2"
		m.OwnerReferences = ownedBy(s, "MachineSet")
		m.Labels[v1alpha1.LabelMachineTemplateHash], m.Spec.Class.Name = "h-2", "large"
	})
}

// guardedNode is the node of the old machine with the marks of the rollout.
func guardedNode() *corev1.Node {
	return changed(aNode(), annotated[*corev1.Node](v1alpha1.AnnotationScaleDownDisabled, "true"),
		annotated[*corev1.Node](v1alpha1.AnnotationScaleDownDisabledByMCM, "true"), func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{
				{Key: v1alpha1.TaintPreferNoSchedule, Value: "True", Effect: v1alpha1.TaintPreferNoScheduleEffect},
			}
		})
}

// joined makes a machine one that has been running for long.
func joined(m *v1alpha1.Machine) {
	m.Status = machineNamed(m.Name).Status
	m.Spec.ProviderID = "virtual:///i-" + m.Name
	m.Labels[v1alpha1.LabelNode] = "n-" + m.Name
}

func late(d *v1alpha1.MachineDeployment) { d.Spec.ProgressDeadlineSeconds = new(int32(600)) }

// open makes a deployment's status name its rollout.
func open(d *v1alpha1.MachineDeployment) {
	d.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: rolloutOfD, RolloutOf: d.UID, Step: "await-machines"}
}

// gatedStack is a rollout that waits at its first pause point, without a new machine, for approval.
func gatedStack() []runtime.Object {
	return []runtime.Object{gatedDeployment(), aSet(), aMachine(), emptySet(), guardedNode(), aClass(), aSecret()}
}

func gatedDeployment() *v1alpha1.MachineDeployment {
	d := changed(rollingDeployment(), func(d *v1alpha1.MachineDeployment) {
		d.Status.Rollout.Steps = []v1alpha1.RolloutStep{{Approve: true}}
		d.Status.Rollout.ReachedAt = &born
	})
	return reportingRollout(d, aSet(), aMachine(), emptySet())
}

// emptySet is the new set before it has a machine.
func emptySet() *v1alpha1.MachineSet {
	s := newSet()
	s.Spec.Replicas = 0
	return reporting(s)
}

func held(d *v1alpha1.MachineDeployment) { d.Annotations[v1alpha1.AnnotationRolloutHold] = "2 ann: no" }

// A policy that appears, changes or disappears wakes the deployments and sets of its namespace that have something to
// do.
func TestAPolicyWakesDeploymentsAndSets(t *testing.T) {
	inWorld(t, gatedStack(), func(w *world) {
		w.took()
		policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "careful", UID: "uid-careful"}}
		w.put(policy)
		w.settle()
		assert.NotEmpty(t, w.took(), "the rollout waits")
		other := policy.DeepCopy()
		other.Spec.DeletionOrder = v1alpha1.DeletionOrderOldest
		version := w.put(other)
		w.settle()
		calls := w.took()
		require.NotEmpty(t, calls)
		assert.Equal(t, version, calls[0].changed.Versions[cache.Policies], "the decision must see it")
		other = other.DeepCopy()
		other.Labels = map[string]string{"note": "x"}
		w.put(other)
		w.settle()
		assert.Empty(t, w.took(), "what it says is the same")
		w.remove(other)
		w.settle()
		assert.NotEmpty(t, w.took())
	})
}
