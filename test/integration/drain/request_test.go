//go:build integration

package drain

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/drain"
	"millwright/test/integration/rig"
	"millwright/workflows/run"
)

// requestUpdateOptions returns the options of a Temporal update by which the actor ann requests a command from a
// workflow of a machine.
func requestUpdateOptions(kind run.Kind, m v1alpha1.Machine, in run.RequestInput) client.UpdateWorkflowOptions {
	in.Actor = "ann"
	return client.UpdateWorkflowOptions{
		WorkflowID: rig.Installation.ID(
			kind,
			machineRef(m),
		),
		UpdateName:   run.RequestMessageName,
		Args:         []any{in},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	}
}

func machineRef(m v1alpha1.Machine) kube.Ref {
	return kube.Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}
}

// awaitUpdateResult waits for the result of an update. awaitUpdateResult returns the answer, or the reason why the
// workflow refused the request.
func awaitUpdateResult(t *testing.T, handle client.WorkflowUpdateHandle, err error) (answer, refused string) {
	t.Helper()
	if err == nil {
		err = handle.Get(t.Context(), &answer)
	}
	if err == nil {
		return answer, ""
	}
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, run.FailureTypeRequestRefused, failed.Type())
	return "", failed.Message()
}

// sendRequestToDrain sends a request to the drain workflow of a machine.
func sendRequestToDrain(t *testing.T, m v1alpha1.Machine, in run.RequestInput) (answer, refused string) {
	t.Helper()
	handle, err := testRig.Temporal.UpdateWorkflow(t.Context(), requestUpdateOptions(run.KindDrain, m, in))
	return awaitUpdateResult(t, handle, err)
}

// awaitEventWithText waits for an event of a machine with this reason, whose message contains words.
func awaitEventWithText(t *testing.T, m v1alpha1.Machine, reason, words string) {
	t.Helper()
	rig.Eventually(t, "event "+reason+": "+words, func() (bool, any) {
		events, err := testRig.Kube.CoreV1().
			Events(m.Namespace).
			List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.name=" + m.Name})
		require.NoError(t, err)
		var seen []string
		for _, e := range events.Items {
			seen = append(seen, e.Message)
			if strings.Contains(e.Message, words) {
				return true, nil
			}
		}
		return false, seen
	})
}

func awaitBlockedDrain(t *testing.T, m v1alpha1.Machine) {
	t.Helper()
	rig.Eventually(t, "a budget blocks the drain of "+m.Name, func() (bool, any) {
		c := drainedCondition(readMachine(t, m))
		return c.Reason == v1alpha1.ReasonBlocked && strings.Contains(c.Message, "PodDisruptionBudget"), c
	})
}

// A budget blocks a drain, and the drain's workflow receives requests. The workflow refuses invalid requests. The
// workflow writes each valid request into an annotation of the Machine and carries the request out. The request force
// ends the drain.
func TestStuckDrainAcceptsRequests(t *testing.T) {
	t.Parallel()
	p := newPool(t, "requests", 2, "")
	p.DeployPods(t, "web", 3)
	p.CreateBudget(t, "web", 3)
	m, here := p.MachineWithPods(t, "web")
	p.DeleteMachine(t, m.Name)
	awaitBlockedDrain(t, m)

	for want, in := range map[string]run.RequestInput{
		`there is no command "burn"`:                      {Command: "burn"},
		"force needs a reason: reason TEXT":               {Command: "force"},
		"the request is for a machine with UID u":         {Command: "retry", UID: "u"},
		"is being deleted: preserve would change nothing": {Command: "preserve"},
		"is not in the future":                            {Command: "extend", ExtendUntil: "2020-01-01T00:00:00Z"},
		"extend needs either for DURATION or until TIME":  {Command: "extend"},
		"extend only gives more time":                     {Command: "extend", ExtendUntil: time.Now().Add(time.Minute).Format(time.RFC3339)},
	} {
		_, refused := sendRequestToDrain(t, m, in)
		require.Contains(t, refused, want)
	}
	garbled := requestUpdateOptions(run.KindDrain, m, run.RequestInput{})
	garbled.Args = []any{map[string]any{"command": 1}}
	handle, err := testRig.Temporal.UpdateWorkflow(t.Context(), garbled)
	_, refused := awaitUpdateResult(t, handle, err)
	require.Contains(t, refused, "the request cannot be read: json: cannot unmarshal number")
	require.Empty(t, readMachine(t, m).Annotations[v1alpha1.AnnotationExtend], "what is refused writes nothing")

	began := readMachine(t, m).Status.Deletion.Drain.StartedAt
	var answer string
	answer, refused = sendRequestToDrain(
		t,
		m,
		run.RequestInput{Command: "extend", ExtendFor: "1h", Reason: "the backup needs longer"},
	)
	require.Empty(t, refused)
	now := readMachine(t, m)
	require.Equal(t, `wrote `+v1alpha1.AnnotationExtend+`: "`+now.Annotations[v1alpha1.AnnotationExtend]+`"`, answer)
	require.Contains(t, answer, "the backup needs longer")
	require.WithinDuration(
		t,
		began.Add(3*time.Hour),
		drain.DeadlineFacts(now, time.Now()).NextDeadline(),
		time.Second,
		"two hours, and one more",
	)
	awaitEventWithText(
		t,
		m,
		"RequestApplied",
		"somebody in Temporal who signs as ann requested extend: the backup needs longer; wrote ",
	)

	before := len(listPodRequests(t, p.Namespace))
	answer, refused = sendRequestToDrain(t, m, run.RequestInput{Command: "retry"})
	require.Empty(t, refused)
	require.Contains(t, answer, "wrote "+v1alpha1.AnnotationRetry)
	rig.Eventually(t, "its budget is asked again", func() (bool, any) {
		// TestRetryRepeatsAllEvictions of workflows/drain proves that the eviction is sent at once
		return len(listPodRequests(t, p.Namespace)) > before, listPodRequests(t, p.Namespace)
	})

	// Only the workflow sees a change of drainTimeout. The workflow cancels the running activity and starts a new one.
	// The cancelled activity usually ends with a result.
	patched := time.Now()
	p.Patch(t, `{"spec":{"template":{"spec":{"drainTimeout":"5h"}}}}`)
	rig.Eventually(t, "another activity", func() (bool, any) {
		d, err := testRig.Temporal.DescribeWorkflowExecution(
			t.Context(),
			rig.Installation.ID(run.KindDrain, machineRef(m)),
			"",
		)
		require.NoError(t, err)
		pending := d.GetPendingActivities()
		// The activity ID is evict-pods or evict-pods-2, depending on when the cancellation reached the first activity.
		another := len(pending) == 1 && pending[0].GetScheduledTime().AsTime().After(patched)
		return another, []any{pending, d.GetPendingWorkflowTask()}
	})

	signal := func(in run.RequestInput) {
		t.Helper()
		in.Actor = "bob"
		require.NoError(
			t,
			testRig.Temporal.SignalWorkflow(
				t.Context(),
				rig.Installation.ID(run.KindDrain, machineRef(m)),
				"",
				run.RequestMessageName,
				in,
			),
		)
	}
	signal(run.RequestInput{Command: "unpreserve"})
	awaitEventWithText(
		t,
		m,
		"RequestRefused",
		"bob requested unpreserve; refused: machine requests/"+m.Name+" is being deleted: unpreserve would change nothing",
	)
	signal(run.RequestInput{Command: "hold", Reason: "looks at it first"})
	rig.Eventually(t, "it is held", func() (bool, any) {
		c := drainedCondition(readMachine(t, m))
		return strings.Contains(c.Message, "held by somebody in Temporal who signs as bob (looks at it first)"), c
	})
	signal(run.RequestInput{Command: "resume"})
	awaitEventWithText(t, m, "DeletionResumed", "")

	answer, refused = sendRequestToDrain(t, m, run.RequestInput{Command: "force", Reason: "the node burns"})
	require.Empty(t, refused)
	require.Equal(t, `wrote `+v1alpha1.AnnotationForce+`: "somebody in Temporal who signs as ann: the node burns"`, answer)
	awaitMachineGone(t, m)
	awaitEventWithText(t, m, "DrainForced", "somebody in Temporal who signs as ann: the node burns")
	for _, pod := range here {
		require.Contains(t, listDeletedPods(t, p.Namespace), pod.Name, "forced, whatever the budget says")
	}
	accepted := 0
	for _, w := range testRig.WorkflowRuns(t, `WorkflowType = "Drain" AND MachineNamespace = "requests"`) {
		for _, event := range testRig.History(t, w.Execution.WorkflowId, w.Execution.RunId).Events {
			if event.EventType == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED {
				accepted++
			}
		}
	}
	require.Equal(t, 3+3, accepted, "what the validator refuses is in no history; what the facts refuse is")
}

func listDeletedPods(t *testing.T, namespace string) []string {
	t.Helper()
	var names []string
	for _, q := range listPodRequests(t, namespace) {
		if q.Verb == "delete" && q.Code == 200 {
			names = append(names, q.Pod)
		}
	}
	return names
}

// A node is drained because its machine is updated in place; the machine is not deleted. The workflow of this drain
// accepts requests, too.
func TestDrainForAnUpdateAcceptsRequests(t *testing.T) {
	t.Parallel()
	p := newPool(t, "requests-update", 1, "")
	p.DeployPods(t, "web", 1)
	p.CreateBudget(t, "web", 1)
	m := p.Machines(t)[0]
	node := m.Labels[v1alpha1.LabelNode]
	_, err := testRig.Stack.RunKubectl(
		t.Context(),
		"label",
		"node",
		node,
		v1alpha1.LabelCandidateForUpdate+"=true",
		v1alpha1.LabelSelectedForUpdate+"=true",
	)
	require.NoError(t, err)
	awaitBlockedDrain(t, m)
	now := readMachine(t, m)
	require.NotNil(t, drain.ActiveStayingDrain(now), "%+v", now.Status)
	_, refused := sendRequestToDrain(t, m, run.RequestInput{Command: "abandon-instance", Reason: "no"})
	require.Contains(t, refused, "is not being deleted: its phase is Running")
	_, refused = sendRequestToDrain(
		t,
		m,
		run.RequestInput{Command: "extend", ExtendUntil: now.Status.Drain.StartedAt.Add(2 * time.Hour).Format(time.RFC3339)},
	)
	require.Contains(t, refused, "is not later than the present deadline")
	answer, refused := sendRequestToDrain(t, m, run.RequestInput{Command: "force", Reason: "tonight"})
	require.Empty(t, refused)
	require.Equal(t, `wrote `+v1alpha1.AnnotationForce+`: "somebody in Temporal who signs as ann: tonight"`, answer)
	rig.Eventually(t, "the agent on the node is told", func() (bool, any) {
		n, err := testRig.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		require.NoError(t, err)
		return nodeCondition(n, v1alpha1.NodeInPlaceUpdate).Reason == v1alpha1.ReasonReadyForUpdate, n.Status.Conditions
	})
	now = readMachine(t, m)
	require.Equal(t, "Forced", now.Status.Drain.Result)
	require.Nil(t, drain.ActiveStayingDrain(now))
	_, refused = sendRequestToMachine(t, m, run.RequestInput{Command: "retry"})
	require.Contains(t, refused, "is not being deleted", "it is over")
}

func sendRequestToMachine(t *testing.T, m v1alpha1.Machine, in run.RequestInput) (answer, refused string) {
	t.Helper()
	handle, err := testRig.Temporal.UpdateWithStartWorkflow(t.Context(), client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: testRig.Temporal.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
			ID: rig.Installation.ID(
				run.KindMachine,
				machineRef(m),
			),
			TaskQueue:                rig.Installation.Shard(0).TaskQueue(run.QueueMachines),
			WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, string(run.KindMachine), run.Input{Ref: machineRef(m)}),
		UpdateOptions: requestUpdateOptions(run.KindMachine, m, in),
	})
	return awaitUpdateResult(t, handle, err)
}

func nodeCondition(n *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// An idle machine has no open run. The update starts a run, which writes the request into an annotation and carries the
// request out.
func TestIdleMachineIsPreservedByAWorkflowUpdate(t *testing.T) {
	t.Parallel()
	p := newPool(t, "requests-calm", 1, "")
	m := p.Machines(t)[0]
	open := `WorkflowType = "Machine" AND MachineNamespace = "requests-calm" AND ExecutionStatus = "Running"`
	rig.Eventually(t, "the machine has no open run", func() (bool, any) {
		runs := testRig.WorkflowRuns(t, open)
		return len(runs) == 0, len(runs)
	})
	answer, refused := sendRequestToMachine(t, m, run.RequestInput{Command: "preserve", Reason: "what is in its memory?"})
	require.Empty(t, refused)
	require.Equal(t, `wrote `+v1alpha1.AnnotationPreserve+`: "now"`, answer)
	awaitEventWithText(
		t,
		m,
		"RequestApplied",
		"somebody in Temporal who signs as ann requested preserve: what is in its memory?; wrote ",
	)
	rig.Eventually(t, "machine and node say that it is preserved", func() (bool, any) {
		now := readMachine(t, m)
		n, err := testRig.Kube.CoreV1().
			Nodes().
			Get(t.Context(), cmp.Or(now.Labels[v1alpha1.LabelNode], "none"), metav1.GetOptions{})
		require.NoError(t, err)
		c, end := nodeCondition(n, v1alpha1.NodePreserved), now.Status.CurrentStatus.PreserveExpiryTime
		return c.Status == corev1.ConditionTrue && end != nil && end.After(time.Now().Add(95*time.Hour)), []any{c, end}
	})
	_, refused = sendRequestToMachine(t, m, run.RequestInput{Command: "force", Reason: "no"})
	require.Contains(
		t,
		refused,
		"is not being deleted: its phase is Running; with inAdvance, force waits for its deletion",
	)
}
