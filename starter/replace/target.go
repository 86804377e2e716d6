package replace

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/request"
	"millwright/observe/cache"
	"millwright/observe/capi"
	capidrain "millwright/observe/capi/drain"
	observe "millwright/observe/drain"
	"millwright/observe/machine"
	"millwright/starter/kubecli"
)

// target is the machine that is to be replaced.
type target struct {
	object     metav1.Object
	apiVersion string // of the machine, for the event
	facts      facts
	send       func(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// findTarget reads a machine of Millwright, or else one of Cluster API. If group is not empty, findTarget looks in this
// API group only.
func findTarget(ctx context.Context, clients kubecli.Clients, group string, key types.NamespacedName) (target, error) {
	if group == clusterv1.GroupVersion.Group {
		return findClusterAPITarget(ctx, clients, key, true)
	}
	machines := clients.MachineClient.MachineV1alpha1().Machines(key.Namespace)
	m, err := kubecli.FindObject(ctx, clients, request.KindMachine, key, machines.Get)
	if apierrors.IsNotFound(err) && group == "" {
		other, otherErr := findClusterAPITarget(ctx, clients, key, false)
		if otherErr != nil || other.object != nil {
			return other, otherErr
		}
	}
	if err != nil {
		return target{}, err
	}
	t := target{object: m, apiVersion: v1alpha1.SchemeGroupVersion.String(), send: machines.Delete}
	t.facts = machineFacts(m)
	if t.facts.Set != "" {
		t.facts.addSet(ctx, clients, m)
	}
	return t, nil
}

// machineFacts returns the facts of a machine alone.
func machineFacts(m *v1alpha1.Machine) facts {
	name := kubecli.KeyOfObject(m)
	f := facts{
		Name:          name,
		Node:          cache.NodeNameOfMachine(m),
		Instance:      m.Spec.ProviderID,
		FollowCommand: "millwright drain watch " + name,
		IsPreserved: machine.IsPreservedNowOrLater(m) ||
			m.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.ValuePreserveNow,
		PreservedUntil:  cache.TimeOrZero(m.Status.CurrentStatus.PreserveExpiryTime),
		PreserveCommand: fmt.Sprintf("millwright preserve %s --stop", name),
	}
	if timeout := m.Spec.EffectiveDrainTimeout(); timeout != observe.NoDrainTimeout {
		f.DrainTimeout = phrase.DurationText(timeout)
	}
	f.addObject(m, v1alpha1.GroupName)
	return f
}

// addObject adds the facts that machines of both API groups have.
func (f *facts) addObject(m metav1.Object, group string) {
	_, f.IsHeld = m.GetAnnotations()[v1alpha1.AnnotationHold]
	if at := m.GetDeletionTimestamp(); at != nil {
		f.DeletingSince = at.Time
	}
	owner := metav1.GetControllerOf(m)
	if owner == nil {
		return
	}
	if version, err := schema.ParseGroupVersion(
		owner.APIVersion,
	); err == nil && owner.Kind == "MachineSet" &&
		version.Group == group {
		f.Set = owner.Name
	} else {
		f.Owner = owner.Kind + " " + owner.Name
	}
}

// addSet reads the set of a machine. If the user may not read it, the facts say so.
func (f *facts) addSet(ctx context.Context, clients kubecli.Clients, m *v1alpha1.Machine) {
	f.SetArgument = "machineset/" + m.Namespace + "/" + f.Set
	api := clients.MachineClient.MachineV1alpha1()
	set, err := api.MachineSets(m.Namespace).Get(ctx, f.Set, metav1.GetOptions{})
	if err != nil {
		f.SetUnread = kubecli.CollapseSpaces(err.Error())
		return
	}
	all, err := api.Machines(m.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.SetUnread = kubecli.CollapseSpaces(err.Error())
		return
	}
	f.SetReplicas = int(set.Spec.Replicas)
	f.SetMachines = list.CountWhere(all.Items, func(m v1alpha1.Machine) bool {
		return m.DeletionTimestamp == nil && metav1.IsControlledBy(&m, set)
	})
	_, scaleUpDisabled := set.Labels[v1alpha1.LabelScaleUpDisabled]
	f.addStop(set, cache.IsFrozen(set), scaleUpDisabled)
}

// addStop adds why a set makes no machines now.
func (f *facts) addStop(set metav1.Object, isFrozen, isScaleUpDisabled bool) {
	_, paused := set.GetAnnotations()[v1alpha1.AnnotationPaused]
	switch {
	case set.GetDeletionTimestamp() != nil:
		f.SetStopped = "it is being deleted"
	case isFrozen:
		f.SetStopped = "it is frozen"
	case paused:
		f.SetStopped = "it is paused"
	case isScaleUpDisabled:
		f.SetStopped = "a rollout has disabled its scale-up"
	}
}

// findClusterAPITarget reads a machine of Cluster API. The argument meant is true if the user named the API group. If
// meant is false and there is no such machine, the object of the target is nil.
func findClusterAPITarget(
	ctx context.Context,
	clients kubecli.Clients,
	key types.NamespacedName,
	meant bool,
) (target, error) {
	if served, err := clients.ClusterAPI.RequireServedIf(meant); err != nil || !served {
		return target{}, err
	}
	client := clients.ClusterAPI.Client()
	m, err := kubecli.FindObject(ctx, clients, request.KindMachine, key, client.Machines(key.Namespace).Get)
	switch {
	case apierrors.IsNotFound(err) && !meant:
		return target{}, nil
	case err != nil:
		return target{}, err
	}
	name := kubecli.KeyOfObject(m)
	f := facts{Name: name, Node: m.Status.NodeRef.Name, Instance: m.Spec.ProviderID}
	f.IsDrainedByOthers = !capidrain.IsDrainedByMillwright(m)
	f.FollowCommand = fmt.Sprintf("kubectl describe machines.cluster.x-k8s.io -n %s %s", m.Namespace, m.Name)
	if !f.IsDrainedByOthers {
		f.FollowCommand = "millwright drain watch " + name
		if timeout := capidrain.ToMillwrightMachine(m).Spec.EffectiveDrainTimeout(); timeout != observe.NoDrainTimeout {
			f.DrainTimeout = phrase.DurationText(timeout)
		}
	}
	f.addObject(m, clusterv1.GroupVersion.Group)
	if f.Set != "" {
		f.addClusterAPISet(ctx, client, m)
	}
	return target{m, clusterv1.GroupVersion.String(), f, client.Machines(key.Namespace).Delete}, nil
}

// addClusterAPISet is addSet for a machine of Cluster API.
func (f *facts) addClusterAPISet(ctx context.Context, client *capi.Client, m *clusterv1.Machine) {
	set, err := client.MachineSets(m.Namespace).Get(ctx, f.Set, metav1.GetOptions{})
	if err != nil {
		f.SetUnread = kubecli.CollapseSpaces(err.Error())
		return
	}
	all, err := client.Machines(m.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.SetUnread = kubecli.CollapseSpaces(err.Error())
		return
	}
	if capi.IsMarkedByMillwright(set) {
		f.SetArgument = "machineset." + clusterv1.GroupVersion.Group + "/" + m.Namespace + "/" + f.Set
	}
	f.SetReplicas = int(capi.ValueOrZero(set.Spec.Replicas))
	f.SetMachines = list.CountWhere(all.Items, func(m clusterv1.Machine) bool {
		return m.DeletionTimestamp == nil && metav1.IsControlledBy(&m, set)
	})
	f.addStop(set, false, false)
}

// eventReason is the reason of the event with actor and reason, as for the requests of other commands.
const eventReason = "RequestApplied"

// createEvent creates the event that says who asked for the replacement.
func (t target) createEvent(ctx context.Context, clients kubecli.Clients, summary string, at time.Time) error {
	now := metav1.NewTime(at)
	_, err := clients.Core.Events(t.object.GetNamespace()).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.object.GetNamespace(), GenerateName: t.object.GetName() + "."},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: t.apiVersion, Kind: "Machine",
			Namespace: t.object.GetNamespace(), Name: t.object.GetName(), UID: t.object.GetUID(),
		},
		Type: corev1.EventTypeNormal, Reason: eventReason, Message: summary,
		Source: corev1.EventSource{Component: "millwright-starter"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("the machine is being deleted, but the event with actor and reason was not created: %w", err)
	}
	return nil
}
