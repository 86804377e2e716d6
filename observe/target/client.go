package target

import (
	"errors"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Client is the client of a cluster, whose token may change. A guard limits the requests of the client. All methods are
// safe for concurrent use.
type Client struct {
	Clientset      kubernetes.Interface
	kubeconfigHash string // Kubeconfig.Content
	guard          requestGuard
}

// Renew returns a client for a kubeconfig. If only the token has changed, Renew returns c, and the next request has the
// new token. In other cases, and if c is nil, connect makes a new client. The error contains no data of the kubeconfig.
func (c *Client) Renew(k Kubeconfig, connect func(*rest.Config) (kubernetes.Interface, error)) (*Client, error) {
	if c == nil || c.kubeconfigHash != k.ContentHash {
		c = &Client{kubeconfigHash: k.ContentHash}
		config := rest.CopyConfig(k.Config)
		config.Wrap(c.guard.wrapTransport)
		var err error
		if c.Clientset, err = connect(config); err != nil {
			return nil, errors.New("certificates or keys that cannot be used") // err may quote a part of the kubeconfig
		}
	}
	c.guard.token.Store(&k.Token)
	return c, nil
}
