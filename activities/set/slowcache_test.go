package set_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/set"
	"millwright/api/generated/clientset/versioned/fake"
	typed "millwright/api/generated/clientset/versioned/typed/api/v1alpha1"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// A set decides on caches that are late, in bursts or silent, while its activities run twice, half, or for a run that
// is no more. It never has too many machines, nor too few.
func TestAThousandMachinesWhileCachesLag(t *testing.T) {
	t.Parallel()
	s := activitiestest.Set("s", 1000)
	l := newSetLoop(t, s, activitiestest.Class())
	t.Run("out to 1000", func(t *testing.T) {
		l.silent = 2
		l.run(t, func(all, _ int) { require.LessOrEqual(t, all, 1000) })
		all, live := l.count()
		assert.Equal(t, []int{1000, 1000}, []int{all, live})
	})
	t.Run("in to 400", func(t *testing.T) {
		l.Edit(cache.Sets, "s", map[string]any{"spec": map[string]any{"replicas": 400}})
		l.silent = 1
		l.run(t, func(_, live int) { require.GreaterOrEqual(t, live, 400) })
		_, live := l.count()
		assert.Equal(t, 400, live)
	})
	assert.Equal(t, int64(1000), l.late.made.Load(), "none was made but those that were wanted: 600 were deleted")
}

// setLoop does what the workflow of a set does, with many failures.
type setLoop struct {
	*activitiestest.World
	late     *late
	dice     *rand.Rand
	ref      kube.Ref
	versions kube.MinVersions
	live     bool
	silent   int // reads that will wait for their caches in vain
	check    func(all, live int)
}

// newSetLoop returns the loop of a set in a world whose caches get events of machines only when the test releases them.
func newSetLoop(t *testing.T, s *v1alpha1.MachineSet, c *v1alpha1.MachineClass) *setLoop {
	t.Helper()
	w := activitiestest.NewWorld(t, s, c)
	l := &setLoop{
		World: w,
		late:  &late{Clientset: w.Machines},
		dice:  rand.New(rand.NewPCG(11, 6)),
		ref:   activitiestest.Ref(s),
	}
	cluster, err := cache.NewCluster(l.late, w.Target, w.Meta)
	require.NoError(t, err)
	require.NoError(t, cluster.Start(t.Context()))
	for range 7 { // one for each cache
		<-w.Server.Watched
	}
	w.Kube = &kube.Kube{Cluster: cluster, Recorder: &record.FakeRecorder{}}
	for resource, name := range map[cache.Resource]string{cache.Sets: s.Name, cache.Classes: c.Name} {
		w.Edit(resource, name, activitiestest.Annotated("note", "a fake's list has no version that counts, an event has"))
	}
	return l
}

// run loops until the set has nothing to do for some turns. It checks the number of machines after each activity.
func (l *setLoop) run(t *testing.T, check func(all, live int)) {
	l.T, l.check = t, check
	l.restart()
	for idle := 0; idle < 5; idle++ {
		if l.turn() {
			idle = 0
		}
		if l.oneIn(8) {
			l.restart()
		}
	}
	require.Zero(t, l.silent, "the caches were never silent when it mattered")
}

// restart begins another run of the workflow, without any state.
func (l *setLoop) restart() { l.versions, l.live = kube.MinVersions{}, true }

func (l *setLoop) oneIn(n int) bool { return l.dice.IntN(n) == 0 }

// turn does one turn of the loop, and reports whether there was anything to do.
func (l *setLoop) turn() bool {
	d, err := quickly[set.Decision](l, acts(l.Kube).DecideSet, l.read())
	require.NoError(l.T, err)
	l.live = false
	l.raise(d.Seen)
	l.others()
	acted, err := l.act(d)
	var application *temporal.ApplicationError
	if errors.As(err, &application) && application.Type() == kube.TypeConflict {
		l.live = true
		return true
	}
	require.NoError(l.T, err)
	return acted
}

// act carries out a decision, and then writes the status.
func (l *setLoop) act(d set.Decision) (acted bool, err error) {
	var done set.Written
	died := false
	switch {
	case len(d.Scale.Create) > 0:
		half := l.dice.IntN(len(d.Scale.Create))
		in := func(n int) any { return set.Creation{Set: l.ref, Version: d.Version, Names: d.Scale.Create[:n]} }
		done, died, err = l.write(acts(l.Kube).CreateMachines, in(half), in(len(d.Scale.Create)))
	case len(d.Scale.Delete) > 0:
		half := l.dice.IntN(len(d.Scale.Delete))
		in := func(n int) any { return set.Batch{Set: l.ref, Machines: d.Scale.Delete[:n]} }
		done, died, err = l.write(acts(l.Kube).DeleteMachines, in(half), in(len(d.Scale.Delete)))
		l.live = err != nil || done.Unseen
	}
	if died {
		l.restart()
		return true, nil
	}
	l.raise(done.Versions)
	acted = len(d.Scale.Create)+len(d.Scale.Delete) > 0
	if err != nil || !d.Report {
		return acted, err
	}
	in := set.Report{Input: l.read()}
	version, err := quickly[string](l, acts(l.Kube).ReportSet, in)
	l.versions.Raise(cache.Sets, version)
	return true, err
}

// write carries out a batch: at once, or once more after a worker that died half way or whose answer was lost. Or the
// run ends with half of it done.
func (l *setLoop) write(activity, half, whole any) (done set.Written, died bool, err error) {
	first := []any{nil, nil, nil, nil, nil, half, whole, half}
	chance := l.dice.IntN(len(first))
	if first[chance] != nil {
		_, _ = activitiestest.Run[set.Written](l.World, activity, first[chance])
		l.check(l.count())
	}
	if chance == len(first)-1 {
		return set.Written{}, true, nil
	}
	done, err = activitiestest.Run[set.Written](l.World, activity, whole)
	l.check(l.count())
	return done, false, err
}

func (l *setLoop) read() set.Input {
	return set.Input{Read: kube.Read{Ref: l.ref, Versions: maps.Clone(l.versions), Live: l.live}}
}

func (l *setLoop) raise(versions kube.MinVersions) {
	for resource, version := range versions {
		l.versions.Raise(resource, version)
	}
}

// quickly runs an activity as a local one, and as a regular one where that gives up. While it waits events arrive in
// bursts, unless the caches are to be silent.
func quickly[T any](l *setLoop, activity, in any) (answer T, err error) {
	silent := l.silent > 0 && !l.live && !l.Cluster.Await(l.T.Context(), l.versions, 0)
	if silent {
		l.silent--
	}
	for _, how := range []func(*activitiestest.World, any, any) (T, error){activitiestest.Local[T], activitiestest.Run[T]} {
		waiting, done := context.WithCancel(l.T.Context())
		if !silent {
			go l.trickle(waiting, l.read().Versions)
		}
		answer, err = how(l.World, activity, in)
		done()
		l.check(l.count())
		var application *temporal.ApplicationError
		if !errors.As(err, &application) || application.NonRetryable() {
			break
		}
	}
	return answer, err
}

// trickle releases events in bursts, and only those that are waited for, so that the caches are as old as allowed.
func (l *setLoop) trickle(waiting context.Context, versions kube.MinVersions) {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for waiting.Err() == nil {
		if !l.Cluster.Await(waiting, versions, 0) {
			l.late.events.arrive(20)
		}
		<-tick.C
	}
}

// others makes the writes of others: somebody lowers the priority of a machine, so that the next decision would choose
// another one, and machines that are being deleted disappear. Then some of the held events arrive.
func (l *setLoop) others() {
	buried := 0
	for _, m := range l.all() {
		switch {
		case m.DeletionTimestamp != nil:
			if buried < 20 && l.oneIn(2) {
				buried++
				l.Edit(cache.Machines, m.Name, map[string]any{"metadata": map[string]any{"finalizers": nil}})
			}
		case l.oneIn(500):
			l.Edit(cache.Machines, m.Name, activitiestest.Annotated(v1alpha1.AnnotationMachinePriority, "2"))
		}
	}
	l.late.events.arrive(l.dice.IntN(30))
}

func (l *setLoop) all() []v1alpha1.Machine {
	gv := v1alpha1.SchemeGroupVersion
	list, err := l.Machines.Tracker().List(gv.WithResource("machines"), gv.WithKind("Machine"), activitiestest.Shop)
	require.NoError(l.T, err)
	return list.(*v1alpha1.MachineList).Items
}

// count returns the number of machines, and how many of them are not being deleted.
func (l *setLoop) count() (all, live int) {
	for _, m := range l.all() {
		all++
		if m.DeletionTimestamp == nil {
			live++
		}
	}
	return all, live
}

// late is a client that counts its creations, and whose caches get events only when the test releases them.
type late struct {
	*fake.Clientset
	made, deletions atomic.Int64
	events          lateWatch
}

type lateGroup struct {
	typed.MachineV1alpha1Interface
	*late
}

type lateMachines struct {
	typed.MachineInterface
	*late
}

func (l *late) MachineV1alpha1() typed.MachineV1alpha1Interface {
	return lateGroup{l.Clientset.MachineV1alpha1(), l}
}

func (g lateGroup) Machines(namespace string) typed.MachineInterface {
	return lateMachines{g.MachineV1alpha1Interface.Machines(namespace), g.late}
}

func (m lateMachines) Create(
	ctx context.Context,
	machine *v1alpha1.Machine,
	options metav1.CreateOptions,
) (*v1alpha1.Machine, error) {
	made, err := m.MachineInterface.Create(ctx, machine, options)
	if err == nil {
		m.made.Add(1)
	}
	return made, err
}

func (m lateMachines) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := m.MachineInterface.Watch(ctx, options)
	if err == nil {
		m.events.Interface, m.events.result = w, make(chan watch.Event)
		m.events.watched, m.events.stop = context.WithCancel(ctx)
		go m.events.hold()
		w = &m.events
	}
	return w, err
}

// RESTClient sends deletions, because the fakes do not return their answers.
func (g lateGroup) RESTClient() rest.Interface {
	c, err := typed.NewForConfigAndClient(&rest.Config{QPS: -1}, &http.Client{Transport: g.late})
	if err != nil {
		panic(err)
	}
	return c.RESTClient()
}

// RoundTrip deletes a machine and returns it, or sometimes a status, as for a machine without finalizers.
func (l *late) RoundTrip(r *http.Request) (*http.Response, error) {
	var options metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
		return nil, err
	}
	api, name := l.Clientset.MachineV1alpha1().Machines(activitiestest.Shop), path.Base(r.URL.Path)
	code := http.StatusOK
	status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}
	err := api.Delete(r.Context(), name, options)
	if refused, isStatus := errors.AsType[*apierrors.StatusError](err); isStatus {
		status = refused.ErrStatus
		status.Kind, status.APIVersion, code = "Status", "v1", int(status.Code)
	}
	var answer any = status
	if err == nil && l.deletions.Add(1)%150 != 0 {
		m, err := api.Get(r.Context(), name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		m.Kind, m.APIVersion, answer = "Machine", v1alpha1.SchemeGroupVersion.String(), m
	}
	body, err := json.Marshal(answer)
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
}

// lateWatch holds events until the test releases them.
type lateWatch struct {
	watch.Interface
	result  chan watch.Event
	watched context.Context // until nobody watches any more
	stop    func()
	order   sync.Mutex // held by who lets events go
	mu      sync.Mutex // of held
	held    []watch.Event
}

func (w *lateWatch) ResultChan() <-chan watch.Event { return w.result }

func (w *lateWatch) Stop() {
	w.stop()
	w.Interface.Stop()
}

func (w *lateWatch) hold() {
	for e := range w.Interface.ResultChan() {
		w.mu.Lock()
		w.held = append(w.held, e)
		w.mu.Unlock()
	}
}

// arrive releases the oldest events, at most n.
func (w *lateWatch) arrive(most int) {
	w.order.Lock()
	defer w.order.Unlock()
	w.mu.Lock()
	n := min(most, len(w.held))
	events := w.held[:n]
	w.held = w.held[n:]
	w.mu.Unlock()
	for _, e := range events {
		select {
		case w.result <- e:
		case <-w.watched.Done():
			return
		}
	}
}
