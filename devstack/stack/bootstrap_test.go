package stack

import (
	"os"
	"strings"
	"testing"

	"millwright/devstack/component"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestManifestsAreReadWithoutKustomizeFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml":             "kind: B\n---\n# nothing\n---\nkind: C\n",
		"a.yaml":             "kind: A\n",
		"kustomization.yaml": "resources: [a.yaml]\n",
		"README.md":          "words",
	} {
		require.NoError(t, os.WriteFile(dir+"/"+name, []byte(text), 0o600))
	}
	objects, err := readManifests(dir)
	require.NoError(t, err)
	var kinds []string
	for _, object := range objects {
		kinds = append(kinds, object.GetKind())
	}
	assert.Equal(t, "A B C", strings.Join(kinds, " "))
	objects, err = readManifests(dir + "/absent")
	require.NoError(t, err)
	assert.Empty(t, objects)
}

func TestLogTailBeginsAtTheLastStart(t *testing.T) {
	path := t.TempDir() + "/x.log"
	require.NoError(t, os.WriteFile(path, []byte("=== first\nold\n=== second\nnew\n"), 0o600))
	assert.Equal(t, "=== second\nnew", logTail(path))
	assert.Empty(t, logTail(path+".absent"))
}

func TestMillwrightRolesAreBoundToStackUsers(t *testing.T) {
	bindings, err := roleBindings([]*unstructured.Unstructured{
		{Object: map[string]any{"kind": "ClusterRole", "metadata": map[string]any{"name": component.WorkerIdentity}}},
		{
			Object: map[string]any{
				"kind":     "Role",
				"metadata": map[string]any{"name": component.BridgeIdentity, "namespace": "millwright"},
			},
		},
		{Object: map[string]any{"kind": "ClusterRole", "metadata": map[string]any{"name": component.ProviderIdentity}}},
		{Object: map[string]any{"kind": "ClusterRole", "metadata": map[string]any{"name": "other"}}},
		{Object: map[string]any{"kind": "ServiceAccount", "metadata": map[string]any{"name": component.WorkerIdentity}}},
	})
	require.NoError(t, err)
	require.Len(t, bindings, 3)
	assert.Equal(t, "ClusterRoleBinding", bindings[0].GetKind())
	assert.Equal(t, "RoleBinding", bindings[1].GetKind())
	assert.Equal(t, "millwright", bindings[1].GetNamespace())
	subjects, _, err := unstructured.NestedSlice(bindings[0].Object, "subjects")
	require.NoError(t, err)
	assert.Equal(
		t,
		[]any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": component.WorkerIdentity}},
		subjects,
	)
	subjects, _, err = unstructured.NestedSlice(bindings[2].Object, "subjects")
	require.NoError(t, err)
	assert.Len(t, subjects, 1)
}

func TestMillwrightFlowSchemasMatchStackUsers(t *testing.T) {
	objects, err := flowControlObjects("../..")
	require.NoError(t, err)
	var schemas []string
	for _, o := range objects {
		if o.GetKind() != "FlowSchema" {
			continue
		}
		schemas = append(schemas, o.GetName())
		var schema flowcontrolv1.FlowSchema
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &schema))
		require.Len(t, schema.Spec.Rules, 1)
		rule := schema.Spec.Rules[0]
		var users []string
		for _, s := range rule.Subjects {
			require.Equal(t, flowcontrolv1.SubjectKindUser, s.Kind)
			users = append(users, s.User.Name)
		}
		assert.Equal(t, component.MillwrightUserNames(), users)
		require.Len(t, rule.ResourceRules, 1)
		want := map[string][]string{"millwright": {flowcontrolv1.NamespaceEvery}, "millwright-leases": {"default"}}[o.GetName()]
		assert.Equal(t, want, rule.ResourceRules[0].Namespaces, o.GetName())
	}
	assert.Equal(t, []string{"millwright", "millwright-leases"}, schemas)
}
