package observe

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"millwright/api/v1alpha1"
	"millwright/decide/preflight"
)

// ControlPlaneRef names the object that tells how the control plane is which machines join: one that keeps the contract of
// Cluster API's control planes (spec.version, spec.replicas, status.version, and status.availableReplicas or
// status.readyReplicas).
type ControlPlaneRef struct {
	Resource  schema.GroupVersionResource
	Namespace string // empty for an object of no namespace
	Name      string
}

// ParseControlPlane reads group/version/resource/namespace/name; without a namespace, group/version/resource/name.
func ParseControlPlane(text string) (ControlPlaneRef, error) {
	parts := strings.Split(text, "/")
	if (len(parts) != 4 && len(parts) != 5) || strings.Contains("/"+text+"/", "//") {
		return ControlPlaneRef{}, fmt.Errorf("%q is not group/version/resource/namespace/name", text)
	}
	ref := ControlPlaneRef{Resource: schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, Name: parts[len(parts)-1]}
	if len(parts) == 5 {
		ref.Namespace = parts[3]
	}
	return ref, nil
}

// Preflight says what sets look at before they make machines. The zero Preflight looks at nothing.
type Preflight struct {
	Client       dynamic.Interface
	ControlPlane ControlPlaneRef
	Checks       []string // as preflight.Settings has them
	Strict       bool
}

// WatchControlPlane makes the control plane known that machines join. Call it once, before Start, which does not wait for it: a
// resource that does not exist holds up nothing.
func (c *Cluster) WatchControlPlane(p Preflight) {
	c.preflight = p
	ref := p.ControlPlane
	c.informers[ControlPlanes] = dynamicinformer.NewFilteredDynamicInformer(p.Client, ref.Resource, ref.Namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name).String()
	}).Informer()
}

// controlPlane returns the control plane from the cache; nil when there is none, or none is configured.
func (c *Cluster) controlPlane() *unstructured.Unstructured {
	informer := c.informers[ControlPlanes]
	if informer == nil {
		return nil
	}
	for _, item := range informer.GetStore().List() {
		return item.(*unstructured.Unstructured)
	}
	return nil
}

// liveControlPlane reads the control plane from the API server.
func (c *Cluster) liveControlPlane(ctx context.Context) (*unstructured.Unstructured, error) {
	if c.informers[ControlPlanes] == nil {
		return nil, nil
	}
	ref := c.preflight.ControlPlane
	o, err := c.preflight.Client.Resource(ref.Resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get control plane %s: %w", ref.Name, err)
	}
	return o, nil
}

// lookAtControlPlane adds what the API server says of the control plane.
func (c *Cluster) lookAtControlPlane(ctx context.Context, set *v1alpha1.MachineSet, a *AroundSet) error {
	controlPlane, err := c.liveControlPlane(ctx)
	if err == nil {
		a.check(c, set, controlPlane, true)
	}
	return err
}

// controlPlaneRead reports whether the cache can tell how the control plane is, or that there is none.
func (c *Cluster) controlPlaneRead() bool {
	informer := c.informers[ControlPlanes]
	return informer == nil || informer.HasSynced()
}

// preflightOf returns the checks that keep a set from making machines. What is configured and was not read yet keeps it, too;
// nil that was read is none.
func (c *Cluster) preflightOf(set *v1alpha1.MachineSet, controlPlane *unstructured.Unstructured, read bool) []preflight.Failure {
	if c.informers[ControlPlanes] == nil {
		return nil
	}
	o := preflight.Observed{
		Machines: preflight.Machines{
			Version: set.Spec.Template.Annotations[v1alpha1.AnnotationKubernetesVersion],
			Kubeadm: set.Spec.Template.Annotations[v1alpha1.AnnotationJoinsBy] == v1alpha1.ValueKubeadm,
		},
		Settings: preflight.Settings{Checks: c.preflight.Checks, Strict: c.preflight.Strict, Skip: set.Annotations[v1alpha1.AnnotationSkipPreflightChecks]},
	}
	switch {
	case controlPlane != nil:
		o.ControlPlane = controlPlaneFacts(controlPlane)
	case !read:
		o.ControlPlane = &preflight.ControlPlane{Kind: c.preflight.ControlPlane.Resource.Resource, Name: c.preflight.ControlPlane.Name, Unread: true}
	}
	return preflight.Decide(o)
}

// controlPlaneFacts reads what the contract of Cluster API's control planes says. What is not there, or is of another type, is
// not known.
func controlPlaneFacts(o *unstructured.Unstructured) *preflight.ControlPlane {
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(o.Object, fields...)
		return value
	}
	number := func(fields ...string) (n int, found bool) {
		value, found, err := unstructured.NestedInt64(o.Object, fields...)
		return int(value), found && err == nil
	}
	f := &preflight.ControlPlane{Kind: cmp.Or(o.GetKind(), "control plane"), Name: o.GetName(), Version: text("spec", "version")}
	if ns := o.GetNamespace(); ns != "" {
		f.Name = ns + "/" + f.Name
	}
	reached := text("status", "version")
	f.Provisioning = f.Version != "" && reached == ""
	f.Upgrading = f.Version != "" && reached != "" && reached != f.Version
	replicas, counts := number("spec", "replicas")
	if !counts {
		return f
	}
	f.Replicas = replicas
	for _, field := range []string{"availableReplicas", "readyReplicas"} {
		if n, found := number("status", field); found {
			f.Available = n
			break
		}
	}
	return f
}
