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
						end, given := ts.take(t.Context(), key, time.Hour)
						defer end()
						assert.True(t, given)
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
	t.Run("who waits for too long gets none, nor who is not wanted any more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var ts turns
			begun := time.Now()
			none := func(ctx context.Context, most time.Duration) {
				t.Helper()
				end, given := ts.take(ctx, "a", most)
				defer end()
				assert.False(t, given)
				assert.Equal(t, time.Second, time.Since(begun))
			}
			end, given := ts.take(t.Context(), "a", time.Second)
			assert.True(t, given)
			none(t.Context(), time.Second)
			none(t.Context(), 0)
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			none(gone, time.Hour)
			end()
			assert.Empty(t, ts.queues)
			end, given = ts.take(t.Context(), "a", time.Second)
			assert.True(t, given)
			end()
		})
	})
}
