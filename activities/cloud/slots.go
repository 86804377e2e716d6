package cloud

import (
	"context"
	"fmt"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"millwright/activities/kube"
)

// namespaceSlots counts the running activities of each namespace. The zero namespaceSlots is ready to use and safe for
// concurrent use.
type namespaceSlots struct {
	mu                  sync.Mutex
	occupiedByNamespace map[string]int
}

// occupy occupies a slot of a namespace, unless the namespace occupies limit slots already. release frees the slot.
func (s *namespaceSlots) occupy(namespace string, limit int) (release func(), occupied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.occupiedByNamespace[namespace] >= limit {
		return nil, false
	}
	if s.occupiedByNamespace == nil {
		s.occupiedByNamespace = map[string]int{}
	}
	s.occupiedByNamespace[namespace]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.occupiedByNamespace[namespace]--; s.occupiedByNamespace[namespace] == 0 {
			delete(s.occupiedByNamespace, namespace)
		}
	}, true
}

// occupySlot begins an activity for a namespace; release ends it. If NamespaceCalls activities run for the namespace,
// occupySlot returns a benign error: Temporal retries the activity later, and meanwhile the slot of the worker is free
// for other namespaces. Nothing waits in the worker.
func (p *Activities) occupySlot(ctx context.Context, namespace string) (release func(), err error) {
	if p.NamespaceCalls == 0 {
		return func() {}, nil
	}
	release, occupied := p.slots.occupy(namespace, p.NamespaceCalls)
	if occupied {
		return release, nil
	}
	info := activity.GetInfo(ctx) // ScheduledTime and StartedTime are times of the server's clock
	return nil, temporal.NewApplicationErrorWithOptions(
		fmt.Sprintf("%d calls for namespace %s are in progress in this worker, the most for one namespace",
			p.NamespaceCalls, namespace),
		kube.FailureTypeNamespaceBusy,
		temporal.ApplicationErrorOptions{
			NextRetryDelay: kube.BusyPollInterval(info.StartedTime.Sub(info.ScheduledTime)),
			Category:       temporal.ApplicationErrorCategoryBenign,
		},
	)
}
