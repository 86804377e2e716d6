package activities

import (
	"context"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/rollout"
	"millwright/observe"
)

// Marks are what is put on record of the machines that the cluster autoscaler chose.
type Marks struct {
	Deployment Ref
	Version    string           // resourceVersion of the deployment that the decision saw
	Trigger    *rollout.Trigger // what becomes of the deployment's list of chosen machines; nil: it stays
	Mark       []rollout.Mark   // machines to go first
	Unmark     []rollout.Target // machines that are not chosen any more
}

// MarkMachines gives machines the priority of chosen ones and the time of the choice, or takes both off, each if it still is as the
// decision saw it. Only when all are done is the deployment's list of them written, with the version that the decision saw: until
// then it names what is to be done, and whoever runs it again decides the rest. A machine that is gone is passed over. Running it
// twice changes once, and may be a Conflict then. It returns the versions to wait for, of machines and of the deployment.
func (a *Activities) MarkMachines(ctx context.Context, in Marks) (Gate, error) {
	list := make([]machineWrite, 0, len(in.Mark)+len(in.Unmark))
	for _, mark := range in.Mark {
		list = append(list, machineWrite{mark.Target, func(m *v1alpha1.Machine) bool {
			priority := strconv.Itoa(v1alpha1.PriorityChosen)
			if m.Annotations[v1alpha1.AnnotationMachinePriority] == priority && m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime] == mark.At {
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
	gate, err := a.writeMachines(ctx, in.Deployment.Namespace, list)
	if err != nil || in.Trigger == nil {
		return gate, err
	}
	version, err := a.writeTrigger(ctx, in)
	gate.Raise(observe.Deployments, version)
	return gate, err
}

// writeTrigger brings the deployment's list of chosen machines up to date, and returns the version that it has then.
func (a *Activities) writeTrigger(ctx context.Context, in Marks) (string, error) {
	ref := in.Deployment
	d, err := a.liveDeployment(ctx, ref)
	switch {
	case err != nil:
		return "", err
	case d == nil:
		return "", objectGone(ref)
	case d.ResourceVersion != in.Version:
		return "", conflict(ref)
	}
	var value any
	if list := in.Trigger.Apply(d.Annotations[v1alpha1.AnnotationTriggerDeletion]); list != "" {
		value = list
	}
	data, err := seen(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationTriggerDeletion: value}}}, d)
	if err != nil {
		return "", err
	}
	d, err = a.Cluster.Client().MachineV1alpha1().MachineDeployments(ref.Namespace).Patch(ctx, ref.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		return "", writeError(ref, err)
	}
	return d.ResourceVersion, nil
}
