// Package serve polls task queues. The main packages of the worker and of providers in other modules import this
// package.
package serve

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"millwright/activities/kube"
)

const (
	// clusterQueueSlotCount is the maximum number of concurrent activities of a worker of the cluster queues. Source: each
	// activity sends one or two requests to the API server.
	clusterQueueSlotCount = 100

	// workflowTaskSlotCount is the maximum number of concurrent workflow tasks of an SDK worker. Each workflow task may
	// run local activities. Further tasks wait at Temporal's server, where tasks of other deployments can have priority.
	// Source: ADR 0089.
	workflowTaskSlotCount = 40

	stopTimeout = 30 * time.Second
)

// WorkerOptions returns the options of a worker. The worker is versioned if Temporal's worker controller has set the
// environment variables for versioning.
func WorkerOptions() worker.Options {
	options := worker.Options{
		MaxConcurrentActivityExecutionSize:     clusterQueueSlotCount,
		WorkerStopTimeout:                      stopTimeout,
		MaxConcurrentWorkflowTaskExecutionSize: workflowTaskSlotCount,
		WorkflowTaskPollerBehavior:             pollerBehavior(minPollers),
		ActivityTaskPollerBehavior:             pollerBehavior(minPollers),
		DisableRegistrationAliasing:            true,
		// Without the throttle intervals below, the SDK would send heartbeats at 0.8 times the heartbeat timeout. An
		// activity learns of its cancellation only from the response to a heartbeat.
		MaxHeartbeatThrottleInterval:     kube.HeartbeatInterval,
		DefaultHeartbeatThrottleInterval: kube.HeartbeatInterval,
	}
	deployment, build := os.Getenv("TEMPORAL_DEPLOYMENT_NAME"), os.Getenv("TEMPORAL_WORKER_BUILD_ID")
	if deployment != "" && build != "" {
		options.DeploymentOptions = worker.DeploymentOptions{
			UseVersioning:             true,
			Version:                   worker.WorkerDeploymentVersion{DeploymentName: deployment, BuildID: build},
			DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
		}
	}
	return options
}

// minPollers is the minimum number of open polls of a worker for each queue and kind of task. A poll returns one task,
// and the worker then sends the next poll. An open poll costs one request per minute.
const minPollers = 16

// pollerBehavior returns a poller behavior that adapts the number of polls to the load. The number stays between least
// and twice least. Temporal's server answers each poll that has waited for a second. Therefore only least polls are
// open when a burst of tasks follows an idle time.
func pollerBehavior(least int) worker.PollerBehavior {
	return worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{
		InitialNumberOfPollers: least, MinimumNumberOfPollers: least, MaximumNumberOfPollers: 2 * least,
	})
}

// FatalErrorStore stores the first error that ends the process.
type FatalErrorStore chan error

// NewFatalErrorStore returns a FatalErrorStore without an error.
func NewFatalErrorStore() FatalErrorStore { return make(FatalErrorStore, 1) }

// StoreFirstError stores an error if no error is stored yet. StoreFirstError does not block.
func (f FatalErrorStore) StoreFirstError(err error) {
	select {
	case f <- err:
	default:
	}
}

// StartWorker starts a worker that polls a task queue. If Temporal refuses the polls of an SDK worker for two minutes,
// for example because the namespace is gone, the SDK worker stops polling forever. StartWorker then stores the error in
// fatal.
func StartWorker(
	temporal client.Client,
	queue string,
	options worker.Options,
	fatal FatalErrorStore,
	register func(worker.Registry),
) (worker.Worker, error) {
	options.OnFatalError = func(err error) { fatal.StoreFirstError(fmt.Errorf("poll queue %s: %w", queue, err)) }
	w := worker.New(temporal, queue, options)
	register(w)
	if err := w.Start(); err != nil {
		return nil, fmt.Errorf("serve queue %s: %w", queue, err)
	}
	return w, nil
}

// WaitAndStopWorkers waits until ctx is done or a fatal error is stored, and then stops the workers. WaitAndStopWorkers
// returns the fatal error. The process then exits and can be restarted. Running activities get stopTimeout to finish.
func WaitAndStopWorkers(ctx context.Context, workers []worker.Worker, fatal FatalErrorStore) (err error) {
	select {
	case <-ctx.Done():
	case err = <-fatal:
	}
	StopWorkers(workers)
	return err
}

// StopWorkers stops the workers. Running activities get stopTimeout to finish.
func StopWorkers(workers []worker.Worker) {
	var stopping sync.WaitGroup
	for _, w := range workers {
		stopping.Go(w.Stop) // each Stop waits for its activities, so all Stops run in parallel
	}
	stopping.Wait()
}
