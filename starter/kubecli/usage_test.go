package kubecli_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/starter/kubecli"
)

func TestWrongCallsAreNamed(t *testing.T) {
	root := func() *cobra.Command {
		root := &cobra.Command{Use: "starter", SilenceErrors: true, SilenceUsage: true}
		group := &cobra.Command{Use: "rollout"}
		status := &cobra.Command{Use: "status DEPLOYMENT", Args: cobra.ExactArgs(1), RunE: func(*cobra.Command, []string) error { return errors.New("no answer") }}
		group.AddCommand(status)
		root.AddCommand(group)
		kubecli.Strict(root)
		return root
	}
	for name, row := range map[string]struct {
		args []string
		says string
		code int
	}{
		"a command that is nearly right": {[]string{"rollout", "statu", "s5"}, "\"starter rollout\" has no command \"statu\"; did you mean status?\nusage: starter rollout COMMAND; see --help", 2},
		"a command that does not exist":  {[]string{"nosuch"}, "\"starter\" has no command \"nosuch\"\nusage: starter COMMAND; see --help", 2},
		"an argument is missing":         {[]string{"rollout", "status"}, "accepts 1 arg(s), received 0\nusage: starter rollout status DEPLOYMENT [flags]", 2},
		"a flag that does not exist":     {[]string{"rollout", "status", "a", "--nosuch"}, "unknown flag: --nosuch\nusage: starter rollout status DEPLOYMENT [flags]", 2},
		"a failure":                      {[]string{"rollout", "status", "a"}, "no answer", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := root()
			c.SetArgs(row.args)
			err := c.Execute()
			require.EqualError(t, err, row.says)
			assert.Equal(t, row.code, kubecli.ExitCode(err))
		})
	}
}

// KUBECONFIG may name several files. The namespace is that of the context.
func TestNamespaceOfTheContext(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	const head = "apiVersion: v1\nkind: Config\n"
	a := write("a", head+"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: one, context: {cluster: c, user: u, namespace: shop}}]\ncurrent-context: one\n")
	b := write("b", head+"users: [{name: u, user: {token: t}}]\ncontexts: [{name: two, context: {cluster: c, user: u, namespace: bar}}, {name: three, context: {cluster: c, user: u}}]\n")
	t.Setenv("KUBECONFIG", a+string(filepath.ListSeparator)+b)
	for context, want := range map[string]string{"": "shop", "two": "bar", "three": "default"} {
		got, err := kubecli.ContextNamespace(kubecli.Access{Context: context})
		require.NoError(t, err)
		assert.Equal(t, want, got, "context %q", context)
	}
	_, err := kubecli.Connect(kubecli.Access{})
	require.NoError(t, err)
	_, err = kubecli.ContextNamespace(kubecli.Access{Kubeconfig: filepath.Join(folder, "nosuch")})
	require.Error(t, err)
	assert.ErrorContains(t, err, "nosuch")
}
