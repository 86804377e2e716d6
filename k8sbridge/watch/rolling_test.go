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

// testRolloutID is the rollout ID in the status of a deployment with an open rollout.
const testRolloutID = "rollout/ns/d/uid-d/2"

// objectsDuringRollout returns the test stack during the rollout of revision 2. The new set has its machine, and the
// rollout only waits until the machine is ready.
func objectsDuringRollout(changes ...func(*v1alpha1.MachineDeployment)) []runtime.Object {
	return []runtime.Object{
		deploymentDuringRollout(changes...),
		testMachineSet(),
		testMachine(),
		machineSetOfNewRevision(),
		machineOfNewRevision(),
		nodeDuringRollout(),
		testClass(),
		testSecret(),
	}
}

// deploymentDuringRollout returns the deployment of objectsDuringRollout, with changes of its spec and the matching
// status.
func deploymentDuringRollout(changes ...func(*v1alpha1.MachineDeployment)) *v1alpha1.MachineDeployment {
	d := deploymentWithoutStatus()
	d.Annotations[v1alpha1.AnnotationRevision], d.Spec.Template.Spec.Class.Name = "2", "large"
	d.Status.Rollout.Revision, d.Status.Rollout.Set = 2, "s-2"
	for _, change := range changes {
		change(d)
	}
	below := initialObjects(testMachineSet(), testMachine(), machineSetOfNewRevision(), machineOfNewRevision())
	return withDeploymentStatus(
		withDeploymentStatus(d, below...),
		below...) // the first report counts as progress of the rollout
}

func machineSetOfNewRevision() *v1alpha1.MachineSet {
	s := machineSetWithoutStatus()
	s.Name, s.UID = "s-2", "uid-s-2"
	s.Annotations[v1alpha1.AnnotationRevision] = "2"
	s.Spec.Template.Spec.Class.Name = "large"
	s.Spec.Template.Labels[v1alpha1.LabelMachineTemplateHash] = "h-2"
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: s.Spec.Template.Labels}
	return withSetStatus(s, machineOfNewRevision())
}

func machineOfNewRevision() *v1alpha1.Machine {
	return changedCopy(machineWithName("m-2"), setNotCreated, func(m *v1alpha1.Machine) {
		s := machineSetWithoutStatus()
		s.Name, s.UID = "s-2", "uid-s-2"
		m.OwnerReferences = newOwnerReferences(s, "MachineSet")
		m.Labels[v1alpha1.LabelMachineTemplateHash], m.Spec.Class.Name = "h-2", "large"
	})
}

// nodeDuringRollout returns the node of the old machine with the annotations and the taint of a rollout.
func nodeDuringRollout() *corev1.Node {
	return changedCopy(testNode(), withAnnotation[*corev1.Node](v1alpha1.AnnotationScaleDownDisabled, "true"),
		withAnnotation[*corev1.Node](v1alpha1.AnnotationScaleDownDisabledByMCM, "true"), func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{
				{Key: v1alpha1.TaintPreferNoSchedule, Value: "True", Effect: v1alpha1.TaintPreferNoScheduleEffect},
			}
		})
}

// setJoined gives a machine the status of a machine that has been Running for long.
func setJoined(m *v1alpha1.Machine) {
	m.Status = machineWithName(m.Name).Status
	m.Spec.ProviderID = "virtual:///i-" + m.Name
	m.Labels[v1alpha1.LabelNode] = "n-" + m.Name
}

func withProgressDeadline(d *v1alpha1.MachineDeployment) {
	d.Spec.ProgressDeadlineSeconds = new(int32(600))
}

// withOpenRollout writes the rollout's ID into a deployment's status.
func withOpenRollout(d *v1alpha1.MachineDeployment) {
	d.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: testRolloutID, RolloutOf: d.UID, Step: "await-machines"}
}

// objectsBeforeApproval returns a rollout that waits for approval at its first pause point, before its first new
// machine.
func objectsBeforeApproval() []runtime.Object {
	return []runtime.Object{
		deploymentBeforeApproval(),
		testMachineSet(),
		testMachine(),
		emptyMachineSetOfNewRevision(),
		nodeDuringRollout(),
		testClass(),
		testSecret(),
	}
}

func deploymentBeforeApproval() *v1alpha1.MachineDeployment {
	d := changedCopy(deploymentDuringRollout(), func(d *v1alpha1.MachineDeployment) {
		d.Status.Rollout.Steps = []v1alpha1.RolloutStep{{Approve: true}}
		d.Status.Rollout.ReachedAt = &creationTime
	})
	return withDeploymentStatus(d, testMachineSet(), testMachine(), emptyMachineSetOfNewRevision())
}

// emptyMachineSetOfNewRevision returns the new set before it has a machine.
func emptyMachineSetOfNewRevision() *v1alpha1.MachineSet {
	s := machineSetOfNewRevision()
	s.Spec.Replicas = 0
	return withSetStatus(s)
}

func withRolloutHold(d *v1alpha1.MachineDeployment) {
	d.Annotations[v1alpha1.AnnotationRolloutHold] = "2 ann: no"
}

// A policy that is created, changed or deleted wakes the deployments and sets of its namespace that have pending
// work.
func TestAPolicySignalsDeploymentsAndSets(t *testing.T) {
	runBridgeTest(t, objectsBeforeApproval(), func(w *bridgeTestEnv) {
		w.takeCalls()
		policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "careful", UID: "uid-careful"}}
		w.putObject(policy)
		w.runDebouncedWork()
		assert.NotEmpty(t, w.takeCalls(), "the rollout waits")
		other := policy.DeepCopy()
		other.Spec.DeletionOrder = v1alpha1.DeletionOrderOldest
		version := w.putObject(other)
		w.runDebouncedWork()
		calls := w.takeCalls()
		require.NotEmpty(t, calls)
		assert.Equal(t, version, calls[0].signalContent.Versions[cache.RolloutPoliciesResource], "the decision must see it")
		other = other.DeepCopy()
		other.Labels = map[string]string{"note": "x"}
		w.putObject(other)
		w.runDebouncedWork()
		assert.Empty(t, w.takeCalls(), "what it says is the same")
		w.deleteObject(other)
		w.runDebouncedWork()
		assert.NotEmpty(t, w.takeCalls())
	})
}
