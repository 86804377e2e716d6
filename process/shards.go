package process

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"

	"millwright/api/v1alpha1"
	"millwright/observe/shard"
	"millwright/observe/target"
	"millwright/process/claims"
)

// ShardFlags say how many shards the installation has, and which of them this process serves.
type ShardFlags struct {
	Count             int
	allowedShardsText string
}

// register adds the flags to a set.
func (f *ShardFlags) register(set *pflag.FlagSet) {
	set.IntVar(
		&f.Count,
		"shards",
		1,
		"number of shards: parts of the installation whose namespaces have their own task queues and are served by workers and bridges that share the shards; the number can grow, but not decrease; set the same value on worker, bridge and workers of providers",
	)
	set.StringVar(
		&f.allowedShardsText,
		"serve-shards",
		"",
		"numbers of the shards that this process may serve, separated by commas, for example to try a release on one shard; other processes then leave these shards to it while it runs; empty means all shards",
	)
}

// HasSeveralShards reports whether the installation has more than one shard.
func (f *ShardFlags) HasSeveralShards() bool { return f.Count > 1 }

// AllowedShards returns the shards that this process may serve, or an error that names an invalid flag. Empty: all
// shards.
func (f *ShardFlags) AllowedShards() (shards []int, err error) {
	if f.Count < 1 || f.Count > shard.MaxCount {
		return nil, fmt.Errorf("--shards: %d is no number from 1 to %d", f.Count, shard.MaxCount)
	}
	if f.allowedShardsText == "" {
		return nil, nil
	}
	if !f.HasSeveralShards() {
		return nil, fmt.Errorf("--serve-shards: it has no effect without --shards")
	}
	for text := range strings.SplitSeq(f.allowedShardsText, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 0 || n >= f.Count {
			return nil, fmt.Errorf("--serve-shards: %q is no number from 0 to %d", text, f.Count-1)
		}
		shards = append(shards, n)
	}
	return shards, nil
}

// ServedShards returns the shards that a process without Leases serves: those of --serve-shards, or all shards.
func (f *ShardFlags) ServedShards() ([]int, error) {
	only, err := f.AllowedShards()
	if err != nil || len(only) > 0 {
		return only, err
	}
	for n := range f.Count {
		only = append(only, n)
	}
	return only, nil
}

// WatchShards reads the record of the shards, and watches it until ctx ends. WatchShards returns nil if the
// installation has one shard.
func (f *Flags) WatchShards(ctx context.Context, client kubernetes.Interface, log *slog.Logger) (*shard.Map, error) {
	if !f.Shards.HasSeveralShards() {
		return nil, nil
	}
	shards := shard.NewMap(
		client,
		f.LeaseNamespace,
		func(err error) { log.Warn("the record of the shards is wrong", "error", err) },
	)
	if err := shards.Start(ctx); err != nil {
		return nil, err
	}
	return shards, nil
}

// ClaimShards claims shards by Leases and serves them until ctx ends or the service of a shard fails; see claims.Run.
// The options' fields Role, Identity, Serve and OnClaims are used. claimed gets the claimed shards. targets, which may
// be nil, connects to the targets of the namespaces in these shards.
func (f *Flags) ClaimShards(
	ctx context.Context,
	client kubernetes.Interface,
	log *slog.Logger,
	claimed *shard.Claims,
	targets *target.Registry,
	o claims.Options,
) (err error) {
	if o.AllowedShards, err = f.Shards.AllowedShards(); err != nil {
		return err
	}
	refresh := func() {
		if targets != nil {
			targets.RefreshConnections()
		}
	}
	defer claimed.OnChange(func() { go refresh() })()
	onClaims := o.OnClaims
	o.OnClaims = func(numbers []int) {
		if claimed.SetShardNumbers(numbers); onClaims != nil {
			onClaims(numbers)
		}
		go refresh()
	}
	o.Client, o.Namespace, o.ShardCount, o.Log = client, f.LeaseNamespace, f.Shards.Count, log
	return claims.Run(ctx, o)
}

// FewerShardsError means that --shards is smaller than the number of shards of the installation.
type FewerShardsError struct{ RecordedCount, RequestedCount int }

func (e *FewerShardsError) Error() string {
	return fmt.Sprintf(
		"--shards=%d: the workers of this installation have served %d shards, and the number cannot decrease, because nobody would serve the namespaces of the other shards",
		e.RequestedCount,
		e.RecordedCount,
	)
}

// RecordedShardCount returns the number of shards in the Lease of the workers; 1 if the Lease is nil or has no number.
func RecordedShardCount(lease *coordinationv1.Lease) int {
	if lease == nil {
		return 1
	}
	recorded, err := strconv.Atoi(lease.Annotations[v1alpha1.AnnotationShards])
	if err != nil {
		return 1
	}
	return recorded
}

// CheckShardCount returns a FewerShardsError if the installation has more shards than --shards. lease is the Lease of
// the workers; nil if no worker has run.
func CheckShardCount(lease *coordinationv1.Lease, flag int) error {
	if recorded := RecordedShardCount(lease); recorded > max(flag, 1) {
		return &FewerShardsError{RecordedCount: recorded, RequestedCount: flag}
	}
	return nil
}
