package kube

import (
	"context"
	"sync"
	"time"
)

// keyedMutex is a mutex for each key: at most one caller holds a key at a time. The zero value is ready, and safe for
// concurrent use.
type keyedMutex struct {
	mu     sync.Mutex
	queues map[string]*queue
}

type queue struct {
	slot    chan struct{} // full while a caller holds the key
	callers int           // that hold the key or wait for it
}

// Lock waits for a key, for most at the longest, and returns the function that unlocks it. When that time is over or
// ctx ends, locked is false, and unlock does nothing.
func (t *keyedMutex) Lock(ctx context.Context, key string, most time.Duration) (unlock func(), locked bool) {
	q := t.join(key)
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case q.slot <- struct{}{}:
		return func() { <-q.slot; t.leave(key) }, true
	case <-ctx.Done():
		t.leave(key)
		return func() {}, false
	}
}

func (t *keyedMutex) join(key string) *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queues == nil {
		t.queues = map[string]*queue{}
	}
	q := t.queues[key]
	if q == nil {
		q = &queue{slot: make(chan struct{}, 1)}
		t.queues[key] = q
	}
	q.callers++
	return q
}

func (t *keyedMutex) leave(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.queues[key]; q.callers > 1 {
		q.callers--
	} else {
		delete(t.queues, key)
	}
}
