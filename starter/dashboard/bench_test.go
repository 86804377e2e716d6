package dashboard

import (
	"bytes"
	"encoding/json"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
)

// heapInUse returns the bytes of the objects that are alive.
func heapInUse() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // the first run only finalizes what it finds
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// largeFleet is a fleet of 300 namespaces with 10,000 machines in caches as the server has them.
type largeFleet struct {
	stores    []cache.Store
	heapBytes uint64 // bytes of the heap that the caches and a model keep
}

func newLargeFleet(t testing.TB) *largeFleet {
	t.Helper()
	l := &largeFleet{}
	for range 3 {
		l.stores = append(l.stores, cache.NewStore(cache.MetaNamespaceKeyFunc))
	}
	pools := manyClusters()
	before := heapInUse()
	for _, pool := range pools {
		for _, o := range pool.objects() {
			switch o := o.(type) {
			case *v1alpha1.Machine:
				addCopy(t, l.stores[0], o)
			case *v1alpha1.MachineSet:
				addCopy(t, l.stores[1], o)
			case *v1alpha1.MachineDeployment:
				addCopy(t, l.stores[2], o)
			}
		}
	}
	f := l.model()
	if after := heapInUse(); after > before {
		l.heapBytes = after - before
	}
	runtime.KeepAlive(pools)
	runtime.KeepAlive(f)
	return l
}

// addCopy adds what a cache keeps of an object. The object is decoded from JSON, as from the API server, so that no text
// is shared with the builder.
func addCopy[T any](t testing.TB, to cache.Store, o *T) {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	decoded := new(T)
	require.NoError(t, json.Unmarshal(text, decoded))
	short, err := cacheNative(decoded)
	require.NoError(t, err)
	require.NoError(t, to.Add(short))
}

func (l *largeFleet) model() *fleet {
	s := snapshot{now: now}
	for _, store := range l.stores {
		for _, object := range store.List() {
			s.addObject(object)
		}
	}
	return buildFleet(s)
}

// page makes the overview, and returns the number of its bytes.
func (l *largeFleet) page(t testing.TB, r *renderer) (f *fleet, size int) {
	t.Helper()
	f = l.model()
	var page bytes.Buffer
	require.NoError(t, r.render(&page, view{Clock: "now", Overview: f.overview(query{page: 1})}, false))
	return f, page.Len()
}

// BenchmarkOverview makes the overview of 300 namespaces with 10,000 machines, from the objects in the caches to the
// HTML. It reports the bytes of HTML, and the bytes of the heap that the caches and the model keep.
func BenchmarkOverview(b *testing.B) {
	r, err := newRenderer()
	require.NoError(b, err)
	l := newLargeFleet(b)
	var f *fleet
	var size int
	b.ReportAllocs()
	for b.Loop() {
		f, size = l.page(b, r)
	}
	b.ReportMetric(float64(size), "html-bytes")
	b.ReportMetric(float64(l.heapBytes), "heap-bytes")
	b.ReportMetric(float64(len(f.clusters)), "namespaces")
	b.ReportMetric(float64(len(f.machines)), "machines")
}

// The overview of a large fleet is small, and so is what the server keeps of it.
func TestLargeFleetIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 10,000 machines")
	}
	r, err := newRenderer()
	require.NoError(t, err)
	l := newLargeFleet(t)
	f, size := l.page(t, r)
	assert.Len(t, f.clusters, 300)
	assert.GreaterOrEqual(t, len(f.machines), 10_000)
	assert.Less(t, size, 300_000)
	assert.Less(t, l.heapBytes, uint64(50<<20))
}
