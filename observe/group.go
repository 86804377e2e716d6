package observe

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/rollout"
	"millwright/decide/scale"
)

// SetFacts turns a set and the machines that it owns into the facts that say whether the set is calm.
func SetFacts(set *v1alpha1.MachineSet, machines []*v1alpha1.Machine) attention.GroupFacts {
	f := attention.GroupFacts{
		Deleting:           set.DeletionTimestamp != nil,
		Finalizer:          HasFinalizer(set.Finalizers),
		Generation:         set.Generation,
		ObservedGeneration: set.Status.ObservedGeneration,
		Wanted:             set.Spec.Replicas,
		Sets:               1,
		Reported: attention.Counts{
			Replicas:     set.Status.Replicas,
			FullyLabeled: set.Status.FullyLabeledReplicas,
			Ready:        set.Status.ReadyReplicas,
			Available:    set.Status.AvailableReplicas,
		},
	}
	wanted := labels.SelectorFromSet(set.Spec.Template.Labels)
	for _, m := range machines {
		f.Actual.Replicas++
		if wanted.Matches(labels.Set(m.Labels)) {
			f.Actual.FullyLabeled++
		}
		if m.DeletionTimestamp == nil {
			f.Live++
		}
		switch m.Status.CurrentStatus.Phase {
		case v1alpha1.MachineRunning:
			f.Actual.Ready++
			f.Actual.Available++
		case v1alpha1.MachineAvailable:
			f.Actual.Available++
		case v1alpha1.MachineFailed:
			if m.DeletionTimestamp == nil {
				f.Failed++
			}
		default: // counts as a member, and as nothing more
		}
	}
	return f
}

// ScaleObserved turns a set and its machines into what decide/scale asks for. Taken are names of machines that the set
// does not own; seed is the source of new names.
func ScaleObserved(set *v1alpha1.MachineSet, machines []*v1alpha1.Machine, taken []string, seed uint64) scale.Observed {
	o := scale.Observed{
		Set:      set.Name,
		Deleting: set.DeletionTimestamp != nil,
		Replicas: int(set.Spec.Replicas),
		Taken:    taken,
		Seed:     seed,
	}
	for _, m := range machines {
		o.Members = append(o.Members, scale.Member{
			Name:     m.Name,
			UID:      string(m.UID),
			Version:  m.ResourceVersion,
			Phase:    string(m.Status.CurrentStatus.Phase),
			Deleting: m.DeletionTimestamp != nil,
			Priority: Priority(m),
			Created:  m.CreationTimestamp.Time,
		})
	}
	return o
}

// Priority returns a machine's deletion priority: lower goes first; 3 where the annotation is absent or no number, as in
// MCM.
func Priority(m *v1alpha1.Machine) int {
	if p, err := strconv.Atoi(m.Annotations[v1alpha1.AnnotationMachinePriority]); err == nil {
		return p
	}
	return v1alpha1.PriorityDefault
}

// DeploymentFacts turns a deployment and its sets into the facts that say whether the deployment is calm. Counts come from
// the sets' statuses.
func DeploymentFacts(d *v1alpha1.MachineDeployment, sets []*v1alpha1.MachineSet) attention.GroupFacts {
	f := attention.GroupFacts{
		Deleting:           d.DeletionTimestamp != nil,
		Finalizer:          HasFinalizer(d.Finalizers),
		Generation:         d.Generation,
		ObservedGeneration: d.Status.ObservedGeneration,
		Wanted:             d.Spec.Replicas,
		Reported: attention.Counts{
			Replicas:    d.Status.Replicas,
			Ready:       d.Status.ReadyReplicas,
			Available:   d.Status.AvailableReplicas,
			Updated:     d.Status.UpdatedReplicas,
			Unavailable: d.Status.UnavailableReplicas,
		},
	}
	for _, s := range sets {
		if s.DeletionTimestamp == nil {
			f.Sets++
			f.Live += s.Spec.Replicas
		}
		f.Actual.Replicas += s.Status.Replicas
		f.Actual.Ready += s.Status.ReadyReplicas
		f.Actual.Available += s.Status.AvailableReplicas
		if SameTemplate(&s.Spec.Template, &d.Spec.Template) {
			f.Actual.Updated += s.Status.Replicas
		}
	}
	f.Actual.Unavailable = max(f.Live-f.Actual.Available, 0)
	return f
}

// RolloutObserved turns a deployment and its sets into what decide/rollout asks for.
func RolloutObserved(d *v1alpha1.MachineDeployment, sets []*v1alpha1.MachineSet) rollout.Observed {
	o := rollout.Observed{Replicas: d.Spec.Replicas, Deleting: d.DeletionTimestamp != nil}
	for _, s := range sets {
		o.Sets = append(o.Sets, rollout.Set{
			Name:     s.Name,
			UID:      string(s.UID),
			Version:  s.ResourceVersion,
			Replicas: s.Spec.Replicas,
			Current:  SameTemplate(&s.Spec.Template, &d.Spec.Template),
			Deleting: s.DeletionTimestamp != nil,
			Created:  s.CreationTimestamp.Time,
		})
	}
	return o
}

// OverlappingDeployments returns the names of the other deployments in the namespace whose selector matches the labels of
// this one's template: machines would have two masters.
func (c *Cluster) OverlappingDeployments(d *v1alpha1.MachineDeployment) []string {
	var names []string
	for _, item := range c.informers[Deployments].GetStore().List() {
		other := item.(*v1alpha1.MachineDeployment)
		if other.Namespace != d.Namespace || other.UID == d.UID || other.DeletionTimestamp != nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(other.Spec.Selector)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			names = append(names, other.Name)
		}
	}
	return names
}
