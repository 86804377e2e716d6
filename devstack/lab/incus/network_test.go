package incus

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/component"
)

func TestNetworksDoNotOverlap(t *testing.T) {
	var before netip.Prefix
	for _, n := range Networks() {
		subnet := netip.MustParsePrefix(n.Subnet)
		assert.False(t, before.IsValid() && before.Overlaps(subnet))
		before = subnet
		for _, address := range []string{n.BridgeAddress, n.HostAddress} {
			assert.True(t, subnet.Contains(netip.MustParseAddr(address)))
			assert.False(t, netip.MustParsePrefix(n.PodSubnet).Contains(netip.MustParseAddr(address)))
		}
		assert.LessOrEqual(t, len(n.Name), 15, "the kernel's bound for names of interfaces")
		same, err := NetworkByName(n.Name)
		require.NoError(t, err)
		assert.Equal(t, n, same)
	}
	_, err := NetworkByName("eth0")
	assert.ErrorContains(t, err, "no network")
}

// The same folder gets the same network again, unless another stack uses the network.
func TestAFolderGetsTheSameNetworkAgain(t *testing.T) {
	t.Setenv("MILLWRIGHT_CACHE", t.TempDir())
	first, lock, err := LockFreeNetwork(t.Context(), "/stack")
	require.NoError(t, err)
	second, other, err := LockFreeNetwork(t.Context(), "/stack")
	require.NoError(t, err)
	assert.NotEqual(t, first, second)
	_, err = LockNetwork(first)
	require.ErrorIs(t, err, component.ErrLocked)
	require.NoError(t, other.Close())
	require.NoError(t, lock.Close())
	again, lock, err := LockFreeNetwork(t.Context(), "/stack")
	require.NoError(t, err)
	assert.Equal(t, first, again)
	require.NoError(t, lock.Close())
}
