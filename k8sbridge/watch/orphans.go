package watch

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"k8s.io/client-go/util/workqueue"

	"millwright/api/v1alpha1"
	"millwright/observe"
	"millwright/workflows"
)

// DefaultOrphanPeriod is the time between two sweeps for orphans. Source: MCM's flag of the same name.
const DefaultOrphanPeriod = 15 * time.Minute

// Times of the schedules.
const (
	lookAtSchedules = 10 * time.Minute // each is looked at so often: somebody may have deleted it, or Temporal lost its data
	scheduleRetry   = time.Minute      // after Temporal did not take what was asked of it
	hurryAtMost     = time.Minute      // least time between two sweeps that are started early for one class
)

// Schedules is what the bridge needs of a client of Temporal's schedules.
type Schedules interface {
	Create(ctx context.Context, options client.ScheduleOptions) (client.ScheduleHandle, error)
	List(ctx context.Context, options client.ScheduleListOptions) (client.ScheduleListIterator, error)
	GetHandle(ctx context.Context, id string) client.ScheduleHandle
}

// sweeps keeps a schedule for each class, by which Temporal starts sweeps for orphans. It has a queue and one worker of its own,
// so that it never stands in the way of signals.
type sweeps struct {
	cluster   *observe.Cluster
	schedules Schedules // nil: no schedule is touched
	every     time.Duration
	metrics   *Metrics
	log       *slog.Logger
	queue     workqueue.TypedDelayingInterface[task]

	mu      sync.Mutex
	hurried map[observe.Ref]time.Time // when a class's sweep was started early the last time
}

// task is one thing to do about the schedule of a class.
type task struct {
	class observe.Ref
	start bool // start a sweep now; else see that the schedule is as it should be
}

// leftovers is the task of looking for schedules of classes that are gone.
var leftovers = task{}

// SweepOrphans makes the bridge keep a schedule of sweeps for each class, with this time between two of them. Zero means none: then
// those that are there are deleted. Call it before Run; a bridge of which it is not asked leaves all schedules alone.
func (b *Bridge) SweepOrphans(schedules Schedules, every time.Duration) {
	b.orphans.schedules, b.orphans.every = schedules, every
}

// run keeps the schedules until ctx ends.
func (s *sweeps) run(ctx context.Context, group *sync.WaitGroup) {
	if s.schedules == nil {
		s.queue.ShutDown()
		return
	}
	s.queue.Add(leftovers)
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
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(lookAtSchedules):
				s.lookAtAll()
			}
		}
	})
}

// lookAtAll makes sure, soon, that the schedules of all classes are as they should be.
func (s *sweeps) lookAtAll() {
	if s.schedules == nil {
		return
	}
	for _, item := range s.cluster.Informer(observe.Classes).GetStore().List() {
		s.look(refOf(item.(*v1alpha1.MachineClass)))
	}
}

// look makes sure, soon, that the schedule of a class is as it should be.
func (s *sweeps) look(class observe.Ref) { s.queue.Add(task{class: class}) }

// hurry starts a sweep over a class early, if none was started early within the last minute: a hundred machines with the same
// trouble need one.
func (s *sweeps) hurry(namespace, name string) {
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
	if last, before := s.hurried[ref]; before && time.Since(last) < hurryAtMost {
		return
	}
	s.hurried[ref] = time.Now()
	s.queue.Add(task{class: ref, start: true})
}

// do does one task. What Temporal does not take is tried again; only a sweep that could not be started early is not, since the
// next one comes by the clock.
func (s *sweeps) do(ctx context.Context, t task) {
	var err error
	switch {
	case t == leftovers:
		err = s.dropLeftovers(ctx)
	case t.start:
		err = s.start(ctx, t.class)
	default:
		err = s.keep(ctx, t.class)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	s.metrics.failures.WithLabelValues(string(workflows.KindOrphanCollection)).Inc()
	s.log.Warn("a schedule is not as it should be, will try again", "namespace", t.class.Namespace, "class", t.class.Name, "early", t.start, "error", err)
	if !t.start {
		s.queue.AddAfter(t, scheduleRetry)
	}
}

// keep makes the schedule of a class what it should be: there as wanted, or not there.
func (s *sweeps) keep(ctx context.Context, ref observe.Ref) error {
	class, found := s.cluster.Class(ref.Namespace + "/" + ref.Name)
	if !found || refOf(class) != ref || !s.wanted(class) {
		s.mu.Lock()
		delete(s.hurried, ref)
		s.mu.Unlock()
		return s.drop(ctx, workflows.ID(workflows.KindOrphanCollection, ref))
	}
	return s.ensure(ctx, wantedSchedule(class, s.every))
}

// wanted reports whether a class is to be swept. One that is to go is, as long as it has machines: their instances may be left
// behind.
func (s *sweeps) wanted(class *v1alpha1.MachineClass) bool {
	if s.every == 0 || class.Provider == "" {
		return false
	}
	return class.DeletionTimestamp == nil || len(s.cluster.MachinesOfClass(class.Namespace+"/"+class.Name)) > 0
}

// start starts a sweep now. Temporal skips it when one is under way, but not when people have paused the schedule: that is looked
// at here. A schedule that is not there is on its way.
func (s *sweeps) start(ctx context.Context, ref observe.Ref) error {
	handle := s.schedules.GetHandle(ctx, workflows.ID(workflows.KindOrphanCollection, ref))
	there, err := handle.Describe(ctx)
	if err != nil || there.Schedule.State != nil && there.Schedule.State.Paused {
		return unlessAbsent(err)
	}
	return unlessAbsent(handle.Trigger(ctx, client.ScheduleTriggerOptions{Overlap: skip}))
}

// drop deletes a schedule; one that is not there needs nothing.
func (s *sweeps) drop(ctx context.Context, id string) error {
	return unlessAbsent(s.schedules.GetHandle(ctx, id).Delete(ctx))
}

// dropLeftovers deletes the schedules of classes that went while no bridge looked. Those of classes that exist are looked at one
// by one.
func (s *sweeps) dropLeftovers(ctx context.Context) error {
	known := map[string]bool{}
	for _, item := range s.cluster.Informer(observe.Classes).GetStore().List() {
		known[workflows.ID(workflows.KindOrphanCollection, refOf(item.(*v1alpha1.MachineClass)))] = true
	}
	list, err := s.schedules.List(ctx, client.ScheduleListOptions{})
	if err != nil {
		return err
	}
	for list.HasNext() {
		entry, err := list.Next()
		if err != nil {
			return err
		}
		if strings.HasPrefix(entry.ID, workflows.OrphanIDs) && !known[entry.ID] {
			if err := s.drop(ctx, entry.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// unlessAbsent drops the error that something is not there.
func unlessAbsent(err error) error {
	if absent := new(serviceerror.NotFound); errors.As(err, &absent) {
		return nil
	}
	return err
}
