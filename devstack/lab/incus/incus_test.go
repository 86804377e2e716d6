//go:build integration

package incus_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"testing"
	"time"

	"millwright/devstack/lab/incus"
	"millwright/devstack/lab/incus/incustest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	stepTimeout  = time.Minute // timeout of steps that take some seconds at most
	pollInterval = 100 * time.Millisecond
)

// An instance of the node image runs its user data. After Stop nothing of the server and the instance is left on this
// machine, except the data in Dir. The next server in Dir starts the instance again.
func TestStoppedServerLeavesNothingBehind(t *testing.T) {
	incustest.RequireSupport(t)
	dir := t.TempDir()
	s := startServer(t, dir)
	traces := incustest.NewLeftoverFinder(t, s)
	_, err := s.RunIncus(
		t.Context(),
		"launch",
		incus.NodeImageAlias,
		"one",
		"--config",
		"user.user-data=#!/bin/sh\necho ran >>/root/user-data",
	)
	require.NoError(t, err)
	assert.NotEmpty(t, traces(), "the test sees what exists of a server")
	seen := func(what string) func() bool {
		return func() bool {
			text, err := s.RunIncus(t.Context(), "exec", "one", "--", "cat", "/root/user-data", "/run/images-are-there")
			return err == nil && string(text) == what
		}
	}
	require.Eventually(t, seen("ran\n"), stepTimeout, pollInterval)
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Stop(t.Context()), "a second time")
	assert.Empty(t, traces())

	s = startServer(t, dir)
	traces = incustest.NewLeftoverFinder(t, s)
	require.Eventually(t, seen("ran\n"), stepTimeout, pollInterval, "it runs again, but not its user data")
	require.NoError(t, s.Stop(t.Context()))
	assert.Empty(t, traces())
}

// Two servers run at the same time, each with an instance of the same name.
func TestTwoServersRunSideBySide(t *testing.T) {
	incustest.RequireSupport(t)
	first, second := startServer(t, t.TempDir()), startServer(t, t.TempDir())
	for _, s := range []*incus.Server{first, second} {
		_, err := s.RunIncus(t.Context(), "launch", incus.NodeImageAlias, "one")
		require.NoError(t, err)
	}
	traces := incustest.NewLeftoverFinder(t, first)
	require.NoError(t, first.Stop(t.Context()))
	assert.Empty(t, traces())
	state, err := second.RunIncus(t.Context(), "list", "--format=csv", "--columns=s")
	require.NoError(t, err)
	assert.Equal(t, "RUNNING\n", string(state))
}

// The API accepts the client's certificate and no other client.
func TestAPIRequiresAClientCertificate(t *testing.T) {
	incustest.RequireSupport(t)
	s := startServer(t, t.TempDir())
	text, err := os.ReadFile(s.ServerCertFile)
	require.NoError(t, err)
	known := x509.NewCertPool()
	require.True(t, known.AppendCertsFromPEM(text))
	pair, err := tls.LoadX509KeyPair(s.ClientCertFile, s.ClientKeyFile)
	require.NoError(t, err)
	for want, certificates := range map[int][]tls.Certificate{http.StatusOK: {pair}, http.StatusForbidden: nil} {
		// The certificate is for the machine's host name, but the test connects to an IP address. The test therefore
		// verifies the certificate without the name.
		config := &tls.Config{Certificates: certificates, VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: known})
			return err
		}}
		config.InsecureSkipVerify = true
		client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		response, err := client.Get(s.URL + "/1.0/instances")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, want, response.StatusCode)
	}
}

func startServer(t *testing.T, dir string) *incus.Server {
	t.Helper()
	began := time.Now()
	s, err := incus.Start(t.Context(), dir, incus.Options{Output: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Stop(context.Background())) })
	t.Logf("started in %s", time.Since(began).Round(time.Millisecond))
	return s
}
