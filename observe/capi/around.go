package capi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	observecache "millwright/observe/cache"
)

// Foreign is an object of a provider that a set refers to.
type Foreign struct {
	Ref      clusterv1.ContractVersionedObjectReference
	Resource schema.GroupVersionResource // zero: the kind is not installed
	Object   *unstructured.Unstructured  // nil: it does not exist, or was not read yet
	Read     bool                        // it was read; with a nil Object it does not exist
	NoClones bool                        // it is a template, and the kind of its clones is not installed
}

// Missing reports whether the object was looked for and does not exist, or the kind of its clones does not.
func (f Foreign) Missing() bool { return f.Read && f.Object == nil || f.NoClones }

// Related holds what the facts about a set need besides the set.
type Related struct {
	Members      []*clusterv1.Machine // machines that the set controls, in no order
	Orphans      []*clusterv1.Machine // machines of its namespace without a controller, in no order
	Cluster      *clusterv1.Cluster   // nil: it does not exist
	Deployment   *clusterv1.MachineDeployment
	Templates    []Foreign // the bootstrap template, if there is one, then the infrastructure template
	ControlPlane *Foreign  // nil: the Cluster names none
	// the set that an annotation names to get the surplus of this one; nil: none is named, or it does not exist
	Receiver *clusterv1.MachineSet
}

// Versions returns the versions of all objects around a set.
func (a Related) Versions() observecache.MinVersions {
	v := observecache.MinVersions{}
	for _, m := range slices.Concat(a.Members, a.Orphans) {
		v.Raise(MachinesResource, m.ResourceVersion)
	}
	if a.Cluster != nil {
		v.Raise(ClustersResource, a.Cluster.ResourceVersion)
	}
	if a.Deployment != nil {
		v.Raise(DeploymentsResource, a.Deployment.ResourceVersion)
	}
	if a.Receiver != nil {
		v.Raise(SetsResource, a.Receiver.ResourceVersion)
	}
	for _, f := range a.foreign() {
		if f.Object != nil {
			v.Raise(ResourceName(f.Resource), f.Object.GetResourceVersion())
		}
	}
	return v
}

func (a Related) foreign() []Foreign {
	all := slices.Clone(a.Templates)
	if a.ControlPlane != nil {
		all = append(all, *a.ControlPlane)
	}
	return all
}

// reader reads what is around a set, from the caches or from the API server.
type reader struct {
	machines   func() (members, orphans []*clusterv1.Machine, err error)
	cluster    func() (*clusterv1.Cluster, error)
	deployment func(name string) (*clusterv1.MachineDeployment, error)
	receiver   func(name string) (*clusterv1.MachineSet, error)
	foreign    func(clusterv1.ContractVersionedObjectReference) (Foreign, error)
	unknown    func(schema.GroupKind) (bool, error) // whether a kind is not installed
}

// templates reads the templates that a spec names.
func (r reader) templates(spec *clusterv1.MachineSpec) (all []Foreign, err error) {
	for _, ref := range templates(spec) {
		f, err := r.foreign(ref)
		if err != nil {
			return nil, err
		}
		if f.NoClones, err = r.unknown(CloneKind(ref)); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// around reads what is around a set. Kinds that are not installed count as missing.
func around(set *clusterv1.MachineSet, r reader) (a Related, err error) {
	if a.Members, a.Orphans, err = r.machines(); err != nil {
		return a, err
	}
	if a.Cluster, err = r.cluster(); err != nil {
		return a, err
	}
	if name := set.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		if a.Deployment, err = r.deployment(name); err != nil {
			return a, err
		}
	}
	if name := set.Annotations[clusterv1.MachineSetMoveMachinesToMachineSetAnnotation]; name != "" {
		if a.Receiver, err = r.receiver(name); err != nil {
			return a, err
		}
	}
	if a.Templates, err = r.templates(&set.Spec.Template.Spec); err != nil {
		return a, err
	}
	if a.Cluster != nil && a.Cluster.Spec.ControlPlaneRef.IsDefined() {
		f, err := r.foreign(a.Cluster.Spec.ControlPlaneRef)
		if err != nil {
			return a, err
		}
		a.ControlPlane = &f
	}
	return a, nil
}

// unknown reports whether a kind is not installed, or follows no known contract.
func (c *Cache) unknown(ctx context.Context) func(schema.GroupKind) (bool, error) {
	return func(kind schema.GroupKind) (bool, error) {
		_, err := c.Resource(ctx, kind)
		if errors.Is(err, ErrNoKind) {
			return true, nil
		}
		return false, err
	}
}

// Read returns what is around a set from the caches. A template or control plane whose cache is not filled yet is not
// Read. An error means that a kind is not known, because the API server does not answer.
func (c *Cache) Read(ctx context.Context, set *clusterv1.MachineSet) (Related, error) {
	return around(set, reader{
		unknown: c.unknown(ctx),
		machines: func() (members, orphans []*clusterv1.Machine, err error) {
			return c.MachinesOf(set), c.FreeMachines(set.Namespace), nil
		},
		cluster: func() (*clusterv1.Cluster, error) {
			cluster, _ := c.ClusterOf(set)
			return cluster, nil
		},
		deployment: func(name string) (*clusterv1.MachineDeployment, error) {
			d, _ := c.Deployment(set.Namespace + "/" + name)
			return d, nil
		},
		receiver: func(name string) (*clusterv1.MachineSet, error) {
			s, _ := c.Set(set.Namespace + "/" + name)
			return s, nil
		},
		foreign: c.cached(ctx, set.Namespace),
	})
}

// cached returns a reader of the objects of providers in a namespace, from their caches.
func (c *Cache) cached(
	ctx context.Context,
	namespace string,
) func(clusterv1.ContractVersionedObjectReference) (Foreign, error) {
	return func(ref clusterv1.ContractVersionedObjectReference) (Foreign, error) {
		o, resource, read, err := c.Foreign(ctx, namespace, ref)
		if errors.Is(err, ErrNoKind) {
			return Foreign{Ref: ref, Read: true}, nil
		}
		return Foreign{Ref: ref, Resource: resource, Object: o, Read: read}, err
	}
}

// Templates returns the templates that the spec of a machine names, the bootstrap template first, from the caches. A
// template whose cache is not filled yet is not Read. An error means that a kind is not known, because the API server
// does not answer.
func (c *Cache) Templates(ctx context.Context, namespace string, spec *clusterv1.MachineSpec) ([]Foreign, error) {
	return reader{unknown: c.unknown(ctx), foreign: c.cached(ctx, namespace)}.templates(spec)
}

// TemplatesToAct is Templates for a decision that is carried out. What the caches do not know yet is read from the API
// server.
func (c *Cache) TemplatesToAct(ctx context.Context, namespace string, spec *clusterv1.MachineSpec) ([]Foreign, error) {
	all, err := c.Templates(ctx, namespace, spec)
	for i := range all {
		if err := c.readLive(ctx, namespace, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, err
}

// TemplatesLive is Templates from the API server.
func (c *Cache) TemplatesLive(ctx context.Context, namespace string, spec *clusterv1.MachineSpec) ([]Foreign, error) {
	return reader{unknown: c.unknown(ctx), foreign: c.live(ctx, namespace)}.templates(spec)
}

// ReadToAct is Read for a decision that is carried out. What the caches do not know yet is read from the API server.
func (c *Cache) ReadToAct(ctx context.Context, set *clusterv1.MachineSet) (Related, error) {
	a, err := c.Read(ctx, set)
	if err != nil {
		return a, err
	}
	for i := range a.Templates {
		if err := c.readLive(ctx, set.Namespace, &a.Templates[i]); err != nil {
			return a, err
		}
	}
	if a.ControlPlane != nil {
		err = c.readLive(ctx, set.Namespace, a.ControlPlane)
	}
	return a, err
}

// readLive reads an object of a provider from the API server unless it is read already.
func (c *Cache) readLive(ctx context.Context, namespace string, f *Foreign) (err error) {
	if f.Read {
		return nil
	}
	f.Object, err = c.client.Objects.Resource(f.Resource).Namespace(namespace).Get(ctx, f.Ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		f.Object, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("get %s %s/%s: %w", f.Ref.Kind, namespace, f.Ref.Name, err)
	}
	f.Read = true
	return nil
}

// ReadLive returns what is around a set from the API server.
func (c *Cache) ReadLive(ctx context.Context, set *clusterv1.MachineSet) (Related, error) {
	return around(set, reader{
		unknown: c.unknown(ctx),
		machines: func() (members, orphans []*clusterv1.Machine, err error) {
			list, err := c.client.Machines(set.Namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, nil, fmt.Errorf("list machines of set %s: %w", set.Name, err)
			}
			for _, m := range observecache.Pointers(list.Items) {
				switch {
				case metav1.IsControlledBy(m, set):
					members = append(members, m)
				case metav1.GetControllerOf(m) == nil:
					orphans = append(orphans, m)
				}
			}
			return members, orphans, nil
		},
		cluster: func() (*clusterv1.Cluster, error) {
			return Live(ctx, c.client.Clusters(set.Namespace), set.Spec.ClusterName)
		},
		deployment: func(name string) (*clusterv1.MachineDeployment, error) {
			return Live(ctx, c.client.Deployments(set.Namespace), name)
		},
		receiver: func(name string) (*clusterv1.MachineSet, error) { return Live(ctx, c.client.Sets(set.Namespace), name) },
		foreign:  c.live(ctx, set.Namespace),
	})
}

// live returns a reader of the objects of providers in a namespace, from the API server.
func (c *Cache) live(
	ctx context.Context,
	namespace string,
) func(clusterv1.ContractVersionedObjectReference) (Foreign, error) {
	return func(ref clusterv1.ContractVersionedObjectReference) (Foreign, error) {
		f := Foreign{Ref: ref}
		resource, err := c.Resource(ctx, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
		if errors.Is(err, ErrNoKind) {
			f.Read = true
			return f, nil
		}
		if err != nil {
			return f, err
		}
		f.Resource = resource
		return f, c.readLive(ctx, namespace, &f)
	}
}

// Live reads an object from the API server; nil if it does not exist.
func Live[T metav1.Object, L any](ctx context.Context, client Typed[T, L], name string) (T, error) {
	o, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return *new(T), nil
	case err != nil:
		return *new(T), fmt.Errorf("get %s: %w", name, err)
	}
	return o, nil
}

// Unread reports whether an object that the set refers to was not read yet.
func (a Related) Unread() bool {
	return slices.ContainsFunc(a.foreign(), func(f Foreign) bool { return !f.Read })
}

// Missing returns the kinds of the templates that do not exist, and of clones that are not installed.
func Missing(templates []Foreign) (kinds []string) {
	for _, f := range templates {
		switch {
		case f.NoClones:
			kinds = append(kinds, CloneKind(f.Ref).Kind)
		case f.Missing():
			kinds = append(kinds, f.Ref.Kind)
		}
	}
	return kinds
}
