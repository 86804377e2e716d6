// Package deployment turns a MachineDeployment of Cluster API with its sets and machines into facts for decide, and
// holds what both the facts and the writes need: what a set follows, and what its status says.
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

// Tree is a deployment with its sets and machines and what is around it, as they were read at one moment.
type Tree struct {
	API        *capi.Cache // says which objects are Millwright's
	Deployment *clusterv1.MachineDeployment
	Sets       []*clusterv1.MachineSet // that it controls, in no order
	Orphans    []*clusterv1.MachineSet // sets of its namespace without a controller, in no order
	Members    []*clusterv1.Machine    // that these sets control, in no order
	Cluster    *clusterv1.Cluster      // nil: it does not exist
	// that the deployment's template names: the bootstrap template, if there is one, first
	Templates []capi.Foreign
	// the first object that the template of a set names and that does not exist, by the UID of the set
	Lacks  map[types.UID]string
	Policy *v1alpha1.RolloutPolicy // that applies to the deployment; nil: none
	// it was read from the API server: the machines are at least as new as the status of their sets
	Live     bool
	Absences cache.Absences // when no worker was at work
}

// Read returns a deployment with its sets and machines from the caches. A template whose cache is not filled yet is not
// Read. An error means that a kind is not known, because the API server does not answer.
func Read(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (Tree, error) {
	return read(ctx, c, d, c.Templates)
}

// ReadToAct is Read for a decision that is carried out. A template that the caches do not know yet is read from the API
// server.
func ReadToAct(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (Tree, error) {
	return read(ctx, c, d, c.TemplatesToAct)
}

// templatesOf reads the templates that the spec of a machine names, in a namespace.
type templatesOf func(context.Context, string, *clusterv1.MachineSpec) ([]capi.Foreign, error)

func read(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment, templates templatesOf) (Tree, error) {
	f := Tree{
		API:        c,
		Deployment: d,
		Sets:       c.SetsOf(d),
		Orphans:    c.FreeSets(d.Namespace),
		Policy:     c.Cluster.PolicyOf(d),
		Absences:   c.Cluster.Absences(),
	}
	for _, set := range f.Sets {
		f.Members = append(f.Members, c.MachinesOf(set)...)
	}
	f.Cluster, _ = c.ClusterNamed(d.Namespace + "/" + d.Spec.ClusterName)
	return f, f.readTemplates(ctx, templates)
}

// readTemplates reads the templates of the deployment and those of the former sets. A set of the present template needs
// no look of its own.
func (f *Tree) readTemplates(ctx context.Context, templates templatesOf) (err error) {
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

// Lacking names the first of these templates that does not exist, or whose clones are of a kind that is not installed;
// empty: none.
func Lacking(namespace string, templates []capi.Foreign) string {
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

// ReadLive returns a deployment with its sets and machines from the API server. The sets are read before the machines.
func ReadLive(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (f Tree, err error) {
	if f, err = ReadAlone(ctx, c, d); err != nil {
		return f, err
	}
	f.Absences = c.Cluster.Absences()
	f.Policy, err = c.Cluster.LivePolicyOf(ctx, d)
	return f, err
}

// ReadAlone is ReadLive without what only a worker knows or has to know: the policy, and when no worker was at work.
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

// ReadSets returns a deployment with its sets from the API server, and nothing else: enough to know which set is the
// current one, and what a set follows.
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

// Versions returns the versions of all objects of a tree.
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

// Selects reports whether the selector of a deployment matches the labels of a set. An empty or unreadable selector
// matches none.
func Selects(d *clusterv1.MachineDeployment, set *clusterv1.MachineSet) bool {
	selector, err := metav1.LabelSelectorAsSelector(&d.Spec.Selector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(set.Labels))
}
