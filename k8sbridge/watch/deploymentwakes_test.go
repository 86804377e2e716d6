package watch

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/machine"
)

// otherDeployment returns a second deployment, whose template has no set. The second deployment and the deployment
// that rolls out revision 2 have pending work.
func otherDeployment() *v1alpha1.MachineDeployment {
	d := deploymentWithoutStatus()
	d.Name, d.UID, d.Spec.Template.Labels["pool"] = "e", "uid-e", "b"
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "b"}}
	return d
}

// takeSignaledDeployments returns which of the two deployments were signaled since the last call.
func (w *bridgeTestEnv) takeSignaledDeployments() []string {
	return slices.DeleteFunc(w.takeRequests(), func(line string) bool {
		return line != signalWithStartLine(testDeployment()) && line != signalWithStartLine(otherDeployment())
	})
}

// signalTestCase is an event and the deployments that the event signals.
type signalTestCase struct {
	name           string
	initialObjects []runtime.Object
	causeEvent     func(*bridgeTestEnv)
	want           []string
}

// assertDeploymentsSignaled checks which deployments each row's event signals. Both deployments have pending work, so
// each evaluation sends a signal.
func assertDeploymentsSignaled(t *testing.T, stack []runtime.Object, rows []signalTestCase) {
	both := []string{signalWithStartLine(testDeployment()), signalWithStartLine(otherDeployment())}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			runBridgeTest(t, slices.Concat(stack, row.initialObjects), func(w *bridgeTestEnv) {
				require.Subset(t, w.takeSignaledDeployments(), both, "when the leader begins")
				row.causeEvent(w)
				w.advanceClock(2 * time.Second)
				signaled := w.takeSignaledDeployments()
				if len(row.want) > 0 {
					assert.Equal(t, row.want, slices.Compact(signaled), "a second event of the same change may be a second signal")
					return
				}
				assert.Empty(t, signaled)
				w.bridge.evaluateAllObjects()
				w.advanceClock(2 * time.Second)
				assert.Equal(t, both, w.takeSignaledDeployments(), "they had something to do, and were not asked")
			})
		})
	}
}

// machineSetWithName returns a set of the first deployment.
func machineSetWithName(name string, changes ...setChange) *v1alpha1.MachineSet {
	return changedCopy(
		testMachineSet(),
		append([]setChange{func(s *v1alpha1.MachineSet) { s.Name, s.UID = name, types.UID("uid-"+name) }}, changes...)...)
}

func withOtherOwnerReference(s *v1alpha1.MachineSet) {
	s.OwnerReferences = newOwnerReferences(otherDeployment(), "MachineDeployment")
}

func withoutOwnerReference(s *v1alpha1.MachineSet) { s.OwnerReferences = nil }

func withOtherPoolLabel(s *v1alpha1.MachineSet) { s.Labels = map[string]string{"pool": "none"} }

func withReleasedByAnnotation(s *v1alpha1.MachineSet) {
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1alpha1.AnnotationReleasedBy, "uid-d")
}

func withTwoReplicas(s *v1alpha1.MachineSet) { s.Spec.Replicas, s.Generation = 2, 2 }

func withoutReadyReplicas(s *v1alpha1.MachineSet) { s.Status.ReadyReplicas = 0 }

// repeatSetUpdateEvent makes the informer report an unchanged set.
func repeatSetUpdateEvent(w *bridgeTestEnv) {
	informer := w.cluster.Informer(cache.SetsResource)
	set, found := w.cluster.MachineSet("ns/s")
	require.True(w.t, found)
	w.bridge.eventHandler(cache.SetsResource, informer, nil).OnUpdate(set, set)
}

// An event of a set signals the deployment that controls the set. An event of a set without a controller signals the
// deployments that may adopt the set.
func TestSetSignalsItsDeploymentOrThoseThatMayAdoptIt(t *testing.T) {
	d, e := signalWithStartLine(testDeployment()), signalWithStartLine(otherDeployment())
	stray := machineSetWithName("stray", withoutOwnerReference)
	selector, err := metav1.LabelSelectorAsSelector(deploymentDuringRollout().Spec.Selector)
	require.NoError(t, err)
	require.True(t, selector.Matches(labels.Set(stray.Labels)), "by its labels it could be a set of the deployment")
	ownedOnly := machineSetWithName("stray", func(s *v1alpha1.MachineSet) { s.OwnerReferences[0].Controller = nil })
	assertDeploymentsSignaled(t, append(objectsDuringRollout(), otherDeployment()), []signalTestCase{
		{"made: who controls it", nil, putChangedObject(machineSetWithName("third")), []string{d}},
		{"made for the other one", nil, putChangedObject(machineSetWithName("third", withOtherOwnerReference)), []string{e}},
		{"its size is written: the status will tell", nil, putChangedObject(testMachineSet(), withTwoReplicas), nil},
		{
			"its size is acted upon",
			initialObjects(changedCopy(testMachineSet(), withTwoReplicas)),
			putChangedObject(testMachineSet(), withTwoReplicas, func(s *v1alpha1.MachineSet) {
				s.Status.ObservedReplicas = 2
			}),
			[]string{d},
		},
		{"its status counts others", nil, putChangedObject(testMachineSet(), withoutReadyReplicas), []string{d}},
		{"given to another one: both", nil, putChangedObject(testMachineSet(), withOtherOwnerReference), []string{d, e}},
		{
			"its reference is removed: who had it, and takes it again",
			nil,
			putChangedObject(testMachineSet(), withoutOwnerReference),
			[]string{d},
		},
		{"taken: who has it now", initialObjects(stray), putChangedObject(stray, withOtherOwnerReference), []string{e}},
		{"to be deleted", nil, putChangedObject(testMachineSet(), setDeleting[*v1alpha1.MachineSet]), []string{d}},
		{"deleted", nil, func(w *bridgeTestEnv) { w.deleteObject(testMachineSet()) }, []string{d}},

		{"nobody's, with labels that match: made", nil, putChangedObject(stray), []string{d}},
		{"nobody's, with labels of nobody: made", nil, putChangedObject(stray, withOtherPoolLabel), nil},
		{
			"nobody's, gets labels that match",
			initialObjects(changedCopy(stray, withOtherPoolLabel)),
			putChangedObject(stray),
			[]string{d},
		},
		{
			"released by it, gets other labels",
			initialObjects(changedCopy(stray, withReleasedByAnnotation)),
			putChangedObject(stray, withReleasedByAnnotation, withOtherPoolLabel),
			[]string{d},
		},
		{"of an owner of the same name that is gone", nil, putChangedObject(stray, func(s *v1alpha1.MachineSet) {
			s.OwnerReferences = newOwnerReferences(testDeployment(), "MachineDeployment")
			s.OwnerReferences[0].UID = "uid-before-the-restore"
		}), []string{d}},
		{
			"nobody's, with labels that match: its status",
			initialObjects(stray),
			putChangedObject(stray, withoutReadyReplicas),
			nil,
		},
		{
			"nobody's, with labels that match: deleted",
			initialObjects(stray),
			func(w *bridgeTestEnv) { w.deleteObject(stray) },
			[]string{d},
		},
		{"owned, and not controlled", nil, putChangedObject(ownedOnly), []string{d}},

		{"nothing changed: a resync of the informer", nil, repeatSetUpdateEvent, nil},
		{"nothing changed but the version", nil, putChangedObject(testMachineSet()), nil},
		{"nothing changed but what it is at", nil, putChangedObject(testMachineSet(), func(s *v1alpha1.MachineSet) {
			s.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: workflowIDOf(s), Step: "create"}
		}), nil},
	})
}

// A deployment that has lost a set must not count the set again from a stale cache.
func TestBothDeploymentsAreSignaledWhenASetChangesItsOwner(t *testing.T) {
	runBridgeTest(t, append(objectsDuringRollout(), otherDeployment()), func(w *bridgeTestEnv) {
		w.takeCalls()
		version := w.putObject(changedCopy(testMachineSet(), withOtherOwnerReference))
		w.runDueWork()
		seen := map[string]string{}
		for _, c := range w.takeCalls() {
			seen[c.workflowID] = c.signalContent.Versions[cache.SetsResource]
		}
		assert.Equal(t, version, seen[workflowIDOf(testDeployment())], "who had it")
		assert.Equal(t, version, seen[workflowIDOf(otherDeployment())], "who has it")
	})
}

func withInPlaceStrategy(d *v1alpha1.MachineDeployment) {
	d.Spec.Strategy.Type = v1alpha1.InPlaceUpdateMachineDeploymentStrategyType
	d.Spec.Strategy.InPlaceUpdate = &v1alpha1.InPlaceUpdateMachineDeployment{
		OrchestrationType: v1alpha1.OrchestrationTypeAuto,
	}
}

// nodeDuringInPlaceUpdate returns the node of the old machine at a step of the node's update.
func nodeDuringInPlaceUpdate(reason string, changes ...func(*corev1.Node)) *corev1.Node {
	return changedCopy(nodeDuringRollout(), append([]func(*corev1.Node){func(n *corev1.Node) {
		n.Labels[v1alpha1.LabelCandidateForUpdate] = v1alpha1.ValueLowerTrue
		n.Labels[v1alpha1.LabelSelectedForUpdate] = v1alpha1.ValueLowerTrue
		n.Spec.Unschedulable = true
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: reason,
		})
	}}, changes...)...)
}

// During an in-place update the deployment only waits. The deployment gets the result from the machine's phase, which
// the machine's workflow derives from the node. A failed update, and a late success after the failure, also signal
// the deployment.
func TestASuccessfulInPlaceUpdateSignalsTheDeployment(t *testing.T) {
	d, e := signalWithStartLine(testDeployment()), signalWithStartLine(otherDeployment())
	inStep := withPhase(v1alpha1.MachineInPlaceUpdating)
	succeeded, failed := withPhase(v1alpha1.MachineInPlaceUpdateSuccessful), withPhase(v1alpha1.MachineInPlaceUpdateFailed)
	updating := changedCopy(testMachine(), inStep)
	theirSet := machineSetWithName("s-e", withOtherOwnerReference)
	theirs := changedCopy(
		machineWithName("m-e"),
		inStep,
		func(m *v1alpha1.Machine) { m.OwnerReferences = newOwnerReferences(theirSet, "MachineSet") },
	)
	stack := append(
		objectsDuringRollout(withInPlaceStrategy),
		otherDeployment(),
		nodeDuringInPlaceUpdate(v1alpha1.ReasonReadyForUpdate),
		updating,
		theirSet,
		theirs,
	)
	assertDeploymentsSignaled(t, stack, []signalTestCase{
		{"it succeeded", nil, putChangedObject(updating, succeeded), []string{d}},
		{"it failed", nil, putChangedObject(updating, failed), []string{d}},
		{
			"it succeeded after all",
			initialObjects(changedCopy(updating, failed)),
			putChangedObject(updating, succeeded),
			[]string{d},
		},
		{"one of another deployment succeeded", nil, putChangedObject(theirs, succeeded), []string{e}},
		{
			"its node goes on",
			nil,
			putChangedObject(nodeDuringInPlaceUpdate(v1alpha1.ReasonDrainSuccessful, setNodeUnready)),
			nil,
		},
		{"its conditions go on", nil, putChangedObject(updating, func(m *v1alpha1.Machine) {
			m.Status.Conditions = machine.CopiedConditions(
				nodeDuringInPlaceUpdate(v1alpha1.ReasonUpdateSuccessful, setNodeUnready),
			)
		}), nil},
		{"what was done last", nil, putChangedObject(updating, func(m *v1alpha1.Machine) {
			m.Status.LastOperation = v1alpha1.LastOperation{
				Type:  v1alpha1.MachineOperationInPlaceUpdate,
				State: v1alpha1.MachineStateProcessing,
			}
		}), nil},
		{
			"it succeeded before",
			initialObjects(changedCopy(updating, succeeded)),
			putChangedObject(updating, succeeded, func(m *v1alpha1.Machine) {
				m.Status.LastOperation.Type = v1alpha1.MachineOperationInPlaceUpdate
			}),
			nil,
		},
	})
}

// The agent on the node reports the result to the machine, and the deployment reads the result from the machine's
// phase. The deployment counts a result only after the machine's workflow has processed it.
func TestTheNodeOfAnInPlaceUpdateSignalsOnlyItsMachine(t *testing.T) {
	updating := changedCopy(testMachine(), withPhase(v1alpha1.MachineInPlaceUpdating))
	node := nodeDuringInPlaceUpdate(v1alpha1.ReasonReadyForUpdate)
	runBridgeTest(t, append(objectsDuringRollout(withInPlaceStrategy), node, updating), func(w *bridgeTestEnv) {
		w.takeCalls()
		w.putObject(
			changedCopy(node, func(n *corev1.Node) { n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful }),
		)
		w.advanceClock(2 * time.Second)
		assert.Equal(t, []string{signalWithStartLine(updating)}, w.takeRequests())
		w.putObject(changedCopy(updating, withPhase(v1alpha1.MachineInPlaceUpdateSuccessful)))
		w.advanceClock(2 * time.Second)
		assert.Contains(t, w.takeRequests(), signalWithStartLine(testDeployment()))
	})
}
