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

// ClusterAccess defines how Millwright connects to workload clusters.
type ClusterAccess struct {
	// SecretsClient is the client of the management cluster, which contains the Secrets with kubeconfigs.
	SecretsClient kubernetes.Interface
	// Connect makes the client of the workload cluster of the Cluster with this namespace and name.
	Connect func(config *rest.Config, namespace, name string) (kubernetes.Interface, error)
}

// kubeconfigKey is the key of the kubeconfig in a Cluster's Secret. kubeconfigSuffix is the suffix of the Secret's
// name. Source: Cluster API's contract for control planes.
const (
	kubeconfigKey    = "value"
	kubeconfigSuffix = "-kubeconfig"
)

// idleTimeout is how long the caches of a workload cluster run after the cluster's last drain. The timeout is longer
// than the time between two drains of a rollout.
const idleTimeout = 10 * time.Minute

// WorkloadClusters contains the workload clusters whose nodes Millwright drains. All methods are safe for concurrent
// use.
type WorkloadClusters struct {
	ClusterAccess
	ctx context.Context

	mu       sync.Mutex
	clusters map[string]*workloadCluster // keyed by namespace/name of the Cluster
}

// workloadCluster is one workload cluster.
type workloadCluster struct {
	secretVersion string // UID and resourceVersion of the Secret with the client's kubeconfig
	target        *observecache.Target
	stopCaches    context.CancelFunc
	startCaches   func() // the first call starts the caches; later calls do nothing
	userCount     int
	idleTimer     *time.Timer // stops the caches when it fires; nil while the cluster has users
}

// NewWorkloadClusters returns an empty WorkloadClusters; the method Target connects to a workload cluster. The caches
// stop when ctx is done.
func NewWorkloadClusters(ctx context.Context, access ClusterAccess) *WorkloadClusters {
	return &WorkloadClusters{ClusterAccess: access, ctx: ctx, clusters: map[string]*workloadCluster{}}
}

// ErrNoKubeconfig means that the Secret with a Cluster's kubeconfig is missing or unusable. The error text contains no
// data of the Secret.
var ErrNoKubeconfig = errors.New("no kubeconfig can be used")

// Target returns the workload cluster of a Cluster. The client uses the kubeconfig in the Cluster's Secret; a change of
// the Secret makes a new client. The target has caches for the objects that drains read. The caches do not run before
// StartCaches. The caller must call release when it no longer uses the target. The caches stop idleTimeout after the
// last release.
func (w *WorkloadClusters) Target(
	ctx context.Context,
	namespace, name string,
) (target *observecache.Target, release func(), err error) {
	secret, err := w.SecretsClient.CoreV1().Secrets(namespace).Get(ctx, name+kubeconfigSuffix, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("%w: Secret %s/%s%s does not exist", ErrNoKubeconfig, namespace, name, kubeconfigSuffix)
	case err != nil:
		return nil, nil, fmt.Errorf("get Secret %s/%s%s: %w", namespace, name, kubeconfigSuffix, err)
	}
	key, version := namespace+"/"+name, string(secret.UID)+" "+secret.ResourceVersion
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.clusters[key]
	if of == nil || of.secretVersion != version {
		made, err := w.connectCluster(secret.Data[kubeconfigKey], namespace, name)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: Secret %s/%s%s: %w", ErrNoKubeconfig, namespace, name, kubeconfigSuffix, err)
		}
		if of != nil && of.userCount == 0 {
			of.close()
		}
		of = made
		of.secretVersion = version
		w.clusters[key] = of
	}
	of.addUser()
	return of.target, sync.OnceFunc(func() { w.releaseCluster(key, of) }), nil
}

// StartCaches starts the caches of a target from the method Target. StartCaches blocks until the caches are synced or
// ctx is done.
func (w *WorkloadClusters) StartCaches(ctx context.Context, target *observecache.Target) error {
	w.mu.Lock()
	for _, of := range w.clusters {
		if of.target == target {
			of.startCaches()
		}
	}
	w.mu.Unlock()
	return target.AwaitFilledCaches(ctx)
}

func (w *workloadCluster) addUser() {
	w.userCount++
	if w.idleTimer != nil {
		w.idleTimer.Stop()
		w.idleTimer = nil
	}
}

// releaseCluster decreases the number of users of a cluster. If the Secret of a cluster has changed, the last user
// closes the old cluster.
func (w *WorkloadClusters) releaseCluster(key string, of *workloadCluster) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of.userCount--
	switch {
	case of.userCount > 0:
	case w.clusters[key] != of:
		of.close()
	default:
		of.idleTimer = time.AfterFunc(idleTimeout, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if of.userCount == 0 && w.clusters[key] == of {
				delete(w.clusters, key)
				of.close()
			}
		})
	}
}

func (w *workloadCluster) close() {
	if w.idleTimer != nil {
		w.idleTimer.Stop()
	}
	w.stopCaches()
}

// connectCluster makes the client and the caches of a workload cluster. The errors of connect contain no data of the
// kubeconfig.
func (w *WorkloadClusters) connectCluster(kubeconfig []byte, namespace, name string) (*workloadCluster, error) {
	if len(kubeconfig) == 0 {
		return nil, fmt.Errorf("it has no key %s", kubeconfigKey)
	}
	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the value of %s is no kubeconfig", kubeconfigKey) // the parse error may quote secret data
	}
	if what := forbiddenKubeconfigPart(parsed); what != "" {
		return nil, fmt.Errorf("its kubeconfig names %s, which Millwright does not use", what)
	}
	config, err := clientcmd.NewDefaultClientConfig(*parsed, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errors.New("its kubeconfig has no context that can be used")
	}
	client, err := w.Connect(config, namespace, name)
	if err != nil {
		return nil, errors.New("its kubeconfig has certificates or keys that cannot be used")
	}
	target := observecache.NewTarget(client, "")
	if err := target.WatchDrains(); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(w.ctx)
	return &workloadCluster{
		target:      target,
		stopCaches:  end,
		startCaches: sync.OnceFunc(func() { target.Start(ctx) }),
	}, nil
}

// forbiddenKubeconfigPart returns the part of a kubeconfig that would make this process run a program or read a file;
// empty if there is none. A writer of a Secret must not gain these rights.
func forbiddenKubeconfigPart(config *clientcmdapi.Config) string {
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
