// Package kubecli is what the commands of millwright share: clients, flags, operator requests, tables and watches.
package kubecli

import (
	"context"
	"fmt"
	"slices"
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
	Clients func(Access) (Clients, error)
	// Namespace returns the namespace of the kubeconfig's context; a nil function stands for the namespace "default".
	Namespace func(Access) (string, error)
	Temporal  func(TemporalFlags) (client.Client, error)
	Now       func() time.Time
}

// NewEnvironment returns the real clusters, Temporal and clock.
func NewEnvironment() Environment {
	return Environment{Clients: Connect, Namespace: ContextNamespace, Temporal: Dial, Now: time.Now}
}

// Objects are the objects of one kind that a group of commands works on, in the cluster that its flags name.
type Objects struct {
	Environment
	Access
	Kind      request.Kind
	Namespace string
	Group     string // API group in the text that Key parsed last; empty: it had none
}

// Register adds the flags to a command and its subcommands.
func (o *Objects) Register(c *cobra.Command) {
	o.Access.Register(c)
	c.PersistentFlags().
		StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the "+string(o.Kind)+"; default: the namespace of the context")
	_ = c.RegisterFlagCompletionFunc("namespace", o.completeNamespace) // it fails only for a flag that does not exist
	c.PersistentPreRunE = func(*cobra.Command, []string) error { return o.Resolve() }
}

// Resolve sets the namespace to that of the context if the flag does not set it. Register lets it run before each
// command.
func (o *Objects) Resolve() (err error) {
	switch {
	case o.Namespace != "":
	case o.Environment.Namespace == nil:
		o.Namespace = metav1.NamespaceDefault
	default:
		o.Namespace, err = o.Environment.Namespace(o.Access)
	}
	return err
}

// Key parses the name of an object: NAMESPACE/NAME, NAME in the namespace of the flag, KIND/NAMESPACE/NAME, which lists
// print with -o name, or KIND.GROUP/NAME. It sets Group.
func (o *Objects) Key(c *cobra.Command, text string) (types.NamespacedName, error) {
	o.Group = ""
	namespace, name, both := strings.Cut(text, "/")
	word, group, grouped := strings.Cut(namespace, ".")
	same := slices.ContainsFunc(KindsOf(word), func(k NamedKind) bool { return k.Kind == o.Kind })
	if same && both && len(KindsOf(namespace)) > 0 && (grouped || strings.Contains(name, "/")) {
		o.Group, text = group, name
		namespace, name, both = strings.Cut(text, "/")
	}
	if !both {
		namespace, name = o.Namespace, text
	}
	switch {
	case namespace == "" || name == "" || strings.Contains(name, "/"):
		return types.NamespacedName{}, fmt.Errorf("%q names no %s: give NAME or NAMESPACE/NAME", text, o.Kind)
	case both && c.Flags().Changed("namespace") && namespace != o.Namespace:
		return types.NamespacedName{}, fmt.Errorf(
			"%s is in namespace %s, but --namespace says %s",
			text,
			namespace,
			o.Namespace,
		)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// Find reads an object of a kind with the method Get of its client. The error wraps that of Get.
func Find[T any](
	ctx context.Context,
	kind request.Kind,
	key types.NamespacedName,
	get func(context.Context, string, metav1.GetOptions) (*T, error),
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
