package component

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// firstOutgoing is the default start of Linux' range of ports for outgoing connections.
const firstOutgoing = 32768

func TestPortsDoNotMeet(t *testing.T) {
	standard, offsets, names := map[int]string{}, map[int]string{}, map[string]bool{}
	extras := make([]Extra, MaxExtras)
	for i := range extras {
		extras[i].Name = fmt.Sprintf("extra-%d", i)
	}
	for _, p := range portTable(extras...) {
		assert.Empty(t, standard[p.standard], "port of %s", p.name)
		assert.Empty(t, offsets[p.offset], "offset of %s", p.name)
		assert.False(t, names[p.name], "name %s", p.name)
		standard[p.standard], offsets[p.offset], names[p.name] = p.name, p.name, true
		assert.Less(t, p.standard, firstOutgoing)
		assert.Less(t, p.offset, blockSize)
		_, err := Named(p.owner, extras...)
		assert.NoError(t, err)
	}
	assert.LessOrEqual(t, firstBlock+blockCount*blockSize, firstOutgoing)
	assert.Equal(t, "temporal", standard[7233])
	assert.Equal(t, "temporal-ui", standard[8233])
}

func TestTakenPortIsNamedWithTheWayOut(t *testing.T) {
	l, err := net.Listen("tcp", Address(0))
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	ports := map[string]int{Etcd: l.Addr().(*net.TCPAddr).Port}

	taken, ok := firstTaken([]string{Etcd}, ports)
	assert.True(t, ok)
	assert.Equal(t, Etcd, taken.name)
	_, ok = firstTaken([]string{Worker}, ports)
	assert.False(t, ok, "another component's port does not matter")
}

func TestFreeBlocksAreOfOneStackEach(t *testing.T) {
	t.Setenv("MILLWRIGHT_CACHE", t.TempDir())
	used := map[int]bool{}
	for range 5 {
		ports, held, err := FreePorts(t.Context(), Names())
		require.NoError(t, err)
		defer func() { _ = held.Close() }()
		for name, port := range ports {
			assert.False(t, used[port], "%s got %d, which another stack has", name, port)
			used[port] = true
		}
		assert.Len(t, ports, len(portTable()))
	}
}

func TestLockIsFreeOnceClosed(t *testing.T) {
	path := t.TempDir() + "/lock"
	held, err := TryLock(path)
	require.NoError(t, err)
	_, err = TryLock(path)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, held.Close())
	held, err = TryLock(path)
	require.NoError(t, err)
	require.NoError(t, held.Close())
}
