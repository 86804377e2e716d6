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

// testCA is a CA for the duration of a test.
type testCA struct {
	certificate    *x509.Certificate
	key            *ecdsa.PrivateKey
	certificatePEM []byte
}

func newTestCA(t *testing.T) testCA {
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
	return testCA{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})}
}

// issueCertificate returns a certificate for a name, and its key, in PEM. Servers and clients can use the certificate.
func (a testCA) issueCertificate(t *testing.T, name string) (certificate, private []byte) {
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

// temporalFrontend is a server of Temporal's API that requires client certificates and records its callers.
type temporalFrontend struct {
	workflowservice.UnimplementedWorkflowServiceServer
	address string

	mu                sync.Mutex
	callerNames       []string // common names in the callers' certificates
	authorizations    []string // authorization headers of the callers
	openConnections   []net.Conn
	clientCAs         *x509.CertPool
	serverCertificate tls.Certificate
}

func (f *temporalFrontend) GetSystemInfo(
	ctx context.Context,
	_ *workflowservice.GetSystemInfoRequest,
) (*workflowservice.GetSystemInfoResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, ok := peer.FromContext(ctx); ok {
		f.callerNames = append(f.callerNames, p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].Subject.CommonName)
	}
	sent, _ := metadata.FromIncomingContext(ctx)
	f.authorizations = append(f.authorizations, sent.Get("authorization")...)
	return &workflowservice.GetSystemInfoResponse{}, nil
}

// lastCallerName returns the caller of the last request.
func (f *temporalFrontend) lastCallerName() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.callerNames[len(f.callerNames)-1]
}

// recordConnection records a connection, so that a test can close it.
func (f *temporalFrontend) recordConnection(c net.Conn) net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.openConnections = append(f.openConnections, c)
	return c
}

// closeConnections closes all connections, so that the client opens another connection.
func (f *temporalFrontend) closeConnections() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.openConnections {
		_ = c.Close()
	}
	f.openConnections = nil
}

// useCA makes the server use this CA from the next handshake on: the server then presents a certificate of the
// CA, and requires client certificates of the CA.
func (f *temporalFrontend) useCA(t *testing.T, a testCA) {
	t.Helper()
	certificate, key := a.issueCertificate(t, "temporal")
	pair, err := tls.X509KeyPair(certificate, key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serverCertificate, f.clientCAs = pair, pool
}

type recordingListener struct {
	net.Listener
	frontend *temporalFrontend
}

func (r recordingListener) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return r.frontend.recordConnection(c), nil
}

func newTemporalFrontend(t *testing.T, a testCA) *temporalFrontend {
	t.Helper()
	f := &temporalFrontend{}
	f.useCA(t, a)
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
						Certificates: []tls.Certificate{f.serverCertificate},
						ClientAuth:   tls.RequireAndVerifyClientCert,
						ClientCAs:    f.clientCAs,
						NextProtos:   []string{"h2"},
					}, nil
				}},
			),
		),
	)
	workflowservice.RegisterWorkflowServiceServer(server, f)
	go func() { _ = server.Serve(recordingListener{listener, f}) }()
	t.Cleanup(server.Stop)
	return f
}

// clientFolder is a folder with the files of a client, like a mounted Secret.
type clientFolder string

func (d clientFolder) path(name string) string { return filepath.Join(string(d), name) }

// writeFiles writes the certificate of a client of this name, its key and the CA.
func (d clientFolder) writeFiles(t *testing.T, a testCA, client string) {
	t.Helper()
	certificate, key := a.issueCertificate(t, client)
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": a.certificatePEM} {
		require.NoError(t, os.WriteFile(d.path(name), text, 0o600))
	}
}

func (d clientFolder) tlsFlags(address string) []string {
	return []string{
		"--temporal-address=" + address,
		"--temporal-tls-server-name=temporal",
		"--temporal-tls-cert-path=" + d.path("tls.crt"),
		"--temporal-tls-key-path=" + d.path("tls.key"),
		"--temporal-tls-ca-path=" + d.path("ca.crt"),
	}
}

func dialClient(t *testing.T, f *Flags) (client.Client, error) {
	t.Helper()
	options, err := f.ClientOptions()
	require.NoError(t, err)
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	options.ConnectionOptions.GetSystemInfoTimeout = 2 * time.Second
	c, err := client.DialContext(t.Context(), options)
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

func requestSystemInfo(ctx context.Context, c client.Client) error {
	_, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	return err
}

func TestConnectionUsesClientCertificates(t *testing.T) {
	clearTemporalEnvironment(t)
	ours := newTestCA(t)
	server := newTemporalFrontend(t, ours)
	files := clientFolder(t.TempDir())
	files.writeFiles(t, ours, "worker")

	t.Run("it takes ours", func(t *testing.T) {
		_, err := dialClient(t, parseFlags(t, files.tlsFlags(server.address)...))
		require.NoError(t, err)
		assert.Equal(t, "worker", server.lastCallerName())
	})
	t.Run("in the environment", func(t *testing.T) {
		for name, file := range map[string]string{"CLIENT_CERT": "tls.crt", "CLIENT_KEY": "tls.key", "SERVER_CA_CERT": "ca.crt"} {
			text, err := os.ReadFile(files.path(file))
			require.NoError(t, err)
			t.Setenv("TEMPORAL_TLS_"+name+"_DATA", string(text))
		}
		t.Setenv("TEMPORAL_TLS_SERVER_NAME", "temporal")
		_, err := dialClient(t, parseFlags(t, "--temporal-address="+server.address))
		require.NoError(t, err)
	})
	t.Run("without a certificate", func(t *testing.T) {
		_, err := dialClient(
			t,
			parseFlags(
				t,
				"--temporal-address="+server.address,
				"--temporal-tls-server-name=temporal",
				"--temporal-tls-ca-path="+files.path("ca.crt"),
			),
		)
		require.Error(t, err) // With TLS 1.3, the client may get only the error of a closed connection.
		assert.Len(t, server.callerNames, 2, "the two before")
	})
	t.Run("a server with a certificate of another CA", func(t *testing.T) {
		theirs := newTemporalFrontend(t, newTestCA(t))
		_, err := dialClient(t, parseFlags(t, files.tlsFlags(theirs.address)...))
		require.ErrorContains(t, err, "certificate signed by unknown authority")
	})
	t.Run("a server with another name", func(t *testing.T) {
		_, err := dialClient(
			t,
			parseFlags(t, append(files.tlsFlags(server.address), "--temporal-tls-server-name=elsewhere")...),
		)
		require.ErrorContains(t, err, "certificate is valid for temporal, not elsewhere")
	})
	t.Run("without TLS", func(t *testing.T) {
		_, err := dialClient(t, parseFlags(t, append(files.tlsFlags(server.address), "--temporal-tls=false")...))
		require.Error(t, err)
	})
}

func TestNextConnectionUsesChangedFiles(t *testing.T) {
	clearTemporalEnvironment(t)
	old, renewed := newTestCA(t), newTestCA(t)
	server := newTemporalFrontend(t, old)
	files := clientFolder(t.TempDir())
	files.writeFiles(t, old, "first")
	c, err := dialClient(t, parseFlags(t, files.tlsFlags(server.address)...))
	require.NoError(t, err)
	// The request fails while the old connection closes.
	connected := func() bool { return requestSystemInfo(t.Context(), c) == nil }
	assert.Equal(t, "first", server.lastCallerName())

	files.writeFiles(t, old, "second")
	require.NoError(t, requestSystemInfo(t.Context(), c))
	assert.Equal(t, "first", server.lastCallerName(), "the connection lives on")
	server.closeConnections()
	require.Eventually(t, connected, 2*time.Minute, time.Millisecond)
	assert.Equal(t, "second", server.lastCallerName(), "a renewed certificate")

	server.useCA(t, renewed)
	files.writeFiles(t, renewed, "third")
	server.closeConnections()
	require.Eventually(t, connected, 2*time.Minute, time.Millisecond)
	assert.Equal(t, "third", server.lastCallerName(), "another CA, on both sides")
}

func TestAnAPIKeyIsReadForEachRequest(t *testing.T) {
	clearTemporalEnvironment(t)
	t.Setenv("TEMPORAL_API_KEY", "of-environment")
	ours := newTestCA(t)
	server := newTemporalFrontend(t, ours)
	files := clientFolder(t.TempDir())
	files.writeFiles(t, ours, "worker")
	_, err := dialClient(t, parseFlags(t, files.tlsFlags(server.address)...))
	require.NoError(t, err)

	key := writeFile(t, "one\n")
	c, err := dialClient(t, parseFlags(t, append(files.tlsFlags(server.address), "--temporal-api-key-path="+key)...))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, []byte("two\n"), 0o600))
	require.NoError(t, requestSystemInfo(t.Context(), c))
	assert.Equal(t, []string{"Bearer of-environment", "Bearer one", "Bearer two"}, server.authorizations)

	require.NoError(t, os.Remove(key))
	require.ErrorContains(t, requestSystemInfo(t.Context(), c), "--temporal-api-key-path: open "+key)
}
