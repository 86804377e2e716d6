// Tier: test for the core of Cluster API; test-all for kills, updates in place, stages, the autoscaler and clusterctl.

//go:build integration

// Package capi shows Millwright beside the released Cluster API: its core, its kubeadm providers, and its development
// provider, whose workload clusters are in its memory.
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

var r *rig.Rig

// strict makes worker and bridge check what today's Cluster API checks.
var strict = map[string][]string{
	component.Worker: {"--strict-preflight-checks"},
	component.Bridge: {"--strict-preflight-checks"},
}

func TestMain(m *testing.M) {
	os.Exit(rig.Main(m, stack.Options{ClusterAPI: true, Args: strict}, func(up *rig.Rig) { r = up }))
}

// Kinds of Cluster API.
var (
	clusters           = kind("", "clusters")
	machineDeployments = kind("", "machinedeployments")
	machineSets        = kind("", "machinesets")
	machines           = kind("", "machines")
	kubeadmConfigs     = kind("bootstrap.", "kubeadmconfigs")
	bootstrapTemplates = kind("bootstrap.", "kubeadmconfigtemplates")
	controlPlanes      = kind("controlplane.", "kubeadmcontrolplanes")
	devClusters        = kind("infrastructure.", "devclusters")
	devMachines        = kind("infrastructure.", "devmachines")
	devTemplates       = kind("infrastructure.", "devmachinetemplates")
)

// Labels of Cluster API.
const (
	clusterLabel      = "cluster.x-k8s.io/cluster-name"
	controlPlaneLabel = "cluster.x-k8s.io/control-plane" // whatever its value
)

func kind(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group + "cluster.x-k8s.io", Version: "v1beta2", Resource: resource}
}

// space is a namespace of one test, with a client of all kinds.
type space struct {
	client dynamic.Interface
	name   string
}

//go:embed testdata/*.yaml
var manifests embed.FS

// newSpace makes a namespace and applies a manifest in it, in which NAME is the name of the namespace.
func newSpace(t *testing.T, name, manifest string) space {
	t.Helper()
	s, err := makeSpace(t.Context(), name, manifest)
	require.NoError(t, err)
	return s
}

func makeSpace(ctx context.Context, name, manifest string) (space, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := r.Kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return space{}, err
	}
	if err := apply(ctx, name, manifest, "NAME", name); err != nil {
		return space{}, err
	}
	return spaceOf(name)
}

// spaceOf returns the namespace of a test that exists.
func spaceOf(name string) (space, error) {
	config, err := clientcmd.BuildConfigFromFlags("", r.Stack.Kubeconfig(component.Test))
	if err != nil {
		return space{}, err
	}
	config.QPS, config.Burst = 100, 200
	client, err := dynamic.NewForConfig(config)
	return space{client, name}, err
}

// apply applies a manifest in a namespace, with replacements of its text: pairs of what is there and what shall be.
func apply(ctx context.Context, namespace, manifest string, replacements ...string) error {
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
	_, err = r.Stack.Kubectl(ctx, "apply", "--server-side", "--namespace", namespace, "-f", file)
	return err
}

func (s space) of(kind schema.GroupVersionResource) dynamic.ResourceInterface {
	return s.client.Resource(kind).Namespace(s.name)
}

func (s space) get(t *testing.T, kind schema.GroupVersionResource, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := s.of(kind).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return object
}

// running returns how many Machines run, of the control plane and of workers, and what was seen of all.
func (s space) running(ctx context.Context) (planes, workers int, seen []string) {
	list, err := s.of(machines).List(ctx, metav1.ListOptions{})
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

// awaitMachines waits until there are one Machine of the control plane and this many of workers, and no others, and all
// run.
func (s space) awaitMachines(t *testing.T, workers int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("1 + %d machines run", workers), func() (bool, any) {
		planes, others, seen := s.running(t.Context())
		return planes == 1 && others == workers && len(seen) == 1+workers, seen
	})
}

// workload returns a client of the API server of the workload cluster.
func (s space) workload(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	secret, err := r.Kube.CoreV1().Secrets(s.name).Get(t.Context(), s.name+"-kubeconfig", metav1.GetOptions{})
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	require.NoError(t, err)
	config.Timeout = time.Minute
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}
