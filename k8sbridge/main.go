// Package main runs Millwright's bridge, which turns changes in a cluster into signals to workflows. Package main
// only connects other packages. If several bridges run, only the leader sends signals.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"millwright/api/generated/clientset/versioned"
	"millwright/k8sbridge/fleet"
	"millwright/k8sbridge/watch"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/shard"
	"millwright/observe/target"
	"millwright/observe/taskqueue"
	"millwright/process"
	"millwright/process/claims"
	"millwright/process/commandline"
	"millwright/process/problems"
	"millwright/workflows/run"
)

// options contains the flags of this process.
type options struct {
	process.Flags
	identity          string
	guardSecrets      bool
	orphanSweepPeriod time.Duration
	preflight         process.PreflightFlags
	rollout           process.RolloutFlags
	mcm               process.MCMFlags
	scope             process.ScopeFlags
	clusterAPI        process.ClusterAPIFlags
}

func main() {
	commandline.Main(newCommand())
}

func newCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:     "k8sbridge",
		Short:   "Run Millwright's bridge: turn changes in a cluster into signals to workflows",
		Version: commandline.Version(),
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return runProcess(c.Context(), o) },
	}
	set := c.Flags()
	o.Register(set)
	o.preflight.Register(set)
	o.rollout.Register(set)
	o.mcm.Register(set)
	o.scope.Register(set)
	o.clusterAPI.Register(set)
	set.StringVar(
		&o.identity,
		"identity",
		"",
		"identity of this process in the leader election; empty means hostname and process ID",
	)
	set.BoolVar(
		&o.guardSecrets,
		"guard-secrets",
		true,
		"the worker puts a finalizer on each Secret that a MachineClass names; set the same value on worker and bridge",
	)
	set.DurationVar(
		&o.orphanSweepPeriod,
		"machine-safety-orphan-vms-period",
		watch.DefaultOrphanSweepPeriod,
		"time between two sweeps for instances without a Machine, per MachineClass; 0 disables the sweeps",
	)
	return c
}

// runProcess fills the caches, waits to become the leader, and sends signals until ctx ends.
func runProcess(ctx context.Context, o options) error {
	if o.identity == "" {
		o.identity = process.Identity()
	}
	if o.orphanSweepPeriod != 0 && o.orphanSweepPeriod < time.Second {
		return fmt.Errorf("--machine-safety-orphan-vms-period: %s is neither 0 nor a second or more", o.orphanSweepPeriod)
	}
	name, err := o.Installation()
	if err != nil {
		return err
	}
	p, err := o.Start(ctx)
	if err != nil {
		return err
	}
	config, err := o.ControlClusterConfig(userAgent)
	if err != nil {
		return err
	}
	client, err := process.NewKubernetesClient(config)
	if err != nil {
		return err
	}
	starting, started := context.WithCancel(ctx)
	defer started()
	leases := o.ProblemRecorder.WrapLeaseClient(client.CoordinationV1().Leases(o.LeaseNamespace), o.identity)
	go problems.CallPeriodically(starting, func(ctx context.Context) {
		// An error is not logged, because the election gets the same error.
		_ = o.ProblemRecorder.WriteToLease(ctx, leases, leaseName, func(*coordinationv1.Lease) {})
	})
	restores := cache.NewRestoreDetector()
	var leading runningBridges
	shards, err := o.WatchShards(ctx, client, p.Logger)
	if err != nil {
		return err
	}
	claimed := shard.NewClaims(shards)
	cluster, api, targets, err := fillCaches(ctx, o, restores.ConfigWithRestoreCheck(config), restores, claimed, &leading)
	if err != nil {
		return err
	}
	if err := process.CheckShardCount(cluster.LeaseOfWorkers(o.LeaseNamespace), o.Shards.Count); err != nil {
		return err
	}
	temporal, err := o.ConnectTemporal(ctx, p.Logger, p.MetricsRegistry)
	if err != nil {
		return err
	}
	defer temporal.Close()
	if err := process.ClaimInstallation(ctx, name, temporal, client, p.Logger); err != nil {
		return err
	}
	started()
	p.MarkReady(temporal)
	l := leader{
		options: o, process: p, client: client, temporal: temporal, cluster: cluster, clusterAPICache: api, leases: leases,
		shards: shards, runningBridges: &leading, metrics: watch.NewMetrics(p.MetricsRegistry),
		fleetGauges: fleet.NewGaugeCollector(cluster, api), unservedNamespaces: fleet.NewUnservedNamespacesGauge(),
		durationMetrics: fleet.NewDurationMetrics(p.MetricsRegistry),
	}
	ctx, end := context.WithCancel(ctx)
	restored := make(chan error, 1)
	go func() {
		restored <- restores.AwaitRestore(ctx)
		end()
	}()
	if shards == nil {
		err = runElection(ctx, o, client, p.Logger, p.MetricsRegistry, func(ctx context.Context) error {
			return l.leadShard(ctx, name.Shard(0))
		})
	} else {
		leads := watch.NewLeaderGauge(p.MetricsRegistry)
		err = o.ClaimShards(ctx, client, p.Logger, claimed, targets, claims.Options{
			Role: claims.RoleBridge, Identity: o.identity,
			Serve:    func(ctx context.Context, number int) error { return l.leadShard(ctx, name.Shard(number)) },
			OnClaims: func(numbers []int) { setLeaderGauge(leads, numbers) },
		})
	}
	end()
	return errors.Join(err, <-restored)
}

// leader runs the bridge of a shard while this process leads the shard.
type leader struct {
	options
	process            *process.Process
	client             kubernetes.Interface
	temporal           client.Client
	cluster            *cache.Cluster
	clusterAPICache    *capi.Cache // nil: no objects of Cluster API are watched
	leases             typedcoordinationv1.LeaseInterface
	shards             *shard.Map // nil: the installation has one shard
	runningBridges     *runningBridges
	metrics            *watch.Metrics
	fleetGauges        prometheus.Collector
	unservedNamespaces *prometheus.GaugeVec
	durationMetrics    fleet.DurationMetrics
}

// leadShard runs the bridge of a shard until ctx ends.
func (l leader) leadShard(ctx context.Context, of run.Shard) error {
	b := watch.New(of, l.cluster, l.temporal, l.metrics, l.process.Logger)
	b.LimitToShard(l.shards)
	b.WatchClusterAPI(l.clusterAPICache)
	b.EnablePollerChecks(func(ctx context.Context, provider string) (int, error) {
		return taskqueue.CountPollers(
			ctx,
			l.temporal.WorkflowService(),
			l.Connection.Namespace,
			of.ProviderTaskQueue(provider),
			enumspb.TASK_QUEUE_TYPE_ACTIVITY,
		)
	})
	b.EnableOrphanSweeps(l.temporal.ScheduleClient(), l.orphanSweepPeriod)
	if l.HasTargetPerNamespace() {
		b.WatchTargetReports(l.client, l.LeaseNamespace)
	}
	if of.Number == 0 {
		stop, err := l.startSingletonTasks(ctx, b)
		if err != nil {
			return err
		}
		defer stop()
	}
	defer l.runningBridges.add(b)()
	return b.Run(ctx)
}

// startSingletonTasks starts the tasks that exactly one process of the installation runs: the process that leads shard
// 0. A sum of fleet metrics over all bridges would count each object several times.
func (l leader) startSingletonTasks(ctx context.Context, b *watch.Bridge) (stop func(), err error) {
	stopDurations, err := l.durationMetrics.WatchMachines(l.cluster)
	if err != nil {
		return nil, fmt.Errorf("watch durations: %w", err)
	}
	l.process.MetricsRegistry.MustRegister(l.fleetGauges)
	ctx, end := context.WithCancel(ctx)
	if l.shards != nil {
		go b.AssignNamespaces(ctx, l.client.CoreV1().ConfigMaps(l.LeaseNamespace), func() int {
			return servedShardCount(l.cluster.LeaseOfWorkers(l.LeaseNamespace), l.Shards.Count)
		})
		go renewLease(ctx, l.options, l.leases)
		l.process.MetricsRegistry.MustRegister(l.unservedNamespaces)
		go exportUnservedNamespaces(
			ctx,
			l.client.CoordinationV1().Leases(l.LeaseNamespace),
			l.unservedNamespaces,
			b.CountUnservedNamespaces,
		)
	}
	return func() {
		end()
		stopDurations()
		l.process.MetricsRegistry.Unregister(l.fleetGauges)
		l.process.MetricsRegistry.Unregister(l.unservedNamespaces)
	}, nil
}

// fillCaches fills the bridge's caches. For Secrets, the caches contain only metadata. api is nil if no Cluster API
// objects are watched.
func fillCaches(
	ctx context.Context,
	o options,
	config *rest.Config,
	restores *cache.RestoreDetector,
	claimed *shard.Claims,
	leading *runningBridges,
) (cluster *cache.Cluster, api *capi.Cache, targets *target.Registry, err error) {
	machines, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make client: %w", err)
	}
	shared, err := sharedTargetClient(o, restores)
	if err != nil {
		return nil, nil, nil, err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make client: %w", err)
	}
	cluster, err = cache.NewCluster(machines, shared, meta)
	if err != nil {
		return nil, nil, nil, err
	}
	cluster.WithoutSecretFinalizers = !o.guardSecrets
	o.rollout.ApplyToCluster(cluster)
	o.mcm.ApplyToCluster(cluster)
	client, err := process.NewKubernetesClient(config)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := o.scope.ApplyToCluster(cluster, client); err != nil {
		return nil, nil, nil, err
	}
	if err := cluster.WatchOtherControllers(client, o.ClusterName); err != nil {
		return nil, nil, nil, err
	}
	targets, err = o.SetUpTargets(client, cluster, claimed, userAgent, target.Options{
		NewClient: process.NewKubernetesClient, OnStatus: leading.handleTargetStatus,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if err := o.preflight.ApplyToCluster(cluster, config); err != nil {
		return nil, nil, nil, err
	}
	if api, err = o.clusterAPI.WatchClusterAPI(ctx, cluster, config); err != nil {
		return nil, nil, nil, err
	}
	if err := cluster.Start(ctx); err != nil || targets == nil {
		return cluster, api, targets, err
	}
	return cluster, api, targets, targets.Start(ctx)
}

// userAgent is the bridge's user agent in the logs of API servers.
const userAgent = "millwright-bridge"

// runningBridges are the bridges that run in this process now: one, or one for each shard that this process serves.
type runningBridges struct{ bridges sync.Map }

// add adds a bridge until remove is called.
func (l *runningBridges) add(b *watch.Bridge) (remove func()) {
	l.bridges.Store(b, nil)
	return func() { l.bridges.Delete(b) }
}

// handleTargetStatus wakes the machines of a namespace whose target is ready.
func (l *runningBridges) handleTargetStatus(namespace string, status cache.TargetStatus) {
	if status.State != cache.TargetReady {
		return
	}
	l.bridges.Range(func(b, _ any) bool {
		b.(*watch.Bridge).EvaluateMachines(namespace)
		return true
	})
}

// sharedTargetClient returns a client of the target cluster that all namespaces share, or nil if there is no such
// cluster.
func sharedTargetClient(o options, restores *cache.RestoreDetector) (kubernetes.Interface, error) {
	config, err := o.TargetClusterConfig(userAgent)
	if err != nil || config == nil {
		return nil, err
	}
	return process.NewKubernetesClient(restores.ConfigWithRestoreCheck(config))
}

// runElection runs a bridge while this process is the leader, until ctx ends or a bridge fails. Each term starts a new
// bridge, without state from the previous term. For a short time there may be two leaders: a workflow that is
// signaled twice decides twice, which is harmless.
func runElection(
	ctx context.Context,
	o options,
	client kubernetes.Interface,
	logger *slog.Logger,
	registry prometheus.Registerer,
	bridge func(context.Context) error,
) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	leading, leases := watch.NewLeaderGauge(
		registry,
	), annotatingLeaseClient{
		client.CoordinationV1(),
		o.ProblemRecorder,
		o.identity,
	}
	var failed error
	// locked while a bridge runs, because the election does not wait until the bridge of the last term has ended
	var term sync.Mutex
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &throttledLock{Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: leaseName, Namespace: o.LeaseNamespace},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.identity},
		}},
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Name:            leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				term.Lock()
				defer term.Unlock()
				logger.Info("leading", "identity", o.identity)
				leading.Set(1)
				defer leading.Set(0)
				if err := bridge(ctx); err != nil {
					failed = fmt.Errorf("run bridge: %w", err)
					stop() // otherwise a leader without a bridge would keep the Lease
				}
			},
			OnStoppedLeading: func() { logger.Info("not leading", "identity", o.identity) },
		},
	})
	if err != nil {
		return fmt.Errorf("join election: %w", err)
	}
	for ctx.Err() == nil {
		elector.Run(ctx) // Run returns when the Lease is lost
	}
	term.Lock() // wait until the last bridge has ended
	defer term.Unlock()
	return failed
}
