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
	"sync"
	"sync/atomic"
	"syscall"

	"k8s.io/client-go/kubernetes"

	"millwright/api/generated/clientset/versioned"
	"millwright/observe"
	"millwright/process"
)

// options are the flags of this process.
type options struct {
	process.Flags
	clusterName  string
	queues       string
	virtualcloud string
	adopt        bool
}

func main() {
	var o options
	o.Register(flag.CommandLine)
	flag.StringVar(&o.clusterName, "cluster-name", "", "name of this installation; instances carry it as a tag (required)")
	flag.StringVar(&o.queues, "queues", "machines,kubernetes,provider-virtual", "task queues to serve, separated by commas")
	flag.StringVar(&o.virtualcloud, "virtualcloud-address", "", "URL of virtualcloud, for the queue provider-virtual")
	flag.BoolVar(&o.adopt, "adopt-before-create", true, "look for a machine's instance before making one; false only to see what happens then")
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
	config, err := o.Kubernetes("millwright-worker")
	if err != nil {
		return err
	}
	machines, err := versioned.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	target, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	temporal, err := o.Temporal(ctx, logger, registry)
	if err != nil {
		return err
	}
	defer temporal.Close()
	cluster, err := observe.NewCluster(machines, target)
	if err != nil {
		return err
	}
	if err := cluster.Start(ctx); err != nil {
		return err
	}
	workers, err := serve(o, temporal, cluster, machines, target)
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
