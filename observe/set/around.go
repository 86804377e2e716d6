// Package set turns a MachineSet, its machines and the objects around them into facts for decide.
package set

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/preflight"
	"millwright/observe/cache"
)

// Related holds what the facts about a set need besides the set.
type Related struct {
	Members    []*v1alpha1.Machine // machines that the set controls, in no order
	Orphans    []*v1alpha1.Machine // machines of its namespace without a controller that exists, in no order
	Read       string              // the machines are at most as new as this resource version; empty: not known
	Deployment *v1alpha1.MachineDeployment
	Policy     *v1alpha1.RolloutPolicy // that applies to its deployment, or to a set without one; nil: none
	// Node returns the node of a machine, nil when it has none. A nil function means that nothing is known about nodes.
	Node      func(*v1alpha1.Machine) *corev1.Node
	Missing   []string           // kinds that the template names and that do not exist
	Preflight preflight.Observed // facts for the preflight checks; zero: no control plane is configured
	// ControlPlane is the resource version of the control plane that was read; empty when there is none.
	ControlPlane string
	AsMCM        bool // see cache.Cluster
	// Class is the resource version of the class that the template names; empty when there is none.
	Class string
	// ClassOf returns the class of a machine; nil when it does not exist. A nil function means that nothing is known about
	// classes.
	ClassOf func(*v1alpha1.Machine) *v1alpha1.MachineClass
}

// Read returns what is around a set from the caches.
func Read(c *cache.Cluster, set *v1alpha1.MachineSet) Related {
	related := Related{
		Members: c.MachinesOf(string(set.UID)),
		Orphans: c.FreeMachines(set),
		Node:    c.NodeOf,
		ClassOf: c.ClassOf,
		AsMCM:   c.AsMCM,
	}
	related.Read = c.Applied(cache.Machines) // after the machines, so that it is never too old
	if owner := metav1.GetControllerOf(set); owner != nil {
		if d, found := c.Deployment(set.Namespace + "/" + owner.Name); found && d.UID == owner.UID {
			related.Deployment, related.Policy = d, c.PolicyOf(d)
		}
	} else {
		related.Policy = c.PolicyOf(set)
	}
	class, _ := c.Class(cache.ClassOfSet(set))
	related.addClass(class)
	read := c.ControlPlaneRead() // before the object, so that "filled" never goes with an object that was missed
	related.addPreflight(c, set, c.ControlPlane(), read)
	return related
}

// ReadToAct is Read for a decision that is carried out. While the cache of the control plane is not filled, it reads
// the API server, because no event reports that the cache was filled and is empty. If that read fails, the set creates
// no machine.
func ReadToAct(ctx context.Context, c *cache.Cluster, set *v1alpha1.MachineSet) Related {
	related := Read(c, set)
	if !c.ControlPlaneRead() {
		_ = addLiveControlPlane(ctx, c, set, &related) // after an error it stays unread
	}
	return related
}

// ReadLive reads the machines around a set from the API server, and its class if the cache has none. Machines that the
// set owns although its selector no longer matches their labels come from the cache. Without them, ReadLive and Read
// would count different members, and each decision would undo the other.
func ReadLive(ctx context.Context, c *cache.Cluster, set *v1alpha1.MachineSet) (Related, error) {
	related := Read(c, set)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || selector.Empty() { // such a set adopts nothing
		selector = labels.SelectorFromSet(set.Spec.Template.Labels)
	}
	list, err := c.Client().
		MachineV1alpha1().
		Machines(set.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return related, fmt.Errorf("list machines of set %s: %w", set.Name, err)
	}
	if err := related.addLiveClass(ctx, c, set); err != nil {
		return related, err
	}
	if err := addLiveControlPlane(ctx, c, set, &related); err != nil {
		return related, err
	}
	if cache.Newer(list.ResourceVersion, related.Read) {
		related.Read = list.ResourceVersion
	}
	listed := map[types.UID]bool{}
	var members, orphans []*v1alpha1.Machine
	for _, m := range cache.Pointers(list.Items) {
		listed[m.UID] = true
		switch {
		case metav1.IsControlledBy(m, set):
			members = append(members, m)
		case cache.IsFree(m, set, cache.KindSet):
			orphans = append(orphans, m)
		}
	}
	isListed := func(m *v1alpha1.Machine) bool { return listed[m.UID] || selector.Matches(labels.Set(m.Labels)) }
	related.Members = slices.Concat(members, slices.DeleteFunc(related.Members, isListed))
	related.Orphans = slices.Concat(orphans, slices.DeleteFunc(related.Orphans, isListed))
	return related, nil
}

// SetsSelecting returns the sets of a machine's namespace whose selector matches its labels, and the set that released
// it, in no order. An empty selector matches nothing.
func SetsSelecting(c *cache.Cluster, m *v1alpha1.Machine) []*v1alpha1.MachineSet {
	var sets []*v1alpha1.MachineSet
	for _, set := range cache.All[*v1alpha1.MachineSet](c.Informer(cache.Sets)) {
		if set.Namespace != m.Namespace {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
		selects := err == nil && !selector.Empty() && selector.Matches(labels.Set(m.Labels))
		if selects || m.Annotations[v1alpha1.AnnotationReleasedBy] == string(set.UID) {
			sets = append(sets, set)
		}
	}
	return sets
}

// addClass adds the facts about the class that the set's template names; nil: it does not exist.
func (a *Related) addClass(class *v1alpha1.MachineClass) {
	a.Missing, a.Class = nil, ""
	if class == nil {
		a.Missing = []string{cache.KindClass}
		return
	}
	a.Class = class.ResourceVersion
}

// addLiveClass reads the API server for a class that the cache does not have.
func (a *Related) addLiveClass(ctx context.Context, c *cache.Cluster, set *v1alpha1.MachineSet) error {
	if len(a.Missing) == 0 {
		return nil
	}
	class, err := c.Client().
		MachineV1alpha1().
		MachineClasses(set.Namespace).
		Get(ctx, set.Spec.Template.Spec.Class.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get class of set %s: %w", set.Name, err)
	}
	a.addClass(class)
	return nil
}

// NodeAsked returns the node whose annotation may keep a failed machine; nil for any other machine, and when its node
// is not known.
func (a Related) NodeAsked(m *v1alpha1.Machine) *corev1.Node {
	if a.Node == nil || m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed {
		return nil
	}
	return a.Node(m)
}

// addLiveControlPlane reads the control plane from the API server and adds its facts.
func addLiveControlPlane(ctx context.Context, c *cache.Cluster, set *v1alpha1.MachineSet, a *Related) error {
	controlPlane, err := c.LiveControlPlane(ctx)
	if err == nil {
		a.addPreflight(c, set, controlPlane, true)
	}
	return err
}

// addPreflight adds the facts for the preflight checks. A nil control plane that was read does not exist. One that was
// not read yet fails its check.
func (a *Related) addPreflight(
	c *cache.Cluster,
	set *v1alpha1.MachineSet,
	controlPlane *unstructured.Unstructured,
	read bool,
) {
	a.Preflight, a.ControlPlane = preflight.Observed{}, ""
	if c.Informer(cache.ControlPlanes) == nil {
		return
	}
	a.Preflight = preflight.Observed{
		Machines: preflight.Machines{
			Version: set.Spec.Template.Annotations[v1alpha1.AnnotationKubernetesVersion],
			Kubeadm: set.Spec.Template.Annotations[v1alpha1.AnnotationJoinsBy] == v1alpha1.ValueKubeadm,
		},
		Settings: preflight.Settings{
			Checks: c.Preflight.Checks,
			Strict: c.Preflight.Strict,
			Skip:   set.Annotations[v1alpha1.AnnotationSkipPreflightChecks],
		},
	}
	switch {
	case controlPlane != nil:
		a.Preflight.ControlPlane, a.ControlPlane = controlPlaneFacts(controlPlane), controlPlane.GetResourceVersion()
	case !read:
		a.Preflight.ControlPlane = &preflight.ControlPlane{
			Kind:   c.Preflight.ControlPlane.Resource.Resource,
			Name:   c.Preflight.ControlPlane.Name,
			Unread: true,
		}
	}
}

// controlPlaneFacts reads the fields of the contract of Cluster API's control planes. A field that is missing, or of
// another type, is not known.
func controlPlaneFacts(o *unstructured.Unstructured) *preflight.ControlPlane {
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(o.Object, fields...)
		return value
	}
	number := func(fields ...string) (n int, found bool) {
		value, found, err := unstructured.NestedInt64(o.Object, fields...)
		return int(value), found && err == nil
	}
	f := &preflight.ControlPlane{
		Kind:    cmp.Or(o.GetKind(), "control plane"),
		Name:    o.GetName(),
		Version: text("spec", "version"),
	}
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
