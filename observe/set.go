package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/preflight"
	"millwright/decide/scale"
)

// AroundSet is what stands around a set.
type AroundSet struct {
	Members    []*v1alpha1.Machine // that it controls, in no order
	Orphans    []*v1alpha1.Machine // of its namespace that nothing controls, in no order
	Read       string              // resource version up to which machines had been read at most; empty: that is not known
	Deployment *v1alpha1.MachineDeployment
	// Node returns the node of a machine, nil when it has none; nil: nothing is known of nodes.
	Node      func(*v1alpha1.Machine) *corev1.Node
	Missing   []string            // kinds that the template names and that do not exist
	Preflight []preflight.Failure // checks that keep the set from making machines
	// ControlPlane is the version of the control plane that was looked at; empty when there is none.
	ControlPlane string
	// Class is the version of the class that the template names; empty when there is none.
	Class string
}

// AroundSet returns what stands around a set, from the caches.
func (c *Cluster) AroundSet(set *v1alpha1.MachineSet) AroundSet {
	around := AroundSet{
		Members: c.MachinesOf(string(set.UID)),
		Orphans: indexed[*v1alpha1.Machine](c.informers[Machines], byOwner, orphansOf(set.Namespace)),
		Node:    c.NodeOf,
	}
	around.Read = c.applied(Machines) // after they were read: there may be fewer, and no more
	if owner := metav1.GetControllerOf(set); owner != nil {
		if d, found := c.Deployment(set.Namespace + "/" + owner.Name); found && d.UID == owner.UID {
			around.Deployment = d
		}
	}
	class, _ := c.Class(classOfSet(set))
	around.seeClass(set, class)
	read := c.controlPlaneRead() // before it is looked at: what comes in between is there
	around.check(c, set, c.controlPlane(), read)
	return around
}

// check adds what the preflight checks say.
func (a *AroundSet) check(c *Cluster, set *v1alpha1.MachineSet, controlPlane *unstructured.Unstructured, read bool) {
	a.Preflight, a.ControlPlane = c.preflightOf(set, controlPlane, read), ""
	if controlPlane != nil {
		a.ControlPlane = controlPlane.GetResourceVersion()
	}
}

// AroundSetToAct is AroundSet for who decides by it what is done next. While the cache of the control plane is not filled, it is
// read from the API server: nobody hears of it when the cache is filled and there is none. Where that fails, no machine is made.
func (c *Cluster) AroundSetToAct(ctx context.Context, set *v1alpha1.MachineSet) AroundSet {
	around := c.AroundSet(set)
	if !c.controlPlaneRead() {
		_ = c.lookAtControlPlane(ctx, set, &around) // "not read yet" stays the answer
	}
	return around
}

// LiveAroundSet reads the machines around a set from the API server, and its class where the cache has none. Machines that the set owns although its selector does
// not match their labels any more come from the cache: a live look that left them out would count other members than
// AroundSet does, and each would undo what the other asked for.
func (c *Cluster) LiveAroundSet(ctx context.Context, set *v1alpha1.MachineSet) (AroundSet, error) {
	around := c.AroundSet(set)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || selector.Empty() { // nothing is adopted by it
		selector = labels.SelectorFromSet(set.Spec.Template.Labels)
	}
	list, err := c.client.MachineV1alpha1().Machines(set.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return around, fmt.Errorf("list machines of set %s: %w", set.Name, err)
	}
	if err := around.seeLiveClass(ctx, c, set); err != nil {
		return around, err
	}
	if err := c.lookAtControlPlane(ctx, set, &around); err != nil {
		return around, err
	}
	if newer(list.ResourceVersion, around.Read) {
		around.Read = list.ResourceVersion
	}
	listed := map[types.UID]bool{}
	var members, orphans []*v1alpha1.Machine
	for i := range list.Items {
		m := &list.Items[i]
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

// SetPlan is what one look at a set comes to.
type SetPlan struct {
	Observed scale.Observed
	Decision scale.Decision
	Status   scale.Status
}

// PlanSet plans a set by what was observed of it.
func PlanSet(o scale.Observed) SetPlan {
	p := SetPlan{Observed: o}
	p.Decision, p.Status = scale.Look(o)
	return p
}

// Facts returns the facts that say whether the planned set is calm, with its status as it is now.
func (p SetPlan) Facts(set *v1alpha1.MachineSet) attention.SetFacts {
	f := attention.SetFacts{
		Deleting:           p.Observed.Deleting,
		Finalizer:          HasFinalizer(set.Finalizers),
		Generation:         set.Generation,
		ObservedGeneration: set.Status.ObservedGeneration,
		Wanted:             p.Observed.Replicas,
		Members:            len(p.Observed.Members),
		Unreported:         !Reports(set, p.Status),
		Recheck:            !p.Decision.Recheck.IsZero(),
	}
	if p.Decision.Acts() {
		f.Next = p.Decision.Why
	}
	return f
}

// SetFacts turns a set and what stands around it into the facts that say whether the set is calm at that time.
func SetFacts(set *v1alpha1.MachineSet, around AroundSet, now time.Time) attention.SetFacts {
	return PlanSet(ScaleObserved(set, around, now, 0)).Facts(set)
}

// SetsSelecting returns the sets of a machine's namespace whose selector matches its labels, and the one that released it, in
// no order. An empty selector matches nothing.
func (c *Cluster) SetsSelecting(m *v1alpha1.Machine) []*v1alpha1.MachineSet {
	var sets []*v1alpha1.MachineSet
	for _, item := range c.informers[Sets].GetStore().List() {
		set := item.(*v1alpha1.MachineSet)
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
