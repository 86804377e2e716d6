package observe_test

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
	"millwright/observe"
)

func classed(kind, name string) onSet {
	return func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class = v1alpha1.ClassSpec{Kind: kind, Name: name} }
}

func versioned(v string) func(*v1alpha1.MachineClass) {
	return func(c *v1alpha1.MachineClass) { c.ResourceVersion = v }
}

func TestMS08_TheClassThatASetNames(t *testing.T) {
	far := class("small", versioned("7"))
	far.Namespace = "other"
	none := []string{"MachineClass"}
	for _, row := range []struct {
		name    string
		set     *v1alpha1.MachineSet
		class   *v1alpha1.MachineClass
		missing []string
		version string
	}{
		{"it exists", set("s"), class("small", versioned("7")), nil, "7"},
		{"it is to go, and is still there", set("s"), class("small", versioned("7"), func(c *v1alpha1.MachineClass) { c.DeletionTimestamp = now() }), nil, "7"},
		{"there is none", set("s"), class("large"), none, ""},
		{"there is one elsewhere", set("s"), far, none, ""},
		{"one of another kind is not for us to look for", set("s", classed("OtherClass", "large")), class("small", versioned("7")), nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			cluster, _ := start(t, nil, row.class)
			live, err := cluster.LiveAroundSet(t.Context(), row.set)
			require.NoError(t, err)
			for _, around := range []observe.AroundSet{cluster.AroundSet(row.set), live} {
				assert.Equal(t, row.missing, around.Missing)
				assert.Equal(t, row.version, around.Class)
			}
		})
	}
}

// Only a class that the cache does not have is asked for.
func TestAClassThatTheCacheHasNotSeenYet(t *testing.T) {
	var answer error
	asked := 0
	cluster, client := start(t, nil, class("known"))
	client.PrependReactor("get", "machineclasses", func(kubetesting.Action) (bool, runtime.Object, error) {
		asked++
		return true, class("small", versioned("9")), answer
	})
	live, err := cluster.LiveAroundSet(t.Context(), set("s"))
	require.NoError(t, err)
	assert.Empty(t, live.Missing)
	assert.Equal(t, "9", live.Class, "later looks must see it")
	assert.Equal(t, []string{"MachineClass"}, cluster.AroundSet(set("s")).Missing)

	for _, s := range []*v1alpha1.MachineSet{set("s", classed("MachineClass", "known")), set("s", classed("OtherClass", "small"))} {
		_, err = cluster.LiveAroundSet(t.Context(), s)
		require.NoError(t, err)
	}
	assert.Equal(t, 1, asked)

	answer = errors.New("away")
	_, err = cluster.LiveAroundSet(t.Context(), set("s"))
	assert.EqualError(t, err, "get class of set s: away")
}

func TestSetsOfClass(t *testing.T) {
	far := set("far")
	far.Namespace = "other"
	cluster, client := start(t, nil, set("a"), set("b", goingSet), set("large", classed("MachineClass", "large")), set("other", classed("OtherClass", "small")), far)
	assert.Equal(t, []string{"a", "b"}, names(cluster.SetsOfClass("shop/small")))
	assert.Equal(t, []string{"far"}, names(cluster.SetsOfClass("other/small")))
	assert.Empty(t, cluster.SetsOfClass("shop/none"))

	_, err := client.MachineV1alpha1().MachineSets("shop").Update(t.Context(), set("a", classed("MachineClass", "large")), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(cluster.SetsOfClass("shop/large")) == 2 }, 5*time.Second, time.Millisecond)
	assert.Equal(t, []string{"b"}, names(cluster.SetsOfClass("shop/small")))
}
