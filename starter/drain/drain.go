// Package drain has the commands that show and change drains, and preserve machines.
package drain

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/starter/kubecli"
)

// drains has the flags of all drain commands.
type drains struct {
	kubecli.Environment
	kubeconfig string
	temporalAt kubecli.TemporalFlags
	namespace  string
}

// Command returns the command drain.
func Command(d kubecli.Environment) *cobra.Command {
	f := &drains{Environment: d}
	c := &cobra.Command{
		Use:   "drain",
		Short: "Show why deleted machines are still there, and change it",
		Long: `drain shows how far the deletion of machines has come: which stage, what blocks it, and what happens next. Nodes that are
emptied although their machines stay, for an in-place update or a preservation, are shown and changed alike. Requests
(extend, hold and so on) are annotations on a Machine, each with who wants it and why; kubectl annotate does the same.

A machine is given as NAMESPACE/NAME, or as NAME with --namespace. All clock times are UTC.`,
		Example: `  starter drain list --all-namespaces --stuck
  starter drain explain shop/m-1
  starter drain extend shop/m-1 --for 1h --reason "the backup needs longer"`,
	}
	flags := c.PersistentFlags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of the cluster that holds the machines")
	flags.StringVarP(&f.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the machine")
	f.temporalAt.Register(c)
	c.AddCommand(f.listCommand(), f.explainCommand(), f.watchCommand())
	for _, h := range drainCommands() {
		c.AddCommand(kubecli.RequestCommand(request.Machine, h, f.send))
	}
	return c
}

// key parses the name of a machine as users give it.
func (f *drains) key(c *cobra.Command, text string) (types.NamespacedName, error) {
	return kubecli.ReadKey(c, "machine", text, f.namespace)
}

// send writes a request on the machine of this name.
func (f *drains) send(c *cobra.Command, name string, r kubecli.Request) error {
	key, err := f.key(c, name)
	if err != nil {
		return err
	}
	return f.Send(c, f.kubeconfig, key, r, machineSubject)
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

// notDeleting is the refusal of a command that is only for machines that are being deleted.
func notDeleting(m *v1alpha1.Machine) error {
	return fmt.Errorf("machine %s is not being deleted: its phase is %s", kubecli.KeyOf(m), kubecli.Status(*m))
}
