package kubecli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright/decide/request"
)

// completionTimeout is how long a shell waits for names. Source: a person who pressed Tab waits no longer.
const completionTimeout = 2 * time.Second

// Kinds that take no requests.
const (
	KindClass request.Kind = "MachineClass"
	KindSet   request.Kind = "MachineSet"
	KindNode  request.Kind = "Node"
)

// NamedKind is a kind with its names on the command line.
type NamedKind struct {
	Kind  request.Kind
	Names []string // in lower case
}

// Is reports whether a word is one of the names, in any case of letters.
func (k NamedKind) Is(word string) bool { return slices.Contains(k.Names, strings.ToLower(word)) }

// Kinds are the kinds that KIND/NAME can name, in the order in which a name without a kind is looked for. The first of the Names is the
// kind's word in messages.
var Kinds = []NamedKind{
	{request.MachineDeployment, []string{"machinedeployment", "machinedeployments", "mcd"}},
	{KindSet, []string{"machineset", "machinesets", "mcs"}},
	{request.Machine, []string{"machine", "machines", "mc"}},
	{KindClass, []string{"machineclass", "machineclasses", "mcc"}},
	{KindNode, []string{"node", "nodes", "no"}},
}

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
	word, name, given := strings.Cut(typed, "/")
	var offered []string
	if !given {
		for _, k := range Kinds {
			offered = append(offered, k.Names[0]+"/")
		}
		return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	if i := slices.IndexFunc(Kinds, func(k NamedKind) bool { return k.Is(word) }); i >= 0 {
		for _, n := range o.names(c, name, Kinds[i].Kind) {
			offered = append(offered, word+"/"+n)
		}
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
	for _, object := range list(ctx, clients, o.Namespace, kind) {
		if strings.HasPrefix(object, typed) {
			names = append(names, object)
		}
	}
	return names
}

// list returns the names of the objects of a kind; none when they cannot be read.
func list(ctx context.Context, clients Clients, namespace string, kind request.Kind) (names []string) {
	api, all := clients.Machines.MachineV1alpha1(), metav1.ListOptions{}
	var found runtime.Object
	var err error
	switch kind {
	case request.Machine:
		found, err = api.Machines(namespace).List(ctx, all)
	case request.MachineDeployment:
		found, err = api.MachineDeployments(namespace).List(ctx, all)
	case KindClass:
		found, err = api.MachineClasses(namespace).List(ctx, all)
	case KindSet:
		found, err = api.MachineSets(namespace).List(ctx, all)
	case KindNode:
		found, err = clients.Core.Nodes().List(ctx, all)
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	_ = meta.EachListItem(found, func(o runtime.Object) error { // these lists always have items
		names = append(names, o.(metav1.Object).GetName())
		return nil
	})
	return names
}
