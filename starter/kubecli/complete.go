package kubecli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/request"
)

// completionTimeout is how long a shell waits for names. A user who pressed Tab does not wait for more than 2 s.
const completionTimeout = 2 * time.Second

// Kinds that the command line has in addition to the kinds of package request.
const (
	KindClass             request.Kind = "MachineClass"
	KindSet               request.Kind = "MachineSet"
	KindNode              request.Kind = "Node"
	KindClusterAPISet     request.Kind = "ClusterAPISet"
	KindClusterAPIMachine request.Kind = "ClusterAPIMachine"
)

// KindClusterAPIDeployment is the kind of a MachineDeployment of Cluster API.
const KindClusterAPIDeployment request.Kind = "ClusterAPIDeployment"

// NamedKind is a kind with its names on the command line.
type NamedKind struct {
	Kind  request.Kind
	Names []string // in lower case
	Group string   // API group, which may follow the first or second name after a dot; empty if no group may follow
}

// HasName reports whether a word is one of the names, in upper or lower case, with or without the group.
func (k NamedKind) HasName(word string) bool {
	name, group, given := strings.Cut(strings.ToLower(word), ".")
	i := slices.Index(k.Names, name)
	return i >= 0 && (!given || i < 2 && group == k.Group && group != "")
}

// BelongsToClusterAPI reports whether the kind belongs to Cluster API.
func (k NamedKind) BelongsToClusterAPI() bool { return k.Group == clusterv1.GroupVersion.Group }

// FullName returns the unique name of the kind: the first of its Names, with the group for a Cluster API kind.
func (k NamedKind) FullName() string {
	if k.BelongsToClusterAPI() {
		return k.Names[0] + "." + k.Group
	}
	return k.Names[0]
}

// Kinds are the kinds of an argument KIND/NAME, in the order in which commands search for a NAME without a kind. If two
// kinds have equal names, Millwright's kind comes directly before Cluster API's kind. Messages name a kind by the first
// of its Names.
var Kinds = []NamedKind{
	{request.KindMachineDeployment, []string{"machinedeployment", "machinedeployments", "mcd"}, v1alpha1.GroupName},
	{KindClusterAPIDeployment, []string{"machinedeployment", "machinedeployments"}, clusterv1.GroupVersion.Group},
	{KindSet, []string{"machineset", "machinesets", "mcs"}, v1alpha1.GroupName},
	{KindClusterAPISet, []string{"machineset", "machinesets"}, clusterv1.GroupVersion.Group},
	{request.KindMachine, []string{"machine", "machines", "mc"}, v1alpha1.GroupName},
	{KindClusterAPIMachine, []string{"machine", "machines"}, clusterv1.GroupVersion.Group},
	{KindClass, []string{"machineclass", "machineclasses", "mcc"}, v1alpha1.GroupName},
	{KindNode, []string{"node", "nodes", "no"}, ""},
}

// KindsWithName returns the kinds that a word on the command line can mean. Without a group, the word can mean the
// kinds of both API groups; nil means that the word is no kind.
func KindsWithName(word string) []NamedKind {
	return list.Filter(Kinds, func(k NamedKind) bool { return k.HasName(word) })
}

// kindsLike returns the kinds of both API groups that have the same names as a kind.
func kindsLike(kind request.Kind) (kinds []request.Kind) {
	at := slices.IndexFunc(Kinds, func(k NamedKind) bool { return k.Kind == kind })
	for _, k := range Kinds {
		if at >= 0 && k.Names[0] == Kinds[at].Names[0] {
			kinds = append(kinds, k.Kind)
		}
	}
	return kinds
}

// UnknownKindError returns the error for a word that is no kind. The error names the short names of the kinds that a
// command accepts, and the name that the user may have meant.
func UnknownKindError(word string, accepts func(NamedKind) bool) error {
	var short, all []string
	for _, k := range list.Filter(Kinds, accepts) {
		all = append(all, k.Names...)
		if name := k.Names[min(2, len(k.Names)-1)]; !k.BelongsToClusterAPI() {
			if k.Kind == KindNode {
				name = k.Names[0]
			}
			short = append(short, name)
		}
	}
	closest := closestName(strings.ToLower(word), all)
	return fmt.Errorf(
		"unknown kind %q: use %s%s",
		word,
		strings.Join(short[:len(short)-1], ", ")+phrase.TextIf(len(short) > 1, " or ")+short[len(short)-1],
		phrase.TextIf(closest != "", "; did you mean %s?", closest),
	)
}

// maxSimilarNamespaces is how many namespaces with an object of the name a hint names.
const maxSimilarNamespaces = 3

// SimilarNameHint returns a clause with the object that a person may have meant who named an object of these kinds that
// does not exist: one of the same name in another namespace, or one of a similar name in the namespace. The clause
// begins with a semicolon; it is empty if there is no such object, or if the user may not list the objects.
func (c Clients) SimilarNameHint(ctx context.Context, kinds []request.Kind, key types.NamespacedName) string {
	var here, elsewhere []string
	for _, kind := range kinds {
		found := listObjectKeys(ctx, c, metav1.NamespaceAll, kind)
		if found == nil { // the user may be allowed to list the objects of this namespace only
			found = listObjectKeys(ctx, c, key.Namespace, kind)
		}
		for _, other := range found {
			switch {
			case other.Namespace == key.Namespace || other.Namespace == "":
				here = append(here, other.Name)
			case other.Name == key.Name:
				elsewhere = append(elsewhere, other.Namespace)
			}
		}
	}
	slices.Sort(here)
	slices.Sort(elsewhere)
	if elsewhere = slices.Compact(elsewhere); len(elsewhere) > 0 {
		return "; there is one in " + phrase.SingularOrPlural(len(elsewhere), "namespace ", "namespaces ") +
			phrase.JoinNames(elsewhere, maxSimilarNamespaces, ", ")
	}
	closest := closestName(key.Name, here)
	return phrase.TextIf(closest != "", "; did you mean %s?", closest)
}

// CompleteName implements cobra.CompletionFunc. CompleteName offers the objects of the kind in the forms that ParseKey
// parses: NAME in the namespace of the flag, and NAMESPACE/NAME. If the cluster does not answer, CompleteName offers
// nothing.
func (o *ObjectFlags) CompleteName(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 || len(args) == 1 && !o.hasName(args[0]) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.completions(c, typed, []request.Kind{o.Kind}), cobra.ShellCompDirectiveNoFileComp
}

// CompleteKindAndName is CompleteName for [KIND/][NAMESPACE/]NAME. Before the user types anything, CompleteKindAndName
// offers only the kinds and the deployments, because a cluster has many machines.
func (o *ObjectFlags) CompleteKindAndName(
	c *cobra.Command,
	args []string,
	typed string,
) (offered []string, directive cobra.ShellCompDirective) {
	if len(args) > 0 {
		known := KindsWithName(args[0])
		if len(args) > 1 || len(known) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		kinds := list.Map(known, func(k NamedKind) request.Kind { return k.Kind })
		return o.completions(c, typed, kinds), cobra.ShellCompDirectiveNoFileComp
	}
	word, name, given := strings.Cut(typed, "/")
	if known := KindsWithName(word); given && len(known) > 0 {
		for _, n := range o.completions(c, name, list.Map(known, func(k NamedKind) request.Kind { return k.Kind })) {
			offered = append(offered, word+"/"+n)
		}
		return offered, cobra.ShellCompDirectiveNoFileComp
	}
	kinds := []request.Kind{request.KindMachineDeployment}
	directive = cobra.ShellCompDirectiveNoFileComp
	if typed != "" {
		kinds = list.Map(Kinds, func(k NamedKind) request.Kind { return k.Kind })
	}
	for _, k := range Kinds {
		if full := k.FullName() + "/"; strings.HasPrefix(full, typed) && (!k.BelongsToClusterAPI() || o.hasClusterAPI()) {
			offered, directive = append(offered, full), directive|cobra.ShellCompDirectiveNoSpace
		}
	}
	return append(offered, o.completions(c, typed, kinds)...), directive
}

// hasClusterAPI reports whether Cluster API is installed in the cluster.
func (o *ObjectFlags) hasClusterAPI() bool {
	clients, err := o.NewClients(o.ClusterAccess)
	if err != nil {
		return false
	}
	has, err := clients.ClusterAPI.IsServed()
	return has && err == nil
}

// completions returns the completions of the typed text: NAME for objects in the namespace of the flag or of the
// context, and NAMESPACE/NAME for objects of all namespaces. The form NAMESPACE/NAME is omitted if the flag --namespace
// is given, or if nothing is typed and a NAME is offered.
func (o *ObjectFlags) completions(c *cobra.Command, typed string, kinds []request.Kind) (offered []string) {
	clients, err := o.NewClients(o.ClusterAccess)
	if err != nil || o.ResolveNamespace() != nil {
		return nil
	}
	ctx, cancel := completionContext(c)
	defer cancel()
	add := func(namespace string, text func(types.NamespacedName) string) {
		for _, kind := range kinds {
			for _, key := range listObjectKeys(ctx, clients, namespace, kind) {
				if name := text(key); strings.HasPrefix(name, typed) && !slices.Contains(offered, name) {
					offered = append(offered, name)
				}
			}
		}
	}
	within, _, both := strings.Cut(typed, "/")
	if both { // the user has typed the namespace
		add(within, types.NamespacedName.String)
		return offered
	}
	add(o.Namespace, func(key types.NamespacedName) string { return key.Name })
	if !c.Flags().Changed("namespace") && (typed != "" || len(offered) == 0) {
		// nodes have no namespace
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(kind request.Kind) bool { return kind == KindNode })
		add(metav1.NamespaceAll, types.NamespacedName.String)
	}
	return offered
}

// completionContext returns a context for a completion, with the timeout completionTimeout. When a shell asks for
// completions, the context of the command has already ended.
func completionContext(c *cobra.Command) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.Context()), completionTimeout)
}

// completeNamespace completes the flag --namespace; it is a cobra.CompletionFunc. A user who may not list namespaces
// gets the namespaces that have a deployment or a machine.
func (o *ObjectFlags) completeNamespace(
	c *cobra.Command,
	_ []string,
	typed string,
) (offered []string, _ cobra.ShellCompDirective) {
	clients, err := o.NewClients(o.ClusterAccess)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := completionContext(c)
	defer cancel()
	if clients.Core != nil {
		if found, err := clients.Core.Namespaces().List(ctx, metav1.ListOptions{}); err == nil {
			for i := range found.Items {
				offered = append(offered, found.Items[i].Name)
			}
		}
	}
	if len(offered) == 0 {
		for _, kind := range []request.Kind{request.KindMachineDeployment, request.KindMachine} {
			for _, key := range listObjectKeys(ctx, clients, metav1.NamespaceAll, kind) {
				offered = append(offered, key.Namespace)
			}
		}
	}
	slices.Sort(offered)
	return list.Filter(
		slices.Compact(offered),
		func(name string) bool { return strings.HasPrefix(name, typed) },
	), cobra.ShellCompDirectiveNoFileComp
}

// listObjectKeys returns the keys of the objects of a kind; nil if the objects cannot be read. Keys of nodes have no
// namespace.
func listObjectKeys(
	ctx context.Context,
	clients Clients,
	namespace string,
	kind request.Kind,
) (keys []types.NamespacedName) {
	api, all := clients.MachineClient.MachineV1alpha1(), metav1.ListOptions{}
	var found runtime.Object
	var err error
	switch kind {
	case request.KindMachine:
		found, err = api.Machines(namespace).List(ctx, all)
	case request.KindMachineDeployment:
		found, err = api.MachineDeployments(namespace).List(ctx, all)
	case KindClass:
		found, err = api.MachineClasses(namespace).List(ctx, all)
	case KindSet:
		found, err = api.MachineSets(namespace).List(ctx, all)
	case KindClusterAPISet, KindClusterAPIMachine, KindClusterAPIDeployment:
		return clients.ClusterAPI.listObjectKeys(ctx, namespace, kind)
	case KindNode:
		if clients.Core == nil {
			return nil
		}
		found, err = clients.Core.Nodes().List(ctx, all)
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	_ = meta.EachListItem(found, func(o runtime.Object) error { // each list has the field items, so no error is possible
		object := o.(metav1.Object)
		keys = append(keys, types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()})
		return nil
	})
	return keys
}
