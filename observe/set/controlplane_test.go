package set_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	machines "millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/decide/preflight"
	"millwright/observe/cache"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

func TestParseControlPlane(t *testing.T) {
	ref, err := cache.ParseControlPlane("controlplane.cluster.x-k8s.io/v1beta2/kubeadmcontrolplanes/clusters/shop")
	require.NoError(t, err)
	resource := schema.GroupVersionResource{
		Group:    "controlplane.cluster.x-k8s.io",
		Version:  "v1beta2",
		Resource: "kubeadmcontrolplanes",
	}
	assert.Equal(t, cache.ControlPlaneRef{Resource: resource, Namespace: "clusters", Name: "shop"}, ref)
	ref, err = cache.ParseControlPlane("example.com/v1/planes/main")
	require.NoError(t, err)
	assert.Equal(t, []string{"", "main"}, []string{ref.Namespace, ref.Name})
	for _, text := range []string{"", "shop", "a/b/c", "a/b/c/d/e/f", "a//c/d", "/v1/planes/main", "a/b/c/d/"} {
		_, err := cache.ParseControlPlane(text)
		require.Error(t, err, text)
	}
}

func newControlPlane(spec, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1",
		"kind":       "Plane",
		"metadata":   map[string]any{"name": "main", "namespace": "clusters", "resourceVersion": "7"},
		"spec":       spec,
		"status":     status,
	}}
}

func TestPreflightFactsOfASet(t *testing.T) {
	versioned := func(version, joinsBy string) func(*v1alpha1.MachineSet) {
		return func(s *v1alpha1.MachineSet) {
			s.Spec.Template.Annotations = map[string]string{
				v1alpha1.AnnotationKubernetesVersion: version,
				v1alpha1.AnnotationJoinsBy:           joinsBy,
			}
		}
	}
	spec := map[string]any{"version": "v1.31.2", "replicas": int64(3)}
	stable := map[string]any{"version": "v1.31.2", "availableReplicas": int64(3)}
	for name, row := range map[string]struct {
		plane  *unstructured.Unstructured
		set    func(*v1alpha1.MachineSet)
		strict bool
		failed []string
	}{
		"there is none":          {nil, versioned("v1.31.2", ""), true, nil},
		"it is stable":           {newControlPlane(spec, stable), versioned("v1.31.2", "kubeadm"), true, nil},
		"one replica is missing": {newControlPlane(spec, map[string]any{"version": "v1.31.2", "availableReplicas": int64(2)}), versioned("", ""), false, []string{"ControlPlaneIsStable"}},
		"an older contract counts those that are ready": {newControlPlane(spec, map[string]any{"version": "v1.31.2", "readyReplicas": int64(3)}), versioned("", ""), true, nil},
		"it does not count replicas":                    {newControlPlane(map[string]any{"version": "v1.31.2"}, map[string]any{"version": "v1.31.2"}), versioned("", ""), true, nil},
		"it is provisioned":                             {newControlPlane(map[string]any{"version": "v1.31.2"}, nil), versioned("", ""), true, []string{"ControlPlaneIsStable"}},
		"it is upgraded":                                {newControlPlane(map[string]any{"version": "v1.32.0"}, map[string]any{"version": "v1.31.2"}), versioned("", ""), true, []string{"ControlPlaneIsStable"}},
		"it is upgraded, and that is no matter":         {newControlPlane(map[string]any{"version": "v1.32.0"}, map[string]any{"version": "v1.31.2"}), versioned("", ""), false, nil},
		"machines are newer":                            {newControlPlane(spec, stable), versioned("v1.32.0", ""), false, []string{"KubernetesVersionSkew"}},
		"kubeadm is two versions older":                 {newControlPlane(spec, stable), versioned("v1.29.0", "kubeadm"), false, []string{"KubeadmVersionSkew"}},
		"what is of another type is not known":          {newControlPlane(map[string]any{"version": int64(3), "replicas": "x"}, map[string]any{"availableReplicas": "y"}), versioned("v1.31.2", ""), true, nil},
		"a check is skipped": {newControlPlane(spec, nil), func(s *v1alpha1.MachineSet) {
			s.Annotations = map[string]string{v1alpha1.AnnotationSkipPreflightChecks: "ControlPlaneIsStable"}
		}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := observetest.NewSet("s", row.set)
			cluster, err := cache.NewCluster(machines.NewSimpleClientset(s), nil, nil)
			require.NoError(t, err)
			var objects []runtime.Object
			if row.plane != nil {
				objects = append(objects, row.plane)
			}
			ref, err := cache.ParseControlPlane("example.com/v1/planes/clusters/main")
			require.NoError(t, err)
			kinds := map[schema.GroupVersionResource]string{ref.Resource: "PlaneList"}
			cluster.WatchControlPlane(cache.PreflightConfig{
				Client: fake.NewSimpleDynamicClientWithCustomListKinds(
					runtime.NewScheme(),
					kinds,
					objects...),
				ControlPlane: ref,
				Checks:       []string{preflight.CheckAll},
				IsStrict:     row.strict,
			})
			unread := preflight.Decide(set.ReadRelatedObjects(cluster, s).Preflight)
			early := set.ReadRelatedObjectsForWrite(t.Context(), cluster, s)
			require.NoError(t, cluster.Start(t.Context()))
			require.Eventually(
				t,
				cluster.Informer(cache.ControlPlanesResource).HasSynced,
				observetest.EventTimeout,
				time.Millisecond,
			)
			related := set.ReadRelatedObjects(cluster, s)
			live, err := set.ReadLiveRelatedObjects(t.Context(), cluster, s)
			require.NoError(t, err)
			var failed []string
			for _, f := range preflight.Decide(related.Preflight) {
				failed = append(failed, f.Check)
			}
			assert.Equal(t, row.failed, failed)
			assert.Equal(t, related.Preflight, live.Preflight)
			assert.Equal(
				t,
				related.Preflight,
				early.Preflight,
				"who acts does not wait for the cache: nobody says when it is filled and there is none",
			)
			if row.plane != nil {
				assert.Equal(t, "7", related.ControlPlaneVersion)
			}
			if name != "a check is skipped" {
				require.NotEmpty(t, unread, "what was not read yet is no reason to make machines")
				assert.Contains(t, unread[0].Why, "was not read yet")
			}
			assert.Equal(t, related.Preflight, set.ScaleFacts(s, related, time.Now(), 0).Preflight)
		})
	}
}
