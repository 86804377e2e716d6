package watch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/v1alpha1"
)

// The end of a drain signals the next machine in the drain queue, whatever the outcome of the drain. No object of the
// queued machine changes when the drain ends, so without this signal the machine would wait for the next resync.
func TestEndOfADrainSignalsTheNextMachine(t *testing.T) {
	in := func(stage v1alpha1.MachineDeletionStage, drain *v1alpha1.MachineDrain, queued bool) machineChange {
		return func(m *v1alpha1.Machine) {
			setDeleting(m)
			m.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
			m.Status.Deletion = &v1alpha1.MachineDeletion{Stage: stage, Since: creationTime, Drain: drain, Queued: queued}
		}
	}
	begun := &v1alpha1.MachineDrain{StartedAt: creationTime}
	drained := changedCopy(testMachine(), in(v1alpha1.MachineDeletionDrain, begun, false))
	next := changedCopy(machineWithName("next"), in(v1alpha1.MachineDeletionDrain, nil, true))
	notQueued := changedCopy(machineWithName("other"), in(v1alpha1.MachineDeletionDrain, nil, false))
	for name, ends := range map[string]func(*bridgeTestEnv){
		"its drain ends": func(w *bridgeTestEnv) {
			w.putObject(changedCopy(testMachine(), in(v1alpha1.MachineDeletionDrain, &v1alpha1.MachineDrain{StartedAt: creationTime, Result: "Drained"}, false)))
		},
		"its deletion is past that": func(w *bridgeTestEnv) {
			w.putObject(changedCopy(testMachine(), in(v1alpha1.MachineDeletionInstance, begun, false)))
		},
		"it is gone": func(w *bridgeTestEnv) { w.deleteObject(drained) },
	} {
		t.Run(name, func(t *testing.T) {
			runBridgeTest(t, []runtime.Object{machineSetWithoutStatus(), drained, next, notQueued}, func(w *bridgeTestEnv) {
				w.takeCalls()
				ends(w)
				w.runDueWork()
				calls := w.takeRequests()
				assert.Contains(t, calls, signalWithStartLine(next))
				assert.NotContains(
					t,
					calls,
					signalWithStartLine(notQueued),
					"a machine that does not wait for its turn needs no signal",
				)
			})
		})
	}
}

// policyWithTurns returns a policy that limits the rollouts of all deployments of the namespace.
func policyWithTurns() *v1alpha1.RolloutPolicy {
	return &v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "fleet", UID: "uid-fleet"},
		Spec:       v1alpha1.RolloutPolicySpec{Turns: &v1alpha1.RolloutTurns{MaxConcurrent: 1}},
	}
}

// What lets another deployment begin its rollout signals this deployment. Nothing of the waiting deployment changes, so
// without this signal it would wait for the next resync.
func TestEndOfATurnSignalsTheOtherDeployments(t *testing.T) {
	d, e := signalWithStartLine(testDeployment()), signalWithStartLine(otherDeployment())
	withTurn := func(d *v1alpha1.MachineDeployment) {
		d.Status.Rollout = d.Status.Rollout.DeepCopy()
		d.Status.Rollout.Turn = &v1alpha1.RolloutTurn{Since: creationTime}
	}
	withEndedTurn := func(d *v1alpha1.MachineDeployment) {
		withTurn(d)
		d.Status.Rollout.Turn.EndedAt = &creationTime
	}
	withPin := func(d *v1alpha1.MachineDeployment) {
		withTurn(d)
		d.Status.Rollout.Pin = &v1alpha1.RolloutPin{Set: "s", Revision: 1, Since: creationTime, Reason: "bad"}
	}
	withPause := func(d *v1alpha1.MachineDeployment) { withTurn(d); d.Spec.Paused, d.Generation = true, 2 }
	withRetry := func(d *v1alpha1.MachineDeployment) {
		withTurn(d)
		d.Annotations[v1alpha1.AnnotationRolloutRetry] = "2/1 ann: quota is back"
	}
	withFailure := func(d *v1alpha1.MachineDeployment) {
		withTurn(d)
		for i := range d.Status.Conditions {
			if d.Status.Conditions[i].Type == v1alpha1.MachineDeploymentProgressing {
				d.Status.Conditions[i].Status = v1alpha1.ConditionFalse
			}
		}
	}
	withCounts := func(d *v1alpha1.MachineDeployment) { withTurn(d); d.Status.ReadyReplicas = 7 }
	rolling := changedCopy(deploymentDuringRollout(), withTurn)
	stack := append(objectsDuringRollout(withTurn), otherDeployment())
	limited := append(append([]runtime.Object{}, stack...), policyWithTurns())
	change := func(change func(*v1alpha1.MachineDeployment)) func(*bridgeTestEnv) {
		return putChangedObject(rolling, change)
	}
	assertDeploymentsSignaled(t, limited, []signalTestCase{
		{"its turn ends", nil, change(withEndedTurn), []string{e}},
		{"its rollout failed", nil, change(withPin), []string{e}},
		{"it cannot go on", nil, change(withFailure), []string{e}},
		{"a person pauses it", nil, change(withPause), []string{d, e}},
		{"a person retries it", nil, change(withRetry), []string{d, e}},
		{"its status counts others", nil, change(withCounts), nil},
		{"it is gone", nil, func(w *bridgeTestEnv) { w.deleteObject(rolling) }, []string{e}},
	})
	assertDeploymentsSignaled(t, stack, []signalTestCase{
		{"without a limit", nil, change(withEndedTurn), nil},
	})
}
