// Package serve polls task queues. The main of package worker uses it, and so do the mains of providers in modules of
// their own.
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
	// clusterSlots is the number of activities that a worker of the cluster queues runs at once: each is a request or two
	// to the API server.
	clusterSlots = 100

	// workflowSlots is the number of workflow tasks that a worker runs at once, each with its local activities. Further
	// tasks wait at Temporal's server, where those of other deployments can go first. Source: ADR 0089.
	workflowSlots = 40

	stopTimeout = 30 * time.Second
)

// Options returns the options of a worker: those of a versioned one if Temporal's worker controller has set its
// environment variables, else those of an unversioned one.
func Options() worker.Options {
	options := worker.Options{
		MaxConcurrentActivityExecutionSize:     clusterSlots,
		WorkerStopTimeout:                      stopTimeout,
		MaxConcurrentWorkflowTaskExecutionSize: workflowSlots,
		WorkflowTaskPollerBehavior:             pollers(leastPolls),
		ActivityTaskPollerBehavior:             pollers(leastPolls),
		DisableRegistrationAliasing:            true,
		// Without these, the SDK would pass on a heartbeat after 0.8 times the heartbeat timeout. A cancellation arrives with
		// the answer to a heartbeat.
		MaxHeartbeatThrottleInterval:     kube.HeartbeatEvery,
		DefaultHeartbeatThrottleInterval: kube.HeartbeatEvery,
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

// leastPolls is the number of polls that a worker keeps open for each queue and kind of task. One poll fetches one
// task, and is then sent again. An open poll costs one request a minute.
const leastPolls = 16

// pollers makes the number of polls follow the load, between least and twice least. Temporal's server takes back each
// poll that has waited for a second: after a quiet time, a burst of tasks finds only least polls.
func pollers(least int) worker.PollerBehavior {
	return worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{
		InitialNumberOfPollers: least, MinimumNumberOfPollers: least, MaximumNumberOfPollers: 2 * least,
	})
}

// Fatal holds the first error that ends the process.
type Fatal chan error

// NewFatal returns a Fatal without an error.
func NewFatal() Fatal { return make(Fatal, 1) }

// Fail stores an error if it is the first one. It does not block.
func (f Fatal) Fail(err error) {
	select {
	case f <- err:
	default:
	}
}

// Start starts a worker that polls a task queue. An SDK worker stops polling for good when Temporal has refused its
// polls for two minutes, for example because the namespace is gone: fatal gets that error.
func Start(
	temporal client.Client,
	queue string,
	options worker.Options,
	fatal Fatal,
	register func(worker.Registry),
) (worker.Worker, error) {
	options.OnFatalError = func(err error) { fatal.Fail(fmt.Errorf("poll queue %s: %w", queue, err)) }
	w := worker.New(temporal, queue, options)
	register(w)
	if err := w.Start(); err != nil {
		return nil, fmt.Errorf("serve queue %s: %w", queue, err)
	}
	return w, nil
}

// UntilStopped stops the workers when ctx ends, or at a fatal error, which it returns: the process ends, and can be
// started again. Running activities get stopTimeout to finish.
func UntilStopped(ctx context.Context, workers []worker.Worker, fatal Fatal) (err error) {
	select {
	case <-ctx.Done():
	case err = <-fatal:
	}
	var stopping sync.WaitGroup
	for _, w := range workers {
		stopping.Go(w.Stop) // each waits for its activities, all in the same grace period
	}
	stopping.Wait()
	return err
}
