package driver

import (
	"context"
	"sync"

	"millwright/provider"
)

// flights makes concurrent creations for one UID in this process share one request: the first caller sends it, and the
// other callers get its result. The zero value is valid.
type flights struct {
	mu    sync.Mutex
	byUID map[string]*flight
}

type flight struct {
	done     chan struct{}
	instance provider.Instance
	err      error
}

// do runs create for a UID, or waits for the run of another caller. If that run fails, which may be because its
// caller's context has ended, the waiting callers run create themselves, one after the other. They pass first as false,
// because a creation was tried before.
func (f *flights) do(
	ctx context.Context,
	uid string,
	create func(first bool) (provider.Instance, error),
) (provider.Instance, error) {
	for first := true; ; first = false {
		mine, under := f.join(uid)
		if mine != nil {
			return f.run(uid, mine, first, create)
		}
		select {
		case <-under.done:
			if under.err == nil {
				return under.instance, nil
			}
		case <-ctx.Done():
			return provider.Instance{}, describe(
				ctx,
				provider.Class{},
				ctx.Err(),
				"wait for another creation of the same machine",
			)
		}
	}
}

func (f *flights) run(
	uid string,
	mine *flight,
	first bool,
	create func(bool) (provider.Instance, error),
) (provider.Instance, error) {
	// the result for the waiting callers if create panics
	mine.err = provider.Errorf(provider.Internal, "the creation broke off")
	defer f.leave(uid, mine)
	mine.instance, mine.err = create(first)
	return mine.instance, mine.err
}

// join returns a new flight, which the caller must run, or the flight of another caller.
func (f *flights) join(uid string) (mine, under *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if running, ok := f.byUID[uid]; ok {
		return nil, running
	}
	if f.byUID == nil {
		f.byUID = map[string]*flight{}
	}
	mine = &flight{done: make(chan struct{})}
	f.byUID[uid] = mine
	return mine, nil
}

func (f *flights) leave(uid string, mine *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byUID, uid)
	close(mine.done)
}
