package explain

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	"millwright/activities/kube"
	"millwright/decide/list"
	"millwright/starter/kubecli"
	"millwright/workflows/run"
)

// temporalTimeout is how long explain waits for Temporal. After 5 s, a user prefers output that is based on the API
// server alone.
const temporalTimeout = 5 * time.Second

// readFromTemporal reads the state of the object's workflow from Temporal. The result down has a line if Temporal does
// not answer, or if no worker polls the task queue of the machines' workflows. The result notes has a line for each
// other problem, and calls are the pending activities.
func (x *explainCommand) readFromTemporal(
	ctx context.Context,
	clients kubecli.Clients,
	s *subject,
) (down, notes []string, calls []pendingActivity) {
	installation := x.findInstallation(ctx, clients, s)
	if installation == "" || s.workflowKind == "" {
		return nil, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, temporalTimeout)
	defer cancel()
	temporal, err := x.DialTemporal(x.temporalFlags)
	if err != nil {
		return []string{err.Error()}, nil, nil
	}
	defer temporal.Close()
	shards, err := clients.ReadShards(ctx, installation)
	if err != nil {
		return []string{err.Error()}, nil, nil
	}
	down, notes, err = x.unpolledQueueLines(ctx, temporal, shards.ShardOfNamespace(s.object.GetNamespace()), s)
	if err != nil {
		return []string{
			fmt.Sprintf(
				"Temporal at %s does not answer: nothing moves until it does (%s).",
				x.temporalFlags.Address,
				kubecli.CollapseSpaces(err.Error()),
			),
		}, nil, nil
	}
	if calls, err = readPendingActivities(ctx, temporal, s.workflowID(installation), x.Now()); err != nil {
		notes = append(notes, "Its workflow cannot be read from Temporal: "+kubecli.CollapseSpaces(err.Error()))
	}
	return down, notes, calls
}

// readPendingActivities returns the pending activities of a workflow; nil if no workflow has the ID.
func readPendingActivities(
	ctx context.Context,
	temporal client.Client,
	workflowID string,
	now time.Time,
) (calls []pendingActivity, err error) {
	answer, err := temporal.DescribeWorkflowExecution(ctx, workflowID, "")
	missing := new(serviceerror.NotFound)
	if err != nil && !errors.As(err, &missing) {
		return nil, err
	}
	for _, of := range answer.GetPendingActivities() {
		calls = append(calls, newPendingActivity(of, now))
	}
	return calls, nil
}

// PendingActivityLines returns a line for each pending activity of a workflow: its attempt, since when, and the failure
// of the attempt before; nil if no workflow has the ID.
func PendingActivityLines(
	ctx context.Context,
	temporal client.Client,
	workflowID string,
	now time.Time,
) ([]string, error) {
	calls, err := readPendingActivities(ctx, temporal, workflowID, now)
	return list.Map(calls, func(c pendingActivity) string { return c.statusLine(now) }), err
}

// workflowID returns the ID of the workflow that works on the object.
func (s *subject) workflowID(of run.Installation) string {
	o := s.object
	if s.workflowObject != nil {
		o = s.workflowObject
	}
	return of.ID(s.workflowKind, kube.Ref{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID())})
}

// findInstallation returns the name of the installation from the flag, else from a status, else from the Lease of the
// workers; empty if no source has the name.
func (x *explainCommand) findInstallation(ctx context.Context, clients kubecli.Clients, s *subject) run.Installation {
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
	return clients.FindInstallation(ctx)
}

// unpolledQueueLines returns a line for each task queue of the object that no worker polls. If no worker polls the
// queue of the machines' workflows, the status of the object is not updated. If no worker of the provider runs, the
// status of the object also says that the worker is missing.
func (x *explainCommand) unpolledQueueLines(
	ctx context.Context,
	temporal client.Client,
	shard run.Shard,
	s *subject,
) (core, provider []string, err error) {
	queue := shard.TaskQueue(run.QueueMachines)
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
	queue = shard.ProviderTaskQueue(s.provider)
	n, err = kubecli.CountPollers(ctx, temporal, x.temporalFlags.Namespace, queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	if err == nil {
		s.pollerCount = &n
	}
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

// pendingActivity is a pending activity of the object's workflow.
type pendingActivity struct {
	Name      string `json:"name"`
	Attempt   int32  `json:"attempt"`
	IsRunning bool   `json:"open"` // a worker executes the attempt
	// start of the running attempt; if no attempt runs, the time at which the activity was scheduled
	Since       time.Time `json:"since,omitzero"`
	NextAttempt time.Time `json:"next,omitzero"` // when the next attempt begins
	Failure     string    `json:"failure,omitempty"`

	endedEarly bool // whether the previous attempt ended itself early, because the worker's cache was stale
}

// newPendingActivity returns the call for a pending activity.
func newPendingActivity(of *workflowpb.PendingActivityInfo, now time.Time) pendingActivity {
	c := pendingActivity{Name: of.GetActivityId(), Attempt: of.GetAttempt()}
	if _, err := strconv.Atoi(c.Name); err == nil { // Temporal's SDK uses numbers as IDs if an activity has no ID
		c.Name = of.GetActivityType().GetName()
	}
	started, next := of.GetLastStartedTime(), of.GetNextAttemptScheduleTime()
	switch {
	case of.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED && started != nil:
		c.IsRunning, c.Since = true, started.AsTime()
	case next != nil && next.AsTime().After(now):
		c.NextAttempt = next.AsTime()
	default:
		c.Since = of.GetScheduledTime().AsTime()
	}
	if failure := of.GetLastFailure(); failure != nil {
		c.Failure = kubecli.CollapseSpaces(failure.GetMessage())
		c.endedEarly = failure.GetApplicationFailureInfo().GetType() == kube.FailureTypeCacheBehind
	}
	return c
}

// statusLine returns a line about the call.
func (c pendingActivity) statusLine(now time.Time) string {
	text := fmt.Sprintf("%s: attempt %d", c.Name, c.Attempt)
	switch {
	case c.IsRunning:
		text += " is open since " + kubecli.TimeWithAgeText(c.Since, now)
	case !c.NextAttempt.IsZero():
		text += " begins at " + kubecli.ClockText(c.NextAttempt, now)
	default:
		text += " waits for a worker since " + kubecli.TimeWithAgeText(c.Since, now)
	}
	switch {
	case c.Failure == "":
		return text
	case c.endedEarly:
		return text + "; the attempt before ended early: " + c.Failure
	case strings.Contains(c.Failure, " is forbidden: User "): // message of the API server if a permission is missing
		return text + "; the attempt before failed: " + c.Failure +
			": is this user's role bound? `kubectl get clusterrolebindings,rolebindings -A -o wide`"
	default:
		return text + "; the attempt before failed: " + c.Failure
	}
}
