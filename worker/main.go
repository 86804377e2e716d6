// Package main runs Millwright's worker, which executes workflows and activities. Package main only connects other
// packages: clients, caches, providers, task queues, metrics and health.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	activitiesdrain "millwright/activities/drain"
	"millwright/activities/kube"
	"millwright/decide/drain"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/shard"
	"millwright/observe/target"
	"millwright/process"
	"millwright/process/commandline"
	"millwright/process/problems"
	"millwright/worker/serve"
	"millwright/workflows/run"
)

// options are the flags of the worker.
type options struct {
	process.Flags
	formerInstallationName string
	queueList              string
	virtualCloudAddress    string
	adoptsBeforeCreate     bool
	setsSecretFinalizers   bool
	bootstrapTokenGroups   string
	drainSettings          drain.Settings
	maxDrains              int
	cloud                  serve.CloudFlags
	preflight              process.PreflightFlags
	rollout                process.RolloutFlags
	mcm                    process.MCMFlags
	scope                  process.ScopeFlags
	clusterAPI             process.ClusterAPIFlags
}

func main() {
	commandline.Main(newCommand())
}

func newCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:     "worker",
		Short:   "Run Millwright's workflows and activities: serve task queues of Temporal",
		Version: commandline.Version(),
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return runWorker(c.Context(), o) },
	}
	set := c.Flags()
	o.Register(set)
	o.preflight.Register(set)
	o.rollout.Register(set)
	o.mcm.Register(set)
	o.scope.Register(set)
	o.clusterAPI.Register(set)
	o.cloud.Register(set)
	set.StringVar(
		&o.formerInstallationName,
		"accept-new-cluster-name",
		"",
		"former value of --cluster-name, if it was changed on purpose: the worker starts although the Lease of the workers has that name; give all instances the new name as their tag first, or Millwright takes them for gone",
	)
	set.StringVar(
		&o.queueList,
		"queues",
		"machines,kubernetes,drains,provider-virtual",
		"task queues that this worker polls, separated by commas",
	)
	set.StringVar(
		&o.virtualCloudAddress,
		"virtualcloud-address",
		"",
		"URL of the virtual cloud; required when --queues has provider-virtual",
	)
	set.BoolVar(
		&o.adoptsBeforeCreate,
		"adopt-before-create",
		true,
		"before a create call, search the cloud for an instance that has the machine's UID; false only in tests: it can create two instances for one machine",
	)
	set.BoolVar(
		&o.setsSecretFinalizers,
		"guard-secrets",
		true,
		"put a finalizer on each Secret that a MachineClass names; requires the rights to list, watch and patch Secrets; set the same value on worker and bridge",
	)
	set.StringVar(
		&o.bootstrapTokenGroups,
		"bootstrap-token-auth-extra-groups",
		"",
		"additional groups of bootstrap tokens, separated by commas; each must begin with system:bootstrappers:",
	)
	set.DurationVar(
		&o.drainSettings.Detach,
		"pv-detach-timeout",
		kube.DefaultDetachTimeout,
		"how long a drain waits until the volumes of an evicted pod are detached from the node; also the longest time of the stage Detach of a deletion",
	)
	set.DurationVar(
		&o.drainSettings.Attach,
		"pv-reattach-timeout",
		kube.DefaultAttachTimeout,
		"how long the drain waits until the volumes of an evicted pod are attached to another node, before it evicts the next pod with volumes",
	)
	set.BoolVar(
		&o.drainSettings.Parallel,
		"drain-volumes-in-parallel",
		false,
		"evict pods with volumes in parallel if they share no StatefulSet, no PodDisruptionBudget and no volume",
	)
	set.IntVar(
		&o.maxDrains,
		"max-drains",
		activitiesdrain.DefaultMaxConcurrentDrains,
		"largest number of nodes of a target cluster that are drained at the same time; other drains are queued; 0 means no limit",
	)
	return c
}

// runWorker polls the task queues until ctx is done. When ctx is done, running activities get time to finish.
func runWorker(ctx context.Context, o options) error {
	name, err := o.Installation()
	if err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	p, err := o.Start(ctx)
	if err != nil {
		return err
	}
	restores := cache.NewRestoreDetector()
	clients, err := newClients(o, restores)
	if err != nil {
		return err
	}
	here, err := newCheckedLeaseRenewer(ctx, o, name, clients, p)
	if err != nil {
		return err
	}
	starting, started := context.WithCancel(ctx)
	defer started()
	if here != nil {
		go problems.CallPeriodically(starting, here.writeProblems)
	}
	temporal, err := o.ConnectTemporal(ctx, p.Logger, p.MetricsRegistry)
	if err != nil {
		return err
	}
	defer temporal.Close()
	if err := process.ClaimInstallation(ctx, name, temporal, clients.control, p.Logger); err != nil {
		return err
	}
	reporter := newTargetReporter(clients.control.CoreV1().ConfigMaps(o.LeaseNamespace), process.Identity(), p.Logger)
	if o.HasTargetPerNamespace() {
		p.MetricsRegistry.MustRegister(reporter.targetsGauge)
	}
	filled, err := fillCaches(ctx, o, clients, reporter, p.Logger)
	if err != nil {
		return err
	}
	fatal := serve.NewFatalErrorStore()
	if here != nil {
		here.setDependencies(temporal, o.Connection.Namespace, filled.cluster)
		if err := here.renewForTheFirstTime(ctx); err != nil {
			return err
		}
		started()
		go here.keepRenewingLeaseOrFail(ctx, fatal)
		go func() {
			if err := restores.AwaitRestore(ctx); err != nil {
				fatal.StoreFirstError(err)
			}
		}()
	}
	server, err := newServer(ctx, o, name, temporal, filled, clients, p.MetricsRegistry, fatal)
	if err != nil {
		return err
	}
	return server.run(ctx, filled, clients.control, p.Logger, func() {
		p.MarkReady(temporal)
		p.Logger.Info("serving", "installation", name, "queues", o.queueList)
	})
}

// validate returns an error if a flag has an invalid value.
func (o *options) validate() error {
	for group := range strings.SplitSeq(o.bootstrapTokenGroups, ",") {
		if group != "" && !strings.HasPrefix(group, "system:bootstrappers:") {
			return fmt.Errorf(
				"--bootstrap-token-auth-extra-groups: %q does not begin with system:bootstrappers:, and the API server takes no other",
				group,
			)
		}
	}
	if _, err := o.Shards.AllowedShards(); err != nil {
		return err
	}
	return o.cloud.Check()
}

// newCheckedLeaseRenewer returns the Lease renewer of this worker. It returns an error if the workers of this control
// cluster used another installation name. If the worker polls no core queue, it has no Lease, and
// newCheckedLeaseRenewer returns nil.
func newCheckedLeaseRenewer(
	ctx context.Context,
	o options,
	name run.Installation,
	clients clients,
	p *process.Process,
) (*workersLeaseRenewer, error) {
	if !o.servesCoreQueues() {
		return nil, nil
	}
	leases := clients.control.CoordinationV1().Leases(o.LeaseNamespace)
	here := newWorkersLeaseRenewer(
		leases,
		name,
		run.Installation(o.formerInstallationName),
		o.Shards.Count,
		serve.NewHeartbeatGauge(p.MetricsRegistry),
		o.ProblemRecorder,
		p.Logger,
	)
	return here, here.checkInstallation(ctx)
}

// caches are the caches that a worker of the core queues reads for its decisions.
type caches struct {
	cluster       *cache.Cluster // caches of the clusters; nil: the worker needs no caches
	clusterAPI    *capi.Cache    // caches of Cluster API; nil if Millwright reconciles no objects of Cluster API
	shards        *shard.Map     // record of the shards; nil if the installation has one shard
	claimedShards *shard.Claims  // shards that this process serves; nil if the installation has one shard
	targets       *target.Registry
}

// fillCaches fills the caches. fillCaches returns zero caches if the worker needs no caches.
func fillCaches(
	ctx context.Context,
	o options,
	clients clients,
	reporter *targetReporter,
	log *slog.Logger,
) (none caches, err error) {
	if !o.servesCoreQueues() {
		return none, nil
	}
	shards, err := o.WatchShards(ctx, clients.control, log)
	if err != nil {
		return none, err
	}
	cluster, err := cache.NewCluster(clients.machines, clients.target, clients.metadata)
	if err != nil {
		return none, err
	}
	o.rollout.ApplyToCluster(cluster)
	o.mcm.ApplyToCluster(cluster)
	if err := o.scope.ApplyToCluster(cluster, clients.control); err != nil {
		return none, err
	}
	claimed := shard.NewClaims(shards)
	targets, err := o.SetUpTargets(clients.control, cluster, claimed, userAgent, target.Options{
		NewClient: newDrainClient, DrainsNodes: true, OnStatus: reporter.recordStatus, OnTargetEnd: reporter.forgetTarget,
	})
	if err != nil {
		return none, err
	}
	if err := cluster.WatchDrainResources(); err != nil {
		return none, err
	}
	if err := cluster.WatchOtherControllers(clients.control, o.ClusterName); err != nil {
		return none, err
	}
	if err := o.preflight.ApplyToCluster(cluster, clients.config); err != nil {
		return none, err
	}
	api, err := o.clusterAPI.WatchClusterAPI(ctx, cluster, clients.config)
	if err != nil {
		return none, err
	}
	if api != nil {
		if err := api.WatchDrainRules(); err != nil {
			return none, err
		}
	}
	if err := cluster.Start(ctx); err != nil {
		return none, err
	}
	if targets != nil {
		if err := targets.Start(ctx); err != nil {
			return none, err
		}
		go reporter.run(ctx)
	}
	cluster.OnActiveController(newOtherControllerWarningFunc(cluster, clients.events))
	return caches{cluster, api, shards, claimed, targets}, nil
}

// servesCoreQueues reports whether the worker polls a task queue of workflows or of cluster activities. A worker that
// only calls a cloud needs no caches and no permission to list objects.
func (o *options) servesCoreQueues() bool {
	return slices.ContainsFunc(strings.Split(o.queueList, ","), isCoreQueue)
}

func isCoreQueue(queue string) bool {
	return queue == run.QueueMachines || queue == run.QueueKubernetes || queue == run.QueueDrains
}
