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

// differingFingerprints returns the names of the fingerprints in which before and now differ.
func differingFingerprints(before, now fingerprints) (names []string) {
	c := diffFingerprints(before, now)
	differs := map[string]bool{
		"spec":            c.specChanged,
		"parentNow":       c.enqueuesParentsNow,
		"parentDebounced": c.enqueuesParentsDebounced,
		"children":        c.childrenChanged,
		"deployment":      c.deploymentChanged,
		"node":            c.nodeChanged,
	}
	for _, name := range []string{"spec", "parentNow", "parentDebounced", "children", "deployment", "node"} {
		if differs[name] {
			names = append(names, name)
		}
	}
	return names
}

// withAnnotation sets an annotation, also on an object without annotations.
func withAnnotation[T metav1.Object](key, value string) func(T) {
	return func(o T) {
		annotations := maps.Clone(o.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
		o.SetAnnotations(annotations)
	}
}

func TestRelevantMachineChangesAlterFingerprints(t *testing.T) {
	type change = func(*v1alpha1.Machine)
	var none []string
	for _, row := range []struct {
		name   string
		change change
		want   []string
	}{
		// The next rows are changes by users and other controllers.
		{"spec: class", func(m *v1alpha1.Machine) { m.Spec.Class.Name = "large" }, []string{"spec", "parentDebounced"}},
		{"spec: a timeout", func(m *v1alpha1.Machine) {
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineCreationTimeout: &metav1.Duration{Duration: time.Minute}}
		}, []string{"spec", "parentDebounced"}},
		{"spec: bad node conditions", func(m *v1alpha1.Machine) {
			types := "DiskPressure"
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{NodeConditions: &types}
		}, []string{"spec", "parentDebounced"}},
		{"deletion", setDeleting[*v1alpha1.Machine], []string{"spec", "parentDebounced", "deployment"}},
		{"another object of that name", func(m *v1alpha1.Machine) { m.UID = "other" }, []string{"spec", "parentNow"}},
		{"a foreign label", func(m *v1alpha1.Machine) { m.Labels["color"] = "red" }, []string{"spec", "parentDebounced"}},
		{"a wish: force-deletion", func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelForceDeletion] = "true" }, []string{"spec", "parentDebounced"}},
		{"a wish: preserve", func(m *v1alpha1.Machine) {
			m.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.ValuePreserveNow
		}, []string{"spec", "parentDebounced"}},
		{"effective creation timeout", func(m *v1alpha1.Machine) {
			m.Annotations[v1alpha1.AnnotationEffectiveCreationTimeout] = "1m"
		}, []string{"spec", "parentDebounced"}},
		{"a label of the set's template", func(m *v1alpha1.Machine) { delete(m.Labels, v1alpha1.LabelMachineTemplateHash) }, []string{"parentDebounced"}},
		{"priority", func(m *v1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationMachinePriority] = "1" }, []string{"parentDebounced"}},
		{"parentNow", func(m *v1alpha1.Machine) { m.OwnerReferences = nil }, []string{"parentNow"}},
		// The next rows are writes of Millwright's own workflows.
		{"finalizer", func(m *v1alpha1.Machine) { m.Finalizers = nil }, []string{"spec"}},
		{"a foreign finalizer", func(m *v1alpha1.Machine) { m.Finalizers = append(m.Finalizers, "foreign") }, none},
		{"it stands still", withBlockedStatus("no room"), []string{"parentDebounced"}},
		{"label node", withNode("n-2"), []string{"node"}},
		{"providerID", func(m *v1alpha1.Machine) { m.Spec.ProviderID = "virtual:///i-2" }, none},
		{"the default priority instead of none", func(m *v1alpha1.Machine) { delete(m.Annotations, v1alpha1.AnnotationMachinePriority) }, none},
		{"phase", withPhase(v1alpha1.MachineUnknown), []string{"parentDebounced", "deployment"}},
		{"phase, and it waits to be replaced", withPhase(v1alpha1.MachineFailed), []string{"parentDebounced", "deployment"}},
		{"phase of an in-place update", withPhase(v1alpha1.MachineInPlaceUpdating), []string{"parentDebounced", "deployment"}},
		{"handed over after an in-place update", func(m *v1alpha1.Machine) { m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful }, []string{"spec", "parentDebounced", "deployment"}},
		{"last operation: state", func(m *v1alpha1.Machine) { m.Status.LastOperation.State = v1alpha1.MachineStateFailed }, []string{"parentDebounced"}},
		{"last operation: text, which its set tells", func(m *v1alpha1.Machine) { m.Status.LastOperation.Description = "still creating" }, []string{"parentDebounced"}},
		{"last operation: time", func(m *v1alpha1.Machine) { m.Status.LastOperation.LastUpdateTime = creationTime }, none},
		{"current operation", func(m *v1alpha1.Machine) { m.Status.CurrentOperation = &v1alpha1.Operation{Step: "await-node"} }, none},
		{"conditions", func(m *v1alpha1.Machine) { m.Status.Conditions = testNode().Status.Conditions }, none},
		{"last known state", func(m *v1alpha1.Machine) { m.Status.LastKnownState = "disk-7" }, none},
		{"our notes", func(m *v1alpha1.Machine) {
			for _, key := range v1alpha1.OwnMetadataKeys() {
				if key != v1alpha1.AnnotationMarkedForDeletionTime {
					m.Annotations[key] = "noted"
				}
			}
		}, none},
		{"when the autoscaler chose it", withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationMarkedForDeletionTime, "2026-01-01T00:00:00Z"), []string{"parentDebounced", "deployment"}},
		{"when it joined", func(m *v1alpha1.Machine) { m.Status.JoinedAt = &creationTime }, none},
		{"a wish: deleted before others", withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationDeleteMachine, ""), []string{"spec", "parentDebounced"}},
		{"a wish: replaced", withAnnotation[*v1alpha1.Machine](v1alpha1.AnnotationRemediateMachine, ""), []string{"spec", "parentDebounced"}},
		{"since when its node is ready", func(m *v1alpha1.Machine) { m.Status.Conditions[0].LastTransitionTime = creationTime }, []string{"parentDebounced"}},
		{"since when another condition is so", func(m *v1alpha1.Machine) { m.Status.Conditions[1].LastTransitionTime = creationTime }, none},
		{"versions and managed fields", func(m *v1alpha1.Machine) {
			m.ResourceVersion, m.Generation, m.ManagedFields = "7", 7, []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		}, none},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(
				t,
				row.want,
				differingFingerprints(
					machineFingerprints(testMachine()),
					machineFingerprints(changedCopy(testMachine(), row.change)),
				),
			)
		})
	}
}

func TestRelevantSetAndDeploymentChangesAlterFingerprints(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*v1alpha1.MachineSet)
		want   []string
	}{
		{"size, which its deployment wrote, or hears of by the status", func(s *v1alpha1.MachineSet) { s.Spec.Replicas = 2 }, []string{"spec"}},
		{"template", func(s *v1alpha1.MachineSet) { s.Spec.Template.Labels["pool"] = "b" }, []string{"spec", "parentNow"}},
		{"a part of the spec that we do not know", func(s *v1alpha1.MachineSet) { s.Generation = 2 }, []string{"spec"}},
		{"deletion", setDeleting[*v1alpha1.MachineSet], []string{"spec", "parentNow"}},
		{"a wish: freeze", func(s *v1alpha1.MachineSet) { s.Labels[v1alpha1.LabelFreeze] = v1alpha1.ValueTrue }, []string{"spec", "parentNow"}},
		{"owner: its replacement budget goes with it", func(s *v1alpha1.MachineSet) { s.OwnerReferences = nil }, []string{"spec", "parentNow"}},
		{"a wish: paused", withAnnotation[*v1alpha1.MachineSet](v1alpha1.AnnotationPaused, ""), []string{"spec", "parentNow"}},
		{"a wish: no freeze", withAnnotation[*v1alpha1.MachineSet](v1alpha1.AnnotationUnfreeze, ""), []string{"spec", "parentNow"}},
		{"when the autoscaler changed its size", withAnnotation[*v1alpha1.MachineSet](v1alpha1.AnnotationLastScalerChange, "2026-01-01T00:00:00Z"), []string{"spec", "parentNow"}},
		{"finalizer", func(s *v1alpha1.MachineSet) { s.Finalizers = nil }, []string{"spec"}},
		{"how many there are", func(s *v1alpha1.MachineSet) { s.Status.Replicas = 0 }, []string{"parentDebounced"}},
		{"how far it has read machines to count them", func(s *v1alpha1.MachineSet) { s.Status.ObservedMachines = "7" }, nil},
		{"how they are", func(s *v1alpha1.MachineSet) { s.Status.ReadyReplicas = 0 }, []string{"parentDebounced"}},
		{"observed generation", func(s *v1alpha1.MachineSet) { s.Status.ObservedGeneration = 0 }, []string{"parentDebounced"}},
		{"the size that it has seen", func(s *v1alpha1.MachineSet) { s.Status.ObservedReplicas = 7 }, []string{"parentDebounced"}},
		{"other counts", func(s *v1alpha1.MachineSet) { s.Status.UpToDateReplicas, s.Status.PeakReplicas = 0, 7 }, nil},
		{"a condition", func(s *v1alpha1.MachineSet) { s.Status.Conditions[0].Message = "odd" }, nil},
		{"why machines get no instance", func(s *v1alpha1.MachineSet) {
			s.Status.Conditions = append(s.Status.Conditions, v1alpha1.MachineSetCondition{Type: v1alpha1.MachineSetReplicaFailure, Status: "True", Reason: "Internal"})
		}, []string{"parentNow"}},
		{"since when a condition is so", func(s *v1alpha1.MachineSet) { s.Status.Conditions[0].LastTransitionTime = metav1.Time{} }, nil},
		{"last operation", func(s *v1alpha1.MachineSet) { s.Status.LastOperation.Description = "x" }, nil},
		{"generations that failed", func(s *v1alpha1.MachineSet) {
			s.Status.FailedGenerations = &v1alpha1.FailedGenerations{Count: 1, LastFailedAt: creationTime}
		}, []string{"parentDebounced"}},
		{"failed machines", func(s *v1alpha1.MachineSet) { s.Status.FailedMachines = []v1alpha1.MachineSummary{{Name: "m"}} }, []string{"parentNow"}},
		{"current operation", func(s *v1alpha1.MachineSet) { s.Status.CurrentOperation = &v1alpha1.Operation{Step: "x"} }, nil},
		{"a note of ours", withAnnotation[*v1alpha1.MachineSet](v1alpha1.AnnotationDesiredReplicas, "5"), nil},
	} {
		t.Run("set: "+row.name, func(t *testing.T) {
			assert.Equal(
				t,
				row.want,
				differingFingerprints(
					machineSetFingerprints(testMachineSet()),
					machineSetFingerprints(changedCopy(testMachineSet(), row.change)),
				),
			)
		})
	}
	for _, row := range []struct {
		name   string
		change func(*v1alpha1.MachineDeployment)
		want   []string
	}{
		{"size", func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 2 }, []string{"spec"}},
		{"paused", func(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true }, []string{"spec", "children"}},
		{"paused with its sets", withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationPaused, ""), []string{"spec", "children"}},
		{"frozen with its sets", func(d *v1alpha1.MachineDeployment) { d.Labels[v1alpha1.LabelFreeze] = v1alpha1.ValueTrue }, []string{"spec", "children"}},
		{"a person ends the freeze", withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationUnfreeze, ""), []string{"spec", "children"}},
		{"another label, by which a policy may select it", func(d *v1alpha1.MachineDeployment) { d.Labels["color"] = "red" }, []string{"spec", "children"}},
		{"template", func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "large" }, []string{"spec", "children"}},
		{"another one of that name", func(d *v1alpha1.MachineDeployment) { d.UID = "other" }, []string{"spec", "children"}},
		{"deletion", setDeleting[*v1alpha1.MachineDeployment], []string{"spec"}},
		{"what the autoscaler asks for", withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationTriggerDeletion, "m"), []string{"spec"}},
		{"the record of the last request", withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationLastRequest, "x"), nil},
		{"finalizer", func(d *v1alpha1.MachineDeployment) { d.Finalizers = nil }, []string{"spec"}},
		{"counts", func(d *v1alpha1.MachineDeployment) { d.Status.UpdatedReplicas = 0 }, nil},
		{"conditions", func(d *v1alpha1.MachineDeployment) {
			d.Status.Conditions = []v1alpha1.MachineDeploymentCondition{{Type: v1alpha1.MachineDeploymentAvailable}}
		}, nil},
		{"how far its rollout is", func(d *v1alpha1.MachineDeployment) { d.Status.Rollout.Step = 2 }, nil},
		{"which rollout is open", func(d *v1alpha1.MachineDeployment) {
			d.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: "rollout/ns/d/uid-d/2"}
		}, nil},
		{"a retry", withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationRolloutRetry, "2/1 ann"), []string{"spec"}},
		{"a pin", withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationRolloutPin, "2/1 ann"), []string{"spec"}},
		{"revision", withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationRevision, "2"), nil},
		{"a wish: held where it is", withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationRolloutHold, "1 ann: no"), []string{"spec"}},
		{"a wish: a step is passed", withAnnotation[*v1alpha1.MachineDeployment](v1alpha1.AnnotationRolloutApprove, "1/1 ann"), []string{"spec"}},
	} {
		t.Run("deployment: "+row.name, func(t *testing.T) {
			assert.Equal(
				t,
				row.want,
				differingFingerprints(
					deploymentFingerprints(testDeployment()),
					deploymentFingerprints(changedCopy(testDeployment(), row.change)),
				),
			)
		})
	}
}

func TestRelevantNodeChangesAlterFingerprints(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*corev1.Node)
		want   []string
	}{
		{"heartbeat", updateHeartbeat, nil},
		{"addresses and what is allocatable", func(n *corev1.Node) {
			n.Status.Addresses, n.Status.Allocatable = []corev1.NodeAddress{{Address: "10.0.0.1"}}, corev1.ResourceList{}
		}, nil},
		{"capacity", func(n *corev1.Node) { n.Status.Capacity = corev1.ResourceList{} }, []string{"spec"}},
		{"labels", func(n *corev1.Node) { n.Labels = map[string]string{"zone": "a"} }, []string{"spec"}},
		{"annotations", withAnnotation[*corev1.Node]("note", "x"), []string{"spec"}},
		{"finalizers", func(n *corev1.Node) { n.Finalizers = nil }, []string{"spec"}},
		{"a condition's message", func(n *corev1.Node) { n.Status.Conditions[0].Message = "later" }, []string{"spec"}},
		{"a condition's status and reason", setNodeUnready, []string{"spec"}},
		{"a condition's reason", func(n *corev1.Node) { n.Status.Conditions[0].Reason = "Odd" }, []string{"spec"}},
		{"a new condition", func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue})
		}, []string{"spec"}},
		{"a taint", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }, []string{"spec"}},
		{"cordon", func(n *corev1.Node) { n.Spec.Unschedulable = true }, []string{"spec"}},
		{"providerID", func(n *corev1.Node) { n.Spec.ProviderID = "virtual:///j" }, []string{"spec"}},
		{"deletion", setDeleting[*corev1.Node], []string{"spec"}},
		{"another node of that name", func(n *corev1.Node) { n.UID = "other" }, []string{"spec"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(
				t,
				row.want,
				differingFingerprints(nodeFingerprints(testNode()), nodeFingerprints(changedCopy(testNode(), row.change))),
			)
		})
	}
}

// withBlockedStatus sets the status that a report writes for a blocked machine.
func withBlockedStatus(cause string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.CurrentOperation = &v1alpha1.Operation{
			Step:      "sync-node",
			Cause:     cause,
			BlockedBy: []string{"NodeRefused"},
			Since:     metav1.Unix(1_700_000_000, 0),
			WaitsFor:  cause,
		}
		m.Status.Conditions = append(
			m.Status.Conditions,
			corev1.NodeCondition{
				Type:    v1alpha1.MachineBlocked,
				Status:  corev1.ConditionTrue,
				Reason:  "NodeRefused",
				Message: cause,
			},
		)
	}
}

// A blocked machine wakes its set and its deployment, even if they have no other pending work. The statuses of the set
// and the deployment must report the block, and later the end of the block.
func TestABlockedMachineSignalsItsSetAndDeployment(t *testing.T) {
	runBridgeTest(t, objectsWithoutPendingWork(), func(w *bridgeTestEnv) {
		w.takeCalls()
		w.putObject(changedCopy(testMachine(), withBlockedStatus("no room")))
		w.advanceClock(2 * time.Second)
		assert.Contains(t, w.takeRequests(), signalWithStartLine(testMachineSet()))
		s := testMachineSet()
		s.Status.Conditions = append(s.Status.Conditions, v1alpha1.MachineSetCondition{
			Type:    v1alpha1.MachineSetBlocked,
			Status:  v1alpha1.ConditionTrue,
			Reason:  "NodeRefused",
			Message: "1 of 1 machine waits",
		})
		w.putObject(s)
		w.advanceClock(2 * time.Second)
		assert.Contains(t, w.takeRequests(), signalWithStartLine(testDeployment()))
	})
}
