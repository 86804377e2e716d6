package stack

import (
	"encoding/csv"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
)

// prepared is the folder of a stack that was prepared and not started.
func prepared(t *testing.T) layout {
	t.Helper()
	plan := Plan{Dir: t.TempDir(), Ports: map[string]int{APIServer: 16443}, Kubectl: "/bin/echo"}
	require.NoError(t, prepare(t.Context(), plan))
	return plan.layout()
}

func TestEveryIdentityHasItsOwnTokenAndKubeconfig(t *testing.T) {
	l := prepared(t)
	file, err := os.Open(l.tokens())
	require.NoError(t, err)
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, len(Identities()))

	groups, tokens := map[string]string{}, map[string]bool{}
	for i, name := range Identities() {
		config, err := clientcmd.LoadFromFile(l.kubeconfig(name))
		require.NoError(t, err)
		context := config.Contexts[config.CurrentContext]
		assert.Equal(t, rows[i][0], config.AuthInfos[context.AuthInfo].Token, name)
		assert.Equal(t, "https://127.0.0.1:16443", config.Clusters[context.Cluster].Server)
		assert.Equal(t, l.authority(), config.Clusters[context.Cluster].CertificateAuthority)
		groups[rows[i][1]] = rows[i][3]
		tokens[rows[i][0]] = true
		info, err := os.Stat(l.kubeconfig(name))
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, "%s is readable by others", name)
	}
	assert.Len(t, tokens, len(rows), "tokens differ")
	assert.Equal(t, masters, groups[Admin])
	for _, product := range []string{WorkerIdentity, BridgeIdentity} {
		group, known := groups[product]
		assert.True(t, known)
		assert.Empty(t, group, "%s gets what RBAC gives it and no more", product)
	}
}

func TestPreparingAgainKeepsTheServiceAccountKey(t *testing.T) {
	plan := Plan{Dir: t.TempDir(), Ports: map[string]int{APIServer: 16443}, Kubectl: "/bin/echo"}
	require.NoError(t, prepare(t.Context(), plan))
	before, err := os.ReadFile(plan.layout().serviceAccountKey())
	require.NoError(t, err)
	require.NoError(t, prepare(t.Context(), plan))
	after, err := os.ReadFile(plan.layout().serviceAccountKey())
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

func TestKubectlScriptPassesArgumentsOn(t *testing.T) {
	out, err := exec.Command(prepared(t).kubectl(), "get", "a b").Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "kubectl --kubeconfig")
	assert.Contains(t, string(out), "get a b")
	assert.Equal(t, `'it'\''s'`, quote("it's"))
}

func TestRolesOfTheProductAreBoundToOurUsers(t *testing.T) {
	bindings, err := bindUsers([]*unstructured.Unstructured{
		{Object: map[string]any{"kind": "ClusterRole", "metadata": map[string]any{"name": WorkerIdentity}}},
		{Object: map[string]any{"kind": "Role", "metadata": map[string]any{"name": BridgeIdentity, "namespace": "millwright"}}},
		{Object: map[string]any{"kind": "ClusterRole", "metadata": map[string]any{"name": "other"}}},
		{Object: map[string]any{"kind": "ServiceAccount", "metadata": map[string]any{"name": WorkerIdentity}}},
	})
	require.NoError(t, err)
	require.Len(t, bindings, 2)
	assert.Equal(t, "ClusterRoleBinding", bindings[0].GetKind())
	assert.Equal(t, "RoleBinding", bindings[1].GetKind())
	assert.Equal(t, "millwright", bindings[1].GetNamespace())
	subjects, _, err := unstructured.NestedSlice(bindings[0].Object, "subjects")
	require.NoError(t, err)
	assert.Equal(t, []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": WorkerIdentity}}, subjects)
}

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

func TestTailIsOfTheLastStart(t *testing.T) {
	path := t.TempDir() + "/x.log"
	require.NoError(t, os.WriteFile(path, []byte("=== first\nold\n=== second\nnew\n"), 0o600))
	assert.Equal(t, "=== second\nnew", tail(path))
	assert.Empty(t, tail(path+".absent"))
}
