package activities_test

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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"millwright/activities"
	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

// world is a control cluster with its target, the activities that work on them, and what these told people.
type world struct {
	t        *testing.T
	server   *apiServer
	machines *fake.Clientset
	target   *kubefake.Clientset
	meta     *metadatafake.FakeMetadataClient // of Secrets
	recorder *record.FakeRecorder
	*activities.Activities
}

// newWorld returns a world that holds these objects, machine objects and nodes alike, in its API server and its caches.
func newWorld(t *testing.T, objects ...kuberuntime.Object) *world {
	t.Helper()
	w := &world{t: t, server: newAPIServer(), recorder: record.NewFakeRecorder(1000)}
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
	w.machines, w.target = fake.NewSimpleClientset(ours...), kubefake.NewClientset(nodes...)
	w.server.serve(w.machines)
	w.server.serve(w.target)
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	w.meta = metadatafake.NewSimpleMetadataClient(scheme, secrets...)
	w.server.serve(w.meta)
	cluster, err := observe.NewCluster(w.machines, w.target, w.meta)
	require.NoError(t, err)
	require.NoError(t, cluster.WatchDrains())
	require.NoError(t, cluster.Start(t.Context()))
	for range 9 { // one for each cache: a fake forgets deletions that nobody watches
		<-w.server.watched
	}
	require.Eventually(t, cluster.KnowsAttachments, 5*time.Second, time.Millisecond)
	w.Activities = &activities.Activities{Cluster: cluster, Recorder: w.recorder}
	w.forget()
	return w
}

// run runs an activity as a regular one.
func run[T any](w *world, activity, in any) (T, error) {
	w.t.Helper()
	return execute[T](w.t, w.Activities, activity, in, (*testsuite.TestActivityEnvironment).ExecuteActivity)
}

// local runs an activity as a local one.
func local[T any](w *world, activity, in any) (T, error) {
	w.t.Helper()
	return execute[T](w.t, w.Activities, activity, in, (*testsuite.TestActivityEnvironment).ExecuteLocalActivity)
}

func execute[T any](t *testing.T, acts, activity, in any, how func(*testsuite.TestActivityEnvironment, any, ...any) (converter.EncodedValue, error)) (result T, err error) {
	t.Helper()
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(acts)
	value, err := how(env, activity, in)
	if err == nil && value.HasValue() {
		require.NoError(t, value.Get(&result))
	}
	return result, err
}

// twice runs an activity two times, as Temporal does when an answer is lost. The second time must succeed too, write
// nothing and tell nobody. It returns what the first one answered.
func twice[T any](w *world, activity, in any) T {
	w.t.Helper()
	w.settle()
	first, err := run[T](w, activity, in)
	require.NoError(w.t, err)
	w.settle()
	before, told := w.snapshot(), len(w.recorder.Events)
	_, err = run[T](w, activity, in)
	name := runtime.FuncForPC(reflect.ValueOf(activity).Pointer()).Name()
	require.NoError(w.t, err, "%s, again", name)
	assert.Equal(w.t, before, w.snapshot(), "%s changed something the second time", name)
	assert.Len(w.t, w.recorder.Events, told, "%s told something twice", name)
	return first
}

// settle waits until the caches hold what was written.
func (w *world) settle() {
	w.t.Helper()
	gate := observe.Gate{}
	w.server.mu.Lock()
	for what, version := range w.server.written {
		if w.server.watching[what] {
			gate.Raise(observe.Resource(what.gvr.Resource), version)
		}
	}
	w.server.mu.Unlock()
	require.True(w.t, w.Cluster.Await(w.t.Context(), gate, 10*time.Second), "the caches stay behind")
}

// hold keeps events from the caches until the returned function is called, or the test ends.
func (w *world) hold() (release func()) {
	w.settle()
	w.server.lag.Lock()
	released := false
	release = func() {
		if !released {
			released = true
			w.server.lag.Unlock()
		}
	}
	w.t.Cleanup(release)
	return release
}

// snapshot returns everything in the API server, as text.
func (w *world) snapshot() string {
	w.t.Helper()
	var all []any
	for _, kind := range []string{"Machine", "MachineSet", "MachineDeployment", "MachineClass"} {
		kind := v1alpha1.SchemeGroupVersion.WithKind(kind)
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		all = append(all, w.list(w.machines.Tracker(), resource, kind))
	}
	core := corev1.SchemeGroupVersion
	all = append(all, w.list(w.target.Tracker(), core.WithResource("nodes"), core.WithKind("Node")))
	all = append(all, w.list(w.target.Tracker(), core.WithResource("secrets"), core.WithKind("Secret")))
	metadataOnly := schema.GroupVersionKind{Group: "fake-metadata-client-group", Version: "v1"} // of the fake client's lists
	all = append(all, w.list(w.meta.Tracker(), core.WithResource("secrets"), metadataOnly))
	text, err := json.MarshalIndent(all, "", " ")
	require.NoError(w.t, err)
	return string(text)
}

func (w *world) list(tracker clienttesting.ObjectTracker, resource schema.GroupVersionResource, kind schema.GroupVersionKind) any {
	w.t.Helper()
	list, err := tracker.List(resource, kind, "")
	require.NoError(w.t, err)
	items, err := meta.ExtractList(list)
	require.NoError(w.t, err)
	return items
}

// requests returns what was asked of the API servers since forget, as verb and resource: "patch machines".
func (w *world) requests() []string {
	list := []string{}
	for _, action := range slices.Concat(w.machines.Actions(), w.target.Actions(), w.meta.Actions()) {
		list = append(list, strings.TrimSuffix(action.GetVerb()+" "+action.GetResource().Resource+"/"+action.GetSubresource(), "/"))
	}
	return list
}

// writes returns those of the requests that may change something.
func (w *world) writes() []string {
	list := []string{}
	for _, r := range w.requests() {
		switch verb, _, _ := strings.Cut(r, " "); verb {
		case "get", "list", "watch":
		default:
			list = append(list, r)
		}
	}
	return list
}

func (w *world) forget() {
	w.machines.ClearActions()
	w.target.ClearActions()
	w.meta.ClearActions()
}

// told returns the events since the last call, as "type reason message".
func (w *world) told() []string {
	events := []string{}
	for len(w.recorder.Events) > 0 {
		events = append(events, <-w.recorder.Events)
	}
	return events
}

// failing makes requests fail, as many as given and of one kind; do, which may be nil, happens just before.
func failing(c interface {
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

// failure returns the type and the retryability of what an activity failed with.
func failure(t *testing.T, err error) (kind string, retryable bool) {
	t.Helper()
	var application *temporal.ApplicationError
	require.ErrorAs(t, err, &application)
	return application.Type(), !application.NonRetryable()
}

func assertFailure(t *testing.T, err error, kind string, retryable bool) {
	t.Helper()
	gotKind, gotRetryable := failure(t, err)
	assert.Equal(t, kind, gotKind)
	assert.Equal(t, retryable, gotRetryable, "retryable")
}
