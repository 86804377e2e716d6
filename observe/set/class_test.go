package set_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

func withClassRef(kind, name string) observetest.SetChange {
	return func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class = v1alpha1.ClassSpec{Kind: kind, Name: name} }
}

func withResourceVersion(v string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) { c.ResourceVersion = v }
}

func TestMissingAndUnknownClassOfASet(t *testing.T) {
	far := observetest.NewClass("small", withResourceVersion("7"))
	far.Namespace = "other"
	none := []string{"MachineClass"}
	for _, row := range []struct {
		name    string
		set     *v1alpha1.MachineSet
		class   *v1alpha1.MachineClass
		missing []string
		version string
	}{
		{"it exists", observetest.NewSet("s"), observetest.NewClass("small", withResourceVersion("7")), nil, "7"},
		{"it is being deleted, and is still there", observetest.NewSet("s"), observetest.NewClass("small", withResourceVersion("7"), func(c *v1alpha1.MachineClass) { c.DeletionTimestamp = observetest.Now() }), nil, "7"},
		{"there is none", observetest.NewSet("s"), observetest.NewClass("large"), none, ""},
		{"there is one elsewhere", observetest.NewSet("s"), far, none, ""},
		{"the kind does not matter", observetest.NewSet("s", withClassRef("AWSMachineClass", "small")), observetest.NewClass("small", withResourceVersion("7")), nil, "7"},
		{"there is none, whatever the kind", observetest.NewSet("s", withClassRef("AWSMachineClass", "large")), observetest.NewClass("small", withResourceVersion("7")), none, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster, _ := observetest.StartCaches(t, nil, row.class)
			live, err := set.ReadLiveRelatedObjects(t.Context(), cluster, row.set)
			require.NoError(t, err)
			for _, related := range []set.RelatedObjects{set.ReadRelatedObjects(cluster, row.set), live} {
				assert.Equal(t, row.missing, related.MissingKinds)
				assert.Equal(t, row.version, related.ClassVersion)
			}
		})
	}
}

// ReadLiveRelatedObjects reads a class from the API server only if the cache does not have the class.
func TestReadLiveRelatedObjectsReadsAnUncachedClass(t *testing.T) {
	var answer error
	asked := 0
	cluster, client := observetest.StartCaches(t, nil, observetest.NewClass("known"))
	client.PrependReactor("get", "machineclasses", func(kubetesting.Action) (bool, runtime.Object, error) {
		asked++
		return true, observetest.NewClass("small", withResourceVersion("9")), answer
	})
	live, err := set.ReadLiveRelatedObjects(t.Context(), cluster, observetest.NewSet("s"))
	require.NoError(t, err)
	assert.Empty(t, live.MissingKinds)
	assert.Equal(t, "9", live.ClassVersion, "later looks must see it")
	assert.Equal(t, []string{"MachineClass"}, set.ReadRelatedObjects(cluster, observetest.NewSet("s")).MissingKinds)

	_, err = set.ReadLiveRelatedObjects(
		t.Context(),
		cluster,
		observetest.NewSet("s", withClassRef("MachineClass", "known")),
	)
	require.NoError(t, err)
	assert.Equal(t, 1, asked)

	answer = errors.New("away")
	_, err = set.ReadLiveRelatedObjects(t.Context(), cluster, observetest.NewSet("s"))
	assert.EqualError(t, err, "get class of set s: away")
}

func TestSetsOfClass(t *testing.T) {
	far := observetest.NewSet("far")
	far.Namespace = "other"
	cluster, client := observetest.StartCaches(
		t,
		nil,
		observetest.NewSet("a"),
		observetest.NewSet("b", observetest.AsDeletingSet),
		observetest.NewSet("large", withClassRef("MachineClass", "large")),
		observetest.NewSet("other", withClassRef("AWSMachineClass", "small")),
		far,
	)
	assert.Equal(t, []string{"a", "b", "other"}, observetest.ObjectNames(cluster.SetsOfClass("shop/small")))
	assert.Equal(t, []string{"far"}, observetest.ObjectNames(cluster.SetsOfClass("other/small")))
	assert.Empty(t, cluster.SetsOfClass("shop/none"))

	_, err := client.MachineV1alpha1().
		MachineSets("shop").
		Update(t.Context(), observetest.NewSet("a", withClassRef("MachineClass", "large")), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(
		t,
		func() bool { return len(cluster.SetsOfClass("shop/large")) == 2 },
		observetest.EventTimeout,
		time.Millisecond,
	)
	assert.Equal(t, []string{"b", "other"}, observetest.ObjectNames(cluster.SetsOfClass("shop/small")))
}
