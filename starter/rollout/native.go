package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	"millwright/starter/kubecli"
)

// nativeDeployment is a deployment of machine.sapcloud.io.
type nativeDeployment struct {
	deployment.Tree

	machines versioned.Interface
}

// readNative reads a deployment of machine.sapcloud.io with its sets, machines and nodes.
func (l reader) readNative(ctx context.Context) (source, error) {
	deployments := l.clients.Machines.MachineV1alpha1().MachineDeployments(l.key.Namespace)
	d, err := kubecli.Find(ctx, request.MachineDeployment, l.key, deployments.Get)
	if err != nil {
		return nil, err
	}
	f := deployment.Tree{Deployment: d, AsMCM: l.asMCM}
	if f.Sets, err = l.setsOf(ctx, d); err != nil {
		return nil, err
	}
	if f.Members, f.Read, err = l.membersOf(ctx, d.Namespace, f.Sets); err != nil {
		return nil, err
	}
	f.Node, err = l.nodesOf(ctx)
	return nativeDeployment{f, l.clients.Machines}, err
}

func (l reader) setsOf(ctx context.Context, d *v1alpha1.MachineDeployment) ([]*v1alpha1.MachineSet, error) {
	list, err := l.clients.Machines.MachineV1alpha1().MachineSets(d.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list sets of deployment %s: %w", kubecli.KeyOf(d), err)
	}
	var owned []*v1alpha1.MachineSet
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], d) {
			owned = append(owned, &list.Items[i])
		}
	}
	slices.SortFunc(owned, func(a, b *v1alpha1.MachineSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return owned, nil
}

func (l reader) membersOf(
	ctx context.Context,
	namespace string,
	sets []*v1alpha1.MachineSet,
) (members []*v1alpha1.Machine, read string, err error) {
	list, err := l.clients.Machines.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("list machines: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		if slices.ContainsFunc(sets, func(s *v1alpha1.MachineSet) bool { return metav1.IsControlledBy(m, s) }) {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b *v1alpha1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return members, list.ResourceVersion, nil
}

// nodesOf reads all nodes in one request, and returns a function that finds the node of a machine. Without
// --target-kubeconfig, nodesOf returns nil.
func (l reader) nodesOf(ctx context.Context) (func(*v1alpha1.Machine) *corev1.Node, error) {
	if l.nodes == nil {
		return nil, nil
	}
	list, err := l.nodes.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	byName := map[string]*corev1.Node{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return func(m *v1alpha1.Machine) *corev1.Node { return byName[cache.NodeNameOf(m)] }, nil
}

func (f nativeDeployment) asTree(_ time.Time) tree {
	d := f.Deployment
	shown := tree{
		object:          d,
		kind:            "machinedeployment",
		argument:        kubecli.KeyOf(d),
		resource:        "machinedeployment",
		machineResource: "machine",
		templateWord:    "class",
		listDeletions:   "millwright drain list -n " + d.Namespace,
		strategy:        string(d.Spec.Strategy.EffectiveType()),
		operation:       d.Status.CurrentOperation,
		policy:          f.Policy,
		nodesUnread:     f.Node == nil,
	}
	for _, s := range f.Sets {
		shown.Sets = append(shown.Sets, set{
			s.Name,
			s.Spec.Template.Spec.Class.Name,
			s.CreationTimestamp.Time,
			s.Spec.Replicas,
			s.Annotations[v1alpha1.AnnotationChangeCause],
			s.Annotations[v1alpha1.AnnotationRolloutFailed],
		})
	}
	for _, m := range f.Members {
		shown.Members = append(shown.Members, member{
			name:           m.Name,
			uid:            string(m.UID),
			node:           cache.NodeNameOf(m),
			phase:          kubecli.Status(*m),
			phaseSince:     phaseSince(m),
			operation:      m.Status.LastOperation.Description,
			deleting:       m.DeletionTimestamp != nil,
			explainCommand: "millwright drain explain " + kubecli.KeyOf(m),
		})
	}
	return shown
}

// phaseSince returns the time at which a machine entered its phase.
func phaseSince(m *v1alpha1.Machine) time.Time {
	switch {
	case m.DeletionTimestamp != nil:
		return m.DeletionTimestamp.Time
	case m.Status.CurrentStatus.LastUpdateTime.IsZero():
		return m.CreationTimestamp.Time
	default:
		return m.Status.CurrentStatus.LastUpdateTime.Time
	}
}

func (f nativeDeployment) observed(now time.Time) rollout.Observed {
	return deployment.Observed(f.Tree, now)
}

func (f nativeDeployment) requestFacts(o rollout.Observed, next rollout.Decision) request.DeploymentFacts {
	return deployment.Request(f.Deployment, o, next)
}

// templateOfSet returns the template of a set in the form of the deployment's template: without the label that
// distinguishes sets.
func (f nativeDeployment) templateOfSet(set int) any { return templateWithoutHash(f.Sets[set]) }

func templateWithoutHash(set *v1alpha1.MachineSet) *v1alpha1.MachineTemplateSpec {
	t := set.Spec.Template.DeepCopy()
	delete(t.Labels, v1alpha1.LabelMachineTemplateHash)
	return t
}

func (f nativeDeployment) withPolicy(policy *v1alpha1.RolloutPolicy) source {
	f.Policy = policy
	return f
}

// withChange returns a copy of the deployment after a change.
func (f nativeDeployment) withChange(change func(d *v1alpha1.MachineDeployment)) nativeDeployment {
	f.Deployment = f.Deployment.DeepCopy()
	change(f.Deployment)
	return f
}

func (f nativeDeployment) withReplicas(replicas int32) source {
	return f.withChange(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = replicas })
}

func (f nativeDeployment) withFile(file string) (source, error) {
	found, sized, err := readDeployment(file, f.Deployment, v1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	if !sized {
		found.Spec.Replicas = f.Deployment.Spec.Replicas
	}
	return f.withChange(func(d *v1alpha1.MachineDeployment) { found.Spec.DeepCopyInto(&d.Spec) }), nil
}

func (f nativeDeployment) withoutPauseAndHold() source {
	return f.withChange(func(d *v1alpha1.MachineDeployment) {
		d.Spec.Paused = false
		delete(d.Annotations, v1alpha1.AnnotationRolloutHold)
	})
}

func (f nativeDeployment) withTemplateOfSet(set int, _ time.Time) source {
	return f.withChange(func(d *v1alpha1.MachineDeployment) {
		d.Spec.RollbackTo = nil
		if set >= 0 {
			d.Spec.Template = *templateWithoutHash(f.Sets[set])
		}
	})
}

func (f nativeDeployment) patch(ctx context.Context, data []byte) error {
	d := f.Deployment
	_, err := f.machines.MachineV1alpha1().
		MachineDeployments(d.Namespace).
		Patch(ctx, d.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

func (nativeDeployment) patchBuilder() func(request.Command, request.Decision) map[string]any {
	return nil
}
