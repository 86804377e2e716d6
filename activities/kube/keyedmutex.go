package kube

import (
	"context"
	"sync"
	"time"
)

// keyedMutex is a mutex per key, so at most one caller locks a key at a time. The zero keyedMutex is ready to use and
// safe for concurrent use.
type keyedMutex struct {
	mu     sync.Mutex
	queues map[string]*keyQueue
}

type keyQueue struct {
	slot    chan struct{} // the channel is full while a caller holds the key
	callers int           // number of callers that hold the key or wait for the key
}

// Lock waits until it can lock a key, but at most for the duration most, and returns the function that unlocks the key.
// On a timeout, or if ctx ends, locked is false and unlock does nothing.
func (t *keyedMutex) Lock(ctx context.Context, key string, most time.Duration) (unlock func(), locked bool) {
	q := t.joinQueue(key)
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case q.slot <- struct{}{}:
		return func() { <-q.slot; t.leaveQueue(key) }, true
	case <-ctx.Done():
		t.leaveQueue(key)
		return func() {}, false
	}
}

func (t *keyedMutex) joinQueue(key string) *keyQueue {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queues == nil {
		t.queues = map[string]*keyQueue{}
	}
	q := t.queues[key]
	if q == nil {
		q = &keyQueue{slot: make(chan struct{}, 1)}
		t.queues[key] = q
	}
	q.callers++
	return q
}

func (t *keyedMutex) leaveQueue(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.queues[key]; q.callers > 1 {
		q.callers--
	} else {
		delete(t.queues, key)
	}
}
