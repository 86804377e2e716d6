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
	soon    = time.Minute // what takes seconds at most
	between = 100 * time.Millisecond
)

// A server starts, an instance of the image runs its user data, and after Stop nothing is left of both on this machine.
// The data stay: the next server starts the instance again.
func TestAServerLeavesNothing(t *testing.T) {
	incustest.NeedSupport(t)
	dir := t.TempDir()
	s := start(t, dir)
	traces := incustest.Traces(t, s)
	_, err := s.Run(
		t.Context(),
		"launch",
		incus.ImageAlias,
		"one",
		"--config",
		"user.user-data=#!/bin/sh\necho ran >>/root/user-data",
	)
	require.NoError(t, err)
	assert.NotEmpty(t, traces(), "the test sees what exists of a server")
	seen := func(what string) func() bool {
		return func() bool {
			text, err := s.Run(t.Context(), "exec", "one", "--", "cat", "/root/user-data", "/run/images-are-there")
			return err == nil && string(text) == what
		}
	}
	require.Eventually(t, seen("ran\n"), soon, between)
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Stop(t.Context()), "a second time")
	assert.Empty(t, traces())

	s = start(t, dir)
	traces = incustest.Traces(t, s)
	require.Eventually(t, seen("ran\n"), soon, between, "it runs again, but not its user data")
	require.NoError(t, s.Stop(t.Context()))
	assert.Empty(t, traces())
}

// Two servers run side by side, with machines of the same name.
func TestTwoServersRunSideBySide(t *testing.T) {
	incustest.NeedSupport(t)
	first, second := start(t, t.TempDir()), start(t, t.TempDir())
	for _, s := range []*incus.Server{first, second} {
		_, err := s.Run(t.Context(), "launch", incus.ImageAlias, "one")
		require.NoError(t, err)
	}
	traces := incustest.Traces(t, first)
	require.NoError(t, first.Stop(t.Context()))
	assert.Empty(t, traces())
	state, err := second.Run(t.Context(), "list", "--format=csv", "--columns=s")
	require.NoError(t, err)
	assert.Equal(t, "RUNNING\n", string(state))
}

// The API is reachable with the client's certificate, and trusts no other client.
func TestTheAPIAsksForACertificate(t *testing.T) {
	incustest.NeedSupport(t)
	s := start(t, t.TempDir())
	text, err := os.ReadFile(s.ServerCert)
	require.NoError(t, err)
	known := x509.NewCertPool()
	require.True(t, known.AppendCertsFromPEM(text))
	pair, err := tls.LoadX509KeyPair(s.ClientCert, s.ClientKey)
	require.NoError(t, err)
	for want, certificates := range map[int][]tls.Certificate{http.StatusOK: {pair}, http.StatusForbidden: nil} {
		// The certificate is for the name of the machine, so the name is not compared, only the certificate.
		config := &tls.Config{Certificates: certificates, VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: known})
			return err
		}}
		config.InsecureSkipVerify = true
		client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		response, err := client.Get(s.Address + "/1.0/instances")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, want, response.StatusCode)
	}
}

func start(t *testing.T, dir string) *incus.Server {
	t.Helper()
	began := time.Now()
	s, err := incus.Start(t.Context(), dir, incus.Options{Output: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Stop(context.Background())) })
	t.Logf("started in %s", time.Since(began).Round(time.Millisecond))
	return s
}
