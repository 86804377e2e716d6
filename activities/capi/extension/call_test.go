package extension

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// roundTripJSON encodes a value as JSON and decodes the JSON again.
func roundTripJSON(t *testing.T, value any) (out any) {
	t.Helper()
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &out))
	return out
}

// waitingHandler calls the function first, and then sends no response until the caller ends the request.
func waitingHandler(first func()) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		first()
		<-r.Context().Done()
	}
}

func TestCanUpdateReturnsErrorsOfFailedCalls(t *testing.T) {
	t.Parallel()
	all := successResponse(machineSetPatch, bootstrapPatch, infrastructurePatch) // a failed call must ignore these patches
	elsewhere := startExtension(t, newResponseHandler(t, all))
	written := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	hijacked := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			connection, _, err := w.(http.Hijacker).Hijack()
			if assert.NoError(t, err) {
				_, _ = io.WriteString(connection, text)
				_ = connection.Close()
			}
		}
	}
	for name, c := range map[string]struct {
		respond http.HandlerFunc
		change  func(*fakeExtension, *runtimev1.ExtensionConfig)
		want    string
		calls   int
		// the timeout of one second may end before the handler is called, so the handler is called at most once
		late bool
	}{
		"no answer in time": {
			respond: waitingHandler(func() {}), late: true, want: "does not answer within 1s",
			change: func(_ *fakeExtension, c *runtimev1.ExtensionConfig) { c.Status.Handlers[0].TimeoutSeconds = 1 },
		},
		"half an answer in time": {
			respond: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, `{"status":`)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}, late: true, want: "does not answer within 1s",
			change: func(_ *fakeExtension, c *runtimev1.ExtensionConfig) { c.Status.Handlers[0].TimeoutSeconds = 1 },
		},
		"another CA": {
			respond: newResponseHandler(t, all), want: "x509: certificate signed by unknown authority",
			change: func(_ *fakeExtension, c *runtimev1.ExtensionConfig) {
				c.Spec.ClientConfig.CABundle = unrelatedCABundle(t)
			},
		},
		"no CA": {
			respond: newResponseHandler(t, all), want: "x509: certificate signed by unknown authority",
			change: func(_ *fakeExtension, c *runtimev1.ExtensionConfig) { c.Spec.ClientConfig.CABundle = nil },
		},
		"a certificate for another host": {
			respond: newResponseHandler(t, all), want: "x509: certificate is valid for",
			change: func(_ *fakeExtension, c *runtimev1.ExtensionConfig) {
				c.Spec.ClientConfig.URL = strings.Replace(c.Spec.ClientConfig.URL, "127.0.0.1", "localhost", 1)
			},
		},
		"nobody listens": {
			respond: newResponseHandler(t, all), want: "connection refused",
			change: func(e *fakeExtension, _ *runtimev1.ExtensionConfig) { e.Close() },
		},
		"no TLS": {
			respond: newResponseHandler(t, all), want: "http: server gave HTTP response to HTTPS client",
			change: func(_ *fakeExtension, c *runtimev1.ExtensionConfig) {
				plain := httptest.NewServer(newResponseHandler(t, all))
				t.Cleanup(plain.Close)
				c.Spec.ClientConfig.URL = strings.Replace(plain.URL, "http:", "https:", 1)
			},
		},
		"a redirect": {
			respond: func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere.URL+r.RequestURI, http.StatusTemporaryRedirect)
			}, calls: 1, want: "answers with HTTP status 307",
		},
		"an error":              {respond: written(http.StatusInternalServerError, secretText), calls: 1, want: "answers with HTTP status 500"},
		"not found":             {respond: written(http.StatusNotFound, secretText), calls: 1, want: "answers with HTTP status 404"},
		"created":               {respond: written(http.StatusCreated, `{"status":"Success"}`), calls: 1, want: "answers with HTTP status 201"},
		"nothing":               {respond: written(http.StatusOK, ""), calls: 1, want: "is no CanUpdateMachineSetResponse"},
		"no JSON":               {respond: written(http.StatusOK, secretText), calls: 1, want: "is no CanUpdateMachineSetResponse"},
		"other JSON":            {respond: written(http.StatusOK, `{"status":12345,"message":"`+secretText+`"}`), calls: 1, want: "is no CanUpdateMachineSetResponse"},
		"a patch as an object":  {respond: written(http.StatusOK, `{"status":"Success","machineSetPatch":"`+secretText+`"}`), calls: 1, want: "is no CanUpdateMachineSetResponse"},
		"too much":              {respond: written(http.StatusOK, `{"status":"Success"}`+strings.Repeat(" ", maxResponseBytes)), calls: 1, want: "is larger than 1048576 bytes"},
		"no HTTP":               {respond: hijacked("HTTP/1.1 " + secretText + "\r\n\r\n"), calls: 1, want: "is cut off, or is not HTTP"},
		"a header that is none": {respond: hijacked("HTTP/1.1 200 OK\r\n" + secretText + "\r\n\r\n"), calls: 1, want: "is cut off, or is not HTTP"},
		"the connection closes": {respond: hijacked(""), calls: 1, want: "EOF"},
		"it closes half-way":    {respond: hijacked("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + secretText), calls: 1, want: "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startExtension(t, c.respond)
			fail := newExtensionConfig("ext", e.configureURL)
			if c.change != nil {
				c.change(e, &fail)
			}
			a, err := CanUpdate(
				t.Context(),
				[]runtimev1.ExtensionConfig{fail},
				nil,
				formerSetWithTemplates(),
				currentSetWithTemplates(),
			)
			require.ErrorContains(t, err, c.want)
			assert.True(t, strings.HasPrefix(err.Error(), askErrorPrefix), err)
			assert.NotContains(t, err.Error(), secretText)
			assert.NotContains(t, err.Error(), "12345")
			assert.Empty(t, a)
			if c.late {
				assert.LessOrEqual(t, len(e.receivedCalls()), 1)
			} else {
				assert.Len(t, e.receivedCalls(), c.calls)
			}

			ignored := *fail.DeepCopy()
			setFailurePolicyIgnore(&ignored)
			a, err = CanUpdate(
				t.Context(),
				[]runtimev1.ExtensionConfig{ignored},
				nil,
				formerSetWithTemplates(),
				currentSetWithTemplates(),
			)
			require.NoError(t, err)
			assert.False(t, a.Possible)
			assert.True(
				t,
				strings.HasPrefix(a.Why, "handler can-update.ext was ignored, because its failurePolicy is Ignore: "),
				a.Why,
			)
			assert.Contains(t, a.Why, c.want)
			assert.NotContains(t, a.Why, secretText)
			assert.LessOrEqual(t, len(a.Why), maxAnswerMessageBytes)
		})
	}
	t.Cleanup(func() { assert.Empty(t, elsewhere.receivedCalls(), "a redirect was followed") })
}

// unrelatedCABundle returns a CA bundle with a certificate that signed nothing.
func unrelatedCABundle(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

// A failed call with failurePolicy Ignore counts as a response without patches, so it matters only if the templates
// differ.
func TestCanUpdateIgnoresAFailureIfNothingDiffers(t *testing.T) {
	t.Parallel()
	e := startExtension(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	a, err := CanUpdate(
		t.Context(),
		[]runtimev1.ExtensionConfig{newExtensionConfig("ext", e.configureURL, setFailurePolicyIgnore)},
		nil,
		formerSetWithTemplates(),
		formerSetWithTemplates(),
	)
	require.NoError(t, err)
	assert.Equal(t, Answer{Possible: true}, a)
}

func TestCanUpdateReadsAResponseOfTheLargestSize(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(successResponse(machineSetPatch, bootstrapPatch, infrastructurePatch))
	require.NoError(t, err)
	raw = append(raw, bytes.Repeat([]byte(" "), maxResponseBytes-len(raw))...)
	e := startExtension(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) })
	a, err := CanUpdate(
		t.Context(),
		[]runtimev1.ExtensionConfig{newExtensionConfig("ext", e.configureURL)},
		nil,
		formerSetWithTemplates(),
		currentSetWithTemplates(),
	)
	require.NoError(t, err)
	assert.Equal(t, Answer{Possible: true}, a)
}

func TestCanUpdateFindsTheURLOfAnExtension(t *testing.T) {
	t.Parallel()
	const path = "hooks.runtime.cluster.x-k8s.io/v1alpha1/canupdatemachineset/can-update?timeout=10s"
	service := func(change ...func(*runtimev1.ServiceReference)) (c runtimev1.ClientConfig) {
		c.Service = runtimev1.ServiceReference{Namespace: "tools", Name: "ext"}
		for _, change := range change {
			change(&c.Service)
		}
		return c
	}
	for name, c := range map[string]struct {
		client    runtimev1.ClientConfig
		want, err string
	}{
		"service":                       {client: service(), want: "https://ext.tools.svc/" + path},
		"service with a port":           {client: service(func(s *runtimev1.ServiceReference) { s.Port = new(int32(8443)) }), want: "https://ext.tools.svc:8443/" + path},
		"service with a path":           {client: service(func(s *runtimev1.ServiceReference) { s.Path = "/v2/" }), want: "https://ext.tools.svc/v2/" + path},
		"service with a relative path":  {client: service(func(s *runtimev1.ServiceReference) { s.Path = "v2" }), want: "https://ext.tools.svc/v2/" + path},
		"url":                           {client: runtimev1.ClientConfig{URL: "https://ext.example.com"}, want: "https://ext.example.com/" + path},
		"url with a port and a path":    {client: runtimev1.ClientConfig{URL: "https://[::1]:9443/a/b"}, want: "https://[::1]:9443/a/b/" + path},
		"neither":                       {err: "spec.clientConfig has neither a service nor a url"},
		"not https":                     {client: runtimev1.ClientConfig{URL: "http://ext.example.com"}, err: "spec.clientConfig.url does not begin with https"},
		"no host":                       {client: runtimev1.ClientConfig{URL: "https:///x"}, err: "spec.clientConfig.url names no host"},
		"no url":                        {client: runtimev1.ClientConfig{URL: "https://" + secretText + "%zz"}, err: "spec.clientConfig.url is not a URL"},
		"url with a password":           {client: runtimev1.ClientConfig{URL: "https://ann:" + secretText + "@ext.example.com"}, err: "spec.clientConfig.url has a user, a query or a fragment"},
		"url with a query":              {client: runtimev1.ClientConfig{URL: "https://ext.example.com?x=1"}, err: "spec.clientConfig.url has a user, a query or a fragment"},
		"a CA bundle that is not valid": {client: runtimev1.ClientConfig{URL: "https://ext.example.com", CABundle: []byte(secretText)}, err: "spec.clientConfig.caBundle of ExtensionConfig ext: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ext := newExtensionConfig(
				"ext",
				func(e *runtimev1.ExtensionConfig) { e.Spec.ClientConfig = c.client },
				setFailurePolicyIgnore,
			)
			if c.err == "" {
				got, err := handlerURL(handler{config: &ext, fullName: "Can-Update.ext", timeout: 10 * time.Second})
				require.NoError(t, err)
				assert.Equal(t, c.want, got.String())
				return
			}
			_, err := CanUpdate(
				t.Context(),
				[]runtimev1.ExtensionConfig{ext},
				nil,
				formerSetWithTemplates(),
				currentSetWithTemplates(),
			)
			require.ErrorContains(t, err, c.err, "Ignore is about calls that fail, not about an ExtensionConfig that is wrong")
			assert.NotContains(t, err.Error(), secretText)
		})
	}
}
