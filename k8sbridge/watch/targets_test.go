package watch

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/workflows/run"
)

// fakeTargets has the targets of namespaces, like the Registry.
type fakeTargets struct {
	mu            sync.Mutex
	targets       map[string]*cache.Target
	targetHandler func(namespace string, target *cache.Target)
}

func (f *fakeTargets) Target(namespace string) *cache.Target {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.targets[namespace]
}

func (f *fakeTargets) OnTarget(handle func(string, *cache.Target)) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targetHandler = handle
	for namespace, target := range f.targets {
		handle(namespace, target)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.targetHandler = func(string, *cache.Target) {}
	}
}

func (*fakeTargets) KeepConnected(string) {}

// setTarget replaces the target of a namespace.
func (f *fakeTargets) setTarget(namespace string, target *cache.Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets[namespace] = target
	f.targetHandler(namespace, target)
}

// endConnection ends the connection of a namespace without another target.
func (f *fakeTargets) endConnection(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.targets, namespace)
}

// targetCluster is a cluster that machines join.
type targetCluster struct {
	*bridgeTestEnv

	client *kubefake.Clientset
	target *cache.Target
}

func (w *bridgeTestEnv) newTargetCluster(identity string, nodes ...*corev1.Node) targetCluster {
	w.t.Helper()
	c := targetCluster{bridgeTestEnv: w, client: kubefake.NewClientset()}
	for _, node := range nodes {
		c.putNode(node)
	}
	c.target = cache.NewTarget(c.client, identity)
	require.NoError(w.t, c.target.WatchNodes())
	c.target.Start(w.t.Context())
	require.NoError(w.t, c.target.AwaitFilledCaches(w.t.Context()))
	return c
}

// putNode creates or replaces a node with a new version.
func (c targetCluster) putNode(node *corev1.Node) {
	c.t.Helper()
	c.lastResourceVersion++
	node = node.DeepCopy()
	node.ResourceVersion = strconv.Itoa(c.lastResourceVersion)
	tracker, resource := c.client.Tracker(), corev1.SchemeGroupVersion.WithResource("nodes")
	if _, err := tracker.Get(resource, "", node.Name); err != nil {
		require.NoError(c.t, tracker.Create(resource, node, ""))
		return
	}
	require.NoError(c.t, tracker.Update(resource, node, ""))
}

// runTargetsTest runs a test with one target for each namespace, and one machine in the namespace ns.
func runTargetsTest(t *testing.T, test func(w *bridgeTestEnv, targets *fakeTargets)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, targets := newBridgeTestEnv(t, testClass(), testMachine()), &fakeTargets{targets: map[string]*cache.Target{}}
		w.cluster.SetTargetSource(targets)
		w.startLeader()
		w.advanceClock(3 * time.Second)
		w.takeRequests()
		test(w, targets)
	})
}

func unreadyNode() *corev1.Node { return changedCopy(testNode(), setNodeUnready) }

func TestNodesOfAReplacedTargetAreForgotten(t *testing.T) {
	runTargetsTest(t, func(w *bridgeTestEnv, targets *fakeTargets) {
		withoutNodes := w.countFingerprints()
		former := w.newTargetCluster("one", testNode())
		targets.setTarget("ns", former.target)
		w.runDebouncedWork()
		require.Equal(t, withoutNodes+1, w.countFingerprints())
		for range 3 {
			node := testNode()
			node.UID += "-again"
			next := w.newTargetCluster("one", node)
			targets.setTarget("ns", next.target)
			w.runDebouncedWork()
			w.takeRequests()
			assert.Equal(t, withoutNodes+1, w.countFingerprints())

			former.putNode(unreadyNode())
			w.runDebouncedWork()
			assert.Empty(t, w.takeRequests(), "the former target has no handler")
			next.putNode(changedCopy(node, setNodeUnready))
			w.runDebouncedWork()
			assert.Equal(t, []string{signalWithStartLine(testMachine())}, w.takeRequests())
			former = next
		}
		targets.setTarget("ns", nil)
		assert.Equal(t, withoutNodes, w.countFingerprints(), "the machines of the namespace join no cluster")

		targets.setTarget("ns", former.target)
		w.runDebouncedWork()
		require.Equal(t, withoutNodes+1, w.countFingerprints())
		targets.endConnection("ns")
		w.advanceClock(2 * resyncInterval)
		assert.Equal(t, withoutNodes, w.countFingerprints(), "the namespace is not served any more")
	})
}

// The API server of a target may invent nodes with any name, UID and provider ID.
func TestNodesOfATargetSignalNoMachineOfAnotherTarget(t *testing.T) {
	runTargetsTest(t, func(w *bridgeTestEnv, targets *fakeTargets) {
		own, other := w.newTargetCluster("own", testNode()), w.newTargetCluster("other", testNode())
		targets.setTarget("ns", own.target)
		targets.setTarget("other", other.target)
		w.runDebouncedWork()
		w.takeRequests()

		other.putNode(unreadyNode())
		w.runDebouncedWork()
		assert.Empty(t, w.takeRequests())
		own.putNode(unreadyNode())
		w.runDebouncedWork()
		assert.Equal(t, []string{signalWithStartLine(testMachine())}, w.takeRequests(), "the other node has the same UID")
		for _, taint := range []string{"x", "y"} {
			other.putNode(changedCopy(unreadyNode(), func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: taint}} }))
			w.runDebouncedWork()
			assert.Empty(t, w.takeRequests(), "the machine has pending work, but the node is not of its cluster")
		}

		w.putObject(changedCopy(testMachine(), func(m *v1alpha1.Machine) { m.Namespace, m.UID = "twin", "uid-twin" }))
		twin := w.newTargetCluster("own", unreadyNode())
		targets.setTarget("twin", twin.target)
		w.advanceClock(3 * time.Second)
		w.takeRequests()
		own.putNode(changedCopy(unreadyNode(), func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }))
		w.runDebouncedWork()
		assert.Len(t, w.takeRequests(), 2, "two namespaces with one cluster")
	})
}

// A tenant may make any number of deployments, and must not get more turns by that.
func TestObjectsOfANamespaceWithItsOwnTargetShareAFairnessKey(t *testing.T) {
	runTargetsTest(t, func(w *bridgeTestEnv, _ *fakeTargets) {
		keyOf := func(namespace, deployment string) string {
			of := subject{parentNames: run.ParentNames{MachineDeployment: deployment}}
			return w.bridge.startOptions(objectKey{run.KindMachine, namespace, "m"}, of).Priority.FairnessKey
		}
		assert.Equal(t, keyOf("ns", "a"), keyOf("ns", "b"))
		assert.NotEqual(t, keyOf("ns", "a"), keyOf("other", "a"))
		w.cluster.SetTargetSource(nil)
		assert.NotEqual(t, keyOf("ns", "a"), keyOf("ns", "b"))
	})
}
