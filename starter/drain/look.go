package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	activities "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/drain"
	observe "millwright/observe/drain"
	"millwright/process/connection"
	"millwright/starter/kubecli"
	workflows "millwright/workflows/drain"
	"millwright/workflows/run"
)

// temporalTimeout is how long the command waits for Temporal. After 5 s, a user prefers output that is based on the
// Machine alone.
const temporalTimeout = 5 * time.Second

// maxHeartbeatAge is the age of an activity's last heartbeat above which explain warns the user. The age is three times
// the heartbeat timeout (10 s); within 30 s, another worker should have started the next attempt.
const maxHeartbeatAge = 30 * time.Second

// snapshot has the known facts about one deletion or drain at one moment.
type snapshot struct {
	machine           *v1alpha1.Machine
	podOverview       *drain.Overview // pods of the drain; nil if unknown
	volumes           []string        // volumes that stage Detach waits for
	lastHeartbeatAt   time.Time       // time of the worker's last heartbeat; zero if unknown
	unknownFactNote   string          // one line that says why a fact is not known; empty if all facts are known
	activityTaskQueue string          // task queue of the pending activity; empty if unknown
	now               time.Time
}

// readFromTemporal adds Temporal's facts about the drain, or about the volumes that the deletion waits for. If Temporal
// does not answer or has no open workflow, readFromTemporal sets the note.
func (s *snapshot) readFromTemporal(ctx context.Context, t client.Client, address string) {
	if isQueued(s.machine) ||
		!isDrainingOrQueued(s.machine) && deletionStage(s.machine) != v1alpha1.MachineDeletionDetach {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, temporalTimeout)
	defer cancel()
	switch err := s.readActivity(ctx, t); {
	case errors.Is(err, errWorkflowNotOpen):
		s.unknownFactNote = "Temporal has no open workflow for this step: what follows is from the Machine alone."
	case err != nil:
		s.unknownFactNote = fmt.Sprintf(
			"The step cannot be read from Temporal at %s (%s): what follows is from the Machine alone.",
			address,
			kubecli.CollapseSpaces(err.Error()),
		)
	}
}

// isDrainingOrQueued reports whether the node of a machine is being drained, or will be drained next.
func isDrainingOrQueued(m *v1alpha1.Machine) bool {
	return observe.IsInDrainQueue(m) || isDrainedWithoutDeletion(m)
}

// installation returns the name of the installation whose workflow wrote the machine's status.currentOperation.
func (s *snapshot) installation() run.Installation {
	if operation := s.machine.Status.CurrentOperation; operation != nil {
		return run.InstallationInID(operation.WorkflowID)
	}
	return ""
}

// readActivity reads the progress of the pending activity.
func (s *snapshot) readActivity(ctx context.Context, t client.Client) error {
	ref := kube.Ref{Namespace: s.machine.Namespace, Name: s.machine.Name, UID: string(s.machine.UID)}
	if !isDrainingOrQueued(s.machine) {
		_, err := s.readHeartbeat(ctx, t, s.installation().ID(run.KindMachine, ref), vocabulary.StepAwaitDetach, &s.volumes)
		return err
	}
	kind := run.KindDrain
	if observe.IsClusterAPIMachine(s.machine) {
		kind = run.KindClusterAPIDrain
	}
	id := s.installation().ID(kind, ref)
	var progress activities.Progress
	found, err := s.readHeartbeat(ctx, t, id, vocabulary.StepEvictPods, &progress)
	if err != nil {
		return err
	}
	if !found {
		answer, err := t.QueryWorkflow(ctx, id, "", workflows.QueryPods)
		if err != nil {
			return fmt.Errorf("query %s: %w", workflows.QueryPods, err)
		}
		if err := answer.Get(&progress.Picture); err != nil {
			return fmt.Errorf("read the answer to %s: %w", workflows.QueryPods, err)
		}
	}
	s.podOverview = &progress.Picture
	return nil
}

// errWorkflowNotOpen is the error if no workflow with the ID is open.
var errWorkflowNotOpen = errors.New("no such workflow is open")

// readHeartbeat decodes the last heartbeat of a pending activity, and reports whether the activity has sent a
// heartbeat. The ID of an activity is the name of its step. If the step has several activities, a number follows the
// name.
func (s *snapshot) readHeartbeat(
	ctx context.Context,
	t client.Client,
	workflowID, activityID string,
	into any,
) (bool, error) {
	answer, err := t.DescribeWorkflowExecution(ctx, workflowID, "")
	_, missing := errors.AsType[*serviceerror.NotFound](err)
	switch {
	case missing, err == nil && answer.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:
		return false, errWorkflowNotOpen
	case err != nil:
		return false, fmt.Errorf("describe %s: %w", workflowID, err)
	}
	for _, pending := range answer.GetPendingActivities() {
		if id := pending.GetActivityId(); id != activityID && !strings.HasPrefix(id, activityID+"-") {
			continue
		}
		workflowQueue := answer.GetExecutionConfig().GetTaskQueue().GetName()
		s.activityTaskQueue = strings.TrimSuffix(workflowQueue, run.QueueMachines) + run.QueueDrains
		s.noteMissingHeartbeat(pending)
		if pending.GetHeartbeatDetails() == nil {
			return false, nil
		}
		err := connection.DataConverter().FromPayloads(pending.GetHeartbeatDetails(), into)
		return err == nil, nil // if the heartbeat cannot be decoded, the caller sends the query
	}
	return false, nil
}

// noteMissingHeartbeat sets the note if no worker runs the activity.
func (s *snapshot) noteMissingHeartbeat(a *workflowpb.PendingActivityInfo) {
	if at := a.GetLastHeartbeatTime(); at != nil {
		s.lastHeartbeatAt = at.AsTime()
	}
	switch {
	case a.GetLastFailure() != nil && a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:
		s.unknownFactNote = fmt.Sprintf(
			"Attempt %d of %s has not begun yet; the attempt before failed: %s",
			a.GetAttempt(),
			a.GetActivityId(),
			kubecli.CollapseSpaces(a.GetLastFailure().GetMessage()),
		)
	case !s.lastHeartbeatAt.IsZero() && s.now.Sub(s.lastHeartbeatAt) > maxHeartbeatAge:
		s.unknownFactNote = fmt.Sprintf(
			"No worker has reported since %s: check that a worker polls the queue %s.",
			kubecli.TimeWithAgeText(s.lastHeartbeatAt, s.now),
			s.activityTaskQueue,
		)
	case s.lastHeartbeatAt.IsZero() && a.GetScheduledTime() != nil && s.now.Sub(a.GetScheduledTime().AsTime()) > maxHeartbeatAge:
		s.unknownFactNote = fmt.Sprintf(
			"No worker has taken %s since %s: check that a worker polls the queue %s.",
			a.GetActivityId(),
			kubecli.TimeWithAgeText(a.GetScheduledTime().AsTime(), s.now),
			s.activityTaskQueue,
		)
	}
}
