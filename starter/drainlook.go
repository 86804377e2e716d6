package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	"millwright/observe"
	"millwright/workflows"
)

// temporal is what the drain commands ask of Temporal. The SDK's client fulfils it.
type temporal interface {
	DescribeWorkflowExecution(ctx context.Context, workflowID, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error)
	QueryWorkflow(ctx context.Context, workflowID, runID, queryType string, args ...any) (converter.EncodedValue, error)
	Close()
}

// dial makes a client that connects when it is first asked.
func dial(f temporalFlags) (temporal, error) {
	c, err := client.NewLazyClient(client.Options{HostPort: f.address, Namespace: f.namespace, Logger: quiet{}})
	if err != nil {
		return nil, fmt.Errorf("connect to Temporal at %s: %w", f.address, err)
	}
	return c, nil
}

// The activities that say in their heartbeats what a deletion waits for, by the IDs that workflows give them.
const (
	evictingActivity  = "evict-pods"
	detachingActivity = "await-detach"
)

// temporalPatience is how long Temporal may take to answer. Source: what a person waits for before the half that the Machine
// knows is better than nothing.
const temporalPatience = 5 * time.Second

// silent is how long an activity may say nothing before that is worth telling. Source: three times the heartbeat timeout, by
// which another worker should have taken over.
const silent = 30 * time.Second

// sight is all that is known of one deletion at one moment.
type sight struct {
	machine *v1alpha1.Machine
	picture *drain.Picture // of the drain; nil: not known
	volumes []string       // that are awaited in stage Detach
	seen    time.Time      // when a worker last told; zero: not known
	note    string         // one line: why less is known than could be; empty when all is well
	now     time.Time
}

// ask adds what Temporal knows of a drain, or of volumes that are awaited. That it knows nothing is a note and no error.
func (s *sight) ask(ctx context.Context, t temporal, address string) {
	if queued(s.machine) || !inDrain(s.machine) && stage(s.machine) != v1alpha1.MachineDeletionDetach {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, temporalPatience)
	defer cancel()
	switch err := s.listen(ctx, t); {
	case errors.Is(err, errNotOpen):
		s.note = "Nothing of it is open in Temporal: what follows is from the Machine alone."
	case err != nil:
		s.note = fmt.Sprintf("No picture from Temporal at %s (%s): what follows is from the Machine alone.", address, oneLine(err.Error()))
	}
}

// inDrain reports whether the node of a machine is being emptied, or about to be.
func inDrain(m *v1alpha1.Machine) bool { return observe.InDrain(m) || staying(m) }

// listen hears what the activity that is under way says.
func (s *sight) listen(ctx context.Context, t temporal) error {
	ref := activities.Ref{Namespace: s.machine.Namespace, Name: s.machine.Name, UID: string(s.machine.UID)}
	if !inDrain(s.machine) {
		_, err := s.hear(ctx, t, workflows.ID(workflows.KindMachine, ref), detachingActivity, &s.volumes)
		return err
	}
	id := workflows.ID(workflows.KindDrain, ref)
	var progress activities.DrainProgress
	heard, err := s.hear(ctx, t, id, evictingActivity, &progress)
	if err != nil {
		return err
	}
	if !heard {
		answer, err := t.QueryWorkflow(ctx, id, "", workflows.QueryPicture)
		if err != nil {
			return fmt.Errorf("query %s: %w", workflows.QueryPicture, err)
		}
		if err := answer.Get(&progress.Picture); err != nil {
			return fmt.Errorf("read the answer to %s: %w", workflows.QueryPicture, err)
		}
	}
	s.picture = &progress.Picture
	return nil
}

// errNotOpen says that no workflow of that ID is open.
var errNotOpen = errors.New("no such workflow is open")

// hear decodes the last heartbeat of a pending activity, and reports whether there was one. A later one of its kind has a
// number behind its ID.
func (s *sight) hear(ctx context.Context, t temporal, workflowID, activityID string, into any) (bool, error) {
	answer, err := t.DescribeWorkflowExecution(ctx, workflowID, "")
	if missing := new(serviceerror.NotFound); errors.As(err, &missing) {
		return false, errNotOpen
	}
	if err != nil {
		return false, fmt.Errorf("describe %s: %w", workflowID, err)
	}
	if answer.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return false, errNotOpen
	}
	for _, pending := range answer.GetPendingActivities() {
		if id := pending.GetActivityId(); id != activityID && !strings.HasPrefix(id, activityID+"-") {
			continue
		}
		s.doubt(pending)
		if pending.GetHeartbeatDetails() == nil {
			return false, nil
		}
		err := converter.GetDefaultDataConverter().FromPayloads(pending.GetHeartbeatDetails(), into)
		return err == nil, nil // what cannot be read is asked for
	}
	return false, nil
}

// doubt notes when nobody works at an activity.
func (s *sight) doubt(a *workflowpb.PendingActivityInfo) {
	if at := a.GetLastHeartbeatTime(); at != nil {
		s.seen = at.AsTime()
	}
	switch {
	case a.GetLastFailure() != nil && a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:
		s.note = fmt.Sprintf("Attempt %d of %s is yet to begin; the one before failed: %s", a.GetAttempt(), a.GetActivityId(), oneLine(a.GetLastFailure().GetMessage()))
	case !s.seen.IsZero() && s.now.Sub(s.seen) > silent:
		s.note = fmt.Sprintf("No worker has told anything since %s: does one run that polls the queue %s?", since(s.seen, s.now), workflows.QueueDrains)
	case s.seen.IsZero() && a.GetScheduledTime() != nil && s.now.Sub(a.GetScheduledTime().AsTime()) > silent:
		s.note = fmt.Sprintf("No worker has taken %s since %s: does one run that polls the queue %s?",
			a.GetActivityId(), since(a.GetScheduledTime().AsTime(), s.now), workflows.QueueDrains)
	}
}
