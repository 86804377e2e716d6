package watch

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"k8s.io/client-go/util/workqueue"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/workflows/run"
)

// Schedules is what the bridge needs of a client of Temporal's schedules.
type Schedules interface {
	Create(ctx context.Context, options client.ScheduleOptions) (client.ScheduleHandle, error)
	List(ctx context.Context, options client.ScheduleListOptions) (client.ScheduleListIterator, error)
	GetHandle(ctx context.Context, id string) client.ScheduleHandle
}

// sweeps keeps a schedule of Temporal for each class, which starts sweeps for orphans. It has its own queue and one
// goroutine for it, so that it never delays signals.
type sweeps struct {
	installation run.Installation
	cluster      *cache.Cluster
	schedules    Schedules // nil: no schedule is changed
	every        time.Duration
	metrics      *Metrics
	log          *slog.Logger
	queue        workqueue.TypedDelayingInterface[task]

	mu            sync.Mutex
	lastTriggered map[cache.Ref]time.Time // when a class's sweep was last triggered early
}

// task is a piece of work for the schedule of a class.
type task struct {
	class cache.Ref
	start bool // start a sweep now; false: check the schedule
}

// list is the task that compares the list of all schedules with the classes.
var list = task{}

// SweepOrphans makes the bridge keep a schedule of sweeps for each class, with this interval. Zero deletes all
// schedules. Call it before Run; without it the bridge changes no schedule.
func (b *Bridge) SweepOrphans(schedules Schedules, every time.Duration) {
	b.orphans.schedules, b.orphans.every = schedules, every
}

// run keeps the schedules until ctx ends.
func (s *sweeps) run(ctx context.Context, group *sync.WaitGroup) {
	if s.schedules == nil {
		s.queue.ShutDown()
		return
	}
	s.queue.Add(list)
	group.Go(func() {
		for {
			t, shutdown := s.queue.Get()
			if shutdown {
				return
			}
			s.do(ctx, t)
			s.queue.Done(t)
		}
	})
	group.Go(func() {
		defer s.queue.ShutDown()
		checks, lists := time.NewTicker(checkSchedules), time.NewTicker(listSchedules)
		defer checks.Stop()
		defer lists.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-checks.C:
				s.checkAll()
			case <-lists.C:
				s.queue.Add(list)
			}
		}
	})
}

// checkAll enqueues a check of the schedules of all classes.
func (s *sweeps) checkAll() {
	if s.schedules == nil {
		return
	}
	for _, item := range s.cluster.Informer(cache.Classes).GetStore().List() {
		s.check(refOf(item.(*v1alpha1.MachineClass)))
	}
}

// check enqueues a check of the schedule of a class, unless the class is in a namespace that is not Millwright's.
func (s *sweeps) check(class cache.Ref) {
	if s.cluster.Ours(class.Namespace) {
		s.queue.Add(task{class: class})
	}
}

// trigger starts a sweep over a class early, unless one was started early within triggerInterval: one sweep is enough
// for a hundred machines with the same problem.
func (s *sweeps) trigger(namespace, name string) {
	if s.schedules == nil || s.every == 0 {
		return
	}
	class, found := s.cluster.Class(namespace + "/" + name)
	if !found {
		return
	}
	ref := refOf(class)
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, before := s.lastTriggered[ref]; before && time.Since(last) < triggerInterval {
		return
	}
	s.lastTriggered[ref] = time.Now()
	s.queue.Add(task{class: ref, start: true})
}

// do does one task. A failed task is retried, except for an early sweep: the next scheduled one follows anyway.
func (s *sweeps) do(ctx context.Context, t task) {
	var err error
	switch {
	case t == list:
		err = s.compare(ctx)
	case t.start:
		err = s.start(ctx, t.class)
	default:
		err = s.keep(ctx, t.class)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	s.metrics.failures.WithLabelValues(string(run.KindOrphanCollection)).Inc()
	s.log.Warn(
		"a request about a schedule of sweeps failed",
		"namespace",
		t.class.Namespace,
		"class",
		t.class.Name,
		"early",
		t.start,
		"error",
		err,
	)
	if !t.start {
		s.queue.AddAfter(t, scheduleRetry)
	}
}

// keep creates, updates or deletes the schedule of a class. A class that is being deleted is swept as long as it has
// machines: their instances may become orphans.
func (s *sweeps) keep(ctx context.Context, ref cache.Ref) error {
	class, found := s.cluster.Class(ref.Key())
	if !found || refOf(class) != ref || s.every == 0 || class.Provider == "" ||
		deleting(class) && len(s.cluster.MachinesOfClass(ref.Key())) == 0 {
		s.mu.Lock()
		delete(s.lastTriggered, ref)
		s.mu.Unlock()
		return s.drop(ctx, s.installation.ID(run.KindOrphanCollection, ref))
	}
	return s.ensure(ctx, s.wanted(class))
}

// start starts a sweep now. Temporal skips it while another one runs, but not while the schedule is paused, which is
// checked here. A schedule that does not exist yet is about to be created.
func (s *sweeps) start(ctx context.Context, ref cache.Ref) error {
	handle := s.schedules.GetHandle(ctx, s.installation.ID(run.KindOrphanCollection, ref))
	there, err := handle.Describe(ctx)
	if err != nil || there.Schedule.State != nil && there.Schedule.State.Paused {
		return unlessAbsent(err)
	}
	return unlessAbsent(handle.Trigger(ctx, client.ScheduleTriggerOptions{Overlap: skip}))
}

// drop deletes a schedule. It succeeds if there is none.
func (s *sweeps) drop(ctx context.Context, id string) error {
	return unlessAbsent(s.schedules.GetHandle(ctx, id).Delete(ctx))
}

// compare compares Temporal's list of schedules with the classes. It deletes each schedule without a class: the class
// was deleted while no bridge ran, or its namespace is not Millwright's any more. It enqueues a check of each class
// without a schedule: somebody deleted the schedule, Temporal has lost its data, or the schedule is so new that the
// list does not have it yet.
func (s *sweeps) compare(ctx context.Context) error {
	missing := map[string]cache.Ref{}
	for _, item := range s.cluster.Informer(cache.Classes).GetStore().List() {
		if ref := refOf(item.(*v1alpha1.MachineClass)); s.cluster.Ours(ref.Namespace) {
			missing[s.installation.ID(run.KindOrphanCollection, ref)] = ref
		}
	}
	known := maps.Clone(missing)
	entries, err := s.schedules.List(ctx, client.ScheduleListOptions{})
	if err != nil {
		return err
	}
	for entries.HasNext() {
		entry, err := entries.Next()
		if err != nil {
			return err
		}
		delete(missing, entry.ID)
		if _, found := known[entry.ID]; !found && strings.HasPrefix(entry.ID, s.installation.OrphanIDs()) {
			if err := s.drop(ctx, entry.ID); err != nil {
				return err
			}
		}
	}
	if s.every == 0 {
		return nil
	}
	for _, ref := range missing {
		s.check(ref)
	}
	return nil
}

// unlessAbsent returns nil for an error that says that the workflow or schedule does not exist.
func unlessAbsent(err error) error {
	if _, absent := errors.AsType[*serviceerror.NotFound](err); absent {
		return nil
	}
	return err
}
