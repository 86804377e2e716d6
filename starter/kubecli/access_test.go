package kubecli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/starter/kubecli"
)

// KUBECONFIG may name several files; the current context sets the namespace.
func TestContextNamespaceFromSeveralKubeconfigs(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	const head = "apiVersion: v1\nkind: Config\n"
	a := write(
		"a",
		head+"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: one, context: {cluster: c, user: u, namespace: shop}}]\ncurrent-context: one\n",
	)
	b := write(
		"b",
		head+"users: [{name: u, user: {token: t}}]\ncontexts: [{name: two, context: {cluster: c, user: u, namespace: bar}}, {name: three, context: {cluster: c, user: u}}]\n",
	)
	t.Setenv("KUBECONFIG", a+string(filepath.ListSeparator)+b)
	for context, want := range map[string]string{"": "shop", "two": "bar", "three": "default"} {
		got, err := kubecli.ContextNamespace(kubecli.ClusterAccess{Context: context})
		require.NoError(t, err)
		assert.Equal(t, want, got, "context %q", context)
	}
	_, err := kubecli.NewClients(kubecli.ClusterAccess{Context: "nope"})
	both := a + string(filepath.ListSeparator) + b
	require.EqualError(t, err, "kubeconfig "+both+` has no context "nope" (it has: one, three, two)`)
	_, err = kubecli.NewClients(kubecli.ClusterAccess{Kubeconfig: b})
	require.EqualError(t, err, "kubeconfig "+b+" has no current context: give --context (it has: three, two)")
	empty := write("empty", head)
	_, err = kubecli.NewClients(kubecli.ClusterAccess{Kubeconfig: empty})
	require.EqualError(
		t,
		err,
		"kubeconfig "+empty+" does not exist or has no context: give --kubeconfig, or set KUBECONFIG",
	)
	_, err = kubecli.NewClients(kubecli.ClusterAccess{})
	require.NoError(t, err)
	_, err = kubecli.ContextNamespace(kubecli.ClusterAccess{Kubeconfig: filepath.Join(folder, "nosuch")})
	require.Error(t, err)
	assert.ErrorContains(t, err, "nosuch")
}
