//go:build integration

package incus_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	devstack "millwright/devstack/lab/incus"
	"millwright/devstack/lab/incus/incustest"
	"millwright/provider"
	"millwright/provider/conformance"
	"millwright/provider/driver"
	"millwright/provider/incus"
)

// sharedServer is the Incus server of all tests in this package.
var sharedServer *devstack.Server

const sleepImage = "sleeper"

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if devstack.CheckSupport() != nil {
			return m.Run() // each test is skipped with a reason, or fails in CI
		}
		dir, err := os.MkdirTemp("", "millwright-incus-")
		if err == nil {
			defer func() { _ = os.RemoveAll(dir) }()
			sharedServer, err = devstack.Start(context.Background(), dir, devstack.Options{Output: os.Stderr})
		}
		if err == nil {
			defer func() { _ = sharedServer.Stop(context.Background()) }()
			err = importSleepImage(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// importSleepImage imports an image whose only program sleeps. Instances of this image start quickly and use little
// memory.
func importSleepImage(dir string) error {
	binary := filepath.Join(dir, "init")
	build := exec.Command("go", "build", "-o", binary, "./testdata/sleeper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the image's program: %w: %s", err, out)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read the image's program: %w", err)
	}
	var unified bytes.Buffer
	archive := tar.NewWriter(&unified)
	for _, file := range []struct {
		name string
		mode int64
		text []byte
	}{
		{"metadata.yaml", 0o644, []byte("architecture: x86_64\ncreation_date: 1700000000\n")},
		{"rootfs/", 0o755, nil},
		{"rootfs/sbin/", 0o755, nil},
		{"rootfs/dev/", 0o755, nil},
		{"rootfs/proc/", 0o755, nil},
		{"rootfs/sys/", 0o755, nil},
		{"rootfs/sbin/init", 0o755, program},
	} {
		header := &tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(file.text))}
		if header.Typeflag = tar.TypeReg; file.text == nil {
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write the image: %w", err)
		}
		if _, err := io.Copy(archive, bytes.NewReader(file.text)); err != nil {
			return fmt.Errorf("write the image: %w", err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	path := filepath.Join(sharedServer.Dir, "lib", "sleeper.tar") // the server's mount namespace contains this folder
	if err := os.WriteFile(path, unified.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	_, err = sharedServer.RunIncus(
		context.Background(),
		"image",
		"import",
		"/var/lib/incus/sleeper.tar",
		"--alias",
		sleepImage,
	)
	return err
}

var projectCount atomic.Int64

// newClass returns a provider.Class with its own Incus project. The end of the test deletes all instances of the
// project.
func newClass(t *testing.T, changes ...func(spec map[string]any)) provider.Class {
	t.Helper()
	incustest.RequireSupport(t)
	project := fmt.Sprintf("p%d", projectCount.Add(1))
	_, err := sharedServer.RunIncus(
		t.Context(),
		"project",
		"create",
		project,
		"--config",
		"features.images=false",
		"--config",
		"features.profiles=false",
	)
	require.NoError(t, err)
	spec := map[string]any{"endpoint": sharedServer.URL, "project": project, "image": map[string]any{"alias": sleepImage}}
	for _, change := range changes {
		change(spec)
	}
	t.Cleanup(func() { // instance names must be unique on the network, across projects
		// The timeout lets a hanging server fail one test instead of the whole run.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		names, err := sharedServer.RunIncus(ctx, "list", "--project", project, "--format=csv", "--columns=n")
		assert.NoError(t, err)
		if all := strings.Fields(string(names)); len(all) > 0 {
			_, err = sharedServer.RunIncus(ctx, append([]string{"delete", "--force", "--project", project}, all...)...)
			assert.NoError(t, err)
		}
	})
	raw, err := json.Marshal(spec)
	require.NoError(t, err)
	return provider.Class{Namespace: "shop", Name: "small", Spec: raw, Secret: provider.Secret{
		"clientCert": readFile(
			t,
			sharedServer.ClientCertFile,
		),
		"clientKey":  readFile(t, sharedServer.ClientKeyFile),
		"serverCert": readFile(t, sharedServer.ServerCertFile),
	}}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return text
}

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{NewCloud: newConformanceCloud})
}

// httpStatuses maps error codes to the HTTP status with which a server reports them.
var httpStatuses = map[provider.Code]int{
	provider.InvalidArgument:    http.StatusBadRequest,
	provider.Unauthenticated:    http.StatusUnauthorized,
	provider.PermissionDenied:   http.StatusForbidden,
	provider.NotFound:           http.StatusNotFound,
	provider.AlreadyExists:      http.StatusConflict,
	provider.FailedPrecondition: http.StatusPreconditionFailed,
	provider.ResourceExhausted:  http.StatusTooManyRequests,
	provider.Internal:           http.StatusInternalServerError,
	provider.Unavailable:        http.StatusServiceUnavailable,
	provider.DeadlineExceeded:   http.StatusGatewayTimeout,
}

func newConformanceCloud(t *testing.T) conformance.Cloud {
	between := newProxy(t)
	of := newClass(t, func(spec map[string]any) { spec["endpoint"] = between.URL })
	denied := newClass(t, func(spec map[string]any) { spec["project"] = "default" })
	of.Secret["serverCert"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: between.Certificate().Raw})
	denied.Secret["clientCert"], denied.Secret["clientKey"] = newUntrustedClientCertificate(t)
	planted := 0
	return conformance.Cloud{
		Provider: incus.New(
			driver.WithRequestLifetime(100*time.Millisecond),
			driver.WithSearchInterval(20*time.Millisecond),
		),
		Class:       of,
		DeniedClass: &denied,
		FailNextCall: func(method provider.Method, err *provider.Error) {
			between.refuseNextRequest(method, httpStatuses[err.Code], err.Message)
		},
		SupportedCodes: slices.Sorted(maps.Keys(httpStatuses)),
		IsSuccessCode: func(method provider.Method, code provider.Code) bool {
			return method == provider.MethodCreateInstance && code == provider.NotFound // the image or project is missing
		},
		LacksRetryDelays: true,
		BlockCalls:       between.hangRequests,
		CreateInstanceByHand: func(m provider.Machine) {
			planted++
			arguments := []string{
				"launch", sleepImage, fmt.Sprintf("planted-%d", planted), "--project", projectOfClass(t, of),
				"--config", "user.millwright-cluster=" + m.Cluster, "--config", "user.millwright-class=shop/small",
				"--config", "user.millwright-machine=" + m.Name,
			}
			if m.UID != "" {
				arguments = append(arguments, "--config", "user.millwright-uid="+m.UID)
			}
			_, err := sharedServer.RunIncus(t.Context(), arguments...)
			require.NoError(t, err)
		},
	}
}

func projectOfClass(t *testing.T, of provider.Class) string {
	t.Helper()
	var spec incus.Spec
	require.NoError(t, json.Unmarshal(of.Spec, &spec))
	return spec.Project
}

// newUntrustedClientCertificate returns the certificate and key of a client that the server does not trust.
func newUntrustedClientCertificate(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: signed},
	), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// proxy forwards the provider's requests to the server, and refuses some requests or lets them hang.
type proxy struct {
	*httptest.Server

	mu             sync.Mutex
	refusals       map[provider.Method][]refusal
	hangingMethods map[provider.Method]bool
}

type refusal struct {
	status  int
	message string
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	incustest.RequireSupport(t)
	p := &proxy{refusals: map[provider.Method][]refusal{}, hangingMethods: map[provider.Method]bool{}}
	through := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "incus"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", sharedServer.SocketPath)
		}},
	}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refused, hold := p.nextFault(r)
		switch {
		case hold:
			select {
			case <-r.Context().Done():
			case <-t.Context().Done():
			}
		case refused.status != 0:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(refused.status)
			_ = json.NewEncoder(w).
				Encode(map[string]any{"type": "error", "error": refused.message, "error_code": refused.status})
		default:
			through.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// nextFault returns the refusal for a request, or true if the request must hang.
func (p *proxy) nextFault(r *http.Request) (refusal, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, method := range providerMethods(r) {
		if p.hangingMethods[method] {
			return refusal{}, true
		}
		if queue := p.refusals[method]; len(queue) > 0 {
			p.refusals[method] = queue[1:]
			return queue[0], false
		}
	}
	return refusal{}, false
}

// providerMethods returns the provider methods for which this request is the first request that the proxy can refuse.
func providerMethods(r *http.Request) []provider.Method {
	switch {
	case r.Method == http.MethodPost:
		return []provider.Method{provider.MethodCreateInstance}
	case r.Method == http.MethodDelete:
		return []provider.Method{provider.MethodDeleteInstance}
	case r.Method == http.MethodGet && r.URL.Path == "/1.0/instances":
		return []provider.Method{
			provider.MethodInstanceStatus,
			provider.MethodListInstances,
			provider.MethodInitializeInstance,
		}
	}
	return nil
}

func (p *proxy) refuseNextRequest(method provider.Method, status int, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals[method] = append(p.refusals[method], refusal{status, message})
}

func (p *proxy) hangRequests(method provider.Method) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangingMethods[method] = true
}
