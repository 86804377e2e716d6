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
	"millwright/decide/list"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/deployment"
	"millwright/starter/kubecli"
)

// millwrightDeployment is a deployment of machine.sapcloud.io.
type millwrightDeployment struct {
	deployment.ObjectTree

	machineClient versioned.Interface
}

// readMillwrightDeployment reads a deployment of machine.sapcloud.io with its sets, machines and nodes.
func (l deploymentReader) readMillwrightDeployment(ctx context.Context) (deploymentSource, error) {
	deployments := l.clients.MachineClient.MachineV1alpha1().MachineDeployments(l.key.Namespace)
	d, err := kubecli.FindObject(ctx, l.clients, request.KindMachineDeployment, l.key, deployments.Get)
	if err != nil {
		return nil, err
	}
	f := deployment.ObjectTree{Deployment: d, BehavesAsMCM: l.actsAsMCM}
	if f.Sets, err = l.listSetsOfDeployment(ctx, d); err != nil {
		return nil, err
	}
	if f.Members, f.MachinesVersion, err = l.listMachinesOfSets(ctx, d.Namespace, f.Sets); err != nil {
		return nil, err
	}
	if f.ClassOfMachine, err = l.readClassesOfMachines(ctx, d.Namespace); err != nil {
		return nil, err
	}
	f.NodeOfMachine, err = l.readNodesOfMachines(ctx)
	return millwrightDeployment{f, l.clients.MachineClient}, err
}

// readClassesOfMachines reads all classes of a namespace in one request, and returns a function that finds the class of
// a machine.
func (l deploymentReader) readClassesOfMachines(
	ctx context.Context,
	namespace string,
) (func(*v1alpha1.Machine) *v1alpha1.MachineClass, error) {
	list, err := l.clients.MachineClient.MachineV1alpha1().MachineClasses(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machine classes: %w", err)
	}
	byName := map[string]*v1alpha1.MachineClass{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return func(m *v1alpha1.Machine) *v1alpha1.MachineClass { return byName[m.Spec.Class.Name] }, nil
}

func (l deploymentReader) listSetsOfDeployment(
	ctx context.Context,
	d *v1alpha1.MachineDeployment,
) ([]*v1alpha1.MachineSet, error) {
	sets, err := l.clients.MachineClient.MachineV1alpha1().MachineSets(d.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list sets of deployment %s: %w", kubecli.KeyOfObject(d), err)
	}
	owned := controlledBy(d, cache.PointersToItems(sets.Items))
	return sortedByAge(owned), nil
}

// controlledBy returns the objects that an owner controls.
func controlledBy[T metav1.Object](owner metav1.Object, objects []T) []T {
	return list.Filter(objects, func(o T) bool { return metav1.IsControlledBy(o, owner) })
}

func (l deploymentReader) listMachinesOfSets(
	ctx context.Context,
	namespace string,
	sets []*v1alpha1.MachineSet,
) (members []*v1alpha1.Machine, read string, err error) {
	list, err := l.clients.MachineClient.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
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

// readNodesOfMachines reads all nodes in one request, and returns a function that finds the node of a machine. Without
// --target-kubeconfig, readNodesOfMachines returns nil.
func (l deploymentReader) readNodesOfMachines(ctx context.Context) (func(*v1alpha1.Machine) *corev1.Node, error) {
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
	return func(m *v1alpha1.Machine) *corev1.Node { return byName[cache.NodeNameOfMachine(m)] }, nil
}

func (f millwrightDeployment) asTree(_ time.Time) deploymentTree {
	d := f.Deployment
	shown := deploymentTree{
		object:               d,
		kind:                 "machinedeployment",
		argument:             kubecli.KeyOfObject(d),
		resource:             "machinedeployment",
		setResource:          "machineset",
		machineResource:      "machine",
		templateWord:         "class",
		listDeletionsCommand: "millwright drain list -n " + d.Namespace,
		strategy:             string(d.Spec.Strategy.EffectiveType()),
		operation:            d.Status.CurrentOperation,
		policy:               f.Policy,
		hasUnreadNodes:       f.NodeOfMachine == nil,
	}
	for _, s := range f.Sets {
		shown.Sets = append(shown.Sets, treeSet{
			s.Name,
			s.Spec.Template.Spec.Class.Name,
			s.CreationTimestamp.Time,
			s.Spec.Replicas,
			s.Annotations[v1alpha1.AnnotationChangeCause],
			s.Annotations[v1alpha1.AnnotationRolloutFailed],
		})
	}
	for _, m := range f.Members {
		shown.Machines = append(shown.Machines, treeMachine{
			name:           m.Name,
			uid:            string(m.UID),
			node:           cache.NodeNameOfMachine(m),
			phase:          kubecli.PhaseText(*m),
			phaseBeginTime: phaseBeginTime(m),
			lastOperation:  m.Status.LastOperation.Description,
			isBeingDeleted: m.DeletionTimestamp != nil,
			explainCommand: "millwright drain explain " + kubecli.KeyOfObject(m),
		})
	}
	return shown
}

// phaseBeginTime returns the time at which a machine entered its phase.
func phaseBeginTime(m *v1alpha1.Machine) time.Time {
	switch {
	case m.DeletionTimestamp != nil:
		return m.DeletionTimestamp.Time
	case m.Status.CurrentStatus.LastUpdateTime.IsZero():
		return m.CreationTimestamp.Time
	default:
		return m.Status.CurrentStatus.LastUpdateTime.Time
	}
}

func (f millwrightDeployment) rolloutFacts(now time.Time) rollout.Facts {
	return deployment.RolloutFacts(f.ObjectTree, now)
}

func (f millwrightDeployment) requestFacts(o rollout.Facts, next rollout.Decision) request.DeploymentFacts {
	return deployment.RequestFacts(f.Deployment, o, next)
}

// templateOfSet returns the template of a set without the label that distinguishes sets, so that it can be compared
// with the deployment's template.
func (f millwrightDeployment) templateOfSet(set int) any { return templateWithoutHash(f.Sets[set]) }

func templateWithoutHash(set *v1alpha1.MachineSet) *v1alpha1.MachineTemplateSpec {
	t := set.Spec.Template.DeepCopy()
	delete(t.Labels, v1alpha1.LabelMachineTemplateHash)
	return t
}

func (f millwrightDeployment) withPolicy(policy *v1alpha1.RolloutPolicy) deploymentSource {
	f.Policy = policy
	return f
}

func (f millwrightDeployment) withSiblings(
	ctx context.Context, policies []*v1alpha1.RolloutPolicy,
) (deploymentSource, error) {
	client, namespace := f.machineClient.MachineV1alpha1(), f.Deployment.Namespace
	all, err := client.MachineDeployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list deployments of namespace %s: %w", namespace, err)
	}
	sets, err := client.MachineSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list sets of namespace %s: %w", namespace, err)
	}
	f.ObjectTree = f.WithSiblings(
		policies,
		cache.PointersToItems(all.Items),
		func(d *v1alpha1.MachineDeployment) []*v1alpha1.MachineSet {
			return controlledBy(d, cache.PointersToItems(sets.Items))
		},
	)
	return f, nil
}

// withChange returns a copy of the deployment after a change.
func (f millwrightDeployment) withChange(change func(d *v1alpha1.MachineDeployment)) millwrightDeployment {
	f.Deployment = f.Deployment.DeepCopy()
	change(f.Deployment)
	return f
}

func (f millwrightDeployment) withReplicas(replicas int32) deploymentSource {
	return f.withChange(func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = replicas })
}

func (f millwrightDeployment) withSpecFromFile(file string) (deploymentSource, error) {
	found, sized, err := readDeployment(file, f.Deployment, v1alpha1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	if !sized {
		found.Spec.Replicas = f.Deployment.Spec.Replicas
	}
	return f.withChange(func(d *v1alpha1.MachineDeployment) { found.Spec.DeepCopyInto(&d.Spec) }), nil
}

func (f millwrightDeployment) withoutPauseAndHold() deploymentSource {
	return f.withChange(func(d *v1alpha1.MachineDeployment) {
		d.Spec.Paused = false
		delete(d.Annotations, v1alpha1.AnnotationRolloutHold)
	})
}

func (f millwrightDeployment) withTemplateOfSet(set int, _ time.Time) deploymentSource {
	return f.withChange(func(d *v1alpha1.MachineDeployment) {
		d.Spec.RollbackTo = nil
		if set >= 0 {
			d.Spec.Template = *templateWithoutHash(f.Sets[set])
		}
	})
}

func (f millwrightDeployment) patchDeployment(ctx context.Context, data []byte) error {
	d := f.Deployment
	_, err := f.machineClient.MachineV1alpha1().
		MachineDeployments(d.Namespace).
		Patch(ctx, d.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

func (millwrightDeployment) patchBuilder() func(request.Command, request.Decision) map[string]any {
	return nil
}
