package deployment_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	"millwright/observe/observetest"
)

func TestClusterLookupsByOwnerAndClass(t *testing.T) {
	s, d := observetest.NewSet("s"), observetest.NewDeployment("d")
	s.OwnerReferences = observetest.ControllerReferences(d, "MachineDeployment")
	class := &v1alpha1.MachineClass{ObjectMeta: observetest.NewMetadata("small")}
	loose := observetest.NewMachine("loose")
	loose.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: "uid-s"}} // controller: unset
	elsewhere := observetest.NewMachine("elsewhere", observetest.WithOwnerSet(s))
	elsewhere.Spec.Class.Name = "large"
	cluster, _ := observetest.StartCaches(
		t,
		[]runtime.Object{observetest.NewNode()},
		s,
		d,
		class,
		loose,
		elsewhere,
		observetest.NewMachine("a", observetest.WithOwnerSet(s), observetest.WithNodeLabel("n")),
		observetest.NewMachine("b", observetest.WithOwnerSet(s)),
	)

	for key, found := range map[string]bool{"shop/a": true, "shop/x": false, "other/a": false} {
		_, ok := cluster.Machine(key)
		assert.Equal(t, found, ok, key)
	}
	_, setFound := cluster.MachineSet("shop/s")
	_, deploymentFound := cluster.Deployment("shop/d")
	_, classFound := cluster.Class("shop/small")
	_, nodeFound := cluster.Target("").Node("n")
	assert.True(t, setFound && deploymentFound && classFound && nodeFound)

	assert.Equal(t, []string{"a", "b", "elsewhere"}, observetest.ObjectNames(cluster.MachinesOfOwner("uid-s")))
	assert.Empty(t, cluster.MachinesOfOwner("uid-other"))
	assert.Equal(t, []string{"a", "b", "loose"}, observetest.ObjectNames(cluster.MachinesOfClass("shop/small")))
	assert.Equal(t, []string{"a"}, observetest.ObjectNames(cluster.MachinesOfNode(cluster.Target(""), "n")))
	assert.Empty(t, cluster.MachinesOfNode(cluster.Target(""), ""), "machines without a node share none")
	assert.Equal(t, []string{"s"}, observetest.ObjectNames(cluster.SetsOfOwner("uid-d")))
}

func TestCachesDropUnusedFields(t *testing.T) {
	big := observetest.NewNode()
	big.Status.Images = []corev1.ContainerImage{{Names: []string{"pause"}}}
	big.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	cluster, _ := observetest.StartCaches(t, []runtime.Object{big})
	kept, _ := cluster.Target("").Node("n")
	assert.Empty(t, kept.Status.Images)
	assert.Empty(t, kept.ManagedFields)
}

func TestCacheStartFailsWhenItsContextEnds(t *testing.T) {
	cluster, err := cache.NewCluster(fake.NewSimpleClientset(), kubefake.NewClientset(), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, cluster.Start(ctx), context.Canceled)
}

func TestLiveSetsOfDeployment(t *testing.T) {
	d := observetest.NewDeployment("d")
	owned := func(name string, owner metav1.Object) *v1alpha1.MachineSet {
		return observetest.NewSet(
			name,
			func(s *v1alpha1.MachineSet) {
				s.OwnerReferences = observetest.ControllerReferences(owner, "MachineDeployment")
			},
		)
	}
	cluster, _ := observetest.StartCaches(
		t,
		nil,
		d,
		owned("mine", d),
		owned("foreign", observetest.NewDeployment("other")),
		observetest.NewSet("orphan"),
		owned(
			"restored",
			observetest.NewDeployment("d", func(d *v1alpha1.MachineDeployment) { d.UID = "uid-before-the-restore" }),
		),
	)
	sets, free, err := cluster.LiveSetsOfDeployment(t.Context(), d)
	require.NoError(t, err)
	assert.Equal(t, []string{"mine"}, observetest.ObjectNames(sets))
	assert.Equal(t, []string{"orphan", "restored"}, observetest.ObjectNames(free))
	assert.Equal(t, []string{"orphan", "restored"}, observetest.ObjectNames(cluster.SetsWithoutController(d)))
}

func TestOverlappingDeploymentNames(t *testing.T) {
	selecting := func(name, app string, change ...func(*v1alpha1.MachineDeployment)) *v1alpha1.MachineDeployment {
		d := observetest.NewDeployment(name, change...)
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		return d
	}
	d := selecting("d", "web")
	everything := observetest.NewDeployment("everything")
	everything.Spec.Selector = &metav1.LabelSelector{}
	elsewhere := selecting("elsewhere", "web")
	elsewhere.Namespace = "other"
	broken := observetest.NewDeployment("broken")
	broken.Spec.Selector = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Nonsense"}},
	}
	cluster, _ := observetest.StartCaches(
		t,
		nil,
		d,
		everything,
		elsewhere,
		broken,
		selecting("apart", "api"),
		selecting("twin", "web"),
		selecting("going", "web", func(d *v1alpha1.MachineDeployment) { d.DeletionTimestamp = observetest.Now() }),
	)
	assert.Equal(t, []string{"twin"}, deployment.OverlappingDeploymentNames(cluster, d))
}
