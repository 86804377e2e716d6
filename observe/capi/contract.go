package capi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ErrKindNotInstalled means that no CustomResourceDefinition for a kind is installed, or that the definition follows no
// contract that Millwright supports.
var ErrKindNotInstalled = errors.New("the kind is not installed, or follows no known contract of Cluster API")

// contractVersions lists the contracts that providers may follow, the newest first. Source: Cluster API v1.14 accepts
// both.
var contractVersions = []string{"v1beta2", "v1beta1"}

// Lifetimes of cached lookups of kinds. Sources: installedKindTTL is Cluster API's own resync period. missingKindTTL is
// a short delay for a person who installs a provider, and saves a request per decision.
const (
	installedKindTTL = 10 * time.Minute
	missingKindTTL   = 10 * time.Second
)

var customResourceDefinitionGVR = schema.GroupVersionResource{
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}

// kindCache caches the resources of the kinds in references.
type kindCache struct {
	mu         sync.Mutex
	knownKinds map[schema.GroupKind]knownKind
}

type knownKind struct {
	resource  schema.GroupVersionResource // zero: the kind has no resource
	expiresAt time.Time
}

// ResourceOfKind returns the resource for a reference without a version: the newest version of the newest contract in
// the labels of its CustomResourceDefinition. ResourceOfKind returns ErrKindNotInstalled if there is no such resource.
// For an existing kind, ResourceOfKind asks the API server at most once in 10 min.
func (c *Cache) ResourceOfKind(ctx context.Context, kind schema.GroupKind) (schema.GroupVersionResource, error) {
	c.kinds.mu.Lock()
	defer c.kinds.mu.Unlock()
	known := c.kinds.knownKinds[kind]
	if time.Now().After(known.expiresAt) {
		resource, err := c.lookUpResource(ctx, kind)
		if err != nil {
			return resource, err
		}
		known = knownKind{resource, time.Now().Add(installedKindTTL)}
		if resource.Empty() {
			known.expiresAt = time.Now().Add(missingKindTTL)
		}
		if c.kinds.knownKinds == nil {
			c.kinds.knownKinds = map[schema.GroupKind]knownKind{}
		}
		c.kinds.knownKinds[kind] = known
	}
	if known.resource.Empty() {
		return known.resource, fmt.Errorf("%s: %w", kind, ErrKindNotInstalled)
	}
	return known.resource, nil
}

// forget removes the kinds of a resource, so that the next ResourceOfKind asks the API server.
func (k *kindCache) forget(resource schema.GroupResource) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.knownKinds, func(_ schema.GroupKind, known knownKind) bool {
		return known.resource.GroupResource() == resource
	})
}

// lookUpResource reads the resource of a kind from the API server; zero if there is no such resource.
func (c *Cache) lookUpResource(
	ctx context.Context,
	kind schema.GroupKind,
) (none schema.GroupVersionResource, err error) {
	mapping, err := c.client.Mapper.RESTMapping(kind)
	switch {
	case meta.IsNoMatchError(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("find the resource of %s: %w", kind, err)
	}
	resource := mapping.Resource
	name := resource.GroupResource().String()
	definition, err := c.client.CustomResourceDefinitions.Resource(customResourceDefinitionGVR).
		Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("get CustomResourceDefinition %s: %w", name, err)
	}
	if resource.Version = contractVersion(definition.Labels); resource.Version == "" {
		return none, nil
	}
	return resource, nil
}

// contractVersion returns the newest version in the labels of a CustomResourceDefinition for the newest known contract;
// empty if the labels list no known contract.
func contractVersion(labels map[string]string) string {
	for _, contract := range contractVersions {
		if list := labels[clusterv1.GroupVersion.Group+"/"+contract]; list != "" {
			return slices.MaxFunc(strings.Split(list, "_"), version.CompareKubeAwareVersionStrings)
		}
	}
	return ""
}

// templateSuffix is the suffix of template kinds. The kind of a clone is the kind of its template without
// templateSuffix.
const templateSuffix = "Template"

// IsTemplate reports whether a reference names a template, which Millwright clones for each machine.
func IsTemplate(ref clusterv1.ContractVersionedObjectReference) bool {
	return strings.HasSuffix(ref.Kind, templateSuffix) && ref.Kind != templateSuffix
}

// SharedReferenceKind returns the kind of the first reference in a set's template that names an object instead of a
// template, so that all machines of the set would share the object; empty: there is none.
func SharedReferenceKind(set *clusterv1.MachineSet) string {
	spec := set.Spec.Template.Spec
	for _, ref := range []clusterv1.ContractVersionedObjectReference{spec.Bootstrap.ConfigRef, spec.InfrastructureRef} {
		if ref.Kind != "" && !IsTemplate(ref) {
			return ref.Kind
		}
	}
	return ""
}

// CloneKind returns the kind of a template's clones.
func CloneKind(ref clusterv1.ContractVersionedObjectReference) schema.GroupKind {
	return schema.GroupKind{Group: ref.APIGroup, Kind: strings.TrimSuffix(ref.Kind, templateSuffix)}
}

// templateReferencesOfSpec returns the template references in a machine's spec: the bootstrap template, then the
// infrastructure template.
func templateReferencesOfSpec(spec *clusterv1.MachineSpec) []clusterv1.ContractVersionedObjectReference {
	return slices.DeleteFunc(
		[]clusterv1.ContractVersionedObjectReference{spec.Bootstrap.ConfigRef, spec.InfrastructureRef},
		func(ref clusterv1.ContractVersionedObjectReference) bool { return !IsTemplate(ref) },
	)
}

// ValueOrZero returns the value of an API pointer; the zero value for nil.
func ValueOrZero[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}
