package driver

import (
	"context"
	"sync"

	"millwright/provider"
)

// sharedCreations deduplicates concurrent creations for the same UID in this process. The first caller runs the
// creation, and the other callers get its result. The zero value is valid.
type sharedCreations struct {
	mu           sync.Mutex
	runningByUID map[string]*sharedCreation
}

// sharedCreation is one running creation and its result.
type sharedCreation struct {
	done     chan struct{}
	instance provider.Instance
	err      error
}

// createOnce runs create for a UID, or waits until another caller's run ends. A run may fail because the context of its
// caller is done. If the first run fails, the waiting callers run create one after the other. They pass first = false,
// because a creation was already tried.
func (f *sharedCreations) createOnce(
	ctx context.Context,
	uid string,
	create func(first bool) (provider.Instance, error),
) (provider.Instance, error) {
	for first := true; ; first = false {
		mine, under := f.joinOrStartCreation(uid)
		if mine != nil {
			return f.runCreation(uid, mine, first, create)
		}
		select {
		case <-under.done:
			if under.err == nil {
				return under.instance, nil
			}
		case <-ctx.Done():
			return provider.Instance{}, toProviderError(
				ctx,
				provider.Class{},
				ctx.Err(),
				"wait for another creation of the same machine",
			)
		}
	}
}

func (f *sharedCreations) runCreation(
	uid string,
	mine *sharedCreation,
	first bool,
	create func(bool) (provider.Instance, error),
) (provider.Instance, error) {
	// The waiting callers get mine.err if create panics.
	mine.err = provider.Errorf(provider.Internal, "the creation broke off")
	defer f.finishCreation(uid, mine)
	mine.instance, mine.err = create(first)
	return mine.instance, mine.err
}

// joinOrStartCreation returns a new creation (mine), which the caller must run, or the creation that another caller is
// already running (under).
func (f *sharedCreations) joinOrStartCreation(uid string) (mine, under *sharedCreation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if running, ok := f.runningByUID[uid]; ok {
		return nil, running
	}
	if f.runningByUID == nil {
		f.runningByUID = map[string]*sharedCreation{}
	}
	mine = &sharedCreation{done: make(chan struct{})}
	f.runningByUID[uid] = mine
	return mine, nil
}

func (f *sharedCreations) finishCreation(uid string, mine *sharedCreation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.runningByUID, uid)
	close(mine.done)
}
