package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	capidrain "millwright/observe/capi/drain"
	"millwright/observe/taskqueue"
	"millwright/provider"
	"millwright/provider/driver"
	"millwright/provider/virtual"
	"millwright/worker/serve"
	"millwright/workflows"
	"millwright/workflows/run"
)

// machineQueueSlotCount and drainQueueSlotCount are the numbers of activity slots of a worker. An activity of the
// queues machines and drains needs few resources apart from a slot.
const (
	machineQueueSlotCount = 200 // the other cluster queues have 100
	drainQueueSlotCount   = 500 // a drain occupies one slot and mostly waits
)

// server serves the task queues of shards.
type server struct {
	options
	installation   run.Installation
	temporal       client.Client
	kube           *kube.Kube
	coreActivities []any // the activities of the core queues
	providers      *provider.Registry
	metrics        serve.CloudMetrics
	fatalErrors    serve.FatalErrorStore // gets the error if an SDK worker stops polling
}

// newServer makes a server that serves no shard yet.
func newServer(
	ctx context.Context,
	o options,
	installation run.Installation,
	temporal client.Client,
	in caches,
	clients clients,
	registry prometheus.Registerer,
	fatal serve.FatalErrorStore,
) (*server, error) {
	k := &kube.Kube{
		Cluster:     in.cluster,
		Recorder:    clients.events,
		TokenGroups: o.bootstrapTokenGroups,
		Draining:    o.drainSettings,
		FreshTokens: &kube.FreshTokens{},
		Metrics:     kube.NewMetrics(registry),
		MaxDrains:   o.maxDrains,
		FairCalls:   o.cloud.FairCallCount(),
		Pollers: func(ctx context.Context, namespace, name string) (int, error) {
			number, _ := in.shards.ShardOfNamespace(namespace)
			return taskqueue.CountPollers(
				ctx,
				temporal.WorkflowService(),
				o.Connection.Namespace,
				installation.Shard(number).ProviderTaskQueue(name),
				enumspb.TASK_QUEUE_TYPE_ACTIVITY,
			)
		},
	}
	onClusters := activities.ClusterActivities(k)
	if in.clusterAPI != nil {
		workloads := capidrain.NewWorkloadClusters(ctx, clients.workloadAccess(o))
		onClusters = append(onClusters, activities.ClusterAPIActivities(k, in.clusterAPI, workloads)...)
	}
	providers := &provider.Registry{}
	if o.virtualCloudAddress != "" {
		var options []driver.Option
		if !o.adoptsBeforeCreate {
			options = append(options, driver.WithoutSearch())
		}
		if err := providers.Register("virtual", virtual.New(o.virtualCloudAddress, options...)); err != nil {
			return nil, err
		}
	}
	return &server{
		options: o, installation: installation, temporal: temporal, kube: k, coreActivities: onClusters,
		providers: providers, metrics: serve.NewCloudMetrics(registry), fatalErrors: fatal,
	}, nil
}

// serveShard polls the task queues of a shard until ctx is done. Running activities then get time to finish.
func (s *server) serveShard(ctx context.Context, number int) error {
	workers, err := s.startWorkers(s.installation.Shard(number))
	if err != nil {
		serve.StopWorkers(workers)
		return err
	}
	<-ctx.Done()
	serve.StopWorkers(workers)
	return nil
}

// startWorkers starts one SDK worker for each queue of a shard. If startWorkers returns an error, it also returns the
// workers that have started.
func (s *server) startWorkers(shard run.Shard) (workers []worker.Worker, err error) {
	for queue := range strings.SplitSeq(s.queueList, ",") {
		w, err := s.startWorker(shard, queue)
		if err != nil {
			return workers, err
		}
		workers = append(workers, w)
	}
	return workers, nil
}

func (s *server) startWorker(shard run.Shard, queue string) (worker.Worker, error) {
	name, isProvider := strings.CutPrefix(queue, provider.TaskQueue(""))
	switch {
	case isCoreQueue(queue):
		return serve.StartWorker(
			s.temporal,
			shard.TaskQueue(queue),
			coreWorkerOptions(queue),
			s.fatalErrors,
			func(w worker.Registry) {
				if queue == run.QueueMachines {
					workflows.Register(w)
				}
				for _, a := range s.coreActivities {
					w.RegisterActivity(a)
				}
			},
		)
	case isProvider:
		found, missing := s.providers.Lookup(name)
		if missing != nil {
			return nil, fmt.Errorf("serve queue %s: %w", queue, missing)
		}
		calls := &cloud.Activities{Cloud: found, FreshTokens: s.kube.FreshTokens}
		if err := serve.CreateProviderClients(s.Flags, userAgent, calls); err != nil {
			return nil, err
		}
		s.cloud.PrepareActivities(calls, s.installation, name, s.metrics, s.HasTargetPerNamespace())
		return serve.StartCloudWorker(s.temporal, shard, name, s.cloud, s.fatalErrors, calls)
	default:
		return nil, fmt.Errorf(
			"unknown queue %q: known are %s, %s, %s and provider-NAME",
			queue,
			run.QueueMachines,
			run.QueueKubernetes,
			run.QueueDrains,
		)
	}
}

// coreWorkerOptions returns the options of the worker of a core queue.
func coreWorkerOptions(queue string) worker.Options {
	options := serve.WorkerOptions()
	switch queue {
	// more slots, so that small batches of writes do not delay decisions that fall back to this queue
	case run.QueueMachines:
		options.MaxConcurrentActivityExecutionSize = machineQueueSlotCount
	case run.QueueDrains:
		options.MaxConcurrentActivityExecutionSize = drainQueueSlotCount
	}
	return options
}

// eventSpamKey groups the events that share one rate limit of client-go. The limit allows 25 events at once and then
// one event every 5 min. The reason is part of the key, so that many events of one reason do not suppress a Warning of
// another reason.
func eventSpamKey(e *corev1.Event) string {
	return strings.Join([]string{string(e.InvolvedObject.UID), e.Type, e.Reason}, "/")
}

// newEventRecorder returns a recorder that sends events to the cluster.
func newEventRecorder(control kubernetes.Interface) record.EventRecorder {
	scheme := runtime.NewScheme()
	_ = v1alpha1.AddToScheme(scheme) // AddToScheme fails only for a type that is registered twice
	_ = clusterv1.AddToScheme(scheme)
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{SpamKeyFunc: eventSpamKey}))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: control.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme, corev1.EventSource{Component: "millwright"})
}
