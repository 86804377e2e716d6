package activities

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTurns(t *testing.T) {
	t.Run("one after the other, each key by itself; nothing is left behind", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var ts turns
			var now, most atomic.Int32
			var group sync.WaitGroup
			begun := time.Now()
			for range 10 {
				for _, key := range []string{"a", "b"} {
					group.Go(func() {
						defer ts.take(t.Context(), key, time.Hour)()
						most.Store(max(most.Load(), now.Add(1)))
						time.Sleep(time.Second)
						now.Add(-1)
					})
				}
			}
			group.Wait()
			assert.Equal(t, 10*time.Second, time.Since(begun))
			assert.EqualValues(t, 2, most.Load())
			assert.Empty(t, ts.queues)
		})
	})
	t.Run("who waits for too long goes without, and so does who is not wanted any more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var ts turns
			end, begun := ts.take(t.Context(), "a", time.Second), time.Now()
			ts.take(t.Context(), "a", time.Second)()
			assert.Equal(t, time.Second, time.Since(begun))
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			ts.take(gone, "a", time.Hour)()
			assert.Equal(t, time.Second, time.Since(begun))
			end()
			assert.Empty(t, ts.queues)
			ts.take(t.Context(), "a", time.Second)()
			assert.Equal(t, time.Second, time.Since(begun))
		})
	})
}
