package capi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	observecache "millwright/observe/cache"
)

// Drains says how the nodes of workload clusters are reached.
type Drains struct {
	// client of the management cluster, for the Secrets with kubeconfigs
	Secrets kubernetes.Interface
	Connect func(config *rest.Config) (kubernetes.Interface, error) // makes the client of a workload cluster
}

// kubeconfigKey is the key of the kubeconfig in the Secret of a Cluster, and kubeconfigSuffix ends the name of this
// Secret. Source: Cluster API's contract of control planes.
const (
	kubeconfigKey    = "value"
	kubeconfigSuffix = "-kubeconfig"
)

// idleAfter is how long the caches of a workload cluster run after its last drain. Source: two drains of a rollout
// follow each other in less.
const idleAfter = 10 * time.Minute

// workloads are the workload clusters whose nodes are drained.
type workloads struct {
	Drains

	mu   sync.Mutex
	open map[string]*workload // by namespace/name of the Cluster
}

// workload is one workload cluster.
type workload struct {
	secret  string // UID and resourceVersion of the Secret that the client is made of
	cluster *observecache.Cluster
	end     context.CancelFunc
	begin   func() // begins the caches; the first call counts
	users   int
	idle    *time.Timer // ends it; nil while it is used
}

// WatchDrains also caches Cluster API's drain rules, and lets Workload connect. Call it once, before the caches start.
func (c *Cache) WatchDrains(drains Drains) error {
	c.workloads = workloads{Drains: drains, open: map[string]*workload{}}
	rules := informer(
		c.client.Rules(metav1.NamespaceAll),
		&clusterv1.MachineDrainRule{},
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	)
	if err := rules.SetTransform(strip); err != nil {
		return fmt.Errorf("watch %s: %w", RulesResource, err)
	}
	c.Cluster.Watch(RulesResource, rules)
	return nil
}

// ErrNoKubeconfig says that the Secret with the kubeconfig of a Cluster is missing or cannot be used. Its text has
// nothing of the Secret.
var ErrNoKubeconfig = errors.New("no kubeconfig can be used")

// Workload returns the workload cluster of a Cluster. Its client is made of the Secret of the Cluster, and made again
// when the Secret has changed. Its caches are those of NewTarget, and are not running before Begin. The caller must
// call release once it does not use the cluster any more; some time after the last one did, the caches end.
func (c *Cache) Workload(
	ctx context.Context,
	namespace, name string,
) (cluster *observecache.Cluster, release func(), err error) {
	secret, err := c.workloads.Secrets.CoreV1().Secrets(namespace).Get(ctx, name+kubeconfigSuffix, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("%w: Secret %s/%s%s does not exist", ErrNoKubeconfig, namespace, name, kubeconfigSuffix)
	case err != nil:
		return nil, nil, fmt.Errorf("get Secret %s/%s%s: %w", namespace, name, kubeconfigSuffix, err)
	}
	key, version := namespace+"/"+name, string(secret.UID)+" "+secret.ResourceVersion
	c.workloads.mu.Lock()
	defer c.workloads.mu.Unlock()
	w := c.workloads.open[key]
	if w == nil || w.secret != version {
		made, err := c.connect(secret.Data[kubeconfigKey])
		if err != nil {
			return nil, nil, fmt.Errorf("%w: Secret %s/%s%s: %w", ErrNoKubeconfig, namespace, name, kubeconfigSuffix, err)
		}
		if w != nil && w.users == 0 {
			w.close()
		}
		w = made
		w.secret = version
		c.workloads.open[key] = w
	}
	c.workloads.use(w)
	return w.cluster, sync.OnceFunc(func() { c.workloads.leave(key, w) }), nil
}

// Begin begins the caches of a workload cluster that Workload returned, and waits until they are filled, or ctx ends.
func (c *Cache) Begin(ctx context.Context, cluster *observecache.Cluster) error {
	c.workloads.mu.Lock()
	for _, w := range c.workloads.open {
		if w.cluster == cluster {
			w.begin()
		}
	}
	c.workloads.mu.Unlock()
	return cluster.AwaitFilled(ctx)
}

func (w *workloads) use(of *workload) {
	of.users++
	if of.idle != nil {
		of.idle.Stop()
		of.idle = nil
	}
}

// leave counts one user less. A cluster whose Secret has changed meanwhile is closed by its last user.
func (w *workloads) leave(key string, of *workload) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of.users--
	switch {
	case of.users > 0:
	case w.open[key] != of:
		of.close()
	default:
		of.idle = time.AfterFunc(idleAfter, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if of.users == 0 && w.open[key] == of {
				delete(w.open, key)
				of.close()
			}
		})
	}
}

func (w *workload) close() {
	if w.idle != nil {
		w.idle.Stop()
	}
	w.end()
}

// connect makes the client and the caches of a workload cluster. An error has nothing of the kubeconfig.
func (c *Cache) connect(kubeconfig []byte) (*workload, error) {
	if len(kubeconfig) == 0 {
		return nil, fmt.Errorf("it has no key %s", kubeconfigKey)
	}
	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the value of %s is no kubeconfig", kubeconfigKey) // the words of the parser may quote it
	}
	if what := outside(parsed); what != "" {
		return nil, fmt.Errorf("its kubeconfig names %s, which Millwright does not use", what)
	}
	config, err := clientcmd.NewDefaultClientConfig(*parsed, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errors.New("its kubeconfig has no context that can be used")
	}
	client, err := c.workloads.Connect(config)
	if err != nil {
		return nil, errors.New("its kubeconfig has certificates or keys that cannot be used")
	}
	cluster, err := observecache.NewTarget(client)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(c.ctx)
	return &workload{cluster: cluster, end: end, begin: sync.OnceFunc(func() { cluster.Begin(ctx) })}, nil
}

// outside names what of a kubeconfig would make this process run a program or read a file: whoever may write a Secret
// must not get that. It is empty if there is nothing.
func outside(config *clientcmdapi.Config) string {
	for _, user := range config.AuthInfos {
		switch {
		case user.Exec != nil:
			return "a program that gives credentials"
		case user.AuthProvider != nil:
			return "an authentication provider"
		case user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "":
			return "a file with credentials"
		}
	}
	for _, cluster := range config.Clusters {
		if cluster.CertificateAuthority != "" {
			return "a file with certificates"
		}
	}
	return ""
}
