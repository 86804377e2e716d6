package kube

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestKeyedMutex(t *testing.T) {
	t.Run("one caller at a time for each key; nothing is left behind", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var m keyedMutex
			var now, most atomic.Int32
			var group sync.WaitGroup
			begun := time.Now()
			for range 10 {
				for _, key := range []string{"a", "b"} {
					group.Go(func() {
						unlock, locked := m.Lock(t.Context(), key, time.Hour)
						defer unlock()
						assert.True(t, locked)
						most.Store(max(most.Load(), now.Add(1)))
						time.Sleep(time.Second)
						now.Add(-1)
					})
				}
			}
			group.Wait()
			assert.Equal(t, 10*time.Second, time.Since(begun))
			assert.EqualValues(t, 2, most.Load())
			assert.Empty(t, m.queues)
		})
	})
	t.Run("gives up when the time is over or the context ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var m keyedMutex
			begun := time.Now()
			none := func(ctx context.Context, most time.Duration) {
				t.Helper()
				unlock, locked := m.Lock(ctx, "a", most)
				defer unlock()
				assert.False(t, locked)
				assert.Equal(t, time.Second, time.Since(begun))
			}
			unlock, locked := m.Lock(t.Context(), "a", time.Second)
			assert.True(t, locked)
			none(t.Context(), time.Second)
			none(t.Context(), 0)
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			none(gone, time.Hour)
			unlock()
			assert.Empty(t, m.queues)
			unlock, locked = m.Lock(t.Context(), "a", time.Second)
			assert.True(t, locked)
			unlock()
		})
	})
}
