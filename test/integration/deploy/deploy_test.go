// Tier: test-all. It proves manifests, and no change of a decision breaks them.

//go:build integration

// Package deploy asks whether what is shipped besides the code would be taken: are the manifests of deploy/ and
// examples/ accepted by a real API server, may the accounts do what they must and nothing more, does Compose read its
// file, and do the command lines in all of them fit the binaries? It runs none of it: there is no kubelet and no
// container engine.
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

// TestManifests needs an API server and nothing behind it: what it takes is stored and never acted on.
func TestManifests(t *testing.T) {
	c := startCluster(t)
	t.Run("processes of the local stack may do what they must", func(t *testing.T) { testAccounts(t, c, localAccounts()) })
	for _, folder := range kustomizations(t) {
		t.Run(folder+" is taken", func(t *testing.T) {
			text := c.kubectl(t, nil, "kustomize", folder)
			for _, document := range documents(t, text) {
				if kind, _ := identify(t, document); kind == "Namespace" { // a dry run of what lies in it needs it
					c.kubectl(t, document, "apply", "-f", "-")
				}
			}
			c.dryRun(t, text)
			testPods(t, text)
		})
	}
	t.Run("examples are taken", func(t *testing.T) { testExamples(t, c) })
	t.Run("accounts may do what they must", func(t *testing.T) {
		c.kubectl(t, nil, "apply", "-k", "deploy/overlays/example")
		c.kubectl(t, nil, "delete", "job", "--namespace=millwright", "millwright-bootstrap") // it cannot be changed
		for _, further := range []string{"incus", "mcm"} {
			c.kubectl(t, nil, "apply", "-k", "deploy/overlays/"+further)
			c.kubectl(t, nil, "delete", "job", "--ignore-not-found", "--namespace=millwright", "millwright-bootstrap")
		}
		testAccounts(t, c, installedAccounts())
	})
}

// kustomizations returns the folders that somebody may apply.
func kustomizations(t *testing.T) []string {
	overlays, err := filepath.Glob(filepath.Join(repo(t), "deploy/overlays/*"))
	require.NoError(t, err)
	require.NotEmpty(t, overlays)
	folders := []string{"deploy/crds", "deploy/base"}
	for _, overlay := range overlays {
		folders = append(folders, filepath.Join("deploy/overlays", filepath.Base(overlay)))
	}
	return folders
}

// testExamples checks what the API server cannot: that the virtual provider understands what is meant for it alone.
func testExamples(t *testing.T, c *cluster) {
	files, err := filepath.Glob(filepath.Join(repo(t), "examples/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	further, err := filepath.Glob(filepath.Join(repo(t), "examples/*/*.yaml")) // whose class the local stack makes
	require.NoError(t, err)
	require.NotEmpty(t, further)
	for _, file := range slices.Concat(files, further) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		c.dryRun(t, text)
	}
	classes, secrets := map[string]v1alpha1.MachineClass{}, map[string]corev1.Secret{}
	var deployments []v1alpha1.MachineDeployment
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, document := range documents(t, text) {
			switch kind, key := identify(t, document); kind {
			case "Secret":
				secrets[key] = decode[corev1.Secret](t, document)
			case "MachineClass":
				classes[key] = decode[v1alpha1.MachineClass](t, document)
			case "MachineDeployment":
				deployments = append(deployments, decode[v1alpha1.MachineDeployment](t, document))
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
		assert.NotEmpty(t, secret.StringData[virtual.SecretToken])
		for key := range secret.StringData {
			assert.Contains(t, []string{virtual.SecretToken, virtual.SecretUserData}, key)
		}
	}
}

// cluster is an API server and the kubectl that was built with it.
type cluster struct {
	stack  *stack.Stack
	client kubernetes.Interface
}

// startCluster starts an API server with the CRDs, and with the roles of deploy/rbac as the local stack gives them out.
func startCluster(t *testing.T) *cluster {
	s, err := stack.Up(t.Context(), stack.Options{
		Dir: t.TempDir(), FreePorts: true, Attached: true, Components: []string{component.Bootstrap},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Down(context.WithoutCancel(t.Context()))) })
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig(component.Test))
	require.NoError(t, err)
	config.QPS = -1 // the throttle is for servers that others need too
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return &cluster{stack: s, client: client}
}

// kubectl runs in the root of the repository and returns what is printed.
func (c *cluster) kubectl(t *testing.T, input []byte, arguments ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), c.stack.KubectlPath(), arguments...)
	command.Dir = repo(t)
	command.Stdin = bytes.NewReader(input)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	require.NoError(t, err, "kubectl %s: %s", strings.Join(arguments, " "), &complaint)
	return out
}

// dryRun asks the API server whether it would take these objects. Fields that it does not know are errors, and so are
// its warnings: of an outdated API, or of pods that break the rules of their namespace.
func (c *cluster) dryRun(t *testing.T, text []byte) {
	t.Helper()
	out := c.kubectl(t, text, "apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-")
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	assert.Len(t, lines, len(documents(t, text)), "an answer for each object")
}

func repo(t *testing.T) string {
	t.Helper()
	root, err := build.FindRepo("")
	require.NoError(t, err)
	return root
}

// documents splits a YAML stream and leaves out what holds comments only.
func documents(t *testing.T, text []byte) [][]byte {
	t.Helper()
	var all [][]byte
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if kind, _ := identify(t, document); kind != "" {
			all = append(all, document)
		}
	}
}

// identify returns an object's kind, and its namespace and name.
func identify(t *testing.T, document []byte) (kind, key string) {
	t.Helper()
	object := decode[metav1.PartialObjectMetadata](t, document)
	return object.Kind, object.Namespace + "/" + object.Name
}

func decode[T any](t *testing.T, document []byte) T {
	t.Helper()
	var object T
	require.NoError(t, yaml.Unmarshal(document, &object))
	return object
}
