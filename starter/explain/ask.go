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

// temporalTimeout is how long explain waits for Temporal. Source: after that, a user prefers an answer from the API
// server alone.
const temporalTimeout = 5 * time.Second

// ask asks Temporal about the object's workflow. Down has a line for Temporal if it does not answer, and for the queue
// of the core if no worker polls it; notes has a line for anything else that is wrong; calls are the pending calls.
func (x *command) ask(ctx context.Context, clients kubecli.Clients, s *subject) (down, notes []string, calls []call) {
	installation := x.installation(ctx, clients, s)
	if installation == "" || s.workflow == "" {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, temporalTimeout)
	defer cancel()
	temporal, err := x.Temporal(x.temporalAt)
	if err != nil {
		return []string{err.Error()}, nil, nil
	}
	defer temporal.Close()
	down, notes, err = x.pollers(ctx, temporal, installation, s)
	if err != nil {
		return []string{
			fmt.Sprintf(
				"Temporal at %s does not answer: nothing moves until it does (%s).",
				x.temporalAt.Address,
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
		calls = append(calls, called(of, x.Now()))
	}
	return down, notes, calls
}

// workflowID returns the ID of the workflow that works on the object.
func (s *subject) workflowID(of run.Installation) string {
	o := s.object
	if s.of != nil {
		o = s.of
	}
	return of.ID(s.workflow, kube.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())})
}

// installation returns the name of the installation from the flag, else from a status, else from the Lease of the
// workers; empty if none has it.
func (x *command) installation(ctx context.Context, clients kubecli.Clients, s *subject) run.Installation {
	if x.cluster != "" {
		return run.Installation(x.cluster)
	}
	if o := s.operation; o != nil && o.WorkflowID != "" {
		return run.InstallationIn(o.WorkflowID)
	}
	for i := range s.members {
		if o := s.members[i].operation; o != nil && o.WorkflowID != "" {
			return run.InstallationIn(o.WorkflowID)
		}
	}
	return clients.Installation(ctx)
}

// pollers names the queues of the object that no worker polls. Without a worker of the core, nobody writes a status;
// without a worker of the provider, the object's status says that, too.
func (x *command) pollers(
	ctx context.Context,
	temporal client.Client,
	installation run.Installation,
	s *subject,
) (core, provider []string, err error) {
	queue := installation.Queue(run.QueueMachines)
	n, err := kubecli.Pollers(ctx, temporal, x.temporalAt.Namespace, queue, enumspb.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return nil, nil, err
	}
	if n == 0 {
		core = append(core, fmt.Sprintf("No worker polls queue %s: nothing moves until a worker runs.", queue))
	}
	if s.provider == "" {
		return core, nil, nil
	}
	queue = installation.ProviderQueue(s.provider)
	n, err = kubecli.Pollers(ctx, temporal, x.temporalAt.Namespace, queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
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

// call is a call of the object's workflow.
type call struct {
	Name    string `json:"name"`
	Attempt int32  `json:"attempt"`
	Open    bool   `json:"open"` // a worker carries it out
	// when the attempt began, or since when a call that is not open waits for a worker
	Since   time.Time `json:"since,omitzero"`
	Next    time.Time `json:"next,omitzero"` // when the next attempt begins
	Failure string    `json:"failure,omitempty"`
}

// called returns a call as Temporal knows it.
func called(of *workflowpb.PendingActivityInfo, now time.Time) call {
	c := call{Name: of.GetActivityId(), Attempt: of.GetAttempt()}
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

// says describes the call.
func (c call) says(now time.Time) string {
	text := fmt.Sprintf("%s: attempt %d", c.Name, c.Attempt)
	switch {
	case c.Open:
		text += " is open since " + kubecli.Since(c.Since, now)
	case !c.Next.IsZero():
		text += " begins at " + kubecli.Clock(c.Next, now)
	default:
		text += " waits for a worker since " + kubecli.Since(c.Since, now)
	}
	return text + phrase.If(c.Failure != "", "; the attempt before failed: %s", c.Failure)
}
