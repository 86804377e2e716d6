package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"millwright/process/connection"
)

func writeKeysFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(
		t,
		os.WriteFile(path, []byte("a "+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", 32)))), 0o600),
	)
	return path
}

// startCodecServer runs the command codec-server until the test ends, and returns the server's URL.
func startCodecServer(t *testing.T, arguments ...string) string {
	t.Helper()
	out, in := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	c := rootCommand()
	c.SetArgs(append([]string{"codec-server", "--address=127.0.0.1:0"}, arguments...))
	c.SetOut(in)
	go func() {
		err := c.ExecuteContext(ctx)
		_ = in.CloseWithError(io.EOF)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	says, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	url := strings.TrimPrefix(strings.Split(says, ",")[0], "codec server at ")
	require.True(t, strings.HasPrefix(url, "http://127.0.0.1:"), says)
	return url
}

func TestTheCodecServerDecryptsForTemporalsTools(t *testing.T) {
	file := writeKeysFile(t)
	keys, err := connection.ReadKeys(file)
	require.NoError(t, err)
	plain, err := converter.GetDefaultDataConverter().ToPayload("web-1")
	require.NoError(t, err)
	encrypted, err := keys.Encode([]*commonpb.Payload{plain})
	require.NoError(t, err)

	remote := converter.NewRemotePayloadCodec(
		converter.RemotePayloadCodecOptions{Endpoint: startCodecServer(t, "--payload-keys-path="+file)},
	)
	decrypted, err := remote.Decode(encrypted)
	require.NoError(t, err)
	assert.True(t, proto.Equal(plain, decrypted[0]))
	again, err := remote.Encode([]*commonpb.Payload{plain})
	require.NoError(t, err)
	decrypted, err = keys.Decode(again)
	require.NoError(t, err)
	assert.True(t, proto.Equal(plain, decrypted[0]))
}

func TestTheCodecServerAnswersPagesOfTheUIOnly(t *testing.T) {
	url := startCodecServer(t, "--payload-keys-path="+writeKeysFile(t), "--ui-origin=https://temporal.example.com")
	ask := func(method, origin string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), method, url+"/decode", strings.NewReader(`{"payloads":[]}`))
		require.NoError(t, err)
		request.Header.Set("Origin", origin)
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer
	}
	for _, method := range []string{http.MethodOptions, http.MethodPost} {
		ours := ask(method, "https://temporal.example.com")
		assert.Less(t, ours.StatusCode, 300, method)
		assert.Equal(t, "https://temporal.example.com", ours.Header.Get("Access-Control-Allow-Origin"), method)
		theirs := ask(method, "https://evil.example.com")
		assert.Equal(t, http.StatusForbidden, theirs.StatusCode, method)
		assert.Empty(t, theirs.Header.Get("Access-Control-Allow-Origin"), method)
	}
}

func TestTheCodecServerListensOnLoopbackOnly(t *testing.T) {
	for address, says := range map[string]string{"0.0.0.0:0": "0.0.0.0 is not a loopback address", "localhost:0": "not a loopback address", ":0": "not a loopback address", "127.0.0.1": "--address"} {
		c := rootCommand()
		c.SetArgs([]string{"codec-server", "--payload-keys-path=" + writeKeysFile(t), "--address=" + address})
		require.ErrorContains(t, c.ExecuteContext(t.Context()), says, address)
	}
	c := rootCommand()
	c.SetArgs([]string{"codec-server"})
	require.ErrorContains(t, c.ExecuteContext(t.Context()), "payload-keys-path")
}
