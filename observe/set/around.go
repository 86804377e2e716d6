// Package set turns a MachineSet, its machines and what stands around them into the facts that decide asks for.
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
	"millwright/observe/machine"
)

// Around is what stands around a set.
type Around struct {
	Members    []*v1alpha1.Machine // that it controls, in no order
	Orphans    []*v1alpha1.Machine // of its namespace that nothing controls, in no order
	Read       string              // resource version up to which machines had been read at most; empty: that is not known
	Deployment *v1alpha1.MachineDeployment
	// Node returns the node of a machine, nil when it has none; nil: nothing is known of nodes.
	Node      func(*v1alpha1.Machine) *corev1.Node
	Missing   []string           // kinds that the template names and that do not exist
	Preflight preflight.Observed // what the checks of the control plane compare; zero: none is configured
	// ControlPlane is the version of the control plane that was looked at; empty when there is none.
	ControlPlane string
	// Class is the version of the class that the template names; empty when there is none.
	Class string
}

// Read returns what stands around a set, from the caches.
func Read(c *cache.Cluster, set *v1alpha1.MachineSet) Around {
	around := Around{
		Members: c.MachinesOf(string(set.UID)),
		Orphans: cache.Indexed[*v1alpha1.Machine](c.Informer(cache.Machines), cache.ByOwner, cache.OrphansOf(set.Namespace)),
		Node:    c.NodeOf,
	}
	around.Read = c.Applied(cache.Machines) // after they were read: there may be fewer, and no more
	if owner := metav1.GetControllerOf(set); owner != nil {
		if d, found := c.Deployment(set.Namespace + "/" + owner.Name); found && d.UID == owner.UID {
			around.Deployment = d
		}
	}
	class, _ := c.Class(cache.ClassOfSet(set))
	around.seeClass(set, class)
	read := c.ControlPlaneRead() // before it is looked at: what comes in between is there
	around.check(c, set, c.ControlPlane(), read)
	return around
}

// ReadToAct is Read for who decides by it what is done next. While the cache of the control plane is not filled, it is
// read from the API server: nobody hears of it when the cache is filled and there is none. Where that fails, no machine is made.
func ReadToAct(ctx context.Context, c *cache.Cluster, set *v1alpha1.MachineSet) Around {
	around := Read(c, set)
	if !c.ControlPlaneRead() {
		_ = lookAtControlPlane(ctx, c, set, &around) // "not read yet" stays the answer
	}
	return around
}

// ReadLive reads the machines around a set from the API server, and its class where the cache has none. Machines that the set owns although its selector does
// not match their labels any more come from the cache: a live look that left them out would count other members than
// Read does, and each would undo what the other asked for.
func ReadLive(ctx context.Context, c *cache.Cluster, set *v1alpha1.MachineSet) (Around, error) {
	around := Read(c, set)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || selector.Empty() { // nothing is adopted by it
		selector = labels.SelectorFromSet(set.Spec.Template.Labels)
	}
	list, err := c.Client().MachineV1alpha1().Machines(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return around, fmt.Errorf("list machines of set %s: %w", set.Name, err)
	}
	if err := around.seeLiveClass(ctx, c, set); err != nil {
		return around, err
	}
	if err := lookAtControlPlane(ctx, c, set, &around); err != nil {
		return around, err
	}
	if cache.Newer(list.ResourceVersion, around.Read) {
		around.Read = list.ResourceVersion
	}
	listed := map[types.UID]bool{}
	var members, orphans []*v1alpha1.Machine
	for _, m := range cache.Pointers(list.Items) {
		listed[m.UID] = true
		switch {
		case metav1.IsControlledBy(m, set):
			members = append(members, m)
		case metav1.GetControllerOf(m) == nil:
			orphans = append(orphans, m)
		}
	}
	unlisted := func(m *v1alpha1.Machine) bool { return !listed[m.UID] && !selector.Matches(labels.Set(m.Labels)) }
	around.Members = slices.Concat(members, keep(around.Members, unlisted))
	around.Orphans = slices.Concat(orphans, keep(around.Orphans, unlisted))
	return around, nil
}

func keep[T any](list []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(item T) bool { return !wanted(item) })
}

// SetsSelecting returns the sets of a machine's namespace whose selector matches its labels, and the one that released it, in
// no order. An empty selector matches nothing.
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

// seeClass adds what is to be said of the class that the set's template names; nil: there is none.
func (a *Around) seeClass(set *v1alpha1.MachineSet, class *v1alpha1.MachineClass) {
	a.Missing, a.Class = nil, ""
	switch {
	case class != nil:
		a.Class = class.ResourceVersion
	case cache.ClassOfSet(set) != "":
		a.Missing = []string{cache.KindClass}
	}
}

// seeLiveClass looks at the API server for a class that the cache does not have.
func (a *Around) seeLiveClass(ctx context.Context, c *cache.Cluster, set *v1alpha1.MachineSet) error {
	if len(a.Missing) == 0 {
		return nil
	}
	class, err := c.Client().MachineV1alpha1().MachineClasses(set.Namespace).Get(ctx, set.Spec.Template.Spec.Class.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get class of set %s: %w", set.Name, err)
	}
	a.seeClass(set, class)
	return nil
}

// NodeAsked returns the node that says, too, whether a failed machine is to be kept; nil for any other machine, and where
// nothing is known of its node.
func (a Around) NodeAsked(m *v1alpha1.Machine) *corev1.Node {
	if a.Node == nil || m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed {
		return nil
	}
	return a.Node(m)
}

// keptByNode reports whether a failed machine is to be kept because its node asks for it, whether or not its own workflow has
// put that on record.
func (a Around) keptByNode(m *v1alpha1.Machine) bool {
	node := a.NodeAsked(m)
	return node != nil && machine.IsProtected(m, node)
}

// lookAtControlPlane adds what the API server says of the control plane.
func lookAtControlPlane(ctx context.Context, c *cache.Cluster, set *v1alpha1.MachineSet, a *Around) error {
	controlPlane, err := c.LiveControlPlane(ctx)
	if err == nil {
		a.check(c, set, controlPlane, true)
	}
	return err
}

// check adds the checks that keep a set from making machines. A control plane that is configured and was not read yet keeps it,
// too; nil that was read is none.
func (a *Around) check(c *cache.Cluster, set *v1alpha1.MachineSet, controlPlane *unstructured.Unstructured, read bool) {
	a.Preflight, a.ControlPlane = preflight.Observed{}, ""
	if c.Informer(cache.ControlPlanes) == nil {
		return
	}
	a.Preflight = preflight.Observed{
		Machines: preflight.Machines{
			Version: set.Spec.Template.Annotations[v1alpha1.AnnotationKubernetesVersion],
			Kubeadm: set.Spec.Template.Annotations[v1alpha1.AnnotationJoinsBy] == v1alpha1.ValueKubeadm,
		},
		Settings: preflight.Settings{Checks: c.Preflight.Checks, Strict: c.Preflight.Strict, Skip: set.Annotations[v1alpha1.AnnotationSkipPreflightChecks]},
	}
	switch {
	case controlPlane != nil:
		a.Preflight.ControlPlane, a.ControlPlane = controlPlaneFacts(controlPlane), controlPlane.GetResourceVersion()
	case !read:
		a.Preflight.ControlPlane = &preflight.ControlPlane{Kind: c.Preflight.ControlPlane.Resource.Resource, Name: c.Preflight.ControlPlane.Name, Unread: true}
	}
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
