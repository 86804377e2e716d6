// Package main runs Millwright's worker: the process that carries out workflows and activities. It only wires: clients,
// caches, providers, task queues, metrics and health.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millwright/activities"
	"millwright/decide/drain"
	"millwright/observe"
	"millwright/process"
	"millwright/workflows"
)

// options are the flags of this process.
type options struct {
	process.Flags
	clusterName  string
	queues       string
	virtualcloud string
	adopt        bool
	guardSecrets bool
	tokenGroups  string
	exhausted    time.Duration
	draining     drain.Settings
	maxDrains    int
	cloudCalls   int
	preflight    process.PreflightFlags
	rollout      process.RolloutFlags
}

func main() {
	var o options
	o.Register(flag.CommandLine)
	o.preflight.Register(flag.CommandLine)
	o.rollout.Register(flag.CommandLine)
	flag.StringVar(&o.clusterName, "cluster-name", "", "name of this installation; instances carry it as a tag (required)")
	flag.StringVar(&o.queues, "queues", "machines,kubernetes,drains,provider-virtual", "task queues to serve, separated by commas")
	flag.StringVar(&o.virtualcloud, "virtualcloud-address", "", "URL of virtualcloud, for the queue provider-virtual")
	flag.BoolVar(&o.adopt, "adopt-before-create", true, "look for a machine's instance before making one; false only to see what happens then")
	flag.BoolVar(&o.guardSecrets, "guard-secrets", true, "put a finalizer on the Secrets that classes name, as long as they do; needs the rights to list, watch and patch Secrets")
	flag.StringVar(&o.tokenGroups, "bootstrap-token-auth-extra-groups", "", "groups that bootstrap tokens authenticate as besides system:bootstrappers, separated by commas")
	flag.DurationVar(&o.exhausted, "resource-exhausted-retry", activities.DefaultExhaustedRetry, "longest wait before a provider that had no capacity is asked again")
	flag.DurationVar(&o.draining.Detach, "pv-detach-timeout", activities.DefaultDetachTimeout, "how long a drain waits, beyond a pod's own grace period, until its volumes are detached")
	flag.DurationVar(&o.draining.Attach, "pv-reattach-timeout", activities.DefaultAttachTimeout, "how long a drain waits until the volumes of a pod are attached to another node, before the next pod goes")
	flag.BoolVar(&o.draining.Parallel, "drain-volumes-in-parallel", false, "let pods with volumes go at the same time when they share no StatefulSet, no disruption budget and no volume")
	flag.IntVar(&o.maxDrains, "max-drains", activities.DefaultMaxDrains, "nodes that are drained at a time, further ones wait for their turn; 0 means all")
	flag.IntVar(&o.cloudCalls, "max-cloud-calls", cloudCalls, "calls of each provider that this worker makes at a time, further ones wait; machines of one set let others pass once a quarter of so many are under way, so say the same to all workers")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// run serves the task queues until the process is told to stop; activities under way get time to finish.
func run(o options) error {
	if o.clusterName == "" {
		return errors.New("--cluster-name is required: instances of two installations must not be mixed up")
	}
	if o.cloudCalls < 1 {
		return fmt.Errorf("--max-cloud-calls is %d: at least one call has to be made", o.cloudCalls)
	}
	for group := range strings.SplitSeq(o.tokenGroups, ",") {
		if group != "" && !strings.HasPrefix(group, "system:bootstrappers:") {
			return fmt.Errorf("--bootstrap-token-auth-extra-groups: %q does not begin with system:bootstrappers:, and the API server takes no other", group)
		}
	}
	logger, err := o.Logger()
	if err != nil {
		return err
	}
	slog.SetDefault(logger)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	registry := process.NewRegistry()
	var started atomic.Bool
	ready := func() error {
		if !started.Load() {
			return errors.New("caches are not filled yet")
		}
		return nil
	}
	if err := o.Serve(ctx, registry, ready); err != nil {
		return err
	}
	clients, err := connect(o)
	if err != nil {
		return err
	}
	temporal, err := o.Temporal(ctx, logger, registry)
	if err != nil {
		return err
	}
	defer temporal.Close()
	cluster, err := watch(ctx, o, clients)
	if err != nil {
		return err
	}
	workers, err := serve(o, temporal, cluster, clients, registry)
	if err != nil {
		return err
	}
	started.Store(true)
	logger.Info("serving", "queues", o.queues)
	<-ctx.Done()
	var stopping sync.WaitGroup
	for _, w := range workers {
		stopping.Go(w.Stop) // each waits for its activities; all of them within one grace period
	}
	stopping.Wait()
	return nil
}

// watch fills the caches; nil when this worker needs none.
func watch(ctx context.Context, o options, clients clients) (*observe.Cluster, error) {
	if !o.servesCore() {
		return nil, nil
	}
	cluster, err := observe.NewCluster(clients.machines, clients.target, clients.metadata)
	if err != nil {
		return nil, err
	}
	if err := cluster.WatchDrains(); err != nil {
		return nil, err
	}
	o.rollout.Apply(cluster)
	if err := o.preflight.Watch(cluster, clients.config); err != nil {
		return nil, err
	}
	return cluster, cluster.Start(ctx)
}

// servesCore reports whether this worker decides and writes, besides calling clouds or instead of it. One that only calls a
// cloud needs no caches, and no right to list anything.
func (o *options) servesCore() bool {
	for queue := range strings.SplitSeq(o.queues, ",") {
		if queue == workflows.QueueMachines || queue == workflows.QueueKubernetes || queue == workflows.QueueDrains {
			return true
		}
	}
	return false
}
