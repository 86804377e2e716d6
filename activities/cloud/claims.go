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

var errMachineListAborted = errors.New("the list of all Machines broke off")

// sharedClaimReader lists the claims of the Machines of all namespaces. Concurrent calls share one List request, which
// starts only after all these calls have begun. So a thousand creations list all Machines a few times, not a thousand
// times. The zero sharedClaimReader is ready to use.
type sharedClaimReader struct {
	mu       sync.Mutex
	nextList *machineList // next list, which has not begun; nil: no call waits for a list
	listSlot chan struct{}
}

// machineList is one list of all Machines.
type machineList struct {
	done      chan struct{} // closed when the fields machines and err are set
	machines  []ownership.Machine
	err       error
	cancelled bool // the call that made the list was cancelled
}

// joinNextList returns the list that begins next. joinNextList also returns a channel with one slot. A call occupies
// the slot while it lists the Machines.
func (c *sharedClaimReader) joinNextList() (l *machineList, turn chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listSlot == nil {
		c.listSlot = make(chan struct{}, 1)
	}
	if c.nextList == nil {
		c.nextList = &machineList{done: make(chan struct{})}
	}
	return c.nextList, c.listSlot
}

// tryBeginList reports whether the caller must make the list l. Calls of joinNextList after tryBeginList share the next
// list.
func (c *sharedClaimReader) tryBeginList(l *machineList) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nextList != l {
		return false
	}
	c.nextList = nil
	return true
}

// readClaims returns the claims of all Machines, as they were in the API server at some time after the call began. The
// result of readClaims is shared and must not be changed. If the caller that makes the list is cancelled, another
// caller makes the list again.
func (c *sharedClaimReader) readClaims(ctx context.Context, client versioned.Interface) ([]ownership.Machine, error) {
	for {
		l, turn := c.joinNextList()
		select {
		case turn <- struct{}{}:
			if c.listMachines(ctx, client, l, turn) {
				return l.machines, l.err
			}
		case <-l.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case <-l.done:
			if !l.cancelled {
				return l.machines, l.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// listMachines makes the list l and returns true, or returns false if another caller has already made this list. In
// both cases, listMachines frees the slot of turn.
func (c *sharedClaimReader) listMachines(
	ctx context.Context,
	client versioned.Interface,
	l *machineList,
	turn chan struct{},
) bool {
	defer func() { <-turn }()
	if !c.tryBeginList(l) {
		return false
	}
	defer close(l.done)
	l.err = errMachineListAborted // err stays set if the code below panics
	l.err = cache.VisitMachines(ctx, client, metav1.NamespaceAll, func(m *v1alpha1.Machine) {
		l.machines = append(l.machines, cache.ClaimOfMachine(m))
	})
	l.cancelled = l.err != nil && ctx.Err() != nil
	return true
}
