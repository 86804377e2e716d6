package forward

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Data of each side reach the other side, also after one side has closed its half of the connection.
func TestServeForwardsDataInBothDirections(t *testing.T) {
	target, entrance := listenLocally(t), listenLocally(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, entrance, NewAddressDialer(target.Addr().String())) }()
	go func() { // the server echoes the data after the client has closed its half
		connection, err := target.Accept()
		if err != nil {
			return
		}
		text, _ := io.ReadAll(connection)
		_, _ = connection.Write(append([]byte("echo: "), text...))
		_ = connection.Close()
	}()
	client, err := net.Dial("tcp", entrance.Addr().String())
	require.NoError(t, err)
	_, err = client.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, client.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(client)
	require.NoError(t, err)
	assert.Equal(t, "echo: hello", string(answer))
	require.NoError(t, client.Close())

	cancel()
	require.NoError(t, <-ended)
	_, err = net.Dial("tcp", entrance.Addr().String())
	assert.Error(t, err)
}

// While the target is unreachable, connections are closed. Serve keeps accepting new connections.
func TestServeContinuesWhileItsTargetIsUnreachable(t *testing.T) {
	target, entrance := listenLocally(t), listenLocally(t)
	require.NoError(t, target.Close())
	go func() { _ = Serve(t.Context(), entrance, NewAddressDialer(target.Addr().String())) }()
	for range 2 {
		client, err := net.Dial("tcp", entrance.Addr().String())
		require.NoError(t, err)
		text, _ := io.ReadAll(client)
		assert.Empty(t, text)
		require.NoError(t, client.Close())
	}
}

func listenLocally(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}
