package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"millwright/activities"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/provider"
	"millwright/provider/virtual"
	"millwright/workflows"
	"millwright/workflows/run"
)

// Slots of a worker: a slot of the cluster queues is a request or two to the API server; one of a provider's mostly waits.
const (
	clusterSlots = 100
	cloudCalls   = 200 // calls of a cloud mostly wait
	fairShare    = 4   // a fourth of the calls is for the machines of any one set if others wait: three more sets may be as large
	drainSlots   = 500 // a drain takes one slot and nearly always waits
	stopTimeout  = 30 * time.Second
)

// serve starts one SDK worker for each queue. An SDK worker stops polling for good when Temporal has refused its polls for two
// minutes, for example because the namespace is gone. fatal gets the error of the
// first one.
func serve(
	o options, installation run.Installation, temporal client.Client, cluster *cache.Cluster, clients clients, registry prometheus.Registerer, fatal chan<- error,
) ([]worker.Worker, error) {
	onClusters := activities.OnClusters(&kube.Kube{
		Cluster: cluster, Recorder: recorder(clients.control), TokenGroups: o.tokenGroups, Draining: o.draining,
		Metrics: kube.NewMetrics(registry), MaxDrains: o.maxDrains, FairCalls: max(o.cloudCalls/fairShare, 1),
	})
	providers := &provider.Registry{}
	if o.virtualcloud != "" {
		var options []virtual.Option
		if !o.adopt {
			options = append(options, virtual.WithoutAdoption())
		}
		if err := providers.Register("virtual", virtual.New(o.virtualcloud, options...)); err != nil {
			return nil, err
		}
	}
	var workers []worker.Worker
	for queue := range strings.SplitSeq(o.queues, ",") {
		options := workerOptions()
		options.OnFatalError = func(err error) { fail(fatal, fmt.Errorf("poll queue %s: %w", queue, err)) }
		name, isProvider := strings.CutPrefix(queue, provider.TaskQueue(""))
		switch {
		case queue == run.QueueMachines: // small batches of writes must not delay decisions that fall back to this queue
			options.MaxConcurrentActivityExecutionSize = 2 * clusterSlots
		case queue == run.QueueDrains:
			options.MaxConcurrentActivityExecutionSize = drainSlots
		case isProvider:
			options.MaxConcurrentActivityExecutionSize = o.cloudCalls
		}
		w := worker.New(temporal, installation.Queue(queue), options)
		switch {
		case isCore(queue):
			if queue == run.QueueMachines {
				workflows.Register(w)
			}
			for _, a := range onClusters {
				w.RegisterActivity(a)
			}
		case isProvider:
			found, err := providers.Lookup(name)
			if err != nil {
				return nil, fmt.Errorf("serve queue %s: %w", queue, err)
			}
			w.RegisterActivity(&cloud.Provider{
				Cloud: found, Classes: clients.machines, Secrets: clients.control, Tokens: clients.target, Cluster: o.ClusterName, ExhaustedRetry: o.exhausted,
			})
		default:
			return nil, fmt.Errorf("unknown queue %q: known are %s, %s, %s and provider-NAME", queue, run.QueueMachines, run.QueueKubernetes, run.QueueDrains)
		}
		if err := w.Start(); err != nil {
			return nil, fmt.Errorf("serve queue %s: %w", queue, err)
		}
		workers = append(workers, w)
	}
	return workers, nil
}

// pollers follow the load: with two, the SDK's default, bursts would wait in the server.
func pollers() worker.PollerBehavior {
	return worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{InitialNumberOfPollers: 8, MinimumNumberOfPollers: 2, MaximumNumberOfPollers: 32})
}

// workerOptions returns the options of a versioned worker if Temporal's worker controller has set its environment variables;
// else those of an unversioned one.
func workerOptions() worker.Options {
	options := worker.Options{
		MaxConcurrentActivityExecutionSize: clusterSlots,
		WorkerStopTimeout:                  stopTimeout,
		WorkflowTaskPollerBehavior:         pollers(),
		ActivityTaskPollerBehavior:         pollers(),
		DisableRegistrationAliasing:        true,
		// Without these, the SDK would pass on a heartbeat after 0.8 times the heartbeat timeout, and a cancellation arrives with its answer.
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

// recorder sends events to the cluster.
func recorder(control kubernetes.Interface) record.EventRecorder {
	scheme := runtime.NewScheme()
	_ = v1alpha1.AddToScheme(scheme) // fails only on a type that is registered twice
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: control.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme, corev1.EventSource{Component: "millwright"})
}
