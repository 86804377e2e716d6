package target

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// ErrNoCluster means that the machines of a namespace join no cluster.
var ErrNoCluster = errors.New("the machines of the namespace join no cluster")

// Clients makes clients of the targets for a process that sends few requests and therefore has no Registry. Clients is
// safe for concurrent use.
type Clients struct {
	secrets typedcorev1.SecretsGetter
	options Options

	mu    sync.Mutex
	known map[string]*Client // by namespace
}

// NewClients returns Clients that read Secrets with a client of the control cluster. Only the fields Secret, Key,
// TokenSecret and Connect of the options are used.
func NewClients(secrets typedcorev1.SecretsGetter, options Options) *Clients {
	return &Clients{secrets: secrets, options: options, known: map[string]*Client{}}
}

// Client returns the client of a namespace's target. Client reads the Secrets of the namespace in each call, and makes
// a new client if more than the token has changed. Client returns ErrNoCluster if the machines of the namespace join no
// cluster, and another error if the namespace has no usable kubeconfig; the error contains no data of the Secrets.
func (c *Clients) Client(ctx context.Context, namespace string) (kubernetes.Interface, error) {
	s, err := c.source(ctx, namespace)
	switch {
	case err != nil:
		return nil, err
	case s.none:
		return nil, fmt.Errorf("%w: namespace %s", ErrNoCluster, namespace)
	case s.missing != "":
		return nil, fmt.Errorf("the target cluster of namespace %s is not known: %s", namespace, s.missing)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	client, err := c.known[namespace].Renew(s.kubeconfig, c.options.Connect)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of namespace %s has %w", namespace, err)
	}
	c.known[namespace] = client
	return client.Interface, nil
}

func (c *Clients) source(ctx context.Context, namespace string) (source, error) {
	read := func(name string) (*corev1.Secret, error) {
		secret, err := c.secrets.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return secret, err
	}
	secret, err := read(c.options.Secret)
	if err != nil {
		return source{}, fmt.Errorf("get Secret %s/%s: %w", namespace, c.options.Secret, err)
	}
	var token *corev1.Secret
	if c.options.TokenSecret != "" {
		if token, err = read(c.options.TokenSecret); err != nil {
			return source{}, fmt.Errorf("get Secret %s/%s: %w", namespace, c.options.TokenSecret, err)
		}
	}
	return c.options.sourceOf(namespace, secret, token), nil
}
