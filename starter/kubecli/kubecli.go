// Package kubecli has the parts that the commands of millwright share: clients, flags, operator requests, tables and
// watches.
package kubecli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.temporal.io/sdk/client"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/decide/phrase"
	"millwright/decide/request"
)

// Environment has the constructors of clients, and the clock, for all commands.
type Environment struct {
	NewClients func(ClusterAccess) (Clients, error)
	// ContextNamespace returns the namespace of the kubeconfig's context; if ContextNamespace is nil, the namespace is
	// "default".
	ContextNamespace func(ClusterAccess) (string, error)
	DialTemporal     func(TemporalFlags) (client.Client, error)
	Now              func() time.Time
}

// NewEnvironment returns an Environment that connects to real clusters and Temporal, and uses the real clock.
func NewEnvironment() Environment {
	return Environment{
		NewClients:       NewClients,
		ContextNamespace: ContextNamespace,
		DialTemporal:     DialTemporal,
		Now:              time.Now,
	}
}

// ObjectFlags has the flags of a group of commands that work on objects of one kind in one cluster.
type ObjectFlags struct {
	Environment
	ClusterAccess
	Kind      request.Kind
	Namespace string
	Group     string // API group in the text that ParseKey parsed last; empty if the text had no group
}

// RegisterFlags adds the flags to a command and its subcommands.
func (o *ObjectFlags) RegisterFlags(c *cobra.Command) {
	o.ClusterAccess.RegisterFlags(c)
	c.PersistentFlags().
		StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the "+string(o.Kind)+"; default: the namespace of the context")
	// an error is possible only for a flag that does not exist
	_ = c.RegisterFlagCompletionFunc("namespace", o.completeNamespace)
	c.PersistentPreRunE = func(*cobra.Command, []string) error { return o.ResolveNamespace() }
}

// ResolveNamespace sets Namespace to the namespace of the context if the flag is not given. RegisterFlags makes cobra
// call ResolveNamespace before each command.
func (o *ObjectFlags) ResolveNamespace() (err error) {
	switch {
	case o.Namespace != "":
	case o.ContextNamespace == nil:
		o.Namespace = metav1.NamespaceDefault
	default:
		o.Namespace, err = o.ContextNamespace(o.ClusterAccess)
	}
	return err
}

// ParseKey parses the argument that names an object, and sets Group. The argument has the form NAMESPACE/NAME, NAME (in
// the namespace of the flag), KIND/NAME, KIND/NAMESPACE/NAME (as lists print it with -o name), or KIND.GROUP/NAME. The
// kind may also be an argument of its own, as in kubectl: KIND NAME. ObjectArgs must have accepted args.
func (o *ObjectFlags) ParseKey(c *cobra.Command, args []string) (types.NamespacedName, error) {
	o.Group = ""
	word, text := "", args[len(args)-1]
	if len(args) > 1 {
		word = args[0]
	} else if first, rest, both := strings.Cut(text, "/"); both && (o.hasName(first) || strings.Contains(rest, "/")) {
		word, text = first, rest
	}
	switch kinds := KindsWithName(word); {
	case word == "":
	case o.hasName(word):
		_, o.Group, _ = strings.Cut(word, ".")
	case len(kinds) > 0:
		return types.NamespacedName{}, fmt.Errorf(
			"%q names a %s, and no %s",
			strings.Join(args, " "),
			kinds[0].Names[0],
			o.Kind,
		)
	default:
		return types.NamespacedName{}, UnknownKindError(word, o.hasKind)
	}
	namespace, name, both := strings.Cut(text, "/")
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

// hasName reports whether a word names the kind of the objects.
func (o *ObjectFlags) hasName(word string) bool {
	return slices.ContainsFunc(KindsWithName(word), o.hasKind)
}

// hasKind reports whether the commands work on objects of a kind. A kind of Cluster API counts as the kind of the same
// name.
func (o *ObjectFlags) hasKind(k NamedKind) bool {
	return slices.ContainsFunc(Kinds, func(own NamedKind) bool {
		return own.Kind == o.Kind && own.Names[0] == k.Names[0]
	})
}

// ObjectArgs accepts the arguments that name one object: [KIND/][NAMESPACE/]NAME, or KIND NAME.
func ObjectArgs(c *cobra.Command, args []string) error {
	return cobra.RangeArgs(1, 2)(c, args)
}

// FindObject reads an object of a kind with the method Get of its client. The returned error wraps the error of Get. If
// the object does not exist, the error names the object that the user may have meant.
func FindObject[T any](
	ctx context.Context,
	clients Clients,
	kind request.Kind,
	key types.NamespacedName,
	get func(context.Context, string, metav1.GetOptions) (*T, error),
) (*T, error) {
	object, err := get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, notFoundError{kind, key, clients.SimilarNameHint(ctx, kindsLike(kind), key), err}
	case err != nil:
		return nil, fmt.Errorf("get %s %s: %w", kind, key, err)
	}
	return object, nil
}

// notFoundError is the error for an object that does not exist. notFoundError wraps the API server's error, but not its
// message, which would repeat the name.
type notFoundError struct {
	kind request.Kind
	key  types.NamespacedName
	hint string // clause with the object that the user may have meant; empty if there is none
	error
}

func (e notFoundError) Error() string {
	return fmt.Sprintf(
		"there is no %s %s",
		e.kind,
		e.key,
	) + e.hint + phrase.TextIf(
		e.kind == request.KindMachine,
		"%s",
		DeletedMachineHint(e.key),
	)
}

func (e notFoundError) Unwrap() error { return e.error }

// DeletedMachineHint returns the clause with the command that shows the history of a machine that is gone.
func DeletedMachineHint(machine types.NamespacedName) string {
	return fmt.Sprintf(
		"; what happened to a machine that is gone: `millwright history %s`",
		machine,
	)
}

// KeyOfObject returns namespace/name of an object.
func KeyOfObject(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// TimeWithAgeText formats a time with its age, as "13:51:07 UTC (14m)".
func TimeWithAgeText(t, now time.Time) string {
	return fmt.Sprintf("%s (%s)", ClockText(t, now), AgeText(t, now))
}

// ClockText formats a time, as "13:51:07 UTC"; empty for the zero time.
func ClockText(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return phrase.ClockText(t, now)
}

// AgeText formats the age of a time, as "14m"; empty for the zero time.
func AgeText(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return phrase.AgeText(max(now.Sub(t), 0))
}

// CollapseSpaces replaces all white space in a text by single spaces.
func CollapseSpaces(text string) string { return strings.Join(strings.Fields(text), " ") }

// EmptyListText returns the text instead of an empty list: the text none with the namespace of the flag, and how many
// objects all other namespaces have. The function countAll counts the objects of all namespaces; an error of countAll, for
// example because the user may not list them, leaves the number out.
func (o *ObjectFlags) EmptyListText(
	ctx context.Context,
	clients Clients,
	none string,
	countAll func(context.Context) (int, error),
) string {
	if o.Namespace == metav1.NamespaceAll {
		return none
	}
	text := none + " in namespace " + o.Namespace
	if clients.Core != nil {
		_, err := clients.Core.Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			text = "there is no namespace " + o.Namespace
		}
	}
	if n, err := countAll(ctx); err == nil && n > 0 {
		text += fmt.Sprintf("; %d elsewhere: -A", n)
	}
	return text
}

// AddFormerFlag adds the former name of a boolean flag. The former name works, is not in the help, and says its new
// name when somebody uses it.
func AddFormerFlag(flags *pflag.FlagSet, value *bool, former, now string) {
	flags.BoolVar(value, former, false, "the former name of --"+now)
	// an error is possible only for a flag that does not exist
	_ = flags.MarkDeprecated(former, "use --"+now)
}
