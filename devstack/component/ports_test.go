package component

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// firstEphemeralPort is the first port of Linux' default range for outgoing connections.
const firstEphemeralPort = 32768

func TestPortsAreUnique(t *testing.T) {
	standard, offsets, names := map[int]string{}, map[int]string{}, map[string]bool{}
	extras := make([]ExtraComponent, MaxExtraComponents)
	for i := range extras {
		extras[i].Name = fmt.Sprintf("extra-%d", i)
	}
	for _, p := range stackPorts(extras...) {
		assert.Empty(t, standard[p.standardPort], "port of %s", p.name)
		assert.Empty(t, offsets[p.blockOffset], "offset of %s", p.name)
		assert.False(t, names[p.name], "name %s", p.name)
		standard[p.standardPort], offsets[p.blockOffset], names[p.name] = p.name, p.name, true
		assert.Less(t, p.standardPort, firstEphemeralPort)
		assert.Less(t, p.blockOffset, portBlockSize)
		_, err := FindByName(p.componentName, extras...)
		assert.NoError(t, err)
	}
	assert.LessOrEqual(t, firstBlockPort+portBlockCount*portBlockSize, firstEphemeralPort)
	assert.Equal(t, "temporal", standard[7233])
	assert.Equal(t, "temporal-ui", standard[8233])
}

func TestFirstPortInUseIsFound(t *testing.T) {
	l, err := net.Listen("tcp", Address(0))
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	ports := map[string]int{Etcd: l.Addr().(*net.TCPAddr).Port}

	taken, ok := firstPortInUse([]string{Etcd}, ports)
	assert.True(t, ok)
	assert.Equal(t, Etcd, taken.name)
	_, ok = firstPortInUse([]string{Worker}, ports)
	assert.False(t, ok, "another component's port does not matter")
}

func TestFreePortsOfTwoStacksAreDisjoint(t *testing.T) {
	t.Setenv("MILLWRIGHT_CACHE", t.TempDir())
	used := map[int]bool{}
	for range 5 {
		ports, held, err := ReserveFreePorts(t.Context(), Names())
		require.NoError(t, err)
		defer func() { _ = held.Close() }()
		for name, port := range ports {
			assert.False(t, used[port], "%s got %d, which another stack has", name, port)
			used[port] = true
		}
		assert.Len(t, ports, len(stackPorts()))
	}
}

func TestLockEndsWhenItsFileIsClosed(t *testing.T) {
	path := t.TempDir() + "/lock"
	held, err := TryLockFile(path)
	require.NoError(t, err)
	_, err = TryLockFile(path)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, held.Close())
	held, err = TryLockFile(path)
	require.NoError(t, err)
	require.NoError(t, held.Close())
}
