package activities

import (
	"context"
	"sync"
	"time"
)

// turns lets requests that contend for one thing go one after the other. The zero value is ready for use, by many at once.
type turns struct {
	mu     sync.Mutex
	queues map[string]*queue
}

type queue struct {
	slot    chan struct{} // full while somebody has the turn
	members int           // who has the turn, and who waits for it
}

// take waits for the turn of a key, and returns what ends it. It is not given when somebody else has it for as long as most, or when
// ctx ends.
func (t *turns) take(ctx context.Context, key string, most time.Duration) (end func(), given bool) {
	q := t.join(key)
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case q.slot <- struct{}{}:
		return func() { <-q.slot; t.leave(key) }, true
	case <-ctx.Done():
	case <-timer.C:
	}
	t.leave(key)
	return func() {}, false
}

func (t *turns) join(key string) *queue {
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
	q.members++
	return q
}

func (t *turns) leave(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.queues[key]; q.members > 1 {
		q.members--
	} else {
		delete(t.queues, key)
	}
}
