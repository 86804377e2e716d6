// Tier: test-all. The package tests manifests, which changes of Millwright's decisions cannot break.

//go:build integration

// Package deploy tests the manifests and the programs that Millwright ships. A real API server accepts the manifests of
// deploy/ and examples/. Each account has exactly the rights that it needs. The binaries accept all flags in the
// manifests. The package runs no container: it has no kubelet and no container engine.
package deploy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"millwright/api/v1alpha1"
	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/devstack/stack"
	"millwright/provider/virtual"
)

// TestManifestsAreAccepted needs only an API server, because no controller acts on the stored objects.
func TestManifestsAreAccepted(t *testing.T) {
	c := startCluster(t)
	t.Run("processes of the local stack may do what they must", func(t *testing.T) { testAccounts(t, c, localAccounts()) })
	for _, folder := range kustomizationFolders(t) {
		t.Run(folder+" is taken", func(t *testing.T) {
			text := c.runKubectl(t, nil, "kustomize", folder)
			for _, document := range splitDocuments(t, text) {
				// a dry run of the namespace's objects needs the namespace
				if kind, _ := kindAndKey(t, document); kind == "Namespace" {
					c.runKubectl(t, document, "apply", "-f", "-")
				}
			}
			c.requireDryRunSucceeds(t, text)
			testPods(t, text)
		})
	}
	t.Run("examples are taken", func(t *testing.T) { testExampleObjects(t, c) })
	t.Run("accounts may do what they must", func(t *testing.T) {
		c.runKubectl(t, nil, "apply", "-k", "deploy/overlays/example")
		// a Job's template is immutable
		c.runKubectl(t, nil, "delete", "job", "--namespace=millwright", "millwright-bootstrap")
		for _, further := range []string{"incus", "mcm"} {
			c.runKubectl(t, nil, "apply", "-k", "deploy/overlays/"+further)
			c.runKubectl(t, nil, "delete", "job", "--ignore-not-found", "--namespace=millwright", "millwright-bootstrap")
		}
		testAccounts(t, c, installedAccounts())
	})
}

// kustomizationFolders returns the folders that a user may apply.
func kustomizationFolders(t *testing.T) []string {
	overlays, err := filepath.Glob(filepath.Join(repoRoot(t), "deploy/overlays/*"))
	require.NoError(t, err)
	require.NotEmpty(t, overlays)
	folders := []string{"deploy/crds", "deploy/base"}
	for _, overlay := range overlays {
		folders = append(folders, filepath.Join("deploy/overlays", filepath.Base(overlay)))
	}
	return folders
}

// testExampleObjects tests the part of the examples that the API server does not validate: the virtual provider must
// understand its provider spec and its Secret.
func testExampleObjects(t *testing.T, c *cluster) {
	files, err := filepath.Glob(filepath.Join(repoRoot(t), "examples/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	// the local stack creates the classes of these examples
	further, err := filepath.Glob(filepath.Join(repoRoot(t), "examples/*/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, further)
	for _, file := range slices.Concat(files, further) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		c.requireDryRunSucceeds(t, text)
	}
	classes, secrets := map[string]v1alpha1.MachineClass{}, map[string]corev1.Secret{}
	var deployments []v1alpha1.MachineDeployment
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, document := range splitDocuments(t, text) {
			switch kind, key := kindAndKey(t, document); kind {
			case "Secret":
				secrets[key] = decodeYAML[corev1.Secret](t, document)
			case "MachineClass":
				classes[key] = decodeYAML[v1alpha1.MachineClass](t, document)
			case "MachineDeployment":
				deployments = append(deployments, decodeYAML[v1alpha1.MachineDeployment](t, document))
			}
		}
	}
	require.NotEmpty(t, deployments)
	for _, d := range deployments {
		class, found := classes[d.Namespace+"/"+d.Spec.Template.Spec.Class.Name]
		require.True(t, found, "class of %s", d.Name)
		_, err := virtual.ParseSpec(class.ProviderSpec.Raw)
		require.NoError(t, err)
		secret, found := secrets[class.SecretRef.Namespace+"/"+class.SecretRef.Name]
		require.True(t, found, "secret of %s", class.Name)
		assert.NotEmpty(t, secret.StringData[virtual.SecretKeyToken])
		for key := range secret.StringData {
			assert.Contains(t, []string{virtual.SecretKeyToken, virtual.SecretKeyUserData}, key)
		}
	}
}

// cluster is an API server with the kubectl of the same build.
type cluster struct {
	stack  *stack.Stack
	client kubernetes.Interface
}

// startCluster starts an API server with the CRDs, and with the roles of deploy/rbac as the local stack binds them.
func startCluster(t *testing.T) *cluster {
	s, err := stack.Up(t.Context(), stack.Options{
		Dir: t.TempDir(), UseFreePorts: true, EndsWithThisProcess: true, Components: []string{component.Bootstrap},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Down(context.WithoutCancel(t.Context()))) })
	config, err := clientcmd.BuildConfigFromFlags("", s.KubeconfigPath(component.TestIdentity))
	require.NoError(t, err)
	config.QPS = -1 // no client-side rate limit: no other client needs this API server
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return &cluster{stack: s, client: client}
}

// runKubectl runs kubectl in the root of the repository, and returns its output.
func (c *cluster) runKubectl(t *testing.T, input []byte, arguments ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), c.stack.KubectlPath(), arguments...)
	command.Dir = repoRoot(t)
	command.Stdin = bytes.NewReader(input)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	require.NoError(t, err, "kubectl %s: %s", strings.Join(arguments, " "), &complaint)
	return out
}

// requireDryRunSucceeds requires that the API server accepts these objects in a dry run. Unknown fields fail the test.
// Warnings fail the test too, such as a warning about a deprecated API or about the namespace's pod security.
func (c *cluster) requireDryRunSucceeds(t *testing.T, text []byte) {
	t.Helper()
	out := c.runKubectl(t, text, "apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-")
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	assert.Len(t, lines, len(splitDocuments(t, text)), "an answer for each object")
}

func repoRoot(t *testing.T) string {
	t.Helper()
	root, err := build.FindRepo("")
	require.NoError(t, err)
	return root
}

// splitDocuments splits a YAML stream into its documents, and leaves out documents with comments only.
func splitDocuments(t *testing.T, text []byte) [][]byte {
	t.Helper()
	var all [][]byte
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if kind, _ := kindAndKey(t, document); kind != "" {
			all = append(all, document)
		}
	}
}

// kindAndKey returns an object's kind, and the key NAMESPACE/NAME.
func kindAndKey(t *testing.T, document []byte) (kind, key string) {
	t.Helper()
	object := decodeYAML[metav1.PartialObjectMetadata](t, document)
	return object.Kind, object.Namespace + "/" + object.Name
}

func decodeYAML[T any](t *testing.T, document []byte) T {
	t.Helper()
	var object T
	require.NoError(t, yaml.Unmarshal(document, &object))
	return object
}
