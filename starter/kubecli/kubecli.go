// Package kubecli is what the commands of starter share: Clients, flags, operator requests, tables and watches.
package kubecli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/api/generated/clientset/versioned"
	"millwright/decide/phrase"
)

// Environment is what the commands for machines and deployments connect to.
type Environment struct {
	Machines func(kubeconfig string) (versioned.Interface, error)
	Events   func(kubeconfig string) (typedcorev1.EventsGetter, error)
	Nodes    func(kubeconfig string) (typedcorev1.NodesGetter, error)
	Temporal func(TemporalFlags) (Temporal, error)
	Now      func() time.Time
}

// NewEnvironment returns the real clusters, Temporal and clock.
func NewEnvironment() Environment {
	return Environment{
		Machines: func(kubeconfig string) (versioned.Interface, error) {
			c, err := Connect(kubeconfig)
			return c.Machines, err
		},
		Events: func(kubeconfig string) (typedcorev1.EventsGetter, error) {
			c, err := Connect(kubeconfig)
			return c.events, err
		},
		Nodes: func(kubeconfig string) (typedcorev1.NodesGetter, error) {
			c, err := Connect(kubeconfig)
			return c.nodes, err
		},
		Temporal: dial,
		Now:      time.Now,
	}
}

// ReadKey parses the name of an object: with its namespace, or without if the flag gives it.
func ReadKey(c *cobra.Command, kind, text, flag string) (types.NamespacedName, error) {
	namespace, name, both := strings.Cut(text, "/")
	if !both {
		namespace, name = flag, text
	}
	switch {
	case namespace == "" || name == "" || strings.Contains(name, "/"):
		return types.NamespacedName{}, fmt.Errorf("%q names no %s: give NAME or NAMESPACE/NAME", text, kind)
	case both && c.Flags().Changed("namespace") && namespace != flag:
		return types.NamespacedName{}, fmt.Errorf("%s is in namespace %s, but --namespace says %s", text, namespace, flag)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// KeyOf returns namespace/name of an object.
func KeyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// Since is a time and how long ago it was, as "13:51:07 UTC (14m)".
func Since(t, now time.Time) string {
	return fmt.Sprintf("%s (%s)", phrase.Clock(t, now), Age(t, now))
}

// Age is how long ago something was.
func Age(t, now time.Time) string { return phrase.Span(max(now.Sub(t), 0)) }

// OrDash returns a dash for an empty cell of a table.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// OneLine replaces all white space in a text by single spaces.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
