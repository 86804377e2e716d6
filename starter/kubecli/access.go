package kubecli

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"millwright/process/commandline"
)

// ClusterAccess has kubectl's flags for the cluster that a command works on.
type ClusterAccess struct {
	Kubeconfig string // path; if empty, the files of KUBECONFIG, then ~/.kube/config, then the service account of the pod
	Context    string // name of a context of the kubeconfig; if empty, the current context
}

// RegisterFlags adds the flags to a command and its subcommands.
func (a *ClusterAccess) RegisterFlags(c *cobra.Command) {
	c.PersistentFlags().
		StringVar(&a.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster that holds the machines; default: the files of KUBECONFIG, else ~/.kube/config")
	c.PersistentFlags().StringVar(&a.Context, "context", "", "context of the kubeconfig; default: its current context")
	commandline.MarkConnectionFlags(c.PersistentFlags(), "kubeconfig", "context")
}

func (a ClusterAccess) config() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		a.loadingRules(),
		&clientcmd.ConfigOverrides{CurrentContext: a.Context},
	)
}

func (a ClusterAccess) loadingRules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	return rules
}

// configError returns an error that explains why the kubeconfig cannot be used. The error contains the path of the
// kubeconfig and the names of its contexts.
func (a ClusterAccess) configError(err error) error {
	path := strings.Join(a.loadingRules().GetLoadingPrecedence(), string(filepath.ListSeparator))
	raw, readErr := a.config().RawConfig()
	named := cmp.Or(a.Context, raw.CurrentContext)
	_, known := raw.Contexts[named]
	contexts := strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ")
	switch {
	case readErr != nil || known:
		return fmt.Errorf("read kubeconfig %s: %w", path, err)
	case contexts == "":
		return fmt.Errorf("kubeconfig %s does not exist or has no context: give --kubeconfig, or set KUBECONFIG", path)
	case named == "":
		return fmt.Errorf("kubeconfig %s has no current context: give --context (it has: %s)", path, contexts)
	default:
		return fmt.Errorf("kubeconfig %s has no context %q (it has: %s)", path, named, contexts)
	}
}

// ContextName returns the name of the context that the commands use; empty if there is no kubeconfig.
func (a ClusterAccess) ContextName() string {
	raw, err := a.config().RawConfig()
	if err != nil {
		return a.Context
	}
	return cmp.Or(a.Context, raw.CurrentContext)
}

// ContextNamespace returns the namespace of the context, or "default" if the context has none.
func ContextNamespace(a ClusterAccess) (string, error) {
	namespace, _, err := a.config().Namespace()
	if err != nil {
		return "", a.configError(err)
	}
	return namespace, nil
}
