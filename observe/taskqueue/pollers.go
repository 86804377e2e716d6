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

// pollerTimeout is the time without a poll after which a worker counts as gone. Source: a poll of the SDK lasts at most
// 1 min, and Temporal keeps a worker in the list of pollers for 5 min.
const pollerTimeout = 75 * time.Second

// CountPollers returns how many workers poll a task queue for tasks of this type.
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
		if time.Since(poller.GetLastAccessTime().AsTime()) < pollerTimeout {
			seen[poller.GetIdentity()] = true
		}
	}
	return len(seen), nil
}
