package cache

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// ControlPlaneRef names the control plane that machines join: an object that follows Cluster API's contract for control
// planes (spec.version, spec.replicas, status.version, and status.availableReplicas or status.readyReplicas).
type ControlPlaneRef struct {
	Resource  schema.GroupVersionResource
	Namespace string // namespace of the object; empty for a cluster-scoped object
	Name      string
}

// ParseControlPlane parses group/version/resource/namespace/name, or group/version/resource/name for a cluster-scoped
// object.
func ParseControlPlane(text string) (ControlPlaneRef, error) {
	parts := strings.Split(text, "/")
	if (len(parts) != 4 && len(parts) != 5) || strings.Contains("/"+text+"/", "//") {
		return ControlPlaneRef{}, fmt.Errorf("%q is not group/version/resource/namespace/name", text)
	}
	ref := ControlPlaneRef{
		Resource: schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]},
		Name:     parts[len(parts)-1],
	}
	if len(parts) == 5 {
		ref.Namespace = parts[3]
	}
	return ref, nil
}

// PreflightConfig configures the checks of the control plane before sets create machines. The zero value disables all
// checks.
type PreflightConfig struct {
	Client       dynamic.Interface
	ControlPlane ControlPlaneRef
	Checks       []string // names of checks, as in preflight.Settings
	IsStrict     bool     // sets of machine.sapcloud.io make the checks of Cluster API's code too
	// RequiresReplicas means that sets of Cluster API create no machine while a replica of the control plane is missing.
	RequiresReplicas bool
}

// WatchControlPlane caches the control plane that machines join. Call WatchControlPlane once, before Start. Start does
// not wait for this cache: a missing resource delays nothing.
func (c *Cluster) WatchControlPlane(p PreflightConfig) {
	c.Preflight = p
	ref := p.ControlPlane
	c.Informers[ControlPlanesResource] = dynamicinformer.NewFilteredDynamicInformer(p.Client, ref.Resource, ref.Namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name).String()
	}).
		Informer()
}

// ControlPlane returns the control plane from the cache; nil if it does not exist or no control plane is configured.
func (c *Cluster) ControlPlane() *unstructured.Unstructured {
	informer := c.Informers[ControlPlanesResource]
	if informer == nil {
		return nil
	}
	for _, o := range AllObjects[*unstructured.Unstructured](informer) {
		return o
	}
	return nil
}

// LiveControlPlane reads the control plane from the API server; nil if it does not exist or no control plane is
// configured.
func (c *Cluster) LiveControlPlane(ctx context.Context) (*unstructured.Unstructured, error) {
	if c.Informer(ControlPlanesResource) == nil {
		return nil, nil
	}
	ref := c.Preflight.ControlPlane
	o, err := c.Preflight.Client.Resource(ref.Resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get control plane %s: %w", ref.Name, err)
	}
	return o, nil
}

// HasReadControlPlane reports whether the cache of the control plane is filled, or no control plane is configured.
func (c *Cluster) HasReadControlPlane() bool {
	informer := c.Informers[ControlPlanesResource]
	return informer == nil || informer.HasSynced()
}

// CompareVersions compares two Kubernetes versions by the rules of semantic versions, and then by their build metadata:
// the result is negative if a is older than b, and zero if they are equal. The leading v and the patch version are
// optional. A version that cannot be parsed is compared as a text.
func CompareVersions(a, b string) int {
	x, errX := version.ParseSemantic(withPatchVersion(a))
	y, errY := version.ParseSemantic(withPatchVersion(b))
	switch {
	case errX != nil || errY != nil:
		return strings.Compare(a, b)
	case x.LessThan(y):
		return -1
	case y.LessThan(x):
		return 1
	default:
		return strings.Compare(x.BuildMetadata(), y.BuildMetadata())
	}
}

// withPatchVersion adds the patch version 0 to a version that has only a major and a minor version.
func withPatchVersion(v string) string {
	core := v
	if i := strings.IndexAny(v, "-+"); i >= 0 {
		core = v[:i]
	}
	if strings.Count(core, ".") != 1 {
		return v
	}
	return core + ".0" + v[len(core):]
}
