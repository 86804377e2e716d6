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

// asUpdate is a request that ann makes of a workflow of a machine by Temporal's update.
func asUpdate(kind run.Kind, m v1alpha1.Machine, in run.RequestInput) client.UpdateWorkflowOptions {
	in.Actor = "ann"
	return client.UpdateWorkflowOptions{
		WorkflowID: rig.Installation.ID(
			kind,
			refOf(m),
		),
		UpdateName:   run.MessageRequest,
		Args:         []any{in},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	}
}

func refOf(m v1alpha1.Machine) kube.Ref {
	return kube.Ref{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID)}
}

// hear waits for the answer to an update. It returns the answer, or the reason of a refusal.
func hear(t *testing.T, handle client.WorkflowUpdateHandle, err error) (answer, refused string) {
	t.Helper()
	if err == nil {
		err = handle.Get(t.Context(), &answer)
	}
	if err == nil {
		return answer, ""
	}
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, run.TypeRequestRefused, failed.Type())
	return "", failed.Message()
}

// ask makes a request of the drain of a machine.
func ask(t *testing.T, m v1alpha1.Machine, in run.RequestInput) (answer, refused string) {
	t.Helper()
	handle, err := r.Temporal.UpdateWorkflow(t.Context(), asUpdate(run.KindDrain, m, in))
	return hear(t, handle, err)
}

// told waits for an event of a machine with these words.
func told(t *testing.T, m v1alpha1.Machine, reason, words string) {
	t.Helper()
	rig.Eventually(t, "event "+reason+": "+words, func() (bool, any) {
		events, err := r.Kube.CoreV1().
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

func awaitBlocked(t *testing.T, m v1alpha1.Machine) {
	t.Helper()
	rig.Eventually(t, "a budget blocks the drain of "+m.Name, func() (bool, any) {
		c := drained(machine(t, m))
		return c.Reason == v1alpha1.ReasonBlocked && strings.Contains(c.Message, "PodDisruptionBudget"), c
	})
}

// A drain that a budget holds up hears what people want of it: what makes no sense is refused, the rest is written on
// the Machine and acted upon, and in the end the pods are forced.
func TestStuckDrainTakesRequests(t *testing.T) {
	t.Parallel()
	p := pool(t, "requests", 2, "")
	p.Deploy(t, "web", 3)
	p.Budget(t, "web", 3)
	m, here := p.Host(t, "web")
	p.Remove(t, m.Name)
	awaitBlocked(t, m)

	for want, in := range map[string]run.RequestInput{
		`there is no command "burn"`:                      {Command: "burn"},
		"force needs a reason: reason TEXT":               {Command: "force"},
		"the request is for a machine with UID u":         {Command: "retry", UID: "u"},
		"is being deleted: preserve would change nothing": {Command: "preserve"},
		"is not in the future":                            {Command: "extend", Until: "2020-01-01T00:00:00Z"},
		"extend needs either for DURATION or until TIME":  {Command: "extend"},
		"extend only gives more time":                     {Command: "extend", Until: time.Now().Add(time.Minute).Format(time.RFC3339)},
	} {
		_, refused := ask(t, m, in)
		require.Contains(t, refused, want)
	}
	garbled := asUpdate(run.KindDrain, m, run.RequestInput{})
	garbled.Args = []any{map[string]any{"command": 1}}
	handle, err := r.Temporal.UpdateWorkflow(t.Context(), garbled)
	_, refused := hear(t, handle, err)
	require.Contains(t, refused, "the request cannot be read: json: cannot unmarshal number")
	require.Empty(t, machine(t, m).Annotations[v1alpha1.AnnotationExtend], "what is refused writes nothing")

	began := machine(t, m).Status.Deletion.Drain.StartedAt
	var answer string
	answer, refused = ask(t, m, run.RequestInput{Command: "extend", For: "1h", Reason: "the backup needs longer"})
	require.Empty(t, refused)
	now := machine(t, m)
	require.Equal(t, `wrote `+v1alpha1.AnnotationExtend+`: "`+now.Annotations[v1alpha1.AnnotationExtend]+`"`, answer)
	require.Contains(t, answer, "the backup needs longer")
	require.WithinDuration(
		t,
		began.Add(3*time.Hour),
		drain.Deadlines(now, time.Now()).Next(),
		time.Second,
		"two hours, and one more",
	)
	told(t, m, "RequestApplied", "somebody in Temporal who signs as ann requested extend: the backup needs longer; wrote ")

	before := len(asked(t, p.Namespace))
	answer, refused = ask(t, m, run.RequestInput{Command: "retry"})
	require.Empty(t, refused)
	require.Contains(t, answer, "wrote "+v1alpha1.AnnotationRetry)
	rig.Eventually(t, "its budget is asked again", func() (bool, any) {
		// at once: TestRetryAsksEverybodyAgain of workflows/drain
		return len(asked(t, p.Namespace)) > before, asked(t, p.Namespace)
	})

	// Of another drainTimeout only the workflow hears: it gives the activity up, which ends, mostly with what it saw,
	// and begins another.
	patched := time.Now()
	p.Patch(t, `{"spec":{"template":{"spec":{"drainTimeout":"5h"}}}}`)
	rig.Eventually(t, "another activity", func() (bool, any) {
		d, err := r.Temporal.DescribeWorkflowExecution(t.Context(), rig.Installation.ID(run.KindDrain, refOf(m)), "")
		require.NoError(t, err)
		pending := d.GetPendingActivities()
		// Whether it is called evict-pods or evict-pods-2 depends on where the cancellation met the one before.
		another := len(pending) == 1 && pending[0].GetScheduledTime().AsTime().After(patched)
		return another, []any{pending, d.GetPendingWorkflowTask()}
	})

	signal := func(in run.RequestInput) {
		t.Helper()
		in.Actor = "bob"
		require.NoError(
			t,
			r.Temporal.SignalWorkflow(t.Context(), rig.Installation.ID(run.KindDrain, refOf(m)), "", run.MessageRequest, in),
		)
	}
	signal(run.RequestInput{Command: "unpreserve"})
	told(
		t,
		m,
		"RequestRefused",
		"bob requested unpreserve; refused: machine requests/"+m.Name+" is being deleted: unpreserve would change nothing",
	)
	signal(run.RequestInput{Command: "hold", Reason: "looks at it first"})
	rig.Eventually(t, "it is held", func() (bool, any) {
		c := drained(machine(t, m))
		return strings.Contains(c.Message, "held by somebody in Temporal who signs as bob (looks at it first)"), c
	})
	signal(run.RequestInput{Command: "resume"})
	told(t, m, "DeletionResumed", "")

	answer, refused = ask(t, m, run.RequestInput{Command: "force", Reason: "the node burns"})
	require.Empty(t, refused)
	require.Equal(t, `wrote `+v1alpha1.AnnotationForce+`: "somebody in Temporal who signs as ann: the node burns"`, answer)
	awaitGone(t, m)
	told(t, m, "DrainForced", "somebody in Temporal who signs as ann: the node burns")
	for _, pod := range here {
		require.Contains(t, deletedPods(t, p.Namespace), pod.Name, "forced, whatever the budget says")
	}
	accepted := 0
	for _, w := range r.Workflows(t, `WorkflowType = "Drain" AND MachineNamespace = "requests"`) {
		for _, event := range r.History(t, w.Execution.WorkflowId, w.Execution.RunId).Events {
			if event.EventType == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED {
				accepted++
			}
		}
	}
	require.Equal(t, 3+3, accepted, "what the validator refuses is in no history; what the facts refuse is")
}

func deletedPods(t *testing.T, namespace string) []string {
	t.Helper()
	var names []string
	for _, q := range asked(t, namespace) {
		if q.Verb == "delete" && q.Code == 200 {
			names = append(names, q.Pod)
		}
	}
	return names
}

// The node of a machine that stays is emptied for its in-place update: that drain takes requests, too.
func TestDrainForAnUpdateTakesRequests(t *testing.T) {
	t.Parallel()
	p := pool(t, "requests-update", 1, "")
	p.Deploy(t, "web", 1)
	p.Budget(t, "web", 1)
	m := p.Machines(t)[0]
	node := m.Labels[v1alpha1.LabelNode]
	_, err := r.Stack.Kubectl(
		t.Context(),
		"label",
		"node",
		node,
		v1alpha1.LabelCandidateForUpdate+"=true",
		v1alpha1.LabelSelectedForUpdate+"=true",
	)
	require.NoError(t, err)
	awaitBlocked(t, m)
	now := machine(t, m)
	require.NotNil(t, drain.Staying(now), "%+v", now.Status)
	_, refused := ask(t, m, run.RequestInput{Command: "abandon-instance", Reason: "no"})
	require.Contains(t, refused, "is not being deleted: its phase is Running")
	_, refused = ask(
		t,
		m,
		run.RequestInput{Command: "extend", Until: now.Status.Drain.StartedAt.Add(2 * time.Hour).Format(time.RFC3339)},
	)
	require.Contains(t, refused, "is not later than the present deadline")
	answer, refused := ask(t, m, run.RequestInput{Command: "force", Reason: "tonight"})
	require.Empty(t, refused)
	require.Equal(t, `wrote `+v1alpha1.AnnotationForce+`: "somebody in Temporal who signs as ann: tonight"`, answer)
	rig.Eventually(t, "the agent on the node is told", func() (bool, any) {
		n, err := r.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		require.NoError(t, err)
		return nodeSays(n, v1alpha1.NodeInPlaceUpdate).Reason == v1alpha1.ReasonReadyForUpdate, n.Status.Conditions
	})
	now = machine(t, m)
	require.Equal(t, "Forced", now.Status.Drain.Result)
	require.Nil(t, drain.Staying(now))
	_, refused = hearMachine(t, m, run.RequestInput{Command: "retry"})
	require.Contains(t, refused, "is not being deleted", "it is over")
}

func hearMachine(t *testing.T, m v1alpha1.Machine, in run.RequestInput) (answer, refused string) {
	t.Helper()
	handle, err := r.Temporal.UpdateWithStartWorkflow(t.Context(), client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: r.Temporal.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
			ID: rig.Installation.ID(run.KindMachine, refOf(m)), TaskQueue: rig.Installation.Queue(run.QueueMachines),
			WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, string(run.KindMachine), run.Input{Ref: refOf(m)}),
		UpdateOptions: asUpdate(run.KindMachine, m, in),
	})
	return hear(t, handle, err)
}

func nodeSays(n *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// A calm machine has no open run: the update starts one, which writes the request and does what it asks for.
func TestCalmMachineIsPreservedByAnUpdate(t *testing.T) {
	t.Parallel()
	p := pool(t, "requests-calm", 1, "")
	m := p.Machines(t)[0]
	open := `WorkflowType = "Machine" AND MachineNamespace = "requests-calm" AND ExecutionStatus = "Running"`
	rig.Eventually(t, "the machine has no open run", func() (bool, any) {
		runs := r.Workflows(t, open)
		return len(runs) == 0, len(runs)
	})
	answer, refused := hearMachine(t, m, run.RequestInput{Command: "preserve", Reason: "what is in its memory?"})
	require.Empty(t, refused)
	require.Equal(t, `wrote `+v1alpha1.AnnotationPreserve+`: "now"`, answer)
	told(
		t,
		m,
		"RequestApplied",
		"somebody in Temporal who signs as ann requested preserve: what is in its memory?; wrote ",
	)
	rig.Eventually(t, "machine and node say that it is preserved", func() (bool, any) {
		now := machine(t, m)
		n, err := r.Kube.CoreV1().
			Nodes().
			Get(t.Context(), cmp.Or(now.Labels[v1alpha1.LabelNode], "none"), metav1.GetOptions{})
		require.NoError(t, err)
		c, end := nodeSays(n, v1alpha1.NodePreserved), now.Status.CurrentStatus.PreserveExpiryTime
		return c.Status == corev1.ConditionTrue && end != nil && end.After(time.Now().Add(95*time.Hour)), []any{c, end}
	})
	_, refused = hearMachine(t, m, run.RequestInput{Command: "force", Reason: "no"})
	require.Contains(
		t,
		refused,
		"is not being deleted: its phase is Running; with inAdvance, force waits for its deletion",
	)
}
