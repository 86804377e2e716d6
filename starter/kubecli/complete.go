package kubecli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/api/generated/clientset/versioned"
	"millwright/decide/request"
)

// completionTimeout is how long a shell waits for names. Source: a person who pressed Tab waits no longer.
const completionTimeout = 2 * time.Second

// KindClass is the kind of commands on MachineClasses.
const KindClass request.Kind = "MachineClass"

// CompleteName implements cobra.CompletionFunc: it offers the names of the objects of the kind in the namespace. It offers nothing when
// the cluster cannot be asked.
func (o *Objects) CompleteName(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.names(c, typed, o.Kind), cobra.ShellCompDirectiveNoFileComp
}

// CompleteKindAndName is CompleteName for KIND/NAME.
func (o *Objects) CompleteKindAndName(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kinds := map[string]request.Kind{"machinedeployment": request.MachineDeployment, "machine": request.Machine, "machineclass": KindClass}
	kind, name, given := strings.Cut(typed, "/")
	if !given {
		return []string{"machinedeployment/", "machine/", "machineclass/", "machineset/", "node/"}, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	var offered []string
	for _, n := range o.names(c, name, kinds[kind]) {
		offered = append(offered, kind+"/"+n)
	}
	return offered, cobra.ShellCompDirectiveNoFileComp
}

// names returns the names of objects that begin with what was typed.
func (o *Objects) names(c *cobra.Command, typed string, kind request.Kind) (names []string) {
	clients, err := o.Clients(o.Access)
	if err != nil || o.Resolve() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), completionTimeout)
	defer cancel()
	for _, object := range list(ctx, clients.Machines, o.Namespace, kind) {
		if strings.HasPrefix(object, typed) {
			names = append(names, object)
		}
	}
	return names
}

// list returns the names of the objects of a kind; none when they cannot be read.
func list(ctx context.Context, machines versioned.Interface, namespace string, kind request.Kind) (names []string) {
	api, all := machines.MachineV1alpha1(), metav1.ListOptions{}
	var found runtime.Object
	var err error
	switch kind {
	case request.Machine:
		found, err = api.Machines(namespace).List(ctx, all)
	case request.MachineDeployment:
		found, err = api.MachineDeployments(namespace).List(ctx, all)
	case KindClass:
		found, err = api.MachineClasses(namespace).List(ctx, all)
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	_ = meta.EachListItem(found, func(o runtime.Object) error { // a list of our types always has items
		names = append(names, o.(metav1.Object).GetName())
		return nil
	})
	return names
}
