package main

import (
	"context"

	"k8s.io/client-go/kubernetes"

	"millwright/k8sbridge/watch"
	"millwright/observe/shard"
	"millwright/observe/target"
	"millwright/process"
	"millwright/process/claims"
)

// claimShards runs a bridge for each shard that this process claims, until ctx ends or a bridge fails.
func claimShards(
	ctx context.Context,
	o options,
	client kubernetes.Interface,
	p *process.Process,
	shards *shard.Map,
	claimed *shard.Claimed,
	targets *target.Registry,
	bridge func(ctx context.Context, number int) error,
) error {
	only, err := o.Shards.Only()
	if err != nil {
		return err
	}
	leads := watch.NewLeadingGauge(p.Registry)
	refresh := func() {
		if targets != nil {
			targets.Refresh()
		}
	}
	defer shards.OnChange(func() { go refresh() })()
	return claims.Run(ctx, claims.Options{
		Client: client, Namespace: o.LeaseNamespace, Role: "bridge", Identity: o.identity,
		Count: o.Shards.Count, Only: only, Log: p.Logger,
		Serve: bridge,
		OnClaims: func(numbers []int) {
			leads.Set(float64(min(len(numbers), 1)))
			claimed.Set(numbers)
			go refresh()
		},
	})
}
