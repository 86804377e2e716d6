package forward

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What one side sends reaches the other, in both directions, also after one side has sent all it had.
func TestServePassesBothDirections(t *testing.T) {
	target, entrance := listenLocally(t), listenLocally(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, entrance, To(target.Addr().String())) }()
	go func() { // an echo that answers when it has read everything
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

// While the target is away, connections end; later ones succeed.
func TestServeOutlivesItsTarget(t *testing.T) {
	target, entrance := listenLocally(t), listenLocally(t)
	require.NoError(t, target.Close())
	go func() { _ = Serve(t.Context(), entrance, To(target.Addr().String())) }()
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
