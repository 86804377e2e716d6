package process

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"millwright/observe/cache"
)

// ScopeFlags select the namespaces that Millwright manages. Worker and bridge need the same ScopeFlags.
type ScopeFlags struct {
	cache.NamespaceScope
	selectorText string
	watchesHolds bool
}

// Register adds the flags to a set.
func (f *ScopeFlags) Register(set *pflag.FlagSet) {
	set.StringSliceVar(
		&f.OnlyNamespaces,
		"namespaces",
		nil,
		"namespaces whose objects Millwright acts on, separated by commas; empty: all; set the same value on worker and bridge",
	)
	set.StringSliceVar(
		&f.ExceptNamespaces,
		"except-namespaces",
		nil,
		"namespaces whose objects Millwright leaves alone, separated by commas, for example those of another controller; set the same value on worker and bridge",
	)
	set.StringVar(
		&f.selectorText,
		"namespace-selector",
		"",
		"labels of the namespaces whose objects Millwright acts on, as in kubectl -l, such as fleet=blue or \"tier notin (test)\"; with --namespaces, a namespace must fit both; empty: any; set the same value on worker and bridge",
	)
	set.BoolVar(
		&f.watchesHolds,
		"hold-by-autoscaler-guard",
		false,
		"do not act in a namespace while its Deployment machine-controller-manager, the guard of Gardener's cluster autoscaler, is scaled to 0; set the same value on worker and bridge",
	)
}

// ApplyToCluster copies the flags into a cluster, or returns the error of Check. control is a client of the control
// cluster. Call ApplyToCluster before the caches start.
func (f *ScopeFlags) ApplyToCluster(cluster *cache.Cluster, control kubernetes.Interface) error {
	if err := f.Complete(); err != nil {
		return err
	}
	cluster.Scope = f.NamespaceScope
	if !f.watchesHolds {
		return nil
	}
	return cluster.WatchGuardDeployments(control)
}

// Complete completes the Scope. Complete returns an error if a name is not a valid namespace name, if the selector is
// invalid, or if --except-namespaces excludes all of --namespaces.
func (f *ScopeFlags) Complete() error {
	for flag, names := range map[string][]string{"--namespaces": f.OnlyNamespaces, "--except-namespaces": f.ExceptNamespaces} {
		for _, name := range names {
			if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
				return fmt.Errorf("%s: %q is no name of a namespace: %s", flag, name, strings.Join(wrong, "; "))
			}
		}
	}
	if f.selectorText != "" {
		selector, err := labels.Parse(f.selectorText)
		if err != nil {
			return fmt.Errorf("--namespace-selector: %w", err)
		}
		f.Selector = selector
	}
	excepted := func(namespace string) bool { return slices.Contains(f.ExceptNamespaces, namespace) }
	if len(f.OnlyNamespaces) > 0 && !slices.ContainsFunc(f.OnlyNamespaces, func(n string) bool { return !excepted(n) }) {
		return fmt.Errorf("--namespaces: --except-namespaces leaves none of %s", strings.Join(f.OnlyNamespaces, ", "))
	}
	return nil
}
