package deployment

import (
	"context"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	observeset "millwright/observe/set"
)

// MachineChanges are the changes of a deployment's machines in an in-place rollout. Mark and Unmark are nil here,
// because MarkMachines makes these changes.
type MachineChanges struct {
	Deployment kube.Ref
	rollout.MachineChanges
}

// ChangeMachines moves machines to other sets, or removes the label update-result from machines, which protects them
// from deletion. Each receiving set is first read live. If a receiving set is gone, is being deleted or has another
// controller, the activity fails with a Conflict and writes nothing. A machine that is gone is skipped. A machine that
// changed since the decision causes a Conflict, which is returned after the other machines are written. A second run
// changes nothing, and fails with a Conflict. The result holds the resource versions of the written machines.
func (a *Activities) ChangeMachines(ctx context.Context, in MachineChanges) (kube.MinVersions, error) {
	var list []machineWrite
	sets := map[string]*v1alpha1.MachineSet{}
	for _, move := range in.Move {
		if sets[move.ToUID] == nil {
			ref := kube.Ref{Namespace: in.Deployment.Namespace, Name: move.To, UID: move.ToUID}
			set, err := a.readExistingSet(ctx, ref)
			if err != nil {
				return nil, err
			}
			if !isSetControlledBy(in.Deployment, set) {
				return nil, kube.ConflictError(ref)
			}
			sets[move.ToUID] = set
		}
		old, _ := a.Kube.Cluster.MachineSet(in.Deployment.Namespace + "/" + move.From)
		list = append(list, machineWrite{move.Machine, func(m *v1alpha1.Machine) bool {
			return handOverMachine(m, old, sets[move.ToUID])
		}, sets[move.ToUID]})
	}
	for _, t := range in.ClearUpdateResult {
		list = append(list, machineWrite{t, func(m *v1alpha1.Machine) bool {
			_, labelled := m.Labels[v1alpha1.LabelUpdateResult]
			delete(m.Labels, v1alpha1.LabelUpdateResult)
			return labelled
		}, nil})
	}
	return a.writeMachines(ctx, in.Deployment.Namespace, list)
}

// machineWrite is the change of one machine. If set is not nil, an event on the set reports the adoption.
type machineWrite struct {
	rollout.ObjectTarget
	change func(*v1alpha1.Machine) bool
	set    *v1alpha1.MachineSet
}

// writeMachines writes machines as kube.ChangeMachineAtVersion does, and returns the new resource versions.
func (a *Activities) writeMachines(
	ctx context.Context,
	namespace string,
	list []machineWrite,
) (kube.MinVersions, error) {
	return kube.WriteInParallel(cache.MachinesResource, len(list), func(i int) (string, error) {
		w := list[i]
		version, changed, err := a.Kube.ChangeMachineAtVersion(
			ctx,
			kube.Ref{Namespace: namespace, Name: w.Name, UID: w.UID},
			w.Version,
			w.change,
		)
		if changed && w.set != nil {
			a.Kube.Recorder.Event(
				w.set,
				corev1.EventTypeNormal,
				vocabulary.ReasonSuccessfulAdopt,
				"Adopted Machine: "+w.Name+": "+w.Why,
			)
		}
		return version, err
	})
}

// readExistingSet reads a set live. A set that is gone or is being deleted causes a Conflict.
func (a *Activities) readExistingSet(ctx context.Context, ref kube.Ref) (*v1alpha1.MachineSet, error) {
	set, err := kube.ReadLive(ctx, a.Kube.Sets(ref.Namespace), "set", ref)
	if err == nil && (set == nil || set.DeletionTimestamp != nil) {
		return nil, kube.ConflictError(ref)
	}
	return set, err
}

// isSetControlledBy reports whether a deployment controls a set.
func isSetControlledBy(deployment kube.Ref, set *v1alpha1.MachineSet) bool {
	owner := metav1.GetControllerOf(set)
	return owner != nil && string(owner.UID) == deployment.UID
}

// handOverMachine moves a machine that was updated in place to another set, as if the other set had created the
// machine. The machine gets the new set's controller reference, labels and template values, except values that belong
// to the instance. A label protects the machine from deletion as surplus until the new set counts the machine. If old
// is not nil, labels and annotations from the old set's template are removed; other labels and annotations stay.
func handOverMachine(m *v1alpha1.Machine, old, set *v1alpha1.MachineSet) bool {
	if m.DeletionTimestamp != nil || metav1.IsControlledBy(m, set) {
		return false
	}
	kube.SetController(m, set, cache.KindSet)
	if old != nil {
		removeEqualEntries(m.Labels, old.Spec.Template.Labels)
		removeEqualEntries(m.Annotations, old.Spec.Template.Annotations)
		if old.Spec.Selector != nil { // with these labels, the old set would adopt the machine again
			removeEqualEntries(m.Labels, old.Spec.Selector.MatchLabels)
		}
	}
	m.Spec.Class = set.Spec.Template.Spec.Class
	observeset.CopyTemplateFields(m, set)
	if set.Spec.Selector != nil {
		m.Labels = labels.Merge(m.Labels, set.Spec.Selector.MatchLabels)
	}
	metav1.SetMetaDataLabel(&m.ObjectMeta, v1alpha1.LabelUpdateResult, v1alpha1.ValueUpdateSuccessful)
	return true
}

// removeEqualEntries removes each entry of all that has the same key and the same value in some.
func removeEqualEntries(all, some map[string]string) {
	maps.DeleteFunc(all, func(key, value string) bool {
		was, there := some[key]
		return there && was == value
	})
}

// MachineMarks are the records about the machines that the cluster autoscaler chose for deletion.
type MachineMarks struct {
	Deployment kube.Ref
	Version    string                           // resourceVersion of the deployment that the decision saw
	Trigger    *rollout.TriggerAnnotationUpdate // change of the deployment's list of chosen machines; nil: no change
	Mark       []rollout.ChoiceMark             // machines to delete first
	Unmark     []rollout.ObjectTarget           // machines that are no longer chosen
}

// MarkMachines annotates chosen machines with their deletion priority and the time of the choice, and removes both
// annotations from machines that are no longer chosen. The deployment's list of chosen machines is written last,
// because the list shows the remaining work until then. A machine that is gone is skipped. A machine that changed since
// the decision causes a Conflict, and so does a changed deployment. A second run changes nothing, and may fail with a
// Conflict. The result holds the resource versions of the written objects.
func (a *Activities) MarkMachines(ctx context.Context, in MachineMarks) (kube.MinVersions, error) {
	list := make([]machineWrite, 0, len(in.Mark)+len(in.Unmark))
	for _, mark := range in.Mark {
		list = append(list, machineWrite{mark.ObjectTarget, func(m *v1alpha1.Machine) bool {
			priority := strconv.Itoa(v1alpha1.PriorityChosen)
			if m.Annotations[v1alpha1.AnnotationMachinePriority] == priority &&
				m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime] == mark.At {
				return false
			}
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMachinePriority, priority)
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMarkedForDeletionTime, mark.At)
			return true
		}, nil})
	}
	for _, t := range in.Unmark {
		list = append(list, machineWrite{t, func(m *v1alpha1.Machine) bool {
			before := len(m.Annotations)
			delete(m.Annotations, v1alpha1.AnnotationMachinePriority)
			delete(m.Annotations, v1alpha1.AnnotationMarkedForDeletionTime)
			return len(m.Annotations) < before
		}, nil})
	}
	versions, err := a.writeMachines(ctx, in.Deployment.Namespace, list)
	if err != nil || in.Trigger == nil {
		return versions, err
	}
	version, err := a.writeTriggerAnnotation(ctx, in)
	versions.RaiseVersion(cache.DeploymentsResource, version)
	return versions, err
}

// writeTriggerAnnotation updates the deployment's list of chosen machines, and returns the resource version of the
// deployment.
func (a *Activities) writeTriggerAnnotation(ctx context.Context, in MachineMarks) (string, error) {
	ref := in.Deployment
	d, err := kube.ReadLiveAtVersion(ctx, a.Kube.Deployments(ref.Namespace), "deployment", ref, in.Version)
	if err != nil {
		return "", err
	}
	var value any
	if list := in.Trigger.Apply(d.Annotations[v1alpha1.AnnotationTriggerDeletion]); list != "" {
		value = list
	}
	annotations := map[string]any{v1alpha1.AnnotationTriggerDeletion: value}
	d, err = kube.PatchObject(
		ctx,
		a.Kube.Deployments(ref.Namespace),
		d,
		map[string]any{"metadata": map[string]any{"annotations": annotations}},
	)
	if err != nil {
		return "", kube.ClassifyWriteError(ctx, ref, err)
	}
	return d.ResourceVersion, nil
}
