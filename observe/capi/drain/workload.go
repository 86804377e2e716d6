package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"millwright/observe/cache"
	"millwright/observe/target"
)

// ClusterAccess defines how Millwright connects to workload clusters.
type ClusterAccess struct {
	// SecretsClient is the client of the management cluster, which contains the Secrets with kubeconfigs.
	SecretsClient kubernetes.Interface
	// Connect makes the client of the workload cluster of the Cluster with this namespace and name. Connect may change the
	// configuration.
	Connect func(config *rest.Config, namespace, name string) (kubernetes.Interface, error)
}

// kubeconfigKey is the key of the kubeconfig in a Cluster's Secret. kubeconfigSuffix is the suffix of the Secret's
// name. Source: Cluster API's contract for control planes.
const (
	kubeconfigSecretKey    = "value"
	kubeconfigSecretSuffix = "-kubeconfig"
)

// clientIdleTime is how long an unused client of a workload cluster stays in memory. Source: far longer than the time
// between two drains of a rollout.
const clientIdleTime = time.Hour

// WorkloadClusters contains the workload clusters whose nodes Millwright drains. All methods are safe for concurrent
// use.
type WorkloadClusters struct {
	ClusterAccess
	ctx context.Context

	mu       sync.Mutex
	clusters map[string]workloadCluster // keyed by namespace/name of the Cluster
}

// workloadCluster is one workload cluster.
type workloadCluster struct {
	client *target.Client
	target *cache.Target
	usedAt time.Time // last call of the method Target
}

// NewWorkloadClusters returns an empty WorkloadClusters; the method Target connects to a workload cluster. The caches
// stop when ctx is done.
func NewWorkloadClusters(ctx context.Context, access ClusterAccess) *WorkloadClusters {
	return &WorkloadClusters{ClusterAccess: access, ctx: ctx, clusters: map[string]workloadCluster{}}
}

// ErrNoKubeconfig means that the Secret with a Cluster's kubeconfig is missing or unusable. The error text contains no
// data of the Secret.
var ErrNoKubeconfig = errors.New("no kubeconfig can be used")

// Target returns the workload cluster of a Cluster. The client uses the kubeconfig in the Cluster's Secret; a change of
// more than the token makes a new client and a new target. A drain that uses the caches of the former target keeps
// them. The target has caches for the objects that drains read. They run on demand: see cache.Target.UseDrainCaches.
func (w *WorkloadClusters) Target(ctx context.Context, namespace, name string) (*cache.Target, error) {
	key, secretName := namespace+"/"+name, name+kubeconfigSecretSuffix
	secret, err := w.SecretsClient.CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: Secret %s/%s does not exist", ErrNoKubeconfig, namespace, secretName)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf(
			"%w: the worker may not read Secret %s/%s; add the namespace to the chart's value clusterAPI.drainNamespaces",
			ErrNoKubeconfig, namespace, secretName,
		)
	case err != nil:
		return nil, fmt.Errorf("get Secret %s/%s: %w", namespace, secretName, err)
	}
	kubeconfig, err := target.ParseKubeconfig(secret.Data[kubeconfigSecretKey], kubeconfigSecretKey, "")
	if err != nil {
		return nil, fmt.Errorf("%w: Secret %s/%s: %w", ErrNoKubeconfig, namespace, secretName, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.clusters, func(_ string, c workloadCluster) bool { return time.Since(c.usedAt) > clientIdleTime })
	of := w.clusters[key]
	client, err := of.client.Renew(kubeconfig, func(config *rest.Config) (kubernetes.Interface, error) {
		return w.Connect(config, namespace, name)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: Secret %s/%s: its kubeconfig has %w", ErrNoKubeconfig, namespace, secretName, err)
	}
	if client != of.client {
		of = workloadCluster{client: client, target: cache.NewTarget(client.Clientset, "")}
		of.target.WatchDrainResourcesOnDemand()
		of.target.Start(w.ctx)
	}
	of.usedAt = time.Now()
	w.clusters[key] = of
	return of.target, nil
}
