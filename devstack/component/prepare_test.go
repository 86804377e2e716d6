package component

import (
	"crypto/x509"
	"encoding/csv"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/devstack/authority"
)

// writeTestStackFiles prepares the files of a stack without starting the stack, and returns the stack's folder.
func writeTestStackFiles(t *testing.T) StackFolder {
	t.Helper()
	plan := Plan{Dir: t.TempDir(), Ports: map[string]int{APIServer: 16443}, KubernetesBinaryPath: "/bin/echo"}
	require.NoError(t, WriteStackFiles(t.Context(), plan))
	return plan.StackFolder()
}

func TestEveryIdentityHasItsOwnTokenAndKubeconfig(t *testing.T) {
	l := writeTestStackFiles(t)
	file, err := os.Open(l.tokensFile())
	require.NoError(t, err)
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, len(IdentityNames()))

	groups, tokens := map[string]string{}, map[string]bool{}
	for i, name := range IdentityNames() {
		config, err := clientcmd.LoadFromFile(l.KubeconfigFile(name))
		require.NoError(t, err)
		context := config.Contexts[config.CurrentContext]
		assert.Equal(t, rows[i][0], config.AuthInfos[context.AuthInfo].Token, name)
		assert.Equal(t, "https://127.0.0.1:16443", config.Clusters[context.Cluster].Server)
		assert.Equal(t, l.APIServerCertificateFile(), config.Clusters[context.Cluster].CertificateAuthority)
		groups[rows[i][1]] = rows[i][3]
		tokens[rows[i][0]] = true
		info, err := os.Stat(l.KubeconfigFile(name))
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, "%s is readable by others", name)
	}
	assert.Len(t, tokens, len(rows), "tokens differ")
	assert.Equal(t, mastersGroup, groups[AdminIdentity])
	for _, product := range []string{WorkerIdentity, BridgeIdentity} {
		group, known := groups[product]
		assert.True(t, known)
		assert.Empty(t, group, "%s gets what RBAC gives it and no more", product)
	}
}

func TestRewritingStackFilesKeepsTheServiceAccountKey(t *testing.T) {
	plan := Plan{Dir: t.TempDir(), Ports: map[string]int{APIServer: 16443}, KubernetesBinaryPath: "/bin/echo"}
	require.NoError(t, WriteStackFiles(t.Context(), plan))
	before, err := os.ReadFile(plan.StackFolder().serviceAccountKeyFile())
	require.NoError(t, err)
	require.NoError(t, WriteStackFiles(t.Context(), plan))
	after, err := os.ReadFile(plan.StackFolder().serviceAccountKeyFile())
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

// The plugin's name is the first argument of kubectl. The script uses the stack's kubeconfig even if the user's
// environment names another kubeconfig.
func TestKubectlScriptPassesArgumentsOn(t *testing.T) {
	dir := t.TempDir()
	kubectl := filepath.Join(dir, "it's")
	require.NoError(t, os.WriteFile(kubectl, []byte("#!/bin/sh\nprintf '%s\\n' \"$KUBECONFIG\" \"$@\"\n"), 0o700))
	plan := Plan{Dir: t.TempDir(), Ports: map[string]int{APIServer: 16443}, KubernetesBinaryPath: kubectl}
	require.NoError(t, writeKubectlScript(plan))
	script := exec.Command(plan.StackFolder().KubectlPath(), "millwright", "top", "a b")
	script.Env = []string{"KUBECONFIG=/another", "PATH=" + os.Getenv("PATH")}
	out, err := script.Output()
	require.NoError(t, err)
	assert.Equal(
		t,
		[]string{plan.StackFolder().KubeconfigFile(AdminIdentity), "kubectl", "millwright", "top", "a b"},
		strings.Split(strings.TrimSpace(string(out)), "\n"),
	)
	assert.Equal(t, `'it'\''s'`, quoteForShell("it's"))
}

// A second call replaces the CA, so the new certificates do not verify against the old CA.
func TestTemporalCertificatesAreReplaced(t *testing.T) {
	plan := Plan{Dir: t.TempDir(), RequireTemporalTLS: true}
	require.NoError(t, WriteStackFiles(t.Context(), plan))
	l := plan.StackFolder()
	verify := func(ca []byte) (server, client error) {
		roots := x509.NewCertPool()
		require.True(t, roots.AppendCertsFromPEM(ca))
		shown, err := authority.ReadPEM(l.temporalServerCertificateFile(), x509.ParseCertificate)
		require.NoError(t, err)
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			_, err = shown.Verify(
				x509.VerifyOptions{Roots: roots, DNSName: loopbackAddress, KeyUsages: []x509.ExtKeyUsage{usage}},
			)
			server = errors.Join(server, err)
		}
		ours, err := authority.ReadPEM(l.TemporalClientCertificateFile(), x509.ParseCertificate)
		require.NoError(t, err)
		_, client = ours.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return server, client
	}
	before, err := os.ReadFile(l.TemporalCACertificateFile())
	require.NoError(t, err)
	server, client := verify(before)
	require.NoError(t, server)
	require.NoError(t, client)
	_, err = plan.TemporalClientOptions()
	require.NoError(t, err)

	require.NoError(t, WriteTemporalCertificates(l))
	server, client = verify(before)
	require.Error(t, server)
	require.Error(t, client)
	after, err := os.ReadFile(l.TemporalCACertificateFile())
	require.NoError(t, err)
	server, client = verify(after)
	require.NoError(t, server)
	require.NoError(t, client)
}
