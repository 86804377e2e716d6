package watch

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/v1alpha1"
	"millwright/observe/shard"
	"millwright/process/claims"
	"millwright/workflows/run"
)

// startLeaderOfShard makes the bridge of a shard the leader. The record of the shards has these namespaces.
func (w *bridgeTestEnv) startLeaderOfShard(number int, data map[string]string) (record func(data map[string]string)) {
	w.t.Helper()
	client := kubefake.NewClientset()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: shard.RecordName}, Data: data}
	require.NoError(w.t, client.Tracker().Add(configMap))
	shards := shard.NewMap(client, "default", func(err error) { require.NoError(w.t, err) })
	require.NoError(w.t, shards.Start(w.t.Context()))
	w.prepareBridge = func(b *Bridge) {
		b.shard.Number = number
		b.sweepScheduler.shard.Number = number
		b.LimitToShard(shards)
	}
	w.startLeader()
	w.runDebouncedWork()
	return func(data map[string]string) {
		changed := configMap.DeepCopy()
		changed.Data = data
		_, err := client.CoreV1().ConfigMaps("default").Update(w.t.Context(), changed, metav1.UpdateOptions{})
		require.NoError(w.t, err)
		w.runDebouncedWork()
	}
}

func TestABridgeSignalsOnlyTheNamespacesOfItsShard(t *testing.T) {
	m := changedCopy(testMachine(), setNotCreated)
	runBridgeTest(t, []runtime.Object{testClass(), m}, func(w *bridgeTestEnv) {
		w.takeCalls()
		record := w.startLeaderOfShard(1, map[string]string{"installation.shards": "2", "ns": "0"})
		assert.Empty(t, w.takeCalls(), "the namespace belongs to shard 0")
		w.putObject(changedCopy(m, func(m *v1alpha1.Machine) { m.Spec.Class.Name = "other" }))
		w.runDebouncedWork()
		assert.Empty(t, w.takeCalls())

		record(map[string]string{"installation.shards": "2", "ns": "1"})
		calls := w.takeCalls()
		require.NotEmpty(t, calls, "the namespace was moved to this shard")
		for _, c := range calls {
			assert.Equal(t, testInstallation.Shard(1).TaskQueue(run.QueueMachines), c.options.TaskQueue)
			if c.verb != "start" {
				assert.Equal(t, new(1), c.signalContent.Shard)
			}
		}

		record(map[string]string{"installation.shards": "2"})
		w.putObject(changedCopy(m, func(m *v1alpha1.Machine) { m.Spec.Class.Name = "third" }))
		w.runDebouncedWork()
		assert.Empty(t, w.takeCalls(), "a namespace without a shard waits")
	})
}

func TestShardZeroAssignsNewNamespacesToShards(t *testing.T) {
	runBridgeTest(t, []runtime.Object{testClass()}, func(w *bridgeTestEnv) {
		client := kubefake.NewClientset()
		shards := shard.NewMap(client, "default", func(err error) { require.NoError(t, err) })
		require.NoError(t, shards.Start(w.t.Context()))
		b := New(testInstallation.Shard(0), w.cluster, w.fakeTemporal, nil, slog.New(slog.DiscardHandler))
		b.LimitToShard(shards)
		defer b.evaluationQueue.ShutDown()
		defer b.sweepScheduler.queue.ShutDown()
		configMaps := client.CoreV1().ConfigMaps("default")
		for range 2 { // the second call finds nothing new
			require.NoError(t, b.assignNamespacesOnce(w.t.Context(), configMaps, 2))
			w.runDueWork()
			written, err := configMaps.Get(w.t.Context(), shard.RecordName, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, map[string]string{"installation.shards": "2", "ns": "0"}, written.Data)
		}
		writes := 0
		for _, a := range client.Actions() {
			if a.GetVerb() == "create" || a.GetVerb() == "update" {
				writes++
			}
		}
		assert.Equal(t, 1, writes)
	})
}

// A person may delete the record, or make a mistake in an entry: no namespace moves.
func TestShardZeroRestoresTheShardRecord(t *testing.T) {
	runBridgeTest(t, []runtime.Object{testClass()}, func(w *bridgeTestEnv) {
		right := map[string]string{"installation.shards": "3", "ns": "2"}
		record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: shard.RecordName}, Data: right}
		client := kubefake.NewClientset(record)
		shards := shard.NewMap(client, "default", func(error) {})
		require.NoError(t, shards.Start(w.t.Context()))
		b := New(testInstallation.Shard(0), w.cluster, w.fakeTemporal, nil, slog.New(slog.DiscardHandler))
		b.LimitToShard(shards)
		defer b.evaluationQueue.ShutDown()
		defer b.sweepScheduler.queue.ShutDown()
		configMaps := client.CoreV1().ConfigMaps("default")
		assertRestored := func() {
			t.Helper()
			w.runDueWork()
			require.NoError(t, b.assignNamespacesOnce(w.t.Context(), configMaps, 3))
			w.runDueWork()
			written, err := configMaps.Get(w.t.Context(), shard.RecordName, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, right, written.Data)
		}
		for _, wrong := range []string{"two", "3"} {
			changed := record.DeepCopy()
			changed.Data["ns"] = wrong
			_, err := configMaps.Update(w.t.Context(), changed, metav1.UpdateOptions{})
			require.NoError(t, err)
			assertRestored()
		}
		require.NoError(t, configMaps.Delete(w.t.Context(), shard.RecordName, metav1.DeleteOptions{}))
		assertRestored()
	})
}

// While an upgrade raises the number of shards, a namespace gets no shard that the workers do not serve yet.
func TestNewNamespacesWaitForWorkersOfAllShards(t *testing.T) {
	first, second := testClass(), testClass()
	second.Namespace = "other"
	runBridgeTest(t, []runtime.Object{first, second}, func(w *bridgeTestEnv) {
		client := kubefake.NewClientset()
		shards := shard.NewMap(client, "default", func(err error) { require.NoError(t, err) })
		require.NoError(t, shards.Start(w.t.Context()))
		b := New(testInstallation.Shard(0), w.cluster, w.fakeTemporal, nil, slog.New(slog.DiscardHandler))
		b.LimitToShard(shards)
		defer b.evaluationQueue.ShutDown()
		defer b.sweepScheduler.queue.ShutDown()
		configMaps := client.CoreV1().ConfigMaps("default")
		ctx, end := context.WithCancel(w.t.Context())
		defer end()
		var served atomic.Int32
		go b.AssignNamespaces(ctx, configMaps, func() int { return int(served.Load()) })
		time.Sleep(2 * shardAssignmentInterval)
		w.runDueWork()
		require.Nil(t, shards.Record(), "no worker has run")
		for _, step := range []struct {
			served int32
			data   map[string]string
		}{
			{1, map[string]string{"installation.shards": "1", "ns": "0", "other": "0"}},
			{2, map[string]string{"installation.shards": "2", "ns": "0", "other": "1"}},
			{4, map[string]string{"installation.shards": "4", "ns": "0", "other": "1"}},
		} {
			served.Store(step.served)
			time.Sleep(2 * shardAssignmentInterval)
			w.runDueWork()
			written, err := configMaps.Get(w.t.Context(), shard.RecordName, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, step.data, written.Data)
		}
	})
}

func TestNamespacesThatNobodyServesAreCounted(t *testing.T) {
	first, second, third := testClass(), testClass(), testClass()
	second.Namespace, third.Namespace = "other", "new"
	runBridgeTest(t, []runtime.Object{first, second, third}, func(w *bridgeTestEnv) {
		client := kubefake.NewClientset(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: shard.RecordName},
			Data:       map[string]string{"installation.shards": "2", "ns": "0", "other": "1"},
		})
		shards := shard.NewMap(client, "default", func(err error) { require.NoError(t, err) })
		require.NoError(t, shards.Start(w.t.Context()))
		b := New(testInstallation.Shard(0), w.cluster, w.fakeTemporal, nil, slog.New(slog.DiscardHandler))
		b.LimitToShard(shards)
		defer b.evaluationQueue.ShutDown()
		defer b.sweepScheduler.queue.ShutDown()
		both := map[int]string{0: "a", 1: "b"}
		type counts = map[claims.UnservedReason]int
		assert.Equal(t, counts{claims.ReasonNoShard: 1}, b.CountUnservedNamespaces(both, both))
		assert.Equal(
			t,
			counts{claims.ReasonNoShard: 1, claims.ReasonNoWorker: 1},
			b.CountUnservedNamespaces(map[int]string{0: "a"}, both),
		)
		assert.Equal(t, counts{claims.ReasonNoShard: 1, claims.ReasonNoWorker: 1, claims.ReasonNoBridge: 1},
			b.CountUnservedNamespaces(map[int]string{0: "a"}, map[int]string{0: "", 1: "b"}))
	})
}
