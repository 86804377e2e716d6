package shard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Map is the current record of the shards. A wrong value in the record has no effect: the last value remains valid
// while the process runs, also if the record is deleted. The methods of a nil Map answer as those of an installation
// with one shard: all namespaces belong to shard 0. All methods are safe for concurrent use.
type Map struct {
	informer cache.SharedIndexInformer
	table    atomic.Pointer[Table]
	onError  func(error)

	mu            sync.Mutex
	handlers      map[int]func()
	nextHandlerID int
}

// NewMap returns a Map of the record in a namespace of the control cluster. onError gets each error in the record. Call
// Start once.
func NewMap(client kubernetes.Interface, namespace string, onError func(error)) *Map {
	m := &Map{onError: onError, handlers: map[int]func(){}}
	m.table.Store(&Table{})
	m.informer = informers.NewSharedInformerFactoryWithOptions(
		client, 0,
		informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, RecordName).String()
		}),
	).Core().V1().ConfigMaps().Informer()
	return m
}

// Start reads the record, and watches it until ctx ends. Start returns an error if ctx ends before the record is read.
func (m *Map) Start(ctx context.Context) error {
	registration, err := m.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { m.readRecord() },
		UpdateFunc: func(any, any) { m.readRecord() },
		DeleteFunc: func(any) { m.readRecord() },
	})
	if err != nil {
		return fmt.Errorf("watch ConfigMap %s: %w", RecordName, err)
	}
	go m.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("read ConfigMap %s: %w", RecordName, context.Cause(ctx))
	}
	return nil
}

// Record returns the ConfigMap of the record; nil if the ConfigMap does not exist.
func (m *Map) Record() *corev1.ConfigMap {
	for _, item := range m.informer.GetStore().List() {
		return item.(*corev1.ConfigMap)
	}
	return nil
}

func (m *Map) readRecord() {
	table, err := m.Table().readRecord(m.Record()) // only the goroutine of the informer calls read
	if err != nil {
		m.onError(err)
	}
	m.table.Store(&table)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, handle := range m.handlers {
		handle()
	}
}

// ShardOfNamespace returns the shard of a namespace. recorded is false if no shard serves the namespace yet.
func (m *Map) ShardOfNamespace(namespace string) (number int, recorded bool) {
	if m == nil {
		return 0, true
	}
	return m.table.Load().ShardOfNamespace(namespace)
}

// Table returns the current record.
func (m *Map) Table() Table { return *m.table.Load() }

// OnChange calls handle after each change of the record, until stop is called. handle must not wait.
func (m *Map) OnChange(handle func()) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := m.nextHandlerID
	m.nextHandlerID++
	m.handlers[id] = handle
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.handlers, id)
	}
}

// Claims are the shards that a process serves now. A nil Claims serves each namespace. All methods are safe for
// concurrent use.
type Claims struct {
	shardMap     *Map
	shardNumbers atomic.Pointer[[]int]
}

// NewClaims returns Claims without a shard; nil for a nil Map.
func NewClaims(shards *Map) *Claims {
	if shards == nil {
		return nil
	}
	c := &Claims{shardMap: shards}
	c.shardNumbers.Store(&[]int{})
	return c
}

// SetShardNumbers replaces the shards. The caller must not change the list afterwards.
func (c *Claims) SetShardNumbers(numbers []int) { c.shardNumbers.Store(&numbers) }

// OnChange calls handle after each change of the record; see Map.OnChange.
func (c *Claims) OnChange(handle func()) (stop func()) { return c.shardMap.OnChange(handle) }

// Serves reports whether a namespace belongs to one of the shards.
func (c *Claims) Serves(namespace string) bool {
	if c == nil {
		return true
	}
	number, recorded := c.shardMap.ShardOfNamespace(namespace)
	return recorded && slices.Contains(*c.shardNumbers.Load(), number)
}
