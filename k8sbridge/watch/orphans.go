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

// ScheduleClient contains the methods of Temporal's schedule client that the bridge uses.
type ScheduleClient interface {
	Create(ctx context.Context, options client.ScheduleOptions) (client.ScheduleHandle, error)
	List(ctx context.Context, options client.ScheduleListOptions) (client.ScheduleListIterator, error)
	GetHandle(ctx context.Context, id string) client.ScheduleHandle
}

// sweepScheduler manages one Temporal schedule per class; the schedule starts orphan sweeps. sweepScheduler has its
// own queue and its own goroutine, so it never delays signals.
type sweepScheduler struct {
	shard           run.Shard
	servesNamespace func(namespace string) bool // reports whether a namespace belongs to the shard
	cluster         *cache.Cluster
	scheduleClient  ScheduleClient // nil: the bridge changes no schedules
	interval        time.Duration
	metrics         *Metrics
	log             *slog.Logger
	queue           workqueue.TypedDelayingInterface[sweepTask]

	mu               sync.Mutex
	lastTriggerTimes map[cache.ObjectRef]time.Time // time of the last early sweep of each class
}

// sweepTask is a task for the schedule of a class.
type sweepTask struct {
	class       cache.ObjectRef
	startsSweep bool // true: start a sweep now; false: check the schedule
}

// compareSchedulesTask is the task that compares all schedules with the classes.
var compareSchedulesTask = sweepTask{}

// EnableOrphanSweeps makes the bridge maintain one sweep schedule per class, with the interval every. If every is zero,
// the bridge deletes all schedules. Call EnableOrphanSweeps before Run. Without this call the bridge changes no
// schedule.
func (b *Bridge) EnableOrphanSweeps(schedules ScheduleClient, every time.Duration) {
	b.sweepScheduler.scheduleClient, b.sweepScheduler.interval = schedules, every
}

// run maintains the schedules until ctx ends.
func (s *sweepScheduler) run(ctx context.Context, group *sync.WaitGroup) {
	if s.scheduleClient == nil {
		s.queue.ShutDown()
		return
	}
	s.queue.Add(compareSchedulesTask)
	group.Go(func() {
		for {
			t, shutdown := s.queue.Get()
			if shutdown {
				return
			}
			s.runTask(ctx, t)
			s.queue.Done(t)
		}
	})
	group.Go(func() {
		defer s.queue.ShutDown()
		checks, lists := time.NewTicker(scheduleCheckInterval), time.NewTicker(scheduleListInterval)
		defer checks.Stop()
		defer lists.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-checks.C:
				s.enqueueAllChecks()
			case <-lists.C:
				s.queue.Add(compareSchedulesTask)
			}
		}
	})
}

// enqueueAllChecks enqueues a check of the schedules of all classes.
func (s *sweepScheduler) enqueueAllChecks() {
	if s.scheduleClient == nil {
		return
	}
	for _, item := range s.cluster.Informer(cache.ClassesResource).GetStore().List() {
		s.enqueueCheck(objectRef(item.(*v1alpha1.MachineClass)))
	}
}

// enqueueCheck enqueues a check of a class's schedule, unless the class belongs to another shard or is outside
// Millwright's namespaces.
func (s *sweepScheduler) enqueueCheck(class cache.ObjectRef) {
	if s.cluster.ActsOnMachines(class.Namespace) && s.servesNamespace(class.Namespace) {
		s.queue.Add(sweepTask{class: class})
	}
}

// triggerSweep starts a sweep of a class early, unless an early sweep has started within minTriggerInterval. One sweep
// is enough for a hundred machines with the same problem.
func (s *sweepScheduler) triggerSweep(namespace, name string) {
	if s.scheduleClient == nil || s.interval == 0 || !s.servesNamespace(namespace) {
		return
	}
	class, found := s.cluster.Class(namespace + "/" + name)
	if !found {
		return
	}
	ref := objectRef(class)
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, before := s.lastTriggerTimes[ref]; before && time.Since(last) < minTriggerInterval {
		return
	}
	s.lastTriggerTimes[ref] = time.Now()
	s.queue.Add(sweepTask{class: ref, startsSweep: true})
}

// runTask runs one task. A failed early sweep is not retried, because the next scheduled sweep replaces it. All other
// failed tasks are retried.
func (s *sweepScheduler) runTask(ctx context.Context, t sweepTask) {
	var err error
	switch {
	case t == compareSchedulesTask:
		err = s.compareSchedulesWithClasses(ctx)
	case t.startsSweep:
		err = s.startSweep(ctx, t.class)
	default:
		err = s.reconcileSchedule(ctx, t.class)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	s.metrics.signalFailures.WithLabelValues(string(run.KindOrphanCollection)).Inc()
	s.log.Warn(
		"a request about a schedule of sweeps failed",
		"namespace",
		t.class.Namespace,
		"class",
		t.class.Name,
		"early",
		t.startsSweep,
		"error",
		err,
	)
	if !t.startsSweep {
		s.queue.AddAfter(t, scheduleRetryInterval)
	}
}

// reconcileSchedule creates, updates or deletes the schedule of a class. While a class that is being deleted has
// machines, its schedule stays, because the machines' instances may become orphans.
func (s *sweepScheduler) reconcileSchedule(ctx context.Context, ref cache.ObjectRef) error {
	class, found := s.cluster.Class(ref.Key())
	if !found || objectRef(class) != ref || s.interval == 0 || class.Provider == "" ||
		isDeleting(class) && len(s.cluster.MachinesOfClass(ref.Key())) == 0 {
		s.mu.Lock()
		delete(s.lastTriggerTimes, ref)
		s.mu.Unlock()
		return s.deleteSchedule(ctx, s.shard.Installation.ID(run.KindOrphanCollection, ref))
	}
	return s.ensureSchedule(ctx, s.desiredSchedule(class))
}

// startSweep starts a sweep now. Temporal skips the sweep if another sweep of the class runs. Temporal also starts
// sweeps of a paused schedule, so startSweep checks whether the schedule is paused. startSweep ignores a missing
// schedule, because the bridge is about to create it.
func (s *sweepScheduler) startSweep(ctx context.Context, ref cache.ObjectRef) error {
	handle := s.scheduleClient.GetHandle(ctx, s.shard.Installation.ID(run.KindOrphanCollection, ref))
	there, err := handle.Describe(ctx)
	if err != nil || there.Schedule.State != nil && there.Schedule.State.Paused {
		return ignoreNotFound(err)
	}
	return ignoreNotFound(handle.Trigger(ctx, client.ScheduleTriggerOptions{Overlap: skipOverlapPolicy}))
}

// deleteSchedule deletes a schedule. deleteSchedule succeeds if the schedule does not exist.
func (s *sweepScheduler) deleteSchedule(ctx context.Context, id string) error {
	return ignoreNotFound(s.scheduleClient.GetHandle(ctx, id).Delete(ctx))
}

// compareSchedulesWithClasses compares Temporal's list of schedules with the classes. compareSchedulesWithClasses
// deletes each schedule without a class: the class was deleted while no bridge ran, or its namespace is no longer
// Millwright's. compareSchedulesWithClasses enqueues a check of each class without a schedule: a user deleted the
// schedule, Temporal has lost its data, or the list does not contain the new schedule yet.
func (s *sweepScheduler) compareSchedulesWithClasses(ctx context.Context) error {
	missing := map[string]cache.ObjectRef{}
	for _, item := range s.cluster.Informer(cache.ClassesResource).GetStore().List() {
		if ref := objectRef(item.(*v1alpha1.MachineClass)); s.cluster.ActsOnMachines(ref.Namespace) {
			missing[s.shard.Installation.ID(run.KindOrphanCollection, ref)] = ref
		}
	}
	known := maps.Clone(missing)
	entries, err := s.scheduleClient.List(ctx, client.ScheduleListOptions{})
	if err != nil {
		return err
	}
	for entries.HasNext() {
		entry, err := entries.Next()
		if err != nil {
			return err
		}
		delete(missing, entry.ID)
		if _, found := known[entry.ID]; !found &&
			strings.HasPrefix(entry.ID, s.shard.Installation.OrphanCollectionIDPrefix()) {
			if err := s.deleteSchedule(ctx, entry.ID); err != nil {
				return err
			}
		}
	}
	if s.interval == 0 {
		return nil
	}
	for _, ref := range missing {
		s.enqueueCheck(ref)
	}
	return nil
}

// ignoreNotFound returns nil if err means that the workflow or schedule does not exist.
func ignoreNotFound(err error) error {
	if _, absent := errors.AsType[*serviceerror.NotFound](err); absent {
		return nil
	}
	return err
}
