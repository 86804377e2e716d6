package cache_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/v1alpha1"
	"millwright/decide/ownership"
	"millwright/observe/cache"
	"millwright/observe/observetest"
)

// targetsByNamespace are targets that do not change.
type targetsByNamespace map[string]*cache.Target

func (t targetsByNamespace) Target(namespace string) *cache.Target { return t[namespace] }

func (targetsByNamespace) OnTarget(func(string, *cache.Target)) (stop func()) { return func() {} }

func (targetsByNamespace) KeepConnected(string) {}

// A tenant may write a Machine with the provider ID of a node of another tenant. The Machine of the other tenant must
// not lose its node.
func TestClaimsOfOtherTargetsDoNotAffectNodeOwnership(t *testing.T) {
	const id = "virtual:///i-1"
	for name, row := range map[string]struct {
		namespace string // of the other Machine
		mark      types.UID
		want      ownership.OwnerKind
	}{
		"a Machine of another target":                   {"hostile", "", ownership.OwnerSelf},
		"a Machine of another namespace of the cluster": {"twin", "", ownership.OwnerInDoubt},
		"a Machine of another target with the mark":     {"hostile", "uid-other", ownership.OwnerOther},
	} {
		t.Run(name, func(t *testing.T) {
			node := observetest.NewNode()
			node.Spec.ProviderID = id
			if row.mark != "" {
				node.Annotations = map[string]string{v1alpha1.AnnotationMachineUID: string(row.mark)}
			}
			own, other := machineOfInstance("own", "uid-own", id), machineOfInstance(row.namespace, "uid-other", id)
			cluster, _ := observetest.StartCaches(t, nil, own, other)
			targets := targetsByNamespace{}
			for namespace, identity := range map[string]string{"own": "a", "twin": "a", "hostile": "b"} {
				targets[namespace] = targetWithNodes(t, identity, node)
			}
			cluster.SetTargetSource(targets)
			assert.Equal(t, row.want, cluster.OwnerOfNode(own, node).Whose)
		})
	}
}

// The API server of a target need not obey the limits of Kubernetes.
func TestNodeWithATooLongNameIsNotRecorded(t *testing.T) {
	for name, recorded := range map[string]bool{strings.Repeat("n", 253): true, strings.Repeat("n", 254): false} {
		node := observetest.NewNode()
		node.Name, node.Spec.ProviderID = name, "virtual:///i-1"
		m := machineOfInstance("own", "uid-own", "virtual:///i-1")
		cluster, _ := observetest.StartCaches(t, nil, m)
		cluster.SetTargetSource(targetsByNamespace{"own": targetWithNodes(t, "a", node)})
		assert.Equal(t, recorded, cluster.UnrecordedNodeOfMachine(m) != nil)
	}
}

func machineOfInstance(namespace string, uid types.UID, providerID string) *v1alpha1.Machine {
	return observetest.NewMachine("m", func(m *v1alpha1.Machine) {
		m.Namespace, m.UID, m.Spec.ProviderID = namespace, uid, providerID
	})
}

func targetWithNodes(t *testing.T, identity string, objects ...*corev1.Node) *cache.Target {
	t.Helper()
	var nodes []runtime.Object
	for _, node := range objects {
		nodes = append(nodes, node)
	}
	target := cache.NewTarget(kubefake.NewClientset(nodes...), identity)
	require.NoError(t, target.WatchNodes())
	target.Start(t.Context())
	require.NoError(t, target.AwaitFilledCaches(t.Context()))
	return target
}
