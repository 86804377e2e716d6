//go:build integration

package rollouts

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/test/integration/rig"
	"millwright/workflows/deployment"
	"millwright/workflows/run"
)

// sendRequest sends a request to the deployment's workflow as a Temporal update, and returns the answer.
func (f fleet) sendRequest(t *testing.T, in run.RequestInput) string {
	t.Helper()
	d := f.Deployment(t)
	id := rig.Installation.ID(
		run.KindMachineDeployment,
		kube.Ref{Namespace: d.Namespace, Name: d.Name, UID: string(d.UID)},
	)
	in.Actor = "ann"
	handle, err := testRig.Temporal.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID:   id,
		UpdateName:   run.RequestMessageName,
		WaitForStage: client.WorkflowUpdateStageCompleted,
		Args:         []any{in},
	})
	require.NoError(t, err)
	var answer string
	require.NoError(t, handle.Get(t.Context(), &answer))
	return answer
}

// A rollout is paused. The deployment is scaled during the pause. After a resume, the rollout completes.
func TestRolloutIsPausedAndResumed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "paused", 10, withRollingUpdate(2, 0))
	watch := f.startBoundsSampler(t)
	f.changeTemplate(t, "2")
	rig.Eventually(
		t,
		"the rollout has begun",
		func() (bool, any) { n := f.countMachinesOfEdition(t, "2"); return n >= 2, n },
	)
	require.Contains(t, f.sendRequest(t, run.RequestInput{Command: "pause", Reason: "lunch"}), "pause")
	f.awaitProgressingReason(t, v1alpha1.ReasonDeploymentPaused)
	f.awaitSettledSets(t)
	before := f.countMachinesOfEdition(t, "2")
	f.Scale(t, 12)
	rig.Eventually(t, "it is scaled while it is paused", func() (bool, any) {
		s := f.Deployment(t).Status
		return s.AvailableReplicas >= 12, s
	})
	f.awaitSettledSets(t)
	require.LessOrEqual(t, f.countMachinesOfEdition(t, "2"), before+2)
	grown := f.machineNames(t)
	f.ForceReconcile(t)
	require.Equal(t, grown, f.machineNames(t), "no machine is replaced while it is paused")
	rig.Eventually(t, "the paused rollout is listed as stuck", func() (bool, any) {
		list := testRig.WorkflowRuns(t, `Stuck = true AND Step = "paused" AND MachineNamespace = "paused"`)
		return len(list) == 1, list
	})
	f.sendRequest(t, run.RequestInput{Command: "resume", Reason: "back"})
	f.awaitMachinesOfEdition(t, "2", 12)
	watch.requireNoViolations(t)
	f.awaitRolloutOutcomes(t, deployment.OutcomeCompleted)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// A cancelled rollout makes no more changes, also after Temporal has lost all its data. The cancelled rollout is then
// rolled back. A later rollout is cancelled and rolled back in one request.
func TestRolloutIsCancelledAndRolledBack(t *testing.T) {
	f := newFleet(t, "cancelled", 8, withRollingUpdate(2, 0))
	watch := f.startBoundsSampler(t)
	f.changeTemplate(t, "2")
	rig.Eventually(
		t,
		"the rollout has begun",
		func() (bool, any) { n := f.countMachinesOfEdition(t, "2"); return n >= 2, n },
	)
	f.sendRequest(t, run.RequestInput{Command: "cancel", Reason: "the image is bad"})
	f.awaitProgressingReason(t, v1alpha1.ReasonRolloutHeld)
	f.awaitRolloutOutcomes(t, deployment.OutcomeCancelled)
	require.Contains(t, f.Deployment(t).Annotations[v1alpha1.AnnotationRolloutHold], "ann")
	f.awaitSettledSets(t)
	held := f.machineNames(t)
	testRig.ResetTemporal(t)
	f.ForceReconcile(t)
	require.Equal(t, held, f.machineNames(t), "the hold survives the loss of Temporal's data")

	f.Patch(t, `{"spec":{"rollbackTo":{"revision":1}}}`)
	f.awaitMachinesOfEdition(t, "", 8)
	d := f.Deployment(t)
	require.Nil(t, d.Spec.RollbackTo)
	require.Equal(t, "3", d.Annotations[v1alpha1.AnnotationRevision], "the old template has a new number")
	watch.requireNoViolations(t)

	f.changeTemplate(t, "3")
	rig.Eventually(
		t,
		"the rollout has begun",
		func() (bool, any) { n := f.countMachinesOfEdition(t, "3"); return n >= 2, n },
	)
	f.sendRequest(t, run.RequestInput{Command: "cancel", Reason: "no", RollsBack: true})
	f.awaitMachinesOfEdition(t, "", 8)
	rig.Eventually(t, "it ended as rolled back, and the one to the older set is complete", func() (bool, any) {
		results := f.rolloutResults(t)
		n := len(results)
		return n > 1 && results[n-2].Outcome == deployment.OutcomeRolledBack &&
			results[n-1].Outcome == deployment.OutcomeCompleted, results
	})
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// A signal to the rollout workflow has the same effect as an update of the deployment's workflow. A signal has no
// answer, so an event reports the result.
func TestRolloutAcceptsRequestsBySignal(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "signalled", 4, withRollingUpdate(1, 0))
	release := f.blockMachineDeletions(t)
	f.changeTemplate(t, "2")
	rig.Eventually(
		t,
		"the rollout has begun",
		func() (bool, any) { n := f.countMachinesOfEdition(t, "2"); return n >= 1, n },
	)
	d := f.Deployment(t)
	id := rig.Installation.ID(run.KindRollout, kube.Ref{Namespace: d.Namespace, Name: d.Name, UID: string(d.UID)}, 2)
	signal := func(command request.Command, reason string) error {
		in := run.RequestInput{Command: command, Actor: "ann", Reason: reason}
		return testRig.Temporal.SignalWorkflow(t.Context(), id, "", run.RequestMessageName, in)
	}
	// The new set is created with its replicas, so its machines may exist before the rollout workflow that receives the
	// signal.
	rig.Eventually(
		t,
		"the rollout is there",
		func() (bool, any) { err := signal("pause", "lunch"); return err == nil, err },
	)
	f.awaitProgressingReason(t, v1alpha1.ReasonDeploymentPaused)
	d = f.Deployment(t)
	require.True(t, d.Spec.Paused)
	require.Contains(
		t,
		d.Annotations[v1alpha1.AnnotationLastRequest],
		"somebody in Temporal who signs as ann requested pause: lunch",
	)
	f.awaitEvent(t, "somebody in Temporal who signs as ann requested pause: lunch")
	require.NoError(t, signal("approve", "looks well"))
	f.awaitEvent(t, "somebody in Temporal who signs as ann requested approve: looks well; refused: ")
	require.True(t, f.Deployment(t).Spec.Paused)
	release()
	require.NoError(t, signal("resume", "back"))
	f.awaitMachinesOfEdition(t, "2", 4)
	require.False(t, f.Deployment(t).Spec.Paused)
	f.awaitRolloutOutcomes(t, deployment.OutcomeCompleted)
	f.Delete(t)
	f.AwaitPoolGone(t)
}

// awaitEvent waits until the message of an event of the deployment begins with this text.
func (f fleet) awaitEvent(t *testing.T, text string) {
	t.Helper()
	rig.Eventually(t, "an event: "+text, func() (bool, any) {
		var seen []string
		list, err := testRig.Kube.CoreV1().
			Events(f.Namespace).
			List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=MachineDeployment"})
		require.NoError(t, err)
		for _, e := range list.Items {
			seen = append(seen, e.Message)
		}
		return slices.ContainsFunc(seen, func(m string) bool { return strings.HasPrefix(m, text) }), seen
	})
}
