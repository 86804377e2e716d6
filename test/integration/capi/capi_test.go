// Tier: test for the core of Cluster API; test-all for kills, updates in place, stages, the autoscaler and clusterctl.

//go:build integration

// Package capi tests Millwright together with the released Cluster API: core, the kubeadm providers, and the
// development provider. The workload clusters of the development provider are in the provider's memory.
package capi

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/test/integration/rig"
)

var testRig *rig.Rig

// TestMain starts a stack with the minor version of Cluster API in $MILLWRIGHT_CLUSTER_API_RELEASE, or the newest.
func TestMain(m *testing.M) {
	os.Exit(
		rig.Main(
			m,
			stack.Options{WithClusterAPI: true, ClusterAPIRelease: os.Getenv("MILLWRIGHT_CLUSTER_API_RELEASE")},
			func(up *rig.Rig) {
				testRig = up
				errNewerAPI = serveNewerAPI(context.Background())
			},
		),
	)
}

// Resources of Cluster API.
var (
	clusterResource            = newResource("", "clusters")
	machineDeploymentResource  = newResource("", "machinedeployments")
	machineSetResource         = newResource("", "machinesets")
	machineResource            = newResource("", "machines")
	kubeadmConfigResource      = newResource("bootstrap.", "kubeadmconfigs")
	bootstrapTemplateResource  = newResource("bootstrap.", "kubeadmconfigtemplates")
	controlPlaneResource       = newResource("controlplane.", "kubeadmcontrolplanes")
	devClusterResource         = newResource("infrastructure.", "devclusters")
	devMachineResource         = newResource("infrastructure.", "devmachines")
	devMachineTemplateResource = newResource("infrastructure.", "devmachinetemplates")
)

// Labels of Cluster API.
const (
	clusterLabel      = "cluster.x-k8s.io/cluster-name"
	controlPlaneLabel = "cluster.x-k8s.io/control-plane" // with any value
)

func newResource(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group + "cluster.x-k8s.io", Version: "v1beta2", Resource: resource}
}

// testNamespace is a namespace of one test, with a client for all kinds.
type testNamespace struct {
	client dynamic.Interface
	name   string
}

//go:embed testdata/*.yaml
var manifests embed.FS

// newNamespace makes a namespace and applies a manifest in the namespace. In the manifest, NAME is replaced by the name
// of the namespace.
func newNamespace(t *testing.T, name, manifest string) testNamespace {
	t.Helper()
	s, err := createNamespace(t.Context(), name, manifest)
	require.NoError(t, err)
	return s
}

func createNamespace(ctx context.Context, name, manifest string) (testNamespace, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := testRig.Kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return testNamespace{}, err
	}
	if err := applyManifest(ctx, name, manifest, "NAME", name); err != nil {
		return testNamespace{}, err
	}
	return openNamespace(name)
}

// openNamespace returns the testNamespace of a namespace that exists.
func openNamespace(name string) (testNamespace, error) {
	config, err := clientcmd.BuildConfigFromFlags("", testRig.Stack.KubeconfigPath(component.TestIdentity))
	if err != nil {
		return testNamespace{}, err
	}
	config.QPS, config.Burst = 100, 200
	client, err := dynamic.NewForConfig(config)
	return testNamespace{client, name}, err
}

// applyManifest applies a manifest in a namespace. Before that, applyManifest replaces text in the manifest: the
// parameter replacements contains pairs of old text and new text.
func applyManifest(ctx context.Context, namespace, manifest string, replacements ...string) error {
	text, err := manifests.ReadFile("testdata/" + manifest)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "millwright-capi-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, manifest)
	if err := os.WriteFile(file, []byte(strings.NewReplacer(replacements...).Replace(string(text))), 0o600); err != nil {
		return err
	}
	_, err = testRig.Stack.RunKubectl(ctx, "apply", "--server-side", "--namespace", namespace, "-f", file)
	return err
}

func (s testNamespace) resourceClient(kind schema.GroupVersionResource) dynamic.ResourceInterface {
	return s.client.Resource(kind).Namespace(s.name)
}

func (s testNamespace) getObject(
	t *testing.T,
	kind schema.GroupVersionResource,
	name string,
) *unstructured.Unstructured {
	t.Helper()
	object, err := s.resourceClient(kind).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return object
}

// countRunningMachines returns the numbers of running Machines of the control plane and of workers, and a description
// of all Machines.
func (s testNamespace) countRunningMachines(ctx context.Context) (planes, workers int, seen []string) {
	list, err := s.resourceClient(machineResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, []string{err.Error()}
	}
	for _, m := range list.Items {
		phase, _, _ := unstructured.NestedString(m.Object, "status", "phase")
		node, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name")
		seen = append(seen, fmt.Sprintf("%s %s node %q", m.GetName(), phase, node))
		_, plane := m.GetLabels()[controlPlaneLabel]
		switch {
		case phase != "Running" || node == "":
		case plane:
			planes++
		default:
			workers++
		}
	}
	return planes, workers, seen
}

// awaitMachines waits until exactly one control-plane Machine and exactly this many worker Machines exist, and all of
// them run.
func (s testNamespace) awaitMachines(t *testing.T, workers int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("1 + %d machines run", workers), func() (bool, any) {
		planes, others, seen := s.countRunningMachines(t.Context())
		return planes == 1 && others == workers && len(seen) == 1+workers, seen
	})
}

// workloadClient returns a client of the API server of the workload cluster.
func (s testNamespace) workloadClient(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	secret, err := testRig.Kube.CoreV1().Secrets(s.name).Get(t.Context(), s.name+"-kubeconfig", metav1.GetOptions{})
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	require.NoError(t, err)
	config.Timeout = time.Minute
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}
