package observetest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/observe/cache"
)

// Targets is a cache.TargetSource with fixed targets, by namespace. The machines of other namespaces join no cluster.
type Targets map[string]*cache.Target

// Target implements cache.TargetSource.
func (t Targets) Target(namespace string) *cache.Target { return t[namespace] }

// OnTarget implements cache.TargetSource.
func (t Targets) OnTarget(handle func(namespace string, target *cache.Target)) (stop func()) {
	for namespace, target := range t {
		handle(namespace, target)
	}
	return func() {}
}

// KeepConnected implements cache.TargetSource.
func (t Targets) KeepConnected(string) {}

// NewTarget returns a target with this identity and a running cache of these nodes.
func NewTarget(t *testing.T, identity string, nodes ...runtime.Object) *cache.Target {
	t.Helper()
	target := cache.NewTarget(kubefake.NewClientset(nodes...), identity)
	require.NoError(t, target.WatchNodes())
	target.Start(t.Context())
	require.NoError(t, target.AwaitFilledCaches(t.Context()))
	return target
}

// NewUnfilledTarget returns a target with this state, whose cache of nodes is empty.
func NewUnfilledTarget(t *testing.T, identity string, state cache.TargetState) *cache.Target {
	t.Helper()
	target := cache.NewTarget(kubefake.NewClientset(), identity)
	require.NoError(t, target.WatchNodes())
	target.SetStatus(cache.TargetStatus{State: state, Message: "connection refused", Since: Noon})
	return target
}
