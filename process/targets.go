package process

import (
	"errors"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"millwright/observe/cache"
	"millwright/observe/shard"
	"millwright/observe/target"
)

// TargetFlags configure a separate target cluster for each namespace. Worker and bridge need the same TargetFlags.
type TargetFlags struct {
	secretName, kubeconfigKey, tokenSecretName string
}

// Register adds the flags to a set.
func (f *TargetFlags) Register(set *pflag.FlagSet) {
	set.StringVar(
		&f.secretName,
		"target-secret",
		"",
		"name of the Secret in each namespace with the kubeconfig of the cluster that the machines of the namespace join; the value \""+target.NoClusterValue+"\" means that they join no cluster; empty means that all namespaces have the cluster of --target-kubeconfig; set the same value on worker and bridge",
	)
	set.StringVar(
		&f.kubeconfigKey,
		"target-secret-key",
		"kubeconfig",
		"key of the kubeconfig in the Secret of --target-secret; set the same value on worker and bridge",
	)
	set.StringVar(
		&f.tokenSecretName,
		"target-token-secret",
		"",
		"name of the Secret in each namespace that has the bearer token for the kubeconfig of --target-secret under the key \"token\"; empty means that the kubeconfig has the credentials; set the same value on worker and bridge",
	)
}

// HasTargetPerNamespace reports whether each namespace has its own target cluster.
func (f *Flags) HasTargetPerNamespace() bool { return f.Targets.HasTargetPerNamespace() }

// HasTargetPerNamespace reports whether each namespace has its own target cluster.
func (f *TargetFlags) HasTargetPerNamespace() bool { return f.secretName != "" }

// NewClientFactory returns the clients of the target clusters. connect makes the client of a target.
func (f *TargetFlags) NewClientFactory(
	secrets typedcorev1.SecretsGetter,
	connect func(*rest.Config) (kubernetes.Interface, error),
) *target.ClientFactory {
	return target.NewClientFactory(secrets, target.Options{
		SecretName: f.secretName, KubeconfigKey: f.kubeconfigKey, TokenSecretName: f.tokenSecretName, NewClient: connect,
	})
}

// checkTargetFlags returns an error if the flags of the targets exclude each other.
func (f *Flags) checkTargetFlags() error {
	switch {
	case f.HasTargetPerNamespace() && f.TargetKubeconfig != "":
		return errors.New(
			"--target-secret: --target-kubeconfig gives all namespaces one target cluster; set only one of the two",
		)
	case !f.HasTargetPerNamespace() && f.Targets.tokenSecretName != "":
		return errors.New("--target-token-secret: it has no effect without --target-secret")
	case f.HasTargetPerNamespace() && f.Targets.kubeconfigKey == "":
		return errors.New("--target-secret-key: the key must not be empty")
	default:
		return nil
	}
}

// NewTargetClientFactory returns the clients of the target clusters for a process that watches no targets; nil if all
// namespaces have the same target.
func (f *Flags) NewTargetClientFactory(client kubernetes.Interface, agent string) (*target.ClientFactory, error) {
	if err := f.checkTargetFlags(); err != nil || !f.HasTargetPerNamespace() {
		return nil, err
	}
	return f.Targets.NewClientFactory(client.CoreV1(), f.targetOptions(agent, NewKubernetesClient).NewClient), nil
}

// targetOptions returns the options that the flags set. connect makes the client of a target.
func (f *Flags) targetOptions(agent string, connect func(*rest.Config) (kubernetes.Interface, error)) target.Options {
	return target.Options{
		SecretName: f.Targets.secretName, KubeconfigKey: f.Targets.kubeconfigKey, TokenSecretName: f.Targets.tokenSecretName,
		NewClient: func(config *rest.Config) (kubernetes.Interface, error) {
			config.UserAgent = agent
			f.LimitRequests(config)
			return connect(config)
		},
	}
}

// SetUpTargets prepares the connections to the target clusters of the namespaces that this process serves, and makes
// them the targets of cluster. The options' fields Connect, Drains, OnStatus and OnEnd are used. SetUpTargets returns
// nil if all namespaces have the same target. The caller must start the result after the caches of cluster.
func (f *Flags) SetUpTargets(
	client kubernetes.Interface,
	cluster *cache.Cluster,
	claimed *shard.Claims,
	agent string,
	options target.Options,
) (*target.Registry, error) {
	if err := f.checkTargetFlags(); err != nil || !f.HasTargetPerNamespace() {
		return nil, err
	}
	of := f.targetOptions(agent, options.NewClient)
	of.Namespaces, of.IsInScope = cluster.Scope.OnlyNamespaces, cluster.IsInScope
	of.IsServed = func(namespace string) bool { return cluster.IsInScope(namespace) && claimed.Serves(namespace) }
	of.IsHeld = cluster.IsHeld
	of.DrainsNodes, of.OnStatus, of.OnTargetEnd = options.DrainsNodes, options.OnStatus, options.OnTargetEnd
	registry := target.New(client, of)
	cluster.SetTargetSource(registry)
	return registry, nil
}
