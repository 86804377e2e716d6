package connection

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// authority is a CA that lives as long as a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(signed)
	require.NoError(t, err)
	return authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})}
}

// issue returns a certificate for a name, and its key, in PEM. It serves servers and clients.
func (a authority) issue(t *testing.T, name string) (certificate, private []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	signed, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	require.NoError(t, err)
	encoded, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: signed},
	), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// frontend is a server of Temporal's API that demands certificates, and keeps who called.
type frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer
	address string

	mu      sync.Mutex
	callers []string // common names in their certificates
	keys    []string // what they sent as authorization
	conns   []net.Conn
	pool    *x509.CertPool
	pair    tls.Certificate
}

func (f *frontend) GetSystemInfo(
	ctx context.Context,
	_ *workflowservice.GetSystemInfoRequest,
) (*workflowservice.GetSystemInfoResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, ok := peer.FromContext(ctx); ok {
		f.callers = append(f.callers, p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].Subject.CommonName)
	}
	sent, _ := metadata.FromIncomingContext(ctx)
	f.keys = append(f.keys, sent.Get("authorization")...)
	return &workflowservice.GetSystemInfoResponse{}, nil
}

// last returns the caller of the last request.
func (f *frontend) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.callers[len(f.callers)-1]
}

// remember keeps a connection, so that a test can end it.
func (f *frontend) remember(c net.Conn) net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, c)
	return c
}

// hangUp ends all connections: the client makes another one.
func (f *frontend) hangUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

// trust makes the server show a certificate of this CA, and demand one of it, from the next handshake on.
func (f *frontend) trust(t *testing.T, a authority) {
	t.Helper()
	certificate, key := a.issue(t, "temporal")
	pair, err := tls.X509KeyPair(certificate, key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pair, f.pool = pair, pool
}

type remembering struct {
	net.Listener
	by *frontend
}

func (r remembering) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return r.by.remember(c), nil
}

func newFrontend(t *testing.T, a authority) *frontend {
	t.Helper()
	f := &frontend{}
	f.trust(t, a)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.address = listener.Addr().String()
	server := grpc.NewServer(
		grpc.Creds(
			credentials.NewTLS(
				&tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
					f.mu.Lock()
					defer f.mu.Unlock()
					return &tls.Config{
						MinVersion:   tls.VersionTLS12,
						Certificates: []tls.Certificate{f.pair},
						ClientAuth:   tls.RequireAndVerifyClientCert,
						ClientCAs:    f.pool,
						NextProtos:   []string{"h2"},
					}, nil
				}},
			),
		),
	)
	workflowservice.RegisterWorkflowServiceServer(server, f)
	go func() { _ = server.Serve(remembering{listener, f}) }()
	t.Cleanup(server.Stop)
	return f
}

// folder holds the files of a client, as a mounted Secret does.
type folder string

func (d folder) path(name string) string { return filepath.Join(string(d), name) }

// fill writes the certificate of a client of this name, its key and the CA.
func (d folder) fill(t *testing.T, a authority, client string) {
	t.Helper()
	certificate, key := a.issue(t, client)
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": a.pem} {
		require.NoError(t, os.WriteFile(d.path(name), text, 0o600))
	}
}

func (d folder) flags(address string) []string {
	return []string{
		"--temporal-address=" + address,
		"--temporal-tls-server-name=temporal",
		"--temporal-tls-cert-path=" + d.path("tls.crt"),
		"--temporal-tls-key-path=" + d.path("tls.key"),
		"--temporal-tls-ca-path=" + d.path("ca.crt"),
	}
}

func dial(t *testing.T, f *Flags) (client.Client, error) {
	t.Helper()
	options, err := f.Options()
	require.NoError(t, err)
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	options.ConnectionOptions.GetSystemInfoTimeout = 2 * time.Second
	c, err := client.DialContext(t.Context(), options)
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

func ask(ctx context.Context, c client.Client) error {
	_, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	return err
}

func TestAServerThatDemandsCertificates(t *testing.T) {
	without(t)
	ours := newAuthority(t)
	server := newFrontend(t, ours)
	files := folder(t.TempDir())
	files.fill(t, ours, "worker")

	t.Run("it takes ours", func(t *testing.T) {
		_, err := dial(t, parse(t, files.flags(server.address)...))
		require.NoError(t, err)
		assert.Equal(t, "worker", server.last())
	})
	t.Run("in the environment", func(t *testing.T) {
		for name, file := range map[string]string{"CLIENT_CERT": "tls.crt", "CLIENT_KEY": "tls.key", "SERVER_CA_CERT": "ca.crt"} {
			text, err := os.ReadFile(files.path(file))
			require.NoError(t, err)
			t.Setenv("TEMPORAL_TLS_"+name+"_DATA", string(text))
		}
		t.Setenv("TEMPORAL_TLS_SERVER_NAME", "temporal")
		_, err := dial(t, parse(t, "--temporal-address="+server.address))
		require.NoError(t, err)
	})
	t.Run("without a certificate", func(t *testing.T) {
		_, err := dial(
			t,
			parse(
				t,
				"--temporal-address="+server.address,
				"--temporal-tls-server-name=temporal",
				"--temporal-tls-ca-path="+files.path("ca.crt"),
			),
		)
		require.Error(t, err) // with TLS 1.3 the client may see only that the connection ends
		assert.Len(t, server.callers, 2, "the two before")
	})
	t.Run("a server with a certificate of another CA", func(t *testing.T) {
		theirs := newFrontend(t, newAuthority(t))
		_, err := dial(t, parse(t, files.flags(theirs.address)...))
		require.ErrorContains(t, err, "certificate signed by unknown authority")
	})
	t.Run("a server with another name", func(t *testing.T) {
		_, err := dial(t, parse(t, append(files.flags(server.address), "--temporal-tls-server-name=elsewhere")...))
		require.ErrorContains(t, err, "certificate is valid for temporal, not elsewhere")
	})
	t.Run("without TLS", func(t *testing.T) {
		_, err := dial(t, parse(t, append(files.flags(server.address), "--temporal-tls=false")...))
		require.Error(t, err)
	})
}

func TestFilesThatChangeServeTheNextConnection(t *testing.T) {
	without(t)
	old, renewed := newAuthority(t), newAuthority(t)
	server := newFrontend(t, old)
	files := folder(t.TempDir())
	files.fill(t, old, "first")
	c, err := dial(t, parse(t, files.flags(server.address)...))
	require.NoError(t, err)
	connected := func() bool { return ask(t.Context(), c) == nil } // a request may still use the connection that ends
	assert.Equal(t, "first", server.last())

	files.fill(t, old, "second")
	require.NoError(t, ask(t.Context(), c))
	assert.Equal(t, "first", server.last(), "the connection lives on")
	server.hangUp()
	require.Eventually(t, connected, 2*time.Minute, time.Millisecond)
	assert.Equal(t, "second", server.last(), "a renewed certificate")

	server.trust(t, renewed)
	files.fill(t, renewed, "third")
	server.hangUp()
	require.Eventually(t, connected, 2*time.Minute, time.Millisecond)
	assert.Equal(t, "third", server.last(), "another CA, on both sides")
}

func TestAnAPIKeyIsReadForEachRequest(t *testing.T) {
	without(t)
	t.Setenv("TEMPORAL_API_KEY", "of-environment")
	ours := newAuthority(t)
	server := newFrontend(t, ours)
	files := folder(t.TempDir())
	files.fill(t, ours, "worker")
	_, err := dial(t, parse(t, files.flags(server.address)...))
	require.NoError(t, err)

	key := write(t, "one\n")
	c, err := dial(t, parse(t, append(files.flags(server.address), "--temporal-api-key-path="+key)...))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, []byte("two\n"), 0o600))
	require.NoError(t, ask(t.Context(), c))
	assert.Equal(t, []string{"Bearer of-environment", "Bearer one", "Bearer two"}, server.keys)

	require.NoError(t, os.Remove(key))
	require.ErrorContains(t, ask(t.Context(), c), "--temporal-api-key-path: open "+key)
}
