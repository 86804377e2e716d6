package drain_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities/activitiestest"
	activities "millwright/activities/drain"
	"millwright/api/v1alpha1"
	"millwright/decide/drain"
)

// served is what discovery says of v1 and of policy/v1; without it a group version is answered with 404.
func served(eviction *metav1.APIResource, policy bool) []*metav1.APIResourceList {
	core := &metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod"}}}
	if eviction != nil {
		core.APIResources = append(core.APIResources, *eviction)
	}
	list := []*metav1.APIResourceList{core}
	if policy {
		list = append(list, &metav1.APIResourceList{GroupVersion: "policy/v1"})
	}
	return list
}

func eviction(version string) *metav1.APIResource {
	return &metav1.APIResource{Name: "pods/eviction", Group: "policy", Version: version, Kind: "Eviction"}
}

// discoveries returns how many requests to discovery there were since the last call of Forget.
func discoveries(w *activitiestest.World) int {
	return len(slices.DeleteFunc(w.Requests(), func(r string) bool { return r != "get resource" }))
}

// failDiscovery makes discovery fail until the returned function is called.
func failDiscovery(w *activitiestest.World, err error) (heal func()) {
	failing := true
	w.Target.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, err
	})
	return func() { failing = false }
}

func TestWhetherTheClusterCanEvictIsAskedOnce(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		served []*metav1.APIResourceList
		means  drain.Means
		why    string
		asked  int
	}{
		"it can":                       {served(eviction("v1"), true), drain.Evict, "evicts", 2},
		"it has no policy/v1":          {served(eviction("v1"), false), drain.DeleteInOrder, "it cannot evict: the API server does not serve policy/v1", 2},
		"it has no subresource":        {served(nil, true), drain.DeleteInOrder, "it cannot evict: the API server has no subresource pods/eviction of policy/v1", 1},
		"it has it in another version": {served(eviction("v1beta1"), true), drain.DeleteInOrder, "the API server has no subresource pods/eviction of policy/v1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := activitiestest.Machine("m", activitiestest.OnNode, activitiestest.Going[*v1alpha1.Machine])
				w := activitiestest.NewWorld(t, m, activitiestest.Node())
				w.Target.Resources = row.served
				assert.Zero(t, discoveries(w), "nobody asks before the first drain")
				d := activitiestest.Twice[activities.Decision](
					w,
					acts(w.Kube).DecideDrain,
					activities.Input{Read: activitiestest.Read(m)},
				)
				assert.Equal(t, row.means, d.Step.Means)
				assert.Contains(t, d.Why, row.why)
				assert.Equal(t, row.asked, discoveries(w), "the second decision asks nothing")
			})
		})
	}
}

// If discovery does not answer, pods are evicted, and the next decision asks again. An answer is kept.
func TestADiscoveryThatFailsIsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"no connection": errors.New("connection refused"),
		"forbidden":     apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")),
		"404 for all":   apierrors.NewNotFound(schema.GroupResource{}, ""),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := activitiestest.Machine("m", activitiestest.OnNode, activitiestest.Going[*v1alpha1.Machine])
				w := activitiestest.NewWorld(t, m, activitiestest.Node())
				w.Target.Resources = served(eviction("v1"), false)
				decide := func() activities.Decision {
					d, err := activitiestest.Run[activities.Decision](
						w,
						acts(w.Kube).DecideDrain,
						activities.Input{Read: activitiestest.Read(m)},
					)
					require.NoError(t, err)
					return d
				}
				heal := failDiscovery(w, err)
				for range 2 {
					w.Forget()
					assert.Equal(t, drain.Evict, decide().Step.Means)
					assert.Equal(t, 1, discoveries(w))
				}
				heal()
				assert.Equal(t, drain.DeleteInOrder, decide().Step.Means)
				failDiscovery(w, err)
				assert.Equal(t, drain.DeleteInOrder, decide().Step.Means)
			})
		})
	}
}

func TestWhereItMakesNoDifferenceNobodyAsks(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		machine func(*v1alpha1.Machine)
		means   drain.Means
	}{
		"the drain deletes in order, and another worker has asked": {activitiestest.Draining(time.Hour, drain.DeleteInOrder), drain.DeleteInOrder},
		"the deadline has passed":                                  {activitiestest.Draining(2*time.Hour, drain.Evict), drain.Delete},
		"the drain deletes":                                        {activitiestest.Draining(2*time.Hour, drain.Delete), drain.Delete},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := activitiestest.Machine("m", activitiestest.OnNode, row.machine)
				w := activitiestest.NewWorld(t, m, activitiestest.Node())
				d := activitiestest.Twice[activities.Decision](
					w,
					acts(w.Kube).DecideDrain,
					activities.Input{Read: activitiestest.Read(m), Grace: time.Hour},
				)
				assert.Equal(t, row.means, d.Step.Means)
				assert.Zero(t, discoveries(w))
			})
		})
	}
}
