package main

import (
	"context"
	"errors"
	"log/slog"

	"go.temporal.io/sdk/worker"
	"k8s.io/client-go/kubernetes"

	"millwright/process"
	"millwright/process/claims"
	"millwright/worker/serve"
)

// run serves the task queues until ctx is done or an SDK worker fails. In an installation with several shards, a worker
// of core queues claims shards by Leases. A worker that only calls a cloud serves all its shards at once. run calls
// ready before run waits.
func (s *server) run(
	ctx context.Context,
	in caches,
	control kubernetes.Interface,
	log *slog.Logger,
	ready func(),
) error {
	if in.claimedShards != nil {
		ready()
		return s.claimAndServeShards(ctx, in, control, log)
	}
	shards, err := s.Shards.ServedShards()
	if err != nil {
		return err
	}
	var workers []worker.Worker
	for _, number := range shards {
		started, err := s.startWorkers(s.installation.Shard(number))
		workers = append(workers, started...)
		if err != nil {
			serve.StopWorkers(workers)
			return err
		}
	}
	ready()
	return serve.WaitAndStopWorkers(ctx, workers, s.fatalErrors)
}

// claimAndServeShards claims shards and serves them until ctx is done or an SDK worker fails.
func (s *server) claimAndServeShards(
	ctx context.Context,
	in caches,
	control kubernetes.Interface,
	log *slog.Logger,
) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-ctx.Done():
		case err := <-s.fatalErrors:
			stop(err)
		}
	}()
	err := s.ClaimShards(ctx, control, log, in.claimedShards, in.targets, claims.Options{
		Role: claims.RoleWorker, Identity: process.Identity(), Serve: s.serveShard,
	})
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}
