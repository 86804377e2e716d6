package extension

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"millwright/decide/phrase"
)

// maxResponseBytes limits how much of a response is read. Source: an etcd object has at most 1.5 MiB, and machine
// templates have only a few KiB.
const maxResponseBytes = 1 << 20

// preparedCall is a request that is ready to send.
type preparedCall struct {
	url     *url.URL
	client  *http.Client
	body    []byte
	timeout time.Duration
}

// newPreparedCall prepares the call of a handler. Each error is about the ExtensionConfig or the request, never about
// the extension.
func newPreparedCall(h handler, request hooksv1.CanUpdateMachineSetRequest) (c preparedCall, err error) {
	c.timeout = h.timeout
	if c.url, err = handlerURL(h); err != nil {
		return c, fmt.Errorf("ExtensionConfig %s: %w", h.config.Name, err)
	}
	if c.client, err = newHTTPClient(c.url.Hostname(), h.config.Spec.ClientConfig.CABundle); err != nil {
		return c, fmt.Errorf("spec.clientConfig.caBundle of ExtensionConfig %s: %w", h.config.Name, err)
	}
	if c.body, err = json.Marshal(request); err != nil {
		return c, errors.New("the request cannot be written as JSON") // the original error may quote a value
	}
	return c, nil
}

// handlerURL returns the URL of a handler: the extension's URL, the hook, and the handler's name.
func handlerURL(h handler) (*url.URL, error) {
	u, err := extensionURL(h.config.Spec.ClientConfig)
	if err != nil {
		return nil, err
	}
	u.Path = path.Join(
		"/",
		u.Path,
		hooksv1.GroupVersion.Group,
		hooksv1.GroupVersion.Version,
		strings.ToLower(hookName),
		strings.ToLower(h.name()),
	)
	u.RawQuery = url.Values{"timeout": {h.timeout.String()}}.Encode()
	return u, nil
}

// extensionURL returns the URL of an extension. Errors do not repeat the URL, because the URL may contain a password.
func extensionURL(config runtimev1.ClientConfig) (*url.URL, error) {
	if s := config.Service; s.IsDefined() {
		host := s.Name + "." + s.Namespace + ".svc"
		if s.Port != nil {
			host = net.JoinHostPort(host, strconv.Itoa(int(*s.Port)))
		}
		return &url.URL{Scheme: "https", Host: host, Path: s.Path}, nil
	}
	u, err := url.Parse(config.URL)
	switch {
	case config.URL == "":
		return nil, errors.New("spec.clientConfig has neither a service nor a url")
	case err != nil:
		return nil, errors.New("spec.clientConfig.url is not a URL")
	case u.Scheme != "https":
		return nil, errors.New("spec.clientConfig.url does not begin with https")
	case u.Hostname() == "":
		return nil, errors.New("spec.clientConfig.url names no host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("spec.clientConfig.url has a user, a query or a fragment")
	}
	return u, nil
}

// newHTTPClient returns a client that trusts the CAs of the bundle, or the system's CAs if the bundle is empty. The
// server's certificate must have the name of the host. The client follows no redirect, because the extension could
// otherwise pass the request to another host.
func newHTTPClient(host string, bundle []byte) (*http.Client, error) {
	config, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{CAData: bundle, ServerName: host}})
	if err != nil {
		return nil, err
	}
	return &http.Client{
		// supports HTTP/2 and a proxy that the environment variables configure
		Transport:     utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: config}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// send sends the request once.
func (c preparedCall) send(ctx context.Context) (response hooksv1.CanUpdateMachineSetResponse, err error) {
	defer c.client.CloseIdleConnections() // the next call may be days away
	limited, stop := context.WithTimeout(ctx, c.timeout)
	defer stop()
	request, err := http.NewRequestWithContext(limited, http.MethodPost, c.url.String(), bytes.NewReader(c.body))
	if err != nil {
		return response, errors.New("the URL of the extension is not valid")
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.client.Do(request)
	if err != nil {
		return response, c.explainFailure(ctx, limited, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return response, fmt.Errorf("%s answers with HTTP status %d", c.url.Host, answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxResponseBytes+1))
	switch {
	case err != nil, limited.Err() != nil:
		// when the deadline closes the connection, half a body can look like a complete body
		return response, c.explainFailure(ctx, limited, err)
	case len(body) > maxResponseBytes:
		return response, fmt.Errorf("the response of %s is larger than %d bytes", c.url.Host, maxResponseBytes)
	}
	if err := json.Unmarshal(body, &response); err != nil {
		// the original error may quote a value
		return response, fmt.Errorf("the response of %s is no %sResponse", c.url.Host, hookName)
	}
	return response, nil
}

// explainFailure says why a call failed. limited is the context of the call, ctx the context of the caller. The error
// omits causes that may contain a part of the response, such as the first line of a malformed response.
func (c preparedCall) explainFailure(ctx, limited context.Context, err error) error {
	if e, is := errors.AsType[*url.Error](err); is {
		err = e.Err // without the URL
	}
	_, network := errors.AsType[*net.OpError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case ctx.Err() != nil: // the caller's context has ended
		return fmt.Errorf("call %s: %w", c.url.Host, ctx.Err())
	// a dialer may notice the deadline before limited does
	case limited.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s does not answer within %s", c.url.Host, phrase.DurationText(c.timeout))
	case network,
		certificate,
		errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("call %s: %w", c.url.Host, err)
	default:
		return fmt.Errorf("the response of %s is cut off, or is not HTTP", c.url.Host)
	}
}
