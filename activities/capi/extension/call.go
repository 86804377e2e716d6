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

// largestResponse bounds what is read of a response, in bytes. Source: a patch cannot be larger than the object that it
// describes, and an object has at most 1.5 MiB in etcd; templates of machines have some KiB.
const largestResponse = 1 << 20

// call is a request that is ready to be sent.
type call struct {
	url     *url.URL
	client  *http.Client
	body    []byte
	timeout time.Duration
}

// newCall prepares the call of a handler. An error comes from the ExtensionConfig, never from the extension.
func newCall(h handler, request hooksv1.CanUpdateMachineSetRequest) (c call, err error) {
	c.timeout = h.timeout
	if c.url, err = address(h); err != nil {
		return c, fmt.Errorf("ExtensionConfig %s: %w", h.config.Name, err)
	}
	if c.client, err = newClient(c.url.Hostname(), h.config.Spec.ClientConfig.CABundle); err != nil {
		return c, fmt.Errorf("spec.clientConfig.caBundle of ExtensionConfig %s: %w", h.config.Name, err)
	}
	if c.body, err = json.Marshal(request); err != nil {
		return c, errors.New("the request cannot be written as JSON") // the cause may repeat a value
	}
	return c, nil
}

// address returns the URL of a handler: that of the extension, the hook, and the handler's name.
func address(h handler) (*url.URL, error) {
	u, err := base(h.config.Spec.ClientConfig)
	if err != nil {
		return nil, err
	}
	u.Path = path.Join(
		"/",
		u.Path,
		hooksv1.GroupVersion.Group,
		hooksv1.GroupVersion.Version,
		strings.ToLower(hook),
		strings.ToLower(h.name()),
	)
	u.RawQuery = url.Values{"timeout": {h.timeout.String()}}.Encode()
	return u, nil
}

// base returns the URL of an extension. Errors do not repeat it: it may hold a password.
func base(config runtimev1.ClientConfig) (*url.URL, error) {
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

// newClient returns a client that trusts the CAs of a bundle, or those of the system without a bundle, and only a
// certificate with the name of the host. It follows no redirect: the extension could lead it to another host, whose
// answer would count.
func newClient(host string, bundle []byte) (*http.Client, error) {
	config, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{CAData: bundle, ServerName: host}})
	if err != nil {
		return nil, err
	}
	return &http.Client{
		// HTTP/2, and the proxy of the environment
		Transport:     utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: config}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// do sends the request once.
func (c call) do(ctx context.Context) (response hooksv1.CanUpdateMachineSetResponse, err error) {
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
		return response, c.failure(ctx, limited, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return response, fmt.Errorf("%s answers with HTTP status %d", c.url.Host, answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, largestResponse+1))
	switch {
	case err != nil, limited.Err() != nil:
		// when the deadline closes the connection, half a body can look like a whole one
		return response, c.failure(ctx, limited, err)
	case len(body) > largestResponse:
		return response, fmt.Errorf("the response of %s is larger than %d bytes", c.url.Host, largestResponse)
	}
	if err := json.Unmarshal(body, &response); err != nil {
		return response, fmt.Errorf("the response of %s is no %sResponse", c.url.Host, hook) // the cause may repeat a value
	}
	return response, nil
}

// failure says why a call failed: limited is the context of the call, ctx that of the caller. It repeats only causes
// that contain nothing of the response: the cause of a malformed response contains the first line of the response.
func (c call) failure(ctx, limited context.Context, err error) error {
	if e, is := errors.AsType[*url.Error](err); is {
		err = e.Err // without the URL
	}
	_, network := errors.AsType[*net.OpError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case ctx.Err() != nil: // the caller's context
		return fmt.Errorf("call %s: %w", c.url.Host, ctx.Err())
	case limited.Err() != nil, errors.Is(err, context.DeadlineExceeded): // a dialer may see the deadline first
		return fmt.Errorf("%s does not answer within %s", c.url.Host, phrase.Length(c.timeout))
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
