package activities

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe"
)

// MachineChanges are what a rollout in place does with machines of a deployment.
type MachineChanges struct {
	Deployment Ref
	Move       []rollout.Move   // hand them to the set that their software is of by now
	Accept     []rollout.Target // that set counts them: take the label off that protects them from it
}

// ChangeMachines hands machines over, or ends their protection, each if it still is as the decision saw it. A set that takes some
// is read live first: one that is gone or going, or is not the deployment's any more, is a Conflict, and nothing is written. A
// machine that is gone is passed over; one that changed is a Conflict, reported when the others are done. It returns the
// versions to wait for. Running it twice changes once, and is a Conflict then.
func (a *Activities) ChangeMachines(ctx context.Context, in MachineChanges) (Gate, error) {
	var list []machineWrite
	sets := map[string]*v1alpha1.MachineSet{}
	for _, move := range in.Move {
		if sets[move.ToUID] == nil {
			set, err := a.receiver(ctx, in.Deployment, move)
			if err != nil {
				return nil, err
			}
			sets[move.ToUID] = set
		}
		old, _ := a.Cluster.Set(in.Deployment.Namespace + "/" + move.From)
		list = append(list, machineWrite{move.Machine, func(m *v1alpha1.Machine) bool {
			return handOver(m, old, sets[move.ToUID])
		}, sets[move.ToUID]})
	}
	for _, t := range in.Accept {
		list = append(list, machineWrite{t, func(m *v1alpha1.Machine) bool {
			_, labelled := m.Labels[v1alpha1.LabelUpdateResult]
			delete(m.Labels, v1alpha1.LabelUpdateResult)
			return labelled
		}, nil})
	}
	return a.writeMachines(ctx, in.Deployment.Namespace, list)
}

// machineWrite is what is done with one machine; set, where it is not nil, is told that it got the machine.
type machineWrite struct {
	rollout.Target
	change func(*v1alpha1.Machine) bool
	set    *v1alpha1.MachineSet
}

// writeMachines writes machines as changeMember does, and returns the versions to wait for.
func (a *Activities) writeMachines(ctx context.Context, namespace string, list []machineWrite) (Gate, error) {
	versions := make([]string, len(list))
	err := inParallel(len(list), func(i int) error {
		w := list[i]
		version, changed, err := a.changeMember(ctx, Ref{Namespace: namespace, Name: w.Name, UID: w.UID}, w.Version, w.change)
		if err != nil {
			return err
		}
		versions[i] = version
		if changed && w.set != nil {
			a.Recorder.Event(w.set, corev1.EventTypeNormal, "SuccessfulAdopt", "Adopted Machine: "+w.Name+": "+w.Why)
		}
		return nil
	})
	gate := Gate{}
	for _, version := range versions {
		gate.Raise(observe.Machines, version)
	}
	return gate, err
}

// receiver reads the set that is to get a machine.
func (a *Activities) receiver(ctx context.Context, deployment Ref, move rollout.Move) (*v1alpha1.MachineSet, error) {
	ref := Ref{Namespace: deployment.Namespace, Name: move.To, UID: move.ToUID}
	set, err := a.Cluster.Client().MachineV1alpha1().MachineSets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get set %s: %w", ref.Key(), err)
	}
	if err != nil || string(set.UID) != ref.UID || set.DeletionTimestamp != nil {
		return nil, conflict(ref)
	}
	if owner := metav1.GetControllerOf(set); owner == nil || string(owner.UID) != deployment.UID {
		return nil, conflict(ref)
	}
	return set, nil
}

// handOver makes a machine that was updated in place one of another set, as if that had made it: its controller, its labels,
// and what the template says, but for the instance, which is the same. The label keeps the set from deleting it as one too many
// before the set counts it. Labels and annotations that others gave the machine stay; those go that it has from the old set, which is nil where
// it is not known.
func handOver(m *v1alpha1.Machine, old, set *v1alpha1.MachineSet) bool {
	if m.DeletionTimestamp != nil || metav1.IsControlledBy(m, set) {
		return false
	}
	isController := func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller }
	m.OwnerReferences = append(slices.DeleteFunc(m.OwnerReferences, isController),
		*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet")))
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	if old != nil {
		less(m.Labels, old.Spec.Template.Labels)
		less(m.Annotations, old.Spec.Template.Annotations)
		if old.Spec.Selector != nil { // by which it would find the machine again
			less(m.Labels, old.Spec.Selector.MatchLabels)
		}
	}
	m.Spec.Class = set.Spec.Template.Spec.Class
	observe.FollowTemplate(m, set)
	if set.Spec.Selector != nil {
		maps.Copy(m.Labels, set.Spec.Selector.MatchLabels)
	}
	m.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.ValueUpdateSuccessful
	return true
}

// less takes off what is the same in some.
func less(all, some map[string]string) {
	maps.DeleteFunc(all, func(key, value string) bool {
		was, there := some[key]
		return there && was == value
	})
}
