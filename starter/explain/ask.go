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
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// temporalTimeout is how long explain waits for Temporal. Source: after that, the answer of the API server alone is better than none.
const temporalTimeout = 5 * time.Second

// ask says what only Temporal knows, one line each: whether it answers, whether workers are there, and which calls are open.
func (x *command) ask(ctx context.Context, clients kubecli.Clients, s *subject) []string {
	installation := x.installation(ctx, clients, s)
	if installation == "" || s.workflow == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, temporalTimeout)
	defer cancel()
	temporal, err := x.Temporal(x.temporalAt)
	if err != nil {
		return []string{err.Error()}
	}
	defer temporal.Close()
	lines, err := x.pollers(ctx, temporal, installation, s)
	if err != nil {
		return []string{fmt.Sprintf("Temporal at %s does not answer: nothing moves until it does (%s).", x.temporalAt.Address, kubecli.OneLine(err.Error()))}
	}
	answer, err := temporal.DescribeWorkflowExecution(ctx, s.workflowID(installation), "")
	missing := new(serviceerror.NotFound)
	if err != nil && !errors.As(err, &missing) {
		return append(lines, "Its workflow cannot be read from Temporal: "+kubecli.OneLine(err.Error()))
	}
	for _, call := range answer.GetPendingActivities() {
		lines = append(lines, says(call, x.Now()))
	}
	return lines
}

// workflowID returns the ID of the object's workflow.
func (s *subject) workflowID(of run.Installation) string {
	return of.ID(s.workflow, kube.Ref{Namespace: s.object.GetNamespace(), Name: s.object.GetName(), UID: string(s.object.GetUID())})
}

// installation returns the name of the installation: that of the flag, else as a status names it, else as the Lease of the workers does.
func (x *command) installation(ctx context.Context, clients kubecli.Clients, s *subject) run.Installation {
	if x.cluster != "" {
		return run.Installation(x.cluster)
	}
	if o := s.operation; o != nil && o.WorkflowID != "" {
		return run.InstallationIn(o.WorkflowID)
	}
	for i := range s.members {
		if o := s.members[i].Status.CurrentOperation; o != nil && o.WorkflowID != "" {
			return run.InstallationIn(o.WorkflowID)
		}
	}
	return clients.Installation(ctx)
}

// pollers names the queues of the object that no worker polls.
func (x *command) pollers(ctx context.Context, temporal client.Client, installation run.Installation, s *subject) (lines []string, err error) {
	core := installation.Queue(run.QueueMachines)
	n, err := kubecli.Pollers(ctx, temporal, x.temporalAt.Namespace, core, enumspb.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		lines = append(lines, fmt.Sprintf("No worker polls queue %s: nothing moves until a worker runs.", core))
	}
	if s.provider == "" {
		return lines, nil
	}
	queue := installation.ProviderQueue(s.provider)
	n, err = kubecli.Pollers(ctx, temporal, x.temporalAt.Namespace, queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	if err == nil && n == 0 {
		lines = append(lines, fmt.Sprintf("No worker serves provider %s (queue %s): no instance is made or deleted until one runs.", s.provider, queue))
	}
	return lines, err
}

// says describes a call that is open, or waits for its next attempt.
func says(call *workflowpb.PendingActivityInfo, now time.Time) string {
	text := fmt.Sprintf("%s: attempt %d", call.GetActivityId(), call.GetAttempt())
	started, next := call.GetLastStartedTime(), call.GetNextAttemptScheduleTime()
	switch {
	case call.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED && started != nil:
		text += " is open since " + kubecli.Since(started.AsTime(), now)
	case next != nil && next.AsTime().After(now):
		text += " begins at " + kubecli.Clock(next.AsTime(), now)
	default:
		text += " waits for a worker since " + kubecli.Since(call.GetScheduledTime().AsTime(), now)
	}
	if failure := call.GetLastFailure(); failure != nil {
		text += "; the attempt before failed: " + kubecli.OneLine(failure.GetMessage())
	}
	return text
}
