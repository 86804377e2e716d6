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

func TestLookups(t *testing.T) {
	s, d := observetest.Set("s"), observetest.Deployment("d")
	s.OwnerReferences = observetest.OwnedBy(d, "MachineDeployment")
	class := &v1alpha1.MachineClass{ObjectMeta: observetest.Meta("small")}
	loose := observetest.Machine("loose")
	loose.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: "uid-s"}} // controller: unset
	elsewhere := observetest.Machine("elsewhere", observetest.Of(s))
	elsewhere.Spec.Class.Name = "large"
	cluster, _ := observetest.Start(
		t,
		[]runtime.Object{observetest.Node()},
		s,
		d,
		class,
		loose,
		elsewhere,
		observetest.Machine("a", observetest.Of(s), observetest.OnNode("n")),
		observetest.Machine("b", observetest.Of(s)),
	)

	for key, found := range map[string]bool{"shop/a": true, "shop/x": false, "other/a": false} {
		_, ok := cluster.Machine(key)
		assert.Equal(t, found, ok, key)
	}
	_, setFound := cluster.Set("shop/s")
	_, deploymentFound := cluster.Deployment("shop/d")
	_, classFound := cluster.Class("shop/small")
	_, nodeFound := cluster.Node("n")
	assert.True(t, setFound && deploymentFound && classFound && nodeFound)

	assert.Equal(t, []string{"a", "b", "elsewhere"}, observetest.Names(cluster.MachinesOf("uid-s")))
	assert.Empty(t, cluster.MachinesOf("uid-other"))
	assert.Equal(t, []string{"a", "b", "loose"}, observetest.Names(cluster.MachinesOfClass("shop/small")))
	assert.Equal(t, []string{"a"}, observetest.Names(cluster.MachinesOfNode("n")))
	assert.Empty(t, cluster.MachinesOfNode(""), "machines without a node share none")
	assert.Equal(t, []string{"s"}, observetest.Names(cluster.SetsOf("uid-d")))
}

func TestCachesDropUnusedFields(t *testing.T) {
	big := observetest.Node()
	big.Status.Images = []corev1.ContainerImage{{Names: []string{"pause"}}}
	big.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	cluster, _ := observetest.Start(t, []runtime.Object{big})
	kept, _ := cluster.Node("n")
	assert.Empty(t, kept.Status.Images)
	assert.Empty(t, kept.ManagedFields)
}

func TestStartFailsWhenItsContextEndsFirst(t *testing.T) {
	cluster, err := cache.NewCluster(fake.NewSimpleClientset(), kubefake.NewClientset(), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, cluster.Start(ctx), context.Canceled)
}

func TestLiveSetsOf(t *testing.T) {
	d := observetest.Deployment("d")
	owned := func(name string, owner metav1.Object) *v1alpha1.MachineSet {
		return observetest.Set(
			name,
			func(s *v1alpha1.MachineSet) { s.OwnerReferences = observetest.OwnedBy(owner, "MachineDeployment") },
		)
	}
	cluster, _ := observetest.Start(
		t,
		nil,
		d,
		owned("mine", d),
		owned("foreign", observetest.Deployment("other")),
		observetest.Set("orphan"),
		owned(
			"restored",
			observetest.Deployment("d", func(d *v1alpha1.MachineDeployment) { d.UID = "uid-before-the-restore" }),
		),
	)
	sets, free, err := cluster.LiveSetsOf(t.Context(), d)
	require.NoError(t, err)
	assert.Equal(t, []string{"mine"}, observetest.Names(sets))
	assert.Equal(t, []string{"orphan", "restored"}, observetest.Names(free))
	assert.Equal(t, []string{"orphan", "restored"}, observetest.Names(cluster.SetsWithoutController(d)))
}

func TestOverlappingDeployments(t *testing.T) {
	selecting := func(name, app string, change ...func(*v1alpha1.MachineDeployment)) *v1alpha1.MachineDeployment {
		d := observetest.Deployment(name, change...)
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		return d
	}
	d := selecting("d", "web")
	everything := observetest.Deployment("everything")
	everything.Spec.Selector = &metav1.LabelSelector{}
	elsewhere := selecting("elsewhere", "web")
	elsewhere.Namespace = "other"
	broken := observetest.Deployment("broken")
	broken.Spec.Selector = &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Nonsense"}},
	}
	cluster, _ := observetest.Start(
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
	assert.Equal(t, []string{"twin"}, deployment.OverlappingDeployments(cluster, d))
}
