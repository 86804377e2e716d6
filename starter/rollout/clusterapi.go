package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/cache"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
	capiset "millwright/observe/capi/set"
	"millwright/starter/kubecli"
)

// clusterAPIDeployment is a deployment of Cluster API that Millwright reconciles.
type clusterAPIDeployment struct{ deployment.ObjectTree }

// readClusterAPIDeployment reads a deployment of Cluster API with its sets and machines. The argument meant is true if
// the user named the API group. If the deployment does not exist or Millwright does not reconcile it,
// readClusterAPIDeployment returns an error if meant is true, and nil, nil if meant is false.
func (l deploymentReader) readClusterAPIDeployment(ctx context.Context, meant bool) (deploymentSource, error) {
	if served, err := l.clients.ClusterAPI.RequireServedIf(meant); err != nil || !served {
		return nil, err
	}
	client := l.clients.ClusterAPI.Client()
	d, err := kubecli.FindObject(
		ctx,
		l.clients,
		request.KindMachineDeployment,
		l.key,
		client.Deployments(l.key.Namespace).Get,
	)
	switch {
	case apierrors.IsNotFound(err) && !meant:
		return nil, nil
	case err != nil:
		return nil, err
	case !capi.HasFinalizer(d) && !meant:
		return nil, nil
	case !capi.HasFinalizer(d):
		return nil, fmt.Errorf(
			"deployment %s has no finalizer %s, so Millwright does not roll it out; its label %s is %q",
			l.key,
			capi.Finalizer,
			clusterv1.WatchLabel,
			d.Labels[clusterv1.WatchLabel],
		)
	}
	// the worker's filter: the worker sets the finalizer on objects with this label
	filter := d.Labels[clusterv1.WatchLabel]
	f, err := deployment.ReadLiveTreeWithoutPolicy(
		ctx,
		capi.NewCacheWithoutInformers(client, capi.Settings{WatchFilter: filter}),
		d,
	)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(f.Sets, func(a, b *clusterv1.MachineSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(f.Members, func(a, b *clusterv1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return clusterAPIDeployment{f}, nil
}

func (f clusterAPIDeployment) asTree(now time.Time) deploymentTree {
	group := "." + clusterv1.GroupVersion.Group
	d := f.Deployment
	shown := deploymentTree{
		object:               d,
		kind:                 "machinedeployment" + group,
		argument:             "machinedeployment" + group + "/" + kubecli.KeyOfObject(d),
		resource:             "machinedeployments" + group,
		setResource:          "machineset" + group,
		machineResource:      "machines" + group,
		templateWord:         "template",
		listDeletionsCommand: "millwright top -n " + d.Namespace,
		strategy: cmp.Or(
			string(d.Spec.Rollout.Strategy.Type),
			string(clusterv1.RollingUpdateMachineDeploymentStrategyType),
		),
		operation: deployment.OperationWithBlockers(d),
		policy:    f.Policy,
	}
	for _, s := range f.Sets {
		shown.Sets = append(shown.Sets, treeSet{
			s.Name,
			s.Spec.Template.Spec.InfrastructureRef.Name,
			s.CreationTimestamp.Time,
			capi.ValueOrZero(s.Spec.Replicas),
			s.Annotations[v1alpha1.AnnotationChangeCause],
			s.Annotations[v1alpha1.AnnotationRolloutFailed],
		})
	}
	for _, m := range f.Members {
		shown.Machines = append(shown.Machines, treeMachineOfClusterAPI(m, now))
	}
	return shown
}

func treeMachineOfClusterAPI(m *clusterv1.Machine, now time.Time) treeMachine {
	of := treeMachine{
		name:           m.Name,
		uid:            string(m.UID),
		node:           m.Status.NodeRef.Name,
		phase:          cmp.Or(m.Status.Phase, "new"),
		phaseBeginTime: m.CreationTimestamp.Time,
		isBeingDeleted: m.DeletionTimestamp != nil,
		explainCommand: fmt.Sprintf("millwright explain machine.cluster.x-k8s.io/%s", kubecli.KeyOfObject(m)),
	}
	if o := capiset.MachineOperation(m, now); o != nil {
		of.lastOperation = o.Cause
	}
	if m.Status.LastUpdated.After(of.phaseBeginTime) {
		of.phaseBeginTime = m.Status.LastUpdated.Time
	}
	if m.DeletionTimestamp != nil {
		of.phaseBeginTime = m.DeletionTimestamp.Time
	}
	return of
}

func (f clusterAPIDeployment) rolloutFacts(now time.Time) rollout.Facts {
	return deployment.RolloutFacts(f.ObjectTree, now)
}

func (f clusterAPIDeployment) requestFacts(o rollout.Facts, next rollout.Decision) request.DeploymentFacts {
	return deployment.RequestFacts(f.ObjectTree, o, next)
}

// templateOfSet returns the template of a set without the label that distinguishes sets, so that it can be compared
// with the deployment's template.
func (f clusterAPIDeployment) templateOfSet(set int) any {
	t := f.Sets[set].Spec.Template.DeepCopy()
	delete(t.Labels, clusterv1.MachineDeploymentUniqueLabel)
	return t
}

func (f clusterAPIDeployment) withPolicy(policy *v1alpha1.RolloutPolicy) deploymentSource {
	f.Policy = policy
	return f
}

func (f clusterAPIDeployment) withSiblings(
	ctx context.Context, policies []*v1alpha1.RolloutPolicy,
) (deploymentSource, error) {
	client, namespace := f.Cache.Client(), f.Deployment.Namespace
	all, err := client.Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machinedeployments of namespace %s: %w", namespace, err)
	}
	sets, err := client.MachineSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machinesets of namespace %s: %w", namespace, err)
	}
	clusters, err := client.Clusters(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list clusters of namespace %s: %w", namespace, err)
	}
	complete := func(s deployment.ObjectTree) deployment.ObjectTree {
		s.Sets = controlledBy(s.Deployment, cache.PointersToItems(sets.Items))
		s.Cluster = list.FindFirst(cache.PointersToItems(clusters.Items), func(c *clusterv1.Cluster) bool {
			return c.Name == s.Deployment.Spec.ClusterName
		})
		return s
	}
	f.ObjectTree = f.WithSiblings(policies, cache.PointersToItems(all.Items), complete)
	return f, nil
}

// withChange returns a copy of the deployment after a change.
func (f clusterAPIDeployment) withChange(change func(d *clusterv1.MachineDeployment)) clusterAPIDeployment {
	f.Deployment = f.Deployment.DeepCopy()
	change(f.Deployment)
	return f
}

func (f clusterAPIDeployment) withReplicas(replicas int32) deploymentSource {
	return f.withChange(func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = &replicas })
}

func (f clusterAPIDeployment) withSpecFromFile(file string) (deploymentSource, error) {
	found, sized, err := readDeployment(file, f.Deployment, clusterv1.GroupVersion)
	if err != nil {
		return nil, err
	}
	if !sized {
		found.Spec.Replicas = f.Deployment.Spec.Replicas
	}
	return f.withChange(func(d *clusterv1.MachineDeployment) { found.Spec.DeepCopyInto(&d.Spec) }), nil
}

func (f clusterAPIDeployment) withoutPauseAndHold() deploymentSource {
	return f.withChange(func(d *clusterv1.MachineDeployment) {
		d.Spec.Paused = nil
		delete(d.Annotations, v1alpha1.AnnotationRolloutHold)
	})
}

func (f clusterAPIDeployment) withTemplateOfSet(set int, now time.Time) deploymentSource {
	return f.withChange(func(d *clusterv1.MachineDeployment) {
		delete(d.Annotations, v1alpha1.AnnotationRollbackTo)
		if set >= 0 {
			deployment.RestoreTemplateFromSet(d, f.Sets[set], now)
		}
	})
}

func (f clusterAPIDeployment) patchDeployment(ctx context.Context, data []byte) error {
	d := f.Deployment
	_, err := f.Cache.Client().
		Deployments(d.Namespace).
		Patch(ctx, d.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

func (clusterAPIDeployment) patchBuilder() func(request.Command, request.Decision) map[string]any {
	return deployment.RequestPatch
}
