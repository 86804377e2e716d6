package stack

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"millwright/devstack/component"
)

const upstreamManifests = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: machinesets.cluster.x-k8s.io
spec:
  versions: [{name: v1beta1}, {name: v1beta2}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: new.cluster.x-k8s.io
spec:
  versions: [{name: v1beta2}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: validating-webhook-configuration
webhooks:
- name: validation.machineset.cluster.x-k8s.io
  clientConfig: {service: {name: webhook-service, namespace: system, path: /validate-machineset}}
- name: validation.machine.cluster.x-k8s.io
  clientConfig: {service: {name: webhook-service, namespace: system, path: /validate-machine}}
`

// planWithClusterAPICore returns a plan with Cluster API's core as the only component. The folder of core's manifests
// contains the given manifests.
func planWithClusterAPICore(t *testing.T, manifests string) component.Plan {
	t.Helper()
	plan := component.Plan{
		Dir:                  t.TempDir(),
		ClusterAPIFolder:     t.TempDir(),
		KubernetesBinaryPath: "/bin/echo",
		Components:           []string{component.ClusterAPICore},
		Ports:                map[string]int{component.APIServer: 16443, component.ClusterAPICore + "-webhooks": 16505},
	}
	require.NoError(t, component.WriteStackFiles(t.Context(), plan))
	folder := filepath.Join(plan.ClusterAPIFolder, "config", component.ClusterAPICore)
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "manifests.yaml"), []byte(manifests), 0o600))
	labels := "labels:\n- pairs: {cluster.x-k8s.io/v1beta2: v1beta2}\n"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(labels), 0o600))
	return plan
}

func TestClusterAPIWebhooksAreRedirectedToThisMachine(t *testing.T) {
	plan := planWithClusterAPICore(t, upstreamManifests)
	objects, err := clusterAPIObjects(plan)
	require.NoError(t, err)
	require.Len(t, objects, 3)
	authority, err := os.ReadFile(plan.StackFolder().ClusterAPICACertificateFile())
	require.NoError(t, err)
	client := func(path string) map[string]any {
		return map[string]any{
			"url":      "https://127.0.0.1:16505" + path,
			"caBundle": base64.StdEncoding.EncodeToString(authority),
		}
	}

	assert.Equal(t, map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"}, objects[0].GetLabels())
	conversion, _, err := unstructured.NestedMap(objects[0].Object, "spec", "conversion", "webhook", "clientConfig")
	require.NoError(t, err)
	assert.Equal(t, client("/convert"), conversion)
	_, found, err := unstructured.NestedMap(objects[1].Object, "spec", "conversion")
	require.NoError(t, err)
	assert.False(t, found, "there is nothing to convert")

	assert.Equal(t, "capi-core-validating-webhook-configuration", objects[2].GetName())
	hooks, _, err := unstructured.NestedSlice(objects[2].Object, "webhooks")
	require.NoError(t, err)
	assert.Equal(t, []any{
		map[string]any{"name": "validation.machineset.cluster.x-k8s.io", "clientConfig": client("/validate-machineset")},
		map[string]any{"name": "validation.machine.cluster.x-k8s.io", "clientConfig": client("/validate-machine")},
	}, hooks)
}

func TestUnexpectedClusterAPIManifestsAreRefused(t *testing.T) {
	for manifest, want := range map[string]string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}":                                                          "no object of this kind is expected",
		"apiVersion: v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: m}\nwebhooks: [{clientConfig: {}}]":    "a webhook has no path of a service",
		"apiVersion: v1\nkind: CustomResourceDefinition\nmetadata: {name: c}\nspec: {versions: {}}":                  "spec.versions",
		"apiVersion: v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: v}\nwebhooks: [a text, another one]": "a webhook has no path of a service",
	} {
		_, err := clusterAPIObjects(planWithClusterAPICore(t, manifest))
		assert.ErrorContains(t, err, want, manifest)
	}
}

func TestAStackWithoutClusterAPIHasNoneOfItsObjects(t *testing.T) {
	objects, err := clusterAPIObjects(component.Plan{Dir: t.TempDir(), Components: component.Names()})
	require.NoError(t, err)
	assert.Empty(t, objects)
}
