// Package deployment derives facts for decide from a MachineDeployment of Cluster API with its sets and machines.
// Package deployment also contains functions that facts and writes share: the fields that a set copies, and the content
// of the status.
package deployment

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/observe/cache"
	"millwright/observe/capi"
)

// Tree is a deployment with its sets, machines and related objects, all read at the same time.
type Tree struct {
	API        *capi.Cache // decides which objects are Millwright's
	Deployment *clusterv1.MachineDeployment
	Sets       []*clusterv1.MachineSet // sets that the deployment controls, unsorted
	Orphans    []*clusterv1.MachineSet // sets of its namespace without a controller, unsorted
	Members    []*clusterv1.Machine    // machines that these sets control, unsorted
	Cluster    *clusterv1.Cluster      // nil: the Cluster does not exist
	// Templates holds the templates in the deployment's template: first the bootstrap template, if any.
	Templates []capi.ProviderObject
	// Lacks maps the UID of a set to the first object in the set's template that does not exist.
	Lacks  map[types.UID]string
	Policy *v1alpha1.RolloutPolicy // policy of the deployment; nil without a policy
	// Live means that the tree comes from the API server: its machines are at least as new as the status of their sets.
	Live     bool
	Absences cache.Absences // times when no worker was working
}

// Read returns a deployment with its sets and machines from the caches. A template whose cache is not yet filled has
// Read false. Read returns an error if a kind is unknown because the API server does not answer.
func Read(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (Tree, error) {
	return readTree(ctx, c, d, c.Templates)
}

// ReadToAct does the same as Read, for a decision that writes. ReadToAct reads from the API server the templates that
// the caches do not know yet.
func ReadToAct(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (Tree, error) {
	return readTree(ctx, c, d, c.TemplatesToAct)
}

// templateReader reads the templates in the spec of a machine of a namespace.
type templateReader func(context.Context, string, *clusterv1.MachineSpec) ([]capi.ProviderObject, error)

func readTree(
	ctx context.Context,
	c *capi.Cache,
	d *clusterv1.MachineDeployment,
	templates templateReader,
) (Tree, error) {
	f := Tree{
		API:        c,
		Deployment: d,
		Sets:       c.SetsOf(d),
		Orphans:    c.SetsWithoutController(d.Namespace),
		Policy:     c.Cluster.PolicyOf(d),
		Absences:   c.Cluster.Absences(),
	}
	for _, set := range f.Sets {
		f.Members = append(f.Members, c.MachinesOf(set)...)
	}
	f.Cluster, _ = c.ClusterNamed(d.Namespace + "/" + d.Spec.ClusterName)
	return f, f.readTemplates(ctx, templates)
}

// readTemplates reads the templates of the deployment and of the former sets. A set with the current template needs no
// read of its own.
func (f *Tree) readTemplates(ctx context.Context, templates templateReader) (err error) {
	namespace := f.Deployment.Namespace
	if f.Templates, err = templates(ctx, namespace, &f.Deployment.Spec.Template.Spec); err != nil {
		return err
	}
	f.Lacks = map[types.UID]string{}
	for _, set := range f.Sets {
		if SameTemplate(&set.Spec.Template, &f.Deployment.Spec.Template) {
			continue
		}
		named, err := templates(ctx, namespace, &set.Spec.Template.Spec)
		if err != nil {
			return err
		}
		if lack := Lacking(namespace, named); lack != "" {
			f.Lacks[set.UID] = lack
		}
	}
	return nil
}

// Lacking returns the first template that does not exist, or the first kind of clones that is not installed; empty if
// nothing is missing.
func Lacking(namespace string, templates []capi.ProviderObject) string {
	for _, t := range templates {
		switch {
		case t.NoClones:
			return "the kind " + capi.CloneKind(t.Ref).String()
		case t.Missing():
			return fmt.Sprintf("%s %s/%s", t.Ref.Kind, namespace, t.Ref.Name)
		}
	}
	return ""
}

// ReadLive returns a deployment with its sets and machines from the API server. ReadLive reads the sets before the
// machines.
func ReadLive(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (f Tree, err error) {
	if f, err = ReadAlone(ctx, c, d); err != nil {
		return f, err
	}
	f.Absences = c.Cluster.Absences()
	f.Policy, err = c.Cluster.LivePolicyOf(ctx, d)
	return f, err
}

// ReadAlone does the same as ReadLive, without the policy and the absences, which only a worker knows or needs.
func ReadAlone(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (Tree, error) {
	f, err := ReadSets(ctx, c, d)
	if err != nil {
		return f, err
	}
	if err := f.listMachines(ctx); err != nil {
		return f, err
	}
	if f.Cluster, err = capi.Live(ctx, c.Client().Clusters(d.Namespace), d.Spec.ClusterName); err != nil {
		return f, err
	}
	return f, f.readTemplates(ctx, c.TemplatesLive)
}

// ReadSets returns a deployment with its sets from the API server, without other objects. The result is enough to find
// the current set, and to compute which fields a set copies.
func ReadSets(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (Tree, error) {
	f := Tree{API: c, Deployment: d, Live: true}
	sets, err := c.Client().Sets(d.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return f, fmt.Errorf("list machinesets of deployment %s: %w", d.Name, err)
	}
	for _, set := range cache.Pointers(sets.Items) {
		switch {
		case metav1.IsControlledBy(set, d):
			f.Sets = append(f.Sets, set)
		case metav1.GetControllerOf(set) == nil:
			f.Orphans = append(f.Orphans, set)
		}
	}
	return f, nil
}

// listMachines reads the machines of the sets.
func (f *Tree) listMachines(ctx context.Context) error {
	machines, err := f.API.Client().Machines(f.Deployment.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machines of deployment %s: %w", f.Deployment.Name, err)
	}
	for _, m := range cache.Pointers(machines.Items) {
		if slices.ContainsFunc(f.Sets, func(set *clusterv1.MachineSet) bool { return metav1.IsControlledBy(m, set) }) {
			f.Members = append(f.Members, m)
		}
	}
	return nil
}

// Versions returns the resource versions of all objects of a tree.
func (f Tree) Versions() cache.MinVersions {
	v := capi.Related{Members: f.Members, Cluster: f.Cluster, Deployment: f.Deployment, Templates: f.Templates}.Versions()
	for _, set := range slices.Concat(f.Sets, f.Orphans) {
		v.Raise(capi.SetsResource, set.ResourceVersion)
	}
	if f.Policy != nil {
		v.Raise(cache.Policies, f.Policy.ResourceVersion)
	}
	return v
}

// Selects reports whether the selector of a deployment matches the labels of a set. An empty selector, or a selector
// that does not parse, matches no set.
func Selects(d *clusterv1.MachineDeployment, set *clusterv1.MachineSet) bool {
	selector, err := metav1.LabelSelectorAsSelector(&d.Spec.Selector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(set.Labels))
}
