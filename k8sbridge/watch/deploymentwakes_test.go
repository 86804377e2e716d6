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

// otherDeployment has pending work, as has the one that rolls out revision 2: it has no set of its template.
func otherDeployment() *v1alpha1.MachineDeployment {
	d := bareDeployment()
	d.Name, d.UID, d.Spec.Template.Labels["pool"] = "e", "uid-e", "b"
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "b"}}
	return d
}

// signaledDeployments returns which of the two were signaled since the last call.
func (w *world) signaledDeployments() []string {
	return slices.DeleteFunc(w.asked(), func(line string) bool {
		return line != awake(aDeployment()) && line != awake(otherDeployment())
	})
}

// wakesRow is an event and the deployments that it signals.
type wakesRow struct {
	name   string
	before []runtime.Object
	event  func(*world)
	want   []string
}

// proveWakes checks which deployments each row's event signals. Neither deployment is calm, so each evaluation sends a
// signal.
func proveWakes(t *testing.T, stack []runtime.Object, rows []wakesRow) {
	both := []string{awake(aDeployment()), awake(otherDeployment())}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			inWorld(t, slices.Concat(stack, row.before), func(w *world) {
				require.Subset(t, w.signaledDeployments(), both, "when the leader begins")
				row.event(w)
				w.pass(2 * time.Second)
				signaled := w.signaledDeployments()
				if len(row.want) > 0 {
					assert.Equal(t, row.want, slices.Compact(signaled), "a second event of the same change may be a second signal")
					return
				}
				assert.Empty(t, signaled)
				w.bridge.sweep()
				w.pass(2 * time.Second)
				assert.Equal(t, both, w.signaledDeployments(), "they had something to do, and were not asked")
			})
		})
	}
}

// setNamed is a set of the first deployment.
func setNamed(name string, changes ...onSet) *v1alpha1.MachineSet {
	return changed(
		aSet(),
		append([]onSet{func(s *v1alpha1.MachineSet) { s.Name, s.UID = name, types.UID("uid-"+name) }}, changes...)...)
}

func ofOther(s *v1alpha1.MachineSet) {
	s.OwnerReferences = ownedBy(otherDeployment(), "MachineDeployment")
}

func ofNobody(s *v1alpha1.MachineSet) { s.OwnerReferences = nil }

func inNoPool(s *v1alpha1.MachineSet) { s.Labels = map[string]string{"pool": "none"} }

func releasedByD(s *v1alpha1.MachineSet) {
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1alpha1.AnnotationReleasedBy, "uid-d")
}

func resized(s *v1alpha1.MachineSet) { s.Spec.Replicas, s.Generation = 2, 2 }

func withoutReady(s *v1alpha1.MachineSet) { s.Status.ReadyReplicas = 0 }

// resyncSet makes the informer report a set that has not changed.
func resyncSet(w *world) {
	informer := w.cluster.Informer(cache.Sets)
	set, found := w.cluster.Set("ns/s")
	require.True(w.t, found)
	w.bridge.handler(cache.Sets, informer).OnUpdate(set, set)
}

// A set wakes its controller. A set without a controller wakes the deployments that may adopt it.
func TestWhoHearsOfASet(t *testing.T) {
	d, e := awake(aDeployment()), awake(otherDeployment())
	stray := setNamed("stray", ofNobody)
	selector, err := metav1.LabelSelectorAsSelector(rollingDeployment().Spec.Selector)
	require.NoError(t, err)
	require.True(t, selector.Matches(labels.Set(stray.Labels)), "by its labels it could be a set of the deployment")
	ownedOnly := setNamed("stray", func(s *v1alpha1.MachineSet) { s.OwnerReferences[0].Controller = nil })
	proveWakes(t, append(rollingStack(), otherDeployment()), []wakesRow{
		{"made: who controls it", nil, replace(setNamed("third")), []string{d}},
		{"made for the other one", nil, replace(setNamed("third", ofOther)), []string{e}},
		{"its size is written: the status will tell", nil, replace(aSet(), resized), nil},
		{"its size is acted upon", objects(changed(aSet(), resized)), replace(aSet(), resized, func(s *v1alpha1.MachineSet) {
			s.Status.ObservedReplicas = 2
		}), []string{d}},
		{"its status counts others", nil, replace(aSet(), withoutReady), []string{d}},
		{"given to another one: both", nil, replace(aSet(), ofOther), []string{d, e}},
		{"its reference is removed: who had it, and takes it again", nil, replace(aSet(), ofNobody), []string{d}},
		{"taken: who has it now", objects(stray), replace(stray, ofOther), []string{e}},
		{"to be deleted", nil, replace(aSet(), toBeDeleted[*v1alpha1.MachineSet]), []string{d}},
		{"deleted", nil, func(w *world) { w.remove(aSet()) }, []string{d}},

		{"nobody's, with labels that match: made", nil, replace(stray), []string{d}},
		{"nobody's, with labels of nobody: made", nil, replace(stray, inNoPool), nil},
		{"nobody's, gets labels that match", objects(changed(stray, inNoPool)), replace(stray), []string{d}},
		{
			"released by it, gets other labels",
			objects(changed(stray, releasedByD)),
			replace(stray, releasedByD, inNoPool),
			[]string{d},
		},
		{"of an owner of the same name that is gone", nil, replace(stray, func(s *v1alpha1.MachineSet) {
			s.OwnerReferences = ownedBy(aDeployment(), "MachineDeployment")
			s.OwnerReferences[0].UID = "uid-before-the-restore"
		}), []string{d}},
		{"nobody's, with labels that match: its status", objects(stray), replace(stray, withoutReady), nil},
		{"nobody's, with labels that match: deleted", objects(stray), func(w *world) { w.remove(stray) }, []string{d}},
		{"owned, and not controlled", nil, replace(ownedOnly), []string{d}},

		{"nothing changed: a resync of the informer", nil, resyncSet, nil},
		{"nothing changed but the version", nil, replace(aSet()), nil},
		{"nothing changed but what it is at", nil, replace(aSet(), func(s *v1alpha1.MachineSet) {
			s.Status.CurrentOperation = &v1alpha1.Operation{WorkflowID: idOf(s), Step: "create"}
		}), nil},
	})
}

// The deployment that has lost a set must not count the set again from a cache that is behind.
func TestBothSeeThatASetChangedItsOwner(t *testing.T) {
	inWorld(t, append(rollingStack(), otherDeployment()), func(w *world) {
		w.took()
		version := w.put(changed(aSet(), ofOther))
		w.flush()
		seen := map[string]string{}
		for _, c := range w.took() {
			seen[c.id] = c.changed.Versions[cache.Sets]
		}
		assert.Equal(t, version, seen[idOf(aDeployment())], "who had it")
		assert.Equal(t, version, seen[idOf(otherDeployment())], "who has it")
	})
}

func inPlace(d *v1alpha1.MachineDeployment) {
	d.Spec.Strategy.Type = v1alpha1.InPlaceUpdateMachineDeploymentStrategyType
	d.Spec.Strategy.InPlaceUpdate = &v1alpha1.InPlaceUpdateMachineDeployment{
		OrchestrationType: v1alpha1.OrchestrationTypeAuto,
	}
}

// updatingNode is the node of the old machine at a step of its update.
func updatingNode(reason string, changes ...func(*corev1.Node)) *corev1.Node {
	return changed(guardedNode(), append([]func(*corev1.Node){func(n *corev1.Node) {
		n.Labels[v1alpha1.LabelCandidateForUpdate] = v1alpha1.ValueLowerTrue
		n.Labels[v1alpha1.LabelSelectedForUpdate] = v1alpha1.ValueLowerTrue
		n.Spec.Unschedulable = true
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: reason,
		})
	}}, changes...)...)
}

// While a machine is updated its deployment can only wait. It learns of the result by the machine's phase, which the
// machine's workflow sets from its node. A failed update and a late success after it signal the deployment, too.
func TestAnInPlaceUpdateWakesTheDeploymentWhenItSucceeded(t *testing.T) {
	d, e := awake(aDeployment()), awake(otherDeployment())
	inStep := inPhase(v1alpha1.MachineInPlaceUpdating)
	succeeded, failed := inPhase(v1alpha1.MachineInPlaceUpdateSuccessful), inPhase(v1alpha1.MachineInPlaceUpdateFailed)
	updating := changed(aMachine(), inStep)
	theirSet := setNamed("s-e", ofOther)
	theirs := changed(
		machineNamed("m-e"),
		inStep,
		func(m *v1alpha1.Machine) { m.OwnerReferences = ownedBy(theirSet, "MachineSet") },
	)
	stack := append(
		rollingStack(inPlace),
		otherDeployment(),
		updatingNode(v1alpha1.ReasonReadyForUpdate),
		updating,
		theirSet,
		theirs,
	)
	proveWakes(t, stack, []wakesRow{
		{"it succeeded", nil, replace(updating, succeeded), []string{d}},
		{"it failed", nil, replace(updating, failed), []string{d}},
		{"it succeeded after all", objects(changed(updating, failed)), replace(updating, succeeded), []string{d}},
		{"one of another deployment succeeded", nil, replace(theirs, succeeded), []string{e}},
		{"its node goes on", nil, replace(updatingNode(v1alpha1.ReasonDrainSuccessful, unready)), nil},
		{"its conditions go on", nil, replace(updating, func(m *v1alpha1.Machine) {
			m.Status.Conditions = machine.CopiedConditions(updatingNode(v1alpha1.ReasonUpdateSuccessful, unready))
		}), nil},
		{"what was done last", nil, replace(updating, func(m *v1alpha1.Machine) {
			m.Status.LastOperation = v1alpha1.LastOperation{
				Type:  v1alpha1.MachineOperationInPlaceUpdate,
				State: v1alpha1.MachineStateProcessing,
			}
		}), nil},
		{
			"it succeeded before",
			objects(changed(updating, succeeded)),
			replace(updating, succeeded, func(m *v1alpha1.Machine) {
				m.Status.LastOperation.Type = v1alpha1.MachineOperationInPlaceUpdate
			}),
			nil,
		},
	})
}

// The agent on the node reports to the machine, and the machine's phase to the deployment, which counts no result that
// the machine has not seen.
func TestTheNodeOfAnInPlaceUpdateTellsItsMachineOnly(t *testing.T) {
	updating := changed(aMachine(), inPhase(v1alpha1.MachineInPlaceUpdating))
	node := updatingNode(v1alpha1.ReasonReadyForUpdate)
	inWorld(t, append(rollingStack(inPlace), node, updating), func(w *world) {
		w.took()
		w.put(changed(node, func(n *corev1.Node) { n.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful }))
		w.pass(2 * time.Second)
		assert.Equal(t, []string{awake(updating)}, w.asked())
		w.put(changed(updating, inPhase(v1alpha1.MachineInPlaceUpdateSuccessful)))
		w.pass(2 * time.Second)
		assert.Contains(t, w.asked(), awake(aDeployment()))
	})
}
