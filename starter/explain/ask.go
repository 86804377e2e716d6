package explain

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	"millwright/activities/kube"
	"millwright/decide/phrase"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// temporalTimeout is how long explain waits for Temporal. Source: after 5 s, a user prefers an answer from the API
// server alone.
const temporalTimeout = 5 * time.Second

// askTemporal asks Temporal about the object's workflow. The result down has a line if Temporal does not answer, or if
// no worker polls the task queue of the machines' workflows. The result notes has a line for each other problem, and
// calls are the pending activities.
func (x *explainCommand) askTemporal(
	ctx context.Context,
	clients kubecli.Clients,
	s *subject,
) (down, notes []string, calls []activityCall) {
	installation := x.installation(ctx, clients, s)
	if installation == "" || s.workflowKind == "" {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, temporalTimeout)
	defer cancel()
	temporal, err := x.Temporal(x.temporalFlags)
	if err != nil {
		return []string{err.Error()}, nil, nil
	}
	defer temporal.Close()
	down, notes, err = x.unpolledQueues(ctx, temporal, installation, s)
	if err != nil {
		return []string{
			fmt.Sprintf(
				"Temporal at %s does not answer: nothing moves until it does (%s).",
				x.temporalFlags.Address,
				kubecli.OneLine(err.Error()),
			),
		}, nil, nil
	}
	answer, err := temporal.DescribeWorkflowExecution(ctx, s.workflowID(installation), "")
	missing := new(serviceerror.NotFound)
	if err != nil && !errors.As(err, &missing) {
		return down, append(notes, "Its workflow cannot be read from Temporal: "+kubecli.OneLine(err.Error())), nil
	}
	for _, of := range answer.GetPendingActivities() {
		calls = append(calls, newActivityCall(of, x.Now()))
	}
	return down, notes, calls
}

// workflowID returns the ID of the workflow that works on the object.
func (s *subject) workflowID(of run.Installation) string {
	o := s.object
	if s.workflowObject != nil {
		o = s.workflowObject
	}
	return of.ID(s.workflowKind, kube.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())})
}

// installation returns the name of the installation from the flag, else from a status, else from the Lease of the
// workers; empty if no source has the name.
func (x *explainCommand) installation(ctx context.Context, clients kubecli.Clients, s *subject) run.Installation {
	if x.clusterName != "" {
		return run.Installation(x.clusterName)
	}
	if o := s.operation; o != nil && o.WorkflowID != "" {
		return run.InstallationInID(o.WorkflowID)
	}
	for i := range s.members {
		if o := s.members[i].operation; o != nil && o.WorkflowID != "" {
			return run.InstallationInID(o.WorkflowID)
		}
	}
	return clients.Installation(ctx)
}

// unpolledQueues returns a line for each task queue of the object that no worker polls. Without a worker on the queue
// of the machines' workflows, nobody writes a status. Without a worker of the provider, the object's status also says
// that the worker is missing.
func (x *explainCommand) unpolledQueues(
	ctx context.Context,
	temporal client.Client,
	installation run.Installation,
	s *subject,
) (core, provider []string, err error) {
	queue := installation.TaskQueue(run.QueueMachines)
	n, err := kubecli.CountPollers(ctx, temporal, x.temporalFlags.Namespace, queue, enumspb.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return nil, nil, err
	}
	if n == 0 {
		core = append(core, fmt.Sprintf("No worker polls queue %s: nothing moves until a worker runs.", queue))
	}
	if s.provider == "" {
		return core, nil, nil
	}
	queue = installation.ProviderTaskQueue(s.provider)
	n, err = kubecli.CountPollers(ctx, temporal, x.temporalFlags.Namespace, queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	if err == nil && n == 0 {
		provider = append(
			provider,
			fmt.Sprintf(
				"No worker serves provider %s (queue %s): no instance is made or deleted until one runs.",
				s.provider,
				queue,
			),
		)
	}
	return core, provider, err
}

// activityCall is a pending activity of the object's workflow.
type activityCall struct {
	Name    string `json:"name"`
	Attempt int32  `json:"attempt"`
	Open    bool   `json:"open"` // a worker executes the attempt
	// when the open attempt began, or when the call that waits for a worker was scheduled
	Since   time.Time `json:"since,omitzero"`
	Next    time.Time `json:"next,omitzero"` // when the next attempt begins
	Failure string    `json:"failure,omitempty"`
}

// newActivityCall returns the call for a pending activity.
func newActivityCall(of *workflowpb.PendingActivityInfo, now time.Time) activityCall {
	c := activityCall{Name: of.GetActivityId(), Attempt: of.GetAttempt()}
	started, next := of.GetLastStartedTime(), of.GetNextAttemptScheduleTime()
	switch {
	case of.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED && started != nil:
		c.Open, c.Since = true, started.AsTime()
	case next != nil && next.AsTime().After(now):
		c.Next = next.AsTime()
	default:
		c.Since = of.GetScheduledTime().AsTime()
	}
	if failure := of.GetLastFailure(); failure != nil {
		c.Failure = kubecli.OneLine(failure.GetMessage())
	}
	return c
}

// text returns a line about the call.
func (c activityCall) text(now time.Time) string {
	text := fmt.Sprintf("%s: attempt %d", c.Name, c.Attempt)
	switch {
	case c.Open:
		text += " is open since " + kubecli.SinceText(c.Since, now)
	case !c.Next.IsZero():
		text += " begins at " + kubecli.ClockText(c.Next, now)
	default:
		text += " waits for a worker since " + kubecli.SinceText(c.Since, now)
	}
	return text + phrase.TextIf(c.Failure != "", "; the attempt before failed: %s", c.Failure)
}
