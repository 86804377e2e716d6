package component

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClusterAPIServesWebhooksWithACertificateOfTheStack(t *testing.T) {
	plan := Plan{Dir: t.TempDir(), KubernetesBinaryPath: "/bin/echo", Components: []string{ClusterAPICore}}
	require.NoError(t, WriteStackFiles(t.Context(), plan))
	l := plan.StackFolder()
	authority, err := os.ReadFile(l.ClusterAPICACertificateFile())
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	pair, err := tls.LoadX509KeyPair(
		filepath.Join(l.clusterAPIWebhooksFolder(), "tls.crt"),
		filepath.Join(l.clusterAPIWebhooksFolder(), "tls.key"),
	)
	require.NoError(t, err)
	shown, err := x509.ParseCertificate(pair.Certificate[0])
	require.NoError(t, err)
	_, err = shown.Verify(x509.VerifyOptions{Roots: roots, DNSName: loopbackAddress})
	require.NoError(t, err)
}

func TestOnlyCoreHasAWatchFilterAndAllFeatureGates(t *testing.T) {
	plan := Plan{Dir: "/stack", Ports: map[string]int{ClusterAPICore: 1, ClusterAPICore + "-webhooks": 2}}
	command := plan.ComponentArguments(ClusterAPICore)
	assert.Contains(t, command, "--watch-filter=upstream")
	assert.Contains(t, command, "--feature-gates=RuntimeSDK=true,InPlaceUpdates=true,ClusterTopology=true")
	assert.Contains(t, command, "--health-addr=127.0.0.1:1")
	assert.Contains(t, command, "--webhook-port=2")
	assert.Contains(t, command, "--webhook-cert-dir=/stack/pki/cluster-api")
	assert.Contains(t, command, "--kubeconfig=/stack/kubeconfig/cluster-api.kubeconfig")
	for _, name := range []string{ClusterAPIBootstrap, ClusterAPIControlPlane, ClusterAPIDev} {
		assert.NotContains(t, plan.ComponentArguments(name), "--watch-filter=upstream", name)
		assert.Contains(t, plan.ComponentArguments(name), "--feature-gates=ClusterTopology=true", name)
	}
}

func TestWorkloadClustersOfTwoStacksHaveTwoAddresses(t *testing.T) {
	seen := map[string]bool{}
	for _, port := range []int{
		16443,
		firstBlockPort + 2,
		firstBlockPort + portBlockSize + 2,
		firstBlockPort + (portBlockCount-1)*portBlockSize + 2,
	} {
		plan := Plan{Ports: map[string]int{APIServer: port}}
		address, err := netip.ParseAddr(plan.WorkloadClusterAddress())
		require.NoError(t, err)
		assert.True(t, address.IsLoopback())
		assert.NotEqual(t, loopbackAddress, address.String(), "there are the ports of other stacks")
		assert.False(t, seen[address.String()])
		seen[address.String()] = true
		assert.Equal(t, []string{"POD_IP=" + address.String()}, plan.Environment(ClusterAPIDev))
		assert.Empty(t, plan.Environment(ClusterAPICore))
	}
}
