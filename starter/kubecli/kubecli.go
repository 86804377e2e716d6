// Package kubecli is what the commands of starter share: clients, flags, operator requests, tables and watches.
package kubecli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/decide/phrase"
	"millwright/decide/request"
)

// Environment is what commands connect to.
type Environment struct {
	Clients  func(kubeconfig string) (Clients, error)
	Temporal func(TemporalFlags) (client.Client, error)
	Now      func() time.Time
}

// NewEnvironment returns the real clusters, Temporal and clock.
func NewEnvironment() Environment {
	return Environment{Clients: Connect, Temporal: Dial, Now: time.Now}
}

// Objects are the objects of one kind that a group of commands works on, in the cluster that its flags name.
type Objects struct {
	Environment
	Kind       request.Kind
	Kubeconfig string
	Namespace  string
}

// Register adds the flags to a command and its subcommands.
func (o *Objects) Register(c *cobra.Command) {
	flags := c.PersistentFlags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the cluster that holds the machines")
	flags.StringVarP(&o.Namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the "+string(o.Kind))
}

// Key parses the name of an object: NAMESPACE/NAME, or NAME in the namespace of the flag.
func (o *Objects) Key(c *cobra.Command, text string) (types.NamespacedName, error) {
	namespace, name, both := strings.Cut(text, "/")
	if !both {
		namespace, name = o.Namespace, text
	}
	switch {
	case namespace == "" || name == "" || strings.Contains(name, "/"):
		return types.NamespacedName{}, fmt.Errorf("%q names no %s: give NAME or NAMESPACE/NAME", text, o.Kind)
	case both && c.Flags().Changed("namespace") && namespace != o.Namespace:
		return types.NamespacedName{}, fmt.Errorf("%s is in namespace %s, but --namespace says %s", text, namespace, o.Namespace)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// Find reads an object of a kind with the method Get of its client. The error also says when there is no such object.
func Find[T any](
	ctx context.Context, kind request.Kind, key types.NamespacedName, get func(context.Context, string, metav1.GetOptions) (*T, error),
) (*T, error) {
	object, err := get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no %s %s: %w", kind, key, err)
	case err != nil:
		return nil, fmt.Errorf("get %s %s: %w", kind, key, err)
	}
	return object, nil
}

// KeyOf returns namespace/name of an object.
func KeyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// Since is a time and how long ago it was, as "13:51:07 UTC (14m)".
func Since(t, now time.Time) string { return fmt.Sprintf("%s (%s)", Clock(t, now), Age(t, now)) }

// Clock is a time, as "13:51:07 UTC"; empty if it is zero.
func Clock(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return phrase.Clock(t, now)
}

// Age is how long ago a time was, as "14m"; empty if it is zero.
func Age(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return phrase.Span(max(now.Sub(t), 0))
}

// OneLine replaces all white space in a text by single spaces.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
