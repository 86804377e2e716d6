package component

import (
	"crypto/x509"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNetworksAreApart(t *testing.T) {
	var before netip.Prefix
	for _, n := range Networks() {
		subnet := netip.MustParsePrefix(n.Subnet)
		assert.False(t, before.IsValid() && before.Overlaps(subnet))
		before = subnet
		for _, address := range []string{n.Bridge, n.Host} {
			assert.True(t, subnet.Contains(netip.MustParseAddr(address)))
			assert.False(t, netip.MustParsePrefix(n.Pods).Contains(netip.MustParseAddr(address)))
		}
		assert.LessOrEqual(t, len(n.Name), 15, "the kernel's bound for names of interfaces")
		same, err := NetworkNamed(n.Name)
		require.NoError(t, err)
		assert.Equal(t, n, same)
	}
	_, err := NetworkNamed("eth0")
	assert.ErrorContains(t, err, "no network")
}

// The same folder gets the same network again, unless another stack has it.
func TestAFolderKeepsItsNetwork(t *testing.T) {
	t.Setenv("MILLWRIGHT_CACHE", t.TempDir())
	first, lock, err := FreeNetwork(t.Context(), "/stack")
	require.NoError(t, err)
	second, other, err := FreeNetwork(t.Context(), "/stack")
	require.NoError(t, err)
	assert.NotEqual(t, first, second)
	_, err = LockNetwork(first)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, other.Close())
	require.NoError(t, lock.Close())
	again, lock, err := FreeNetwork(t.Context(), "/stack")
	require.NoError(t, err)
	assert.Equal(t, first, again)
	require.NoError(t, lock.Close())
}

// The API server's certificate is for the machines' network, too. The CA is kept: machines know it.
func TestCertificatesOfAStackWithMachines(t *testing.T) {
	l := Layout(t.TempDir())
	require.NoError(t, os.MkdirAll(l.Path("pki"), 0o700))
	n := Networks()[0]
	require.NoError(t, writeCertificates(l, n))
	before, err := os.ReadFile(l.Authority())
	require.NoError(t, err)
	n = Networks()[1]
	require.NoError(t, writeCertificates(l, n), "a second start, on another network")
	after, err := os.ReadFile(l.Authority())
	require.NoError(t, err)
	assert.Equal(t, before, after)

	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(after))
	server, err := readPEM(l.authority(), x509.ParseCertificate)
	require.NoError(t, err)
	for _, name := range []string{loopback, n.Host} {
		_, err := server.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		require.NoError(t, err)
	}
	client, err := readPEM(l.kubeletClient(), x509.ParseCertificate)
	require.NoError(t, err)
	_, err = client.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
}
