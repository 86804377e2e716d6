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

func withClass(kind, name string) observetest.OnSet {
	return func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class = v1alpha1.ClassSpec{Kind: kind, Name: name} }
}

func withVersion(v string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) { c.ResourceVersion = v }
}

func TestTheClassThatASetNames(t *testing.T) {
	far := observetest.Class("small", withVersion("7"))
	far.Namespace = "other"
	none := []string{"MachineClass"}
	for _, row := range []struct {
		name    string
		set     *v1alpha1.MachineSet
		class   *v1alpha1.MachineClass
		missing []string
		version string
	}{
		{"it exists", observetest.Set("s"), observetest.Class("small", withVersion("7")), nil, "7"},
		{"it is being deleted, and is still there", observetest.Set("s"), observetest.Class("small", withVersion("7"), func(c *v1alpha1.MachineClass) { c.DeletionTimestamp = observetest.Now() }), nil, "7"},
		{"there is none", observetest.Set("s"), observetest.Class("large"), none, ""},
		{"there is one elsewhere", observetest.Set("s"), far, none, ""},
		{"the kind does not matter", observetest.Set("s", withClass("AWSMachineClass", "small")), observetest.Class("small", withVersion("7")), nil, "7"},
		{"there is none, whatever the kind", observetest.Set("s", withClass("AWSMachineClass", "large")), observetest.Class("small", withVersion("7")), none, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster, _ := observetest.Start(t, nil, row.class)
			live, err := set.ReadLive(t.Context(), cluster, row.set)
			require.NoError(t, err)
			for _, related := range []set.Related{set.Read(cluster, row.set), live} {
				assert.Equal(t, row.missing, related.Missing)
				assert.Equal(t, row.version, related.Class)
			}
		})
	}
}

// ReadLive reads a class from the API server only if the cache does not have the class.
func TestReadLiveReadsAClassThatTheCacheLacks(t *testing.T) {
	var answer error
	asked := 0
	cluster, client := observetest.Start(t, nil, observetest.Class("known"))
	client.PrependReactor("get", "machineclasses", func(kubetesting.Action) (bool, runtime.Object, error) {
		asked++
		return true, observetest.Class("small", withVersion("9")), answer
	})
	live, err := set.ReadLive(t.Context(), cluster, observetest.Set("s"))
	require.NoError(t, err)
	assert.Empty(t, live.Missing)
	assert.Equal(t, "9", live.Class, "later looks must see it")
	assert.Equal(t, []string{"MachineClass"}, set.Read(cluster, observetest.Set("s")).Missing)

	_, err = set.ReadLive(t.Context(), cluster, observetest.Set("s", withClass("MachineClass", "known")))
	require.NoError(t, err)
	assert.Equal(t, 1, asked)

	answer = errors.New("away")
	_, err = set.ReadLive(t.Context(), cluster, observetest.Set("s"))
	assert.EqualError(t, err, "get class of set s: away")
}

func TestSetsOfClass(t *testing.T) {
	far := observetest.Set("far")
	far.Namespace = "other"
	cluster, client := observetest.Start(
		t,
		nil,
		observetest.Set("a"),
		observetest.Set("b", observetest.GoingSet),
		observetest.Set("large", withClass("MachineClass", "large")),
		observetest.Set("other", withClass("AWSMachineClass", "small")),
		far,
	)
	assert.Equal(t, []string{"a", "b", "other"}, observetest.Names(cluster.SetsOfClass("shop/small")))
	assert.Equal(t, []string{"far"}, observetest.Names(cluster.SetsOfClass("other/small")))
	assert.Empty(t, cluster.SetsOfClass("shop/none"))

	_, err := client.MachineV1alpha1().
		MachineSets("shop").
		Update(t.Context(), observetest.Set("a", withClass("MachineClass", "large")), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(
		t,
		func() bool { return len(cluster.SetsOfClass("shop/large")) == 2 },
		observetest.GiveUp,
		time.Millisecond,
	)
	assert.Equal(t, []string{"b", "other"}, observetest.Names(cluster.SetsOfClass("shop/small")))
}
