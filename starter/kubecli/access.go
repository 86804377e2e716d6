package kubecli

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
)

// Access has kubectl's flags for the cluster that a command works on.
type Access struct {
	Kubeconfig string // path; if empty, the files of KUBECONFIG, then ~/.kube/config, then the service account of the pod
	Context    string // name of a context of the kubeconfig; if empty, the current context
}

// RegisterFlags adds the flags to a command and its subcommands.
func (a *Access) RegisterFlags(c *cobra.Command) {
	c.PersistentFlags().
		StringVar(&a.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster that holds the machines; default: the files of KUBECONFIG, else ~/.kube/config")
	c.PersistentFlags().StringVar(&a.Context, "context", "", "context of the kubeconfig; default: its current context")
}

func (a Access) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		rules,
		&clientcmd.ConfigOverrides{CurrentContext: a.Context},
	)
}

// ContextNamespace returns the namespace that the context names; "default" if the context names no namespace.
func ContextNamespace(a Access) (string, error) {
	namespace, _, err := a.config().Namespace()
	if err != nil {
		return "", fmt.Errorf("read kubeconfig %q: %w", a.Kubeconfig, err)
	}
	return namespace, nil
}
