package parts

import (
	"crypto/x509"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/authority"
	"millwright/devstack/component"
	"millwright/devstack/lab/incus"
)

// The API server's certificate includes its address on the machines' network. A second start does not replace the CA,
// because machines have a copy of it.
func TestRewrittenCertificatesKeepTheCAAndNameTheNewNetwork(t *testing.T) {
	l := component.StackFolder(t.TempDir())
	require.NoError(t, os.MkdirAll(l.Path("pki"), 0o700))
	n := incus.Networks()[0]
	require.NoError(t, writeCertificates(l, n))
	before, err := os.ReadFile(caCertificatePath(l))
	require.NoError(t, err)
	n = incus.Networks()[1]
	require.NoError(t, writeCertificates(l, n), "a second start, on another network")
	after, err := os.ReadFile(caCertificatePath(l))
	require.NoError(t, err)
	assert.Equal(t, before, after)

	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(after))
	server, err := authority.ReadPEM(l.APIServerCertificateFile(), x509.ParseCertificate)
	require.NoError(t, err)
	for _, name := range []string{"127.0.0.1", n.HostAddress} {
		_, err := server.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		require.NoError(t, err)
	}
	client, err := authority.ReadPEM(kubeletClientCertificatePath(l), x509.ParseCertificate)
	require.NoError(t, err)
	_, err = client.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
}
