package watch

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

// which names the fingerprints that differ.
func which(a, b prints) (names []string) {
	if a.self != b.self {
		names = append(names, "self")
	}
	if a.owner != b.owner {
		names = append(names, "owner")
	}
	if a.later != b.later {
		names = append(names, "later")
	}
	if a.own != b.own {
		names = append(names, "own")
	}
	if a.below != b.below {
		names = append(names, "below")
	}
	if a.above != b.above {
		names = append(names, "above")
	}
	return names
}

// annotated sets an annotation, the first of an object that has none.
func annotated[T metav1.Object](key, value string) func(T) {
	return func(o T) {
		annotations := maps.Clone(o.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
		o.SetAnnotations(annotations)
	}
}

func TestMachinePrints(t *testing.T) {
	type change = func(*v1alpha1.Machine)
	var none []string
	for _, row := range []struct {
		name   string
		change change
		want   []string
	}{
		// What people and other controllers do.
		{"spec: class", func(m *v1alpha1.Machine) { m.Spec.Class.Name = "large" }, []string{"self", "later"}},
		{"spec: a timeout", func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineCreationTimeout: &metav1.Duration{Duration: time.Minute}}
		}, []string{"self", "later"}},
		{"spec: bad node conditions", func(m *v1alpha1.Machine) {
			types := "DiskPressure"
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{NodeConditions: &types}
		}, []string{"self", "later"}},
		{"deletion", toBeDeleted[*v1alpha1.Machine], []string{"self", "later", "above"}},
		{"another object of that name", func(m *v1alpha1.Machine) { m.UID = "other" }, []string{"self", "owner", "own"}},
		{"a foreign label", func(m *v1alpha1.Machine) { m.Labels["color"] = "red" }, []string{"self", "later"}},
		{"a wish: force-deletion", func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelForceDeletion] = "true" }, []string{"self", "later"}},
		{"a wish: preserve", func(m *v1alpha1.Machine) {
			m.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.ValuePreserveNow
		}, []string{"self", "later"}},
		{"effective creation timeout", func(m *v1alpha1.Machine) {
			m.Annotations[v1alpha1.AnnotationEffectiveCreationTimeout] = "1m"
		}, []string{"self", "later"}},
		{"a label of the set's template", func(m *v1alpha1.Machine) { delete(m.Labels, v1alpha1.LabelMachineTemplateHash) }, []string{"later"}},
		{"priority", func(m *v1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationMachinePriority] = "1" }, []string{"later"}},
		{"owner", func(m *v1alpha1.Machine) { m.OwnerReferences = nil }, []string{"owner"}},
		// What its own workflow does: never self.
		{"finalizer", func(m *v1alpha1.Machine) { m.Finalizers = nil }, []string{"own"}},
		{"a foreign finalizer", func(m *v1alpha1.Machine) { m.Finalizers = append(m.Finalizers, "foreign") }, none},
		{"label node", func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelNode] = "n-2" }, []string{"own"}},
		{"providerID", func(m *v1alpha1.Machine) { m.Spec.ProviderID = "virtual:///i-2" }, []string{"own"}},
		{"the default priority instead of none", func(m *v1alpha1.Machine) { delete(m.Annotations, v1alpha1.AnnotationMachinePriority) }, none},
		{"phase", inPhase(v1alpha1.MachineUnknown), []string{"later", "own", "above"}},
		{"phase, and it waits to be replaced", inPhase(v1alpha1.MachineFailed), []string{"later", "own", "above"}},
		{"phase of an in-place update", inPhase(v1alpha1.MachineInPlaceUpdating), []string{"later", "own", "above"}},
		{"handed over after an in-place update", func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful }, []string{"self", "later", "above"}},
		{"last operation: state", func(m *v1alpha1.Machine) { m.Status.LastOperation.State = v1alpha1.MachineStateFailed }, []string{"later"}},
		{"last operation: text, which its set tells", func(m *v1alpha1.Machine) { m.Status.LastOperation.Description = "still creating" }, []string{"later"}},
		{"last operation: time", func(m *v1alpha1.Machine) { m.Status.LastOperation.LastUpdateTime = born }, none},
		{"current operation", func(m *v1alpha1.Machine) { m.Status.CurrentOperation = &v1alpha1.Operation{Step: "await-node"} }, none},
		{"conditions", func(m *v1alpha1.Machine) { m.Status.Conditions = aNode().Status.Conditions }, []string{"own"}},
		{"last known state", func(m *v1alpha1.Machine) { m.Status.LastKnownState = "disk-7" }, none},
		{"our notes", func(m *v1alpha1.Machine) {
			for _, key := range v1alpha1.OwnMetadataKeys() {
				if key != v1alpha1.AnnotationMarkedForDeletionTime && key != v1alpha1.AnnotationMachineJoinDuration {
					m.Annotations[key] = "noted"
				}
			}
		}, none},
		{"when the autoscaler chose it", annotated[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, "2026-01-01T00:00:00Z"), []string{"later", "above"}},
		{"how long it took to join", annotated[*v1alpha1.Machine](v1alpha1.AnnotationMachineJoinDuration, "1m"), []string{"later"}},
		{"a wish: deleted before others", annotated[*v1alpha1.Machine](v1alpha1.AnnotationDeleteMachine, ""), []string{"self", "later"}},
		{"a wish: replaced", annotated[*v1alpha1.Machine](v1alpha1.AnnotationRemediateMachine, ""), []string{"self", "later"}},
		{"since when its node is ready", func(m *v1alpha1.Machine) { m.Status.Conditions[0].LastTransitionTime = born }, []string{"later", "own"}},
		{"since when another condition is so", func(m *v1alpha1.Machine) { m.Status.Conditions[1].LastTransitionTime = born }, []string{"own"}},
		{"versions and managed fields", func(m *v1alpha1.Machine) {
			m.ResourceVersion, m.Generation, m.ManagedFields = "7", 7, []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		}, none},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, which(machinePrints(aMachine()), machinePrints(changed(aMachine(), row.change))))
		})
	}
}

func TestGroupPrints(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*v1alpha1.MachineSet)
		want   []string
	}{
		{"size, which its deployment wrote, or hears of by the status", func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 2 }, []string{"self"}},
		{"template", func(s *v1alpha1.MachineSet) { s.Spec.Template.Labels["pool"] = "b" }, []string{"self", "owner"}},
		{"a part of the spec that we do not know", func(s *v1alpha1.MachineSet) { s.Generation = 2 }, []string{"self"}},
		{"deletion", toBeDeleted[*v1alpha1.MachineSet], []string{"self", "owner"}},
		{"a wish: freeze", func(s *v1alpha1.MachineSet) { s.Labels[v1alpha1.LabelFreeze] = v1alpha1.ValueTrue }, []string{"self", "owner"}},
		{"owner: its replacement budget goes with it", func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil }, []string{"self", "owner"}},
		{"a wish: paused", annotated[*v1alpha1.MachineSet](v1alpha1.AnnotationPaused, ""), []string{"self", "owner"}},
		{"a wish: no freeze", annotated[*v1alpha1.MachineSet](v1alpha1.AnnotationUnfreeze, ""), []string{"self", "owner"}},
		{"when the autoscaler changed its size", annotated[*v1alpha1.MachineSet](v1alpha1.AnnotationLastScalerChange, "2026-01-01T00:00:00Z"), []string{"self", "owner"}},
		{"finalizer", func(s *v1alpha1.MachineSet) { s.Finalizers = nil }, []string{"own"}},
		{"how many there are", func(s *v1alpha1.MachineSet) { s.Status.Replicas = 0 }, []string{"later", "own"}},
		{"how far it has read machines to count them", func(s *v1alpha1.MachineSet) { s.Status.ObservedMachines = "7" }, nil},
		{"how they are", func(s *v1alpha1.MachineSet) { s.Status.ReadyReplicas = 0 }, []string{"later", "own"}},
		{"observed generation", func(s *v1alpha1.MachineSet) { s.Status.ObservedGeneration = 0 }, []string{"later", "own"}},
		{"the size that it has seen", func(s *v1alpha1.MachineSet) { s.Status.ObservedReplicas = 7 }, []string{"later", "own"}},
		{"other counts", func(s *v1alpha1.MachineSet) { s.Status.UpToDateReplicas, s.Status.PeakReplicas = 0, 7 }, []string{"own"}},
		{"a condition", func(s *v1alpha1.MachineSet) { s.Status.Conditions[0].Message = "odd" }, []string{"own"}},
		{"why machines get no instance", func(s *v1alpha1.MachineSet) {
			s.Status.Conditions = append(s.Status.Conditions, v1alpha1.MachineSetCondition{Type: v1alpha1.MachineSetReplicaFailure, Status: "True", Reason: "Internal"})
		}, []string{"owner", "own"}},
		{"since when a condition is so", func(s *v1alpha1.MachineSet) { s.Status.Conditions[0].LastTransitionTime = metav1.Time{} }, nil},
		{"last operation", func(s *v1alpha1.MachineSet) { s.Status.LastOperation.Description = "x" }, nil},
		{"generations that failed", func(s *v1alpha1.MachineSet) {
			s.Status.FailedGenerations = &v1alpha1.FailedGenerations{Count: 1, LastFailedAt: born}
		}, []string{"own"}},
		{"failed machines", func(s *v1alpha1.MachineSet) { s.Status.FailedMachines = []v1alpha1.MachineSummary{{Name: "m"}} }, []string{"owner"}},
		{"current operation", func(s *v1alpha1.MachineSet) { s.Status.CurrentOperation = &v1alpha1.Operation{Step: "x"} }, nil},
		{"a note of ours", annotated[*v1alpha1.MachineSet](v1alpha1.AnnotationDesiredReplicas, "5"), nil},
	} {
		t.Run("set: "+row.name, func(t *testing.T) {
			assert.Equal(t, row.want, which(setPrints(aSet()), setPrints(changed(aSet(), row.change))))
		})
	}
	for _, row := range []struct {
		name   string
		change func(*v1alpha1.MachineDeployment)
		want   []string
	}{
		{"size", func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 2 }, []string{"self"}},
		{"paused", func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true }, []string{"self"}},
		{"paused with its sets", annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationPaused, ""), []string{"self", "below"}},
		{"I8: frozen with its sets", func(d *v1alpha1.MachineDeployment) { d.Labels[v1alpha1.LabelFreeze] = v1alpha1.ValueTrue }, []string{"self", "below"}},
		{"I8: a person ends the freeze", annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationUnfreeze, ""), []string{"self", "below"}},
		{"another label", func(d *v1alpha1.MachineDeployment) { d.Labels["color"] = "red" }, []string{"self"}},
		{"template", func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "large" }, []string{"self", "below"}},
		{"another one of that name", func(d *v1alpha1.MachineDeployment) { d.UID = "other" }, []string{"self", "own", "below"}},
		{"deletion", toBeDeleted[*v1alpha1.MachineDeployment], []string{"self"}},
		{"what the autoscaler asks for", annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationTriggerDeletion, "m"), []string{"self"}},
		{"a note of who gave a verb", annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationRolloutVerb, "x"), nil},
		{"finalizer", func(d *v1alpha1.MachineDeployment) { d.Finalizers = nil }, []string{"own"}},
		{"counts", func(d *v1alpha1.MachineDeployment) { d.Status.UpdatedReplicas = 0 }, []string{"own"}},
		{"conditions", func(d *v1alpha1.MachineDeployment) {
			d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{{Type: v1alpha1.MachineDeploymentAvailable}}
		}, []string{"own"}},
		{"how far its rollout is", func(d *v1alpha1.MachineDeployment) { d.Status.Rollout.Step = 2 }, []string{"own"}},
		{"which rollout is open", func(d *v1alpha1.MachineDeployment) {
			d.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: "rollout/ns/d/uid-d/2"}
		}, nil},
		{"revision", annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationRevision, "2"), []string{"own"}},
		{"a wish: held where it is", annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationRolloutHold, "1 ann: no"), []string{"self"}},
		{"a wish: a stage is passed", annotated[*v1alpha1.MachineDeployment](v1alpha1.AnnotationRolloutApprove, "1/1 ann"), []string{"self"}},
	} {
		t.Run("deployment: "+row.name, func(t *testing.T) {
			assert.Equal(t, row.want, which(deploymentPrints(aDeployment()), deploymentPrints(changed(aDeployment(), row.change))))
		})
	}
}

func TestNodePrints(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*corev1.Node)
		want   []string
	}{
		{"heartbeat", heartbeat, nil},
		{"addresses and what is allocatable", func(n *corev1.Node) {
			n.Status.Addresses, n.Status.Allocatable = []corev1.NodeAddress{{Address: "10.0.0.1"}}, corev1.ResourceList{}
		}, nil},
		{"capacity", func(n *corev1.Node) { n.Status.Capacity = corev1.ResourceList{} }, []string{"self"}},
		{"labels", func(n *corev1.Node) { n.Labels = map[string]string{"zone": "a"} }, []string{"self"}},
		{"annotations", annotated[*corev1.Node]("note", "x"), []string{"self"}},
		{"finalizers", func(n *corev1.Node) { n.Finalizers = nil }, []string{"self"}},
		{"a condition's message", func(n *corev1.Node) { n.Status.Conditions[0].Message = "later" }, []string{"self"}},
		{"a condition's status and reason", unready, []string{"self"}},
		{"a condition's reason", func(n *corev1.Node) { n.Status.Conditions[0].Reason = "Odd" }, []string{"self"}},
		{"a new condition", func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue})
		}, []string{"self"}},
		{"a taint", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }, []string{"self"}},
		{"cordon", func(n *corev1.Node) { n.Spec.Unschedulable = true }, []string{"self"}},
		{"providerID", func(n *corev1.Node) { n.Spec.ProviderID = "virtual:///j" }, []string{"self"}},
		{"deletion", toBeDeleted[*corev1.Node], []string{"self"}},
		{"another node of that name", func(n *corev1.Node) { n.UID = "other" }, []string{"self"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, which(nodePrints(aNode()), nodePrints(changed(aNode(), row.change))))
		})
	}
}
