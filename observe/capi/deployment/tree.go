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

// ObjectTree is a deployment with its sets, machines and related objects, all read at the same time.
type ObjectTree struct {
	Cache      *capi.Cache // decides which objects Millwright reconciles
	Deployment *clusterv1.MachineDeployment
	Sets       []*clusterv1.MachineSet // sets that the deployment controls, unsorted
	Orphans    []*clusterv1.MachineSet // sets of the deployment's namespace without a controller, unsorted
	Members    []*clusterv1.Machine    // machines that these sets control, unsorted
	Cluster    *clusterv1.Cluster      // nil if the Cluster does not exist
	// Templates contains the bootstrap template (if any) and the infrastructure template to which the deployment
	// refers.
	Templates []capi.ProviderObject
	// MissingBySet maps the UID of a set to the first object in the set's template that does not exist.
	MissingBySet map[types.UID]string
	Policy       *v1alpha1.RolloutPolicy // policy of the deployment; nil without a policy
	Siblings     []ObjectTree            // the deployments that take turns with the deployment, without machines
	// IsLive means that the tree comes from the API server: its machines are at least as new as the status of their
	// sets.
	IsLive   bool
	Absences cache.WorkerAbsences // times during which no worker was running
}

// ReadTree returns a deployment with its sets and machines from the caches. If the cache of a template's kind is not
// synced yet, the template's field WasRead is false. ReadTree returns an error if a kind is unknown because the API
// server does not answer.
func ReadTree(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (ObjectTree, error) {
	return readTree(ctx, c, d, c.Templates)
}

// ReadTreeForWrite is ReadTree for a decision that writes. ReadTreeForWrite reads a template from the API server if the
// cache of the template is not filled yet.
func ReadTreeForWrite(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (ObjectTree, error) {
	return readTree(ctx, c, d, c.TemplatesForWrite)
}

// templateReader reads the templates in the spec of a machine of a namespace.
type templateReader func(context.Context, string, *clusterv1.MachineSpec) ([]capi.ProviderObject, error)

func readTree(
	ctx context.Context,
	c *capi.Cache,
	d *clusterv1.MachineDeployment,
	templates templateReader,
) (ObjectTree, error) {
	f := ObjectTree{
		Cache:      c,
		Deployment: d,
		Sets:       c.SetsOfDeployment(d),
		Orphans:    c.SetsWithoutController(d.Namespace),
		Policy:     c.Cluster.PolicyOfObject(d),
		Absences:   c.Cluster.AbsencesOfNamespace(d.Namespace),
	}
	f = f.withCachedSiblings(c)
	for _, set := range f.Sets {
		f.Members = append(f.Members, c.MachinesOfSet(set)...)
	}
	f.Cluster, _ = c.ClusterByKey(d.Namespace + "/" + d.Spec.ClusterName)
	return f, f.readTemplates(ctx, templates)
}

// readTemplates reads the templates to which the deployment and its former sets refer. A set that has the deployment's
// current template is not read again. A set with the current template may be a former set, because a restart keeps the
// template.
func (f *ObjectTree) readTemplates(ctx context.Context, templates templateReader) (err error) {
	namespace := f.Deployment.Namespace
	if f.Templates, err = templates(ctx, namespace, &f.Deployment.Spec.Template.Spec); err != nil {
		return err
	}
	f.MissingBySet = map[types.UID]string{}
	for _, set := range f.Sets {
		named := f.Templates
		if !IsSameTemplate(&set.Spec.Template, &f.Deployment.Spec.Template) {
			if named, err = templates(ctx, namespace, &set.Spec.Template.Spec); err != nil {
				return err
			}
		}
		if lack := MissingTemplateText(namespace, named); lack != "" {
			f.MissingBySet[set.UID] = lack
		}
	}
	return nil
}

// MissingTemplateText returns the first template that does not exist, or the first kind of clones that is not
// installed; empty if nothing is missing.
func MissingTemplateText(namespace string, templates []capi.ProviderObject) string {
	for _, t := range templates {
		switch {
		case t.CloneKindMissing:
			return "the kind " + capi.CloneKind(t.Ref).String()
		case t.IsMissing():
			return fmt.Sprintf("%s %s/%s", t.Ref.Kind, namespace, t.Ref.Name)
		}
	}
	return ""
}

// ReadLiveTree returns a deployment with its sets and machines from the API server. ReadLiveTree reads the sets before
// the machines.
func ReadLiveTree(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (f ObjectTree, err error) {
	if f, err = ReadLiveTreeWithoutPolicy(ctx, c, d); err != nil {
		return f, err
	}
	f.Absences = c.Cluster.AbsencesOfNamespace(d.Namespace)
	if f.Policy, err = c.Cluster.LivePolicyOfObject(ctx, d); err == nil {
		f = f.withCachedSiblings(c)
	}
	return f, err
}

// ReadLiveTreeWithoutPolicy is ReadLiveTree without the policy and the absences, which only a worker needs.
func ReadLiveTreeWithoutPolicy(ctx context.Context, c *capi.Cache, d *clusterv1.MachineDeployment) (ObjectTree, error) {
	f, err := ReadLiveTreeWithoutMachines(ctx, c, d)
	if err != nil {
		return f, err
	}
	if err := f.listMachines(ctx); err != nil {
		return f, err
	}
	if f.Cluster, err = capi.ReadLiveObject(ctx, c.Client().Clusters(d.Namespace), d.Spec.ClusterName); err != nil {
		return f, err
	}
	return f, f.readTemplates(ctx, c.LiveTemplates)
}

// ReadLiveTreeWithoutMachines returns a deployment with its sets from the API server, without other objects. The result
// is enough to find the current set, and to compute which fields a set copies.
func ReadLiveTreeWithoutMachines(
	ctx context.Context,
	c *capi.Cache,
	d *clusterv1.MachineDeployment,
) (ObjectTree, error) {
	f := ObjectTree{Cache: c, Deployment: d, IsLive: true}
	sets, err := c.Client().MachineSets(d.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return f, fmt.Errorf("list machinesets of deployment %s: %w", d.Name, err)
	}
	for _, set := range cache.PointersToItems(sets.Items) {
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
func (f *ObjectTree) listMachines(ctx context.Context) error {
	var cached []*clusterv1.Machine
	for _, set := range f.Sets {
		cached = append(cached, f.Cache.MachinesOfSet(set)...)
	}
	d := f.Deployment
	machines, err := f.Cache.ListLiveMachines(ctx, d.Namespace, &d.Spec.Selector, cached)
	if err != nil {
		return fmt.Errorf("list machines of deployment %s: %w", d.Name, err)
	}
	for _, m := range machines {
		if slices.ContainsFunc(f.Sets, func(set *clusterv1.MachineSet) bool { return metav1.IsControlledBy(m, set) }) {
			f.Members = append(f.Members, m)
		}
	}
	return nil
}

// ResourceVersions returns the resource versions of all objects of a tree.
func (f ObjectTree) ResourceVersions() cache.MinVersions {
	v := capi.RelatedObjects{
		Members:    f.Members,
		Cluster:    f.Cluster,
		Deployment: f.Deployment,
		Templates:  f.Templates,
	}.ResourceVersions()
	for _, set := range slices.Concat(f.Sets, f.Orphans) {
		v.RaiseVersion(capi.SetsResource, set.ResourceVersion)
	}
	if f.Policy != nil {
		v.RaiseVersion(cache.RolloutPoliciesResource, f.Policy.ResourceVersion)
	}
	return v
}

// SelectsSet reports whether the selector of a deployment matches the labels of a set. An empty selector, or a selector
// that does not parse, matches no set.
func SelectsSet(d *clusterv1.MachineDeployment, set *clusterv1.MachineSet) bool {
	selector, err := metav1.LabelSelectorAsSelector(&d.Spec.Selector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(set.Labels))
}
