package target

import (
	"errors"
	"net/http"
	"sync/atomic"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Client is the client of a cluster, whose token may change. All methods are safe for concurrent use.
type Client struct {
	Interface kubernetes.Interface
	content   string // Kubeconfig.Content
	token     bearerToken
}

// Renew returns a client for a kubeconfig. If only the token has changed, Renew returns c, and the next request has the
// new token. In other cases, and if c is nil, connect makes a new client. The error contains no data of the kubeconfig.
func (c *Client) Renew(k Kubeconfig, connect func(*rest.Config) (kubernetes.Interface, error)) (*Client, error) {
	if c == nil || c.content != k.Content {
		c = &Client{content: k.Content}
		config := rest.CopyConfig(k.Config)
		config.Wrap(c.token.transport)
		var err error
		if c.Interface, err = connect(config); err != nil {
			return nil, errors.New("certificates or keys that cannot be used") // err may quote a part of the kubeconfig
		}
	}
	c.token.Store(&k.Token)
	return c, nil
}

// bearerToken is the bearer token of a client's next request; nil or empty: the client has other credentials.
type bearerToken struct{ atomic.Pointer[string] }

// transport wraps the transport of a client.
func (t *bearerToken) transport(next http.RoundTripper) http.RoundTripper {
	return tokenTransport{next, t}
}

type tokenTransport struct {
	next  http.RoundTripper
	token *bearerToken
}

// RoundTrip implements http.RoundTripper.
func (t tokenTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if token := t.token.Load(); token != nil && *token != "" {
		request = request.Clone(request.Context())
		request.Header.Set("Authorization", "Bearer "+*token)
	}
	return t.next.RoundTrip(request)
}
