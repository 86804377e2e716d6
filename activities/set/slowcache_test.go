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

// A set decides with caches that are stale, that get events in bursts, or that get no events. The set's activities run
// twice, run partly, or run for a workflow run that has ended. The set never has too many machines, and in the end has
// enough machines.
func TestSetReachesThousandMachinesDespiteStaleCaches(t *testing.T) {
	t.Parallel()
	s := activitiestest.NewMachineSet("s", 1000)
	l := newSimulatedSetWorkflow(t, s, activitiestest.NewClass())
	t.Run("out to 1000", func(t *testing.T) {
		l.failedCacheWaits = 2
		l.runUntilIdle(t, func(all, _ int) { require.LessOrEqual(t, all, 1000) })
		all, live := l.countMachines()
		assert.Equal(t, []int{1000, 1000}, []int{all, live})
	})
	t.Run("in to 400", func(t *testing.T) {
		l.EditObject(cache.SetsResource, "s", map[string]any{"spec": map[string]any{"replicas": 400}})
		l.failedCacheWaits = 1
		l.runUntilIdle(t, func(_, live int) { require.GreaterOrEqual(t, live, 400) })
		_, live := l.countMachines()
		assert.Equal(t, 400, live)
	})
	assert.Equal(t, int64(1000), l.client.creations.Load(), "none was made but those that were wanted: 600 were deleted")
}

// simulatedSetWorkflow does the same as the workflow of a set, with many failures.
type simulatedSetWorkflow struct {
	*activitiestest.World
	client           *delayedEventsClient
	random           *rand.Rand
	ref              kube.Ref
	minVersions      kube.MinVersions
	readsLive        bool
	failedCacheWaits int // number of reads that timed out while they waited for the caches
	checkCounts      func(all, live int)
}

// newSimulatedSetWorkflow returns the loop of a set. The caches of its world get events of machines only when the test
// releases the events.
func newSimulatedSetWorkflow(t *testing.T, s *v1alpha1.MachineSet, c *v1alpha1.MachineClass) *simulatedSetWorkflow {
	t.Helper()
	w := activitiestest.NewWorld(t, s, c)
	l := &simulatedSetWorkflow{
		World:  w,
		client: &delayedEventsClient{Clientset: w.MachineClient},
		random: rand.New(rand.NewPCG(11, 6)),
		ref:    activitiestest.NewRef(s),
	}
	cluster, err := cache.NewCluster(l.client, w.TargetClient, w.MetadataClient)
	require.NoError(t, err)
	require.NoError(t, cluster.Start(t.Context()))
	for range 7 { // one for each cache
		<-w.APIServer.WatchStarts
	}
	w.Kube = &kube.Kube{Cluster: cluster, Recorder: &record.FakeRecorder{}}
	for resource, name := range map[cache.Resource]string{cache.SetsResource: s.Name, cache.ClassesResource: c.Name} {
		w.EditObject(
			resource,
			name,
			activitiestest.NewAnnotationPatch("note", "a fake's list has no version that counts, an event has"),
		)
	}
	return l
}

// runUntilIdle repeats runTurn until the set has nothing to do for several turns. After each activity, check is called
// with the number of machines.
func (l *simulatedSetWorkflow) runUntilIdle(t *testing.T, check func(all, live int)) {
	l.T, l.checkCounts = t, check
	l.restartRun()
	for idle := 0; idle < 5; idle++ {
		if l.runTurn() {
			idle = 0
		}
		if l.randomBoolOneIn(8) {
			l.restartRun()
		}
	}
	require.Zero(t, l.failedCacheWaits, "the caches were never silent when it mattered")
}

// restartRun starts another run of the workflow, without any state.
func (l *simulatedSetWorkflow) restartRun() { l.minVersions, l.readsLive = kube.MinVersions{}, true }

func (l *simulatedSetWorkflow) randomBoolOneIn(n int) bool { return l.random.IntN(n) == 0 }

// runTurn makes one turn of the loop, and reports whether there was anything to do.
func (l *simulatedSetWorkflow) runTurn() bool {
	d, err := runActivity[set.Decision](l, newActivities(l.Kube).DecideSet, l.nextInput())
	require.NoError(l.T, err)
	l.readsLive = false
	l.raiseMinVersions(d.Seen)
	l.simulateOtherClients()
	acted, err := l.carryOutDecision(d)
	var application *temporal.ApplicationError
	if errors.As(err, &application) && application.Type() == kube.FailureTypeConflict {
		l.readsLive = true
		return true
	}
	require.NoError(l.T, err)
	return acted
}

// carryOutDecision carries out a decision, and then writes the status.
func (l *simulatedSetWorkflow) carryOutDecision(d set.Decision) (acted bool, err error) {
	var done set.WriteResult
	died := false
	switch {
	case len(d.Scale.Create) > 0:
		half := l.random.IntN(len(d.Scale.Create))
		in := func(n int) any { return set.MachineCreation{Set: l.ref, Version: d.Version, Names: d.Scale.Create[:n]} }
		done, died, err = l.writeBatch(newActivities(l.Kube).CreateMachines, in(half), in(len(d.Scale.Create)))
	case len(d.Scale.Delete) > 0:
		half := l.random.IntN(len(d.Scale.Delete))
		in := func(n int) any { return set.MachineBatch{Set: l.ref, Machines: d.Scale.Delete[:n]} }
		done, died, err = l.writeBatch(newActivities(l.Kube).DeleteMachines, in(half), in(len(d.Scale.Delete)))
		l.readsLive = err != nil || done.Unseen
	}
	if died {
		l.restartRun()
		return true, nil
	}
	l.raiseMinVersions(done.Versions)
	acted = len(d.Scale.Create)+len(d.Scale.Delete) > 0
	if err != nil || !d.Report {
		return acted, err
	}
	in := set.Report{Input: l.nextInput()}
	version, err := runActivity[string](l, newActivities(l.Kube).ReportSet, in)
	l.minVersions.RaiseVersion(cache.SetsResource, version)
	return true, err
}

// writeBatch carries out a batch once, twice or only half. A batch runs twice if the worker died or its answer was
// lost, and half if the workflow run ends.
func (l *simulatedSetWorkflow) writeBatch(activity, half, whole any) (done set.WriteResult, died bool, err error) {
	first := []any{nil, nil, nil, nil, nil, half, whole, half}
	chance := l.random.IntN(len(first))
	if first[chance] != nil {
		_, _ = activitiestest.RunActivity[set.WriteResult](l.World, activity, first[chance])
		l.checkCounts(l.countMachines())
	}
	if chance == len(first)-1 {
		return set.WriteResult{}, true, nil
	}
	done, err = activitiestest.RunActivity[set.WriteResult](l.World, activity, whole)
	l.checkCounts(l.countMachines())
	return done, false, err
}

func (l *simulatedSetWorkflow) nextInput() set.Input {
	return set.Input{ReadInput: kube.ReadInput{Ref: l.ref, Versions: maps.Clone(l.minVersions), Live: l.readsLive}}
}

func (l *simulatedSetWorkflow) raiseMinVersions(versions kube.MinVersions) {
	for resource, version := range versions {
		l.minVersions.RaiseVersion(resource, version)
	}
}

// runActivity runs an activity as a local activity, and then as a regular activity if the local activity times out.
// While the activity waits for the caches, events arrive in bursts, unless the caches must get no events.
func runActivity[T any](l *simulatedSetWorkflow, activity, in any) (answer T, err error) {
	silent := l.failedCacheWaits > 0 && !l.readsLive &&
		!l.Cluster.AwaitVersions(l.T.Context(), activitiestest.TestNamespace, l.minVersions, 0)
	if silent {
		l.failedCacheWaits--
	}
	for _, how := range []func(*activitiestest.World, any, any) (T, error){activitiestest.RunLocalActivity[T], activitiestest.RunActivity[T]} {
		waiting, done := context.WithCancel(l.T.Context())
		if !silent {
			go l.releaseEventsSlowly(waiting, l.nextInput().Versions)
		}
		answer, err = how(l.World, activity, in)
		done()
		l.checkCounts(l.countMachines())
		var application *temporal.ApplicationError
		if !errors.As(err, &application) || application.NonRetryable() {
			break
		}
	}
	return answer, err
}

// releaseEventsSlowly releases events in bursts until the caches have the given versions, so that the caches stay as
// stale as allowed.
func (l *simulatedSetWorkflow) releaseEventsSlowly(waiting context.Context, versions kube.MinVersions) {
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for waiting.Err() == nil {
		if !l.Cluster.AwaitVersions(waiting, activitiestest.TestNamespace, versions, 0) {
			l.client.machineWatch.releaseEvents(20)
		}
		<-tick.C
	}
}

// simulateOtherClients makes the writes of other clients, and then releases some events. One write lowers the priority
// of a machine, so that the next decision would choose another machine. Machines that are being deleted disappear.
func (l *simulatedSetWorkflow) simulateOtherClients() {
	buried := 0
	for _, m := range l.listMachines() {
		switch {
		case m.DeletionTimestamp != nil:
			if buried < 20 && l.randomBoolOneIn(2) {
				buried++
				l.EditObject(cache.MachinesResource, m.Name, map[string]any{"metadata": map[string]any{"finalizers": nil}})
			}
		case l.randomBoolOneIn(500):
			l.EditObject(
				cache.MachinesResource,
				m.Name,
				activitiestest.NewAnnotationPatch(v1alpha1.AnnotationMachinePriority, "2"),
			)
		}
	}
	l.client.machineWatch.releaseEvents(l.random.IntN(30))
}

func (l *simulatedSetWorkflow) listMachines() []v1alpha1.Machine {
	gv := v1alpha1.SchemeGroupVersion
	list, err := l.MachineClient.Tracker().
		List(gv.WithResource("machines"), gv.WithKind("Machine"), activitiestest.TestNamespace)
	require.NoError(l.T, err)
	return list.(*v1alpha1.MachineList).Items
}

// countMachines returns the number of machines, and the number of machines that are not being deleted.
func (l *simulatedSetWorkflow) countMachines() (all, live int) {
	for _, m := range l.listMachines() {
		all++
		if m.DeletionTimestamp == nil {
			live++
		}
	}
	return all, live
}

// delayedEventsClient is a client that counts its creations. The caches that use this client get events only when the
// test releases the events.
type delayedEventsClient struct {
	*fake.Clientset
	creations, deletions atomic.Int64
	machineWatch         delayedWatch
}

type delayedEventsV1alpha1Client struct {
	typed.MachineV1alpha1Interface
	*delayedEventsClient
}

type delayedEventsMachineClient struct {
	typed.MachineInterface
	*delayedEventsClient
}

func (l *delayedEventsClient) MachineV1alpha1() typed.MachineV1alpha1Interface {
	return delayedEventsV1alpha1Client{l.Clientset.MachineV1alpha1(), l}
}

func (g delayedEventsV1alpha1Client) Machines(namespace string) typed.MachineInterface {
	return delayedEventsMachineClient{g.MachineV1alpha1Interface.Machines(namespace), g.delayedEventsClient}
}

func (m delayedEventsMachineClient) Create(
	ctx context.Context,
	machine *v1alpha1.Machine,
	options metav1.CreateOptions,
) (*v1alpha1.Machine, error) {
	made, err := m.MachineInterface.Create(ctx, machine, options)
	if err == nil {
		m.creations.Add(1)
	}
	return made, err
}

func (m delayedEventsMachineClient) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := m.MachineInterface.Watch(ctx, options)
	if err == nil {
		m.machineWatch.Interface, m.machineWatch.resultChan = w, make(chan watch.Event)
		m.machineWatch.watchContext, m.machineWatch.cancelWatch = context.WithCancel(ctx)
		go m.machineWatch.holdEvents()
		w = &m.machineWatch
	}
	return w, err
}

// RESTClient sends deletions, because the fakes do not return the deleted object.
func (g delayedEventsV1alpha1Client) RESTClient() rest.Interface {
	c, err := typed.NewForConfigAndClient(&rest.Config{QPS: -1}, &http.Client{Transport: g.delayedEventsClient})
	if err != nil {
		panic(err)
	}
	return c.RESTClient()
}

// RoundTrip deletes a machine and returns the machine, or sometimes a Status, as for a machine without finalizers.
func (l *delayedEventsClient) RoundTrip(r *http.Request) (*http.Response, error) {
	var options metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
		return nil, err
	}
	api, name := l.Clientset.MachineV1alpha1().Machines(activitiestest.TestNamespace), path.Base(r.URL.Path)
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

// delayedWatch buffers events until the test releases the events.
type delayedWatch struct {
	watch.Interface
	resultChan   chan watch.Event
	watchContext context.Context // cancelled when the watch stops
	cancelWatch  func()
	releaseMutex sync.Mutex // locked while events are released
	heldMutex    sync.Mutex // guards heldEvents
	heldEvents   []watch.Event
}

func (w *delayedWatch) ResultChan() <-chan watch.Event { return w.resultChan }

func (w *delayedWatch) Stop() {
	w.cancelWatch()
	w.Interface.Stop()
}

func (w *delayedWatch) holdEvents() {
	for e := range w.Interface.ResultChan() {
		w.heldMutex.Lock()
		w.heldEvents = append(w.heldEvents, e)
		w.heldMutex.Unlock()
	}
}

// releaseEvents releases up to the given number of the oldest events.
func (w *delayedWatch) releaseEvents(most int) {
	w.releaseMutex.Lock()
	defer w.releaseMutex.Unlock()
	w.heldMutex.Lock()
	n := min(most, len(w.heldEvents))
	events := w.heldEvents[:n]
	w.heldEvents = w.heldEvents[n:]
	w.heldMutex.Unlock()
	for _, e := range events {
		select {
		case w.resultChan <- e:
		case <-w.watchContext.Done():
			return
		}
	}
}
