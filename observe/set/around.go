// Package set derives facts for decide from a MachineSet, its machines and related objects.
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

// RelatedObjects contains the objects that the facts about a set need in addition to the set.
type RelatedObjects struct {
	Members         []*v1alpha1.Machine // machines that the set controls, unsorted
	Orphans         []*v1alpha1.Machine // machines of the set's namespace without an existing controller, unsorted
	MachinesVersion string              // the machines are at most as new as this resource version; empty means unknown
	Deployment      *v1alpha1.MachineDeployment
	// policy of the deployment, or of the set if it has no deployment; nil without a policy
	Policy *v1alpha1.RolloutPolicy
	// NodeOfMachine returns the node of a machine; nil if the machine has no node. A nil function means that nodes are
	// unknown.
	NodeOfMachine func(*v1alpha1.Machine) *corev1.Node
	MissingKinds  []string        // kinds of missing objects to which the template refers
	Preflight     preflight.Facts // facts for the preflight checks; zero if no control plane is configured
	// ControlPlaneVersion is the resource version of the control plane; empty if there is no control plane.
	ControlPlaneVersion string
	BehavesAsMCM        bool // the flag --as-mcm; see cache.Cluster
	// ClassVersion is the resource version of the class in the template; empty if the class does not exist.
	ClassVersion string
	// ClassOfMachine returns the class of a machine; nil if the class does not exist. A nil function means that classes
	// are unknown.
	ClassOfMachine func(*v1alpha1.Machine) *v1alpha1.MachineClass
}

// ReadRelatedObjects returns the objects related to a set from the caches.
func ReadRelatedObjects(c *cache.Cluster, set *v1alpha1.MachineSet) RelatedObjects {
	related := RelatedObjects{
		Members:        c.MachinesOfOwner(string(set.UID)),
		Orphans:        c.MachinesWithoutController(set),
		NodeOfMachine:  c.NodeOfMachine,
		ClassOfMachine: c.ClassOfMachine,
		BehavesAsMCM:   c.BehavesAsMCM,
	}
	related.MachinesVersion = c.ReachedVersion(
		cache.MachinesResource,
	) // read the version after the machines, so that it is not older than the machines
	if owner := metav1.GetControllerOf(set); owner != nil {
		if d, found := c.Deployment(set.Namespace + "/" + owner.Name); found && d.UID == owner.UID {
			related.Deployment, related.Policy = d, c.PolicyOfObject(d)
		}
	} else {
		related.Policy = c.PolicyOfObject(set)
	}
	class, _ := c.Class(cache.ClassKeyOfSet(set))
	related.addClassFacts(class)
	// read this flag before the object, because the cache may sync between the two reads
	read := c.HasReadControlPlane()
	related.addPreflightFacts(c, set, c.ControlPlane(), read)
	return related
}

// ReadRelatedObjectsForWrite is ReadRelatedObjects for a decision that writes. If the cache of the control plane is not
// synced, ReadRelatedObjectsForWrite reads the control plane from the API server, because an empty cache sends no event
// when it has synced. If that read fails, the set creates no machine.
func ReadRelatedObjectsForWrite(ctx context.Context, c *cache.Cluster, set *v1alpha1.MachineSet) RelatedObjects {
	related := ReadRelatedObjects(c, set)
	if !c.HasReadControlPlane() {
		_ = addLiveControlPlaneFacts(ctx, c, set, &related) // after an error, the control plane counts as unread
	}
	return related
}

// ReadLiveRelatedObjects reads the machines related to a set from the API server, and also the set's class if the cache
// has no such class. If the selector of the set no longer matches a machine that the set controls, the machine comes
// from the cache. Without these machines, ReadLiveRelatedObjects and ReadRelatedObjects would count different members,
// and each decision would undo the previous decision.
func ReadLiveRelatedObjects(ctx context.Context, c *cache.Cluster, set *v1alpha1.MachineSet) (RelatedObjects, error) {
	related := ReadRelatedObjects(c, set)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || selector.Empty() { // a set without a valid selector adopts no machines
		selector = labels.SelectorFromSet(set.Spec.Template.Labels)
	}
	list, err := c.Client().
		MachineV1alpha1().
		Machines(set.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return related, fmt.Errorf("list machines of set %s: %w", set.Name, err)
	}
	if err := related.addLiveClassFacts(ctx, c, set); err != nil {
		return related, err
	}
	if err := addLiveControlPlaneFacts(ctx, c, set, &related); err != nil {
		return related, err
	}
	if cache.IsNewerVersion(list.ResourceVersion, related.MachinesVersion) {
		related.MachinesVersion = list.ResourceVersion
	}
	listed := map[types.UID]bool{}
	var members, orphans []*v1alpha1.Machine
	for _, m := range cache.PointersToItems(list.Items) {
		listed[m.UID] = true
		switch {
		case metav1.IsControlledBy(m, set):
			members = append(members, m)
		case cache.CanBeAdopted(m, set, cache.KindSet):
			orphans = append(orphans, m)
		}
	}
	isListed := func(m *v1alpha1.Machine) bool { return listed[m.UID] || selector.Matches(labels.Set(m.Labels)) }
	related.Members = slices.Concat(members, slices.DeleteFunc(related.Members, isListed))
	related.Orphans = slices.Concat(orphans, slices.DeleteFunc(related.Orphans, isListed))
	return related, nil
}

// SetsThatSelectMachine returns the sets of a machine's namespace whose selector matches the machine's labels, and the
// set that released the machine, unsorted. An empty selector matches nothing.
func SetsThatSelectMachine(c *cache.Cluster, m *v1alpha1.Machine) []*v1alpha1.MachineSet {
	var sets []*v1alpha1.MachineSet
	for _, set := range cache.AllObjects[*v1alpha1.MachineSet](c.Informer(cache.SetsResource)) {
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

// addClassFacts adds the facts about the class in the set's template; a nil class does not exist.
func (a *RelatedObjects) addClassFacts(class *v1alpha1.MachineClass) {
	a.MissingKinds, a.ClassVersion = nil, ""
	if class == nil {
		a.MissingKinds = []string{cache.KindClass}
		return
	}
	a.ClassVersion = class.ResourceVersion
}

// addLiveClassFacts reads the class from the API server if the cache does not have it.
func (a *RelatedObjects) addLiveClassFacts(ctx context.Context, c *cache.Cluster, set *v1alpha1.MachineSet) error {
	if len(a.MissingKinds) == 0 {
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
	a.addClassFacts(class)
	return nil
}

// PreservationNode returns the node whose annotation may preserve a failed machine. PreservationNode returns nil if the
// machine has not failed or its node is unknown.
func (a RelatedObjects) PreservationNode(m *v1alpha1.Machine) *corev1.Node {
	if a.NodeOfMachine == nil || m.Status.CurrentStatus.Phase != v1alpha1.MachineFailed {
		return nil
	}
	return a.NodeOfMachine(m)
}

// addLiveControlPlaneFacts reads the control plane from the API server and adds its facts.
func addLiveControlPlaneFacts(
	ctx context.Context,
	c *cache.Cluster,
	set *v1alpha1.MachineSet,
	a *RelatedObjects,
) error {
	controlPlane, err := c.LiveControlPlane(ctx)
	if err == nil {
		a.addPreflightFacts(c, set, controlPlane, true)
	}
	return err
}

// addPreflightFacts adds the facts for the preflight checks. If read is true, a nil control plane does not exist. If
// read is false, a nil control plane is unread, and fails its check.
func (a *RelatedObjects) addPreflightFacts(
	c *cache.Cluster,
	set *v1alpha1.MachineSet,
	controlPlane *unstructured.Unstructured,
	read bool,
) {
	a.Preflight, a.ControlPlaneVersion = preflight.Facts{}, ""
	if c.Informer(cache.ControlPlanesResource) == nil {
		return
	}
	a.Preflight = preflight.Facts{
		Machines: preflight.MachineFacts{
			Version: set.Spec.Template.Annotations[v1alpha1.AnnotationKubernetesVersion],
			Kubeadm: set.Spec.Template.Annotations[v1alpha1.AnnotationJoinsBy] == v1alpha1.ValueKubeadm,
		},
		Settings: preflight.Settings{
			Checks: c.Preflight.Checks,
			Strict: c.Preflight.IsStrict, RequireReplicas: true,
			Skip: set.Annotations[v1alpha1.AnnotationSkipPreflightChecks],
		},
	}
	switch {
	case controlPlane != nil:
		a.Preflight.ControlPlane, a.ControlPlaneVersion = controlPlaneFacts(controlPlane), controlPlane.GetResourceVersion()
	case !read:
		a.Preflight.ControlPlane = &preflight.ControlPlane{
			Kind:   c.Preflight.ControlPlane.Resource.Resource,
			Name:   c.Preflight.ControlPlane.Name,
			Unread: true,
		}
	}
}

// controlPlaneFacts reads the fields of Cluster API's contract for control planes. A field that is missing or has
// another type is unknown.
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
	f.Upgrading = f.Version != "" && reached != "" && cache.CompareVersions(reached, f.Version) < 0
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
