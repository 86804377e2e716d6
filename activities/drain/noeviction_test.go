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

// discoveryAnswer is the discovery answer for v1 and policy/v1. Discovery answers 404 for a group version that
// discoveryAnswer omits.
func discoveryAnswer(eviction *metav1.APIResource, policy bool) []*metav1.APIResourceList {
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

func evictionResource(version string) *metav1.APIResource {
	return &metav1.APIResource{Name: "pods/eviction", Group: "policy", Version: version, Kind: "Eviction"}
}

// countDiscoveryRequests returns the number of discovery requests since the last call of Forget.
func countDiscoveryRequests(w *activitiestest.World) int {
	return len(slices.DeleteFunc(w.Requests(), func(r string) bool { return r != "get resource" }))
}

// failDiscovery makes discovery fail until the returned function is called.
func failDiscovery(w *activitiestest.World, err error) (heal func()) {
	failing := true
	w.TargetClient.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, err
	})
	return func() { failing = false }
}

func TestDiscoveryOfEvictionIsCached(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		served []*metav1.APIResourceList
		means  drain.RemovalMeans
		why    string
		asked  int
	}{
		"it can":                       {discoveryAnswer(evictionResource("v1"), true), drain.MeansEvict, "evicts", 2},
		"it has no policy/v1":          {discoveryAnswer(evictionResource("v1"), false), drain.MeansDeleteInOrder, "it cannot evict: the API server does not serve policy/v1", 2},
		"it has no subresource":        {discoveryAnswer(nil, true), drain.MeansDeleteInOrder, "it cannot evict: the API server has no subresource pods/eviction of policy/v1", 1},
		"it has it in another version": {discoveryAnswer(evictionResource("v1beta1"), true), drain.MeansDeleteInOrder, "the API server has no subresource pods/eviction of policy/v1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := activitiestest.NewMachine(
					"m",
					activitiestest.WithNode,
					activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
				)
				w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
				w.TargetClient.Resources = row.served
				assert.Zero(t, countDiscoveryRequests(w), "nobody asks before the first drain")
				d := activitiestest.RunActivityTwice[activities.Decision](
					w,
					newActivities(w.Kube).DecideDrain,
					activities.Input{ReadInput: activitiestest.NewReadInput(m)},
				)
				assert.Equal(t, row.means, d.Step.Means)
				assert.Contains(t, d.Why, row.why)
				assert.Equal(t, row.asked, countDiscoveryRequests(w), "the second decision asks nothing")
			})
		})
	}
}

// If discovery does not answer, pods are evicted, and the next decision sends the discovery request again. An answer of
// discovery is cached.
func TestFailedDiscoveryIsRetried(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"no connection": errors.New("connection refused"),
		"forbidden":     apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")),
		"404 for all":   apierrors.NewNotFound(schema.GroupResource{}, ""),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := activitiestest.NewMachine(
					"m",
					activitiestest.WithNode,
					activitiestest.WithDeletionTimestamp[*v1alpha1.Machine],
				)
				w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
				w.TargetClient.Resources = discoveryAnswer(evictionResource("v1"), false)
				decide := func() activities.Decision {
					d, err := activitiestest.RunActivity[activities.Decision](
						w,
						newActivities(w.Kube).DecideDrain,
						activities.Input{ReadInput: activitiestest.NewReadInput(m)},
					)
					require.NoError(t, err)
					return d
				}
				heal := failDiscovery(w, err)
				for range 2 {
					w.ForgetRequests()
					assert.Equal(t, drain.MeansEvict, decide().Step.Means)
					assert.Equal(t, 1, countDiscoveryRequests(w))
				}
				heal()
				assert.Equal(t, drain.MeansDeleteInOrder, decide().Step.Means)
				failDiscovery(w, err)
				assert.Equal(t, drain.MeansDeleteInOrder, decide().Step.Means)
			})
		})
	}
}

func TestNoDiscoveryUnlessMeansIsEvict(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		machine func(*v1alpha1.Machine)
		means   drain.RemovalMeans
	}{
		"the drain deletes in order, and another worker has asked": {activitiestest.WithDrain(time.Hour, drain.MeansDeleteInOrder), drain.MeansDeleteInOrder},
		"the deadline has passed":                                  {activitiestest.WithDrain(2*time.Hour, drain.MeansEvict), drain.MeansDelete},
		"the drain deletes":                                        {activitiestest.WithDrain(2*time.Hour, drain.MeansDelete), drain.MeansDelete},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := activitiestest.NewMachine("m", activitiestest.WithNode, row.machine)
				w := activitiestest.NewWorld(t, m, activitiestest.NewNode())
				d := activitiestest.RunActivityTwice[activities.Decision](
					w,
					newActivities(w.Kube).DecideDrain,
					activities.Input{ReadInput: activitiestest.NewReadInput(m), Grace: time.Hour},
				)
				assert.Equal(t, row.means, d.Step.Means)
				assert.Zero(t, countDiscoveryRequests(w))
			})
		})
	}
}
