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

// ClientFactory makes clients of the targets for a process that sends few requests and therefore has no Registry.
// ClientFactory is safe for concurrent use.
type ClientFactory struct {
	secretsGetter typedcorev1.SecretsGetter
	options       Options

	mu                 sync.Mutex
	clientsByNamespace map[string]*Client // by namespace
}

// NewClientFactory returns ClientFactory that read Secrets with a client of the control cluster. Only the fields
// Secret, Key, TokenSecretName and NewClient of the options are used.
func NewClientFactory(secrets typedcorev1.SecretsGetter, options Options) *ClientFactory {
	return &ClientFactory{secretsGetter: secrets, options: options, clientsByNamespace: map[string]*Client{}}
}

// Client returns the client of a namespace's target. Client reads the Secrets of the namespace in each call, and makes
// a new client if more than the token has changed. Client returns ErrNoCluster if the machines of the namespace join no
// cluster, and another error if the namespace has no usable kubeconfig; the error contains no data of the Secrets.
func (c *ClientFactory) Client(ctx context.Context, namespace string) (kubernetes.Interface, error) {
	s, err := c.readSource(ctx, namespace)
	switch {
	case err != nil:
		return nil, err
	case s.hasNoCluster:
		return nil, fmt.Errorf("%w: namespace %s", ErrNoCluster, namespace)
	case s.missingReason != "":
		return nil, fmt.Errorf("the target cluster of namespace %s is not known: %s", namespace, s.missingReason)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	client, err := c.clientsByNamespace[namespace].Renew(s.kubeconfig, c.options.NewClient)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of namespace %s has %w", namespace, err)
	}
	c.clientsByNamespace[namespace] = client
	return client.Clientset, nil
}

func (c *ClientFactory) readSource(ctx context.Context, namespace string) (source, error) {
	read := func(name string) (*corev1.Secret, error) {
		secret, err := c.secretsGetter.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return secret, err
	}
	secret, err := read(c.options.SecretName)
	if err != nil {
		return source{}, fmt.Errorf("get Secret %s/%s: %w", namespace, c.options.SecretName, err)
	}
	var token *corev1.Secret
	if c.options.TokenSecretName != "" {
		if token, err = read(c.options.TokenSecretName); err != nil {
			return source{}, fmt.Errorf("get Secret %s/%s: %w", namespace, c.options.TokenSecretName, err)
		}
	}
	return c.options.newSource(namespace, secret, token), nil
}
