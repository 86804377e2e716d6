package capi

import (
	"context"
	"errors"
	"fmt"
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

// ErrNoKind says that no CustomResourceDefinition of a kind is installed, or that it follows no contract that
// Millwright knows.
var ErrNoKind = errors.New("the kind is not installed, or follows no known contract of Cluster API")

// contracts are the contracts that providers may follow, the newest first. Source: Cluster API v1.14 accepts both.
var contracts = []string{"v1beta2", "v1beta1"}

// How long an answer about a kind is used. Sources: definitionsFor is Cluster API's own resync period; absentFor hardly
// delays a person who installs a provider, and saves a request at every decision.
const (
	definitionsFor = 10 * time.Minute
	absentFor      = 10 * time.Second
)

var definitions = schema.GroupVersionResource{
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}

// kinds remembers the resources of the kinds that references name.
type kinds struct {
	mu    sync.Mutex
	known map[schema.GroupKind]knownKind
}

type knownKind struct {
	resource schema.GroupVersionResource // zero: there is none
	until    time.Time
}

// Resource returns the resource that a reference without a version names: the newest version of the newest contract
// that the labels of its CustomResourceDefinition list. It returns ErrNoKind if there is none. It asks the API server
// at most once in ten minutes about a kind that exists.
func (c *Cache) Resource(ctx context.Context, kind schema.GroupKind) (schema.GroupVersionResource, error) {
	c.kinds.mu.Lock()
	defer c.kinds.mu.Unlock()
	known := c.kinds.known[kind]
	if time.Now().After(known.until) {
		resource, err := c.lookUp(ctx, kind)
		if err != nil {
			return resource, err
		}
		known = knownKind{resource, time.Now().Add(definitionsFor)}
		if resource.Empty() {
			known.until = time.Now().Add(absentFor)
		}
		if c.kinds.known == nil {
			c.kinds.known = map[schema.GroupKind]knownKind{}
		}
		c.kinds.known[kind] = known
	}
	if known.resource.Empty() {
		return known.resource, fmt.Errorf("%s: %w", kind, ErrNoKind)
	}
	return known.resource, nil
}

// lookUp asks the API server for the resource of a kind; zero if there is none.
func (c *Cache) lookUp(ctx context.Context, kind schema.GroupKind) (none schema.GroupVersionResource, err error) {
	mapping, err := c.client.Mapper.RESTMapping(kind)
	switch {
	case meta.IsNoMatchError(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("find the resource of %s: %w", kind, err)
	}
	resource := mapping.Resource
	name := resource.GroupResource().String()
	definition, err := c.client.Definitions.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
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

// contractVersion returns the newest version that the labels of a CustomResourceDefinition list for the newest known
// contract; empty for none.
func contractVersion(labels map[string]string) string {
	for _, contract := range contracts {
		if list := labels[clusterv1.GroupVersion.Group+"/"+contract]; list != "" {
			return slices.MaxFunc(strings.Split(list, "_"), version.CompareKubeAwareVersionStrings)
		}
	}
	return ""
}

// templateSuffix is the end of the kinds of templates. The kind of a clone is the kind of its template without it.
const templateSuffix = "Template"

// IsTemplate reports whether a reference names a template, which is cloned for each machine.
func IsTemplate(ref clusterv1.ContractVersionedObjectReference) bool {
	return strings.HasSuffix(ref.Kind, templateSuffix) && ref.Kind != templateSuffix
}

// CloneKind returns the kind of the clones of a template.
func CloneKind(ref clusterv1.ContractVersionedObjectReference) schema.GroupKind {
	return schema.GroupKind{Group: ref.APIGroup, Kind: strings.TrimSuffix(ref.Kind, templateSuffix)}
}

// templates returns the references of a machine's spec that name templates: the bootstrap template, then the
// infrastructure template.
func templates(spec *clusterv1.MachineSpec) []clusterv1.ContractVersionedObjectReference {
	return slices.DeleteFunc(
		[]clusterv1.ContractVersionedObjectReference{spec.Bootstrap.ConfigRef, spec.InfrastructureRef},
		func(ref clusterv1.ContractVersionedObjectReference) bool { return !IsTemplate(ref) },
	)
}

// Value returns what a pointer of the API points to; the zero value for nil.
func Value[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}
