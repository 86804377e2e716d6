package observe_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

func names[T metav1.Object](objects []T) []string {
	result := []string{}
	for _, o := range objects {
		result = append(result, o.GetName())
	}
	slices.Sort(result)
	return result
}

func labelled(app string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.Labels = map[string]string{"app": app} }
}

func of(owner metav1.Object) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) { m.OwnerReferences = ownedBy(owner, "MachineSet") }
}

func TestLookups(t *testing.T) {
	s, d := set("s"), deployment("d")
	s.OwnerReferences = ownedBy(d, "MachineDeployment")
	class := &v1alpha1.MachineClass{ObjectMeta: meta("small")}
	loose := machine("loose")
	loose.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: "uid-s"}} // not as controller
	elsewhere := machine("elsewhere", of(s))
	elsewhere.Spec.Class.Name = "large"
	cluster, _ := start(t, []runtime.Object{node()}, s, d, class, loose, elsewhere, machine("a", of(s), onNode("n")), machine("b", of(s)))

	for key, found := range map[string]bool{"shop/a": true, "shop/x": false, "other/a": false} {
		_, ok := cluster.Machine(key)
		assert.Equal(t, found, ok, key)
	}
	_, setFound := cluster.Set("shop/s")
	_, deploymentFound := cluster.Deployment("shop/d")
	_, classFound := cluster.Class("shop/small")
	_, nodeFound := cluster.Node("n")
	assert.True(t, setFound && deploymentFound && classFound && nodeFound)

	assert.Equal(t, []string{"a", "b", "elsewhere"}, names(cluster.MachinesOf("uid-s")))
	assert.Empty(t, cluster.MachinesOf("uid-other"))
	assert.Equal(t, []string{"a", "b", "loose"}, names(cluster.MachinesOfClass("shop/small")))
	assert.Equal(t, []string{"a"}, names(cluster.MachinesOfNode("n")))
	assert.Empty(t, cluster.MachinesOfNode(""), "machines without a node share none")
	assert.Equal(t, []string{"s"}, names(cluster.SetsOf("uid-d")))
}

func TestCachesDropWhatNoFactIsMadeOf(t *testing.T) {
	big := node()
	big.Status.Images = []corev1.ContainerImage{{Names: []string{"pause"}}}
	big.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	cluster, _ := start(t, []runtime.Object{big})
	kept, _ := cluster.Node("n")
	assert.Empty(t, kept.Status.Images)
	assert.Empty(t, kept.ManagedFields)
}

func TestStartFailsWhenItsContextEndsFirst(t *testing.T) {
	cluster, err := observe.NewCluster(fake.NewSimpleClientset(), kubefake.NewClientset(), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, cluster.Start(ctx), context.Canceled)
}

func TestLiveSetsOf(t *testing.T) {
	d := deployment("d")
	owned := func(name string, owner metav1.Object) *v1alpha1.MachineSet {
		return set(name, func(s *v1alpha1.MachineSet) { s.OwnerReferences = ownedBy(owner, "MachineDeployment") })
	}
	cluster, _ := start(t, nil, d, owned("mine", d), owned("foreign", deployment("other")), set("orphan"))
	sets, err := cluster.LiveSetsOf(t.Context(), d)
	require.NoError(t, err)
	assert.Equal(t, []string{"mine"}, names(sets))
}

func TestOverlappingDeployments(t *testing.T) {
	selecting := func(name, app string, change ...func(*v1alpha1.MachineDeployment)) *v1alpha1.MachineDeployment {
		d := deployment(name, change...)
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		return d
	}
	d := selecting("d", "web")
	everything := deployment("everything")
	everything.Spec.Selector = &metav1.LabelSelector{}
	elsewhere := selecting("elsewhere", "web")
	elsewhere.Namespace = "other"
	broken := deployment("broken")
	broken.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Nonsense"}}}
	cluster, _ := start(t, nil, d, everything, elsewhere, broken, selecting("apart", "api"), selecting("twin", "web"),
		selecting("going", "web", func(d *v1alpha1.MachineDeployment) { d.DeletionTimestamp = now() }))
	assert.Equal(t, []string{"twin"}, cluster.OverlappingDeployments(d))
}
