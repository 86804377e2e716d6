// Package taskqueue reads the pollers of Temporal's task queues.
package taskqueue

import (
	"context"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// PollerTimeout is the time without a poll after which a worker is considered gone. A poll of the SDK lasts at most 1
// min. Temporal itself lists a worker for 5 min after its last poll. Therefore a killed worker is counted until
// PollerTimeout has passed.
const PollerTimeout = 75 * time.Second

// CountPollers returns how many workers have polled a task queue for tasks of this type within PollerTimeout.
func CountPollers(
	ctx context.Context,
	temporal workflowservice.WorkflowServiceClient,
	namespace, queue string,
	kind enumspb.TaskQueueType,
) (int, error) {
	answer, err := temporal.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: queue}, TaskQueueType: kind,
	})
	if err != nil {
		return 0, fmt.Errorf("ask Temporal for the workers of queue %s: %w", queue, err)
	}
	seen := map[string]bool{}
	for _, poller := range answer.GetPollers() {
		if time.Since(poller.GetLastAccessTime().AsTime()) < PollerTimeout {
			seen[poller.GetIdentity()] = true
		}
	}
	return len(seen), nil
}
