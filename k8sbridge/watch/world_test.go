package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	kubetesting "k8s.io/client-go/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/decide/preflight"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/capitest"
	"millwright/workflows/run"
)

// temporalCall is one request to Temporal.
type temporalCall struct {
	verb          string // kind of request: signal-with-start, signal or start
	workflowID    string
	signalContent run.ChangeSignal // content of a signal
	input         run.Input        // workflow input of a start
	workflow      any
	options       client.StartWorkflowOptions
	callTime      time.Time
}

// fakeTemporal records requests and returns the answers that the test has set.
type fakeTemporal struct {
	mu                 sync.Mutex
	calls              []temporalCall
	callError          error         // error that every call returns
	answerDelay        time.Duration // answerDelay is the delay of Temporal's answer
	closedWorkflowID   string        // ID of a workflow that is not open: a plain signal returns NotFound
	openRunIDs         []string      // IDs of all open runs
	inFlightCallCounts map[string]int
	maxConcurrentCalls int // maximum number of concurrent calls for one workflow
}

func (f *fakeTemporal) recordCall(ctx context.Context, c temporalCall) error {
	c.callTime = time.Now()
	// the recorded call contains copies of the current versions
	c.signalContent.Versions, c.input.Versions = maps.Clone(c.signalContent.Versions), maps.Clone(c.input.Versions)
	f.mu.Lock()
	f.calls = append(f.calls, c)
	f.inFlightCallCounts[c.workflowID]++
	f.maxConcurrentCalls = max(f.maxConcurrentCalls, f.inFlightCallCounts[c.workflowID])
	answer, delay := f.callError, f.answerDelay
	f.mu.Unlock()
	select {
	case <-ctx.Done():
		answer = ctx.Err()
	case <-time.After(delay):
	}
	f.mu.Lock()
	f.inFlightCallCounts[c.workflowID]--
	f.mu.Unlock()
	return answer
}

func (f *fakeTemporal) SignalWithStartWorkflow(
	ctx context.Context,
	id, signal string,
	arg any,
	options client.StartWorkflowOptions,
	workflow any,
	args ...any,
) (client.WorkflowRun, error) {
	if signal != run.SignalChanged || options.ID != id {
		return nil, errors.New("nobody would understand this")
	}
	return nil, f.recordCall(
		ctx,
		temporalCall{"signal-with-start", id, arg.(run.ChangeSignal), args[0].(run.Input), workflow, options, time.Time{}},
	)
}

func (f *fakeTemporal) ListWorkflow(
	_ context.Context,
	request *workflowservice.ListWorkflowExecutionsRequest,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.callError != nil {
		return nil, f.callError
	}
	runs := slices.DeleteFunc(slices.Clone(f.openRunIDs), func(id string) bool {
		// keep runs whose type is in the query, and runs with an unknown type
		kind, _, known := run.InstallationInID(id).ParseID(id)
		return known && !strings.Contains(request.GetQuery(), fmt.Sprintf("'%s'", kind))
	})
	n := len(request.GetNextPageToken()) // each page contains one run
	answer := &workflowservice.ListWorkflowExecutionsResponse{}
	if n < len(runs) {
		answer.Executions = []*workflowpb.WorkflowExecutionInfo{{Execution: &commonpb.WorkflowExecution{WorkflowId: runs[n]}}}
	}
	if n+1 < len(runs) {
		answer.NextPageToken = make([]byte, n+1)
	}
	return answer, nil
}

func (f *fakeTemporal) SignalWorkflow(ctx context.Context, id, _, _ string, arg any) error {
	err := f.recordCall(ctx, temporalCall{verb: "signal", workflowID: id, signalContent: arg.(run.ChangeSignal)})
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && id == f.closedWorkflowID {
		return serviceerror.NewNotFound("workflow execution already completed")
	}
	return err
}

func (f *fakeTemporal) ExecuteWorkflow(
	ctx context.Context,
	options client.StartWorkflowOptions,
	workflow any,
	args ...any,
) (client.WorkflowRun, error) {
	return nil, f.recordCall(
		ctx,
		temporalCall{verb: "start", workflowID: options.ID, workflow: workflow, input: args[0].(run.Input), options: options},
	)
}

// setCallResult sets the answer to all later calls.
func (f *fakeTemporal) setCallResult(answer error, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.callError, f.answerDelay = answer, delay
}

// closeWorkflow marks a workflow as not open.
func (f *fakeTemporal) closeWorkflow(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closedWorkflowID = id
}

// bridgeTestEnv is a bridge with fake clusters and a fake Temporal. bridgeTestEnv runs in a synctest bubble with a fake
// clock.
type bridgeTestEnv struct {
	*fakeTemporal
	t                   *testing.T
	machineClient       *fake.Clientset
	targetClient        *kubefake.Clientset
	metadataClient      *metadatafake.FakeMetadataClient
	dynamicClient       *dynamicfake.FakeDynamicClient
	capiServer          *capitest.FakeServer // server of the Cluster API objects; nil without such objects
	capiCache           *capi.Cache
	cluster             *cache.Cluster
	bridge              *Bridge
	metrics             *prometheus.Registry // metrics of the current bridge
	lastResourceVersion int
	stopBridge          func()
	prepareBridge       func(*Bridge) // changes a bridge before it runs; may be nil
}

// runBridgeTest runs a test with a bridge that has evaluated the given objects and is idle.
func runBridgeTest(t *testing.T, objects []runtime.Object, test func(w *bridgeTestEnv)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newBridgeTestEnv(t, objects...)
		w.startLeader()
		w.advanceClock(3 * time.Second)
		test(w)
	})
}

// newBridgeTestEnv fills caches with objects; startLeader starts a bridge. The bridge watches control planes only if
// objects contains one, and Cluster API's kinds only if objects contains a Cluster.
func newBridgeTestEnv(t *testing.T, objects ...runtime.Object) *bridgeTestEnv {
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	w := &bridgeTestEnv{
		fakeTemporal:        &fakeTemporal{inFlightCallCounts: map[string]int{}},
		t:                   t,
		lastResourceVersion: 100,
		machineClient:       fake.NewSimpleClientset(),
		targetClient:        kubefake.NewClientset(),
		metadataClient:      metadatafake.NewSimpleMetadataClient(scheme),
		dynamicClient: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(
			runtime.NewScheme(),
			map[schema.GroupVersionResource]string{controlPlaneResource(): "ControlPlaneList"},
		),
	}
	withClusterAPI := slices.ContainsFunc(
		objects,
		func(o runtime.Object) bool { _, is := o.(*clusterv1.Cluster); return is },
	)
	if withClusterAPI {
		w.capiServer = capitest.NewFakeServer()
	}
	for _, o := range objects {
		w.putObject(o)
	}
	cluster, err := cache.NewCluster(w.machineClient, w.targetClient, w.metadataClient)
	require.NoError(t, err)
	if slices.ContainsFunc(
		objects,
		func(o runtime.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == "ControlPlane" },
	) {
		cluster.WatchControlPlane(cache.PreflightConfig{
			Client:       w.dynamicClient,
			Checks:       []string{preflight.CheckAll},
			ControlPlane: cache.ControlPlaneRef{Resource: controlPlaneResource(), Namespace: "ns", Name: "cp"},
		})
	}
	w.cluster = cluster
	if slices.ContainsFunc(objects, func(o runtime.Object) bool { _, is := o.(*corev1.Namespace); return is }) {
		require.NoError(t, cluster.WatchOtherControllers(w.targetClient, "millwright"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	if withClusterAPI {
		w.capiCache, err = capi.WatchObjects(ctx, cluster, w.capiServer.Client, capitest.DefaultSettings)
		require.NoError(t, err)
	}
	require.NoError(t, cluster.Start(ctx))
	return w
}

// startLeader makes a new bridge the leader. The previous bridge stops.
func (w *bridgeTestEnv) startLeader() {
	if w.stopBridge != nil {
		w.stopBridge()
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	w.metrics = prometheus.NewRegistry()
	w.bridge = New(
		testInstallation.Shard(0),
		w.cluster,
		w.fakeTemporal,
		NewMetrics(w.metrics),
		slog.New(slog.DiscardHandler),
	)
	if w.capiCache != nil {
		w.bridge.WatchClusterAPI(w.capiCache)
	}
	if w.prepareBridge != nil {
		w.prepareBridge(w.bridge)
	}
	done := make(chan error, 1)
	go func() { done <- w.bridge.Run(ctx) }()
	w.stopBridge = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-done)
	})
	w.t.Cleanup(w.stopBridge)
}

func (w *bridgeTestEnv) advanceClock(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// runDueWork runs all work that is due at once.
func (w *bridgeTestEnv) runDueWork() { w.advanceClock(time.Millisecond) }

// runDebouncedWork runs all debounced work.
func (w *bridgeTestEnv) runDebouncedWork() { w.advanceClock(debounceDelay + time.Millisecond) }

// trackerOf returns the fake API server for objects of this type.
func (w *bridgeTestEnv) trackerOf(o runtime.Object) (kubetesting.ObjectTracker, schema.GroupVersionResource) {
	switch o := o.(type) {
	case *clusterv1.MachineSet:
		return w.capiServer.Clientset.Tracker(), clusterv1.GroupVersion.WithResource("machinesets")
	case *clusterv1.Machine:
		return w.capiServer.Clientset.Tracker(), clusterv1.GroupVersion.WithResource("machines")
	case *clusterv1.MachineDeployment:
		return w.capiServer.Clientset.Tracker(), clusterv1.GroupVersion.WithResource("machinedeployments")
	case *clusterv1.Cluster:
		return w.capiServer.Clientset.Tracker(), clusterv1.GroupVersion.WithResource("clusters")
	case *v1alpha1.Machine:
		return w.machineClient.Tracker(), v1alpha1.SchemeGroupVersion.WithResource("machines")
	case *v1alpha1.MachineSet:
		return w.machineClient.Tracker(), v1alpha1.SchemeGroupVersion.WithResource("machinesets")
	case *v1alpha1.MachineDeployment:
		return w.machineClient.Tracker(), v1alpha1.SchemeGroupVersion.WithResource("machinedeployments")
	case *v1alpha1.MachineClass:
		return w.machineClient.Tracker(), v1alpha1.SchemeGroupVersion.WithResource("machineclasses")
	case *v1alpha1.RolloutPolicy:
		return w.machineClient.Tracker(), v1alpha1.SchemeGroupVersion.WithResource("rolloutpolicies")
	case *unstructured.Unstructured:
		if capitest.ResourceOfObject(o) != controlPlaneResource() {
			return w.capiServer.ProviderObjects.Tracker(), capitest.ResourceOfObject(o)
		}
		return w.dynamicClient.Tracker(), controlPlaneResource()
	case *corev1.Node:
		return w.targetClient.Tracker(), corev1.SchemeGroupVersion.WithResource("nodes")
	case *corev1.Namespace:
		return w.targetClient.Tracker(), corev1.SchemeGroupVersion.WithResource("namespaces")
	default:
		return w.metadataClient.Tracker(), corev1.SchemeGroupVersion.WithResource("secrets")
	}
}

// putObject creates or replaces an object with a new version, and returns that version.
func (w *bridgeTestEnv) putObject(o runtime.Object) string {
	w.t.Helper()
	w.lastResourceVersion++
	version := strconv.Itoa(w.lastResourceVersion)
	o = o.DeepCopyObject()
	object, err := meta.Accessor(o)
	require.NoError(w.t, err)
	object.SetResourceVersion(version)
	tracker, resource := w.trackerOf(o)
	err = tracker.Create(resource, o, object.GetNamespace())
	if apierrors.IsAlreadyExists(err) {
		err = tracker.Update(resource, o, object.GetNamespace())
	}
	require.NoError(w.t, err)
	return version
}

func (w *bridgeTestEnv) deleteObject(o runtime.Object) {
	w.t.Helper()
	object, err := meta.Accessor(o)
	require.NoError(w.t, err)
	tracker, resource := w.trackerOf(o)
	require.NoError(w.t, tracker.Delete(resource, object.GetNamespace(), object.GetName()))
}

// takeCalls returns the calls since the last call of takeCalls.
func (w *bridgeTestEnv) takeCalls() []temporalCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

// takeRequests returns the requests to Temporal since the last call, sorted, as "verb id".
func (w *bridgeTestEnv) takeRequests() []string {
	lines := []string{}
	for _, c := range w.takeCalls() {
		lines = append(lines, c.verb+" "+c.workflowID)
	}
	slices.Sort(lines)
	return lines
}

// testInstallation is the installation of the bridge.
const testInstallation run.Installation = "garden"

// signalWithStartLine returns the line in the result of takeRequests for a signal to an existing object.
func signalWithStartLine(o metav1.Object) string { return "signal-with-start " + workflowIDOf(o) }

func workflowIDOf(o metav1.Object) string {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1alpha1.")
	return testInstallation.ID(run.Kind(kind), objectRef(o))
}

// countStoredEntries counts the entries about objects in the bridge's maps.
func (w *bridgeTestEnv) countStoredEntries() int {
	w.bridge.mu.Lock()
	defer w.bridge.mu.Unlock()
	return len(w.bridge.pendingSignals) + len(w.bridge.nextSignalTimes)
}

func (w *bridgeTestEnv) countFingerprints() int {
	w.bridge.mu.Lock()
	defer w.bridge.mu.Unlock()
	count := len(w.bridge.storedFingerprints)
	for _, watch := range w.bridge.nodeWatches.watchesByNamespace() {
		count += len(watch.fingerprints)
	}
	return count
}
