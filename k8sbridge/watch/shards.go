package watch

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"millwright/observe/shard"
	"millwright/process/claims"
)

// LimitToShard limits the bridge to the namespaces of its shard. Call LimitToShard before Run.
func (b *Bridge) LimitToShard(shards *shard.Map) { b.shards = shards }

// servesNamespace reports whether a namespace belongs to the shard of this bridge.
func (b *Bridge) servesNamespace(namespace string) bool {
	number, recorded := b.shards.ShardOfNamespace(namespace)
	return recorded && number == b.shard.Number
}

// endsRunsOfDeletedObjects reports whether this bridge ends the runs of deleted objects in a namespace. Shard 0 serves
// the namespaces without a recorded shard, because a namespace loses its shard with its last object.
func (b *Bridge) endsRunsOfDeletedObjects(namespace string) bool {
	_, recorded := b.shards.ShardOfNamespace(namespace)
	return b.servesNamespace(namespace) || !recorded && b.shard.Number == 0
}

// shardNumberForSignals returns the number of the shard; nil if the installation has one shard.
func (b *Bridge) shardNumberForSignals() *int {
	if b.shards == nil {
		return nil
	}
	return &b.shard.Number
}

// watchShards makes the bridge evaluate the objects of each namespace that is moved to its shard, until stop is called.
func (b *Bridge) watchShards() (stop func()) {
	if b.shards == nil {
		return func() {}
	}
	return b.shards.OnChange(func() {
		select {
		case b.shardChanges <- struct{}{}:
		default:
		}
	})
}

// evaluateNewNamespaces evaluates the objects of the namespaces that were not in known, and returns the namespaces of
// the shard. A nil known means that all objects were evaluated.
func (b *Bridge) evaluateNewNamespaces(known map[string]bool) map[string]bool {
	if b.shards == nil {
		return nil
	}
	now := map[string]bool{}
	for _, namespace := range b.shards.Table().NamespacesOfShard(b.shard.Number) {
		now[namespace] = true
	}
	if known == nil {
		return now
	}
	b.forEachObject(func(k objectKey) bool {
		if !known[k.namespace] {
			b.enqueue(k, signalRequest{}, 0)
		}
		return true
	})
	b.sweepScheduler.enqueueAllChecks()
	return now
}

// shardAssignmentInterval is the interval at which new namespaces get a shard. A check that finds none sends no
// request. Source: a person who creates the first object of a namespace does not notice the delay.
const shardAssignmentInterval = 2 * time.Second

// AssignNamespaces records a shard for each namespace that has objects, until ctx ends. If the record is deleted,
// AssignNamespaces writes the same shards again. Only one process of an installation may call it at a time; a second
// one causes conflicts, and no harm. configMaps are those of the namespace of the record. served returns the number of
// shards that the workers serve: a namespace in another shard would wait. While served returns 0, nothing is recorded.
func (b *Bridge) AssignNamespaces(ctx context.Context, configMaps typedcorev1.ConfigMapInterface, served func() int) {
	last := 0
	for {
		count := served()
		if count != last {
			b.log.Info("new namespaces are distributed over the shards that the workers serve", "shards", count)
			last = count
		}
		if err := b.assignNamespacesOnce(ctx, configMaps, count); err != nil && ctx.Err() == nil {
			b.log.Warn("new namespaces have no shard yet, will try again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(shardAssignmentInterval):
		}
	}
}

// namespacesWithObjects returns the namespaces that have objects on which the bridge acts, in any order.
func (b *Bridge) namespacesWithObjects() []string {
	seen := map[string]bool{}
	for kind, informer := range b.informersByKind() {
		for _, id := range informer.GetStore().ListKeys() {
			if namespace, _, err := cache.SplitMetaNamespaceKey(id); err == nil && !seen[namespace] {
				seen[namespace] = b.actsOnNamespace(kind, namespace)
			}
		}
	}
	maps.DeleteFunc(seen, func(_ string, acts bool) bool { return !acts })
	return slices.Collect(maps.Keys(seen))
}

// CountUnservedNamespaces counts the namespaces with objects that nobody serves, by reason. workers and bridges are the
// live holders of the shards. Call LimitToShard before CountUnservedNamespaces.
func (b *Bridge) CountUnservedNamespaces(workers, bridges map[int]string) map[claims.UnservedReason]int {
	counts := map[claims.UnservedReason]int{}
	for _, namespace := range b.namespacesWithObjects() {
		number, recorded := b.shards.ShardOfNamespace(namespace)
		counts[claims.DecideUnservedReason(number, recorded, workers, bridges)]++
	}
	delete(counts, claims.ReasonNone)
	return counts
}

func (b *Bridge) assignNamespacesOnce(ctx context.Context, configMaps typedcorev1.ConfigMapInterface, count int) error {
	if count == 0 {
		return nil
	}
	data, record := b.shards.Table().AssignNamespaces(count, b.namespacesWithObjects()), b.shards.Record()
	if record != nil && maps.Equal(record.Data, data) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, shardRecordWriteTimeout)
	defer cancel()
	if record == nil {
		record = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: shard.RecordName}, Data: data}
		_, err := configMaps.Create(ctx, record, metav1.CreateOptions{})
		return err
	}
	record = record.DeepCopy()
	record.Data = data
	_, err := configMaps.Update(ctx, record, metav1.UpdateOptions{}) // with the version that the decision saw
	return err
}

// shardRecordWriteTimeout is the timeout of one write of the record.
const shardRecordWriteTimeout = 10 * time.Second
