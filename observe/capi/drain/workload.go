package drain

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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	observecache "millwright/observe/cache"
)

// Access says how the nodes of workload clusters are reached.
type Access struct {
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

// Workloads are the workload clusters whose nodes are drained. All methods are safe for concurrent use.
type Workloads struct {
	Access
	ctx context.Context

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

// NewWorkloads returns workload clusters that are connected to when Cluster asks for them. ctx ends their caches.
func NewWorkloads(ctx context.Context, access Access) *Workloads {
	return &Workloads{Access: access, ctx: ctx, open: map[string]*workload{}}
}

// ErrNoKubeconfig says that the Secret with the kubeconfig of a Cluster is missing or cannot be used. Its text has
// nothing of the Secret.
var ErrNoKubeconfig = errors.New("no kubeconfig can be used")

// Cluster returns the workload cluster of a Cluster. Its client is made of the Secret of the Cluster, and made again
// when the Secret has changed. Its caches are those of NewTarget, and are not running before Begin. The caller must
// call release once it does not use the cluster any more; some time after the last one did, the caches end.
func (w *Workloads) Cluster(
	ctx context.Context,
	namespace, name string,
) (cluster *observecache.Cluster, release func(), err error) {
	secret, err := w.Secrets.CoreV1().Secrets(namespace).Get(ctx, name+kubeconfigSuffix, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("%w: Secret %s/%s%s does not exist", ErrNoKubeconfig, namespace, name, kubeconfigSuffix)
	case err != nil:
		return nil, nil, fmt.Errorf("get Secret %s/%s%s: %w", namespace, name, kubeconfigSuffix, err)
	}
	key, version := namespace+"/"+name, string(secret.UID)+" "+secret.ResourceVersion
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.open[key]
	if of == nil || of.secret != version {
		made, err := w.connect(secret.Data[kubeconfigKey])
		if err != nil {
			return nil, nil, fmt.Errorf("%w: Secret %s/%s%s: %w", ErrNoKubeconfig, namespace, name, kubeconfigSuffix, err)
		}
		if of != nil && of.users == 0 {
			of.close()
		}
		of = made
		of.secret = version
		w.open[key] = of
	}
	of.use()
	return of.cluster, sync.OnceFunc(func() { w.leave(key, of) }), nil
}

// Begin begins the caches of a workload cluster that Cluster returned, and waits until they are filled, or ctx ends.
func (w *Workloads) Begin(ctx context.Context, cluster *observecache.Cluster) error {
	w.mu.Lock()
	for _, of := range w.open {
		if of.cluster == cluster {
			of.begin()
		}
	}
	w.mu.Unlock()
	return cluster.AwaitFilled(ctx)
}

func (w *workload) use() {
	w.users++
	if w.idle != nil {
		w.idle.Stop()
		w.idle = nil
	}
}

// leave counts one user less. A cluster whose Secret has changed meanwhile is closed by its last user.
func (w *Workloads) leave(key string, of *workload) {
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
func (w *Workloads) connect(kubeconfig []byte) (*workload, error) {
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
	client, err := w.Connect(config)
	if err != nil {
		return nil, errors.New("its kubeconfig has certificates or keys that cannot be used")
	}
	cluster, err := observecache.NewTarget(client)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(w.ctx)
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
