package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
)

// door is how the commands for machines and deployments reach the world.
type door struct {
	machines func(kubeconfig string) (versioned.Interface, error)
	events   func(kubeconfig string) (typedcorev1.EventsGetter, error)
	nodes    func(kubeconfig string) (typedcorev1.NodesGetter, error)
	temporal func(temporalFlags) (temporal, error)
	now      func() time.Time
}

func frontDoor() door {
	return door{
		machines: func(kubeconfig string) (versioned.Interface, error) {
			c, err := connect(kubeconfig)
			return c.machines, err
		},
		events: func(kubeconfig string) (typedcorev1.EventsGetter, error) {
			c, err := connect(kubeconfig)
			return c.events, err
		},
		nodes: func(kubeconfig string) (typedcorev1.NodesGetter, error) {
			c, err := connect(kubeconfig)
			return c.nodes, err
		},
		temporal: dial,
		now:      time.Now,
	}
}

// drains is what every drain command was told.
type drains struct {
	door
	kubeconfig string
	temporalAt temporalFlags
	namespace  string
}

func drainCommand(d door) *cobra.Command {
	f := &drains{door: d}
	c := &cobra.Command{
		Use:   "drain",
		Short: "See why machines that are to go do not, and change it",
		Long: `drain shows how far the deletion of machines has come: which stage, what blocks it, and what happens next. Nodes that are
emptied although their machines stay, for an in-place update or a preservation, are shown and steered alike. Its verbs write
annotations on a Machine, each with who wants it and why; the same can be done with kubectl annotate.

A machine is given as NAMESPACE/NAME, or as NAME with --namespace. All clock times are UTC.`,
		Example: `  starter drain list --all-namespaces --stuck
  starter drain explain shop/m-1
  starter drain extend shop/m-1 --for 1h --reason "the backup needs longer"`,
	}
	flags := c.PersistentFlags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the cluster that holds the machines")
	flags.StringVarP(&f.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the machine")
	f.temporalAt.register(c)
	c.AddCommand(f.listCommand(), f.explainCommand(), f.watchCommand())
	for _, w := range wishes() {
		c.AddCommand(f.verbCommand(w))
	}
	return c
}

// key reads the name of a machine as people give it.
func (f *drains) key(c *cobra.Command, text string) (types.NamespacedName, error) {
	return readKey(c, "machine", text, f.namespace)
}

// readKey reads the name of an object of some kind as people give it: with its namespace, or without when a flag says that.
func readKey(c *cobra.Command, kind, text, flag string) (types.NamespacedName, error) {
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

// find reads a machine.
func find(ctx context.Context, machines versioned.Interface, key types.NamespacedName) (*v1alpha1.Machine, error) {
	m, err := machines.MachineV1alpha1().Machines(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no machine %s: %w", key, err)
	case err != nil:
		return nil, fmt.Errorf("get machine %s: %w", key, err)
	}
	return m, nil
}

// notDeleting is the refusal of what makes sense only for a machine that is to go.
func notDeleting(m *v1alpha1.Machine) error {
	return fmt.Errorf("machine %s is not being deleted: its phase is %s", keyOf(m), status(*m))
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// clock is a time in UTC, with the day only when that is not today.
func clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Truncate(24 * time.Hour).Equal(now.Truncate(24 * time.Hour)) {
		return t.Format(time.TimeOnly + " MST")
	}
	return t.Format(time.DateTime + " MST")
}

// since is a time with how long ago it was, as "13:51:07 UTC (14m)".
func since(t, now time.Time) string {
	return fmt.Sprintf("%s (%s)", clock(t, now), age(t, now))
}

// age is how long ago something was.
func age(t, now time.Time) string { return duration.HumanDuration(max(now.Sub(t), 0)) }

// when is a time with how far away it is.
func when(t, now time.Time) string {
	if t.After(now) {
		return fmt.Sprintf("%s (in %s)", clock(t, now), duration.HumanDuration(t.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", clock(t, now), age(t, now))
}

// orDash keeps a column of a table visible.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
