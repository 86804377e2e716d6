// Package activitiestest runs activities on fake clusters, for the tests of activities.
package activitiestest

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"millwright/activities/kube"
	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	capidrain "millwright/observe/capi/drain"
)

// eventTimeout is the timeout of a wait for an event that must come, even on a busy machine.
const eventTimeout = 2 * time.Minute

// World is a control cluster with its target cluster, the activities on them, and the events that the activities
// recorded.
type World struct {
	T                *testing.T
	APIServer        *apiServer
	MachineClient    *fake.Clientset
	TargetClient     *kubefake.Clientset
	MetadataClient   *metadatafake.FakeMetadataClient // metadata client of Secrets
	Recorder         *record.FakeRecorder
	ClusterAPIServer *capitest.FakeServer        // server of the objects of Cluster API; nil without Cluster API
	ClusterAPICache  *capi.Cache                 // cache of the objects of Cluster API
	WorkloadClusters *capidrain.WorkloadClusters // workload clusters of Cluster API; each of them is Target
	KubeconfigClient *kubefake.Clientset         // client of the kubeconfigs of workload clusters; nil without Cluster API
	*kube.Kube
	ClockAhead time.Duration // how far the worker's clock is ahead of the servers' clocks while an activity runs; see Worker
}

// NewWorld returns a world that holds these objects in its API server and its caches.
func NewWorld(t *testing.T, objects ...kuberuntime.Object) *World {
	t.Helper()
	return newWorld(t, objects, func(*World, *cache.Cluster) int { return 0 })
}

// newWorld returns a world that holds these objects. The function watch adds caches before the caches start, and
// returns the number of added caches.
func newWorld(t *testing.T, objects []kuberuntime.Object, watch func(*World, *cache.Cluster) int) *World {
	t.Helper()
	w := &World{T: t, APIServer: newAPIServer(), Recorder: record.NewFakeRecorder(1000)}
	var ours, nodes, secrets []kuberuntime.Object
	for _, o := range objects {
		switch _, isMetadata := o.(*metav1.PartialObjectMetadata); {
		case isMetadata:
			secrets = append(secrets, o)
		case strings.Contains(reflect.TypeOf(o).String(), "v1alpha1."):
			ours = append(ours, o)
		default:
			nodes = append(nodes, o)
		}
	}
	w.MachineClient, w.TargetClient = fake.NewSimpleClientset(ours...), kubefake.NewClientset(nodes...)
	w.APIServer.interceptRequests(w.MachineClient)
	w.APIServer.interceptRequests(w.TargetClient)
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	w.MetadataClient = metadatafake.NewSimpleMetadataClient(scheme, secrets...)
	w.APIServer.interceptRequests(w.MetadataClient)
	cluster, err := cache.NewCluster(w.MachineClient, w.TargetClient, w.MetadataClient)
	require.NoError(t, err)
	require.NoError(t, cluster.WatchDrainResources())
	more := watch(w, cluster)
	require.NoError(t, cluster.Start(t.Context()))
	for range 10 + more { // wait until the watch of each cache has started, because a fake client drops earlier events
		<-w.APIServer.WatchStarts
	}
	require.Eventually(t, cluster.Target("").IsAttachmentCacheCurrent, eventTimeout, time.Millisecond)
	w.Kube = &kube.Kube{Cluster: cluster, Recorder: w.Recorder}
	w.ForgetRequests()
	return w
}

// RunActivity runs an activity as a regular activity.
func RunActivity[T any](w *World, activity, in any) (T, error) {
	w.T.Helper()
	return ExecuteActivity[T](w.T, activity, in, (*testsuite.TestActivityEnvironment).ExecuteActivity)
}

// RunLocalActivity runs an activity as a local activity.
func RunLocalActivity[T any](w *World, activity, in any) (T, error) {
	w.T.Helper()
	return ExecuteActivity[T](w.T, activity, in, (*testsuite.TestActivityEnvironment).ExecuteLocalActivity)
}

func ExecuteActivity[T any](
	t *testing.T,
	activity, in any,
	how func(*testsuite.TestActivityEnvironment, any, ...any) (converter.EncodedValue, error),
) (result T, err error) {
	t.Helper()
	env := NewActivityEnvironment()
	env.RegisterActivity(activity)
	value, err := how(env, activity, in)
	if err == nil && value.HasValue() {
		require.NoError(t, value.Get(&result))
	}
	return result, err
}

// NewActivityEnvironment returns an environment that runs activities without logs. NewActivityEnvironment's timeout is
// eventTimeout, because the test suite would end a local activity after three seconds of the real clock.
func NewActivityEnvironment() *testsuite.TestActivityEnvironment {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(eventTimeout)
	return env
}

// NewWorkflowEnvironment returns an environment that runs workflows without logs. NewWorkflowEnvironment's timeouts are
// eventTimeout. On a busy machine, a workflow may be blocked longer than the test suite's timeout of a few seconds and
// the SDK's deadlock timeout of one second.
func NewWorkflowEnvironment() *testsuite.TestWorkflowEnvironment {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(eventTimeout)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: eventTimeout})
	return env
}

// RunActivityTwice runs an activity two times, as Temporal does when an answer is lost. The second run must succeed,
// write nothing and record no event. RunActivityTwice returns the result of the first run.
func RunActivityTwice[T any](w *World, activity, in any) T {
	w.T.Helper()
	w.AwaitCaches()
	first, err := RunActivity[T](w, activity, in)
	require.NoError(w.T, err)
	w.AwaitCaches()
	before, told := w.Snapshot(), len(w.Recorder.Events)
	_, err = RunActivity[T](w, activity, in)
	name := runtime.FuncForPC(reflect.ValueOf(activity).Pointer()).Name()
	require.NoError(w.T, err, "%s, again", name)
	assert.Equal(w.T, before, w.Snapshot(), "%s changed something the second time", name)
	assert.Len(w.T, w.Recorder.Events, told, "%s told something twice", name)
	return first
}

// AwaitCaches waits until the caches contain all writes.
func (w *World) AwaitCaches() {
	w.T.Helper()
	versions := cache.MinVersions{}
	w.APIServer.mu.Lock()
	for what, version := range w.APIServer.lastVersionByResource {
		if w.APIServer.watchedByCache[what] {
			versions.RaiseVersion(cacheResourceOf(what.gvr), version)
		}
	}
	w.APIServer.mu.Unlock()
	require.True(
		w.T,
		w.Cluster.AwaitVersions(w.T.Context(), TestNamespace, versions, eventTimeout),
		"the caches stay behind",
	)
}

// HoldEvents delays the events of the caches until the returned function is called, or the test ends.
func (w *World) HoldEvents() (release func()) {
	w.AwaitCaches()
	w.APIServer.setEventsHeld(true)
	release = func() { w.APIServer.setEventsHeld(false) }
	w.T.Cleanup(release)
	return release
}

// Snapshot returns everything in the API server, as text.
func (w *World) Snapshot() string {
	w.T.Helper()
	var all []any
	for _, kind := range []string{"Machine", "MachineSet", "MachineDeployment", "MachineClass"} {
		kind := v1alpha1.SchemeGroupVersion.WithKind(kind)
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		all = append(all, w.listObjects(w.MachineClient.Tracker(), resource, kind))
	}
	core := corev1.SchemeGroupVersion
	all = append(all, w.listObjects(w.TargetClient.Tracker(), core.WithResource("nodes"), core.WithKind("Node")))
	all = append(all, w.listObjects(w.TargetClient.Tracker(), core.WithResource("secrets"), core.WithKind("Secret")))
	// metadataOnly is the kind of the fake client's lists.
	metadataOnly := schema.GroupVersionKind{Group: "fake-metadata-client-group", Version: "v1"}
	all = append(all, w.listObjects(w.MetadataClient.Tracker(), core.WithResource("secrets"), metadataOnly))
	all = append(all, w.clusterAPIObjects()...)
	text, err := json.MarshalIndent(all, "", " ")
	require.NoError(w.T, err)
	return string(text)
}

func (w *World) listObjects(
	tracker clienttesting.ObjectTracker,
	resource schema.GroupVersionResource,
	kind schema.GroupVersionKind,
) []kuberuntime.Object {
	w.T.Helper()
	list, err := tracker.List(resource, kind, "")
	require.NoError(w.T, err)
	items, err := meta.ExtractList(list)
	require.NoError(w.T, err)
	return items
}

// Requests returns the requests to the API servers since ForgetRequests, as verb and resource: "patch machines".
// Requests omits the watches of the caches, because these watches begin at random times. Watches of pods are included:
// only drains watch pods.
func (w *World) Requests() []string {
	list := []string{}
	for _, action := range slices.Concat(
		w.MachineClient.Actions(), w.TargetClient.Actions(), w.MetadataClient.Actions(), w.clusterAPIRequests(),
	) {
		if action.GetVerb() == "watch" && action.GetResource().Resource != "pods" {
			continue
		}
		list = append(
			list,
			strings.TrimSuffix(action.GetVerb()+" "+action.GetResource().Resource+"/"+action.GetSubresource(), "/"),
		)
	}
	return list
}

// MutatingRequests returns the requests that may change something.
func (w *World) MutatingRequests() []string {
	list := []string{}
	for _, r := range w.Requests() {
		switch verb, _, _ := strings.Cut(r, " "); verb {
		case "get", "list", "watch":
		default:
			list = append(list, r)
		}
	}
	return list
}

func (w *World) ForgetRequests() {
	w.MachineClient.ClearActions()
	w.TargetClient.ClearActions()
	w.MetadataClient.ClearActions()
	if w.ClusterAPIServer != nil {
		for _, fake := range w.ClusterAPIServer.FakeClientsets() {
			fake.ClearActions()
		}
	}
}

// TakeNewEvents returns the events since the last call of TakeNewEvents, as "type reason message".
func (w *World) TakeNewEvents() []string {
	events := []string{}
	for len(w.Recorder.Events) > 0 {
		events = append(events, <-w.Recorder.Events)
	}
	return events
}

// FailRequests makes the next requests of one kind fail; times is the number of failures. FailRequests calls do just
// before each failure; do may be nil.
func FailRequests(c interface {
	PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
}, verb, resource string, times int, err error, do func(),
) {
	c.PrependReactor(verb, resource, func(clienttesting.Action) (bool, kuberuntime.Object, error) {
		if times == 0 {
			return false, nil, nil
		}
		times--
		if do != nil {
			do()
		}
		return err != nil, nil, err
	})
}

// FailureTypeOf returns the type and the retryability of an activity's error.
func FailureTypeOf(t *testing.T, err error) (kind string, retryable bool) {
	t.Helper()
	var application *temporal.ApplicationError
	require.ErrorAs(t, err, &application)
	return application.Type(), !application.NonRetryable()
}

func AssertFailure(t *testing.T, err error, kind string, retryable bool) {
	t.Helper()
	gotKind, gotRetryable := FailureTypeOf(t, err)
	assert.Equal(t, kind, gotKind)
	assert.Equal(t, retryable, gotRetryable, "retryable")
}
