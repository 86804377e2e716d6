package cloud

import (
	"context"
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/decide/ownership"
	"millwright/observe/cache"
)

var errBrokenOff = errors.New("the list of all Machines broke off")

// claims lists what the Machines of all namespaces claim, for many calls at once: calls share a list that begins after
// each of them has asked. So a thousand creations read all Machines a few times, and not a thousand times. The zero value
// is ready.
type claims struct {
	mu   sync.Mutex
	next *listing // has not begun; nil: nobody waits for one
	turn chan struct{}
}

// listing is one list of all Machines.
type listing struct {
	done     chan struct{} // closed when machines and err are set
	machines []ownership.Machine
	err      error
	givenUp  bool // the call that made it was cancelled
}

// join returns the list that begins next, and the channel with one slot that the call that makes a list has to occupy.
func (c *claims) join() (l *listing, turn chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn == nil {
		c.turn = make(chan struct{}, 1)
	}
	if c.next == nil {
		c.next = &listing{done: make(chan struct{})}
	}
	return c.next, c.turn
}

// begin reports whether a list has still to be made. Calls that ask from now on share the list after this one.
func (c *claims) begin(l *listing) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != l {
		return false
	}
	c.next = nil
	return true
}

// read returns what all Machines claim, as the API server had it at some time after the call. The result is shared, and
// must not be changed. If another caller gave the list up, it is made again.
func (c *claims) read(ctx context.Context, client versioned.Interface) ([]ownership.Machine, error) {
	for {
		l, turn := c.join()
		select {
		case turn <- struct{}{}:
			if c.list(ctx, client, l, turn) {
				return l.machines, l.err
			}
		case <-l.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case <-l.done:
			if !l.givenUp {
				return l.machines, l.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// list makes a list and returns true; it returns false if another caller has made this list. It frees the slot of turn.
func (c *claims) list(ctx context.Context, client versioned.Interface, l *listing, turn chan struct{}) bool {
	defer func() { <-turn }()
	if !c.begin(l) {
		return false
	}
	defer close(l.done)
	l.err = errBrokenOff // stays if the code below panics
	l.err = cache.EachMachine(ctx, client, metav1.NamespaceAll, func(m *v1alpha1.Machine) {
		l.machines = append(l.machines, cache.ClaimOf(m))
	})
	l.givenUp = l.err != nil && ctx.Err() != nil
	return true
}
